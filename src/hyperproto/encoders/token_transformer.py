"""Language model for sentences of words: one vector a word."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from hyperproto.data import IntArray, Pool
from hyperproto.data.formats.tagged import check_sentences
from hyperproto.encoders.base import Units, offsets_of, rows_between
from hyperproto.encoders.parts.transformer import Batch, TransformerEncoder, in_parts
from hyperproto.encoders.parts.word_pieces import Arrays, Ragged, Spelling, cached_tokens, spell
from hyperproto.windows import window_starts

LAYERS = 4  # number of layers that are summed to a word's vector
NEAR = 4  # windows of at least one token that may hold a given token: they overlap by half, the last by more


class TokenTransformer(TransformerEncoder):
    """Encoder of sentences (lists of words) to one vector a word.

    `pieces` says how a word of several tokens is represented: by the state at its `first` one, as in the Few-NERD
    toolkit, or by the `mean` of all. `layers` selects the states: the sum of the last four layers (`last4`, as in the
    toolkit; of all layers if there are fewer), or the `last` one. `dropout` applies to the vectors in training.

    Every word gets a vector. A sentence of more than `max_length` tokens is read in windows that overlap by half (see
    `word_windows`). A word without tokens, such as a lone zero-width space, is read as the unknown-word token.
    """

    name = "token-transformer"

    def __init__(
        self,
        *,
        pieces: Literal["first", "mean"] = "first",
        layers: Literal["last4", "last"] = "last4",
        dropout: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.pieces = pieces
        self.layers = layers
        self.dropout = nn.Dropout(dropout)

    @classmethod
    def options_for(cls, pool: Pool) -> dict[str, Any]:
        """Return no options, but raise a DataError if the items are not sentences of words."""
        check_sentences(pool, cls.name)
        return {}

    def prepare(self, items: Sequence[Sequence[str]]) -> "WordWindows":
        """Tokenise all sentences, or read them from the cache."""
        settings = {"encoder": self.name, "max_length": self.max_length}
        names = [*(part.name for part in fields(WordWindows)), "offsets"]
        arrays = cached_tokens(type(self), items, settings, self.tokenizer, names, lambda: self._windows(items))
        pieces = Ragged(arrays.pop("pieces"), arrays.pop("offsets"))
        return WordWindows(pieces=pieces, **arrays)

    def _windows(self, items: Sequence[Sequence[str]]) -> Arrays:
        unknown = self.tokenizer.unk_token_id
        texts = [[f" {word}" for word in words] for words in items]  # some tokenizers need the space to begin a word
        spelling = spell(self.tokenizer, texts, nothing=self.fill if unknown is None else int(unknown))
        windows = word_windows(spelling, self.room, self.before, self.after, self.fill)
        arrays = {name: value for name, value in vars(windows).items() if name != "pieces"}
        return {**arrays, "pieces": windows.pieces.flat, "offsets": windows.pieces.offsets}

    def lengths(self, prepared: "WordWindows") -> IntArray:
        """Return the number of tokens of each sentence."""
        return prepared.lengths

    def collate(self, prepared: "WordWindows", index: IntArray) -> dict[str, Any]:
        """Return windows as texts; window, first token and token count of each word; and words of each item."""
        starts, ends = prepared.windows[index], prepared.windows[index + 1]
        counts = np.diff(prepared.words)[index]
        words = rows_between(prepared.words[index], prepared.words[index + 1])
        rows = prepared.window[words] - np.repeat(starts - offsets_of(ends - starts)[:-1], counts)
        windows = rows_between(starts, ends)
        texts = {
            "pieces": prepared.pieces.padded(windows, self.fill),
            "lengths": torch.from_numpy(prepared.pieces.lengths[windows]),
        }
        places = {"row": rows, "first": prepared.first[words], "count": prepared.count[words]}
        return {"texts": texts, "items": counts, **{name: torch.from_numpy(value) for name, value in places.items()}}

    def forward(self, batch: dict[str, Any]) -> Units:
        """Encode sentences."""
        texts = batch["texts"]
        order, found = [], []
        for rows, part in in_parts(texts):
            states, real = self.hidden(part)
            order.append(rows)
            found.append(states[real])
        lengths = texts["lengths"][torch.cat(order)]
        begin = torch.empty_like(lengths)
        begin[torch.cat(order)] = lengths.cumsum(0) - lengths  # new position of each text's first token
        place = begin[batch["row"]] + batch["first"]
        states = torch.cat(found)
        x = states[place] if self.pieces == "first" else means(states, place, batch["count"])
        return Units(self.dropout(x), offsets_of(batch["items"]))

    def hidden(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the selected layers at every token, (n, L, D), and the mask of real tokens, (n, L)."""
        if self.layers == "last":
            return super().hidden(batch)
        output, real = self.run_model(batch, output_hidden_states=True)
        return torch.stack(output.hidden_states[1:][-LAYERS:]).sum(0), real  # entry 0 is the input of the layers


