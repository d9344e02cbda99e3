"""Algorithm 1: stored regions of all training classes, trained with the encoder; closed forms for new classes."""

from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hyperproto.data import OUTSIDE, IntArray, Pool
from hyperproto.encoders import Features, Units, moved
from hyperproto.encoders.base import rows_between
from hyperproto.episodes.random import INITIALISATION, SHUFFLE, shuffled
from hyperproto.errors import ConfigError, DataError
from hyperproto.methods.base import Group, Method
from hyperproto.methods.task import Task
from hyperproto.regions import ClassStatistics

BATCH = 256  # items per forward pass of the initialisation
WATCHED = 12  # number of classes whose radius `monitor` reports


class StoredRegions(Method):
    """Base class of HyperProto with spheres, cones and Gaussians; a subclass defines the region.

    In training every training class has a stored radius and, with `centers="stored"`, a stored centre. Both are
    initialised from `init_shot` random instances (eq. 3; see `random_instances`) and trained by gradient, the radius
    with a separate optimiser. `init_shot="shot"` is the number of shots of the recipe's episodes. In tagging, O has the
    last row. `centers="episode"` (the paper's images) uses the mean of the episode's support as centre instead. New
    classes get a region in closed form from their support: `fit` selects which.

    Eq. 3 gives a class of one example the radius 0. With `fit="paper"`, `one_shot_radius` replaces it: by a number, or
    with "learned" by the mean of the trained radii. (The paper mentions a preset radius, but not its value.)
    """

    traits = frozenset({"any-way", "any-shot", "unequal-shots", "equivariant", "untrained", "translation-free"})
    radius_name: ClassVar[str] = "bias_radius"  # attribute of the region that is stored and trained

    def __init__(
        self,
        *,
        feature_shape: tuple[int, ...],
        n_classes: int,
        centers: Literal["stored", "episode"] = "stored",
        init_shot: int | Literal["shot"] = "shot",
        one_shot_radius: float | Literal["learned"] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(feature_shape=feature_shape, n_classes=n_classes, **options)
        if init_shot != "shot" and init_shot < 1:
            raise ConfigError(f"init_shot {init_shot}: a region starts from at least 1 instance")
        if one_shot_radius == "learned" and not n_classes:
            raise ConfigError(
                'one_shot_radius = "learned" is the mean of the radii that training stored, and nothing was trained '
                "here; evaluate a run, or give a number"
            )
        self.centers = centers
        self.needs_support = centers == "episode"  # stored centres are trained with queries only
        self.one_shot_radius = one_shot_radius
        self.init_shot = init_shot
        self.radius = nn.Parameter(torch.zeros(n_classes, 1))  # two axes, as F.embedding requires
        if centers == "stored":
            self.center = nn.Parameter(torch.zeros(n_classes, *feature_shape))

    def closed_form(self, support: Tensor, labels: Tensor, way: int, mode: str, **options: Any) -> Any:
        """Fit a region to the support of each class."""
        raise NotImplementedError

    def evaluation_options(self) -> dict[str, Any]:
        """Return options of the closed form that apply at evaluation only."""
        return {}

    def episode_centers(self, task: Task) -> Tensor:
        """Return centres estimated from the episode's support, (B, N, D)."""
        mean: Tensor = ClassStatistics.of(task.support, task.support_y, task.way).mean
        return mean

    def region(self, center: Tensor, radius: Tensor) -> Any:
        """Return regions with the given centres and radii."""
        raise NotImplementedError

    def measure(self, region: Any, query: Tensor) -> Tensor:
        """Return the measure of queries for regions, (B, Q, N); lower is better."""
        measure: Tensor = region.measure(query)
        return measure

    @torch.no_grad()
    def setup(self, pool: Pool, features: Features) -> None:
        """Run the initialisation of Algorithm 1: eq. 3 on K random instances of each training class."""
        if self.init_shot == "shot":
            raise ConfigError('init_shot = "shot" is the number of shots of a recipe; without one, give a number')
        support, labels = random_instances(pool, features, self.init_shot)
        region = self.closed_form(support, labels, pool.n_labels, "paper")
        self.radius.copy_(getattr(region, self.radius_name)[:, None])
        if self.centers == "stored":
            self.center.copy_(region.center)

    def scores(self, task: Task) -> Tensor:
        """Fit the classes in closed form, and return minus the measure of each query, (B, Q, N)."""
        task = self.placed(task)
        return -self.measure(self.fitted(task), task.query)

    def doubt(self, task: Task, scores: Tensor) -> Tensor:
        """Return the distance from the nearest class relative to its extent, or the region's own novelty score."""
        task = self.placed(task)
        doubt: Tensor = self.fitted(task).novelty(task.query, task.counts().to(task.query))
        return doubt

    def placed(self, task: Task) -> Task:
        """Return the task with the origin at the support's mean, for precision, if the region allows it."""
        return task

    def fitted(self, task: Task) -> Any:
        """Return regions fitted to the support in closed form."""
        region = self.closed_form(task.support, task.support_y, task.way, self.fit, **self.evaluation_options())
        return self.with_one_shot_radius(region, task)

    def with_one_shot_radius(self, region: Any, task: Task) -> Any:
        """Return regions in which classes of one example have the radius `one_shot_radius`, if it is set."""
        if self.one_shot_radius is None or self.fit != "paper":
            return region
        given = self.radius.detach().mean() if self.one_shot_radius == "learned" else self.one_shot_radius
        radius = getattr(region, self.radius_name)
        return replace(region, **{self.radius_name: torch.where(task.counts() == 1, given, radius)})

    def loss(self, task: Task) -> dict[str, Tensor]:
        """Return the loss of Algorithm 1: cross entropy of queries for the stored regions of the classes."""
        return {"cls": self.cross_entropy(-self.measure(self.stored_regions(task), task.query), task)}

    def stored_regions(self, task: Task) -> Any:
        """Return the regions of the episode's classes: stored radius, and stored or estimated centre."""
        center = self.center[task.classes] if self.centers == "stored" else self.episode_centers(task)  # (B, N, D)
        # Sparse gradient: rows of classes that the episode did not draw are unchanged.
        radius = F.embedding(task.classes, self.radius, sparse=True).squeeze(-1)  # (B, N)
        return self.region(center, radius)

    def param_groups(self) -> dict[str, Group]:
        """Return the radius as a table with a separate optimiser."""
        return {"radius": Group([self.radius], table=True)}

    def monitor(self) -> dict[str, float | list[float]]:
        """Return radii minus their mean, as only differences matter in the softmax."""
        radius = self.radius.detach().flatten()
        centred = radius - radius.mean()
        watched = centred[watched_classes(len(centred))]
        return {"radius_spread": float(centred.std(unbiased=False)), "radii": watched.tolist()}


def watched_classes(n_classes: int) -> Tensor:
    """Return at most WATCHED evenly spaced classes, whose radii `monitor` reports."""
    return torch.linspace(0, n_classes - 1, min(WATCHED, n_classes)).long()


def random_instances(pool: Pool, features: Features, shot: int) -> tuple[Tensor, Tensor]:
    """Encode `shot` random units of each class in mixed batches, as in training; return vectors and labels.

    In tagging, words of no entity in the drawn sentences form the class O, number `pool.n_classes`, as in the support
    of an episode.
    """
    labels, units = _drawn(pool, shot)
    items = pool.items_of(units)
    new = np.zeros(len(items), bool)
    new[np.unique(items, return_index=True)[1]] = True  # words of a sentence drawn twice count once
    prepared = features.prepared(pool)
    vectors, found = [], []
    for start in range(0, len(items), BATCH):
        here = slice(start, start + BATCH)
        encoded: Units = features(moved(features.collate(prepared, items[here]), features.device))
        rows, own = encoded.offsets[:-1], labels[here]
        if pool.outside_row is not None:
            outside = _outside(pool, items[here], new[here])
            rows = np.concatenate([rows + units[here] - pool.unit_offsets[items[here]], outside])
            own = np.concatenate([own, np.full(len(outside), pool.outside_row)])
        vectors.append(encoded.x[rows])
        found.append(own)
    return torch.cat(vectors), torch.from_numpy(np.concatenate(found)).to(vectors[0].device)


def _drawn(pool: Pool, shot: int) -> tuple[IntArray, IntArray]:
    """Draw units of each class; return classes and units in random order."""
    short = [pool.class_names[n] for n, count in enumerate(pool.counts) if not count]
    if short:
        raise DataError(f"{pool}: class {short[0]!r} has no instance to start its region from; leave it out")
    drawn, seed = [], torch.initial_seed() % 2**63  # the seed of the run
    for n, members in enumerate(pool.members):
        order = shuffled(seed, INITIALISATION, n, len(members))[:shot]
        drawn += [(n, members[i]) for i in order]
    labels, units = np.array(drawn)[shuffled(seed, SHUFFLE, 0, len(drawn))].T
    return labels, units


def _outside(pool: Pool, items: IntArray, new: IntArray) -> IntArray:
    """Return the rows of encoded units of no class, in items that are `new`."""
    starts, ends = pool.unit_offsets[items], pool.unit_offsets[items + 1]
    labels = pool.labels[rows_between(starts, ends)]
    return np.flatnonzero((labels == OUTSIDE) & np.repeat(new, ends - starts))
