"""FewRel's hidden test sets: official input files to episodes without answers, and predictions to what is submitted."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hyperproto.data import OUTSIDE, IntArray, Pool
from hyperproto.data.fewrel_hidden import read_hidden
from hyperproto.episodes.episode import Episode
from hyperproto.errors import EpisodeError
from hyperproto.files import atomic_write


def read_fewrel_test(path: str | Path, *, uncased: bool = False) -> tuple[Pool, list[Episode]]:
    """Read `test_wiki_input-N-K.json` (or `test_pubmed_input-...`): one episode a task, one query each, no answers.

    The pool holds every instance once. Its classes are places in a task, not relations: no item has one of its own.
    """
    path = Path(path).expanduser()
    tasks = read_hidden(path, uncased=uncased)
    count, way, shot = tasks.support.shape
    outside = np.full(len(tasks.items), OUTSIDE)
    names = tuple(f"class {number}" for number in range(1, way + 1))
    pool = Pool(tasks.items, outside, names, name=f"fewrel:{path}", split="hidden")
    classes, support_y = np.arange(way), np.repeat(np.arange(way), shot)
    support, query = tasks.support.reshape(count, -1), tasks.query[:, None]
    return pool, [Episode(classes, support[e], support_y, query[e], None) for e in range(count)]


def predictions_name(episodes: Sequence[Episode]) -> str:
    """Return the name that the answers to a file of tasks are submitted under: pred-N-K.json."""
    if not episodes:
        raise EpisodeError("no episodes, so no predictions to name; read a file of tasks first")
    way = episodes[0].way
    return f"pred-{way}-{len(episodes[0].support) // way}.json"


def write_predictions(path: str | Path, labels: Sequence[int] | IntArray) -> None:
    """Write the predicted label of each task, 0 to N - 1, in the tasks' order: one JSON list, whole or not at all.

    What a task with "none of the above" wants for that, the caller writes into `labels`: this changes no number.
    """
    values = np.asarray(labels)
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise EpisodeError(
            f"{path}: predictions of shape {values.shape} and type {values.dtype}; give one integer a task"
        )
    with atomic_write(Path(path)) as file:
        file.write(json.dumps(values.tolist()).encode())
