"""Tokenised texts: rows of unequal length, cutting to a limit, tokenising word by word, and a cache on disk."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hyperproto.data import IntArray
from hyperproto.encoders.base import Encoder, offsets_of, rows_between
from hyperproto.encoders.parts.cache import code_digest
from hyperproto.files import cache_dir, read_arrays, write_arrays


@dataclass(frozen=True, eq=False)
class Ragged:
    """Rows of integers of unequal length: row `i` is `flat[offsets[i] : offsets[i + 1]]`."""

    flat: NDArray[np.int32]
    offsets: IntArray  # (n_rows + 1,)

    @classmethod
    def of(cls, rows: Iterable[Sequence[int] | NDArray[np.int32]]) -> "Ragged":
        """Concatenate rows."""
        rows = list(rows)
        offsets = offsets_of(np.fromiter(map(len, rows), np.int64, len(rows)))
        return cls(np.fromiter(chain.from_iterable(rows), np.int32, int(offsets[-1])), offsets)

    def __len__(self) -> int:
        """Count the rows."""
        return len(self.offsets) - 1

    @property
    def lengths(self) -> IntArray:
        """Length of each row."""
        return np.diff(self.offsets)

    def row(self, index: int) -> NDArray[np.int32]:
        """Return one row without a copy."""
        return self.flat[self.offsets[index] : self.offsets[index + 1]]

    def rows(self) -> Iterator[NDArray[np.int32]]:
        """Yield every row."""
        return map(self.row, range(len(self)))

    def take(self, index: IntArray) -> "Ragged":
        """Return the rows at `index`, in that order."""
        starts, ends = self.offsets[index], self.offsets[index + 1]
        return Ragged(self.flat[rows_between(starts, ends)], offsets_of(ends - starts))

    def only(self, stays: NDArray[np.bool_]) -> "Ragged":
        """Keep only the entries of `flat` where `stays` is True."""
        return Ragged(self.flat[stays], np.concatenate([[0], np.cumsum(stays)])[self.offsets])

    def padded(self, index: IntArray, fill: int) -> Tensor:
        """Return the rows at `index` as an int64 matrix (n, longest), padded with `fill`."""
        starts, ends = self.offsets[index], self.offsets[index + 1]
        lengths = ends - starts
        matrix = np.full((len(lengths), int(lengths.max(initial=0))), fill, np.int64)
        matrix[np.arange(matrix.shape[1]) < lengths[:, None]] = self.flat[rows_between(starts, ends)]
        return torch.from_numpy(matrix)


def kept_positions(length: int, spans: Sequence[tuple[int, int]], limit: int) -> IntArray:
    """Return at most `limit` of the positions 0 to `length` - 1, ascending, such that every span is kept.

    A span is a half-open range (start, end); spans may overlap and be in any order. The result is the first that fits:

    - all positions;
    - one range around all spans, with equal context before and after them;
    - a range around each span, without the middle;
    - the beginning of each span.

    Without spans the beginning of the text is kept.
    """
    if length <= limit:
        return np.arange(length)
    bounds = np.array(spans or [(0, 0)], np.int64)
    first, last = bounds[:, 0].min(), bounds[:, 1].max()
    if not (first >= 0 and last <= length and (bounds[:, 0] <= bounds[:, 1]).all()):
        raise ValueError(f"spans {list(spans)} are not within the {length} positions")
    if len(np.unique(bounds[:, 0])) > limit:
        raise ValueError(f"{len(spans)} spans need {len(spans)} positions, and {limit} are too few")
    if last - first <= limit:
        bounds = np.array([(first, last)])
    start, end = bounds[:, :1], bounds[:, 1:]  # (n_spans, 1)
    position = np.arange(length)
    outside = np.maximum(start - position, position - end + 1).clip(0).min(0)  # distance to the nearest span
    if np.count_nonzero(outside == 0) <= limit:
        dispensable = outside
    else:
        inside = (start <= position) & (position < end)
        dispensable = np.where(inside, position - start, length).min(0)  # distance to the start of its span
    return np.sort(np.argsort(dispensable, kind="stable")[:limit])


@dataclass(frozen=True, eq=False)
class Spelling:
    """Tokens of texts of words, with the boundaries of texts and words."""

    pieces: Ragged  # tokens of each text
    texts: IntArray  # (n_texts + 1,) boundaries of the words of each text
    words: IntArray  # (n_words + 1,) boundaries of the tokens of each word

    def places(self, bounds: IntArray) -> IntArray:
        """Convert spans of words, (n_texts, n_spans, 2), to spans of tokens."""
        first = self.texts[:-1, None, None]
        places: IntArray = self.words[first + bounds] - self.words[first]
        return places


def spell(tokenizer: Any, texts: Sequence[Sequence[str]], nothing: int | None = None) -> Spelling:
    """Tokenise texts of words, each different word only once.

    The result is that of tokenising whole texts, since a tokenizer treats given words separately, but several times
    faster. `nothing` is the token for a word that has none; if it is None, such a word stays empty.
    """
    known: dict[str, int] = {}
    words = Ragged.of([known.setdefault(word, len(known)) for word in text] for text in texts)
    empty = [] if nothing is None else [nothing]
    spellings = Ragged.of(found.ids or empty for found in tokenised(tokenizer, list(known)))
    starts, ends = spellings.offsets[words.flat], spellings.offsets[words.flat + 1]
    places = offsets_of(ends - starts)
    return Spelling(Ragged(spellings.flat[rows_between(starts, ends)], places[words.offsets]), words.offsets, places)


def tokenised(tokenizer: Any, texts: list[str]) -> Any:
    """Tokenise texts in one call, without special tokens."""
    return tokenizer.backend_tokenizer.encode_batch(texts, add_special_tokens=False)


Arrays = dict[str, NDArray[Any]]

TOKENS_VERSION = 2  # increase it if the file layout or the parts of the key change
FEW = 2000  # up to this number of items, tokenising is as fast as the cache


def cached_tokens(
    reader: type[Encoder],
    texts: Sequence[Any],
    settings: object,
    tokenizer: Any,
    names: Sequence[str],
    make: Callable[[], Arrays],
) -> Arrays:
    """Return `make()`, arrays of these `names`, from the cache folder if they are there.

    The key covers texts and settings (both as JSON), the state of the tokenizer, and the code of the encoder. A damaged
    file is written again; if the folder is not writable, nothing is cached.
    """
    code = None if len(texts) < FEW else code_digest(reader)
    if code is None:
        return make()
    path = cache_dir() / "tokens" / f"{_key(code, texts, settings, tokenizer)}.npz"
    arrays = read_arrays(path, names)
    if arrays is None:
        arrays = make()
        with suppress(OSError):
            write_arrays(path, arrays)
    return arrays


def _key(code: str, texts: Sequence[Any], settings: object, tokenizer: Any) -> str:
    digest = hashlib.sha256(json.dumps([TOKENS_VERSION, code, settings]).encode())
    digest.update(tokenizer.backend_tokenizer.to_str().encode())
    encode = json.JSONEncoder().encode
    for text in texts:
        digest.update(encode(text).encode())
    return digest.hexdigest()[:24]
