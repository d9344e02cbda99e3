"""Estimators: the scikit-learn front of the regions. No torch needed."""

from hyperproto.estimators.diagnosis import ClassReport, Diagnosis, MislabelledExample, OutlyingExample
from hyperproto.estimators.hypersphere import HypersphereClassifier

__all__ = ["ClassReport", "Diagnosis", "HypersphereClassifier", "MislabelledExample", "OutlyingExample"]
