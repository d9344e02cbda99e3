"""Dealing classes out to splits, where nobody has published which belongs where."""

import hashlib
from collections.abc import Iterable


def by_hash(names: Iterable[str], seed: int) -> list[str]:
    """Put names in an order that looks random, is the same everywhere, and changes little when a name is added."""
    return sorted(names, key=lambda name: hashlib.sha256(f"{seed}/{name}".encode()).digest())
