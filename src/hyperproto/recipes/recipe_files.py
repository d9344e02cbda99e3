"""Recipe files: TOML with a common part and optional rows `[[row]]` that change it."""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from hyperproto.errors import ConfigError, unknown_name
from hyperproto.files import DEEPEST, is_deep, read_utf8
from hyperproto.recipes.schema import DRAWS

TABLE_KEYS = ("table", "published")  # keys that describe a table of the paper, not a recipe


def builtin_recipes() -> list[str]:
    """Return the names of the recipes in the package."""
    files = resources.files("hyperproto.recipes").iterdir()
    return sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))


def read_text(name: str) -> str:
    """Return the text of a recipe file: a built-in name, or a path that ends in .toml."""
    if name.endswith(".toml"):
        return read_utf8(name, error=ConfigError)
    if name not in builtin_recipes():
        raise ConfigError(f"{unknown_name('recipe', name, builtin_recipes())}. Your own: a path that ends in .toml")
    return (resources.files("hyperproto.recipes") / f"{name}.toml").read_text(encoding="utf-8")


def read_recipe(name: str, overrides: list[str] | None = None) -> dict[str, Any]:
    """Read `NAME` or `NAME:ROW` and apply overrides `section.key=value`, without validation.

    `encoder.name=NEW` changes the name and keeps the section's other options, which the new encoder must accept;
    `encoder={name="NEW"}` replaces the whole section.
    """
    file_name, _, row_name = name.partition(":")
    rows = read_rows(file_name)
    if not rows:
        raise ConfigError(f"{file_name} has a [table], but no recipe; give it a [[row]], or name another recipe")
    if not row_name and len(rows) > 1:
        raise ConfigError(f"{file_name} has {len(rows)} rows; name one: {', '.join(f'{file_name}:{r}' for r in rows)}")
    if row_name and row_name not in rows:
        raise ConfigError(f"{file_name}: {unknown_name('row', row_name, rows)}")
    raw = rows[row_name or next(iter(rows))]
    for override in overrides or []:
        raw = _overridden(raw, *_parsed(override))
    return raw


def run_name(recipe: str) -> str:
    """Return the folder name of a recipe's run: NAME or NAME-ROW, without the path of a file."""
    file_name, _, row = recipe.partition(":")
    return "-".join([Path(file_name).stem if file_name.endswith(".toml") else file_name, *([row] if row else [])])


def read_rows(file_name: str) -> dict[str, dict[str, Any]]:
    """Read every row of a recipe file; a file without rows is one row of its own name, unless it has only a table."""
    common = read_toml(file_name)
    rows = common.pop("row", [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ConfigError(f"{file_name}: row is not a list of tables; begin each row with [[row]]")
    is_table = [common.pop(key, None) is not None for key in TABLE_KEYS]
    stem = Path(file_name).stem
    if not rows:
        return {} if any(is_table) and not common else {stem: {"name": stem, **common}}
    unnamed = [number for number, row in enumerate(rows, start=1) if not isinstance(row.get("name"), str)]
    if unnamed:
        raise ConfigError(f'{file_name}: row {unnamed[0]} has no name; give it name = "..."')
    names = [row["name"] for row in rows]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(f"{file_name}: two rows are called {twice!r}; rename one")
    return {row["name"]: _merged(_without_other_draws(common, row), row) for row in rows}


def _without_other_draws(common: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """Drop the file's [episodes] if a row has [batches] or [pairs]."""
    return {key: value for key, value in common.items() if key not in DRAWS or key in row or not {*row} & {*DRAWS}}


def read_toml(file_name: str) -> dict[str, Any]:
    """Read a recipe file without validation."""
    try:
        return _parse(read_text(file_name), file_name)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file_name}: not TOML ({error})") from None


def _parse(text: str, where: str) -> dict[str, Any]:
    """Parse TOML; `where` names the source in errors."""
    try:
        # tomllib needs memory quadratic in the number of keys of a.a.a.a ...
        if any(part.count(".") > DEEPEST for part in re.split(r"[=,{}\n]", text)):
            raise RecursionError
        content = tomllib.loads(text)
        if is_deep(content):
            raise RecursionError
    except tomllib.TOMLDecodeError:
        raise
    except RecursionError:
        raise ConfigError(f"{where}: tables or lists nested more than {DEEPEST} deep; flatten them") from None
    except ValueError:  # Python's limit
        raise ConfigError(f"{where}: a whole number of thousands of digits; write a smaller one") from None
    return content


def _merged(base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """Merge `change` into `base`, table by table; a table with another `name` replaces the old one."""
    merged = dict(base)
    for key, value in change.items():
        old = merged.get(key)
        same_thing = isinstance(value, dict) and isinstance(old, dict) and value.get("name") in (None, old.get("name"))
        merged[key] = _merged(old, value) if same_thing and old is not None else value
    return merged


def parse_values(overrides: list[str]) -> dict[str, Any]:
    """Parse `key=value` settings into a nested table; a value that is not TOML is a string."""
    table: dict[str, Any] = {}
    for override in overrides:
        table = _overridden(table, *_parsed(override))
    return table


def cost_minutes(words: str) -> int | None:
    """Return the CPU minutes stated in a recipe's `cost`: the sum over stages, the upper end of a range.

    Return None if it is for a GPU or states no time.
    """
    stages = re.findall(r"(?:\d+ to )?(\d+) minutes?", words.replace("a minute", "1 minute"))
    return None if "GPU" in words or not stages else sum(map(int, stages))


def toml_value(value: Any) -> str:
    """Return a value as TOML, as written after `section.key=`."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml_value(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def override_texts(overrides: Mapping[str, Any] | Sequence[str] | None) -> list[str]:
    """Return settings in the form of the command line: `KEY=VALUE` with a TOML value."""
    if isinstance(overrides, Mapping):
        return [f"{key}={toml_value(value)}" for key, value in overrides.items()]
    return list(overrides or ())


def _parsed(override: str) -> tuple[list[str], Any]:
    path, equals, text = override.partition("=")
    if not equals or not path.strip():
        raise ConfigError(f"{override!r}: write section.key=value, for example training.steps=500")
    keys = path.strip().split(".")
    if len(keys) > DEEPEST:
        raise ConfigError(f"{override[:40]!r} ...: {len(keys)} nested keys; a recipe has no section that deep")
    try:
        value = _parse(f"value = {text}", override if len(override) < 80 else f"{override[:80]} ...")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    return keys, value


def _overridden(table: dict[str, Any], path: Sequence[str], value: Any) -> dict[str, Any]:
    """Return a copy of a nested table with one value replaced."""
    key, *rest = path
    old = table.get(key)
    if rest:
        return {**table, key: _overridden(old if isinstance(old, dict) else {}, rest, value)}
    return {**table, key: value}
