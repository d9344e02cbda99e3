"""Damaged copies of a file."""

from collections.abc import Iterator


def flipped(content: bytes, every: int, first: int = 0) -> Iterator[bytes]:
    """Flip one bit of every k-th byte, another bit each time; one copy for each."""
    for number, place in enumerate(range(first, len(content), every)):
        copy = bytearray(content)
        copy[place] ^= 1 << number % 8
        yield bytes(copy)
