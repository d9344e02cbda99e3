"""Relation instances: sentences with two marked entities, read from files of FewRel's format.

A file is `{relation: [{tokens, h: [name, id, [[positions], ...]], t: ...}]}`.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as short
from typing import Any, TypedDict, cast

import numpy as np

from hyperproto.data.pool import Pool
from hyperproto.errors import DataError
from hyperproto.files import read_json


class Relation(TypedDict):
    """An instance: the words of a sentence, and the positions of the head and the tail of the relation."""

    tokens: list[str]
    head: list[int]  # increasing positions of its words, at least one
    tail: list[int]


def mentions_overlap(item: Relation) -> bool:
    """Return True if head and tail share a word or one lies within the other."""
    head, tail = item["head"], item["tail"]
    return max(head[0], tail[0]) <= min(head[-1], tail[-1])


def check_relations(pool: Pool, reader: str) -> None:
    """Raise a DataError if the items are not relations; `reader` is the name of the encoder."""
    first = pool.items[0] if len(pool.items) else None
    if not (isinstance(first, dict) and {"tokens", "head", "tail"} <= first.keys()):
        kind = item_kind(first)
        raise DataError(f"{pool}: {reader} reads sentences with a head and a tail, but the items are {kind}")


def item_kind(item: object) -> str:
    """Describe the type of an item in one or two words."""
    shape = getattr(item, "shape", None)
    words = {str: "texts", list: "lists of words", Relation: "sentences with two entities"}.get(type(item))
    return words or f"{type(item).__name__}" + ("" if shape is None else f" of shape {shape}")


_NO_LETTER_OR_DIGIT = re.compile(r"[\W_]+")  # including combining accents


def uncased(word: str) -> str:
    """Lower-case a word and strip its accents; a word of accents only is unchanged."""
    if word.isascii():
        return word.lower()
    letters = "".join(c for c in unicodedata.normalize("NFD", word.lower()) if not unicodedata.combining(c))
    return letters or word


def sentence_key(tokens: Iterable[str]) -> str:
    """Return the uncased letters and digits of a sentence: a key that does not depend on tokenisation."""
    text = unicodedata.normalize("NFD", "".join(tokens).casefold())
    return _NO_LETTER_OR_DIGIT.sub("", text)


class Words(dict[str, str]):
    """Table that keeps one copy of each word, optionally uncased, so that sentences share memory."""

    def __init__(self, *, uncased: bool = False) -> None:
        super().__init__()
        self.uncased = uncased

    def __missing__(self, word: str) -> str:
        word.encode()  # raises an error for half a character (a lone surrogate) at loading time
        self[word] = found = uncased(word) if self.uncased else word
        return found


INSTANCE = '{"tokens": [words], "h": [name, id, [[positions], ...]], "t": [name, id, [[positions], ...]]}'
_NAMED = 10  # number of problems listed in a message


@dataclass(frozen=True)
class BadInstance:
    """Placeholder for a malformed instance, with its problem."""

    words: str


class InstanceReader:
    """JSON object hook that converts instances to relations during parsing, so that other fields use no memory.

    Of several mentions of an entity it takes the first, as the FewRel toolkit does.
    """

    def __init__(self, *, uncased: bool = False) -> None:
        self._words = Words(uncased=uncased)

    def __call__(self, raw: dict[str, Any]) -> Any:
        """Convert a JSON object if it is an instance; return any other object unchanged."""
        if "tokens" not in raw:
            return raw
        try:
            return self._relation(raw)
        except DataError as error:
            return BadInstance(str(error))
        except UnicodeEncodeError:
            return BadInstance("half a character (a lone surrogate) in its words")

    def _relation(self, raw: dict[str, Any]) -> Relation:
        tokens = raw["tokens"]
        check_tokens(tokens)
        head, tail = (_first_mention(raw, key, len(tokens)) for key in ("h", "t"))
        return {"tokens": [self._words[token] for token in tokens], "head": head, "tail": tail}


def check_tokens(tokens: Any) -> None:
    """Raise a DataError unless `tokens` is a list of at least one string."""
    if not isinstance(tokens, list) or not tokens:
        raise DataError(f"tokens is {short(tokens)}, not a list of at least one word")
    if set(map(type, tokens)) != {str}:
        place = next(place for place, token in enumerate(tokens) if not isinstance(token, str))
        raise DataError(f"word {place} of tokens is {short(tokens[place])}, not a string")


def check_positions(positions: Any, length: int, owner: str) -> None:
    """Raise a DataError unless `positions` are those of a mention in a sentence of `length` words.

    `owner` names the mention in the message.
    """
    whole = isinstance(positions, list) and set(map(type, positions)) == {int}  # at least one; booleans do not count
    if not whole or positions != sorted(set(positions)) or positions[0] < 0 or positions[-1] >= length:
        raise DataError(
            f"{owner} is at {short(positions)}; positions are at least one, rising, from 0 to {length - 1} "
            f"(the sentence has {length} words)"
        )


def _first_mention(raw: dict[str, Any], key: str, length: int) -> list[int]:
    if key not in raw:
        raise DataError(f"it has no {key}")
    entity = raw[key]
    if not isinstance(entity, list) or len(entity) != 3:
        raise DataError(f"{key} is {short(entity)}, not [name, id, [[positions], ...]]")
    mentions = entity[2]
    if not isinstance(mentions, list) or not mentions or not isinstance(mentions[0], list):
        raise DataError(f"the mentions of {key} are {short(mentions)}, not [[positions], ...]")
    positions: list[int] = mentions[0]
    check_positions(positions, length, key)
    return positions


def is_relation(found: object) -> bool:
    """Return True if `found` is a relation made by `InstanceReader`."""
    return isinstance(found, dict) and "tokens" in found


def problem_of(found: object) -> str:
    """Describe the problem of an object that is not a relation."""
    if isinstance(found, BadInstance):
        return found.words
    return "it has no tokens" if isinstance(found, dict) else f"{short(found)} is no instance"


def read_relations(path: Path, *, uncased: bool = False) -> dict[str, list[Relation]]:
    """Read a file of instances by relation; one DataError lists malformed ones by relation and index."""
    content = read_json(path, InstanceReader(uncased=uncased))
    if not isinstance(content, dict) or is_relation(content) or not content:
        found = "an empty object" if content == {} else "a list" if isinstance(content, list) else "something else"
        raise DataError(f"{path}: {found}, where {{relation: [instances]}} should be; put each under its relation")
    check_instances(path, content)
    return content


def check_instances(path: Path, content: Mapping[str, Any] | Mapping[None, Any]) -> None:
    """Raise a DataError unless every value is a list of instances; keys are relations, or None."""
    problems = []
    for relation, instances in content.items():
        name = "" if relation is None else f"{relation!r}"
        if not isinstance(instances, list) or not instances:
            problems.append(f"{name}{': ' * bool(name)}{short(instances)} is not a list of at least one instance")
            continue
        for index, found in enumerate(instances):
            if not is_relation(found):
                problems.append(f"{name}{', ' * bool(name)}index {index}: {problem_of(found)}")
    refuse(path, problems)


def read_instances(path: Path, *, uncased: bool = False) -> list[Relation]:
    """Read a list of instances without relations; one DataError lists malformed ones by index."""
    content = read_json(path, InstanceReader(uncased=uncased))
    check_instances(path, {None: content})
    return list(content)


def refuse(path: Path, problems: list[str]) -> None:
    """Raise one DataError for all problems of a file, showing the first few; do nothing if there are none."""
    if problems:
        shown = "\n".join(f"- {problem}" for problem in problems[:_NAMED])
        more = f"\n- and {len(problems) - _NAMED} more" if len(problems) > _NAMED else ""
        raise DataError(
            f"{path}: {len(problems)} problem(s); fix or remove what is named here (an index counts from 0; an "
            f"instance is {INSTANCE})\n{shown}{more}"
        )


def relation_pool(spec: str, split: str, relations: dict[str, list[Relation]]) -> Pool:
    """Return a pool with one class for each relation, in the given order."""
    items = [instance for instances in relations.values() for instance in instances]
    labels = np.repeat(np.arange(len(relations)), [len(instances) for instances in relations.values()])
    return Pool(items, labels, tuple(relations), name=spec, split=split)


BLANK = "[BLANK]"
SPELLINGS = 4  # item 4 i + s is sentence i with its head blank (s = 1, 3) and its tail blank (s = 2, 3)


def with_blanks(pool: Pool) -> Pool:
    """Return a pool with the four spellings of every sentence (`SPELLINGS`); labels are repeated."""
    check_relations(pool, "pairs")
    items = [spelling for item in pool.items for spelling in spellings(item)]
    return Pool(items, np.repeat(pool.labels, SPELLINGS), pool.class_names, name=pool.name, split=pool.split)


def spellings(item: Relation) -> list[Relation]:
    """Return a sentence with neither, either and both entities blanked; unchanged copies if mentions overlap."""
    if mentions_overlap(item):
        return [item] * SPELLINGS
    return [item, _blanked(item, "head"), _blanked(item, "tail"), _blanked(_blanked(item, "head"), "tail")]


def _blanked(item: Relation, entity: str) -> Relation:
    """Replace the words of an entity by one blank, and shift the positions after it."""
    places = {"head": item["head"], "tail": item["tail"]}
    start, end = places[entity][0], places[entity][-1] + 1
    tokens = [*item["tokens"][:start], BLANK, *item["tokens"][end:]]
    moved = {key: [p - (end - start - 1) if p >= end else p for p in own] for key, own in places.items()}
    return cast(Relation, {**item, "tokens": tokens, **moved, entity: [start]})
