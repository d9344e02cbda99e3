"""CNN of the FewRel baselines: word and position embeddings, one convolution, max pooling over the sentence."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Literal
from warnings import warn

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hyperproto.data import IntArray, Pool, Progress
from hyperproto.data.formats.relations import Relation, check_relations, uncased
from hyperproto.encoders.base import Encoder, Units, offsets_of, rows_between
from hyperproto.encoders.parts.word_pieces import Ragged, kept_positions
from hyperproto.encoders.parts.word_vectors import GLOVE, load_word_vectors

BLOCK = 8192  # sentences encoded together
PLACE = 5  # size of the embedding of a word's position relative to the head or the tail


@dataclass(frozen=True, eq=False)
class Sentences:
    """Sentences as integers: rows of word vectors, and the first positions of head and tail."""

    words: Ragged
    starts: IntArray  # (n, 2)

    def __len__(self) -> int:
        """Count the sentences."""
        return len(self.words)

    def take(self, items: IntArray) -> "Sentences":
        """Return the sentences at `items`, in that order."""
        return Sentences(self.words.take(items), self.starts[items])

    def away(self, farthest: int) -> IntArray:
        """Return the offset of each word from head and tail plus `farthest`, (2, words of all sentences)."""
        here = rows_between(np.zeros_like(self.words.lengths), self.words.lengths)
        return here - np.repeat(self.starts.T, self.words.lengths, axis=1) + farthest


class RelationCNN(Encoder):
    """Zeng et al., "Relation Classification via Convolutional Deep Neural Network", 2014, as in the FewRel toolkit.

    A word is represented by its vector and two embeddings of its distance to head and tail. A convolution of `filters`
    filters over three words, ReLU, and the maximum over the real words of the sentence give the vector.

    With `learn_words` the word vectors are trained too; a step updates only the rows it used (section `[optim.words]`,
    else the encoder's settings). `unit_words` scales them to length 1 first. `uncased` looks words up in lower case,
    without accents.

    `output = "maps"` returns the convolution at each word, before ReLU and maximum, (L, filters). `"embeddings"`
    returns its input, the word vector and the two distance embeddings, (L, D + 10). Both are padded with zeros.
    `dropout` applies to the output, `input_dropout` to the input of the convolution.
    """

    argument = "vectors"
    tables = ("words",)

    def __init__(
        self,
        *,
        vectors: str = GLOVE,
        filters: int = 230,
        max_length: int = 128,
        learn_words: bool = True,
        unit_words: bool = False,
        uncased: bool = True,
        dropout: float = 0.0,
        input_dropout: float = 0.0,
        output: Literal["vectors", "maps", "embeddings"] = "vectors",
        frozen: bool = False,
    ) -> None:
        super().__init__()
        known = load_word_vectors(vectors)
        self.rows = known.rows
        self.max_length = max_length
        self.uncased = uncased
        size = known.vectors.shape[1]
        self.unknown, self.padding = len(self.rows), len(self.rows) + 1
        table = torch.zeros(len(self.rows) + 2, size)
        vectors_of_words = torch.from_numpy(known.vectors)
        table[: self.unknown] = F.normalize(vectors_of_words) if unit_words else vectors_of_words
        table[self.unknown] = table[: self.unknown].mean(0)
        self.learn_words = learn_words
        if learn_words:
            self.words = nn.Parameter(table)
        else:
            self.register_buffer("words", table, persistent=False)
        self.places = nn.ModuleList(nn.Embedding(2 * max_length, PLACE, padding_idx=0) for _ in range(2))
        self.convolution = nn.Conv1d(size + 2 * PLACE, filters, kernel_size=3, padding=1)
        self.dropout = nn.Dropout(dropout)
        self.input_dropout = nn.Dropout(input_dropout)
        self.output = output
        shapes = {"vectors": (filters,), "maps": (-1, filters), "embeddings": (-1, size + 2 * PLACE)}
        self.feature_shape = shapes[output]
        self.freeze(frozen)

    @classmethod
    def options_for(cls, pool: Pool) -> dict[str, Any]:
        """Return no options, but raise a DataError if the items are not relations."""
        check_relations(pool, "relation-cnn")
        return {}

    def param_groups(self) -> dict[str, list[nn.Parameter]]:
        """Return the word vectors if they are trained."""
        return {"words": [self.words]} if self.learn_words and not self.frozen else {}

    def prepare(self, items: list[Relation]) -> Sentences:
        """Look up the row of every word; cut long sentences, but keep head and tail."""
        sentences = [item["tokens"] for item in items]
        known = {word: self._row(word) for word in set(chain.from_iterable(sentences))}
        offsets = offsets_of(np.fromiter(map(len, sentences), np.int64, len(sentences)))
        found = map(known.__getitem__, chain.from_iterable(sentences))
        words = Ragged(np.fromiter(found, np.int32, int(offsets[-1])), offsets)
        first = (entity[0] for item in items for entity in (item["head"], item["tail"]))
        starts = np.fromiter(first, np.int64, 2 * len(items)).reshape(-1, 2)
        stays = np.ones(len(words.flat), bool)
        too_long = np.flatnonzero(words.lengths > self.max_length)
        for n in too_long:
            entities = [(entity[0], entity[-1] + 1) for entity in (items[n]["head"], items[n]["tail"])]
            kept = kept_positions(len(sentences[n]), entities, self.max_length)
            starts[n] = np.searchsorted(kept, starts[n])
            stays[words.offsets[n] : words.offsets[n + 1]] = np.isin(np.arange(len(sentences[n])), kept)
        if len(too_long):
            warn(
                f"relation-cnn: {len(too_long):,} of {len(items):,} sentences are longer than {self.max_length} words; "
                f"{(~stays).sum():,} words were left out, heads and tails kept (raise max_length to keep all)",
                stacklevel=2,
            )
        return Sentences(words.only(stays), starts)

    def _row(self, word: str) -> int:
        """Return the row of a word's vector."""
        return self.rows.get(uncased(word) if self.uncased else word, self.unknown)

    def lengths(self, prepared: Sentences) -> IntArray:
        """Return the number of words of each sentence."""
        return prepared.words.lengths

    def collate(self, prepared: Sentences, index: IntArray) -> tuple[Tensor, Tensor]:
        """Return rows of the words (n, L), padded to the longest, and first positions of head and tail (n, 2)."""
        return prepared.words.padded(index, self.padding), torch.from_numpy(prepared.starts[index])

    def forward(self, batch: tuple[Tensor, Tensor]) -> Units:
        """Encode sentences."""
        rows, starts = batch
        real = rows != self.padding  # (n, L)
        here = torch.arange(rows.shape[1], device=rows.device)
        away = here - starts[:, :, None] + self.max_length  # (n, 2, L); 1 to 2 max_length - 1
        away = away.masked_fill(~real[:, None], 0)
        parts = [F.embedding(rows, self.words, self.padding, sparse=self.learn_words)]
        parts += [table(away[:, which]) for which, table in enumerate(self.places)]
        embedded = torch.cat(parts, -1)  # (n, L, channels), 0 at padding
        if self.output == "embeddings":
            return Units.one_each(self.dropout(embedded), real)
        windows = F.pad(self.input_dropout(embedded), (0, 0, 1, 1)).unfold(1, 3, 1).flatten(2)  # (n, L, 3 channels)
        hidden = F.linear(windows, self.convolution.weight.flatten(1), self.convolution.bias)  # (n, L, filters)
        if self.output == "maps":
            return Units.one_each(self.dropout(hidden.masked_fill(~real[..., None], 0.0)), real)
        return Units.one_each(self.dropout(hidden.masked_fill(~real[..., None], -torch.inf).max(1).values.relu()))

    @torch.no_grad()
    def encode(self, prepared: Sentences, items: IntArray, progress: Progress | None = None) -> Units:
        """Encode many sentences. Vectors on a CPU are computed without padding and with shared products of words."""
        if self.device.type != "cpu" or self.output != "vectors":
            return super().encode(prepared, items, progress)
        vectors = []
        order = np.argsort(prepared.words.lengths[items], kind="stable")
        for start in range(0, len(items), BLOCK):
            block = prepared.take(items[order[start : start + BLOCK]])
            used, rows = np.unique(block.words.flat, return_inverse=True)
            tables = [self.words[torch.from_numpy(used)], *self.places.parameters()]
            parts = list(zip(tables, (rows, *block.away(self.max_length)), strict=True))
            done = None if progress is None else partial(_count, progress, start, len(items))
            vectors.append(convolved_maxima(parts, self.convolution, block.words.offsets, done).relu_())
        return Units.one_each(torch.cat(vectors)[torch.from_numpy(np.argsort(order))])


def _count(progress: Progress, before: int, total: int, done: int) -> None:
    progress(before + done, total)


TOGETHER = 64  # sentences summed at a time: they fit into the CPU cache

Rows = tuple[Tensor, IntArray]  # a table (n_rows, channels), and the row at each position


@torch.no_grad()
def convolved_maxima(
    parts: Sequence[Rows], convolution: nn.Conv1d, offsets: IntArray, done: Callable[[int], None] | None = None
) -> Tensor:
    """Convolve the concatenated channels of all parts and take the maximum over each sentence: (n, filters).

    Sentences are stored consecutively, with boundaries `offsets`; each is padded with one zero at both ends. It is fast
    if sentences of equal length are adjacent.
    """
    lengths = np.diff(offsets)
    first, last = offsets[:-1][lengths > 0], offsets[1:][lengths > 0] - 1
    before, here, behind = convolution.weight.unbind(-1)  # each (filters, channels)
    gifts, places = [convolution.weight.new_zeros(1, len(here))], []  # row 0: padding
    n_gifts, channel = 1, 0
    for table, rows in parts:
        own = slice(channel, channel + table.shape[1])
        for tap, step, ends in ((before, 1, first), (here, 0, []), (behind, -1, last)):
            place = np.roll(rows, step) + n_gifts
            place[ends] = 0
            places.append(place)
            gifts.append(table @ tap[:, own].T)
            n_gifts += len(table)
        channel = own.stop
    all_gifts, index = torch.cat(gifts), torch.from_numpy(np.stack(places, 1).astype(np.int32))
    maxima = convolution.weight.new_full((len(lengths), len(here)), -torch.inf)
    ends = np.append(np.flatnonzero(np.diff(lengths)) + 1, len(lengths))  # of the runs of equal length
    start = 0
    while start < len(lengths):
        stop = min(start + TOGETHER, int(ends[np.searchsorted(ends, start, side="right")]))
        if lengths[start]:
            sums = F.embedding_bag(index[offsets[start] : offsets[stop]], all_gifts, mode="sum")
            torch.amax(sums.view(stop - start, int(lengths[start]), -1), 1, out=maxima[start:stop])
        if done is not None:
            done(stop)
        start = stop
    return maxima if convolution.bias is None else maxima + convolution.bias
