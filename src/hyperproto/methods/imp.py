"""Infinite mixture prototypes: each class has a number of clusters that is inferred in each episode."""

from dataclasses import dataclass
from math import log
from typing import Any, Literal

import torch
from torch import Tensor, nn

from hyperproto.errors import ConfigError
from hyperproto.methods.base import LEAST_TEMPERATURE, Method
from hyperproto.methods.parts import in_blocks, masked_softmax
from hyperproto.methods.task import PAD, Task
from hyperproto.regions import ClassStatistics

EMPTY = 1e-3  # clusters with less mass are removed
LOWEST = -1e30  # score of a class without clusters in the loss; -inf would make the temperature's gradient NaN
NO_CLASS = -1  # label of a cluster of unlabelled examples


@dataclass(frozen=True, eq=False)
class ClusterBatch:
    """Clusters of B episodes, padded to C each; `active` is the mask."""

    center: Tensor  # (B, C, D)
    label: Tensor  # (B, C) 0 to N - 1, or NO_CLASS
    active: Tensor  # (B, C) bool

    def of(self, label: int) -> Tensor:
        """Return the mask of active clusters of a label, (B, C)."""
        return self.active & (self.label == label)

    def added(self, center: Tensor, label: Tensor, active: Tensor) -> "ClusterBatch":
        """Append clusters."""
        parts = ((self.center, center), (self.label, label), (self.active, active))
        return ClusterBatch(*(torch.cat(pair, 1) for pair in parts))


