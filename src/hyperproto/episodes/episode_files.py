"""Files of episodes: JSON lines of this package, Few-NERD's sampled episodes, FewRel's hidden test sets."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from reprlib import repr as short
from typing import Any

import numpy as np

from hyperproto.data import OUTSIDE, IntArray, Pool
from hyperproto.data.formats.relations import InstanceReader, Relation, is_relation, problem_of, refuse
from hyperproto.episodes.episode import Episode, episodes_hash, sentence_offsets, token_classes, token_labels
from hyperproto.errors import DataError, EpisodeError
from hyperproto.files import (
    atomic_write,
    decode_utf8,
    is_utf8,
    open_file,
    parse_json,
    read_json,
    read_utf8,
    split_lines,
)

FORMAT = "hyperproto-episodes/1"
_HEAD = {"format", "data", "split", "pool_digest", "episode_hash"}
_PARTS = ("classes", "support", "support_y", "query", "query_y")


def save_episodes(path: str | Path, pool: Pool, episodes: Sequence[Episode]) -> str:
    """Write a list of episodes and return its hash."""
    head = {
        "format": FORMAT,
        "data": pool.name,
        "split": pool.split,
        "pool_digest": pool.digest,
        "episode_hash": episodes_hash(pool, episodes),
        "episodes": len(episodes),
    }
    with atomic_write(Path(path)) as file:
        file.write(json.dumps(head).encode() + b"\n")
        for episode in episodes:
            parts = {name: getattr(episode, name) for name in _PARTS}
            row = {name: None if part is None else part.tolist() for name, part in parts.items()}
            file.write(json.dumps(row, separators=(",", ":")).encode() + b"\n")
    return str(head["episode_hash"])


def load_episodes(path: str | Path, pool: Pool) -> list[Episode]:
    """Read a list of episodes; raise an EpisodeError if it is of another pool, or if its hash is wrong."""
    path = Path(path)
    text = read_utf8(path, missing="check its name and folder", error=EpisodeError)
    head_line, *lines = split_lines(text) or [""]
    head = parse_json(head_line, f"{path}, line 1", damaged=f"an episode file begins with {FORMAT}", error=EpisodeError)
    if isinstance(head, dict) and head.get("format", FORMAT) != FORMAT:
        raise EpisodeError(f"{path}: format {head['format']!r}; this version reads {FORMAT!r}")
    if not isinstance(head, dict) or _HEAD - head.keys():
        raise EpisodeError(f"{path}, line 1: not the head of an episode file ({FORMAT})")
    if head["pool_digest"] != pool.digest:
        raise EpisodeError(
            f"{path}: drawn from {head['data']} ({head['split']}), digest {head['pool_digest']}, but the pool at hand "
            f"is {pool}, digest {pool.digest}; open the same data and split"
        )
    episodes = [_own_episode(path, number, line) for number, line in enumerate(lines, start=2)]
    found = episodes_hash(pool, episodes)
    if found != head["episode_hash"]:
        raise EpisodeError(f"{path}: hash {found}, but its first line says {head['episode_hash']}; write it again")
    return episodes


def _own_episode(path: Path, number: int, line: str) -> Episode:
    where = f"{path}, line {number}"
    row = parse_json(line, where, damaged="the file was cut or changed", error=EpisodeError)
    try:
        parts: dict[str, Any] = {name: np.array(row[name], np.int64) for name in _PARTS if row[name] is not None}
        return Episode(**{"query_y": None, **parts})
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise EpisodeError(f"{where}: not an episode ({error}); write the file again") from None


O_NAME = "O"
_NAME = re.compile(r"(train|dev|val|test)_(\d+)_(\d+)\.jsonl")
Sentence = tuple[tuple[str, ...], tuple[str, ...]]  # words, labels


def shots_in_name(path: Path) -> int | None:
    """Return K from the file name `test_N_K.jsonl`; None for other names."""
    match = _NAME.fullmatch(path.name)
    return int(match[3]) if match else None


def load_fewnerd_episodes(path: str | Path, shot: int | None = None) -> tuple[Pool, list[Episode]]:
    """Read a Few-NERD file; return the pool of its distinct sentences, and the episodes.

    Every episode is checked: N different types as in the file name, no labels of other types, K to 2K entities of each
    type in the support (K from the name, or `shot`) and at least one in the query. Few-NERD contains duplicate
    sentences, so one may be in the support and in the query of an episode.
    """
    path = Path(path)
    match = _NAME.fullmatch(path.name)
    way = int(match[2]) if match else None
    shot = shots_in_name(path) if shot is None else shot
    if shot is None:
        raise EpisodeError(f"{path}: the name gives no number of shots; call it test_5_1.jsonl, or give shot")
    numbers: dict[Sentence, int] = {}  # index of each sentence, in order of first occurrence
    counts: list[Counter[str]] = []  # entities of each sentence
    rows: list[tuple[list[str], list[int], list[int]]] = []
    with open_file(path, error=EpisodeError) as file:
        for number, content in enumerate(file, start=1):
            where = f"{path}, line {number}"
            line = decode_utf8(content, str(path), first=number, error=EpisodeError).strip()
            if line:
                rows.append(_tagged_row(where, line, numbers, counts))
                _check_tagged(where, rows[-1], counts, way, shot)
    if not rows:
        raise EpisodeError(f"{path}: no episodes in it; write one on each line")
    pool = _tagged_pool(list(numbers), f"fewnerd-episodes:{path.name}", match[1] if match else "all")
    kinds = {name: kind for kind, name in enumerate(pool.class_names)}
    return pool, [_tagged_episode(pool, [kinds[name] for name in row[0]], row[1], row[2]) for row in rows]


def save_fewnerd_episodes(path: str | Path, pool: Pool, episodes: Sequence[Episode]) -> str:
    """Write episodes of a K~2K sampler in Few-NERD's format, and return their hash."""
    with atomic_write(Path(path)) as file:
        for episode in episodes:
            if episode.query_y is None:
                raise EpisodeError(f"{pool}: an episode has hidden query labels, which this format cannot store")
            names = [O_NAME, *(pool.class_names[kind] for kind in episode.classes[1:])]
            row = {
                "support": _texts(pool, names, episode.support, episode.support_y),
                "query": _texts(pool, names, episode.query, episode.query_y),
                "types": names[1:],
            }
            file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
    return episodes_hash(pool, episodes)