def means(states: Tensor, first: Tensor, count: Tensor) -> Tensor:
    """Return the mean of rows `first` to `first + count - 1` of the states for each word."""
    word = torch.repeat_interleave(torch.arange(len(first), device=first.device), count)
    behind = torch.arange(len(word), device=first.device) - (count.cumsum(0) - count)[word]
    total = states.new_zeros(len(first), states.shape[1]).index_add(0, word, states[first[word] + behind])
    return total / count[:, None]


@dataclass(frozen=True, eq=False)
class WordWindows:
    """Windows of sentences that a model reads, and the positions of the words in them."""

    pieces: Ragged  # tokens of each window, with special tokens
    windows: IntArray  # (n + 1,) boundaries of the windows of each sentence
    words: IntArray  # (n + 1,) boundaries of the words of each sentence
    window: IntArray  # (n_words,) window in which a word is read
    first: IntArray  # (n_words,) its first token in the window
    count: IntArray  # (n_words,) number of its tokens in the window

    def __len__(self) -> int:
        """Count the sentences."""
        return len(self.words) - 1

    @property
    def lengths(self) -> IntArray:
        """Number of tokens of each sentence, over all its windows."""
        return np.diff(self.pieces.offsets[self.windows])


def word_windows(spelling: Spelling, room: int, before: list[int], behind: list[int], fill: int) -> WordWindows:
    """Split sentences of more than `room` tokens into windows that overlap by half.

    A word is read in the window in which it is farthest from the nearer edge. Only a word longer than half a window may
    lose its end. An empty window holds the token `fill`.
    """
    rows: list[list[int]] = []
    counts = np.ones(len(spelling.pieces), np.int64)
    starts, ends = spelling.words[:-1], spelling.words[1:]
    owner = np.repeat(np.arange(len(spelling.pieces)), np.diff(spelling.texts))
    first = starts - spelling.pieces.offsets[owner]
    count = ends - starts
    window = np.zeros(len(first), np.int64)  # index within its sentence
    for n, pieces in enumerate(spelling.pieces.rows()):
        places = window_starts(len(pieces), room)
        counts[n] = len(places)
        rows += [[*before, *pieces[place : place + room].tolist(), *behind] or [fill] for place in places.tolist()]
        if len(places) > 1:
            own = slice(spelling.texts[n], spelling.texts[n + 1])
            window[own] = best_windows(first[own], first[own] + count[own], places, room, len(pieces))
            first[own] -= places[window[own]]
            count[own] = np.minimum(count[own], room - first[own])
    windows = offsets_of(counts)
    return WordWindows(Ragged.of(rows), windows, spelling.texts, windows[owner] + window, first + len(before), count)


def best_windows(start: IntArray, end: IntArray, places: IntArray, room: int, length: int) -> IntArray:
    """Return for each word (tokens `start` to `end` - 1) the window with the largest context on its shorter side.

    At the beginning or end of the text the context counts as complete. The first token is always in the window. At most
    four windows hold it, since windows begin every half window: only these are compared.
    """
    last = np.searchsorted(places, start, side="right") - 1  # last window that begins at or before the word
    near = np.maximum(last[:, None] - np.arange(NEAR - 1, -1, -1), 0)  # (n_words, NEAR), ascending
    place = places[near]
    before = np.where(place == 0, length, start[:, None] - place)
    behind = np.where(place + room >= length, length, place + room - end[:, None])
    has_start = start[:, None] < place + room
    choice = np.argmax(np.where(has_start, np.minimum(before, behind), -2 * length), axis=1)
    best: IntArray = near[np.arange(len(near)), choice]
    return best
