"""Encode CLINC150, BANKING77 and HWU64."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hyperproto import TextEncoder
from hyperproto.data.intents import SPLITS, read_intents, read_outside
from hyperproto.estimators.text import label_words

NAMES = tuple(SPLITS)
Lines = tuple[list[str], list[str]]  # texts and their labels


@dataclass(frozen=True, eq=False)
class Intents:
    """Encoded texts: those that supports are drawn from, those that are classified, and strangers to every class."""

    name: str
    split: str
    classes: list[str]
    train: NDArray[np.float32]
    train_y: NDArray[np.int64]
    test: NDArray[np.float32]
    test_y: NDArray[np.int64]
    outside: NDArray[np.float32]  # of no class; only CLINC150 has any
    names: NDArray[np.float32]  # of the classes: their labels in words


def load_intents(name: str, split: str = "test", encoder: str = "minilm") -> Intents:
    """Read a data set and encode it; encoded texts are kept in the cache folder."""
    train, test = (_columns(read_intents(name, part)) for part in ("train", split))
    outside = read_outside(name, split)
    classes = sorted(set(train[1]))
    place = {label: n for n, label in enumerate(classes)}
    plain = TextEncoder(encoder, pooling="plain", max_length=128, progress=True)  # lengths: the transforms are compared
    transform = plain.transform
    texts = transform([*train[0], *test[0], *outside])
    ends = np.cumsum([len(train[0]), len(test[0])])
    parts = np.split(texts, ends)
    labels = (np.array([place[label] for label in lines[1]]) for lines in (train, test))
    train_y, test_y = labels
    names = transform([label_words(label) or label for label in classes])
    return Intents(name, split, classes, parts[0], train_y, parts[1], test_y, parts[2], names)


def _columns(rows: Sequence[tuple[str, str]]) -> Lines:
    return [text for text, _ in rows], [label for _, label in rows]
