"""What can go wrong, and how it is said: what was found, where, and what to do.

HyperProtoError
├── DataError      a file or an array is not what it should be
├── EpisodeError   the pool cannot give the episodes asked for
├── ConfigError    a recipe, an option or a name is wrong
│   ├── NotApplicableError   an attribute has no value under these settings (so an AttributeError too)
│   └── NonFiniteError   weights, vectors or scores are NaN or too large: settings or data (so a DataError too)
└── BusyError      another process is changing the same folder
"""

from collections.abc import Iterable
from difflib import get_close_matches

LONGEST = 4000  # characters of a message: what it quotes of a file may be long


class HyperProtoError(Exception):
    """A mistake that the user can mend; the command line prints it without a traceback."""

    def __str__(self) -> str:
        """The message; of a very long one the middle is left out."""
        text = super().__str__()
        half = LONGEST // 2
        return text if len(text) <= LONGEST else f"{text[:half]} ... {text[-half:]}"


class DataError(HyperProtoError):
    """A file or an array is not what it should be."""


class EpisodeError(HyperProtoError):
    """The pool cannot give the episodes asked for."""


class ConfigError(HyperProtoError):
    """A recipe, an option or a name is wrong."""


class NotApplicableError(ConfigError, AttributeError):
    """An attribute has no value under these settings; `hasattr` is False."""


class NonFiniteError(ConfigError, DataError):
    """Weights, vectors or scores are NaN or too large: a training went astray, or its data did."""


class BusyError(HyperProtoError):
    """Another process is changing the same folder."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> str:
    """Say that `name` is not a `kind`, with the nearest valid name and all of them."""
    names = sorted(known)
    near = get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return f"there is no {kind} {name!r}{hint} Known: {', '.join(names) or 'none'}"
