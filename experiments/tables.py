"""What an experiment found, as tables (a row a method, a column a kind of shots) and as JSON."""

import json
from typing import Any

from rich.console import Console
from rich.table import Table

HIDDEN = ("fit_seconds", "predict_seconds")  # in the JSON file only
PLAIN = ("log_loss", "set_size")  # no shares


def show(found: dict[str, Any]) -> None:
    """Print a table for each measure."""
    rows = found["results"]
    measures = [name for name, value in rows[0].items() if isinstance(value, dict) and name not in HIDDEN]
    names = [name for name, value in rows[0].items() if not isinstance(value, dict) and name != "shots"]
    shots = list(dict.fromkeys(row["shots"] for row in rows))
    for measure in measures:
        table = Table(title=f"{measure}, mean ± 95 % interval over draws")
        for name in names:
            table.add_column(name)
        for shot in shots:
            table.add_column(f"shots {shot}", justify="right")
        for key in dict.fromkeys(tuple(row[name] for name in names) for row in rows):
            cells = {row["shots"]: row.get(measure) for row in rows if tuple(row[name] for name in names) == key}
            table.add_row(*key, *(_cell(cells.get(shot), measure) for shot in shots))
        Console(width=140).print(table)


def _cell(value: dict[str, Any] | None, measure: str) -> str:
    if value is None:
        return "-"
    scale, form = (1, ".3f") if measure in PLAIN else (100, ".2f")
    half = "" if value["ci95"] is None else f" ± {scale * value['ci95']:{form}}"
    return f"{scale * value['mean']:{form}}{half}"


def written(content: dict[str, Any]) -> str:
    """JSON with a line for each entry, and for each row of a list."""
    lines = []
    for name, value in content.items():
        text = json.dumps(value, allow_nan=False)
        if isinstance(value, list):
            text = "[\n  " + ",\n  ".join(json.dumps(row, allow_nan=False) for row in value) + "\n ]"
        lines.append(f" {json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(lines) + "\n}\n"
