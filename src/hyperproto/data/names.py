"""The text of a class: its label in words, the description of a relation, or what a file says of it."""

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
_NUMBERED = re.compile(r"\d{3}\.(\w+)")  # of CUB
_NAMELESS = ("glyphs", "omniglot")  # data sets of characters, whose labels say nothing


def label_text(label: str) -> str:
    """Return a label in words: `Cause-Effect(e1,e2)` is "Cause Effect from first to second".

    `n01532829`, a WordNet id, is "house finch" (of other classes than miniImageNet's nothing is known: ""), and
    `004.Groove_billed_Ani` is "groove billed ani". A number says nothing.
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
    """Refuse the labels of a data set whose classes have no names with a meaning."""
    name = spec.partition(":")[0]
    if source == "labels" and name in _NAMELESS:
        raise ConfigError(
            f"names: the classes of {name} are characters, and their labels no words with a meaning; choose "
            "other data or, as source, a file {class: text}"
        )


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
    check_source(source, pool.name)
    texts = tuple(_text(source, label, known) for label in pool.class_names)
    if not any(texts):
        fetch = "fetch descriptions with hyperproto data get fewrel, or " if source == "descriptions" else ""
        raise DataError(
            f"names: the source {source!r} has no text of any of the {len(texts)} classes of {pool}; "
            f"{fetch}name a file {{class: text}}"
        )
    return texts


def _text(source: str, label: str, known: dict[str, str]) -> str | None:
    if label in known:
        return known[label]
    says_nothing = source == "descriptions" and _RELATION_ID.fullmatch(label)
    return None if source not in SOURCES or says_nothing else label_text(label) or None
