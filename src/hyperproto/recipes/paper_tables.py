"""Tables of the paper in recipe files: columns (`[table]`) and published rows (`[[published]]`)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from hyperproto.errors import ConfigError, unknown_name
from hyperproto.recipes.recipe_files import builtin_recipes, read_rows, read_toml
from hyperproto.recipes.schema import Paper, PositiveInt, Section, SomeShot, found_problems, problems_in_words

# A mean and the number after its ±, in percent, as printed; or a mean alone.
Number = Annotated[list[float], Field(min_length=1, max_length=2)]


class Column(Section):
    """Entry of `table.columns`: the episodes of a column."""

    name: str
    data: str
    split: str = "test"
    way: PositiveInt
    shot: SomeShot
    query: PositiveInt | None = None  # None: the table's value


class Average(Section):
    """Entry of `table.averages`: the mean over some columns."""

    name: str
    columns: Annotated[list[str], Field(min_length=2)]


class Published(Section):
    """`[[published]]`: a row as printed in the paper."""

    method: str
    backbone: str
    numbers: dict[str, Number]  # by column
    precision: dict[str, Number] = Field(default_factory=dict)  # if the numbers are F1
    recall: dict[str, Number] = Field(default_factory=dict)
    note: str = ""

    def average(self, columns: Sequence[str]) -> float | None:
        """Return the mean of its numbers in some columns; None if one is missing."""
        if not all(name in self.numbers for name in columns):
            return None
        return sum(self.numbers[name][0] for name in columns) / len(columns)

    def printed(self, column: str, part: Literal["numbers", "precision", "recall"] = "numbers") -> str:
        """Return a number as printed in the paper; "" if there is none."""
        numbers: dict[str, list[float]] = getattr(self, part)
        return " ± ".join(f"{value:.2f}" for value in numbers.get(column, []))


class SmallRow(Section):
    """Recipe that reproduces a row at a small scale; other settings are those of the recipe's [paper]."""

    recipe: str  # NAME:ROW
    set: str = "default"  # name of a group of rows that can be requested together
    method: str | None = None
    backbone: str | None = None
    columns: list[str] | None = None
    note: str | None = None


class Small(Section):
    """`[table.small]`: rows that `hyperproto reproduce TABLE --budget small` trains, and additional columns."""

    rows: list[SmallRow] = Field(min_length=1)
    columns: list[Column] = Field(default_factory=list)  # in addition to the table's
    episodes: Annotated[int, Field(ge=2)] | None = None  # per column; None: the table's value
    notes: list[str] = Field(default_factory=list)


class PaperTable(Section):
    """`[table]` with its published rows, in the order of the paper."""

    name: str
    title: str
    notes: list[str] = Field(default_factory=list)
    metric: Literal["accuracy", "f1"] = "accuracy"  # f1 of exact spans, counted as in the Few-NERD toolkit
    episodes: int = Field(ge=2)  # an interval needs two
    query: PositiveInt
    seed: int = Field(default=0, ge=0, lt=2**63)
    columns: list[Column] = Field(min_length=1)
    averages: list[Average] = Field(default_factory=list)  # additional columns
    published: list[Published] = Field(min_length=1)
    small: Small | None = None

    def row_of(self, paper: Paper) -> Published:
        """Return the row that a recipe reproduces; raise a ConfigError if the table lacks the row or its columns."""
        rows = {(row.method, row.backbone): row for row in self.published}
        if (paper.method, paper.backbone) not in rows:
            known = [f"{method}, {backbone}" for method, backbone in rows]
            wrong = unknown_name("published row", f"{paper.method}, {paper.backbone}", known)
            raise ConfigError(f"{self.name}: {wrong}")
        for name in paper.columns or []:
            if name not in (column.name for column in self.columns):
                raise ConfigError(f"{self.name}: {unknown_name('column', name, [c.name for c in self.columns])}")
        return rows[paper.method, paper.backbone]

    def columns_of(self, paper: Paper) -> list[Column]:
        """Return the columns that a recipe reproduces."""
        return [column for column in self.columns if paper.columns is None or column.name in paper.columns]


def table_name(name: str) -> str:
    """Return the name of a table, which is that of its file."""
    return Path(name).stem if name.endswith(".toml") else name


def builtin_tables() -> list[str]:
    """Return the names of the tables in the package."""
    return [name for name in builtin_recipes() if "table" in read_toml(name)]


def read_table(name: str) -> PaperTable:
    """Read and check a table: a built-in name, or a path that ends in .toml."""
    if not name.endswith(".toml") and name not in builtin_recipes():
        raise ConfigError(f"{unknown_name('table', name, builtin_tables())}. Your own: a path that ends in .toml")
    raw = read_toml(name)
    if not isinstance(raw.get("table"), dict):
        raise ConfigError(f"{name} has no [table]; tables in the package: {', '.join(builtin_tables())}")
    try:
        own = {"published": raw["published"]} if "published" in raw else {}
        table = PaperTable.model_validate({**raw["table"], **own, "name": table_name(name)})
    except ValidationError as error:
        found = problems_in_words(error, PaperTable)
        problems = [words if words.startswith("published") else f"table.{words}" for words in found]
        raise found_problems(name, problems) from None
    problems = _contradictions(table)
    if problems:
        raise found_problems(name, problems)
    return table


def recipes_of(name: str) -> dict[str, Paper]:
    """Return all recipes that reproduce a row of a table, from the package and from the table's file."""
    files = [*builtin_recipes(), *([name] if name.endswith(".toml") else [])]
    found = {}
    for file in files:
        for row, raw in read_rows(file).items():
            paper = raw.get("paper")
            if isinstance(paper, dict) and paper.get("table") == table_name(name):
                try:
                    found[f"{file}:{row}"] = Paper.model_validate(paper)
                except ValidationError as error:
                    raise found_problems(f"{file}:{row}", problems_in_words(error, Paper)) from None
    return found


def _contradictions(table: PaperTable) -> list[str]:
    """Describe duplicate names, and numbers of columns that do not exist."""
    own = [column.name for column in table.columns]
    small = table.small.columns if table.small is not None else []
    names = own + [column.name for column in small] + [average.name for average in table.averages]
    rows = [(row.method, row.backbone) for row in table.published]
    problems = [
        f"table.columns: {name!r} twice; name each once" for name in sorted(set(names)) if names.count(name) > 1
    ]
    problems += [
        f"published: {', '.join(row)} twice; give each row once" for row in sorted(set(rows)) if rows.count(row) > 1
    ]
    problems += [
        f"table.averages {average.name!r}: {unknown_name('column', name, own)}"
        for average in table.averages
        for name in average.columns
        if name not in own
    ]
    return problems + [
        f"published {row.method}, {row.backbone}: {unknown_name('column', name, own)}"
        for row in table.published
        for name in {**row.numbers, **row.precision, **row.recall}
        if name not in own
    ]
