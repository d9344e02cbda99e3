"""A sentence in which two things are marked: what relation extraction classifies."""

from typing import TypedDict


class Relation(TypedDict):
    """An instance: the words of a sentence, and which of them are the head and the tail of the relation."""

    tokens: list[str]
    head: list[int]  # positions of its words, one after another, at least one
    tail: list[int]
