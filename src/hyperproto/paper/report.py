"""A table of the paper, and beside each published row the runs that reproduce it, all on the same episodes."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hyperproto.comparison.measure import evaluate_candidates
from hyperproto.comparison.selection import select
from hyperproto.data import Pool, open_pool
from hyperproto.encoders import Encoder
from hyperproto.episodes import Episode, episodes_hash
from hyperproto.errors import DataError, HyperProtoError
from hyperproto.evaluation import EncodedPool, Result
from hyperproto.files import is_folder
from hyperproto.methods import METHODS, Method
from hyperproto.problems import make_sampler
from hyperproto.progress import Show
from hyperproto.recipes import Column, PaperTable, read_table
from hyperproto.registry import without_files
from hyperproto.reports.table_results import RunGroup, TableReport
from hyperproto.reports.table_runs import TableRun, find_runs, group_by_seed
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
