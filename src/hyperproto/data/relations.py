"""A sentence in which two things are marked: what relation extraction classifies."""

from typing import TypedDict

from hyperproto.data.pool import Pool
from hyperproto.errors import DataError


class Relation(TypedDict):
    """An instance: the words of a sentence, and which of them are the head and the tail of the relation."""

    tokens: list[str]
    head: list[int]  # positions of its words, one after another, at least one
    tail: list[int]


def check_relations(pool: Pool, reader: str) -> None:
    """Refuse a pool of anything else; `reader` is the encoder that asks."""
    first = pool.items[0] if len(pool.items) else None
    if not (isinstance(first, dict) and {"tokens", "head", "tail"} <= first.keys()):
        kind = item_kind(first)
        raise DataError(f"{pool}: {reader} reads sentences with a head and a tail, but the items are {kind}")


def item_kind(item: object) -> str:
    """Say in a word or two what an item is."""
    shape = getattr(item, "shape", None)
    return f"{type(item).__name__}" + ("" if shape is None else f" of shape {shape}")
