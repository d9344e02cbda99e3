"""Linear heads fitted by optimisation, which start at a closed form of `hyperproto.regions`. NumPy only."""

from hyperproto.heads.softmax import RefinedForm, refine

__all__ = ["RefinedForm", "refine"]
