"""Estimators: the scikit-learn front of the regions. Only texts and images need torch, and only when they are read."""

from hyperproto.estimators.conformal import Expected
from hyperproto.estimators.doctor import ClassReport, Diagnosis, MislabelledExample, OutlyingExample
from hyperproto.estimators.hypersphere import HypersphereClassifier
from hyperproto.estimators.image import FewShotImageClassifier, ImageEncoder
from hyperproto.estimators.kinds import load_classifier
from hyperproto.estimators.tagger import EntityTagger
from hyperproto.estimators.text import FewShotTextClassifier, TextEncoder

__all__ = [
    "ClassReport",
    "Diagnosis",
    "EntityTagger",
    "Expected",
    "FewShotImageClassifier",
    "FewShotTextClassifier",
    "HypersphereClassifier",
    "ImageEncoder",
    "MislabelledExample",
    "OutlyingExample",
    "TextEncoder",
    "load_classifier",
]
