"""A saved classifier of any kind."""

from os import PathLike
from pathlib import Path

from hyperproto.errors import DataError, unknown_name
from hyperproto.estimators.hypersphere import HypersphereClassifier
from hyperproto.estimators.image import FewShotImageClassifier
from hyperproto.estimators.items import FewShotClassifier
from hyperproto.estimators.storage import read_kind
from hyperproto.estimators.text import FewShotTextClassifier

KINDS = {cls.__name__: cls for cls in (HypersphereClassifier, FewShotTextClassifier, FewShotImageClassifier)}


def load_classifier(folder: str | PathLike[str], check_encoder: bool = True) -> HypersphereClassifier:
    """Load whatever classifier a folder holds; without `check_encoder` its encoder is not even loaded yet."""
    kind = read_kind(Path(folder))
    if kind not in KINDS:
        raise DataError(f"{folder}: {unknown_name('classifier', kind, KINDS)}")
    cls: type[HypersphereClassifier] = KINDS[kind]
    return cls.load(folder, check_encoder) if issubclass(cls, FewShotClassifier) else cls.load(folder)
