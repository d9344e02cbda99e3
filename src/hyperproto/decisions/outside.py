"""A discriminant for the label O, fitted on training data: unlike entity types, O is the same in every episode."""

import torch
from torch import Tensor, nn

from hyperproto.errors import ConfigError

SHRINKAGE = 0.01  # of the covariance towards a multiple of the identity


class Outside(nn.Module):
    """Linear discriminant between words labelled O and words of any entity type; it generalises to unseen types.

    The two groups have a mean each and a common covariance. The log odds of O by Bayes' rule, times `weight`, are added
    to the logit of O, class 0 of an episode.
    """

    direction: Tensor
    offset: Tensor

    def __init__(self, weight: float, dimension: int) -> None:
        super().__init__()
        if weight < 0:
            raise ConfigError(f"outside_weight {weight} must be at least 0; 0 uses only the support of each episode")
        self.weight = weight
        self.register_buffer("direction", torch.zeros(dimension))
        self.register_buffer("offset", torch.tensor(float("nan")))

    @property
    def fitted(self) -> bool:
        """True if the discriminant is fitted."""
        return not bool(self.offset.isnan())

    @torch.no_grad()
    def learn(self, words: Tensor, outside: Tensor) -> None:
        """Fit the discriminant to word vectors (n, D); `outside` (n,) is true for words labelled O."""
        words = words.double()
        parts = [words[outside], words[~outside]]
        if not all(map(len, parts)):
            raise ConfigError("every word of the training data is O, or none is; outside_weight needs both kinds")
        means = [part.mean(0) for part in parts]
        residual = torch.cat([part - mean for part, mean in zip(parts, means, strict=True)])
        covariance = residual.mT @ residual / len(residual)
        ridge = SHRINKAGE * covariance.diagonal().mean().clamp(min=1e-12)
        covariance = (1 - SHRINKAGE) * covariance + ridge * torch.eye(len(covariance)).to(covariance)
        direction = torch.linalg.solve(covariance, means[0] - means[1])
        prior = torch.tensor(len(parts[0]) / len(parts[1])).log()
        self.direction.copy_(direction)
        self.offset.copy_(prior - direction @ (means[0] + means[1]) / 2)

    def added_to(self, logits: Tensor, words: Tensor) -> Tensor:
        """Add the weighted log odds of words (B, Q, D) to class 0 of logits (B, Q, N)."""
        odds = words @ self.direction + self.offset
        return torch.cat([logits[..., :1] + self.weight * odds[..., None], logits[..., 1:]], -1)
