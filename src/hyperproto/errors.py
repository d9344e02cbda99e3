"""Exceptions. A message says what was found, where, and what to do.

HyperProtoError
├── DataError      a file or an array is malformed
├── EpisodeError   the pool cannot provide the requested episodes
├── ConfigError    a recipe, an option or a name is wrong
│   ├── NotApplicableError   an attribute has no value under these settings (so an AttributeError too)
│   └── NonFiniteError   weights, vectors or scores are NaN or infinite (so a DataError too)
└── BusyError      another process is changing the same folder
"""

from collections.abc import Iterable
from difflib import get_close_matches

LONGEST = 4000  # characters of a message, which may quote a file


class HyperProtoError(Exception):
    """Error that the user can fix; the command line prints it without a traceback."""

    def __str__(self) -> str:
        """Return the message; the middle of a very long one is left out."""
        text = super().__str__()
        half = LONGEST // 2
        return text if len(text) <= LONGEST else f"{text[:half]} ... {text[-half:]}"


class DataError(HyperProtoError):
    """Malformed file or array."""


class EpisodeError(HyperProtoError):
    """Episodes that a pool cannot provide."""


class ConfigError(HyperProtoError):
    """Wrong recipe, option or name."""


class NotApplicableError(ConfigError, AttributeError):
    """Attribute that has no value under the current settings, so that `hasattr` is False."""


class NonFiniteError(ConfigError, DataError):
    """Weights, vectors or scores that are NaN or infinite: training diverged, or its data are wrong."""


class BusyError(HyperProtoError):
    """Folder that another process is changing."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> str:
    """Return the message that `name` is no known `kind`, with the closest known name and the list of all."""
    names = sorted(known)
    near = get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return f"there is no {kind} {name!r}{hint} Known: {', '.join(names) or 'none'}"
