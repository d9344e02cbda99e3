"""Variational few-shot learning (reconstruction): a network infers a Gaussian for each class."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from hyperproto.errors import ConfigError
from hyperproto.methods.base import Group, Method
from hyperproto.methods.parts import in_blocks, masked_mean
from hyperproto.methods.task import Task

LOG_VARIANCE = -6.0, 2.0  # bounds of inferred log variances, which would otherwise diverge to -inf in training


class Variational(Method):
    """After Zhang et al., "Variational Few-Shot Learning", ICCV 2019: a reconstruction.

    No code was released, and the equations are our own definition of its idea. Two linear layers infer a Gaussian with
    `latent` independent coordinates from each vector. A class has the mean and variance of the mixture of its examples'
    Gaussians. The score of a query is its log density with both variances added, up to a constant:
    `-1/2 sum_l [log(s2 + var) + (mu - m)^2 / (s2 + var)]`.

    Loss terms: `cls`, the cross entropy of the scores; `pull`, `gamma` times the KL divergence of a query's Gaussian
    from that of its class, which is held constant; `prior`, `beta` times the divergence of a class's Gaussian from the
    standard normal; both per coordinate. With `samples = T`, training scores the queries by T prototypes sampled from
    each class instead of the closed form.
    """

    traits = frozenset({"any-way", "any-shot", "unequal-shots", "equivariant"})

    def __init__(
        self, *, latent: int = 64, beta: float = 1e-3, gamma: float = 0.1, samples: int = 0, **options: Any
    ) -> None:
        super().__init__(**options)
        if latent < 1 or samples < 0:
            raise ConfigError(f"latent {latent} must be at least 1, and samples {samples} 0 or more")
        if not (beta >= 0 and gamma >= 0):
            raise ConfigError(f"beta {beta} and gamma {gamma} must not be negative")
        [size] = self.feature_shape
        self.latent, self.beta, self.gamma, self.samples = latent, beta, gamma, samples
        self.mean = nn.Linear(size, latent)
        self.log_var = nn.Linear(size, latent)
        nn.init.normal_(self.log_var.weight, std=1e-3)
        nn.init.zeros_(self.log_var.bias)
        self._watched: tuple[Tensor, Tensor] | None = None  # variances of the last step's queries, and their mask

    def inferred(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance of the Gaussian of each vector, (..., L) each."""
        return self.mean(x), self.log_var(x).clamp(*LOG_VARIANCE).exp()

    def classes(self, task: Task) -> tuple[Tensor, Tensor]:
        """Return mean and variance of each class, (B, N, L) each: moments of the mixture of its examples' Gaussians.

        A class without examples has those of the prior, 0 and 1.
        """
        mean, variance = self.inferred(task.support)  # (B, S, L)
        members = task.members()  # (B, S, N)
        share = (members / members.sum(1, keepdim=True).clamp(min=1)).mT  # (B, N, S)
        center = share @ mean
        apart = mean - members @ center  # (B, S, L) 0 for one shot
        spread = share @ (variance + apart**2)
        return center, torch.where(task.counts()[..., None] > 0, spread, 1.0)

    def scores(self, task: Task) -> Tensor:
        """Return the log density of each query, (B, Q, N); with `samples`, sampled in training."""
        return self._scored(task, *self.inferred(task.query), *self.classes(task))

    def loss(self, task: Task) -> dict[str, Tensor]:
        """Return the cross entropy and the two divergences."""
        mean, variance = self.inferred(task.query)  # (B, Q, L)
        center, spread = self.classes(task)  # (B, N, L)
        labels = self.labels_of(task)
        own = labels.clamp(min=0)[..., None].expand(-1, -1, self.latent)
        of_class = center.detach().gather(1, own), spread.detach().gather(1, own)
        from_class = divergence(mean, variance, *of_class)  # (B, Q)
        from_prior = divergence(center, spread, torch.zeros_like(center), torch.ones_like(spread))  # (B, N)
        self._watched = variance.detach().mean(-1), labels >= 0
        return {
            "cls": self.cross_entropy(self._scored(task, mean, variance, center, spread), task),
            "pull": self.gamma / self.latent * masked_mean(from_class.flatten(), (labels >= 0).flatten(), 0),
            "prior": self.beta / self.latent * from_prior.mean(),
        }

    def _scored(self, task: Task, mean: Tensor, variance: Tensor, center: Tensor, spread: Tensor) -> Tensor:
        drawn = None  # (B, N T, L)
        if self.training and self.samples:
            shape = *center.shape[:2], self.samples, self.latent
            noise = torch.randn(shape, dtype=center.dtype, device=center.device)
            drawn = (center[:, :, None] + spread.sqrt()[:, :, None] * noise).flatten(1, 2)

        def score(query: Tensor) -> Tensor:
            mean, variance = query[:, :, None].chunk(2, -1)  # (B, Q, 1, L)
            if drawn is None:
                return log_density(mean, center[:, None], spread[:, None] + variance)
            each = log_density(mean, drawn[:, None], variance)  # (B, Q, N T)
            each = each.reshape(*each.shape[:2], -1, self.samples)
            return each.logsumexp(-1) - math.log(self.samples)

        values = 3 * task.way * max(1, 0 if drawn is None else self.samples) * self.latent
        return in_blocks(score, torch.cat([mean, variance], -1), values)

    def param_groups(self) -> dict[str, Group]:
        """Return the two layers as the group `heads`."""
        return {"heads": Group([*self.mean.parameters(), *self.log_var.parameters()])}

    def monitor(self) -> dict[str, float | list[float]]:
        """Return mean and standard deviation of the queries' variance in the last step."""
        if self._watched is None:
            return {}
        variance, real = self._watched
        return {
            "variance": float(variance[real].mean()),
            "variance_spread": float(variance[real].std(unbiased=False)),
        }


def log_density(x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """Return the log density of a normal with independent coordinates (last axis), without its constant."""
    return -0.5 * (variance.log() + (x - mean) ** 2 / variance).sum(-1)


def divergence(mean: Tensor, variance: Tensor, of_mean: Tensor, of_variance: Tensor) -> Tensor:
    """Return KL(N(mean, variance) || N(of_mean, of_variance)), summed over the last axis."""
    ratio = (variance + (mean - of_mean) ** 2) / of_variance
    return 0.5 * ((of_variance / variance).log() + ratio - 1).sum(-1)
