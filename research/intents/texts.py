"""Encoded texts: intents (CLINC150, BANKING77, HWU64), topics (TREC, AG News, reviews), sentences of FewRel.

Topics are files `topics/NAME.csv` of the data folder, with the columns text, label and split (train or test).
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from hyperproto import TextEncoder
from hyperproto.data import open_pool
from hyperproto.data.intents import SPLITS, read_intents, read_outside
from hyperproto.data.specs import data_folder
from hyperproto.encoders import make_encoder, resolve_encoder
from hyperproto.encoders.class_names import NameEncoder
from hyperproto.errors import ConfigError
from hyperproto.estimators.text import label_words
from hyperproto.evaluation import EncodedPool

RELATIONS = {f"fewrel-{split}": split for split in ("train", "val_wiki", "val_pubmed", "val_semeval")}
TOPICS = ("trec", "agnews", "reviews")
NAMES = (*SPLITS, *TOPICS, *RELATIONS)
Lines = tuple[list[str], list[str]]  # texts and their labels


@dataclass(frozen=True, eq=False)
class Intents:
    """Encoded texts: those that supports are drawn from, those that are classified, and out-of-class texts."""

    name: str
    split: str
    classes: list[str]
    train: NDArray[np.float32]
    train_y: NDArray[np.int64]
    test: NDArray[np.float32]
    test_y: NDArray[np.int64]
    outside: NDArray[np.float32]  # of no class; only CLINC150 has any
    names: NDArray[np.float32]  # of the classes: their labels in words
    train_texts: Sequence[str] = ()
    test_texts: Sequence[str] = ()
    encoder: str = "minilm"


def load_intents(name: str, split: str = "test", encoder: str = "minilm") -> Intents:
    """Read a data set and encode it; encoded texts are kept in the cache folder."""
    if name in RELATIONS:
        return _load_relations(name, split, encoder)
    read = read_topics if name in TOPICS else read_intents
    train, test = (_columns(read(name, part)) for part in ("train", split))
    outside = [] if name in TOPICS else read_outside(name, split)
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
    return Intents(
        name, split, classes, parts[0], train_y, parts[1], test_y, parts[2], names, train[0], test[0], encoder
    )


def read_topics(name: str, split: str) -> list[tuple[str, str]]:
    """Return texts and labels of a split of a data set of topics."""
    if split not in ("train", "test"):
        raise ConfigError(f"{name} has no {split} split; use train or test")
    with (data_folder("topics") / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return [(row["text"], row["label"]) for row in csv.DictReader(file) if row["split"] == split]


def _load_relations(name: str, split: str, encoder: str) -> Intents:
    """Load a file of FewRel, encoded as prompts; every second sentence of a relation is a training text."""
    if split != "test":
        raise ConfigError(f"{name} has no {split} split; use test, or fewrel-train to choose settings on")
    pool = open_pool("fewrel", RELATIONS[name])
    reader = make_encoder(
        *resolve_encoder(f"relation-transformer:{encoder}", {"representation": "prompt"}, pool)
    ).eval()
    vectors = EncodedPool.encode(reader, pool, cached=True).units.x.numpy()
    with torch.no_grad():
        names, _ = NameEncoder("descriptions").of(pool, reader).of(torch.arange(pool.n_classes))
    train = np.zeros(len(pool), bool)
    for n in range(pool.n_classes):
        train[np.flatnonzero(pool.labels == n)[::2]] = True
    classes, labels = list(pool.class_names), np.asarray(pool.labels)
    parts = vectors[train], labels[train], vectors[~train], labels[~train], vectors[:0]
    return Intents(name, split, classes, *parts, names.numpy())


def _columns(rows: Sequence[tuple[str, str]]) -> Lines:
    return [text for text, _ in rows], [label for _, label in rows]
