"""The prior_ratio that a trained run carries: within- to between-class variance of its validation classes.

`fit="bayes"` expects a ratio before the support has said anything, and how compact classes are depends on the encoder
and on the data: 0.25 for Conv4 on glyphs, 7 on miniImageNet. A run measures it once, on validation classes that it was
not trained on. Where some of those are evaluated it is not used: nothing is reported of the classes it was tuned on.
"""

import json
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import Self

import torch

from hyperproto.data import Pool
from hyperproto.encoders import FeatureTransform
from hyperproto.errors import DataError
from hyperproto.evaluation import EncodedPool
from hyperproto.files import atomic_write, json_checksum, read_json
from hyperproto.regions import ClassStatistics
from hyperproto.regions.bayes import measured_ratio
from hyperproto.training.learner import Learner

WAY_OUT = "remove it: hyperproto train, with the same recipe and folder, measures it again"


@dataclass(frozen=True)
class PriorRatio:
    """Ratios by feature transform, and the classes that they were measured on."""

    data: str
    split: str
    classes: list[str]
    ratio: dict[str, float]

    @staticmethod
    def can_measure(learner: Learner, pool: Pool, train_pool: Pool) -> bool:
        """Whether a pool says what to expect of unseen classes: its own were not trained on, and items have one."""
        vectors = learner.method.reads == "vectors" and pool.outside_row is None
        return vectors and not set(pool.class_names) & set(train_pool.class_names)

    @classmethod
    def measure(cls, learner: Learner, encoded: EncodedPool) -> Self:
        """Measure the classes of a pool, for vectors as they are, of length 1, and as the run has them."""
        features, pool, vectors = learner.features, encoded.pool, encoded.units.x.double()
        labels = torch.from_numpy(pool.labels).to(vectors.device)
        ratio = {}
        for kind in dict.fromkeys(("none", "unit", features.transform.kind)):
            transform = FeatureTransform(kind, features.feature_shape).to(vectors.device).eval()
            if kind == "center-unit":
                transform.set_center(features.transform.center)
            x = transform(vectors).flatten(1)
            stats = ClassStatistics.of(x - x.mean(0), labels, pool.n_classes)
            found = round(float(measured_ratio(stats)), 4)
            if isfinite(found) and found > 0:  # else vectors are too few, or too much alike, to say
                ratio[kind] = found
        return cls(pool.name, pool.split, list(pool.class_names), ratio)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read what `write` wrote; files of older versions have no checksum."""
        try:
            content = read_json(path, damaged=WAY_OUT)
            checksum = content.pop("checksum", None)
            if checksum is not None and checksum != json_checksum(content):
                raise ValueError("damaged, or changed after it was written: its checksum is another")
            read = cls(**content)
        except (TypeError, ValueError, AttributeError) as error:
            raise DataError(f"{path}: not the ratios of a run ({error}); {WAY_OUT}") from None
        for key in ("data", "split"):
            if not isinstance(getattr(read, key), str):
                raise DataError(f"{path}: {key!r} is {getattr(read, key)!r}, not a name; {WAY_OUT}")
        if not (isinstance(read.classes, list) and all(isinstance(name, str) for name in read.classes)):
            raise DataError(f"{path}: 'classes' is not a list of names; {WAY_OUT}")
        for kind, ratio in read.ratio.items() if isinstance(read.ratio, dict) else [("all", read.ratio)]:
            if type(ratio) not in (float, int) or not isfinite(ratio) or ratio <= 0:
                raise DataError(f"{path}: the ratio of {kind!r} is {ratio!r}, not a number above 0; {WAY_OUT}")
        return read

    def write(self, path: Path) -> None:
        """Write it beside the run's weights."""
        content = {**asdict(self), "checksum": json_checksum(asdict(self))}
        with atomic_write(path) as file:
            file.write(json.dumps(content, indent=1, ensure_ascii=False).encode() + b"\n")

    def for_pool(self, pool: Pool) -> dict[str, float]:
        """The ratios to expect of a pool; none where they were measured on some of its classes."""
        return {} if set(self.classes) & set(pool.class_names) else self.ratio
