"""The kinds of classifiers: which class reads which items. `load_classifier` loads a saved one of any kind."""

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from hyperproto.errors import DataError, unknown_name
from hyperproto.estimators.hypersphere import HypersphereClassifier
from hyperproto.estimators.image import FewShotImageClassifier
from hyperproto.estimators.items import FewShotClassifier, run_folder
from hyperproto.estimators.storage import read_kind
from hyperproto.estimators.text import FewShotTextClassifier
from hyperproto.files import read_json
from hyperproto.registry import Trust
from hyperproto.registry import trust as trust_files

VECTORS = "identity"  # the encoder of those who have vectors already


@dataclass(frozen=True)
class Kind:
    """A class of classifiers, and what it reads."""

    cls: type[HypersphereClassifier]
    items: str  # "text", "image" or "vector": also the column of a table that holds them, unless told otherwise


CLASSIFIERS = {
    kind.cls.__name__: kind
    for kind in (
        Kind(FewShotTextClassifier, "text"),
        Kind(FewShotImageClassifier, "image"),
        Kind(HypersphereClassifier, "vector"),
    )
}


def kind_of(model: HypersphereClassifier) -> Kind:
    """The kind of a classifier; of a class derived from one of them, that of its parent."""
    return next(CLASSIFIERS[cls.__name__] for cls in type(model).__mro__ if cls.__name__ in CLASSIFIERS)


def new_classifier(encoder: str | None = None, images: bool = False, **settings: Any) -> HypersphereClassifier:
    """Make the classifier that uses an encoder: of images or texts, by the encoder's name or what a run read.

    `images` says that the items are images, whatever the encoder; "identity" is for vectors.
    """
    if encoder == VECTORS:
        return HypersphereClassifier(**settings)
    if images or encoder == FewShotImageClassifier().encoder or _read_images(encoder):
        cls: type[FewShotClassifier] = FewShotImageClassifier
    else:
        cls = FewShotTextClassifier
    return cls(**({} if encoder is None else {"encoder": encoder}), **settings)


def _read_images(encoder: str | None) -> bool:
    """Whether this is a run whose encoder read images."""
    folder = run_folder(encoder)
    try:
        return folder is not None and "channels" in read_json(folder / "config.json")["recipe"]["encoder"]
    except (DataError, LookupError, TypeError):  # damaged: loading the run says so
        return False


def load_classifier(
    folder: str | PathLike[str], check_encoder: bool = True, *, trust: Trust = None
) -> HypersphereClassifier:
    """Load whatever classifier a folder holds; without `check_encoder` its encoder is not even loaded yet.

    `trust` names .py files that a run, where that is the encoder, may import.
    """
    trust_files(trust)
    kind = read_kind(Path(folder))
    if kind not in CLASSIFIERS:
        raise DataError(f"{folder}: {unknown_name('classifier', kind, CLASSIFIERS)}")
    cls = CLASSIFIERS[kind].cls
    return cls.load(folder, check_encoder) if issubclass(cls, FewShotClassifier) else cls.load(folder)
