"""The learner: encoder, transform and method in one module, whose forward returns the losses."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from hyperproto.data import IntArray, Pool
from hyperproto.encoders import Encoder, Features, FeatureTransform, make_encoder, moved
from hyperproto.episodes import Episode
from hyperproto.errors import ConfigError
from hyperproto.methods import Method, TaskItems, gather_task, make_method
from hyperproto.recipes import Augmentation, Recipe
from hyperproto.training.augmentation import augmented


class Learner(nn.Module):
    """All that is trained. `forward` returns the parts of the loss, so that data-parallel wrappers work."""

    def __init__(self, features: Features, method: Method, augmentation: Augmentation | None = None) -> None:
        super().__init__()
        self.features = features
        self.method = method
        self.augmentation = augmentation

    @classmethod
    def build(cls, recipe: Recipe, n_classes: int) -> "Learner":
        """Make a learner as a (resolved) recipe says, with weights drawn from its seed."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(recipe.training.seed)
            encoder: Encoder = make_encoder(recipe.encoder.name, recipe.encoder.options)
            transform = FeatureTransform(recipe.transform or "none", encoder.feature_shape)
            shape = encoder.feature_shape
            method = make_method(recipe.method.name, feature_shape=shape, n_classes=n_classes, **recipe.method.options)
        return cls(Features(encoder, transform), method, recipe.augmentation)

    def collate(self, prepared: Any, episodes: Sequence[Episode]) -> tuple[Any, list[Episode], TaskItems | None]:
        """Make one batch of exactly the items that the episodes drew, and the episodes in its own numbering."""
        index, local = _renumbered(episodes)
        items = None
        if self.method.needs == "items":
            items = TaskItems.of(self.features, prepared, episodes)
        return moved(self.features.collate(prepared, index), self.features.device), local, items

    def forward(self, batch: Any, episodes: Sequence[Episode], items: TaskItems | None = None) -> dict[str, Tensor]:
        """Encode the drawn items in one pass and return the method's losses."""
        if self.augmentation is not None and self.training:
            batch = augmented(batch, self.augmentation)
        return self.method.loss(gather_task(self.features(batch), episodes, items))

    def setup(self, pool: Pool) -> None:
        """Initialisation phase: the method fills its parameters from the training data.

        Nothing is dropped (a mean distance would measure the dropout, not the classes); batch norm and `center-unit`
        see the statistics of mixed batches, as they do in training.
        """
        self.eval()
        for module in self.modules():
            if isinstance(module, _BatchNorm | FeatureTransform):
                module.train()
        self.method.read_labels(pool)
        self.method.setup(pool, self.features)

    def take_encoder(self, other: "Learner", where: object) -> None:
        """Start from another learner's encoder."""
        try:
            self.features.encoder.load_state_dict(other.features.encoder.state_dict())
        except RuntimeError as error:
            raise ConfigError(f"{where}: its encoder does not fit into this recipe's ({error})") from None

    def parameters_by_optimiser(self, sections: Sequence[str]) -> dict[str, list[nn.Parameter]]:
        """Sort the parameters to the sections `[optim.NAME]`; what has none of its own goes with the encoder.

        The encoder's tables stand apart in any case: their gradients are sparse.
        """
        own = {name: params for name, params in self.method.param_groups().items() if name in sections}
        own |= self.features.encoder.param_groups()
        taken = {id(p) for params in own.values() for p in params}
        rest = [p for p in self.parameters() if id(p) not in taken and p.requires_grad]
        return {"encoder": rest, **own}


def _renumbered(episodes: Sequence[Episode]) -> tuple[IntArray, list[Episode]]:
    index: list[IntArray] = []
    local = []
    start = 0
    for episode in episodes:
        middle, end = start + len(episode.support), start + len(episode.support) + len(episode.query)
        support, query = np.arange(start, middle), np.arange(middle, end)
        local.append(Episode(episode.classes, support, episode.support_y, query, episode.query_y))
        index += [episode.support, episode.query]
        start = end
    return np.concatenate(index), local
