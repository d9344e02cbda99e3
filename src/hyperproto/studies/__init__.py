"""Whole pieces of work: the demo (`hyperproto demo`), tables and figures of the paper (`hyperproto report`), grids."""
