"""Data specs `NAME:PATH,option=value,...`: folders, options, and a reproducible order for splits."""

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from hyperproto.errors import ConfigError, unknown_name
from hyperproto.files import cache_dir, is_there


def data_folder(name: str) -> Path:
    """Return the default folder of a data set: below $HYPERPROTO_DATA if it is set, else in the cache folder."""
    if own := os.environ.get("HYPERPROTO_DATA"):
        return Path(own).expanduser() / name
    return cache_dir() / "data" / name


def parse_argument(name: str, argument: str, options: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Split `PATH,key=value,...` into the path and the options of the data set `name`.

    `options` holds the valid keys with their defaults. Options are read from the end until the rest is an existing
    path, because a path may itself contain commas and equals signs.
    """
    chosen: dict[str, str] = {}
    path = argument
    while not is_there(path):
        rest, _, last = path.rpartition(",")
        key, equals, value = last.partition("=")
        if not equals:
            break
        if key not in options:
            raise ConfigError(f"{name}:{argument}: {unknown_name('option', key, options)}")
        chosen.setdefault(key, value)
        path = rest
    return path, {**options, **chosen}


def whole_number(name: str, key: str, text: str, smallest: int, largest: int = 2**31 - 1) -> int:
    """Parse an option that is a whole number."""
    if not text.isdecimal() or len(text) > 20 or not smallest <= int(text) <= largest:
        raise ConfigError(f"{name}: {key}={text[:40]} is invalid; write a whole number from {smallest} to {largest}")
    return int(text)


def one_of(name: str, key: str, text: str, known: tuple[str, ...]) -> str:
    """Check an option that takes one of a few words."""
    if text not in known:
        raise ConfigError(f"{name}: {unknown_name(key, text, known)}")
    return text


def hash_order(names: Iterable[str], seed: int) -> list[str]:
    """Sort names by a hash of name and seed: a pseudo-random order that is the same on every machine.

    Adding a name does not change the relative order of the others.
    """
    return sorted(names, key=lambda name: hashlib.sha256(f"{seed}/{name}".encode()).digest())
