"""Data sets, one module each: read official files or generate data, and return a `Pool`.

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
    """Interface of a data set: a module, or an object, with these names."""

    SUMMARY: str

    def splits(self, argument: str) -> tuple[str, ...]:
        """Return the names of the splits that `load` accepts."""

    def load(self, split: str, argument: str, progress: Progress | None) -> Pool:
        """Read or generate one split."""


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
    """Split a spec into the data set and its argument ("" if there is none)."""
    name, _, argument = spec.partition(":")
    dataset: DataSet = DATASETS.get(name)
    return dataset, argument


def splits_of(spec: str) -> tuple[str, ...]:
    """Return the splits of the data set named by `spec`."""
    dataset, argument = find_dataset(spec)
    with _os_errors_as_data_errors():
        return dataset.splits(argument)


def training_split(spec: str) -> str | None:
    """Return the training split of a data set: `train`, else one whose name begins with it, else None."""
    splits = splits_of(spec)
    return next((name for name in ("train", *splits) if name in splits and name.startswith("train")), None)


def open_pool(spec: str, split: str, progress: Progress | None = None) -> Pool:
    """Load one split of the data set named by `spec`."""
    dataset, argument = find_dataset(spec)
    splits = splits_of(spec)
    if split not in splits:
        raise ConfigError(f"{spec}: {unknown_name('split', split, splits)}")
    with _os_errors_as_data_errors():
        return dataset.load(split, argument, progress)


@contextmanager
def _os_errors_as_data_errors() -> Iterator[None]:
    """Raise a DataError with advice in place of an OSError."""
    try:
        yield
    except OSError as error:
        raise DataError(os_problem(error)) from None
