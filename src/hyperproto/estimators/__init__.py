"""Estimators: the scikit-learn front of the regions. Only texts and images need torch, and only when they are read."""

from os import PathLike
from pathlib import Path

from hyperproto.errors import DataError, unknown_name
from hyperproto.estimators.conformal import Expected
from hyperproto.estimators.doctor import ClassReport, Diagnosis, MislabelledExample, OutlyingExample
from hyperproto.estimators.hypersphere import HypersphereClassifier
from hyperproto.estimators.image import FewShotImageClassifier, ImageEncoder
from hyperproto.estimators.tagger import EntityTagger
from hyperproto.estimators.text import FewShotTextClassifier, TextEncoder
from hyperproto.registry import Trust
from hyperproto.registry import trust as trust_files

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


def load_classifier(
    folder: str | PathLike[str], check_encoder: bool = True, *, trust: Trust = None
) -> HypersphereClassifier:
    """Load the classifier that a folder holds, of whichever class.

    Parameters
    ----------
    check_encoder : load the encoder of texts or images, too, and check it; without it the first use loads it.
    trust : .py files that a run, where that is the encoder, may import.
    """
    from hyperproto.estimators.items import FewShotClassifier
    from hyperproto.estimators.storage import read_kind

    trust_files(trust)
    known = (FewShotTextClassifier, FewShotImageClassifier, HypersphereClassifier)
    classes: dict[str, type[HypersphereClassifier]] = {cls.__name__: cls for cls in known}
    name = read_kind(Path(folder))
    if name not in classes:
        raise DataError(f"{folder}: {unknown_name('classifier', name, classes)}")
    cls = classes[name]
    return cls.load(folder, check_encoder) if issubclass(cls, FewShotClassifier) else cls.load(folder)
