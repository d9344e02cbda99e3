"""Act2Param: a network predicts the weights of a class from its mean activation."""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from hyperproto.data import Pool
from hyperproto.encoders import Features
from hyperproto.errors import ConfigError
from hyperproto.methods.base import Group, Method
from hyperproto.methods.parts import class_means
from hyperproto.methods.task import Task
from hyperproto.regions import ClassStatistics
from hyperproto.regions.arrays import unit


class Act2Param(Method):
    """Qiao et al., "Few-Shot Image Recognition by Predicting Parameters from Activations", CVPR 2018.

    phi(x) = n(W2 relu(W1 n(x) + b1) + b2), where n scales to length 1, predicts the weights of a class from the mean of
    its support. The score of a query is its dot product with these weights. W1 and W2 are initialised to the identity:
    on non-negative activations the method starts as cosine prototypes. `pool="max"` predicts weights from each example
    separately and takes the largest product.

    Training uses episodes of all training classes with one support example and one query each (`way = "all"`), on
    vectors of a frozen encoder; only phi is trained. With probability `mean_rate` a class is represented by the mean of
    all its training examples instead of its support. Temperature 1 is for raw activations; for vectors of length 1 we
    use 0.1. phi has the size D of the encoder. Both are reconstructions.
    """

    traits = frozenset({"any-way", "any-shot", "unequal-shots", "equivariant", "untrained"})
    transforms = ("none", "unit")
    learns_encoder = False

    def __init__(
        self, *, n_classes: int, pool: Literal["mean", "max"] = "mean", mean_rate: float = 0.3, **options: Any
    ) -> None:
        super().__init__(n_classes=n_classes, **options)
        if not 0 <= mean_rate <= 1:
            raise ConfigError(f"Act2Param: mean_rate = {mean_rate} must be a probability, from 0 to 1")
        [dim] = self.feature_shape
        self.pool = pool
        self.mean_rate = mean_rate
        self.first, self.second = nn.Linear(dim, dim), nn.Linear(dim, dim)
        for layer in (self.first, self.second):
            nn.init.eye_(layer.weight)
            nn.init.zeros_(layer.bias)
        self.register_buffer("class_mean", torch.zeros(n_classes, dim))

    class_mean: Tensor

    def setup(self, pool: Pool, features: Features) -> None:
        """Encode the training data and store the mean of each class."""
        self.class_mean.copy_(class_means(pool, features))

    def phi(self, x: Tensor) -> Tensor:
        """Predict weights of length 1 from activations, (..., D) each."""
        weights: Tensor = unit(self.second(self.first(unit(x)).relu()))
        return weights

    def scores(self, task: Task) -> Tensor:
        """Return the product of each query with the weights of each class, (B, Q, N)."""
        return self._scores(task, None)

    def loss(self, task: Task) -> dict[str, Tensor]:
        """Return the cross entropy, with some classes represented by their mean over the training data."""
        by_mean = None
        if self.training:
            by_mean = torch.rand(task.classes.shape, device=task.query.device) < self.mean_rate  # (B, N)
        return {"cls": self.cross_entropy(self._scores(task.detached(), by_mean), task)}

    def param_groups(self) -> dict[str, Group]:
        """Return both layers as the group `head`."""
        return {"head": Group([*self.first.parameters(), *self.second.parameters()])}

    def _scores(self, task: Task, by_mean: Tensor | None) -> Tensor:
        """Return scores (B, Q, N); where `by_mean` (B, N) is True, the stored mean of a class replaces its support."""
        if self.pool == "max":
            scores = self._largest(task)
            if by_mean is None:
                return scores
            return torch.where(by_mean[:, None], task.query @ self.phi(self.class_mean[task.classes]).mT, scores)
        activation: Tensor = ClassStatistics.of(task.support, task.support_y, task.way).mean  # (B, N, D)
        if by_mean is not None:
            activation = torch.where(by_mean[..., None], self.class_mean[task.classes], activation)
        return task.query @ self.phi(activation).mT

    def _largest(self, task: Task) -> Tensor:
        """Return the largest product of a query with the weights predicted from one example of each class."""
        products = task.query @ self.phi(task.support).mT  # (B, Q, S)
        other = task.members() == 0  # (B, S, N)
        by_class = [products.masked_fill(other[:, None, :, n], -torch.inf).amax(-1) for n in range(task.way)]
        return torch.stack(by_class, -1)
