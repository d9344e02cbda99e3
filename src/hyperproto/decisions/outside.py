"""What the words of no type look like, in general: O is known before an episode begins, unlike its types."""

import torch
from torch import Tensor, nn

from hyperproto.errors import ConfigError

SHRINKAGE = 0.01  # of the covariance towards a multiple of the identity


class Outside(nn.Module):
    """A linear discriminant between O and every type of the training data: it serves unseen types, too.

    Words of O and all other words, of whatever type, each have a mean; their covariance is common. The log odds of O by
    Bayes' rule, times `weight`, are added to the logit of O, class 0 of an episode.
    """

    direction: Tensor
    offset: Tensor

    def __init__(self, weight: float, dimension: int) -> None:
        super().__init__()
        if weight < 0:
            raise ConfigError(f"outside_weight {weight} must be at least 0; 0 asks the episode alone what O is")
        self.weight = weight
        self.register_buffer("direction", torch.zeros(dimension))
        self.register_buffer("offset", torch.tensor(float("nan")))

    @property
    def known(self) -> bool:
        """Whether it has seen words."""
        return not bool(self.offset.isnan())

    @torch.no_grad()
    def learn(self, words: Tensor, outside: Tensor) -> None:
        """Fit to the vectors (n, D) of words, `outside` (n,) saying which are O."""
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
        """Add to the logit of class 0, logits being (B, Q, N) and words (B, Q, D)."""
        odds = words @ self.direction + self.offset
        return torch.cat([logits[..., :1] + self.weight * odds[..., None], logits[..., 1:]], -1)
