"""A table of the paper from one command: plan the runs, train them, measure them in every column, write the table.

    rows of a budget x seeds -> Planned runs (grid.run_planned) -> scores in each run's folder -> TableReport -> files

Budgets: `small` is what [table.small] of the table's file lists, or else every CPU-sized recipe that names a row of the
table; `paper` is the recipes of the table's own file, for a GPU. A run is measured as the paper has it (eq. 3, or a
point) and with our Bayes fit; on ProtoNet's encoder the simple baselines are, too. Every step is kept on disk: a
command that was interrupted goes on.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from hyperproto.data import Pool, open_pool
from hyperproto.errors import ConfigError, unknown_name
from hyperproto.evaluation import Result
from hyperproto.files import atomic_write, lock
from hyperproto.paper.figure import Request, Results
from hyperproto.paper.figures import make_figures
from hyperproto.paper.jobs import checked_workers
from hyperproto.paper.report import draw_column, measure_run, read_scores, with_note, write_scores
from hyperproto.paper.runs import GridRun, OnRun, Planned, data_problems, duration, finished, run_planned, train_job
from hyperproto.paper.score_figures import bar_numbers
from hyperproto.paper.table import RunGroup, TableReport, TableRun, sheet
from hyperproto.progress import Show
from hyperproto.recipes import (
    Column,
    Paper,
    PaperTable,
    Recipe,
    SmallRow,
    cost_minutes,
    read_recipe,
    read_table,
    recipes_of,
    run_name,
    toml_value,
)
from hyperproto.reports.tables import TextTable
from hyperproto.training import Run, load_recipe

BUDGETS = ("small", "paper")
DEFAULT, ALL = "default", "all"  # sets of rows
FAMILIES = ("protonet", "hyperproto")  # what `default` is of the paper's budget: methods whose names begin so
TRAINING_SHARE = 0.8  # of the time of a run; the rest is its evaluation
MOST_SEEDS = 100


@dataclass(frozen=True)
class Row:
    """A recipe, and the published row that it reproduces."""

    recipe: str
    paper: Paper


@dataclass(frozen=True)
class PlannedRow:
    """Number of runs and cost of a row, for `--dry-run`."""

    recipe: str
    row: str  # published
    columns: int
    runs: int
    finished: int
    minutes: float | None  # of one run, on one core; None: not known, or for a GPU


@dataclass
class Reproduction:
    """The plan, the outcome of each run and, except for a dry run, the table."""

    table: str
    budget: str
    folder: Path
    plan: list[PlannedRow]
    workers: int
    sets: list[str]  # of rows, by name
    others: list[str]  # recipes that were not asked for
    missing: list[str] = field(default_factory=list)  # data that are not there
    runs: dict[str, GridRun] = field(default_factory=dict)
    report: TableReport | None = None
    files: list[Path] = field(default_factory=list)

    @property
    def failed(self) -> list[GridRun]:
        """Runs that failed."""
        return [run for run in self.runs.values() if run.status == "failed"]

    @property
    def minutes(self) -> float | None:
        """Estimated minutes for all unfinished runs with this many workers; None where a recipe states no cost."""
        known = [row.minutes for row in self.plan if row.runs > row.finished]
        if any(minutes is None for minutes in known):
            return None
        return sum((row.minutes or 0.0) * (row.runs - row.finished) for row in self.plan) / self.workers

    def plan_table(self) -> TextTable:
        """Return the planned runs as a table, a line for each recipe."""
        head = ["recipe", "published row", "columns", "runs", "finished", "minutes a run, one core"]
        rows = []
        for row in self.plan:
            minutes = "for a GPU, or not known" if row.minutes is None else f"{row.minutes:.3g}"
            rows.append([row.recipe, row.row, str(row.columns), str(row.runs), str(row.finished), minutes])
        return TextTable(f"{self.table}, budget {self.budget}, in {self.folder}", head, rows, texts=2)

    def plan_words(self) -> list[str]:
        """Return lines that say how long it takes, which rows can be chosen, and which data are missing."""
        left = sum(row.runs - row.finished for row in self.plan)
        minutes = self.minutes
        known = "not known" if minutes is None else f"about {duration(60 * minutes)}, and evaluation besides"
        words = [f"{left} runs to train, {self.workers} at a time: {known}."]
        words.append(
            f"--rows takes {', '.join(self.sets)}, or recipes by name: {', '.join(self.others) or 'no others'}."
        )
        return words + [f"missing: {problem}" for problem in self.missing]

    def to_json(self) -> dict[str, Any]:
        """Return the plan, every run, and the table."""
        plan = [vars(row) for row in self.plan]
        runs = [run.to_json() for run in self.runs.values()]
        own = {"budget": self.budget, "folder": str(self.folder), "plan": plan, "missing": self.missing, "runs": runs}
        return {**own, **({"table": self.table} if self.report is None else self.report.to_json())}


def reproduce(
    spec: str,
    budget: str,
    seeds: int,
    rows: str,
    folder: Path | None,
    overrides: Sequence[str],
    episodes: int | None,
    workers: int | None,
    dry_run: bool,
    show: Show | None,
    on_run: OnRun | None,
) -> Reproduction:
    """Make a table; see `hyperproto.api.reproduce`."""
    count = checked_workers(workers)
    if isinstance(seeds, bool) or not isinstance(seeds, int) or not 1 <= seeds <= MOST_SEEDS:
        raise ConfigError(f"--seeds {seeds}: train each row with 1 to {MOST_SEEDS} seeds")
    if "training.seed" in (override.partition("=")[0].strip() for override in overrides):
        raise ConfigError("-o training.seed: seeds are 0, 1, ...; --seeds says how many")
    table, chosen, choices = plan_rows(spec, budget, rows)
    wanted = _episodes(table, budget, episodes)
    out = folder if folder is not None else Path("runs") / f"reproduce-{table.name}-{budget}"
    plans = {row.recipe: _plans(row, spec, table, wanted, seeds, out, overrides) for row in chosen}
    every = [plan for own in plans.values() for plan in own]
    costs = [_cost(row, table, plans[row.recipe]) for row in chosen]
    sets = list(dict.fromkeys([DEFAULT, *(group for group, _ in choices.values()), ALL]))
    others = [name for name in choices if name not in plans]
    found = Reproduction(table.name, budget, out, costs, count, sets, others)
    columns = {(column.data, column.split): None for row in chosen for column in table.columns_of(row.paper)}
    if dry_run:
        open_plans = [plan for plan in every if plan.done(plan.folder) is None]
        found.missing = list(map(str, data_problems(open_plans, show, list(columns) if open_plans else [])))
        return found
    with lock(out, "another process reproduces a table here; wait until it ends, or name another folder with --out"):

        def keep(run: GridRun, line: str) -> None:
            found.runs[run.name] = run
            if on_run is not None:
                on_run(run, line)

        settings = {plan.name: {"recipe": plan.recipe, "training.seed": plan.seed} for plan in every}
        run_planned(every, settings, count, show, keep, list(columns))
        found.runs = {plan.name: found.runs[plan.name] for plan in every}
        found.report = _report(table, chosen, plans, wanted, found.failed, overrides)
        found.files = sheet(found.report).write(out, table.name)
        with atomic_write(out / f"{table.name}.json") as file:
            file.write(json.dumps(found.to_json(), indent=1, allow_nan=False).encode() + b"\n")
        found.files.append(out / f"{table.name}.json")
        found.files += draw_rows(table.name, found.report.to_json(), out, show)
    return found


def draw_rows(table: str, report: dict[str, Any], out: Path, show: Show | None = None) -> list[Path]:
    """Draw fig3 of a report, where it has a bar for one of the rows."""
    if not any(panel["runs"] for panel in bar_numbers({table: report})["panels"]):
        return []
    results = Results(tables={table: (out / f"{table}.json", report)})
    [figure], _ = make_figures("fig3", Request(out, results=results), show or (lambda *_: None))
    return figure.files


Choices = dict[str, tuple[str, Row]]  # by recipe: its set, and the row


def plan_rows(spec: str, budget: str, rows: str) -> tuple[PaperTable, list[Row], Choices]:
    """Choose rows: "default", "all", or names, parted by commas, of sets and of recipes (FILE:ROW, or ROW alone).

    The table that is returned has the published rows that are reproduced, and the budget's own columns. Returned last:
    all rows that there are.
    """
    table = read_table(spec)
    if not isinstance(budget, str):
        raise ConfigError(f"--budget {budget!r:.60}: give {' or '.join(map(repr, BUDGETS))}")
    if budget not in BUDGETS:
        raise ConfigError(f"--budget: {unknown_name('budget', budget, BUDGETS)}")
    choices = _choices(spec, table, budget)
    chosen: dict[str, Row] = {}
    for name in rows.split(","):
        for row in _named(table.name, name.strip(), choices):
            chosen.setdefault(row.recipe, row)
    extra = table.small if budget == "small" else None
    if extra is not None:
        own = [column.name for column in table.columns]
        chosen = {name: _with_columns(row, own) for name, row in chosen.items()}
        asked = {name for row in chosen.values() for name in row.paper.columns or []}
        whole = table.model_copy(update={"columns": [*table.columns, *extra.columns]})
        for row in chosen.values():
            whole.row_of(row.paper)
        columns = [column for column in whole.columns if column.name in {*own, *asked}]
        table = table.model_copy(update={"columns": columns, "notes": [*table.notes, *extra.notes]})
    methods = {(table.row_of(row.paper).method, row.paper.backbone) for row in chosen.values()}
    published = [row for row in table.published if (row.method, row.backbone) in methods]
    return table.model_copy(update={"published": published}), list(chosen.values()), choices


def _with_columns(row: Row, own: list[str]) -> Row:
    """Return the row with the table's own columns, not those of a budget, if it names none."""
    return row if row.paper.columns is not None else Row(row.recipe, row.paper.model_copy(update={"columns": own}))


