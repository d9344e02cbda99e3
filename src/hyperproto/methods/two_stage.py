"""Two-stage approach: a metric with predicted variances, then a network from few-shot means to prototypes."""

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hyperproto.data import Pool
from hyperproto.encoders import Features
from hyperproto.errors import ConfigError
from hyperproto.methods.base import Group, Method
from hyperproto.methods.parts import class_means, masked_softmax
from hyperproto.methods.task import Task
from hyperproto.regions import ClassStatistics
from hyperproto.regions.arrays import squared_distance, unit

LEAST_VARIANCE = 0.01
HIDDEN = 64  # hidden units of the variance network, and size of the attention to training classes
MAP_HIDDEN = 256
START_VARIANCE = 0.5413  # softplus of it is 1
START_OMEGA = -2.2522  # softplus of it is 0.1


class TwoStage(Method):
    """Das & Lee, "A Two-Stage Approach to Few-Shot Learning for Image Recognition", IEEE TIP 2020 (reconstruction).

    The structure follows the abstract; all formulas are our own, and results are not those of the paper.

    `stage="metric"`: the distance is the squared distance of a query to the mean of a class, each coordinate divided by
    a variance that a network predicts from the mean, plus omega times the squared distance between relative features.
    The relative features of a vector are its squared distances to all means of the episode, divided by D. The encoder,
    this network, omega and the temperature are trained.

    `stage="prototype"` starts from the encoder, `variance`, `omega` and `log_temperature` of a run of the first stage
    (`start = { recipe = ..., heads = [...] }`), which are fixed. Attention from the mean of a class to the means of all
    training classes, stored by `setup`, gives a context; a network maps mean and context to the difference between
    prototype and mean. The loss is the cross entropy of the same scores with prototypes instead of means (`cls`), plus
    `map_weight` times the squared distance of prototype and stored mean, divided by D (`map`). In training the
    episode's classes are masked in the attention.
    """

    traits = frozenset({"any-way", "any-shot", "unequal-shots", "equivariant", "untrained"})

    def __init__(
        self,
        *,
        n_classes: int,
        stage: Literal["metric", "prototype"] = "metric",
        map_weight: float = 1.0,
        learn_temperature: bool = True,
        **options: Any,
    ) -> None:
        learns_metric = stage == "metric"
        super().__init__(n_classes=n_classes, learn_temperature=learn_temperature and learns_metric, **options)
        if not map_weight >= 0:
            raise ConfigError(f"TwoStage: map_weight = {map_weight} must be 0 or more")
        [dim] = self.feature_shape
        self.stage = stage
        self.map_weight = map_weight
        self.learns_encoder = learns_metric
        last = nn.Linear(HIDDEN, dim)
        nn.init.zeros_(last.weight)
        nn.init.constant_(last.bias, START_VARIANCE)
        self.variance = nn.Sequential(nn.Linear(dim, HIDDEN), nn.ReLU(), last)  # g
        self.omega = nn.Parameter(torch.tensor(START_OMEGA))  # o
        if learns_metric:
            return
        for parameter in (*self.variance.parameters(), self.omega):
            parameter.requires_grad_(False)
        self.query, self.key = nn.Linear(dim, HIDDEN, bias=False), nn.Linear(dim, HIDDEN, bias=False)
        self.sharpness = nn.Parameter(torch.tensor(10.0))  # kappa
        last = nn.Linear(MAP_HIDDEN, dim)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.map = nn.Sequential(nn.Linear(2 * dim, MAP_HIDDEN), nn.ReLU(), last)  # F
        self.register_buffer("base", torch.zeros(n_classes, dim))

    base: Tensor

    def setup(self, pool: Pool, features: Features) -> None:
        """Store the mean of each training class for the second stage."""
        if self.stage == "prototype":
            self.base.copy_(class_means(pool, features))

    def scores(self, task: Task) -> Tensor:
        """Return minus the distance to each mean, or to each prototype, (B, Q, N)."""
        means = self._means(task)
        return self.measured(task, means, means if self.stage == "metric" else self.prototypes(task, means))

    def loss(self, task: Task) -> dict[str, Tensor]:
        """Return the cross entropy of the queries and, in the second stage, the distance to stored means."""
        if self.stage == "metric":
            return super().loss(task)
        task = task.detached()
        means = self._means(task)
        prototypes = self.prototypes(task, means)
        error = (prototypes - self.base[task.classes]).square().mean()
        scores = self.measured(task, means, prototypes)
        return {"cls": self.cross_entropy(scores, task), "map": self.map_weight * error}

    def measured(self, task: Task, means: Tensor, centers: Tensor) -> Tensor:
        """Return minus the distance of queries to `centers` (B, N, D), with variances predicted from the means."""
        variance = LEAST_VARIANCE + F.softplus(self.variance(means))  # (B, N, D)
        middle = centers.detach().mean(1, keepdim=True)  # for precision; distances are invariant
        query, centers = task.query - middle, centers - middle
        inverse = 1 / variance
        weighted = centers * inverse
        distance = query.square() @ inverse.mT - 2 * query @ weighted.mT + (centers * weighted).sum(-1)[:, None]
        relative = squared_distance(query, centers) / centers.shape[-1]
        difference = squared_distance(relative, relative_features(centers))  # (B, Q, N)
        scores: Tensor = -distance - F.softplus(self.omega) * difference
        return scores

    def prototypes(self, task: Task, means: Tensor) -> Tensor:
        """Map means (B, N, D) to prototypes, with attention to the stored means of training classes."""
        alike = unit(self.query(means)) @ unit(self.key(self.base)).mT  # (B, N, C)
        others = torch.ones(len(means), 1, len(self.base), dtype=torch.bool, device=means.device)
        if self.training:  # class numbers of other data are not rows of stored means
            others.scatter_(2, task.classes[:, None], False)
        context = masked_softmax(self.sharpness * alike, others) @ self.base
        prototypes: Tensor = means + self.map(torch.cat([means, context], -1))
        return prototypes

    def param_groups(self) -> dict[str, Group]:
        """Return the parameters of the stage, except encoder and temperature, as one group."""
        if self.stage == "metric":
            return {"head": Group([*self.variance.parameters(), self.omega])}
        modules = (self.query, self.key, self.map)
        return {"head": Group([self.sharpness, *(p for module in modules for p in module.parameters())])}

    def _means(self, task: Task) -> Tensor:
        means: Tensor = ClassStatistics.of(task.support, task.support_y, task.way).mean  # (B, N, D)
        return means


def relative_features(centers: Tensor) -> Tensor:
    """Return squared distances between centers (B, N, D), divided by D, (B, N, N); exactly 0 on the diagonal."""
    apart = 1 - torch.eye(centers.shape[1], device=centers.device)
    relative: Tensor = squared_distance(centers, centers) / centers.shape[-1] * apart
    return relative
