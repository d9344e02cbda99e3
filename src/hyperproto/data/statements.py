"""`statements`: sentences with two linked entities, with or without relations, for pre-training."""

from collections import Counter
from pathlib import Path
from typing import Any
from warnings import warn

import numpy as np

from hyperproto.data.fewrel import is_yes, sentences_in
from hyperproto.data.formats.relations import (
    InstanceReader,
    Relation,
    check_instances,
    is_relation,
    mentions_overlap,
    sentence_key,
    uncased,
)
from hyperproto.data.pool import OUTSIDE, Pool, Progress
from hyperproto.data.specs import data_folder, parse_argument
from hyperproto.errors import ConfigError, DataError
from hyperproto.files import parse_json, read_json, read_utf8, split_lines

SUMMARY = (
    "sentences with two linked entities, for pre-training: "
    "statements:FILE[,without=PATH][,uncased=yes] (a list, lines of JSON, or by relation)"
)
OPTIONS = {"uncased": "no", "without": ""}
MOST = 100  # statements of one entity that are used


class Statement(Relation):
    """A relation instance whose head and tail have ids: an entity has the same id in every sentence."""

    head_id: str
    tail_id: str


class StatementReader(InstanceReader):
    """Reader of instances with entity ids; an entity without an id gets its uncased mention as id."""

    def _relation(self, raw: dict[str, Any]) -> Statement:
        found = super()._relation(raw)
        head, tail = (
            _identity(raw, key, [found["tokens"][place] for place in places])
            for key, places in (("h", found["head"]), ("t", found["tail"]))
        )
        return {**found, "head_id": head, "tail_id": tail}


def _identity(raw: dict[str, Any], key: str, mention: list[str]) -> str:
    own = raw[key][1]
    if own is not None and not isinstance(own, str):
        raise DataError(f"the id of {key} is {own!r:.50}, not a string or null")
    if own:
        own.encode()  # raises an error for half a character (a lone surrogate)
        return own
    return " ".join(map(uncased, mention))


def splits(argument: str = "") -> tuple[str, ...]:
    """Return the only split, `train`."""
    return ("train",)


def load(split: str, argument: str = "", progress: Progress | None = None) -> Pool:
    """Read the statements of a file; they have labels if the file groups them by relation.

    A .jsonl file holds one statement a line, any other file one JSON value: a list, or lists by relation. A statement
    is left out if head and tail are the same entity or their mentions overlap, if its sentence occurs in `without` (a
    file, or the files below a folder; `without=fewrel` is that data set), or if one of its entities has had 100
    statements before. One warning counts these. `uncased=yes` lower-cases words and strips accents.
    """
    given, options = parse_argument("statements", argument, OPTIONS)
    spec = f"statements:{argument}"
    if not given:
        raise ConfigError("statements: no file named; write statements:FILE")
    path = Path(given).expanduser()
    relations = read_statements(path, uncased=is_yes("statements", "uncased", options["uncased"]))
    known: set[str] = set()
    if options["without"]:
        place = data_folder("fewrel") if options["without"] == "fewrel" else Path(options["without"]).expanduser()
        known = sentences_in(place, besides=path)
    kept, why = _kept(relations, known, options["without"])
    total, left = sum(map(len, relations.values())), sum(map(len, kept.values()))
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in why.items())
    if not left:
        raise DataError(f"{spec}: none of its {total:,} statements can be used ({reasons}); name another corpus")
    if left < total:
        warn(f"{spec}: {total - left:,} of {total:,} statements are left out: {reasons}", stacklevel=2)
    names = tuple(name for name in kept if name is not None)
    labels = [np.full(len(found), OUTSIDE if name is None else names.index(name)) for name, found in kept.items()]
    items = [statement for found in kept.values() for statement in found]
    return Pool(items, np.concatenate(labels), names, name=spec, split=split)


def read_statements(path: Path, *, uncased: bool = False) -> dict[str | None, list[Statement]]:
    """Read the statements of a file by relation; the key is None if the file has no relations."""
    reader = StatementReader(uncased=uncased)
    content: dict[Any, Any]
    if path.suffix == ".jsonl":
        lines = enumerate(split_lines(read_utf8(path, missing="check its name and folder")), start=1)
        content = {None: [parse_json(line, f"{path}, line {n}", reader) for n, line in lines if line.strip()]}
    else:
        found = read_json(path, reader)
        content = found if isinstance(found, dict) and not is_relation(found) else {None: found}
    check_instances(path, content or {None: content})
    return content


def _kept(
    relations: dict[str | None, list[Statement]], known: set[str], place: str
) -> tuple[dict[str | None, list[Statement]], Counter[str]]:
    """Return the usable statements, and the number of others by reason."""
    why: Counter[str] = Counter()
    seen: Counter[str] = Counter()  # statements of each entity
    kept: dict[str | None, list[Statement]] = {}
    for relation, statements in relations.items():
        for statement in statements:
            pair = statement["head_id"], statement["tail_id"]
            if pair[0] == pair[1]:
                why["of an entity with itself"] += 1
            elif mentions_overlap(statement):
                why["with overlapping mentions"] += 1
            elif known and sentence_key(statement["tokens"]) in known:
                why[f"that occur in {place}"] += 1
            elif max(seen[entity] for entity in pair) >= MOST:
                why[f"of an entity that is in {MOST} others"] += 1
            else:
                seen.update(pair)
                kept.setdefault(relation, []).append(statement)
    return kept, why
