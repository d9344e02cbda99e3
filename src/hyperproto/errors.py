"""What can go wrong, and how it is said: what was found, where, and what to do.

HyperProtoError
├── DataError      a file or an array is not what it should be
├── EpisodeError   the pool cannot give the episodes asked for
├── ConfigError    a recipe, an option or a name is wrong
│   └── NonFiniteError   weights, vectors or scores are NaN or infinite
└── BusyError      another process is changing the same folder
"""

from collections.abc import Iterable
from difflib import get_close_matches


class HyperProtoError(Exception):
    """A mistake that the user can mend; the command line prints it without a traceback."""


class DataError(HyperProtoError):
    """A file or an array is not what it should be."""


class EpisodeError(HyperProtoError):
    """The pool cannot give the episodes asked for."""


class ConfigError(HyperProtoError):
    """A recipe, an option or a name is wrong."""


class NonFiniteError(ConfigError):
    """Weights, vectors or scores are NaN or infinite: a training went astray, or numbers are too large."""


class BusyError(HyperProtoError):
    """Another process is changing the same folder."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> str:
    """Say that `name` is not a `kind`, with the nearest valid name and all of them."""
    names = sorted(known)
    near = get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return f"there is no {kind} {name!r}{hint} Known: {', '.join(names) or 'none'}"
