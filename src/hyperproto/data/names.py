"""The text of a class: its label in words, the description of a relation, or what a file says of it."""

import re
from pathlib import Path

from hyperproto.data.fewrel import relation_texts
from hyperproto.data.pool import Pool
from hyperproto.errors import DataError
from hyperproto.files import read_json

SOURCES = ("labels", "descriptions")
_DIRECTIONS = {"(e1,e2)": " from first to second", "(e2,e1)": " from second to first"}
_RELATION_ID = re.compile(r"P\d+")


def label_text(label: str) -> str:
    """Return a label in words: `Cause-Effect(e1,e2)` is "Cause Effect from first to second"."""
    for mark, words in _DIRECTIONS.items():
        label = label.replace(mark, words)
    return " ".join(label.replace("_", " ").replace("-", " ").split())


def known_texts(source: str, pool: Pool) -> dict[str, str]:
    """Return every text that a source has, by class, whether the pool has the class or not; of "labels", none.

    "descriptions" are those of Wikidata's relations beside the pool's files, or in the folder of `fewrel`; another
    source is a file, `{class: text}`.
    """
    if source == "labels":
        return {}
    if source == "descriptions":
        return relation_texts(pool.name)
    content = read_json(Path(source).expanduser())
    if not isinstance(content, dict) or not all(isinstance(text, str) for text in content.values()):
        raise DataError(f"{source}: not {{class: text}}; names of classes are a JSON object of strings")
    return {name: text for name, text in content.items() if text.strip()}


def class_texts(source: str, pool: Pool, known: dict[str, str]) -> tuple[str | None, ...]:
    """Return the text of each class of a pool, None where the source has none.

    A class without a description is called by its label, unless that is an id of Wikidata, which says nothing.
    """
    texts = tuple(_text(source, label, known) for label in pool.class_names)
    if not any(texts):
        raise DataError(
            f"names: the source {source!r} has no text of any of the {len(texts)} classes of {pool}; fetch "
            "descriptions with hyperproto data get fewrel, or name a file {class: text}"
        )
    return texts


def _text(source: str, label: str, known: dict[str, str]) -> str | None:
    if label in known:
        return known[label]
    says_nothing = source == "descriptions" and _RELATION_ID.fullmatch(label)
    return None if source not in SOURCES or says_nothing else label_text(label) or None
