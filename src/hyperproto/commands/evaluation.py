"""`hyperproto evaluate` and `hyperproto compare`: draw episodes, score every contender, show what came out."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from rich.table import Table

from hyperproto.commands.output import console, write_json
from hyperproto.commands.tasks import Tasks
from hyperproto.data import Pool
from hyperproto.encoders import Encoder
from hyperproto.errors import ConfigError
from hyperproto.evaluation import Contender, EncodedPool, Rejection, Result, compare, evaluate_contenders
from hyperproto.progress import progress_bar
from hyperproto.recipes import parse_values
from hyperproto.reports.comparison import columns_table, describe, results_table
from hyperproto.reports.tagging_tables import errors_table, spans_table
from hyperproto.training.selection import encoder_source, run_source, select


@dataclass(frozen=True)
class Selection:
    """What is measured; an empty list stands for the default of each run or method."""

    runs: Sequence[str] = ()
    encoders: Sequence[str] = ()
    methods: Sequence[str] = ()
    fits: Sequence[str] = ()
    transforms: Sequence[str] = ()
    options: Sequence[str] = ()  # of the methods, as KEY=VALUE; a key with several values is compared by each

    def contenders(
        self, pool: Pool, data: str | None = None, train_data: tuple[str, str] | None = None
    ) -> list[Contender]:
        """Every combination that makes sense, with encoders that read such a pool.

        Training data are those of the run or, for an encoder, of `data`; or `train_data`, spec and split, for all.
        """
        sources = [run_source(run, pool) for run in self.runs]
        sources += [encoder_source(spec, pool, data) for spec in self.encoders]
        if train_data is not None:
            sources = [replace(source, train_data=train_data) for source in sources]
        found: dict[str, Contender] = {}
        for options in _combinations(self.options):
            for contender in select(sources, self.methods, self.fits, self.transforms, options):
                found.setdefault(contender.label, contender)  # an option that changes nothing here makes no other row
        return list(found.values())


def _combinations(options: Sequence[str]) -> list[dict[str, Any]]:
    """Settings KEY=VALUE as tables: one, or one for each combination of the values of keys that have several."""
    by_key: dict[str, list[str]] = {}
    for option in options:
        by_key.setdefault(option.partition("=")[0].strip(), []).append(option)
    return [parse_values(list(chosen)) for chosen in product(*by_key.values())]


def evaluate(selection: Selection, tasks: Tasks) -> list[list[Result]]:
    """Score every contender: a list of results for each kind of shots."""
    with progress_bar("evaluate") as show:
        pool, drawn = tasks.open(show)
        other = tasks.threshold_pool(pool, show)
        chosen_on = [None] * len(drawn) if other is None else tasks.draw(other)
        contenders = selection.contenders(pool, tasks.data)
        if other is not None:
            _check_readers(contenders, pool, other)
        encoded: dict[Encoder, EncodedPool] = {}  # every encoder reads a pool once, for all kinds of shots
        encoded_other: dict[Encoder, EncodedPool] = {}
        columns = []
        for here, there in zip(drawn, chosen_on, strict=True):
            rejection = None
            if other is not None and there is not None:
                rejection = Rejection(other, there.episodes, encoded_other)
            parts = here.episodes, here.settings, encoded, show, rejection
            columns.append(evaluate_contenders(contenders, pool, *parts))
        return columns


def comparison(columns: Sequence[Sequence[Result]]) -> dict[str, Any]:
    """Return every result, and the paired differences of every two on the same episodes, as `--json` prints them."""
    pairs = [{"shot": column[0].settings["shot"], **row} for column in columns for row in compare(column)]
    return {"results": [result.to_json() for column in columns for result in column], "comparisons": pairs}


def show_results(columns: Sequence[Sequence[Result]], content: Any, json_file: str | None) -> None:
    """Print a table of the results, and write `content` as JSON where that is asked for."""
    if json_file:
        write_json(content, json_file)
    if json_file != "-":
        titles = [describe(column[0].to_json()) for column in columns]
        tables = [columns_table(titles, columns)] if len(columns) > 1 else _tables(titles[0], columns[0])
        if columns[0][0].metric == "f1":
            tables += [errors_table(column) for column in columns]
        for table in tables:
            console().print(table)


def _tables(title: str, results: Sequence[Result]) -> list[Table]:
    return [spans_table(title, results) if results[0].metric == "f1" else results_table(title, results)]


def _check_readers(contenders: Sequence[Contender], pool: Pool, other: Pool) -> None:
    """Make sure that encoders made for one pool read the other as well."""
    for cls in {type(contender.encoder) for contender in contenders}:
        made, needed = cls.options_for(pool), cls.options_for(other)
        if made != needed:
            raise ConfigError(
                f"{cls.__name__} reads {pool} as {made}, but {other}, which thresholds are to be chosen on, as "
                f"{needed}; name data of the same kind with --threshold-data"
            )
