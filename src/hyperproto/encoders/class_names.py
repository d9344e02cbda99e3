"""Class names as vectors: read once by a frozen sentence encoder, or at each step by the encoder that is trained."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from hyperproto.data import Pool
from hyperproto.data.names import class_texts, known_texts
from hyperproto.encoders import make_encoder, resolve_encoder
from hyperproto.encoders.base import Encoder
from hyperproto.encoders.parts.cache import cached_units
from hyperproto.errors import ConfigError
from hyperproto.regions.arrays import unit

SAME = "same"  # in place of an encoder's name: the one that reads the items


@dataclass(frozen=True, eq=False)
class ClassNames:
    """Names of the classes of a pool, as texts and vectors; a class without a text has zeros and is masked."""

    texts: tuple[str | None, ...]  # of each class of the pool; O has none
    known: dict[str, str]  # every text of the source, by class, also of classes that are not in the pool
    read: Callable[[Sequence[str]], Tensor]  # texts to vectors, (n, D')
    frozen: bool  # whether the vector of a text never changes

    def of(self, classes: Tensor) -> tuple[Tensor, Tensor]:
        """Return the vectors of some classes, (*, D'), and which of them have a name, (*).

        If the encoder is trained, only these classes are read, with gradients where gradients are recorded.
        """
        if self.frozen or not torch.is_grad_enabled():
            x, has = self._table
            return x[classes], has[classes]
        drawn, place = torch.unique(classes, return_inverse=True)
        x, has = self._vectors([self.texts[c] for c in drawn.tolist()])
        return x[place], has[place]

    @cached_property
    def _table(self) -> tuple[Tensor, Tensor]:
        """Vectors of all classes, (C, D'), read once, and which have a name, (C,)."""
        with torch.no_grad():
            return self._vectors(self.texts)

    def _vectors(self, texts: Sequence[str | None]) -> tuple[Tensor, Tensor]:
        named = [place for place, text in enumerate(texts) if text is not None]
        found = self.read([text for text in texts if text is not None] or [""])
        places = torch.tensor(named, dtype=torch.long, device=found.device)
        x = found.new_zeros(len(texts), found.shape[1]).index_copy(0, places, found[: len(named)])
        return x, torch.tensor([text is not None for text in texts], device=found.device)


class NameEncoder:
    """Reader of class names, with the settings of `[names]` in a recipe; see `recipes.Names`.

    `source` names where the text of a class comes from (see `data.names`). `encoder` is "same", the encoder of the
    items, or the name of a sentence encoder, which is frozen: its vectors have length 1, and each text is read once.
    """

    def __init__(self, source: str, encoder: str = SAME) -> None:
        self.source = source
        self.encoder = encoder
        self._texts: WeakKeyDictionary[Pool, tuple[tuple[str | None, ...], dict[str, str]]] = WeakKeyDictionary()
        self._frozen: WeakKeyDictionary[Pool, ClassNames] = WeakKeyDictionary()
        self._vectors: dict[str, Tensor] = {}
        self._reader: Encoder | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of the names, as results record them."""
        return {"source": self.source, "encoder": self.encoder}

    def of(self, pool: Pool, own: Encoder) -> ClassNames:
        """Return the names of a pool's classes; `own` is the encoder of the items."""
        if pool not in self._texts:
            known = known_texts(self.source, pool)
            outside = (None,) * (pool.n_labels - pool.n_classes)
            self._texts[pool] = class_texts(self.source, pool, known) + outside, known
        texts, known = self._texts[pool]
        if self.encoder == SAME:
            return ClassNames(texts, known, own.read_texts, frozen=False)
        if pool not in self._frozen:
            device = own.device
            self._frozen[pool] = ClassNames(texts, known, lambda texts: self.vectors(texts).to(device), frozen=True)
        return self._frozen[pool]

    def vectors(self, texts: Sequence[str]) -> Tensor:
        """Return vectors of length 1 of some texts, (n, D'), by the frozen encoder; each text is read once."""
        new = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        if new:
            self._vectors |= zip(new, self._encoded(new), strict=True)
        return torch.stack([self._vectors[text] for text in texts])

    def _encoded(self, texts: list[str]) -> Tensor:
        pool = Pool(texts, np.zeros(len(texts), np.int64), ("name",), name="names of classes")
        if self._reader is None:
            with torch.random.fork_rng(devices=[]):  # building a network draws random weights
                self._reader = make_encoder(*resolve_encoder(self.encoder, {}, pool)).requires_grad_(False).eval()
        reader = self._reader
        x = cached_units(reader, pool, None, lambda: reader.encode_all(reader.prepare(texts))).x
        if x.ndim != 2 or len(x) != len(texts):
            raise ConfigError(
                f"names: {self.encoder} gives a text units of shape {tuple(x.shape[1:])}; choose an encoder of one "
                'vector a text: encoder = "minilm"'
            )
        directions: Tensor = unit(x)
        return directions
