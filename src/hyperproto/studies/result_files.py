"""JSON files of results, one line for each row, with the command that made them."""

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hyperproto.files import atomic_write


def command_of(module: str, arguments: Sequence[str] | None) -> str:
    """Return the command line that runs a study; `arguments` None: those of this process."""
    given = sys.argv[1:] if arguments is None else arguments
    return shlex.join(["python", "-m", f"hyperproto.studies.{module}", *given])


def write_results(path: Path, content: dict[str, Any]) -> None:
    """Write JSON with a line for each entry, and for each row of a list."""
    lines = []
    for name, value in content.items():
        text = json.dumps(value, allow_nan=False)
        if isinstance(value, list):
            text = "[\n  " + ",\n  ".join(json.dumps(row, allow_nan=False) for row in value) + "\n ]"
        lines.append(f" {json.dumps(name)}: {text}")
    with atomic_write(path) as file:
        file.write(("{\n" + ",\n".join(lines) + "\n}\n").encode())
