"""scikit-learn estimators: classifiers for vectors, texts and images, and a tagger.

Only encoding texts and images needs torch, which is imported when that happens.
"""

from os import PathLike
from pathlib import Path
from typing import Any

from hyperproto.errors import DataError, unknown_name
from hyperproto.estimators import first_version  # noqa: F401 # lets pickles of version 0.1 find their classes
from hyperproto.estimators.conformal import Expected
from hyperproto.estimators.doctor import ClassReport, Diagnosis, MislabelledExample, OutlyingExample
from hyperproto.estimators.drift import Drift
from hyperproto.estimators.explanation import Contributions, Explanation, NearExample
from hyperproto.estimators.few_shot import FewShotClassifier
from hyperproto.estimators.hypersphere import HypersphereClassifier
from hyperproto.estimators.image import FewShotImageClassifier, ImageEncoder
from hyperproto.estimators.multilabel import MultiLabelClassifier
from hyperproto.estimators.storage import read_kind as _read_kind
from hyperproto.estimators.suggestion import Suggestion
from hyperproto.estimators.tagger import EntityTagger
from hyperproto.estimators.text import FewShotTextClassifier, TextEncoder
from hyperproto.registry import Trust
from hyperproto.registry import trust as trust_files

__all__ = [
    "ClassReport",
    "Contributions",
    "Diagnosis",
    "Drift",
    "EntityTagger",
    "Expected",
    "Explanation",
    "FewShotClassifier",
    "FewShotImageClassifier",
    "FewShotTextClassifier",
    "HypersphereClassifier",
    "ImageEncoder",
    "MislabelledExample",
    "MultiLabelClassifier",
    "NearExample",
    "OutlyingExample",
    "Suggestion",
    "TextEncoder",
    "load_classifier",
]


def load_classifier(
    folder: str | PathLike[str], check_encoder: bool = True, *, trust: Trust = None
) -> HypersphereClassifier | FewShotClassifier:
    """Load a saved classifier of vectors, texts or images; a `MultiLabelClassifier` is loaded, too.

    Parameters
    ----------
    check_encoder : whether to load and check the encoder of texts or images now instead of at its first use.
    trust : .py files that a run, if that is the encoder, may import.
    """
    trust_files(trust)
    several: Any = MultiLabelClassifier  # not in the annotation: callers use it through the methods that all have
    classes: dict[str, type[FewShotClassifier]] = {
        cls.__name__: cls for cls in (FewShotTextClassifier, FewShotImageClassifier, several)
    }
    name = _read_kind(Path(folder))
    if name == HypersphereClassifier.__name__:
        return HypersphereClassifier.load(folder)
    if name not in classes:
        raise DataError(f"{folder}: {unknown_name('classifier', name, [*classes, HypersphereClassifier.__name__])}")
    return classes[name].load(folder, check_encoder)