class IMP(Method):
    """Allen et al., "Infinite Mixture Prototypes for Few-Shot Learning", ICML 2019.

    A class starts with one cluster at its mean. A support example whose squared distance from every cluster of its
    class exceeds a threshold starts a new cluster (in the order of the support; `rule="first"`, as in the released
    code, compares with the first cluster only). Examples are assigned softly to the clusters of their class, and each
    centre becomes the weighted mean; this is done `passes` times. The score of a class is that of its best cluster,
    `-||q - mu||^2 / (2 sigma)`. With one shot this is ProtoNet at temperature 2 sigma.

    The threshold is `-2 sigma log(alpha) + D sigma log(1 + rho / sigma)`, where rho is the variance of the class means,
    or the option `threshold`: infinity gives ProtoNet, 0 with sigma towards 0 nearest neighbour. The variance `sigma`
    is learned; the defaults are those for miniImageNet. For vectors of length 1 use `sigma = 0.05`.

    With `unlabelled=True`, unlabelled examples (`[unlabelled]`) may join all clusters and start clusters of no class,
    with a separate variance. In training the best of these is an additional answer. Excluding it from the scores is our
    choice.
    """

    traits = frozenset({"any-way", "any-shot", "unequal-shots", "equivariant", "untrained", "translation-free"})

    def __init__(
        self,
        *,
        sigma: float = 15.0,
        alpha: float = 1e-5,
        threshold: float | None = None,
        rule: Literal["class", "first"] = "class",
        passes: int = 1,
        unlabelled: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        for name, value in {"sigma": sigma, "alpha": alpha}.items():
            if not LEAST_TEMPERATURE <= value <= 1 / LEAST_TEMPERATURE:
                raise ConfigError(f"{name} {value} must be a number above 0, such as 0.1")
        if passes < 1 or (threshold is not None and not threshold >= 0):
            raise ConfigError(f"passes {passes} must be at least 1, and threshold {threshold} not below 0")
        self.alpha, self.fixed_threshold, self.rule, self.passes = alpha, threshold, rule, passes
        self.needs_unlabelled = unlabelled
        self.log_sigma = nn.Parameter(torch.tensor(log(sigma)))
        if unlabelled:
            self.log_sigma_unlabelled = nn.Parameter(torch.tensor(log(sigma)))
        self._counts: Tensor | None = None  # clusters of each class in the last training step

    def scores(self, task: Task) -> Tensor:
        """Return the score of the best cluster of each class, (B, Q, N)."""
        return self._columns(task)[..., : task.way]

    def loss(self, task: Task) -> dict[str, Tensor]:
        """Return the cross entropy over the classes and, with unlabelled examples, the best cluster of no class."""
        if self.needs_unlabelled and task.unlabelled is None:
            raise ConfigError("imp with unlabelled = true learns from items without labels; add [unlabelled]")
        if task.unlabelled is not None and not self.needs_unlabelled:
            raise ConfigError("imp ignores [unlabelled]; add unlabelled = true to [method], or leave it out")
        return {"cls": self.cross_entropy(self._columns(task).clamp(min=LOWEST), task)}

    def monitor(self) -> dict[str, float | list[float]]:
        """Return the variance, and the mean number of clusters of a class in the last training step."""
        found: dict[str, float | list[float]] = {"sigma": float(self.log_sigma.detach().exp())}
        if self.needs_unlabelled:
            found["sigma_unlabelled"] = float(self.log_sigma_unlabelled.detach().exp())
        return found if self._counts is None else {**found, "clusters": float(self._counts.mean())}

    def clusters(self, task: Task) -> ClusterBatch:
        """Return the clusters of each episode; gradients flow through the examples into the centres only."""
        rows, labels = task.support, task.support_y  # (B, R, D), (B, R)
        if task.unlabelled is not None:
            rows = torch.cat([rows, task.unlabelled], 1)
            labels = torch.cat([labels, labels.new_full(task.unlabelled.shape[:2], NO_CLASS)], 1)
        statistics = ClassStatistics.of(task.support.detach(), task.support_y, task.way)
        classes = torch.arange(task.way, device=labels.device).expand(len(labels), -1)
        found = ClusterBatch(statistics.mean, classes, statistics.count > 0)
        threshold = self.threshold(found, unlabelled=task.unlabelled is not None)
        for _ in range(self.passes):
            found, shares = self.shared(found, rows, labels, threshold)  # (B, R, C)
            mass = shares.sum(1)  # (B, C)
            center = shares.mT @ rows / mass.clamp(min=EMPTY)[..., None]
            found = ClusterBatch(center, found.label, found.active & (mass > EMPTY))
        return found

    @torch.no_grad()
    def threshold(self, means: ClusterBatch, *, unlabelled: bool = False) -> Tensor:
        """Return lambda, (B,), the squared distance beyond which an example starts a cluster, from class means."""
        if self.fixed_threshold is not None:
            return means.center.new_full(means.label.shape[:1], self.fixed_threshold)
        sigma = self.log_sigma.exp()
        if unlabelled:
            sigma = (sigma + self.log_sigma_unlabelled.exp()) / 2
        there = means.active[..., None].to(means.center)  # (B, N, 1)
        count = there.sum(1)  # (B, 1)
        middle = (there * means.center).sum(1, keepdim=True) / count[..., None].clamp(min=1)
        variance = (there * (means.center - middle) ** 2).sum(1) / (count - 1).clamp(min=1)  # (B, D)
        size = means.center.shape[-1]
        return -2 * sigma * log(self.alpha) + size * sigma * (variance.mean(-1) / sigma).log1p()

    @torch.no_grad()
    def shared(
        self, found: ClusterBatch, rows: Tensor, labels: Tensor, threshold: Tensor
    ) -> tuple[ClusterBatch, Tensor]:
        """Add clusters started by rows (B, R, D), and return them with soft assignments (B, R, C + R).

        A labelled row may belong to clusters of its class, an unlabelled one to any, padding to none.
        """
        places = found.label.shape[1]
        found = found.added(rows, labels, torch.zeros_like(labels, dtype=torch.bool))
        distance = torch.cdist(rows, found.center, compute_mode="donot_use_mm_for_euclid_dist") ** 2
        own = (labels[..., None] == found.label[:, None]) | (labels == NO_CLASS)[..., None]  # (B, R, C + R)
        for i in range(rows.shape[1]):
            there = own[:, i] & found.active
            if self.rule == "first":
                there &= (there.cumsum(1) == 1) | (labels[:, i] == NO_CLASS)[:, None]
            nearest = distance[:, i].masked_fill(~there, torch.inf).amin(1)  # (B,)
            found.active[:, places + i] = (nearest > threshold) & (labels[:, i] != PAD)
        logits = self._logits(distance, found.label)
        return found, masked_softmax(logits, own & found.active[:, None])

    def _columns(self, task: Task) -> Tensor:
        """Return the score of the best cluster of each class, (B, Q, N), with a last column for clusters of no class.

        The last column exists only with unlabelled examples.
        """
        task = task.centred()
        found = self.clusters(task)
        squares = (found.center**2).sum(-1)[:, None]  # (B, 1, C)
        answers = [*range(task.way), *([] if task.unlabelled is None else [NO_CLASS])]
        if self.training:
            self._counts = (found.active & (found.label >= 0)).sum(1) / task.way

        def best(query: Tensor) -> Tensor:
            distance = (query**2).sum(-1, keepdim=True) - 2 * query @ found.center.mT + squares  # (B, Q, C)
            logits = self._logits(distance, found.label)
            of = [logits.masked_fill(~found.of(label)[:, None], -torch.inf).amax(-1) for label in answers]
            return torch.stack(of, -1)

        return in_blocks(best, task.query, 3 * found.label.shape[1])

    def _logits(self, distance: Tensor, label: Tensor) -> Tensor:
        """Return the log density of a normal at squared distances (B, R, C), up to a shared constant."""
        if not self.needs_unlabelled:
            return -distance / (2 * self.log_sigma.exp())
        log_sigma = torch.where(label == NO_CLASS, self.log_sigma_unlabelled, self.log_sigma)[:, None]  # (B, 1, C)
        [size] = self.feature_shape
        return -distance / (2 * log_sigma.exp()) - size / 2 * log_sigma
