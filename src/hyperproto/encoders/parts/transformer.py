"""Base classes of the encoders that are language models: checkpoint and tokenizer, and one vector a text."""

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

TOGETHER = 16  # texts that go through the model at once on a CPU
NARROWEST = 4  # pieces of the text itself: two entities and something of them
ENDLESS = 1 << 30  # pieces: a tokenizer without a limit says some such number
UNSTATED = 512  # pieces that are read by a checkpoint that states no maximum at all


class TransformerEncoder(Encoder):
    """Base of the encoders that are a language model: see `TextTransformer` and `TokenTransformer`.

    `model` is an alias (`minilm`, `mpnet`, `bert`), a folder, or a name on the Hugging Face hub; the tokenizer is that
    of the same checkpoint, always. A `frozen` model does not learn, and has no dropout. `max_length` is in word pieces;
    "auto" is the checkpoint's own maximum.
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
        """`pooler` and `reading`, the checkpoint's own files, are for subclasses that use them."""
        super().__init__()
        reading = reading or Reading(find_model(model))
        self.folder = folder = str(reading.folder)
        self.tokenizer = load_tokenizer(folder)
        self.model = load_model(folder, pooler)
        self.before, self.behind = _special_pieces(self.tokenizer)
        self.fill = 0 if self.tokenizer.pad_token_id is None else int(self.tokenizer.pad_token_id)
        self.feature_shape = (int(self.model.config.hidden_size),)
        self.longest = _positions(self.model, self.tokenizer, reading.max_length)
        if max_length == "auto":
            max_length = _own_length(self.model, reading.max_length, self.longest)
        self.max_length = max_length
        longest, shortest = self.longest, len(self.before + self.behind) + NARROWEST
        if max_length > longest:
            raise ConfigError(
                f"{self.name}: max_length {max_length} is more word pieces than {model} can read; use at most {longest}"
            )
        if max_length < shortest:
            raise ConfigError(f"{self.name}: max_length {max_length} is too short; use at least {shortest}")
        self.freeze(frozen)

    @property
    def room(self) -> int:
        """How many pieces of the text itself the model reads at once."""
        return self.max_length - len(self.before) - len(self.behind)

    def pooler_weights(self) -> tuple[Tensor, Tensor] | None:
        """Weight (D, D) and bias (D,) of the checkpoint's pooler, whether this encoder uses it or not; None: none."""
        return load_pooler(self.folder)

    def hidden(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The last layer at every piece, (n, L, D), and which pieces are real, (n, L)."""
        output, real = self.run_model(batch)
        return output.last_hidden_state, real

    def read_texts(self, texts: Sequence[str]) -> Tensor:
        """Encode plain texts, without markers, each to what `text_vectors` gives; the beginnings are kept."""
        found = [text.ids[: self.room] for text in tokenised(self.tokenizer, list(texts))]
        pieces = Ragged.of([*self.before, *row, *self.behind] or [self.fill] for row in found)
        batch = {
            "pieces": pieces.padded(np.arange(len(pieces)), self.fill),
            "lengths": torch.from_numpy(pieces.lengths),
        }
        parts = [(rows, self.text_vectors(*self.hidden(part))) for rows, part in in_parts(moved(batch, self.device))]
        return torch.cat([x for _, x in parts])[torch.cat([rows for rows, _ in parts]).argsort()]

    def text_vectors(self, states: Tensor, real: Tensor) -> Tensor:
        """Make a vector of a plain text of its states (n, L, D), of which some are real (n, L): their mean."""
        return mean_of_real(states, real)

    def run_model(self, batch: Batch, **options: Any) -> tuple[Any, Tensor]:
        """Run the model on pieces (n, L); return what it says, and which pieces are real, (n, L)."""
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
    """Cut a batch into parts, each with the rows it has of it.

    A CPU reads a few texts of like length at a time: little padding beats large batches there.
    """
    order, size = torch.arange(len(batch["lengths"]), device=batch["lengths"].device), len(batch["lengths"])
    if order.device.type == "cpu":
        order, size = batch["lengths"].argsort(stable=True), TOGETHER
    for rows in torch.split(order, size):
        part = {key: values[rows] for key, values in batch.items()}
        part["pieces"] = part["pieces"][:, : int(part["lengths"].max())]
        yield rows, part


def _special_pieces(tokenizer: Any) -> tuple[list[int], list[int]]:
    """What the tokenizer puts before and behind a text, such as [CLS] and [SEP]."""
    found = tokenizer.backend_tokenizer.encode("a")
    own = [place for place, special in enumerate(found.special_tokens_mask) if not special]
    return found.ids[: own[0]], found.ids[own[-1] + 1 :]


def _pieces_between(tokenizer: Any) -> list[int]:
    """What the tokenizer puts between the two texts of a pair."""
    found = tokenizer.backend_tokenizer.encode("a", "a")
    first, second = (place for place, special in enumerate(found.special_tokens_mask) if not special)
    between: list[int] = found.ids[first + 1 : second]
    return between


def _positions(model: nn.Module, tokenizer: Any, own: int | None) -> int:
    """How many pieces the checkpoint says that it reads (its tokenizer, or its own files), and has embeddings for."""
    limits = [max(int(tokenizer.model_max_length), own or 0)]  # enormous where it says nothing
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            padding = module.padding_idx  # where that is a row, positions are counted from the row behind it
            limits.append(module.num_embeddings - (0 if padding is None else padding + 1))
    return min(limits)


def _own_length(model: Any, own: int | None, longest: int) -> int:
    """The maximum of the checkpoint's own files or else of its configuration, never more than it can read."""
    if own is None:
        configured = getattr(model.config, "max_position_embeddings", None) or 0  # -1 where there is no limit
        own = configured if configured > 0 else longest if longest < ENDLESS else UNSTATED
    return min(own, longest)


@dataclass(frozen=True, eq=False)
class Tokens:
    """Texts as word pieces, with what the tokenizer puts before and behind a text."""

    pieces: Ragged
    starts: IntArray  # (n, n_spans): where each span begins that had to be kept
    ends: IntArray  # (n, n_spans): and where it ends, one past its last piece
    lost: IntArray  # (n,): pieces that were cut out

    def __len__(self) -> int:
        """Count the texts."""
        return len(self.pieces)

    @property
    def cut(self) -> int:
        """How many texts were too long."""
        return int(np.count_nonzero(self.lost))


class TextTransformer(TransformerEncoder):
    """Base of the encoders that read a text as one thing; a subclass writes `read` and `vectors`.

    `output = "maps"` gives the last layer at every piece of the text, those that open and close it included, (L, D),
    padded with zeros, in place of the one vector made of it.
    """

    splits_words: ClassVar[bool] = False  # whether `read` gives texts as lists of words
    keeps: str = "the beginnings were kept"  # what a warning says of texts that were too long

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
        """Return the text of each item (a string, or words), and spans to keep, (n, n_spans, 2), in words."""
        raise NotImplementedError

    def settings(self) -> dict[str, Any]:
        """Whatever `read` depends on beside the items."""
        return {}

    def prepare(self, items: Sequence[Any]) -> Tokens:
        """Tokenise all texts in one call, or take them from the cache, and say how many were too long."""
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
        pieces = Ragged.of([*self.before, *row, *self.behind] or [self.fill] for row in rows)
        return {
            "pieces": pieces.flat,
            "offsets": pieces.offsets,
            "starts": bounds[:, :, 0] + len(self.before),
            "ends": bounds[:, :, 1] + len(self.before),
            "lost": lost,
        }

    def kept(self, length: int, spans: list[tuple[int, int]]) -> IntArray:
        """Choose which pieces of a text stay that has too many: those of the spans, and most of the beginning."""
        return kept_positions(length, spans, self.room)

    def lengths(self, prepared: Tokens) -> IntArray:
        """Word pieces of each text."""
        return prepared.pieces.lengths

    def collate(self, prepared: Tokens, index: IntArray) -> Batch:
        """Pieces (n, L), padded to the longest, how many are real (n,), and where spans start and end (n, n_spans)."""
        return {
            "pieces": prepared.pieces.padded(index, self.fill),
            "lengths": torch.from_numpy(prepared.pieces.lengths[index]),
            "starts": torch.from_numpy(prepared.starts[index]),
            "ends": torch.from_numpy(prepared.ends[index]),
        }

    def collate_pairs(self, prepared: Tokens, first: IntArray, second: IntArray) -> Batch:
        """Pairs of texts as one input each, with what the tokenizer puts between them.

        No text is cut here: `prepare` did that, and kept what has to be kept. `second` (n,) is where the second text
        begins: models with types of pieces are told.
        """
        between = _pieces_between(self.tokenizer)
        ends = len(self.before), len(self.behind)
        self._check_pairs(prepared, len(between))
        rows, begins = [], []
        for pair in zip(first.tolist(), second.tolist(), strict=True):
            a, b = (prepared.pieces.row(n)[ends[0] : len(prepared.pieces.row(n)) - ends[1]].tolist() for n in pair)
            begins.append(len(self.before) + len(a) + len(between))
            rows.append([*self.before, *a, *between, *b, *self.behind])
        pieces = Ragged.of(rows)
        return {
            "pieces": pieces.padded(np.arange(len(rows)), self.fill),
            "lengths": torch.from_numpy(pieces.lengths),
            "starts": torch.from_numpy(prepared.starts[first]),
            "second": torch.tensor(begins),
        }

    def _check_pairs(self, prepared: Tokens, between: int) -> None:
        """Refuse texts of which the two longest, with `between` pieces between them, are more than the model reads."""
        own = len(self.before) + len(self.behind)
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
        """Make one vector a text of the last layer at every piece, (n, L, D), of which some are real, (n, L)."""
        raise NotImplementedError

    def maps(self, states: Tensor) -> Tensor:
        """What `output = "maps"` makes of the last layer at every piece, (n, L, D): the states as they are."""
        return states


def mean_of_real(states: Tensor, real: Tensor) -> Tensor:
    """Average (n, L, D) over the real pieces, those that open and close a text included: (n, D)."""
    weights = real / real.sum(1, keepdim=True)
    return torch.bmm(weights[:, None].to(states.dtype), states)[:, 0]
