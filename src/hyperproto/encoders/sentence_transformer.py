"""Language model for texts: one vector each."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from hyperproto.data import IntArray, Pool
from hyperproto.encoders.base import moved
from hyperproto.encoders.parts.pretrained import find_model, find_sentence_model
from hyperproto.encoders.parts.sentence_files import Dense, Reading, read_files
from hyperproto.encoders.parts.transformer import NARROWEST, Batch, TextTransformer, mean_of_real
from hyperproto.encoders.parts.word_pieces import tokenised
from hyperproto.errors import ConfigError, DataError, unknown_name

Pooling = Literal["auto", "plain", "cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]


class SentenceTransformer(TextTransformer):
    """Reimers and Gurevych, "Sentence-BERT: Sentence Embeddings using Siamese BERT-Networks", 2019.

    Each text (a string) becomes one vector. `pooling` says how the last layer at the tokens is combined:

    - `auto`: as in the checkpoint's sentence-transformers files (see `sentence_files`): pooling, dense layers, scaling
      to length 1, lower-casing, default prompt. Without such files, the mean over all tokens;
    - `plain`: the mean over all tokens; the files are ignored;
    - `cls`, `max`, `mean`, `mean_sqrt_len_tokens`, `weightedmean`, `lasttoken`: this pooling; everything else as in the
      files.

    `prompt` is put before every text and replaces the checkpoint's default prompt; "" is none. `prompt_name` selects
    one of the checkpoint's prompts. A text of more than `max_length` tokens, prompt included, is cut at its end (at its
    beginning if the checkpoint's tokenizer truncates on the left). "auto" is the checkpoint's maximum, limited by its
    position embeddings.
    """

    name = "sentence-transformer"

    def __init__(
        self,
        *,
        model: str = "minilm",
        pooling: Pooling = "auto",
        prompt: str | None = None,
        prompt_name: str | None = None,
        max_length: int | Literal["auto"] = "auto",
        **options: Any,
    ) -> None:
        reading = Reading(find_model(model)) if pooling == "plain" else read_files(find_sentence_model(model))
        if pooling not in ("auto", "plain"):
            reading = replace(reading, poolings=(pooling,))
        super().__init__(False, reading, model=model, max_length=max_length, **options)
        if self.output == "maps" and pooling not in ("auto", "plain"):
            raise ConfigError(
                f"{self.name}: output 'maps' returns the state at every piece, so that pooling {pooling!r} has no "
                "effect; leave it out"
            )
        self.keeps_end = pooling != "plain" and self.tokenizer.truncation_side == "left"
        if self.keeps_end:
            self.keeps = "the ends were kept"
        self.poolings = reading.poolings
        self.lower_case = reading.lower_case
        self.prompt = _prompt(self.name, reading, prompt, prompt_name)
        pieces = len(tokenised(self.tokenizer, [self._text("")])[0].ids) if self.prompt else 0
        if pieces and self.room - pieces < NARROWEST:
            raise ConfigError(
                f"{self.name}: max_length {self.max_length} leaves no room after the prompt, {pieces} pieces; use at "
                f"least {self.max_length - self.room + pieces + NARROWEST}, or another prompt"
            )
        self.skipped = 0 if reading.include_prompt or not pieces else len(self.before) + pieces
        self.layers = nn.ModuleList(reading.layers if self.output == "vectors" else [])
        self._check_sizes(model, reading)
        if self.frozen:
            self.requires_grad_(False)
        self.train()

    def _check_sizes(self, model: str, reading: Reading) -> None:
        """Raise an error if the input size of a layer differs from the output size of the layer before it."""
        size = int(self.model.config.hidden_size)
        if reading.state_size not in (None, size):
            raise DataError(
                f"model {model!r}: its pooling is for states of size {reading.state_size}, but those of "
                f"{type(self.model).__name__} have size {size}; get the checkpoint again"
            )
        if self.output == "maps":
            return
        size *= len(self.poolings)
        for layer in self.layers:
            if isinstance(layer, Dense):
                if layer.linear.in_features != size:
                    raise ConfigError(
                        f"model {model!r}: its dense layer takes {layer.linear.in_features} numbers, but pooling "
                        f"{'+'.join(self.poolings)} gives {size}; choose pooling='auto' or 'plain'"
                    )
                size = layer.linear.out_features
        self.feature_shape = (size,)

    @classmethod
    def options_for(cls, pool: Pool) -> dict[str, Any]:
        """Return no options, but raise a DataError if the items are not texts."""
        first = pool.items[0] if len(pool.items) else None
        if not isinstance(first, str):
            kind = type(first).__name__
            raise DataError(f"{pool}: {cls.name} reads texts, each a string, but the items are {kind}")
        return {}

    @property
    def read_as(self) -> dict[str, Any]:
        """Options that determine the vectors, with the settings of the checkpoint's files that differ from `plain`."""
        chosen = ("pooling", "prompt", "prompt_name", "max_length")
        found: dict[str, Any] = {key: value for key, value in super().read_as.items() if key not in chosen}
        found["max_length"] = self.max_length
        if self.poolings != ("mean",):
            found["pooling"] = "+".join(self.poolings)
        if len(self.layers):
            found["layers"] = [str(layer.said) for layer in self.layers]
        if self.lower_case:
            found["lower_case"] = True
        if self.keeps_end:
            found["truncation"] = "left"
        if self.prompt:
            found |= {"prompt": self.prompt, "prompt_pooled": not self.skipped}
        return found

    def settings(self) -> dict[str, Any]:
        """Return the prompt, whether texts are lower-cased, and which end of a long text is kept."""
        return {"prompt": self.prompt, "lower_case": self.lower_case, "keeps_end": self.keeps_end}

    def kept(self, length: int, spans: list[tuple[int, int]]) -> IntArray:
        """Return the first positions of a long text, or the last if the tokenizer truncates on the left."""
        return np.arange(length - self.room, length) if self.keeps_end else super().kept(length, spans)

    def read(self, items: Sequence[str]) -> tuple[list[str], IntArray]:
        """Return the texts with the prompt; there are no spans to keep."""
        return [self._text(item) for item in items], np.empty((len(items), 0, 2), np.int64)

    def read_texts(self, texts: Sequence[str]) -> Tensor:
        """Encode texts like items if the output is vectors, else to the mean of their states."""
        if self.output == "maps":
            return super().read_texts(texts)
        batch = moved(self.collate(self.prepare(list(texts)), np.arange(len(texts))), self.device)
        x: Tensor = self(batch).x
        return x

    def _text(self, item: str) -> str:
        text = self.prompt + item
        return text.lower() if self.lower_case else text

    def vectors(self, states: Tensor, real: Tensor, batch: Batch) -> Tensor:
        """Pool each text, then apply the layers that follow."""
        counted = real
        if self.skipped:
            first = (batch["lengths"] - 1).clamp(max=self.skipped)  # at least one token of the shortest text is left
            counted = real & (torch.arange(real.shape[1], device=real.device) >= first[:, None])
        parts = [pooled(mode, states, counted) for mode in self.poolings]
        x = parts[0] if len(parts) == 1 else torch.cat(parts, 1)
        for layer in self.layers:
            x = layer(x)
        return x


