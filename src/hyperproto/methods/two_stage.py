"""Two-stage approach: a metric with predicted variances, then a map from means of few examples to class prototypes."""

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hyperproto.data import Pool
from hyperproto.encoders import Features
from hyperproto.errors import ConfigError
from hyperproto.methods.base import Group, Method
from hyperproto.methods.class_means import class_means
from hyperproto.methods.parts import masked_softmax
from hyperproto.methods.task import Task
from hyperproto.regions import ClassStatistics
from hyperproto.regions.arrays import squared_distance, unit

LEAST_VARIANCE = 0.01
HIDDEN = 64  # units of the variance network; also the size of attention to the training classes
MAP_HIDDEN = 256
START_VARIANCE = 0.5413  # softplus of it is 1
START_OMEGA = -2.2522  # softplus of it is 0.1


class TwoStage(Method):
    """Das & Lee, "A Two-Stage Approach to Few-Shot Learning for Image Recognition", IEEE TIP 2020 (reconstruction).

    The structure is that of the abstract, and all formulas are ours: no number of this method is the paper's.

    `stage="metric"`: the squared distance of a query to the mean of a class, each coordinate divided by a variance that
    a network predicts from the mean, plus omega times the squared distance between relative features. The relative
    features of a vector are its squared distances to all means of the episode, divided by D. It learns with the
    encoder and the temperature.

    `stage="prototype"` starts from the encoder and the parts `variance`, `omega` and `log_temperature` of a run of the
    first stage (`start = { recipe = ..., heads = [...] }`), all of which stay as they are. Attention from the mean of a
    class to the means of all training classes, stored by `setup`, gives a context; a network turns mean and context
    into the difference from mean to prototype. It learns by the same scores with prototypes in place of means (`cls`)
    and by the squared distance of the prototype to the stored mean of the class, divided by D, times `map_weight`
    (`map`). In training the episode's own classes are hidden from the attention.
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
        """Store the mean of each training class, for the second stage."""
        if self.stage == "prototype":
            self.base.copy_(class_means(pool, features))

    def scores(self, task: Task) -> Tensor:
        """Score by the distance to each mean, or to each prototype."""
        means = self._means(task)
        return self.measured(task, means, means if self.stage == "metric" else self.prototypes(task, means))

    def loss(self, task: Task) -> dict[str, Tensor]:
        """Cross entropy of the queries and, in the second stage, the distance of prototypes to stored means."""
        if self.stage == "metric":
            return super().loss(task)
        task = task.detached()
        means = self._means(task)
        prototypes = self.prototypes(task, means)
        error = (prototypes - self.base[task.classes]).square().mean()
        scores = self.measured(task, means, prototypes)
        return {"cls": self.cross_entropy(scores, task), "map": self.map_weight * error}

    def measured(self, task: Task, means: Tensor, centers: Tensor) -> Tensor:
        """Minus the distance of each query to each center (B, N, D), with variances predicted from the means."""
        variance = LEAST_VARIANCE + F.softplus(self.variance(means))  # (B, N, D)
        middle = centers.detach().mean(1, keepdim=True)  # distances do not see it, and keep their digits
        query, centers = task.query - middle, centers - middle
        inverse = 1 / variance
        weighted = centers * inverse
        distance = query.square() @ inverse.mT - 2 * query @ weighted.mT + (centers * weighted).sum(-1)[:, None]
        relative = squared_distance(query, centers) / centers.shape[-1]
        difference = squared_distance(relative, relative_features(centers))  # (B, Q, N)
        scores: Tensor = -distance - F.softplus(self.omega) * difference
        return scores

    def prototypes(self, task: Task, means: Tensor) -> Tensor:
        """Map means (B, N, D) to prototypes, with the help of the training classes' stored means."""
        alike = unit(self.query(means)) @ unit(self.key(self.base)).mT  # (B, N, C)
        others = torch.ones(len(means), 1, len(self.base), dtype=torch.bool, device=means.device)
        if self.training:  # of other data, numbers of classes are not those of stored means
            others.scatter_(2, task.classes[:, None], False)
        context = masked_softmax(self.sharpness * alike, others) @ self.base
        prototypes: Tensor = means + self.map(torch.cat([means, context], -1))
        return prototypes

    def param_groups(self) -> dict[str, Group]:
        """What the stage learns beside encoder and temperature is one dense group."""
        if self.stage == "metric":
            return {"head": Group([*self.variance.parameters(), self.omega])}
        modules = (self.query, self.key, self.map)
        return {"head": Group([self.sharpness, *(p for module in modules for p in module.parameters())])}

    def _means(self, task: Task) -> Tensor:
        means: Tensor = ClassStatistics.of(task.support, task.support_y, task.way).mean  # (B, N, D)
        return means


def relative_features(centers: Tensor) -> Tensor:
    """Squared distances of centers (B, N, D) to each other divided by D, (B, N, N); exactly 0 to themselves."""
    apart = 1 - torch.eye(centers.shape[1], device=centers.device)
    relative: Tensor = squared_distance(centers, centers) / centers.shape[-1] * apart
    return relative
