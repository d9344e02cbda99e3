"""BERT-pair: a language model reads a support sentence and a query as one text and compares their relations."""

from collections.abc import Iterable
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from hyperproto.data import IntArray, Pool
from hyperproto.encoders import Features
from hyperproto.encoders.parts.transformer import TransformerEncoder
from hyperproto.errors import ConfigError
from hyperproto.methods.base import Group, Method
from hyperproto.methods.task import PAD, Task, TaskItems

BLOCK = 32  # pairs of similar length in a forward pass
MOST_CACHED = 4_000_000  # pairs that an evaluation caches, 16 bytes each


class BertPair(Method):
    """Gao et al., "FewRel 2.0: Towards More Challenging Few-Shot Relation Classification", EMNLP-IJCNLP 2019.

    Each pair of a support sentence and a query is one input, support first. The last layer's state at the first token
    passes a dense layer with tanh (the checkpoint's pooler, if it has one), `dropout` and a layer with two outputs:
    different relation, and same relation. The score of a class is the mean of the second output over its examples. The
    score of "none of these" is the minimum over classes of the mean of the first output; it is always an additional
    class in the loss.

    It needs a text transformer that returns the state at the first token: `relation-transformer` with
    `representation = "pooled"`. The toolkit's code cuts pairs at 128 tokens, which may remove entities of the query;
    here `max_length` applies to each sentence, and cutting keeps head and tail. An evaluation caches the outputs of
    pairs as long as weights and pool are unchanged.
    """

    reads: ClassVar = "items"
    transforms = ("none",)
    traits = frozenset({"any-way", "any-shot", "unequal-shots", "equivariant"})

    def __init__(self, *, dropout: float = 0.1, **options: Any) -> None:
        super().__init__(**options)
        if len(self.feature_shape) != 1:
            raise ConfigError(
                f"BertPair reads one vector a pair, but the encoder gives units of shape {self.feature_shape}; leave "
                "output out of [encoder]"
            )
        [size] = self.feature_shape
        self.pooler = nn.Linear(size, size)
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(size, 2)
        nn.init.normal_(self.classifier.weight, std=0.02)
        nn.init.zeros_(self.classifier.bias)
        self._cached = PairCache()
        self._doubts: WeakKeyDictionary[Task, Tensor] = WeakKeyDictionary()

    def setup(self, pool: Pool, features: Features) -> None:
        """Copy the checkpoint's pooler, if it has one of that size."""
        found = getattr(features.encoder, "representation", "pooled")
        if found != "pooled":
            raise ConfigError(
                f"BertPair reads the state at the first piece of a pair, but the encoder gives {found!r}; add "
                'representation = "pooled" to [encoder]'
            )
        own = features.encoder.pooler_weights() if isinstance(features.encoder, TransformerEncoder) else None
        if own is not None and own[0].shape == self.pooler.weight.shape:
            with torch.no_grad():
                self.pooler.weight.copy_(own[0])
                self.pooler.bias.copy_(own[1])

    def scores(self, task: Task) -> Tensor:
        """Return the mean output "same relation" over the examples of each class, (B, Q, N)."""
        same, nota = self.scores_and_nota(task)
        if not self.training:
            self._doubts[task] = nota - same.amax(-1)
        return same

    def doubt(self, task: Task, scores: Tensor) -> Tensor:
        """Return the score of "none of these" minus that of the best class, (B, Q), from the same forward pass."""
        if task in self._doubts:
            return self._doubts[task]
        same, nota = self.scores_and_nota(task)
        return nota - same.amax(-1)

    def scores_and_nota(self, task: Task) -> tuple[Tensor, Tensor]:
        """Return the scores of the classes (B, Q, N) and of "none of these", (B, Q)."""
        outputs = self._outputs(task)  # (B, Q, S, 2)
        share = task.members().to(outputs) / task.counts()[:, None].clamp(min=1)  # (B, S, N)
        other, same = torch.einsum("bqso,bsn->obqn", outputs, share)
        return same, other.amin(-1)

    def loss(self, task: Task) -> dict[str, Tensor]:
        """Return the cross entropy over the classes and "none of these", the target of out-of-class queries."""
        same, nota = self.scores_and_nota(task)
        self.labels_of(task)  # raises an error if labels are hidden
        assert task.query_y is not None
        labels = task.query_y.where(task.query_y != -1, task.way)
        logits = self.logits(torch.cat([same, nota[..., None]], -1))
        return {"cls": F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=PAD)}

    def param_groups(self) -> dict[str, Group]:
        """Return the layers after the language model as one group."""
        return {"head": Group([*self.pooler.parameters(), *self.classifier.parameters()])}

    def _outputs(self, task: Task) -> Tensor:
        """Return the two outputs for every query and support sentence, (B, Q, S, 2); 0 for padding."""
        items = task.items
        if items is None:
            raise ConfigError("BertPair reads the sentences themselves: the task has no items")
        if (np.diff(items.offsets) != 1).any():
            raise ConfigError("BertPair compares whole sentences; these items have a label for each word")
        episodes = zip(items.query, items.support, strict=True)
        grids = [np.meshgrid(query, support, indexing="ij") for query, support in episodes]  # each (Q, S)
        first = np.concatenate([support.ravel() for _, support in grids])
        second = np.concatenate([query.ravel() for query, _ in grids])
        caches = not self.training and not torch.is_grad_enabled()
        found = self._from_cache(items, first, second) if caches else self._read(items, first, second)  # (pairs, 2)
        outputs = found.new_zeros(*task.query.shape[:2], task.support.shape[1], 2)
        start = 0
        for b, (query, _) in enumerate(grids):
            rows, columns = query.shape
            outputs[b, :rows, :columns] = found[start : start + query.size].view(rows, columns, 2)
            start += query.size
        return outputs

    def _from_cache(self, items: TaskItems, first: IntArray, second: IntArray) -> Tensor:
        """Return the outputs of pairs as `_read` does, from the cache if possible."""
        self._cached.forget_unless(items, [*items.features.encoder.parameters(), *self.parameters()])
        keys, places = np.unique(first * len(items.offsets) + second, return_inverse=True)
        values, found_in_cache = self._cached.look_up(keys)
        if not found_in_cache.all():
            new = keys[~found_in_cache]
            read = self._read(items, new // len(items.offsets), new % len(items.offsets))
            values[~found_in_cache] = read.cpu().numpy()
            self._cached.add(new, values[~found_in_cache])
        return torch.from_numpy(values[places]).to(self.classifier.weight.device)

    def _read(self, items: TaskItems, first: IntArray, second: IntArray) -> Tensor:
        """Encode pairs in blocks of similar length, and return their outputs (pairs, 2)."""
        lengths = items.features.encoder.lengths(items.prepared)
        together = np.zeros(len(first)) if lengths is None else lengths[first] + lengths[second]
        order = np.argsort(together, kind="stable")
        blocks = [order[start : start + BLOCK] for start in range(0, len(order), BLOCK)]

        def read(rows: IntArray) -> Tensor:
            x = items.features(items.pairs(first[rows], second[rows])).x
            outputs: Tensor = self.classifier(self.dropout(self.pooler(x).tanh()))
            return outputs

        again = torch.is_grad_enabled() and len(blocks) > 1
        found = [checkpoint(read, rows, use_reentrant=False) if again else read(rows) for rows in blocks]
        return torch.cat([block for block in found if isinstance(block, Tensor)])[torch.from_numpy(np.argsort(order))]


class PairCache:
    """Cached outputs of pairs, valid as long as the pool and the weights are unchanged."""

    def __init__(self) -> None:
        self.keys: IntArray = np.zeros(0, np.int64)  # ascending
        self.values: NDArray[np.float32] = np.zeros((0, 2), np.float32)
        self.prepared: Any = None
        self.weights: list[tuple[int, int]] = []

    def forget_unless(self, items: TaskItems, weights: Iterable[nn.Parameter]) -> None:
        """Clear the cache if the sentences or any weights have changed."""
        stamps = [(weight.data_ptr(), weight._version) for weight in weights]
        if self.prepared is not items.prepared or self.weights != stamps:
            self.keys, self.values = self.keys[:0], self.values[:0]
            self.prepared, self.weights = items.prepared, stamps

    def look_up(self, keys: IntArray) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Return outputs of pairs (n, 2), and a mask of those in the cache."""
        values = np.zeros((len(keys), 2), np.float32)
        places = np.searchsorted(self.keys, keys)
        found_in_cache = np.append(self.keys, -1)[places] == keys
        values[found_in_cache] = self.values[places[found_in_cache]]
        return values, found_in_cache

    def add(self, keys: IntArray, values: NDArray[np.float32]) -> None:
        """Add new pairs while there is room."""
        if len(self.keys) + len(keys) <= MOST_CACHED:
            places = np.searchsorted(self.keys, keys)
            self.keys, self.values = np.insert(self.keys, places, keys), np.insert(self.values, places, values, axis=0)
