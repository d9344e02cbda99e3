"""Data specs `NAME:PATH,option=value,...`: where the files lie, the options, and splits where none is published."""

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from hyperproto.errors import ConfigError, unknown_name
from hyperproto.files import cache_dir, is_there


def data_folder(name: str) -> Path:
    """Return the folder of a data set that no path was given for: below $HYPERPROTO_DATA, or in the cache folder."""
    if own := os.environ.get("HYPERPROTO_DATA"):
        return Path(own).expanduser() / name
    return cache_dir() / "data" / name


def parse_argument(name: str, argument: str, options: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Take `PATH,key=value,...` apart; `options` holds the keys that the data set `name` knows, with their defaults.

    Settings are read from the end until a path is left that exists: it may hold commas and equals signs of its own.
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
    """Read an option that is a whole number."""
    if not text.isdecimal() or len(text) > 20 or not smallest <= int(text) <= largest:
        raise ConfigError(f"{name}: {key}={text[:40]} will not do; write a whole number from {smallest} to {largest}")
    return int(text)


def one_of(name: str, key: str, text: str, known: tuple[str, ...]) -> str:
    """Read an option that is one of a few words."""
    if text not in known:
        raise ConfigError(f"{name}: {unknown_name(key, text, known)}")
    return text


def hash_order(names: Iterable[str], seed: int) -> list[str]:
    """Put names in an order that looks random, is the same everywhere, and changes little when a name is added."""
    return sorted(names, key=lambda name: hashlib.sha256(f"{seed}/{name}".encode()).digest())
