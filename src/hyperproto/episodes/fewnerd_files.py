"""Few-NERD's files of sampled episodes, `{train,dev,test}_{N}_{K}.jsonl`: the text of each episode on a line."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from reprlib import repr as short
from typing import Any

import numpy as np

from hyperproto.data import OUTSIDE, IntArray, Pool
from hyperproto.episodes.episode import Episode, episodes_hash
from hyperproto.episodes.word_labels import sentence_offsets, token_classes, token_labels
from hyperproto.errors import EpisodeError
from hyperproto.files import atomic_write, decode_utf8, is_utf8, open_file, parse_json

O_NAME = "O"
_NAME = re.compile(r"(train|dev|val|test)_(\d+)_(\d+)\.jsonl")
Sentence = tuple[tuple[str, ...], tuple[str, ...]]  # words, labels


def shots_in_name(path: Path) -> int | None:
    """Return the K of a file called `test_N_K.jsonl`; None if it is called otherwise."""
    match = _NAME.fullmatch(path.name)
    return int(match[3]) if match else None


def load_fewnerd_episodes(path: str | Path, shot: int | None = None) -> tuple[Pool, list[Episode]]:
    """Read a file of episodes and the pool of all its sentences, each kept once.

    Every episode is checked: N different types as the file's name says, labels of these types only, K to 2K entities of
    each type in the support (K from the name, or `shot`) and at least one in the query. Few-NERD holds some sentences
    more than once, so one may be in the support and in the query of an episode.
    """
    path = Path(path)
    match = _NAME.fullmatch(path.name)
    way = int(match[2]) if match else None
    shot = shots_in_name(path) if shot is None else shot
    if shot is None:
        raise EpisodeError(f"{path}: the name does not say how many shots; call it test_5_1.jsonl, or give shot")
    numbers: dict[Sentence, int] = {}  # the sentences, in the order in which they come first
    counts: list[Counter[str]] = []  # entities of each sentence
    rows: list[tuple[list[str], list[int], list[int]]] = []
    with open_file(path, error=EpisodeError) as file:
        for number, content in enumerate(file, start=1):
            where = f"{path}, line {number}"
            line = decode_utf8(content, str(path), first=number, error=EpisodeError).strip()
            if line:
                rows.append(_row(where, line, numbers, counts))
                _check(where, rows[-1], counts, way, shot)
    if not rows:
        raise EpisodeError(f"{path}: no episodes in it")
    pool = _pool(list(numbers), f"fewnerd-episodes:{path.name}", match[1] if match else "all")
    kinds = {name: kind for kind, name in enumerate(pool.class_names)}
    return pool, [_episode(pool, [kinds[name] for name in row[0]], row[1], row[2]) for row in rows]


def save_fewnerd_episodes(path: str | Path, pool: Pool, episodes: Sequence[Episode]) -> str:
    """Write episodes of a K~2K sampler in Few-NERD's format, for its toolkit and others; return the list's hash."""
    with atomic_write(Path(path)) as file:
        for episode in episodes:
            if episode.query_y is None:
                raise EpisodeError(
                    f"{pool}: an episode hides the labels of its query; this format has no place for that"
                )
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


def _row(
    where: str, line: str, numbers: dict[Sentence, int], counts: list[Counter[str]]
) -> tuple[list[str], list[int], list[int]]:
    """Take a line apart: types, and the sentences of support and query; new ones get the next numbers."""
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


def _check(
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


def _pool(sentences: list[Sentence], name: str, split: str) -> Pool:
    types = sorted({label for _, labels in sentences for label in labels} - {O_NAME})
    kinds = {kind: n for n, kind in enumerate(types)} | {O_NAME: OUTSIDE}
    labels = np.array([kinds[label] for _, labels in sentences for label in labels])
    offsets = np.cumsum([0, *(len(words) for words, _ in sentences)])
    return Pool([list(words) for words, _ in sentences], labels, tuple(types), name=name, split=split, offsets=offsets)


def _episode(pool: Pool, types: list[int], support: list[int], query: list[int]) -> Episode:
    items = np.array(support, np.int64), np.array(query, np.int64)
    labels = [token_labels(pool, types, sentences) for sentences in items]
    return Episode(token_classes(pool, types), items[0], labels[0], items[1], labels[1])
