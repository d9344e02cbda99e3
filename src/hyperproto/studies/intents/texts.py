"""Read and encode CLINC150, BANKING77 and HWU64 from the files of their releases, below $HYPERPROTO_DATA/intents."""

import csv
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hyperproto import TextEncoder
from hyperproto.data.specs import data_folder
from hyperproto.errors import ConfigError, DataError
from hyperproto.estimators.text import label_words

NAMES = ("hwu64", "banking77", "clinc150")
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
    folder = data_folder("intents")
    try:
        train, test, outside = _READERS[name](folder, split)
    except OSError as error:
        raise DataError(f"{name}: {error}; HYPERPROTO_DATA names the folder that holds intents/") from None
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


def _clinc(folder: Path, split: str) -> tuple[Lines, Lines, list[str]]:
    content = json.loads((folder / "clinc150.json").read_text())
    part = {"test": "test", "valid": "val"}[split]
    train, test = (_columns(content[name]) for name in ("train", part))
    return train, test, [text for text, _ in content[f"oos_{part}"]]


def _banking(folder: Path, split: str) -> tuple[Lines, Lines, list[str]]:
    if split != "test":
        raise ConfigError("banking77 has no valid split; use test")
    parts = []
    for name in ("train", "test"):
        with (folder / "banking77" / f"{name}.csv").open(newline="") as file:
            parts.append(_columns([(row["text"], row["category"]) for row in csv.DictReader(file)]))
    return parts[0], parts[1], []


def _hwu(folder: Path, split: str) -> tuple[Lines, Lines, list[str]]:
    parts = []
    for name in ("train", split):
        texts = (folder / "hwu64" / name / "seq.in").read_text().splitlines()
        labels = (folder / "hwu64" / name / "label").read_text().splitlines()
        parts.append(_columns([pair for pair in zip(texts, labels, strict=True) if pair[0].strip()]))
    return parts[0], parts[1], []


def _columns(rows: list[tuple[str, str]]) -> Lines:
    return [text for text, _ in rows], [label for _, label in rows]


_READERS = {"clinc150": _clinc, "banking77": _banking, "hwu64": _hwu}
