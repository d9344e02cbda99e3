"""Relations: a sentence with two marked entities, and files of FewRel's format, read and checked.

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
    """An instance: the words of a sentence, and which of them are the head and the tail of the relation."""

    tokens: list[str]
    head: list[int]  # positions of its words, one after another, at least one
    tail: list[int]


def mentions_overlap(item: Relation) -> bool:
    """Whether head and tail share a word, or one lies within the other."""
    head, tail = item["head"], item["tail"]
    return max(head[0], tail[0]) <= min(head[-1], tail[-1])


def check_relations(pool: Pool, reader: str) -> None:
    """Refuse a pool of anything else; `reader` is the encoder that asks."""
    first = pool.items[0] if len(pool.items) else None
    if not (isinstance(first, dict) and {"tokens", "head", "tail"} <= first.keys()):
        kind = item_kind(first)
        raise DataError(f"{pool}: {reader} reads sentences with a head and a tail, but the items are {kind}")


def item_kind(item: object) -> str:
    """Say in a word or two what an item is."""
    shape = getattr(item, "shape", None)
    words = {str: "texts", list: "lists of words", Relation: "sentences with two entities"}.get(type(item))
    return words or f"{type(item).__name__}" + ("" if shape is None else f" of shape {shape}")


_NO_LETTER_OR_DIGIT = re.compile(r"[\W_]+")  # accents too, once they stand by themselves


def uncased(word: str) -> str:
    """Lower-case a word and strip its accents; a word that is nothing but accents stays."""
    if word.isascii():
        return word.lower()
    letters = "".join(c for c in unicodedata.normalize("NFD", word.lower()) if not unicodedata.combining(c))
    return letters or word


def sentence_key(tokens: Iterable[str]) -> str:
    """Return the letters and digits of a sentence, without case and accents: the same however it was cut into words."""
    text = unicodedata.normalize("NFD", "".join(tokens).casefold())
    return _NO_LETTER_OR_DIGIT.sub("", text)


class Words(dict[str, str]):
    """Each different word once, as it is or uncased: a million sentences share the memory of their words."""

    def __init__(self, *, uncased: bool = False) -> None:
        super().__init__()
        self.uncased = uncased

    def __missing__(self, word: str) -> str:
        word.encode()  # half a character (a lone surrogate) stops here, not in the middle of a training
        self[word] = found = uncased(word) if self.uncased else word
        return found


INSTANCE = '{"tokens": [words], "h": [name, id, [[positions], ...]], "t": [name, id, [[positions], ...]]}'
_NAMED = 10  # problems that a message names


@dataclass(frozen=True)
class BadInstance:
    """What stands where an instance should."""

    words: str


class InstanceReader:
    """Turns instances into relations while a file is parsed: what else they hold is never kept in memory.

    Of the places where an entity is mentioned it takes the first, as the FewRel toolkit does.
    """

    def __init__(self, *, uncased: bool = False) -> None:
        self._words = Words(uncased=uncased)

    def __call__(self, raw: dict[str, Any]) -> Any:
        """Look at an object of the file: an instance, or anything else."""
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
    """Refuse what is not a list of at least one word; halves of characters are `Words`' business."""
    if not isinstance(tokens, list) or not tokens:
        raise DataError(f"tokens is {short(tokens)}, not a list of at least one word")
    if set(map(type, tokens)) != {str}:
        place = next(place for place, token in enumerate(tokens) if not isinstance(token, str))
        raise DataError(f"word {place} of tokens is {short(tokens[place])}, not a string")


def check_positions(positions: Any, length: int, owner: str) -> None:
    """Refuse what are not the positions of a mention in a sentence of `length` words; `owner` has the mention."""
    whole = isinstance(positions, list) and set(map(type, positions)) == {int}  # at least one, and true is none
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
    """Tell what `InstanceReader` made of an instance from what it left alone."""
    return isinstance(found, dict) and "tokens" in found


def problem_of(found: object) -> str:
    """Say what is wrong with what is no relation."""
    if isinstance(found, BadInstance):
        return found.words
    return "it has no tokens" if isinstance(found, dict) else f"{short(found)} is no instance"


def read_relations(path: Path, *, uncased: bool = False) -> dict[str, list[Relation]]:
    """Read the instances of every relation of a file; what is malformed comes in one error, by relation and index."""
    content = read_json(path, InstanceReader(uncased=uncased))
    if not isinstance(content, dict) or is_relation(content) or not content:
        found = "an empty object" if content == {} else "a list" if isinstance(content, list) else "something else"
        raise DataError(f"{path}: {found}, where {{relation: [instances]}} should be; put each under its relation")
    check_instances(path, content)
    return content


def check_instances(path: Path, content: Mapping[str, Any] | Mapping[None, Any]) -> None:
    """Refuse lists of instances, each under its relation or under None, that hold anything else."""
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
    """Read a file that is a list of instances without relations; what is malformed comes in one error, by index."""
    content = read_json(path, InstanceReader(uncased=uncased))
    check_instances(path, {None: content})
    return list(content)


def refuse(path: Path, problems: list[str]) -> None:
    """Raise one error for all that is wrong with a file, if anything is; it shows the first few."""
    if problems:
        shown = "\n".join(f"- {problem}" for problem in problems[:_NAMED])
        more = f"\n- and {len(problems) - _NAMED} more" if len(problems) > _NAMED else ""
        raise DataError(
            f"{path}: {len(problems)} problem(s); mend or remove what is named here (an index counts from 0; an "
            f"instance is {INSTANCE})\n{shown}{more}"
        )


def relation_pool(spec: str, split: str, relations: dict[str, list[Relation]]) -> Pool:
    """Make a pool of relations: one class each, in their order."""
    items = [instance for instances in relations.values() for instance in instances]
    labels = np.repeat(np.arange(len(relations)), [len(instances) for instances in relations.values()])
    return Pool(items, labels, tuple(relations), name=spec, split=split)


BLANK = "[BLANK]"
SPELLINGS = 4  # item 4 i + s is sentence i with its head blank (s = 1, 3) and its tail blank (s = 2, 3)


def with_blanks(pool: Pool) -> Pool:
    """Return a pool in which every sentence stands four times, once in each spelling; labels are repeated."""
    check_relations(pool, "pairs")
    items = [spelling for item in pool.items for spelling in spellings(item)]
    return Pool(items, np.repeat(pool.labels, SPELLINGS), pool.class_names, name=pool.name, split=pool.split)


def spellings(item: Relation) -> list[Relation]:
    """Spell a sentence in four ways; one whose mentions overlap has no blanks, and is four times the same."""
    if mentions_overlap(item):
        return [item] * SPELLINGS
    return [item, _blanked(item, "head"), _blanked(item, "tail"), _blanked(_blanked(item, "head"), "tail")]


def _blanked(item: Relation, entity: str) -> Relation:
    """Replace the words of an entity by one blank; what stands behind them moves forward."""
    places = {"head": item["head"], "tail": item["tail"]}
    start, end = places[entity][0], places[entity][-1] + 1
    tokens = [*item["tokens"][:start], BLANK, *item["tokens"][end:]]
    moved = {key: [p - (end - start - 1) if p >= end else p for p in own] for key, own in places.items()}
    return cast(Relation, {**item, "tokens": tokens, **moved, entity: [start]})
