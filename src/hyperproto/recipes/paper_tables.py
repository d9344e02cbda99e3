"""Tables of the paper: what was measured (`[table]`) and every published row (`[[published]]`), beside the recipes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from hyperproto.errors import ConfigError, unknown_name
from hyperproto.recipes.recipe_files import builtin_recipes, read_rows, read_toml
from hyperproto.recipes.schema import Paper, PositiveInt, Section, SomeShot, found_problems, problems_in_words

# A mean and what follows its ±, in percent, as printed; a mean alone where nothing follows.
Number = Annotated[list[float], Field(min_length=1, max_length=2)]


class Column(Section):
    """One of `table.columns`: the episodes that its numbers are about."""

    name: str
    data: str
    split: str = "test"
    way: PositiveInt
    shot: SomeShot
    query: PositiveInt | None = None  # None: as the table says


class Average(Section):
    """One of `table.averages`: the mean over some columns."""

    name: str
    columns: Annotated[list[str], Field(min_length=2)]


class Published(Section):
    """`[[published]]`: a row as the paper prints it."""

    method: str
    backbone: str
    numbers: dict[str, Number]  # by column
    precision: dict[str, Number] = Field(default_factory=dict)  # where the numbers are F1
    recall: dict[str, Number] = Field(default_factory=dict)
    note: str = ""

    def average(self, columns: Sequence[str]) -> float | None:
        """The mean of its numbers in some columns; None where it has not all of them."""
        if not all(name in self.numbers for name in columns):
            return None
        return sum(self.numbers[name][0] for name in columns) / len(columns)

    def printed(self, column: str, part: Literal["numbers", "precision", "recall"] = "numbers") -> str:
        """One number as it stands in the paper; nothing where it has none."""
        numbers: dict[str, list[float]] = getattr(self, part)
        return " ± ".join(f"{value:.2f}" for value in numbers.get(column, []))


class SmallRow(Section):
    """A recipe that reproduces a row in small; what is not said here of the row is as the recipe's [paper] has it."""

    recipe: str  # NAME:ROW
    set: str = "default"  # of rows that are asked for together, by this name
    method: str | None = None
    backbone: str | None = None
    columns: list[str] | None = None
    note: str | None = None


class Small(Section):
    """`[table.small]`: what `hyperproto reproduce TABLE --budget small` trains, and what it measures besides."""

    rows: list[SmallRow] = Field(min_length=1)
    columns: list[Column] = Field(default_factory=list)  # beside the table's: other data
    episodes: Annotated[int, Field(ge=2)] | None = None  # a column; None: as many as the table says
    notes: list[str] = Field(default_factory=list)


class PaperTable(Section):
    """`[table]` with its published rows, in the paper's order."""

    name: str
    title: str
    notes: list[str] = Field(default_factory=list)
    metric: Literal["accuracy", "f1"] = "accuracy"  # f1: of exact spans, counted as the Few-NERD toolkit does
    episodes: int = Field(ge=2)  # one has no interval
    query: PositiveInt
    seed: int = Field(default=0, ge=0, lt=2**63)
    columns: list[Column] = Field(min_length=1)
    averages: list[Average] = Field(default_factory=list)  # columns that follow
    published: list[Published] = Field(min_length=1)
    small: Small | None = None

    def row_of(self, paper: Paper) -> Published:
        """Find the row that a recipe says it reproduces, and make sure that the table has the columns it names."""
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
        """Return the columns that a recipe is about."""
        return [column for column in self.columns if paper.columns is None or column.name in paper.columns]


def table_name(name: str) -> str:
    """Return the name that recipes know a table by: that of its file."""
    return Path(name).stem if name.endswith(".toml") else name


def builtin_tables() -> list[str]:
    """Name the tables that come with the package."""
    return [name for name in builtin_recipes() if "table" in read_toml(name)]


def read_table(name: str) -> PaperTable:
    """Read and check a table: a built-in name, or a path that ends in .toml."""
    if not name.endswith(".toml") and name not in builtin_recipes():
        raise ConfigError(f"{unknown_name('table', name, builtin_tables())}. Your own: a path that ends in .toml")
    raw = read_toml(name)
    if not isinstance(raw.get("table"), dict):
        raise ConfigError(f"{name} has no [table]. Those that come with the package: {', '.join(builtin_tables())}")
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
    """Name every recipe that reproduces a row of a table: those of the package, and those of the table's own file."""
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
    """Find names that are given twice, and numbers of columns that there are not."""
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