def _choices(spec: str, table: PaperTable, budget: str) -> Choices:
    """Return all rows that can be reproduced with a budget."""
    found = _small(spec, table) if budget == "small" else _paper(spec)
    if not found:
        others = "no recipe of its own" if budget == "paper" else "no CPU-sized recipe"
        raise ConfigError(f"{table.name} has {others}: there is nothing to run with --budget {budget}")
    return found


def _small(spec: str, table: PaperTable) -> Choices:
    """Return the rows that a table lists for this budget, then the recipes of other files."""
    others = {name: paper for name, paper in recipes_of(spec).items() if name.partition(":")[0] != spec}
    if table.small is None:
        return {name: (DEFAULT, Row(name, paper)) for name, paper in others.items()}
    found = {row.recipe: (row.set, Row(row.recipe, _small_paper(table, row))) for row in table.small.rows}
    return found | {name: (ALL, Row(name, paper)) for name, paper in others.items() if name not in found}


def _small_paper(table: PaperTable, row: SmallRow) -> Paper:
    own = load_recipe(row.recipe).paper
    said = {} if own is None or own.table != table.name else own.model_dump()
    said |= {key: value for key, value in row.model_dump(exclude={"recipe", "set"}).items() if value is not None}
    missing = [key for key in ("method", "backbone") if key not in said]
    if missing:
        raise ConfigError(f"{table.name}: small row {row.recipe} does not say its {missing[0]}; add {missing[0]} = ...")
    return Paper.model_validate({**said, "table": table.name})


