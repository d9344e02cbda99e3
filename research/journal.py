"""What a long study has measured so far, so that one that was killed goes on where it was."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hyperproto.errors import ConfigError
from hyperproto.files import atomic_write, read_json

ENDING = ".part"  # of its name, after that of the file of results
Measured = dict[str, float]


class Journal:
    """Measured values by key, in a file beside the results; without results to write it only remembers.

    `facts` are all settings that values depend on, but for what is in their keys: a journal of others is refused. It
    cannot know of changes in the code: remove it after one. `known` are values of an earlier file of results.
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
        """What was measured for `key`, now or before."""
        if key not in self.values:
            self.values[key] = measure()
            if self.path is not None:
                with atomic_write(self.path) as file:
                    file.write(json.dumps({"facts": self.facts, "values": self.values}).encode())
        return self.values[key]

    def close(self) -> None:
        """The results are written: forget the file."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)