def pooled(mode: str, states: Tensor, counted: Tensor) -> Tensor:
    """Pool states (n, L, D) to one vector a text, (n, D), as in sentence-transformers; `counted` (n, L) is the mask.

    Real tokens come first. `cls` is the first state, even if a prompt is masked. The weights of `weightedmean` are
    1, 2, 3, ... from the first token.
    """
    places = torch.arange(states.shape[1], device=states.device)
    if mode == "cls":
        return states[:, 0]
    if mode == "lasttoken":
        last = (counted * places).argmax(1)
        return states[torch.arange(len(states), device=states.device), last]
    if mode == "max":
        return states.masked_fill(~counted[..., None], -torch.inf).amax(1)
    if mode == "weightedmean":
        weights = counted * (places + 1.0)
        return torch.bmm((weights / weights.sum(1, keepdim=True))[:, None].to(states.dtype), states)[:, 0]
    mean = mean_of_real(states, counted)
    return mean if mode == "mean" else mean * counted.sum(1, keepdim=True).to(states.dtype).sqrt()


def _prompt(name: str, reading: Reading, prompt: str | None, prompt_name: str | None) -> str:
    """Return the requested prompt, else the checkpoint's default."""
    if prompt is not None and prompt_name is not None:
        raise ConfigError(f"{name}: give prompt (the words) or prompt_name (one of the checkpoint's), not both")
    if prompt_name is not None:
        if prompt_name not in reading.prompts:
            raise ConfigError(f"{name}: {unknown_name('prompt', prompt_name, reading.prompts)}")
        return reading.prompts[prompt_name]
    return reading.default_prompt if prompt is None else prompt