def _paper(spec: str) -> Choices:
    """Return the recipes of the table's own file; those of ProtoNet and HyperProto are the default."""
    own = {name: paper for name, paper in recipes_of(spec).items() if name.partition(":")[0] == spec}
    kinds = {name: str(read_recipe(name)["method"]["name"]).startswith(FAMILIES) for name in own}
    return {name: (DEFAULT if kinds[name] else ALL, Row(name, paper)) for name, paper in own.items()}


def _named(table: str, name: str, choices: Choices) -> list[Row]:
    """Return the rows of a set, or one row by the name of its recipe."""
    sets = {group for group, _ in choices.values()} | {ALL}
    if name in sets:
        return [row for group, row in choices.values() if name in (ALL, group)]
    fitting = [own for recipe, own in choices.items() if name in (recipe, recipe.rpartition(":")[2])]
    fitting = [own for own in fitting if own[0] == DEFAULT] or fitting
    if len(fitting) > 1:
        named = ", ".join(row.recipe for _, row in fitting)
        raise ConfigError(f"--rows: {name} is a row of several files; name one: {named}")
    if not fitting:
        raise ConfigError(f"--rows: {table}: {unknown_name('row', name, [*sets, *choices])}")
    return [row for _, row in fitting]


def _episodes(table: PaperTable, budget: str, episodes: int | None) -> int:
    small = table.small if budget == "small" else None
    usual = (small.episodes if small is not None else None) or table.episodes
    count = usual if episodes is None else episodes
    if isinstance(count, bool) or not isinstance(count, int) or not 2 <= count <= 1_000_000:
        raise ConfigError(f"--episodes {count}: draw at least 2, and at most 1,000,000")
    return count


