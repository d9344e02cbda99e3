"""Texts of classes: the label in words, the description of a relation, or an entry of a JSON file."""

import re
from pathlib import Path

from hyperproto.data.fewrel import relation_texts
from hyperproto.data.miniimagenet import NAMES
from hyperproto.data.pool import Pool
from hyperproto.errors import ConfigError, DataError
from hyperproto.files import read_json

SOURCES = ("labels", "descriptions")
_DIRECTIONS = {"(e1,e2)": " from first to second", "(e2,e1)": " from second to first"}
_RELATION_ID = re.compile(r"P\d+")
_WORDNET_ID = re.compile(r"n\d{8}")
_NUMBERED = re.compile(r"\d{3}\.(\w+)")  # class folders of CUB
_NAMELESS = ("glyphs", "omniglot")  # data sets of characters: their labels have no meaning as text


def label_text(label: str) -> str:
    """Return a label in words: `Cause-Effect(e1,e2)` is "Cause Effect from first to second".

    The WordNet id `n01532829` is "house finch" (only classes of miniImageNet have a text, others ""), and
    `004.Groove_billed_Ani` is "groove billed ani". A number has no text: "".
    """
    if _WORDNET_ID.fullmatch(label):
        return NAMES.get(label, "")
    if label.isdecimal():
        return ""
    if numbered := _NUMBERED.fullmatch(label):
        label = numbered[1].lower()
    for mark, words in _DIRECTIONS.items():
        label = label.replace(mark, words)
    return " ".join(label.replace("_", " ").replace("-", " ").split())


def check_source(source: str, spec: str) -> None:
    """Raise a ConfigError if `source` is "labels" and the labels of the data set are not words."""
    name = spec.partition(":")[0]
    if source == "labels" and name in _NAMELESS:
        raise ConfigError(
            f"names: the classes of {name} are characters, and their labels are not words; choose "
            "other data or, as source, a file {class: text}"
        )


def known_texts(source: str, pool: Pool) -> dict[str, str]:
    """Return all texts of a source by class, including classes that are not in the pool; {} for "labels".

    "descriptions" reads Wikidata's relations from the folder of the pool's files, or from that of `fewrel`. Any other
    source is the path of a JSON file `{class: text}`.
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
    """Return the text of each class of a pool, or None for a class without text.

    With "descriptions", a class without one falls back to its label, unless the label is a Wikidata id.
    """
    check_source(source, pool.name)
    texts = tuple(_text(source, label, known) for label in pool.class_names)
    if not any(texts):
        fetch = "fetch descriptions with hyperproto data get fewrel, or " if source == "descriptions" else ""
        raise DataError(
            f"names: the source {source!r} has no text for any of the {len(texts)} classes of {pool}; "
            f"{fetch}name a file {{class: text}}"
        )
    return texts


def _text(source: str, label: str, known: dict[str, str]) -> str | None:
    if label in known:
        return known[label]
    is_id = source == "descriptions" and _RELATION_ID.fullmatch(label)
    return None if source not in SOURCES or is_id else label_text(label) or None
