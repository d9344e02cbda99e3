"""JSON files of results, one line for each row."""

import json
from pathlib import Path
from typing import Any

from hyperproto.files import atomic_write


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
