"""Data sets: official files on disk, or data made here, to a `Pool`. One module each.

A data set is named by a spec, `NAME` or `NAME:ARGUMENT` (`glyphs`, `vectors:features.npz`). Its module, or object, has

- `SUMMARY`, one line for `hyperproto data list`,
- `splits(argument) -> tuple[str, ...]`,
- `load(split, argument, progress) -> Pool`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from hyperproto.data.pool import OUTSIDE, IntArray, Pool, Progress
from hyperproto.errors import ConfigError, DataError, unknown_name
from hyperproto.files import os_problem
from hyperproto.registry import Registry

__all__ = [
    "DATASETS",
    "OUTSIDE",
    "DataSet",
    "IntArray",
    "Pool",
    "Progress",
    "find_dataset",
    "open_pool",
    "splits_of",
    "training_split",
]


class DataSet(Protocol):
    """What the module of a data set offers."""

    SUMMARY: str

    def splits(self, argument: str) -> tuple[str, ...]:
        """Name the splits that `load` takes."""

    def load(self, split: str, argument: str, progress: Progress | None) -> Pool:
        """Read or make one split."""


DATASETS = Registry(
    "data set",
    "hyperproto.data",
    {
        "cifar-fs": "hyperproto.data.image_benchmarks:CIFAR_FS",
        "conll": "hyperproto.data.conll",
        "cub": "hyperproto.data.cub",
        "fc100": "hyperproto.data.image_benchmarks:FC100",
        "fewnerd": "hyperproto.data.fewnerd",
        "fewrel": "hyperproto.data.fewrel",
        "fewrel2": "hyperproto.data.fewrel2",
        "folder": "hyperproto.data.folder",
        "glyphs": "hyperproto.data.glyphs",
        "intents": "hyperproto.data.intents",
        "miniimagenet": "hyperproto.data.miniimagenet",
        "omniglot": "hyperproto.data.omniglot",
        "statements": "hyperproto.data.statements",
        "texts": "hyperproto.data.texts",
        "tieredimagenet": "hyperproto.data.image_benchmarks:TIERED_IMAGENET",
        "vectors": "hyperproto.data.vectors",
    },
)


def find_dataset(spec: str) -> tuple[DataSet, str]:
    """Take a spec apart: the data set, and its argument ("" where there is none)."""
    name, _, argument = spec.partition(":")
    dataset: DataSet = DATASETS.get(name)
    return dataset, argument


def splits_of(spec: str) -> tuple[str, ...]:
    """Name the splits of the data set that `spec` names."""
    dataset, argument = find_dataset(spec)
    with _system_errors_told():
        return dataset.splits(argument)


def training_split(spec: str) -> str | None:
    """Name the split of a data set to train on: `train`, or the part of it that is there; None if it has neither."""
    splits = splits_of(spec)
    return next((name for name in ("train", *splits) if name in splits and name.startswith("train")), None)


def open_pool(spec: str, split: str, progress: Progress | None = None) -> Pool:
    """Load one split of the data set that `spec` names."""
    dataset, argument = find_dataset(spec)
    splits = splits_of(spec)
    if split not in splits:
        raise ConfigError(f"{spec}: {unknown_name('split', split, splits)}")
    with _system_errors_told():
        return dataset.load(split, argument, progress)


@contextmanager
def _system_errors_told() -> Iterator[None]:
    """What the system refuses of a data set's files is an error of ours, with advice."""
    try:
        yield
    except OSError as error:
        raise DataError(os_problem(error)) from None
