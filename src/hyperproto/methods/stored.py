"""Algorithm 1: stored regions of all training classes, learned with the encoder; closed forms for unseen ones."""

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

BATCH = 256  # items per forward of the initialisation
WATCHED = 12  # classes whose radius `monitor` reports


class StoredRegions(Method):
    """What HyperProto's sphere, cone and Gaussian have in common. A subclass says which region it is.

    In training every class of the training set has a stored radius and, with `centers="stored"`, a stored centre; both
    start from `init_shot` random instances (eq. 3; see `random_instances`) and learn by gradient, the radius under its
    own optimiser. `init_shot="shot"` stands for the shots of the recipe's episodes, which `resolve` fills in. Where
    words are tagged, O has a row of its own, the last. `centers="episode"` (the paper's images) takes the mean of the
    episode's support instead. Unseen classes get their region in closed form from their support: `fit` says which.

    Eq. 3 gives a class of one example the radius 0. `one_shot_radius` gives it another in `fit="paper"`: a number, or
    "learned", the mean of the learned radii (the paper's Limitations speak of a set radius there, and give none).
    """

    traits = frozenset({"any-way", "any-shot", "unequal-shots", "equivariant", "untrained", "translation-free"})
    radius_name: ClassVar[str] = "bias_radius"  # what the region calls the number that is stored and learned

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
        self.needs_support = centers == "episode"  # stored centres are trained on queries alone
        self.one_shot_radius = one_shot_radius
        self.init_shot = init_shot
        self.radius = nn.Parameter(torch.zeros(n_classes, 1))  # two axes, as F.embedding wants them
        if centers == "stored":
            self.center = nn.Parameter(torch.zeros(n_classes, *feature_shape))

    def closed_form(self, support: Tensor, labels: Tensor, way: int, mode: str, **options: Any) -> Any:
        """Fit a region to the support of each class."""
        raise NotImplementedError

    def evaluation_options(self) -> dict[str, Any]:
        """Options of the closed form that count at evaluation only."""
        return {}

    def episode_centers(self, task: Task) -> Tensor:
        """Centres from the episode's own support, (B, N, D)."""
        mean: Tensor = ClassStatistics.of(task.support, task.support_y, task.way).mean
        return mean

    def region(self, center: Tensor, radius: Tensor) -> Any:
        """Make regions of stored centres and radii."""
        raise NotImplementedError

    def measure(self, region: Any, query: Tensor) -> Tensor:
        """Measure queries against regions, (B, Q, N), lower is better."""
        measure: Tensor = region.measure(query)
        return measure

    @torch.no_grad()
    def setup(self, pool: Pool, features: Features) -> None:
        """Initialisation phase of Algorithm 1: eq. 3 on K random instances of each training class."""
        if self.init_shot == "shot":
            raise ConfigError('init_shot = "shot" is the number of shots of a recipe; without one, give a number')
        support, labels = random_instances(pool, features, self.init_shot)
        region = self.closed_form(support, labels, pool.n_labels, "paper")
        self.radius.copy_(getattr(region, self.radius_name)[:, None])
        if self.centers == "stored":
            self.center.copy_(region.center)

    def scores(self, task: Task) -> Tensor:
        """Fit unseen classes in closed form; minus the measure of each query."""
        task = self.placed(task)
        return -self.measure(self.fitted(task), task.query)

    def doubt(self, task: Task, scores: Tensor) -> Tensor:
        """How far outside the nearest class in units of its extent, or as the region has it better."""
        task = self.placed(task)
        doubt: Tensor = self.fitted(task).novelty(task.query, task.counts().to(task.query))
        return doubt

    def placed(self, task: Task) -> Task:
        """Move the origin to where single precision is best, if the region does not care where it is."""
        return task

    def fitted(self, task: Task) -> Any:
        """Fit unseen classes in closed form."""
        region = self.closed_form(task.support, task.support_y, task.way, self.fit, **self.evaluation_options())
        return self.with_one_shot_radius(region, task)

    def with_one_shot_radius(self, region: Any, task: Task) -> Any:
        """Give classes of one example the radius that `one_shot_radius` names, where that is asked for."""
        if self.one_shot_radius is None or self.fit != "paper":
            return region
        given = self.radius.detach().mean() if self.one_shot_radius == "learned" else self.one_shot_radius
        radius = getattr(region, self.radius_name)
        return replace(region, **{self.radius_name: torch.where(task.counts() == 1, given, radius)})

    def loss(self, task: Task) -> dict[str, Tensor]:
        """Learning phase of Algorithm 1: queries against the stored regions of the episode's classes."""
        return {"cls": self.cross_entropy(-self.measure(self.stored_regions(task), task.query), task)}

    def stored_regions(self, task: Task) -> Any:
        """Look up the episode's classes: learned radius, and learned or re-estimated centre."""
        center = self.center[task.classes] if self.centers == "stored" else self.episode_centers(task)  # (B, N, D)
        # A sparse gradient: the optimiser leaves alone the rows of classes that the episode did not draw.
        radius = F.embedding(task.classes, self.radius, sparse=True).squeeze(-1)  # (B, N)
        return self.region(center, radius)

    def param_groups(self) -> dict[str, Group]:
        """The radius has its own optimiser and learning rate."""
        return {"radius": Group([self.radius], table=True)}

    def monitor(self) -> dict[str, float | list[float]]:
        """Only differences of radii matter in the softmax: watch them centred."""
        radius = self.radius.detach().flatten()
        centred = radius - radius.mean()
        watched = centred[watched_classes(len(centred))]
        return {"radius_spread": float(centred.std(unbiased=False)), "radii": watched.tolist()}


def watched_classes(n_classes: int) -> Tensor:
    """Number the classes whose radii `monitor` reports: spread over all, at most WATCHED."""
    return torch.linspace(0, n_classes - 1, min(WATCHED, n_classes)).long()


def random_instances(pool: Pool, features: Features, shot: int) -> tuple[Tensor, Tensor]:
    """Encode `shot` units of each class as training does (batch norm sees mixed batches): vectors and labels.

    Where items have many units, those of no class are a class too, O, numbered `pool.n_classes`: it is what else is in
    the sentences that were drawn, as in the support of an episode.
    """
    labels, units = _drawn(pool, shot)
    items = pool.items_of(units)
    new = np.zeros(len(items), bool)
    new[np.unique(items, return_index=True)[1]] = True  # the O of a sentence counts once, however often it was drawn
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
    """Draw classes and units, in random order."""
    short = [pool.class_names[n] for n, count in enumerate(pool.counts) if not count]
    if short:
        raise DataError(f"{pool}: class {short[0]!r} has no instance to start its region from; leave it out")
    drawn, seed = [], torch.initial_seed() % 2**63  # the run's own: another seed starts from other instances
    for n, members in enumerate(pool.members):
        order = shuffled(seed, INITIALISATION, n, len(members))[:shot]
        drawn += [(n, members[i]) for i in order]
    labels, units = np.array(drawn)[shuffled(seed, SHUFFLE, 0, len(drawn))].T
    return labels, units


def _outside(pool: Pool, items: IntArray, new: IntArray) -> IntArray:
    """Find the rows of the encoded items that are of no class, in items that are new."""
    starts, ends = pool.unit_offsets[items], pool.unit_offsets[items + 1]
    labels = pool.labels[rows_between(starts, ends)]
    return np.flatnonzero((labels == OUTSIDE) & np.repeat(new, ends - starts))
