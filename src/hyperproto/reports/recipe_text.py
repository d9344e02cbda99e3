"""A recipe for the eye: what it is, costs and should reach, then its settings; and all of it TOML that trains."""

import json
from collections.abc import Sequence
from typing import Any

from hyperproto.recipes import Paper, Recipe, builtin_tables, read_table, table_name

HEAD = ("name", "description", "cost", "expected")


def recipe_text(spec: str, recipe: Recipe) -> str:
    """Write a recipe out, complete; saved as a .toml file it is a recipe of one's own."""
    published = [] if recipe.paper is None else [f"# {line}" for line in published_words(spec, recipe.paper)]
    return "\n".join([f"# hyperproto train {spec}", *settings_lines(recipe, published)])


def settings_lines(recipe: Recipe, after_head: Sequence[str] = ()) -> list[str]:
    """Write every setting of a recipe as lines of TOML; `after_head` stands below its name, cost and description."""
    content = {key: value for key, value in recipe.model_dump(mode="json").items() if value is not None}
    lines = [*(_line(key, content.pop(key)) for key in HEAD), *after_head]
    plain = {key: value for key, value in content.items() if not isinstance(value, dict)}
    lines += ["", *(_line(key, value) for key, value in plain.items())]
    for key, value in content.items():
        if key not in plain:
            lines += _section(key, value)
    return lines


def published_words(spec: str, paper: Paper) -> list[str]:
    """Say which published row a recipe reproduces, and its numbers where the table is at hand."""
    row = f"published, {paper.table}, {paper.method}, {paper.backbone}"
    own_file = spec.partition(":")[0]
    if paper.table != table_name(own_file) and paper.table not in builtin_tables():
        return [f"{row} (no table of the package; its file is not at hand)"]
    table = read_table(own_file if paper.table == table_name(own_file) else paper.table)
    published = table.row_of(paper)
    numbers = [
        f"{published.printed(c.name)} ({c.name})" for c in table.columns_of(paper) if c.name in published.numbers
    ]
    notes = [note for note in (published.note, paper.note) if note]
    return [f"{row}: {', '.join(numbers)}", *notes]


def _section(name: str, content: dict[str, Any]) -> list[str]:
    """A table of TOML; one that holds nothing but tables is written as those."""
    content = {key: value for key, value in content.items() if value is not None}
    if content and all(isinstance(value, dict) for value in content.values()):
        return [line for key, value in content.items() for line in _section(f"{name}.{key}", value)]
    return ["", f"[{name}]", *(_line(key, value) for key, value in content.items())]


def _line(key: str, value: Any) -> str:
    return f"{key} = {json.dumps(value, ensure_ascii=False)}"  # of what a recipe holds, JSON and TOML write all alike
