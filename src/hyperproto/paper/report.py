"""A table of the paper, and beside each published row the runs that reproduce it, all on the same episodes."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hyperproto.comparison.measure import evaluate_candidates
from hyperproto.comparison.selection import select
from hyperproto.data import Pool, open_pool
from hyperproto.encoders import ENCODERS, Encoder
from hyperproto.episodes import Episode, episodes_hash
from hyperproto.errors import DataError, HyperProtoError
from hyperproto.evaluation import EncodedPool, Result
from hyperproto.files import is_folder
from hyperproto.methods import METHODS, Method
from hyperproto.paper.table import RunGroup, TableReport, TableRun
from hyperproto.problems import make_sampler
from hyperproto.progress import Show
from hyperproto.recipes import WORDS, Column, Paper, PaperTable, Recipe, parse, read_table, recipes_of
from hyperproto.registry import TrustError, names_file, without_files
from hyperproto.training import Run, load_recipe
from hyperproto.training.resolve import completed
from hyperproto.training.run import differences, validated
from hyperproto.training.sources import Candidate, Source, run_source

# On every run's encoder: what a trained method must beat.
BASELINES = {"accuracy": ("protonet", "cosine", "simpleshot"), "f1": ("protonet", "cosine", "nnshot", "structshot")}


def make_report(spec: str, runs: Path | None, episodes: int | None, show: Show) -> TableReport:
    """Find the runs of a table below `runs` (None: the folder runs, if there is one) and evaluate them all.

    Nobody has named these runs, so no file that one of them names is imported: such a run is left out, with a remark.
    """
    with without_files():
        return _make_report(spec, runs, episodes, show)


def _make_report(spec: str, runs: Path | None, episodes: int | None, show: Show) -> TableReport:
    table = read_table(spec)
    if runs is not None and not is_folder(runs):
        raise DataError(f"{runs}: no such folder; name the one that holds your runs with --runs")
    found, to_run, remarks = find_runs(spec, table, runs or Path("runs"))
    groups, twice = group_by_seed([run for run in found if run.has_model])
    report = TableReport(
        table=table,
        episodes=episodes or table.episodes,
        groups=[RunGroup(seeds) for seeds in groups],
        started=[run for run in found if not run.has_model],
        to_run=to_run,
        remarks=remarks + twice,
    )
    for data, split in dict.fromkeys((column.data, column.split) for column in table.columns):
        _evaluate(report, data, split, show)
    for group in report.groups:
        measured = {r.settings["run"] for v in group.variants.values() for column in v.results.values() for r in column}
        group.runs[:] = [run for run in group.runs if str(run.folder) in measured]
    report.groups[:] = [group for group in report.groups if group.runs]
    return report


def _evaluate(report: TableReport, data: str, split: str, show: Show) -> None:
    """Fill the columns that are drawn from one pool; data that no run needs are not opened."""
    table = report.table
    jobs = []
    for group in report.groups:
        columns = [c for c in table.columns_of(group.paper) if (c.data, c.split) == (data, split)]
        jobs += [(group, run, columns) for run in group.runs if columns]
    wanted = [column for column in table.columns if any(column in columns for _, _, columns in jobs)]
    if not jobs:
        return
    with _naming(table, wanted[0]):
        pool = open_pool(data, split, show)
    drawn = {column.name: draw_column(table, column, pool, report.episodes) for column in wanted}
    for number, (group, run, columns) in enumerate(jobs, start=1):
        here = _noted(show, f"run {number} of {len(jobs)},")
        _evaluate_run(report, group, run, [(column, drawn[column.name]) for column in columns], pool, here)


def _evaluate_run(
    report: TableReport,
    group: RunGroup,
    run: TableRun,
    drawn: list[tuple[Column, list[Episode]]],
    pool: Pool,
    show: Show,
) -> None:
    """Measure one run: the pool is encoded once, and scored by its own method and the baselines in every column.

    A method that reads items encodes nothing. Columns of a way or shot that a method does not serve are left out, and
    of a costly method the first episodes of a column are scored, as many as its recipe says.
    """
    try:
        source = run_source(str(run.folder), pool)
    except HyperProtoError as error:  # one bad run must not cost the others
        report.remarks.append(f"{run.folder} is left out: {' '.join(str(error).split())}")
        return
    candidates = table_candidates(source, BASELINES[report.table.metric])
    encoded: dict[Encoder, EncodedPool] = {}
    own = {"recipe": run.name or None, "training_seed": run.seed}
    for column, every in drawn:
        episodes = every[: group.paper.episodes]
        here = _noted(show, column.name)
        try:
            results = measure_column(candidates, report.table, column, pool, episodes, own, encoded, here)
        except HyperProtoError as error:
            report.remarks.append(f"{run.folder}, column {column.name!r}, is left out: {' '.join(str(error).split())}")
            continue
        group.add(column.name, results)
        report.hashes[column.name] = episodes_hash(pool, every)


def measure_column(
    candidates: Sequence[Candidate],
    table: PaperTable,
    column: Column,
    pool: Pool,
    episodes: Sequence[Episode],
    own: dict[str, Any],
    encoded: dict[Encoder, EncodedPool],
    show: Show,
) -> list[Result]:
    """Score candidates on the episodes of a column; `own` is what else their settings say, `encoded` keeps the pool."""
    task = {"way": column.way, "shot": column.shot, "query": column.query or table.query, "episodes": len(episodes)}
    settings = {**own, "column": column.name, **task, "seed": table.seed}
    return evaluate_candidates(candidates, pool, episodes, settings, encoded, show, convention="toolkit")


def table_candidates(source: Source, baselines: Sequence[str] = BASELINES["accuracy"]) -> list[Candidate]:
    """Name what is measured on a run: its own method as it was trained, the paper's way and ours; the baselines."""
    assert source.method is not None  # a run has one
    assert source.method_name is not None
    cls: type[Method] = METHODS.get(source.method_name)
    fits = [fit for fit in dict.fromkeys((source.method.fit, "paper", cls.fits[0])) if fit in cls.fits]
    others = baselines if source.method.reads == "vectors" else ()  # all of them read vectors
    methods = list(dict.fromkeys((source.method_name, *others)))
    return select([source], methods, fits, [], {})