def _texts(pool: Pool, names: list[str], items: IntArray, labels: IntArray) -> dict[str, list[list[str]]]:
    lengths = np.diff(sentence_offsets(pool))[items]
    parts = np.split(labels, np.cumsum(lengths)[:-1])
    return {
        "word": [list(pool.items[item]) for item in items.tolist()],
        "label": [[names[label] for label in part.tolist()] for part in parts[: len(items)]],
    }


def _tagged_row(
    where: str, line: str, numbers: dict[Sentence, int], counts: list[Counter[str]]
) -> tuple[list[str], list[int], list[int]]:
    """Parse a line: types, and sentence numbers of support and query; new sentences get the next numbers."""
    row: Any = parse_json(line, where, damaged="write one episode on each line", error=EpisodeError)
    try:
        types = list(_strings(row["types"]))
        sets: list[list[int]] = []
        for part in ("support", "query"):
            pairs = zip(row[part]["word"], row[part]["label"], strict=True)
            sentences: list[Sentence] = [(_strings(words), _strings(labels)) for words, labels in pairs]
            sets.append([])
            for words, labels in sentences:
                if not words or len(words) != len(labels):
                    raise EpisodeError(
                        f"{where}: a sentence of the {part} has {len(words)} words, {len(labels)} labels"
                    )
                if (words, labels) not in numbers:
                    numbers[words, labels] = len(numbers)
                    counts.append(Counter(name for name, _ in groupby(labels) if name != O_NAME))
                sets[-1].append(numbers[words, labels])
        return types, sets[0], sets[1]
    except (ValueError, KeyError, TypeError) as error:
        raise EpisodeError(
            f"{where}: not an episode of Few-NERD ({type(error).__name__}: {error}); a line holds support and query, "
            "each with word and label, and types"
        ) from None


