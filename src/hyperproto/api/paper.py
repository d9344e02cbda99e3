"""Tables and figures of the paper, and grids of trainings."""

from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hyperproto.api.research import run_folders
from hyperproto.errors import ConfigError
from hyperproto.progress import Show, silent
from hyperproto.registry import Trust
from hyperproto.registry import trust as trust_files

if TYPE_CHECKING:
    from hyperproto.paper.figures import PaperFigure
    from hyperproto.paper.grid import GridReport
    from hyperproto.paper.reproduce import Reproduction
    from hyperproto.paper.runs import OnRun
    from hyperproto.paper.table import TableReport
    from hyperproto.training import Run


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


def figure(
    name: str,
    out: str | PathLike[str],
    *,
    run: "str | PathLike[str] | Run | Sequence[str | PathLike[str] | Run] | None" = None,
    results: str | PathLike[str] | Sequence[str | PathLike[str]] | None = None,
    data: str | None = None,
    split: str | None = None,
    samples: int | None = None,
    shots: Sequence[int] | None = None,
    recipe: str | None = None,
    overrides: Mapping[str, Any] | Sequence[str] = (),
    anchors: int | None = None,
    seed: int = 0,
    trust: Trust = None,
    progress: Show | None = None,
) -> "list[PaperFigure]":
    """Draw a figure of the paper from runs or files of results: NAME.png, NAME.svg, and its numbers, NAME.json.

    Parameters
    ----------
    name : fig1 to fig8, radius, memory; or "all": every figure that the runs and results allow, and a page, index.html.
    out : folder to write to; fig6 trains below it and resumes interrupted runs.
    run : trained runs, for fig4, fig5, fig7 and radius.
    results : files, or folders with such: reports on tables (`hyperproto report --json`), numbers of figures that were
        measured before; None: the folder results, if it exists.
    data, shots : of memory: a data spec (None: fewnerd), and the numbers of shots.
    split : the split of unseen classes; None: test or, where there is none, the one that a run was validated on.
    samples : instances a class, of fig7 (None: 500) and of radius (None: 100).
    recipe, overrides, anchors : of fig6: what is trained (None: the CNN of table2, 5-way, on a CPU), settings to
        change, and how many anchor classes (None: 8).
    seed : seed of the classes and instances drawn and, for fig6, of the trainings.
    trust : .py files that the runs, or the recipe, may import.

    Returns
    -------
    The figures: `name`, `numbers` (what the JSON file holds), `files`, `drawing.figure` (a matplotlib figure).

    Examples
    --------
    >>> [made] = figure("fig3", "figures", results=[])  # doctest: +SKIP
    >>> made.numbers["panels"][0]["series"]["HyperProto, published"]["INTER 5-way 1~2-shot"]  # doctest: +SKIP
    {'percent': 52.09, 'half': 2.49}
    """
    from hyperproto.paper.figure import Request
    from hyperproto.paper.figures import make_figures, read_results
    from hyperproto.recipes import override_texts

    trust_files(trust)
    several = [results] if isinstance(results, str | PathLike) else results
    request = Request(
        Path(out),
        run_folders(run),
        read_results(None if several is None else [Path(path) for path in several]),
        data=data,
        split=split,
        samples=samples,
        shots=shots,
        recipe=recipe,
        overrides=override_texts(overrides),
        anchors=anchors,
        seed=seed,
    )
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


def reproduce(
    table: str | PathLike[str],
    *,
    budget: str = "small",
    seeds: int = 3,
    rows: str | Sequence[str] = "default",
    out: str | PathLike[str] | None = None,
    overrides: Mapping[str, Any] | Sequence[str] = (),
    episodes: int | None = None,
    workers: int | None = None,
    dry_run: bool = False,
    trust: Trust = None,
    progress: Show | None = None,
    on_run: "OnRun | None" = None,
) -> "Reproduction":
    """Make a table of the paper: train its rows with several seeds, measure them in every column, write the table.

    Finished runs are kept, and an interrupted call is resumed, with the same result. A run that fails is recorded, and
    the other runs continue.

    Parameters
    ----------
    table : table1 to table5, or a path that ends in .toml, with a [table].
    budget : "small", recipes of CPU size, or "paper", the paper's settings, for a GPU.
    seeds : number of runs a row; their mean is reported.
    rows : "default" (ProtoNet and HyperProto's variants), "all", or names of sets and of recipes: "omniglot" of table3,
        "fewrel-cnn:protonet", or "protonet" where only one file has it.
    out : folder of runs and tables; None: runs/reproduce-TABLE-BUDGET.
    overrides : settings of all recipes to change, as `train` takes them.
    episodes : number of episodes a column; None: that of the table or its budget.
    workers : as `grid` takes them.
    trust : .py files that recipes of the table may import.
    dry_run : train nothing; return the plan, the estimated time and the missing data.
    progress, on_run : as `grid` takes them.

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

    if not isinstance(rows, str) and not (isinstance(rows, Sequence) and all(isinstance(row, str) for row in rows)):
        raise ConfigError(f"rows = {rows!r:.60}: give a name, or a list of names")
    trust_files(trust)
    return make_table(
        fspath(table),
        budget=budget,
        seeds=seeds,
        rows=rows if isinstance(rows, str) else ",".join(rows),
        folder=None if out is None else Path(out),
        overrides=override_texts(overrides),
        episodes=episodes,
        workers=workers,
        dry_run=dry_run,
        show=progress,
        on_run=on_run,
    )
