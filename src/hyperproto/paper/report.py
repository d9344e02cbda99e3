"""A report on a table of the paper: the runs that reproduce its rows, all measured on the same episodes.

    find_runs -> measure_run (run_candidates on every column) -> TableReport (paper/table.py)

`reproduce` trains the runs first, and measures them with the same functions.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hyperproto import __version__
from hyperproto.comparison.measure import evaluate_candidates, select
from hyperproto.data import Pool, open_pool
from hyperproto.encoders import ENCODERS, Encoder
from hyperproto.episodes import Episode, episodes_hash
from hyperproto.errors import DataError, HyperProtoError
from hyperproto.evaluation import EncodedPool, Result
from hyperproto.files import atomic_write, is_folder, read_json
from hyperproto.methods import METHODS
from hyperproto.paper.table import RunGroup, TableReport, TableRun
from hyperproto.problems import make_sampler
from hyperproto.progress import Show
from hyperproto.recipes import WORDS, Column, Paper, PaperTable, Recipe, parse, read_table, recipes_of
from hyperproto.registry import TrustError, keywords, names_file, without_files
from hyperproto.training import Run, load_recipe
from hyperproto.training.resolve import completed
from hyperproto.training.run import differences, validated
from hyperproto.training.sources import READING, Candidate, Source, run_source

# On ProtoNet's encoder: simple methods that a trained one must beat.
BASELINES = {"accuracy": ("cosine", "simpleshot"), "f1": ("cosine", "nnshot", "structshot")}
PUBLISHED, BAYES = "as in the paper", "Bayes fit"  # how a run is measured
HOW = (
    f"{PUBLISHED}: by eq. 3 with plain distances beside the squared measure, or, where a method has another closed "
    f"form, by that. {BAYES}: our closed form of the sphere on the same encoder. Other lines: simple baselines on "
    "ProtoNet's encoder."
)


def make_report(spec: str, runs: Path | None, episodes: int | None, show: Show) -> TableReport:
    """Find the runs of a table below `runs` (None: the folder runs, if there is one) and evaluate them all.

    The user has not named these runs one by one, so no file that a run names is imported: such a run is left out, with
    a remark.
    """
    table = read_table(spec)
    if runs is not None and not is_folder(runs):
        raise DataError(f"{runs}: no such folder; name the one that holds your runs with --runs")
    with without_files():
        found, to_run, remarks = find_runs(spec, table, runs or Path("runs"))
        groups, twice = group_by_seed([run for run in found if run.has_model])
        if groups:
            table = with_note(table)
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


def with_note(table: PaperTable) -> PaperTable:
    """Return the table with a note on how runs are measured."""
    return table.model_copy(update={"notes": [HOW, *table.notes]})


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

        def keep(column: Column, found: list[Result] | str, run: TableRun = run, group: RunGroup = group) -> None:
            if isinstance(found, str):
                report.remarks.append(f"{run.folder}, column {column.name!r}, is left out: {found}")
            else:
                group.add(column.name, found)
                report.hashes[column.name] = episodes_hash(pool, drawn[column.name])

        own = {"recipe": run.name or None, "training_seed": run.seed}
        episodes = [(column, drawn[column.name][: group.paper.episodes]) for column in columns]
        here = _noted(show, f"run {number} of {len(jobs)},")
        try:
            measure_run(run.folder, own, table, episodes, pool, keep, here)
        except HyperProtoError as error:  # one bad run must not cost the others
            report.remarks.append(f"{run.folder} is left out: {_one_line(error)}")


def measure_run(
    folder: Path,
    own: dict[str, Any],
    table: PaperTable,
    columns: Sequence[tuple[Column, Sequence[Episode]]],
    pool: Pool,
    keep: Callable[[Column, list[Result] | str], None],
    show: Show,
) -> None:
    """Measure a run in columns of one pool, which is encoded once; `own` is added to the settings of each result.

    `keep(column, found)` is called after each column, with the results of all candidates, or with the reason why the
    run cannot be measured there, such as a number of shots that its method does not support.
    """
    source = run_source(str(folder), pool)
    candidates = run_candidates(source, table.metric)
    encoded: dict[Encoder, EncodedPool] = {}
    for column, episodes in columns:
        try:
            found = measure_column(candidates, table, column, pool, episodes, own, encoded, _noted(show, column.name))
        except HyperProtoError as error:
            keep(column, _one_line(error))
        else:
            keep(column, found)


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


def run_candidates(source: Source, metric: str) -> list[Candidate]:
    """Return what is measured on a run: the paper's closed form, our Bayes fit and, on ProtoNet's encoder, baselines.

    The paper's closed form is eq. 3 with plain distances, or the only one that the method has.
    """
    assert source.method is not None  # a run has one
    assert source.method_name is not None
    name, fits = source.method_name, source.method.fits
    fit = "paper" if "paper" in fits else source.method.fit
    said = source.method_options.get(READING)
    options = {READING: said or "plain"} if READING in keywords(METHODS.get(name)) else {}
    found = [_called(PUBLISHED, candidate) for candidate in select([source], [name], [fit], [], options)]
    if source.method.reads == "vectors":
        sphere = name if "bayes" in fits else "hyperproto"
        found += [_called(BAYES, candidate) for candidate in select([source], [sphere], ["bayes"], [], {})]
    if name == "protonet":
        found += select([source], BASELINES[metric], [], [], {})
    return found


def _called(words: str, candidate: Candidate) -> Candidate:
    """Label a candidate by method and reading of eq. 3, without options that differ between columns."""
    named = f"{candidate.method_name} {candidate.method.fit} {candidate.transform}"
    reading = candidate.settings["options"].get(READING)
    if candidate.method.fit == "paper" and reading is not None:
        named += f" {READING}={reading}"
    return replace(candidate, label=f"{words}: {named}")


def scores_path(folder: Path, column: str) -> Path:
    """Return the file with the scores of a column, in the folder of a run."""
    return folder / "scores" / f"{re.sub(r'[^A-Za-z0-9.]+', '-', column)}.json"


def _task(table: PaperTable, column: Column, episodes: int) -> dict[str, Any]:
    """Return all that scores depend on, beside the weights."""
    drawn = {"query": column.query or table.query, "seed": table.seed, "episodes": episodes}
    return {"version": __version__, **column.model_dump(), **drawn, "metric": table.metric}


def write_scores(folder: Path, table: PaperTable, column: Column, episodes: int, found: list[Result] | str) -> None:
    """Keep the results of a run in a column, or the reason why there are none, in a file in the folder of the run."""
    content = {"left_out": found} if isinstance(found, str) else {"results": [_kept(result) for result in found]}
    with atomic_write(scores_path(folder, column.name)) as file:
        file.write(json.dumps({"task": _task(table, column, episodes), **content}).encode() + b"\n")


def read_scores(folder: Path, table: PaperTable, column: Column, episodes: int) -> list[Result] | str | None:
    """Read the results of a run in a column: a text says why it was left out, None that it was not measured."""
    path = scores_path(folder, column.name)
    try:
        content = read_json(path)
        if content["task"] != _task(table, column, episodes):
            return None
        return content["left_out"] if "left_out" in content else [_result(row) for row in content["results"]]
    except (DataError, LookupError, TypeError, ValueError):  # none there, or damaged: measured again
        return None


def _kept(result: Result) -> dict[str, Any]:
    values = [round(float(value), 9) for value in result.values]
    others = {key: [round(float(value), 9) for value in own] for key, own in result.others.items()}
    return {**vars(result), "values": values, "others": others}


def _result(row: dict[str, Any]) -> Result:
    arrays = {"values": np.array(row["values"]), "others": {key: np.array(own) for key, own in row["others"].items()}}
    return Result(**{**row, **arrays})


def draw_column(table: PaperTable, column: Column, pool: Pool, count: int) -> list[Episode]:
    """Draw the first `count` episodes of a column."""
    with _naming(table, column):
        query = column.query or table.query
        sampler = make_sampler(pool, way=column.way, shot=column.shot, query=query, seed=table.seed)
        return sampler.draw(count)


@contextmanager
def _naming(table: PaperTable, column: Column) -> Iterator[None]:
    """Add the name of the column to errors."""
    try:
        yield
    except HyperProtoError as error:
        raise type(error)(f"{table.name}, column {column.name!r}: {error}") from None


def _noted(show: Show, words: str) -> Show:
    """Prefix the notes of a progress callback."""
    return lambda done, total, note="": show(done, total, f"{words} {note}")


def _one_line(error: HyperProtoError) -> str:
    return " ".join(str(error).split())


def find_runs(spec: str, table: PaperTable, folder: Path) -> tuple[list[TableRun], dict[str, Paper], list[str]]:
    """Look one and two levels below `folder` for runs of a table.

    A run belongs to it if its recipe says so, or if it was trained exactly as one of the table's recipes says: a run
    may serve two tables. Returned beside the runs: the recipes without a run, and remarks on what was left out.
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
            remarks.append(f"{path.parent} is left out: {_one_line(error)}")
    found = {run.name for run in runs}
    return runs, {name: paper for name, paper in recipes.items() if name not in found}, remarks


