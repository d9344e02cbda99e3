"""FewRel's hidden test sets: input files to episodes without answers, and predictions to the file that is submitted.

A file is `[{"meta_train": N lists of K instances, "meta_test": instance}]`.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hyperproto.data import OUTSIDE, IntArray, Pool
from hyperproto.data.relations import InstanceReader, Relation, is_relation, problem_of, refuse
from hyperproto.episodes.episode import Episode
from hyperproto.errors import DataError, EpisodeError
from hyperproto.files import atomic_write, read_json


@dataclass(frozen=True, eq=False)
class HiddenTasks:
    """Tasks whose answers nobody has published; every instance is kept once, however many tasks it is in."""

    items: list[Relation]
    support: IntArray  # (n_tasks, N, K) places in `items`
    query: IntArray  # (n_tasks,)


def read_hidden(path: Path, *, uncased: bool = False) -> HiddenTasks:
    """Read `test_wiki_input-N-K.json` or `test_pubmed_input-N-K.json`; all tasks must have the same N and K."""
    content = read_json(path, InstanceReader(uncased=uncased))
    if not isinstance(content, list) or not content:
        raise DataError(f"{path}: not a list of tasks; name a file such as test_wiki_input-5-1.json")
    problems = [f"task {number}{problem}" for number, task in enumerate(content) for problem in _problems(task)]
    refuse(path, problems)
    size = _size(content[0])
    other = next((number for number, task in enumerate(content) if _size(task) != size), None)
    if other is not None:
        raise DataError(
            f"{path}: task {other} is {_words(_size(content[other]))}, but task 0 is {_words(size)}; "
            "put tasks of different sizes into different files"
        )
    places: dict[tuple[str | int, ...], int] = {}
    items: list[Relation] = []

    def place(item: Relation) -> int:
        key: tuple[str | int, ...] = (*item["tokens"], *item["head"], -1, *item["tail"])
        if places.setdefault(key, len(items)) == len(items):
            items.append(item)
        return places[key]

    support = [[[place(item) for item in instances] for instances in task["meta_train"]] for task in content]
    query = [place(task["meta_test"]) for task in content]
    return HiddenTasks(items, np.array(support, np.int64), np.array(query, np.int64))


def _problems(task: Any) -> list[str]:
    """Say what is wrong with a task, and where in it."""
    if not isinstance(task, dict) or not {"meta_train", "meta_test"} <= task.keys():
        return [" has no meta_train or no meta_test"]
    classes = task["meta_train"]
    if not isinstance(classes, list) or not classes or not all(isinstance(found, list) and found for found in classes):
        return [", meta_train: not a list of classes, each a list of at least one instance"]
    if len({len(instances) for instances in classes}) > 1:
        return [
            f", meta_train: classes of {', '.join(str(len(found)) for found in classes)} instances; give all as many"
        ]
    found = {f"meta_train, class {n}, index {k}": item for n, own in enumerate(classes) for k, item in enumerate(own)}
    found["meta_test"] = task["meta_test"]
    return [f", {where}: {problem_of(item)}" for where, item in found.items() if not is_relation(item)]


def _size(task: dict[str, Any]) -> tuple[int, int]:
    return len(task["meta_train"]), len(task["meta_train"][0])


def _words(size: tuple[int, int]) -> str:
    return f"{size[0]}-way {size[1]}-shot"


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