@dataclass(frozen=True)
class _Plan(Planned):
    seed: int = 0
    minutes: float | None = None  # on one core; None: not known, or for a GPU


def _plans(
    row: Row, spec: str, table: PaperTable, episodes: int, seeds: int, out: Path, changes: Sequence[str]
) -> list[_Plan]:
    """Return a planned run for each seed."""
    usual = load_recipe(row.recipe)
    columns = [column.model_dump() for column in table.columns_of(row.paper)]
    counted = min(episodes, row.paper.episodes or episodes)
    task = {"table": spec, "columns": columns, "episodes": counted}
    plans = []
    for seed in range(seeds):
        name = f"{run_name(row.recipe)}-seed-{seed}"
        said = {key: value for key, value in row.paper.model_dump().items() if value is not None}
        overrides = [*changes, f"training.seed={seed}", f"paper={toml_value(said)}"]
        checked = load_recipe(row.recipe, overrides)
        minutes = minutes_of(checked, usual)
        plans.append(
            _Plan(
                name=name,
                recipe=row.recipe,
                overrides=overrides,
                checked=checked,
                folder=out / name,
                weight=minutes or 1.0,
                function="hyperproto.paper.reproduce:reproduce_job",
                arguments=task,
                done=partial(_done, table=table, columns=columns, episodes=counted),
                seed=seed,
                minutes=minutes,
            )
        )
    return plans


def minutes_of(recipe: Recipe, usual: Recipe) -> float | None:
    """Return the minutes on one core that a recipe states, scaled by its steps; None for a GPU, or if not stated."""
    found = cost_minutes(usual.cost)
    return None if found is None else found * recipe.training.steps / usual.training.steps


def _cost(row: Row, table: PaperTable, plans: Sequence[_Plan]) -> PlannedRow:
    done = sum(plan.done(plan.folder) is not None for plan in plans)
    name = f"{row.paper.method}, {row.paper.backbone}"
    return PlannedRow(row.recipe, name, len(table.columns_of(row.paper)), len(plans), done, plans[0].minutes)