def group_by_seed(runs: list[TableRun]) -> tuple[list[list[TableRun]], list[str]]:
    """Group finished runs that differ only in the seed; the second value names duplicates that are left out."""
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
    """Return the settings in which a run differs from a recipe, except those that follow from the data."""
    found = parse(run.read_config()["recipe"], str(run.config))
    return sorted(differences(_all_settings(found), _all_settings(recipe)))


def _settings(recipe: Recipe) -> str:
    """Return all settings that decide what a run learns, except its seed, as text."""
    own = _all_settings(recipe)
    del own["training"]["seed"]
    return json.dumps(own, sort_keys=True)


def _all_settings(recipe: Recipe) -> dict[str, Any]:
    """Return all settings that decide what a run learns: no descriptions, and nothing that follows from the data."""
    own: dict[str, Any] = completed(recipe).model_dump(mode="json", exclude=set(WORDS))
    own["encoder"] = _encoder_settings(own["encoder"])
    return own


def _encoder_settings(section: dict[str, Any]) -> dict[str, Any]:
    """Normalise the encoder section: split `NAME:ARGUMENT` as runs do, and drop options that follow from the data."""
    name, _, argument = section["name"].partition(":")
    cls: type[Encoder] = ENCODERS.get(name)
    named = {cls.argument: argument} if argument and cls.argument else {}
    from_data = options_from_data(name)
    return {key: value for key, value in {**named, **section, "name": name}.items() if key not in from_data}


def options_from_data(encoder: str) -> set[str]:
    """Return the options of an encoder that training derives from the data."""
    cls: type[Encoder] = ENCODERS.get(encoder.partition(":")[0])
    return set(cls.data_options)


def _progress(recipe: Recipe, run: Run) -> tuple[int, bool]:
    """Return the last step logged, and whether training has ended there, by its steps or by patience."""
    rows = run.read_metrics() if run.metrics.exists() else []
    step = rows[-1]["step"] if rows else 0
    metric, validations = validated(rows)
    values = [row[metric] for row in validations]
    stale = len(values) - 1 - values.index(max(values)) if values else 0
    patience = recipe.training.patience
    return step, step >= recipe.training.steps or (patience is not None and stale >= patience)
