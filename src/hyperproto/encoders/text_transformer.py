"""Language models that give one vector a text: texts to word pieces, once for all, and pieces to vectors."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar
from warnings import warn

import numpy as np
import torch
from torch import Tensor

from hyperproto.data import IntArray
from hyperproto.encoders.base import Units
from hyperproto.encoders.ragged import Ragged
from hyperproto.encoders.spelling import spell, tokenised
from hyperproto.encoders.token_cache import Arrays, cached_tokens
from hyperproto.encoders.transformer import Batch, TransformerEncoder, in_parts
from hyperproto.encoders.window import window


@dataclass(frozen=True, eq=False)
class Tokens:
    """Texts as word pieces, with what the tokenizer puts before and behind a text."""

    pieces: Ragged
    starts: IntArray  # (n, n_spans): where each span begins that had to be kept
    lost: IntArray  # (n,): pieces that were cut out

    def __len__(self) -> int:
        """Count the texts."""
        return len(self.pieces)

    @property
    def cut(self) -> int:
        """How many texts were too long."""
        return int(np.count_nonzero(self.lost))


class TextTransformer(TransformerEncoder):
    """Base of the encoders that read a text as one thing; a subclass writes `read` and `vectors`."""

    splits_words: ClassVar[bool] = False  # whether `read` gives texts as lists of words
    keeps: ClassVar[str] = "the beginnings were kept"  # what a warning says of texts that were too long

    def read(self, items: Any) -> tuple[list[Any], IntArray]:
        """Return the text of each item (a string, or words), and spans to keep, (n, n_spans, 2), in words."""
        raise NotImplementedError

    def settings(self) -> dict[str, Any]:
        """Whatever `read` depends on beside the items."""
        return {}

    def prepare(self, items: Sequence[Any]) -> Tokens:
        """Tokenise all texts in one call, or take them from the cache, and say how many were too long."""
        settings = {"encoder": self.name, "max_length": self.max_length, **self.settings()}
        arrays = cached_tokens(items, settings, self.tokenizer, lambda: self._tokenised(items))
        tokens = Tokens(Ragged(arrays["pieces"], arrays["offsets"]), arrays["starts"], arrays["lost"])
        if tokens.cut:
            warn(
                f"{self.name}: {tokens.cut:,} of {len(tokens):,} sentences are longer than {self.max_length} word "
                f"pieces; {tokens.lost.sum():,} pieces were left out, {self.keeps} (raise max_length to keep all)",
                stacklevel=2,
            )
        return tokens

    def _tokenised(self, items: Sequence[Any]) -> Arrays:
        texts, bounds = self.read(items)
        if self.splits_words:
            spelling = spell(self.tokenizer, texts)
            rows, bounds = [row.tolist() for row in spelling.pieces.rows()], spelling.places(bounds)
        else:
            rows = [found.ids for found in tokenised(self.tokenizer, texts)]
        starts, lost = bounds[:, :, 0].copy(), np.zeros(len(rows), np.int64)
        for n in [n for n, row in enumerate(rows) if len(row) > self.room]:
            kept = window(len(rows[n]), [(start, end) for start, end in bounds[n].tolist()], self.room)
            starts[n] = np.searchsorted(kept, starts[n])
            lost[n] = len(rows[n]) - len(kept)
            rows[n] = [rows[n][place] for place in kept]
        pieces = Ragged.of([*self.before, *row, *self.behind] or [self.fill] for row in rows)
        return {
            "pieces": pieces.flat,
            "offsets": pieces.offsets,
            "starts": starts + len(self.before),
            "lost": lost,
        }

    def lengths(self, prepared: Tokens) -> IntArray:
        """Word pieces of each text."""
        return prepared.pieces.lengths

    def collate(self, prepared: Tokens, index: IntArray) -> Batch:
        """Pieces (n, L), padded to the longest, how many are real (n,), and where the spans start (n, n_spans)."""
        return {
            "pieces": prepared.pieces.padded(index, self.fill),
            "lengths": torch.from_numpy(prepared.pieces.lengths[index]),
            "starts": torch.from_numpy(prepared.starts[index]),
        }

    def forward(self, batch: Batch) -> Units:
        """Encode texts."""
        rows, found = zip(*((r, self.vectors(*self.hidden(part), part)) for r, part in in_parts(batch)), strict=True)
        return Units.one_each(torch.cat(found)[torch.cat(rows).argsort()])

    def vectors(self, states: Tensor, real: Tensor, batch: Batch) -> Tensor:
        """Make one vector a text of the last layer at every piece, (n, L, D), of which some are real, (n, L)."""
        raise NotImplementedError


def mean_of_real(states: Tensor, real: Tensor) -> Tensor:
    """Average (n, L, D) over the real pieces, those that open and close a text included: (n, D)."""
    weights = real / real.sum(1, keepdim=True)
    return torch.bmm(weights[:, None].to(states.dtype), states)[:, 0]
