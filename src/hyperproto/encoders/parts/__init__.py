"""Building blocks shared by several encoders."""
