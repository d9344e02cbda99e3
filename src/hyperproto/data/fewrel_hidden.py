"""The input files of FewRel's hidden test sets: `[{"meta_train": N lists of K instances, "meta_test": instance}]`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hyperproto.data.fewrel_files import InstanceReader, is_relation, problem_of, read_json, refuse
from hyperproto.data.pool import IntArray
from hyperproto.data.relations import Relation
from hyperproto.errors import DataError


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
