"""The overlap filter of corpora for pre-training: no sentence of a test set, however it was cut into words."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from warnings import warn

from hyperproto.data.fewrel_files import read_json
from hyperproto.data.relations import Relation
from hyperproto.data.words import sentence_key
from hyperproto.errors import DataError

NAMES = "pid2name.json"  # lies beside FewRel's files and holds no sentences


def leave_out(spec: str, corpus: Path, relations: dict[str, list[Relation]], place: Path) -> dict[str, list[Relation]]:
    """Drop every instance of a corpus whose sentence occurs in a file, or in another file below a folder.

    A relation that loses all its instances disappears. How many were dropped is said in a warning.
    """
    known = sentences_in(place, besides=corpus)
    kept = {
        relation: [instance for instance in instances if sentence_key(instance["tokens"]) not in known]
        for relation, instances in relations.items()
    }
    kept = {relation: instances for relation, instances in kept.items() if instances}
    total, left = (sum(map(len, each.values())) for each in (relations, kept))
    if not left:
        raise DataError(f"{spec}: all {total:,} instances occur in {place}; name another corpus, or another place")
    if left < total:
        gone = len(relations) - len(kept)
        lost = f", and with them {gone} of {len(relations):,} relations" if gone else ""
        warn(f"{spec}: {total - left:,} of {total:,} instances occur in {place} and are left out{lost}", stacklevel=3)
    return kept


def sentences_in(place: Path, besides: Path | None = None) -> set[str]:
    """Return the keys of all sentences in a file, or in the .json files below a folder, but for one of these.

    Any of FewRel's formats will do: by relation, a list without relations, the tasks of a hidden test set.
    """
    files = [place]
    if place.is_dir():
        files = [file for file in sorted(place.rglob("*.json")) if file.name != NAMES]
        files = [file for file in files if besides is None or not file.samefile(besides)]
        if not files:
            raise DataError(f"{place}: no .json files to compare with; name a folder, or a file, of FewRel's format")
    keys: set[str] = set()
    for file in files:
        found = {sentence_key(map(str, tokens)) for tokens in _sentences(read_json(file))}
        if not found:
            raise DataError(f"{file}: no sentences (tokens) in it; name a folder without this file, or other files")
        keys |= found
    return keys


def _sentences(content: Any) -> Iterator[list[Any]]:
    """Find the words of every instance, at whatever depth."""
    if isinstance(content, dict) and isinstance(content.get("tokens"), list):
        yield content["tokens"]
    elif isinstance(content, dict | list):
        for part in content.values() if isinstance(content, dict) else content:
            yield from _sentences(part)
