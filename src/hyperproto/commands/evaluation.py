"""`hyperproto evaluate` and `hyperproto compare`: draw episodes, score every contender, show what came out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hyperproto.commands.output import console, write_json
from hyperproto.data import Pool, Progress, open_pool
from hyperproto.encoders import Encoder
from hyperproto.episodes import Episode, EpisodeSampler
from hyperproto.errors import ConfigError
from hyperproto.evaluation import Contender, EncodedPool, Rejection, Result, compare, evaluate_contenders
from hyperproto.recipes import parse_values
from hyperproto.reports.console import columns_table, describe, results_table
from hyperproto.reports.progress import progress_bar
from hyperproto.training.selection import encoder_source, run_source, select


@dataclass(frozen=True)
class Selection:
    """What is measured; an empty list stands for the default of each run or method."""

    runs: Sequence[str] = ()
    encoders: Sequence[str] = ()
    methods: Sequence[str] = ()
    fits: Sequence[str] = ()
    transforms: Sequence[str] = ()
    options: Sequence[str] = ()  # of the methods, as KEY=VALUE

    def contenders(self, pool: Pool) -> list[Contender]:
        """Every combination that makes sense, with encoders that read such a pool."""
        sources = [run_source(run, pool) for run in self.runs]
        sources += [encoder_source(spec, pool) for spec in self.encoders]
        return select(sources, self.methods, self.fits, self.transforms, parse_values(list(self.options)))


@dataclass(frozen=True)
class Tasks:
    """Which episodes it is measured on."""

    data: str
    split: str
    shots: Sequence[str]  # as the user writes them, a list of episodes for each
    way: int
    query: int
    episodes: int
    seed: int
    nota_share: float = 0.0
    na_rate: int = 0
    threshold_data: str | None = None
    threshold_split: str | None = None

    @property
    def nota(self) -> dict[str, Any]:
        """How many queries are of none of the classes: empty if none is."""
        asked = {"nota_share": self.nota_share, "na_rate": self.na_rate}
        return {name: value for name, value in asked.items() if value}

    @property
    def settings(self) -> dict[str, Any]:
        """What every result says of its episodes, but for the shots."""
        names = ("way", "query", "episodes", "seed")
        return {**{name: getattr(self, name) for name in names}, **self.nota}

    def draw(self, pool: Pool) -> dict[str, list[Episode]]:
        """Draw the episodes for each kind of shots; what is asked for twice comes once."""
        shape = {"way": self.way, "query": self.query, "seed": self.seed, **self.nota}
        return {
            text: EpisodeSampler(pool, shot=parse_shots(text), **shape).draw(self.episodes)
            for text in dict.fromkeys(self.shots)
        }

    def threshold_pool(self, pool: Pool, progress: Progress) -> Pool | None:
        """Open the data that thresholds are chosen on: not those that are reported. None where nothing is rejected."""
        if not self.nota:
            if self.threshold_data or self.threshold_split:
                raise ConfigError(
                    "--threshold-data and --threshold-split choose when a query is of none of the classes, but every "
                    "query is of one; add --nota-share or --na-rate"
                )
            return None
        other = open_pool(self.threshold_data or self.data, self.threshold_split or "val", progress)
        if other.digest == pool.digest:
            raise ConfigError(
                f"thresholds would be chosen on {other}, the very data that are reported; name other data with "
                "--threshold-data, or another split with --threshold-split"
            )
        return other


def evaluate(selection: Selection, tasks: Tasks) -> list[list[Result]]:
    """Score every contender: a list of results for each kind of shots."""
    with progress_bar("evaluate") as show:
        pool = open_pool(tasks.data, tasks.split, show)
        drawn = tasks.draw(pool)
        other = tasks.threshold_pool(pool, show)
        chosen_on = {} if other is None else tasks.draw(other)
        contenders = selection.contenders(pool)
        if other is not None:
            _check_readers(contenders, pool, other)
        encoded: dict[Encoder, EncodedPool] = {}  # every encoder reads a pool once, for all kinds of shots
        encoded_other: dict[Encoder, EncodedPool] = {}
        columns = []
        for text, episodes in drawn.items():
            rejection = None if other is None else Rejection(other, chosen_on[text], encoded_other)
            settings = {**tasks.settings, "shot": parse_shots(text)}
            columns.append(evaluate_contenders(contenders, pool, episodes, settings, encoded, show, rejection))
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
        table = results_table(titles[0], columns[0]) if len(columns) == 1 else columns_table(titles, columns)
        console().print(table)


def parse_shots(text: str) -> int | list[int]:
    """Read one number, or one for each class."""
    try:
        shots = [int(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"--shot {text!r}: write one number (5), or one for each class (1,1,2,5,20)") from None
    if min(shots) < 1:
        raise ConfigError(f"--shot {text}: unseen classes are fitted to their support; give each at least 1 example")
    return shots[0] if len(shots) == 1 else shots


def _check_readers(contenders: Sequence[Contender], pool: Pool, other: Pool) -> None:
    """Make sure that encoders made for one pool read the other as well."""
    for cls in {type(contender.encoder) for contender in contenders}:
        made, needed = cls.options_for(pool), cls.options_for(other)
        if made != needed:
            raise ConfigError(
                f"{cls.__name__} reads {pool} as {made}, but {other}, which thresholds are to be chosen on, as "
                f"{needed}; name data of the same kind with --threshold-data"
            )
