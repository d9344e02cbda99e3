"""Estimators: the scikit-learn front of the regions. No torch needed."""

from hyperproto.estimators.hypersphere import HypersphereClassifier

__all__ = ["HypersphereClassifier"]
