"""The learner: features, method and decision as one module whose `forward` returns the losses."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from hyperproto.data import IntArray, Pool, Progress
from hyperproto.decisions import Decision, make_decision
from hyperproto.encoders import Encoder, Features, FeatureTransform, Units, make_encoder
from hyperproto.encoders.base import is_finite
from hyperproto.encoders.class_names import NameEncoder
from hyperproto.episodes import Episode
from hyperproto.errors import ConfigError, NonFiniteError
from hyperproto.evaluation import EncodedPool, Predictor
from hyperproto.methods import Group, Method, Task, TaskItems, gather_task, make_method
from hyperproto.problems import problem_of
from hyperproto.recipes import Recipe


@contextmanager
def out_of_memory_explained() -> Iterator[None]:
    """Turn torch's out-of-memory errors into a ConfigError."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "memory" not in str(error) and "Storage size" not in str(error):
            raise
        raise ConfigError(f"the network does not fit into memory ({error}); make it smaller: see [encoder]") from None


class Learner(Predictor):
    """Everything that is trained. `forward` returns the losses by name, so that data-parallel wrappers work."""

    unset: frozenset[str] = frozenset()  # buffers that start as NaN, such as the centre of the training data

    def __init__(
        self, features: Features, method: Method, decision: Decision, names: NameEncoder | None = None
    ) -> None:
        super().__init__(features, method, decision, names)
        self._stored: WeakKeyDictionary[Pool, Units] = WeakKeyDictionary()  # vectors of a frozen encoder

    @classmethod
    def build(cls, recipe: Recipe, n_classes: int) -> "Learner":
        """Build the learner of a resolved recipe, with weights drawn from its seed."""
        with torch.random.fork_rng(devices=[]), out_of_memory_explained():
            torch.manual_seed(recipe.training.seed)
            encoder: Encoder = make_encoder(recipe.encoder.name, recipe.encoder.options)
            shape = encoder.feature_shape
            transform = FeatureTransform(recipe.transform or "none", shape)
            lower = recipe.training.precision == "bfloat16"
            augmentation = recipe.augmentation if recipe.augmentation and recipe.augmentation.varies else None
            features = Features(encoder, transform, augmentation, fewer_bits=lower)
            method = make_method(recipe.method.name, feature_shape=shape, n_classes=n_classes, **recipe.method.options)
        names = None if recipe.names is None else NameEncoder(recipe.names.source, recipe.names.encoder)
        learner = cls(features, method, make_decision(method, recipe.decision.options), names)
        learner.unset = frozenset(name for name, buffer in learner.named_buffers() if not is_finite(buffer))
        return learner

    def check_finite(self) -> None:
        """Raise a NonFiniteError that names a tensor with NaN or infinity."""
        for name, tensor in self.state_dict().items():
            if name not in self.unset and not is_finite(tensor):
                raise NonFiniteError(f"{name} holds NaN or infinity")

    def collate(self, pool: Pool, episodes: Sequence[Episode]) -> tuple[Any, list[Episode], TaskItems | None]:
        """Return one batch of the items that the episodes drew, and the episodes with indices into this batch.

        A method that reads items, or trains on them, makes its own batches: it gets no batch, but `TaskItems`.
        """
        self.read_pool(pool, training=True)
        if self.method.reads == "items" or self.method.trains_on_items:
            return None, list(episodes), TaskItems.of(self.features, pool, episodes)
        index, local = _renumbered(episodes)
        return self._batch(pool, index), local, None

    def store(self, pool: Pool, progress: Progress | None = None) -> None:
        """Encode a pool once, in memory and on disk, if its vectors stay the same: frozen encoder, no augmentation.

        Tagged sentences are encoded as they are drawn: training draws few of them, and the vectors of all words would
        fill the memory.
        """
        features = self.features
        varies = features.augmentation is not None or self.method.reads == "items" or self.method.trains_on_items
        if features.encoder.frozen and not varies and not problem_of(pool).few_items:
            self._stored[pool] = EncodedPool.encode(features.encoder, pool, progress, cached=True).units

    def _batch(self, pool: Pool, items: IntArray) -> Any:
        """Return the input of `features` for some items: their stored units, or a raw batch."""
        if pool in self._stored:
            return self._stored[pool].of_items(items)
        return self.features.batch(self.features.prepared(pool), items)

    def task(self, batch: Any, episodes: Sequence[Episode], items: TaskItems | None = None) -> Task:
        """Encode the drawn items in one pass; the arguments are what `collate` returns."""
        task = self.named(gather_task(self.features(batch) if items is None else items.units, episodes, items))
        if task.names is None or "names" not in self.method.uses_evidence:
            return task
        return task.with_evidence(names=self.features.transform(task.names))  # the items' space

    def with_unlabelled(self, task: Task, pool: Pool, items: IntArray) -> Task:
        """Add unlabelled items, indices (B, U) of another pool, encoded like the task's own."""
        units = self.features(self._batch(pool, items.ravel()))
        return task.with_evidence(unlabelled=units.x.view(*items.shape, *units.x.shape[1:]))

    def forward(self, batch: Any, episodes: Sequence[Episode], items: TaskItems | None = None) -> dict[str, Tensor]:
        """Encode the drawn items and return the losses of the method and of the encoder."""
        return {**self.method.loss(self.task(batch, episodes, items)), **self.encoder_loss(batch)}

    def encoder_loss(self, batch: Any) -> dict[str, Tensor]:
        """Return the encoder's own losses, such as masked language modelling; none without a raw batch."""
        return {} if batch is None or isinstance(batch, Units) else self.features.encoder.loss(batch)

    def setup(self, pool: Pool) -> None:
        """Run the initialisation phase of Algorithm 1: the method sets its parameters from the training data.

        Dropout is off, since it would increase the mean distances. Trainable batch norm and `center-unit` use batch
        statistics, as in training.
        """
        self.eval()
        for module in self.modules():
            if isinstance(module, _BatchNorm | FeatureTransform):
                module.train()
        if self.features.encoder.frozen:
            self.features.encoder.eval()
        self.read_pool(pool, training=True)
        self.decision.read_labels(pool)
        self.method.setup(pool, self.features)

    def take_encoder(self, other: "Learner", where: object) -> None:
        """Copy the encoder weights of another learner."""
        try:
            self.features.encoder.load_state_dict(other.features.encoder.state_dict())
        except RuntimeError as error:
            raise ConfigError(f"{where}: its encoder does not fit into this recipe's ({error})") from None

    def take_heads(self, other: "Learner", heads: Sequence[str], where: object) -> None:
        """Copy the parts of another learner's method that `heads` names."""
        learned, own = other.method.state_dict(), self.method.state_dict()
        for head in heads:
            found = {key: learned[key] for key in own if (key + ".").startswith(head + ".") and key in learned}
            if not found or any(own[key].shape != tensor.shape for key, tensor in found.items()):
                raise ConfigError(
                    f"{where}: start.heads names {head!r}, but no part of that name and shape is common to its method "
                    f"({', '.join(learned)}) and this one's ({', '.join(own)})"
                )
            self.method.load_state_dict(found, strict=False)

    def parameter_groups(self, sections: Sequence[str]) -> dict[str, Group]:
        """Return the parameters by section `[optim.NAME]`; those without a section of their own join "encoder".

        Embedding tables of the encoder always form their own group, because their gradients are sparse.
        """
        own = {name: group for name, group in self.method.param_groups().items() if name in sections}
        own |= {name: Group(params, table=True) for name, params in self.features.encoder.param_groups().items()}
        taken = {id(p) for group in own.values() for p in group.params}
        rest = [p for p in self.parameters() if id(p) not in taken and p.requires_grad]
        return {"encoder": Group(rest), **own}


def _renumbered(episodes: Sequence[Episode]) -> tuple[IntArray, list[Episode]]:
    """Return the items of all episodes, one after another, and the episodes with indices into this list."""
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
