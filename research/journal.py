"""Append-only log that makes a long study resumable."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hyperproto.errors import ConfigError
from hyperproto.files import atomic_write, read_json

ENDING = ".part"  # of its name, after that of the file of results
Measured = dict[str, float]


class Journal:
    """Measured values by key, in a file beside the results, or in memory only if `results` is None.

    `facts` are all settings that the values depend on except those in the keys; a journal with other facts is refused.
    Changes of the code are not noticed: remove the journal after one. `known` are values of an earlier results file.
    """

    def __init__(
        self, results: Path | None, facts: Mapping[str, Any], known: Mapping[str, Measured] | None = None
    ) -> None:
        self.path = None if results is None else results.with_name(results.name + ENDING)
        self.facts = json.loads(json.dumps(dict(facts)))
        self.values: dict[str, Measured] = dict(known or {})
        if self.path is not None and self.path.exists():
            away = "remove it to begin anew"
            content = read_json(self.path, damaged=away)
            if not isinstance(content, dict) or content.get("facts") != self.facts:
                raise ConfigError(f"{self.path} is of a run with other settings; repeat its command, or {away}")
            self.values |= content["values"]

    def measured(self, key: str, measure: Callable[[], Measured]) -> Measured:
        """Return the values of `key`; measure and log them if they are missing."""
        if key not in self.values:
            self.values[key] = measure()
            if self.path is not None:
                with atomic_write(self.path) as file:
                    file.write(json.dumps({"facts": self.facts, "values": self.values}).encode())
        return self.values[key]

    def close(self) -> None:
        """Remove the journal, once the results are written."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)
