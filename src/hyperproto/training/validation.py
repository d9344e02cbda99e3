"""What a run measures on validation classes: the metric that selects its weights, and its prior ratio.

`fit="bayes"` needs the ratio of within-class to between-class variance before it sees any support. The ratio depends on
encoder and data (0.25 for Conv4 on glyphs, 7 on miniImageNet), so a run measures it once, on validation classes that
were not trained on. An evaluation on some of these classes does not use it.
"""

import json
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import Self

import numpy as np
import torch

from hyperproto.data import Pool, Progress, open_pool
from hyperproto.encoders import FeatureTransform
from hyperproto.errors import DataError
from hyperproto.evaluation import EncodedPool, measure_episodes, training_center
from hyperproto.files import atomic_write, json_checksum, read_json
from hyperproto.problems import Measurement, problem_of
from hyperproto.recipes import Recipe
from hyperproto.regions import ClassStatistics
from hyperproto.regions.bayes import measured_ratio
from hyperproto.training.learner import Learner

WAY_OUT = "remove it: hyperproto train, with the same recipe and folder, measures it again"


class Validator:
    """The validation episodes of a run. Their classes are not trained on, and their results are not reported."""

    def __init__(self, recipe: Recipe, train_pool: Pool, on_data: Progress | None = None) -> None:
        task = recipe.validation
        self.pool = open_pool(recipe.validation_spec, task.split, on_data)
        self.problem = problem_of(self.pool)
        shape = {"way": task.way, "shot": task.shot, "query": task.query, "seed": task.seed, **task.sampler_options()}
        self.episodes = self.problem.sampler(self.pool, **shape).draw(task.episodes)
        self.train_pool = train_pool
        self._kept: EncodedPool | None = None  # vectors of a frozen encoder, which do not change

    def measure(self, learner: Learner, *, last: bool = False) -> Measurement:
        """Measure the learner on the validation episodes; `last` as in `encoded`."""
        features = learner.features
        if features.transform.kind == "center-unit":
            features.transform.set_center(
                training_center(features.encoder, self.train_pool, cached=features.encoder.frozen)
            )
        return measure_episodes(learner, self.encoded(learner, last=last), self.episodes)

    def encoded(self, learner: Learner, *, last: bool = False) -> EncodedPool:
        """Encode the validation pool; where the episodes draw few of its items, only those.

        Vectors of a frozen encoder are reused. They are cached on disk, as those of the `last` step are, for later
        evaluations of the run.
        """
        encoder = learner.features.encoder
        if learner.method.reads == "items":
            return EncodedPool.unread(encoder, self.pool)
        if self._kept is not None:
            return self._kept
        if self.problem.few_items:
            drawn = np.unique(np.concatenate([part for e in self.episodes for part in (e.support, e.query)]))
            encoded = EncodedPool.of_items(encoder, self.pool, drawn)
        else:
            encoded = EncodedPool.encode(encoder, self.pool, cached=last or encoder.frozen)
        self._kept = encoded if encoder.frozen else None
        return encoded

    def can_measure_ratio(self, learner: Learner) -> bool:
        """Return whether the prior ratio is defined: one vector an item, and no class in common with training."""
        vectors = learner.method.reads == "vectors" and self.pool.outside_row is None
        return vectors and not set(self.pool.class_names) & set(self.train_pool.class_names)


@dataclass(frozen=True)
class PriorRatio:
    """Prior ratios of a run by feature transform, and the classes they were measured on."""

    data: str
    split: str
    classes: list[str]
    ratio: dict[str, float]

    @classmethod
    def measure(cls, learner: Learner, encoded: EncodedPool) -> Self:
        """Measure the ratio for the transforms "none", "unit" and the one of the run."""
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
            if isfinite(found) and found > 0:  # otherwise there are too few vectors, or they do not vary
                ratio[kind] = found
        return cls(pool.name, pool.split, list(pool.class_names), ratio)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read and check prior_ratio.json; files of older versions have no checksum."""
        try:
            content = read_json(path, damaged=WAY_OUT)
            checksum = content.pop("checksum", None)
            if checksum is not None and checksum != json_checksum(content):
                raise ValueError("damaged, or changed after it was written: its checksum does not match")
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
        """Write prior_ratio.json with a checksum."""
        content = {**asdict(self), "checksum": json_checksum(asdict(self))}
        with atomic_write(path) as file:
            file.write(json.dumps(content, indent=1, ensure_ascii=False).encode() + b"\n")

    def for_pool(self, pool: Pool) -> dict[str, float]:
        """Return the ratios to use on a pool; none if they were measured on some of its classes."""
        return {} if set(self.classes) & set(pool.class_names) else self.ratio