def draw_column(table: PaperTable, column: Column, pool: Pool, count: int) -> list[Episode]:
    """The first `count` episodes of a column."""
    with _naming(table, column):
        query = column.query or table.query
        sampler = make_sampler(pool, way=column.way, shot=column.shot, query=query, seed=table.seed)
        return sampler.draw(count)


@contextmanager
def _naming(table: PaperTable, column: Column) -> Iterator[None]:
    """Say in an error which column it is about."""
    try:
        yield
    except HyperProtoError as error:
        raise type(error)(f"{table.name}, column {column.name!r}: {error}") from None


def _noted(show: Show, words: str) -> Show:
    """Put a few words before whatever else the bar says."""
    return lambda done, total, note="": show(done, total, f"{words} {note}")


def find_runs(spec: str, table: PaperTable, folder: Path) -> tuple[list[TableRun], dict[str, Paper], list[str]]:
    """Look one and two levels below `folder` for runs of a table.

    A run belongs to it if its recipe says so, or if it was trained exactly as one of the table's recipes says: a run
    may serve two tables. Returned beside the runs: the recipes that nobody has run, and what was left out, and why.
    """
    recipes = recipes_of(spec)
    for reproduced in recipes.values():
        table.row_of(reproduced)
    by_settings, runs, remarks = {}, [], []
    for name in recipes:
        try:
            by_settings[_settings(load_recipe(name))] = name
        except TrustError as error:
            remarks.append(f"runs of {name} are not looked for: {error}")
    for path in sorted({*folder.glob("*/config.json"), *folder.glob("*/*/config.json")}):
        try:
            recipe, digest = _read(path)
            if names_file(recipe.method.name) and (recipe.paper is None or recipe.paper.table != table.name):
                continue
            name = by_settings.get(_settings(recipe), "")
            paper = recipes[name] if name else recipe.paper
            if paper is not None and paper.table == table.name:
                table.row_of(paper)
                runs.append(TableRun(path.parent, recipe, paper, name, digest, *_progress(recipe, Run(path.parent))))
        except HyperProtoError as error:
            remarks.append(f"{path.parent} is left out: {' '.join(str(error).split())}")
    found = {run.name for run in runs}
    return runs, {name: paper for name, paper in recipes.items() if name not in found}, remarks


def group_by_seed(runs: list[TableRun]) -> tuple[list[list[TableRun]], list[str]]:
    """Put together finished runs that differ only in the seed; say which are there twice."""
    groups: dict[str, dict[int, TableRun]] = {}
    remarks = []
    for run in runs:
        key = _settings(run.recipe) + run.data_digest if run.finished else str(run.folder)
        first = groups.setdefault(key, {}).setdefault(run.seed, run)
        if first is not run:
            remarks.append(f"{run.folder} is left out: it has the settings and the seed of {first.folder}")
    return [[seeds[seed] for seed in sorted(seeds)] for seeds in groups.values()], remarks


def _read(path: Path) -> tuple[Recipe, str]:
    """Read the recipe of a run, and the digest of its data."""
    config = Run(path.parent).read_config()
    return parse(config["recipe"], str(path)), str(config["data_digest"])


def run_differences(run: Run, recipe: Recipe) -> list[str]:
    """Name the settings in which a run differs from a recipe; what follows from the data is not looked at."""
    found = parse(run.read_config()["recipe"], str(run.config))
    return sorted(differences(_all_settings(found), _all_settings(recipe)))


def _settings(recipe: Recipe) -> str:
    """All that decides what a run learns, but for its seed."""
    own = _all_settings(recipe)
    del own["training"]["seed"]
    return json.dumps(own, sort_keys=True)


def _all_settings(recipe: Recipe) -> dict[str, Any]:
    """All that decides what a run learns: no words, and nothing that follows from the data."""
    own: dict[str, Any] = completed(recipe).model_dump(mode="json", exclude=set(WORDS))
    own["encoder"] = _encoder_settings(own["encoder"])
    return own


def _encoder_settings(section: dict[str, Any]) -> dict[str, Any]:
    """Put the encoder of a recipe and of a run in one form: a run has `NAME:ARGUMENT` apart, and what its data say."""
    name, _, argument = section["name"].partition(":")
    cls: type[Encoder] = ENCODERS.get(name)
    named = {cls.argument: argument} if argument and cls.argument else {}
    from_data = options_from_data(name)
    return {key: value for key, value in {**named, **section, "name": name}.items() if key not in from_data}


def options_from_data(encoder: str) -> set[str]:
    """Name the options of an encoder that training reads off the data: a run has them, its recipe need not."""
    cls: type[Encoder] = ENCODERS.get(encoder.partition(":")[0])
    return set(cls.data_options)


def _progress(recipe: Recipe, run: Run) -> tuple[int, bool]:
    """Tell the last step that was logged, and whether it is the end: of all steps, or of patience."""
    rows = run.read_metrics() if run.metrics.exists() else []
    step = rows[-1]["step"] if rows else 0
    metric, validations = validated(rows)
    values = [row[metric] for row in validations]
    stale = len(values) - 1 - values.index(max(values)) if values else 0
    patience = recipe.training.patience
    return step, step >= recipe.training.steps or (patience is not None and stale >= patience)
