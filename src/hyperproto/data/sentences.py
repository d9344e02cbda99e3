"""Sentences with a label for each word: what named entities are found in."""

from hyperproto.data.pool import Pool
from hyperproto.data.relations import item_kind
from hyperproto.errors import DataError


def check_sentences(pool: Pool, reader: str) -> None:
    """Refuse a pool of anything else; `reader` is the encoder that asks."""
    first = pool.items[0] if len(pool.items) else None
    if pool.offsets is None or not isinstance(first, list):
        raise DataError(
            f"{pool}: {reader} reads sentences with a label for each word, but the items are {item_kind(first)}"
        )
