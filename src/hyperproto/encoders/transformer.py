"""What all encoders that are language models share: texts to word pieces, once for all, and pieces to vectors."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self
from warnings import warn

import numpy as np
import torch
from torch import Tensor, nn

from hyperproto.data import IntArray
from hyperproto.encoders.base import Encoder, Units, offsets_of, rows_between
from hyperproto.encoders.pretrained import find_model, load_model, load_tokenizer
from hyperproto.encoders.ragged import Ragged
from hyperproto.encoders.token_cache import Arrays, cached_tokens
from hyperproto.encoders.window import window
from hyperproto.errors import ConfigError

Batch = dict[str, Tensor]

TOGETHER = 16  # texts that go through the model at once on a CPU
NARROWEST = 4  # pieces of the text itself: two entities and something of them


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


class TransformerEncoder(Encoder):
    """Base of the encoders that are a language model; a subclass writes `read` and `vectors`.

    `model` is an alias (`minilm`, `mpnet`, `bert`), a folder, or a name on the Hugging Face hub; the tokenizer is that
    of the same checkpoint, always. A `frozen` model does not learn, and has no dropout. `max_length` is in word pieces.
    """

    argument = "model"
    name: ClassVar[str]  # in the registry
    splits_words: ClassVar[bool] = False  # whether `read` gives texts as lists of words
    keeps: ClassVar[str] = "the beginnings were kept"  # what a warning says of texts that were too long

    def __init__(self, *, model: str = "minilm", max_length: int = 128, frozen: bool = True) -> None:
        super().__init__()
        folder = str(find_model(model))
        self.tokenizer = load_tokenizer(folder)
        self.model = load_model(folder)
        self.max_length = max_length
        self.frozen = frozen
        self.before, self.behind = _special_pieces(self.tokenizer)
        self.fill = 0 if self.tokenizer.pad_token_id is None else int(self.tokenizer.pad_token_id)
        self.feature_shape = (int(self.model.config.hidden_size),)
        longest, shortest = _positions(self.model, self.tokenizer), len(self.before + self.behind) + NARROWEST
        if max_length > longest:
            raise ConfigError(
                f"{self.name}: max_length {max_length} is more word pieces than {model} can read; use at most {longest}"
            )
        if max_length < shortest:
            raise ConfigError(f"{self.name}: max_length {max_length} is too short; use at least {shortest}")
        if frozen:
            self.requires_grad_(False)
        self.train()

    def train(self, mode: bool = True) -> Self:
        """Stay in eval mode where the weights are frozen."""
        return super().train(mode and not self.frozen)

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
            pieces, bounds = _spelled(self.tokenizer, texts, bounds)
            rows = [pieces.row(n).tolist() for n in range(len(pieces))]
        else:
            rows = [found.ids for found in _encoded(self.tokenizer, texts)]
        starts, lost = bounds[:, :, 0].copy(), np.zeros(len(rows), np.int64)
        room = self.max_length - len(self.before) - len(self.behind)
        for n in [n for n, row in enumerate(rows) if len(row) > room]:
            kept = window(len(rows[n]), [(start, end) for start, end in bounds[n].tolist()], room)
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
        """Encode texts. A CPU reads a few of like length at a time: little padding beats large batches there."""
        if batch["pieces"].device.type != "cpu":
            return Units.one_each(self.vectors(*self.hidden(batch), batch))
        order = batch["lengths"].argsort(stable=True)
        found = []
        for start in range(0, len(order), TOGETHER):
            rows = order[start : start + TOGETHER]
            part = {key: values[rows] for key, values in batch.items()}
            part["pieces"] = part["pieces"][:, : int(part["lengths"].max())]
            found.append(self.vectors(*self.hidden(part), part))
        return Units.one_each(torch.cat(found)[order.argsort()])

    def vectors(self, states: Tensor, real: Tensor, batch: Batch) -> Tensor:
        """Make one vector a text of the last layer at every piece, (n, L, D), of which some are real, (n, L)."""
        raise NotImplementedError

    def hidden(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The last layer at every piece, (n, L, D), and which pieces are real, (n, L)."""
        pieces = batch["pieces"]
        real = torch.arange(pieces.shape[1], device=pieces.device) < batch["lengths"][:, None]
        states: Tensor = self.model(input_ids=pieces, attention_mask=real.long()).last_hidden_state
        return states, real


def mean_of_real(states: Tensor, real: Tensor) -> Tensor:
    """Average (n, L, D) over the real pieces, those that open and close a text included: (n, D)."""
    weights = real / real.sum(1, keepdim=True)
    return torch.bmm(weights[:, None].to(states.dtype), states)[:, 0]


def _spelled(tokenizer: Any, texts: Sequence[Sequence[str]], bounds: IntArray) -> tuple[Ragged, IntArray]:
    """Words to pieces, and spans in words to spans in pieces.

    Each different word is tokenised once: the same, since a tokenizer that is given words looks at one at a time, and
    several times as fast.
    """
    known: dict[str, int] = {}
    words = Ragged.of([known.setdefault(word, len(known)) for word in text] for text in texts)
    spellings = Ragged.of(found.ids for found in _encoded(tokenizer, list(known)))
    starts, ends = spellings.offsets[words.flat], spellings.offsets[words.flat + 1]
    places = offsets_of(ends - starts)  # where the pieces of each word begin, all texts in a row
    pieces = Ragged(spellings.flat[rows_between(starts, ends)], places[words.offsets])
    first = words.offsets[:-1, None, None]
    return pieces, places[first + bounds] - places[first]


def _encoded(tokenizer: Any, texts: list[str]) -> Any:
    return tokenizer.backend_tokenizer.encode_batch(texts, add_special_tokens=False)


def _special_pieces(tokenizer: Any) -> tuple[list[int], list[int]]:
    """What the tokenizer puts before and behind a text, such as [CLS] and [SEP]."""
    found = tokenizer.backend_tokenizer.encode("a")
    own = [place for place, special in enumerate(found.special_tokens_mask) if not special]
    return found.ids[: own[0]], found.ids[own[-1] + 1 :]


def _positions(model: nn.Module, tokenizer: Any) -> int:
    """How many pieces the checkpoint says that it reads, and has embeddings of positions for."""
    limits = [int(tokenizer.model_max_length)]  # enormous where it says nothing
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            padding = module.padding_idx  # where that is a row, positions are counted from the row behind it
            limits.append(module.num_embeddings - (0 if padding is None else padding + 1))
    return min(limits)
