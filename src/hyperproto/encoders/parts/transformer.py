"""Base classes of transformer encoders: checkpoint, tokenizer, batches of texts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal
from warnings import warn

import numpy as np
import torch
from torch import Tensor, nn

from hyperproto.data import IntArray
from hyperproto.encoders.base import Encoder, Units, moved
from hyperproto.encoders.parts.pretrained import find_model, load_model, load_pooler, load_tokenizer
from hyperproto.encoders.parts.sentence_files import Reading
from hyperproto.encoders.parts.word_pieces import Arrays, Ragged, cached_tokens, kept_positions, spell, tokenised
from hyperproto.errors import ConfigError

Batch = dict[str, Tensor]

TOGETHER = 16  # texts in a forward pass on a CPU
NARROWEST = 4  # smallest number of tokens of the text itself: room for two entities
ENDLESS = 1 << 30  # a tokenizer without a limit reports a number above this
UNSTATED = 512  # limit in tokens for a checkpoint that states none


class TransformerEncoder(Encoder):
    """Base class of encoders with a language model: see `TextTransformer` and `TokenTransformer`.

    `model` is an alias (`minilm`, `mpnet`, `bert`), a folder, or a name on the Hugging Face hub; the tokenizer is that
    of the checkpoint. A `frozen` model is not trained and has no dropout. `max_length` is in tokens; "auto" is the
    checkpoint's maximum.
    """

    argument = "model"
    pretrained = True
    name: ClassVar[str]  # in the registry

    def __init__(
        self,
        pooler: bool = False,
        reading: Reading | None = None,
        *,
        model: str = "minilm",
        max_length: int | Literal["auto"] = 128,
        frozen: bool = True,
    ) -> None:
        """Load the model; `pooler` and `reading` (the checkpoint's files) are for subclasses that use them."""
        super().__init__()
        reading = reading or Reading(find_model(model))
        self.folder = folder = str(reading.folder)
        self.tokenizer = load_tokenizer(folder)
        self.model = load_model(folder, pooler)
        self.before, self.after = _special_pieces(self.tokenizer)
        self.fill = 0 if self.tokenizer.pad_token_id is None else int(self.tokenizer.pad_token_id)
        self.feature_shape = (int(self.model.config.hidden_size),)
        self.longest = _positions(self.model, self.tokenizer, reading.max_length)
        if max_length == "auto":
            max_length = _own_length(self.model, reading.max_length, self.longest)
        self.max_length = max_length
        longest, shortest = self.longest, len(self.before + self.after) + NARROWEST
        if max_length > longest:
            raise ConfigError(
                f"{self.name}: max_length {max_length} is more word pieces than {model} can read; use at most {longest}"
            )
        if max_length < shortest:
            raise ConfigError(f"{self.name}: max_length {max_length} is too short; use at least {shortest}")
        self.freeze(frozen)

    @property
    def room(self) -> int:
        """Largest number of tokens of the text itself, without special tokens."""
        return self.max_length - len(self.before) - len(self.after)

    def pooler_weights(self) -> tuple[Tensor, Tensor] | None:
        """Return weight (D, D) and bias (D,) of the checkpoint's pooler, or None; also if this encoder ignores it."""
        return load_pooler(self.folder)

    def hidden(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the last layer at every token, (n, L, D), and the mask of real tokens, (n, L)."""
        output, real = self.run_model(batch)
        return output.last_hidden_state, real

    def read_texts(self, texts: Sequence[str]) -> Tensor:
        """Encode plain texts, without markers, by `text_vectors`; long texts are cut at their ends."""
        found = [text.ids[: self.room] for text in tokenised(self.tokenizer, list(texts))]
        pieces = Ragged.of([*self.before, *row, *self.after] or [self.fill] for row in found)
        batch = {
            "pieces": pieces.padded(np.arange(len(pieces)), self.fill),
            "lengths": torch.from_numpy(pieces.lengths),
        }
        parts = [(rows, self.text_vectors(*self.hidden(part))) for rows, part in in_parts(moved(batch, self.device))]
        return torch.cat([x for _, x in parts])[torch.cat([rows for rows, _ in parts]).argsort()]

    def text_vectors(self, states: Tensor, real: Tensor) -> Tensor:
        """Return the vectors of plain texts: the mean of states (n, L, D) over real tokens (n, L)."""
        return mean_of_real(states, real)

    def run_model(self, batch: Batch, **options: Any) -> tuple[Any, Tensor]:
        """Run the model on tokens (n, L); return its output, and the mask of real tokens, (n, L)."""
        pieces = batch["pieces"]
        places = torch.arange(pieces.shape[1], device=pieces.device)
        real = places < batch["lengths"][:, None]
        if "second" in batch and "token_type_ids" in self.tokenizer.model_input_names:
            options = {"token_type_ids": (real & (places >= batch["second"][:, None])).long(), **options}
        try:
            return self.model(input_ids=pieces, attention_mask=real.long(), **options), real
        except IndexError as error:
            raise ConfigError(
                f"{self.name}: the tokenizer gives word pieces that the network does not have ({error}); "
                "its files are not those of one checkpoint: get it again"
            ) from None


def in_parts(batch: Batch) -> Iterator[tuple[Tensor, Batch]]:
    """Yield parts of a batch with their rows in it.

    On a CPU, parts are a few texts of similar length: less padding is faster than larger batches.
    """
    order, size = torch.arange(len(batch["lengths"]), device=batch["lengths"].device), len(batch["lengths"])
    if order.device.type == "cpu":
        order, size = batch["lengths"].argsort(stable=True), TOGETHER
    for rows in torch.split(order, size):
        part = {key: values[rows] for key, values in batch.items()}
        part["pieces"] = part["pieces"][:, : int(part["lengths"].max())]
        yield rows, part


def _special_pieces(tokenizer: Any) -> tuple[list[int], list[int]]:
    """Return the tokens that the tokenizer puts before and after a text, such as [CLS] and [SEP]."""
    found = tokenizer.backend_tokenizer.encode("a")
    own = [place for place, special in enumerate(found.special_tokens_mask) if not special]
    return found.ids[: own[0]], found.ids[own[-1] + 1 :]


def _pieces_between(tokenizer: Any) -> list[int]:
    """Return the tokens that the tokenizer puts between the two texts of a pair."""
    found = tokenizer.backend_tokenizer.encode("a", "a")
    first, second = (place for place, special in enumerate(found.special_tokens_mask) if not special)
    between: list[int] = found.ids[first + 1 : second]
    return between


def _positions(model: nn.Module, tokenizer: Any, own: int | None) -> int:
    """Return the largest number of tokens: the limit of tokenizer or files, and of position embeddings."""
    limits = [max(int(tokenizer.model_max_length), own or 0)]  # very large if it states none
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            padding = module.padding_idx  # if not None, positions are counted from the row after it
            limits.append(module.num_embeddings - (0 if padding is None else padding + 1))
    return min(limits)


def _own_length(model: Any, own: int | None, longest: int) -> int:
    """Return the maximum in the checkpoint's files, else in its configuration; at most `longest`."""
    if own is None:
        configured = getattr(model.config, "max_position_embeddings", None) or 0  # -1 if there is no limit
        own = configured if configured > 0 else longest if longest < ENDLESS else UNSTATED
    return min(own, longest)


@dataclass(frozen=True, eq=False)
class Tokens:
    """Texts as tokens, including special tokens."""

    pieces: Ragged
    starts: IntArray  # (n, n_spans): first token of each span that was kept
    ends: IntArray  # (n, n_spans): one past its last token
    lost: IntArray  # (n,): number of tokens that were cut out

    def __len__(self) -> int:
        """Count the texts."""
        return len(self.pieces)

    @property
    def cut(self) -> int:
        """Number of texts that were cut."""
        return int(np.count_nonzero(self.lost))


class TextTransformer(TransformerEncoder):
    """Base class of encoders of whole texts; a subclass implements `read` and `vectors`.

    `output = "maps"` returns the last layer at every token, special tokens included, (L, D), padded with zeros, instead
    of one vector.
    """

    splits_words: ClassVar[bool] = False  # True if `read` returns texts as lists of words
    keeps: str = "the beginnings were kept"  # part of the warning about long texts

    def __init__(
        self,
        pooler: bool = False,
        reading: Reading | None = None,
        *,
        output: Literal["vectors", "maps"] = "vectors",
        **options: Any,
    ) -> None:
        super().__init__(pooler, reading, **options)
        self.output = output
        if output == "maps":
            self.feature_shape = (-1, *self.feature_shape)

    def read(self, items: Any) -> tuple[list[Any], IntArray]:
        """Return the text of each item (a string, or words), and the spans of words to keep, (n, n_spans, 2)."""
        raise NotImplementedError

    def settings(self) -> dict[str, Any]:
        """Return the settings that `read` depends on, besides the items; part of the cache key."""
        return {}

    def prepare(self, items: Sequence[Any]) -> Tokens:
        """Tokenise all texts, or read them from the cache; warn about texts that were cut."""
        settings = {"encoder": self.name, "max_length": self.max_length, **self.settings()}
        names = ("pieces", "offsets", "starts", "ends", "lost")
        arrays = cached_tokens(type(self), items, settings, self.tokenizer, names, lambda: self._tokenised(items))
        tokens = Tokens(Ragged(arrays["pieces"], arrays["offsets"]), arrays["starts"], arrays["ends"], arrays["lost"])
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
        bounds, lost = bounds.copy(), np.zeros(len(rows), np.int64)
        for n in [n for n, row in enumerate(rows) if len(row) > self.room]:
            kept = self.kept(len(rows[n]), [(start, end) for start, end in bounds[n].tolist()])
            bounds[n] = np.searchsorted(kept, bounds[n])
            lost[n] = len(rows[n]) - len(kept)
            rows[n] = [rows[n][place] for place in kept]
        pieces = Ragged.of([*self.before, *row, *self.after] or [self.fill] for row in rows)
        return {
            "pieces": pieces.flat,
            "offsets": pieces.offsets,
            "starts": bounds[:, :, 0] + len(self.before),
            "ends": bounds[:, :, 1] + len(self.before),
            "lost": lost,
        }

    def kept(self, length: int, spans: list[tuple[int, int]]) -> IntArray:
        """Return the positions of a long text to keep: those of the spans, and as much as possible around them."""
        return kept_positions(length, spans, self.room)

    def lengths(self, prepared: Tokens) -> IntArray:
        """Return the number of tokens of each text."""
        return prepared.pieces.lengths

    def collate(self, prepared: Tokens, index: IntArray) -> Batch:
        """Return padded tokens (n, L), their lengths (n,), and starts and ends of the spans (n, n_spans)."""
        return {
            "pieces": prepared.pieces.padded(index, self.fill),
            "lengths": torch.from_numpy(prepared.pieces.lengths[index]),
            "starts": torch.from_numpy(prepared.starts[index]),
            "ends": torch.from_numpy(prepared.ends[index]),
        }

    def collate_pairs(self, prepared: Tokens, first: IntArray, second: IntArray) -> Batch:
        """Return pairs of texts as one input each, with the tokenizer's separators.

        Texts were cut by `prepare`. The key `second` (n,) is the start of the second text, for models with token types.
        """
        between = _pieces_between(self.tokenizer)
        ends = len(self.before), len(self.after)
        self._check_pairs(prepared, len(between))
        rows, begins = [], []
        for pair in zip(first.tolist(), second.tolist(), strict=True):
            a, b = (prepared.pieces.row(n)[ends[0] : len(prepared.pieces.row(n)) - ends[1]].tolist() for n in pair)
            begins.append(len(self.before) + len(a) + len(between))
            rows.append([*self.before, *a, *between, *b, *self.after])
        pieces = Ragged.of(rows)
        return {
            "pieces": pieces.padded(np.arange(len(rows)), self.fill),
            "lengths": torch.from_numpy(pieces.lengths),
            "starts": torch.from_numpy(prepared.starts[first]),
            "second": torch.tensor(begins),
        }

    def _check_pairs(self, prepared: Tokens, between: int) -> None:
        """Raise a ConfigError if a pair of the two longest texts exceeds the limit of the model."""
        own = len(self.before) + len(self.after)
        longest = int(prepared.pieces.lengths.max(initial=0))
        if 2 * longest - own + between > self.longest:
            most = (self.longest + own - between) // 2
            raise ConfigError(
                f"{self.name}: a pair of texts of {longest} word pieces each is longer than the {self.longest} that "
                f"the model reads; use max_length = {most}"
            )

    def forward(self, batch: Batch) -> Units:
        """Encode texts."""
        order, blocks = [], []
        for rows, part in in_parts(batch):
            states, real = self.hidden(part)
            order.append(rows)
            blocks.append(
                Units.one_each(self.vectors(states, real, part))
                if self.output == "vectors"
                else Units.one_each(self.maps(states).masked_fill(~real[..., None], 0.0), real)
            )
        units, back = Units.concatenated(blocks), torch.cat(order).argsort()
        return Units.one_each(units.x[back], None if units.mask is None else units.mask[back])

    def vectors(self, states: Tensor, real: Tensor, batch: Batch) -> Tensor:
        """Return one vector a text, (n, D), from states (n, L, D) and the mask of real tokens (n, L)."""
        raise NotImplementedError

    def maps(self, states: Tensor) -> Tensor:
        """Return the maps of `output = "maps"` from the last layer (n, L, D): by default unchanged."""
        return states


def mean_of_real(states: Tensor, real: Tensor) -> Tensor:
    """Return the mean of states (n, L, D) over real tokens, special tokens included: (n, D)."""
    weights = real / real.sum(1, keepdim=True)
    return torch.bmm(weights[:, None].to(states.dtype), states)[:, 0]