def _strings(found: Any) -> tuple[str, ...]:
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        raise TypeError(f"{short(found)} is not a list of strings")
    if not is_utf8("".join(found)):
        raise ValueError(f"{short(found)} holds half a character (a lone surrogate)")
    return tuple(found)


def _check_tagged(
    where: str,
    row: tuple[list[str], list[int], list[int]],
    counts: list[Counter[str]],
    way: int | None,
    shot: int,
) -> None:
    types, support, query = row
    if len(set(types)) != len(types) or O_NAME in types or (way is not None and len(types) != way):
        asked = "" if way is None else f" {way}"
        raise EpisodeError(f"{where}: types {types}; the file's name asks for{asked} different ones, none of them O")
    for part, items, least, most in (("support", support, shot, 2 * shot), ("query", query, 1, None)):
        total: Counter[str] = Counter()
        for item in items:
            total.update(counts[item])
        for name in total.keys() - set(types):
            raise EpisodeError(f"{where}: label {name!r} in the {part} is none of the episode's types {types}")
        for name in types:
            if total[name] < least or (most is not None and total[name] > most):
                limits = f"at least {least}" if most is None else f"{least} to {most}"
                raise EpisodeError(f"{where}: {total[name]} entities of {name!r} in the {part}; there must be {limits}")


def _tagged_pool(sentences: list[Sentence], name: str, split: str) -> Pool:
    types = sorted({label for _, labels in sentences for label in labels} - {O_NAME})
    kinds = {kind: n for n, kind in enumerate(types)} | {O_NAME: OUTSIDE}
    labels = np.array([kinds[label] for _, labels in sentences for label in labels])
    offsets = np.cumsum([0, *(len(words) for words, _ in sentences)])
    return Pool([list(words) for words, _ in sentences], labels, tuple(types), name=name, split=split, offsets=offsets)


def _tagged_episode(pool: Pool, types: list[int], support: list[int], query: list[int]) -> Episode:
    items = np.array(support, np.int64), np.array(query, np.int64)
    labels = [token_labels(pool, types, sentences) for sentences in items]
    return Episode(token_classes(pool, types), items[0], labels[0], items[1], labels[1])


@dataclass(frozen=True, eq=False)
class HiddenTasks:
    """Tasks of a hidden test set; `items` holds each instance once."""

    items: list[Relation]
    support: IntArray  # (n_tasks, N, K) indices in `items`
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
    """Describe the problems of a task, with their location."""
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
    """Read `test_wiki_input-N-K.json` (or `test_pubmed_input-...`): one episode a task, with one unlabelled query.

    The pool holds every instance once, without labels: its classes are positions in a task, not relations.
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
    """Return the file name for submitting predictions: pred-N-K.json."""
    if not episodes:
        raise EpisodeError("no episodes, so no predictions to name; read a file of tasks first")
    way = episodes[0].way
    return f"pred-{way}-{len(episodes[0].support) // way}.json"


def write_predictions(path: str | Path, labels: Sequence[int] | IntArray) -> None:
    """Write the predicted label of each task, 0 to N - 1, in order: one JSON list, written atomically.

    Labels are written unchanged; the caller chooses the number for "none of the above".
    """
    values = np.asarray(labels)
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise EpisodeError(
            f"{path}: predictions of shape {values.shape} and type {values.dtype}; give one integer a task"
        )
    with atomic_write(Path(path)) as file:
        file.write(json.dumps(values.tolist()).encode())