def reproduce_job(
    recipe: str,
    folder: str,
    changes: Sequence[str],
    table: str,
    columns: Sequence[dict[str, Any]],
    episodes: int,
    show: Show,
) -> dict[str, Any]:
    """Train a run, and measure it in every column; what is there already is kept."""
    training = partial(_part, show, 0.0, TRAINING_SHARE)
    result = finished(Path(folder)) or train_job(recipe, folder, changes, training)
    pools: dict[tuple[str, str], list[Column]] = {}
    for column in map(Column.model_validate, columns):
        pools.setdefault((column.data, column.split), []).append(column)
    share = (1 - TRAINING_SHARE) / len(pools)
    for number, own in enumerate(pools.values()):
        here = partial(_part, show, TRAINING_SHARE + number * share, share)
        _measure(Path(folder), recipe, read_table(table), own, episodes, here)
    return result


def _part(show: Show, before: float, share: float, done: int, total: int, note: str = "") -> None:
    """Report the progress of a part as progress of the whole run."""
    show(round(1000 * (before + share * (done / total if total else 0.0))), 1000, note)


@lru_cache(maxsize=2)
def _pool(data: str, split: str) -> Pool:
    return open_pool(data, split)


def _measure(
    folder: Path, recipe: str, table: PaperTable, columns: Sequence[Column], episodes: int, show: Show
) -> None:
    """Measure a run in the columns of one pool, each kept in a file of its own."""
    todo = [column for column in columns if read_scores(folder, table, column, episodes) is None]
    if not todo:
        return
    pool = _pool(todo[0].data, todo[0].split)
    drawn = [(column, draw_column(table, column, pool, episodes)) for column in todo]
    own = {"recipe": recipe, "training_seed": Run(folder).read_config()["recipe"]["training"]["seed"]}
    measured = 0

    def keep(column: Column, found: list[Result] | str) -> None:
        nonlocal measured
        measured += 1
        write_scores(folder, table, column, episodes, found)

    def moved(done: int, total: int, note: str = "") -> None:
        _part(show, measured / len(todo), 1 / len(todo), done, total, note)

    measure_run(folder, own, table, drawn, pool, keep, moved)


def _done(folder: Path, table: PaperTable, columns: Sequence[dict[str, Any]], episodes: int) -> dict[str, Any] | None:
    """Return the validation of a run that is trained and measured in every column, else None."""
    result = finished(folder)
    every = map(Column.model_validate, columns)
    measured = result is not None and all(read_scores(folder, table, column, episodes) is not None for column in every)
    return result if measured else None


def _report(
    table: PaperTable,
    rows: Sequence[Row],
    plans: dict[str, list[_Plan]],
    episodes: int,
    failed: Sequence[GridRun],
    changes: Sequence[str],
) -> TableReport:
    """Put the scores of all runs together, mean over seeds, beneath the published rows."""
    lost = {run.name for run in failed}
    report = TableReport(with_note(table), episodes, [], [], {}, [f"{run.name} failed: {run.error}" for run in failed])
    for row in rows:
        kept = [plan for plan in plans[row.recipe] if plan.name not in lost]
        group = RunGroup([_table_run(plan, row, changes) for plan in kept])
        for plan in kept:
            _add(report, group, plan, row, min(episodes, row.paper.episodes or episodes))
        if group.variants:
            report.groups.append(group)
    return report


def _table_run(plan: _Plan, row: Row, changes: Sequence[str]) -> TableRun:
    digest = Run(plan.folder).read_config()["data_digest"]
    name = f"{row.recipe} with {', '.join(changes)}" if changes else row.recipe
    paper = row.paper.model_copy(update={"note": ""}) if changes else row.paper  # it describes the unchanged recipe
    return TableRun(plan.folder, plan.checked, paper, name, digest, plan.checked.training.steps, finished=True)


def _add(report: TableReport, group: RunGroup, plan: _Plan, row: Row, episodes: int) -> None:
    for column in report.table.columns_of(row.paper):
        scores = read_scores(plan.folder, report.table, column, episodes)
        if isinstance(scores, str):
            report.remarks.append(f"{plan.name}, column {column.name!r}, is left out: {scores}")
        elif scores:
            group.add(column.name, scores)
            report.hashes.setdefault(column.name, scores[0].settings["episode_hash"])
