"""Building blocks that several encoders share."""
