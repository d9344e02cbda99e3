"""Tables and figures of the paper, and grids of trainings."""

from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from hyperproto.api.research import run_folders
from hyperproto.errors import ConfigError
from hyperproto.options import FigureOptions, ReproduceOptions, complete, documented
from hyperproto.progress import Show, silent
from hyperproto.registry import Trust
from hyperproto.registry import trust as trust_files

if TYPE_CHECKING:
    from hyperproto.paper.figures import PaperFigure
    from hyperproto.paper.grid import GridReport
    from hyperproto.paper.reproduce import Reproduction
    from hyperproto.paper.runs import OnRun
    from hyperproto.paper.table import TableReport


def report(
    table: str | PathLike[str],
    runs: str | PathLike[str] | None = None,
    *,
    episodes: int | None = None,
    progress: Show | None = None,
) -> "TableReport":
    """Compare runs with the published rows of a table of the paper, all on the same episodes.

    Parameters
    ----------
    table : table1 to table5, or a path that ends in .toml, with a [table].
    runs : folder that holds the runs, one or two levels below; None: the folder runs, if it exists.
    episodes : number of episodes a column; None: the table's own.

    A run whose method is a file (`FILE.py:CLASS`) is left out, with a remark: no user code is imported here.

    Returns
    -------
    The report: `groups` (runs that differ in their seeds, with their results), `to_run`, `to_json()`, and
    `table_text("markdown" | "latex" | "csv" | "html")`.

    Examples
    --------
    >>> report("table4").to_run  # doctest: +SKIP
    """
    from hyperproto.paper.report import make_report

    folder = None if runs is None else Path(runs)
    return make_report(fspath(table), folder, episodes, progress or silent)


@documented(FigureOptions)
def figure(
    name: str, out: str | PathLike[str], *, progress: Show | None = None, **settings: Unpack[FigureOptions]
) -> "list[PaperFigure]":
    """Draw a figure of the paper from runs or files of results: NAME.png, NAME.svg, and its numbers, NAME.json.

    Parameters
    ----------
    name : fig1 to fig8, radius, memory; or "all": every figure that the runs and results allow, and a page, index.html.
    out : folder to write to; fig6 trains below it and resumes interrupted runs.
    settings : see `FigureOptions`. `run` is for fig4, fig5, fig7 and radius. `results` are reports on tables
        (`hyperproto report --json`) and numbers of figures that were measured before.

    Returns
    -------
    The figures: `name`, `numbers` (the content of the JSON file), `files`, `drawing.figure` (a matplotlib figure).

    Examples
    --------
    >>> [made] = figure("fig3", "figures", results=[])  # doctest: +SKIP
    >>> made.numbers["panels"][0]["series"]["HyperProto, published"]["INTER 5-way 1~2-shot"]  # doctest: +SKIP
    {'percent': 52.09, 'half': 2.49}
    """
    from hyperproto.paper.figure import Request
    from hyperproto.paper.figures import make_figures, read_results
    from hyperproto.recipes import override_texts

    options: dict[str, Any] = {**complete(FigureOptions, settings)}
    trust_files(options.pop("trust"))
    runs, results, overrides = (options.pop(key) for key in ("run", "results", "overrides"))
    several = [results] if isinstance(results, str | PathLike) else results
    read = read_results(None if several is None else [Path(path) for path in several])
    request = Request(Path(out), run_folders(runs), read, overrides=override_texts(overrides), **options)
    return make_figures(name, request, progress or silent)[0]


def grid(
    recipe: str | PathLike[str],
    settings: Mapping[str, Any] | Sequence[str],
    out: str | PathLike[str] | None = None,
    *,
    workers: int | None = None,
    trust: Trust = None,
    progress: Show | None = None,
    on_run: "OnRun | None" = None,
) -> "GridReport":
    """Train every combination of settings, each in its own folder, and compare them on validation episodes.

    Finished runs are skipped and interrupted ones are resumed, with the same result. A run that fails is recorded, and
    the next call tries it again.

    Parameters
    ----------
    recipe : as `train` takes it.
    settings : `{"training.seed": [0, 1, 2], "optim.encoder.lr": [1e-3, 3e-3]}`, a list for the values to try (a value
        that is a list stands in a list), or `["training.seed=0,1,2"]` as on the command line.
    out : folder of the grid; None: runs/RECIPE-grid. A later call may add values, but no other settings.
    workers : number of processes that train at a time (None: two, if there are two cores; one on a GPU). With 1 the
        calling process trains; several share its threads.
    trust : as `train` takes it.
    progress : called while a run is trained.
    on_run : function `(run, line)`, called when a run ends; the line has its result and the estimated time left.

    Returns
    -------
    The report: `runs` by name, `failed`, `groups` (means over seeds, the best first), `table_text("markdown")`,
    `to_json()`; the folder holds it as grid.json and grid.md.

    Examples
    --------
    >>> found = grid("glyphs:protonet", {"training.seed": [0, 1], "training.steps": 20})  # doctest: +SKIP
    >>> found.groups[0].mean  # doctest: +SKIP
    (0.9512, 0.0213)
    """
    from hyperproto.paper.grid import Grid, default_folder, run_grid

    trust_files(trust)
    name = fspath(recipe)
    folder = default_folder(name) if out is None else Path(out)
    return run_grid(Grid.of(name, settings), folder, workers, progress, on_run)


@documented(ReproduceOptions)
def reproduce(
    table: str | PathLike[str],
    *,
    progress: Show | None = None,
    on_run: "OnRun | None" = None,
    **settings: Unpack[ReproduceOptions],
) -> "Reproduction":
    """Make a table of the paper: train its rows with several seeds, measure them in every column, write the table.

    Finished runs are kept, and an interrupted call is resumed, with the same result. A run that fails is recorded, and
    the other runs continue.

    Parameters
    ----------
    table : table1 to table5, or a path that ends in .toml, with a [table].
    progress, on_run : as `grid` takes them.
    settings : see `ReproduceOptions`. `rows` are "default", "all", or names of sets and of recipes: "omniglot" of
        table3, "fewrel-cnn:protonet", or "protonet" where only one file has it.

    Returns
    -------
    The reproduction: `plan`, `minutes` (an estimate), `runs` by name, `failed`, `report` (a `TableReport`), `files`
    (the table as Markdown, LaTeX, CSV, HTML and JSON; also fig3, where it has a bar for one of the rows), `to_json()`.

    Examples
    --------
    >>> plan = reproduce("table3", dry_run=True)  # doctest: +SKIP
    >>> [(row.recipe, row.runs) for row in plan.plan][:2]  # doctest: +SKIP
    [('glyphs:protonet', 3), ('glyphs:hyperproto-published', 3)]
    """
    from hyperproto.paper.reproduce import reproduce as make_table
    from hyperproto.recipes import override_texts

    options: dict[str, Any] = {**complete(ReproduceOptions, settings)}
    trust, rows, out, overrides = (options.pop(key) for key in ("trust", "rows", "out", "overrides"))
    if not isinstance(rows, str) and not (isinstance(rows, Sequence) and all(isinstance(row, str) for row in rows)):
        raise ConfigError(f"rows = {rows!r:.60}: give a name, or a list of names")
    trust_files(trust)
    return make_table(
        fspath(table),
        rows=rows if isinstance(rows, str) else ",".join(rows),
        folder=None if out is None else Path(out),
        overrides=override_texts(overrides),
        show=progress,
        on_run=on_run,
        **options,
    )
