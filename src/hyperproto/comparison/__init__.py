"""Comparison: runs x encoders x methods x options, measured on the same episodes."""
