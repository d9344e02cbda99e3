"""The figures of the paper, and two that it lacks: measure the numbers or read them, draw, write PNG, SVG and JSON.

`FIGURES` says of each what it shows, what it is made from, and how. A figure whose numbers were measured before (its
JSON file is among the results) is drawn again from them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from hyperproto import __version__
from hyperproto.errors import ConfigError, DataError, unknown_name
from hyperproto.files import atomic_write, is_folder, read_json
from hyperproto.progress import Show
from hyperproto.reports import radius_figure, schematics, score_figures, space_figures
from hyperproto.reports.drawing import Drawing, Numbers
from hyperproto.reports.figure_page import FigureOnPage, write_figure_page
from hyperproto.reports.result_files import write_results
from hyperproto.training import Run

ALL, PAGE = "all", "index.html"
RESULTS = Path("results")
HOW = "make one with `hyperproto report TABLE --json FILE` or `hyperproto figure NAME --out FOLDER`"


class NotGivenError(ConfigError):
    """A figure needs runs or results that were not given."""


@dataclass(frozen=True, eq=False)
class Results:
    """Files of results, sorted by what they hold."""

    figures: dict[str, tuple[Path, Numbers]] = field(default_factory=dict)  # measured before, by name
    tables: dict[str, tuple[Path, dict[str, Any]]] = field(default_factory=dict)  # reports on tables, by table
    shots: list[tuple[Path, dict[str, Any]]] = field(default_factory=list)  # entity grids

    @classmethod
    def read(cls, given: Sequence[Path] | None) -> "Results":
        """Read files, and of folders those that figures are made from; None: the folder results, if there is one."""
        found = cls()
        for path in [RESULTS] * RESULTS.is_dir() if given is None else given:
            folder = is_folder(path)
            for file in _files(path) if folder else [path]:
                found._take(file, named=not folder)
        return found

    def _take(self, file: Path, named: bool) -> None:
        content = read_json(file, missing=HOW, damaged=HOW)
        name = content.get("figure") if isinstance(content, dict) else None
        if isinstance(name, str) and name in FIGURES:
            if named or FIGURES[name].measured:  # others are made from the results themselves
                self.figures.setdefault(name, (file, content))
        elif isinstance(content, dict) and isinstance(content.get("table"), str) and "rows" in content:
            self.tables.setdefault(content["table"], (file, content))
        elif isinstance(content, dict) and _is_entity_grid(content):
            self.shots.append((file, content))
        elif named:
            raise DataError(f"{file}: neither a report on a table, nor an entity grid, nor a figure's numbers; {HOW}")


def _files(folder: Path) -> list[Path]:
    """Return the files of a folder and of the folders in it that have the names of such results."""
    patterns = ("table*.json", "*-shots.json", *(f"{name}.json" for name in FIGURES))
    places = (folder, *sorted(path for path in folder.iterdir() if path.is_dir()))
    return [path for place in places for pattern in patterns for path in sorted(place.glob(pattern))]


def _is_entity_grid(content: Mapping[str, Any]) -> bool:
    rows = content.get("results")
    return isinstance(rows, list) and bool(rows) and all(isinstance(row, dict) and "setting" in row for row in rows)


@dataclass(frozen=True, eq=False)
class Request:
    """What figures are made from; None stands for the default of each figure."""

    out: Path
    runs: Sequence[str] = ()
    results: Results = field(default_factory=Results)
    data: str | None = None
    split: str | None = None
    samples: int | None = None  # instances a class
    shots: Sequence[int] | None = None
    recipe: str | None = None  # of trainings
    overrides: Sequence[str] = ()
    anchors: int | None = None
    seed: int = 0
    alone: bool = True  # whether this figure was asked for by its name, and not among all

    @property
    def asks_anew(self) -> bool:
        """Whether it says what to measure, so that what was measured before is not meant."""
        settings = (self.data, self.split, self.samples, self.shots, self.recipe, self.anchors)
        told = bool(self.overrides) or any(given is not None for given in settings)
        return bool(self.runs) or (self.alone and told)


@dataclass(frozen=True)
class Kind:
    """A figure: what it shows, and how it is made."""

    title: str
    caption: str
    measure: Callable[[Request, Show], Numbers]
    draw: Callable[[Numbers], Drawing]
    table: Callable[[Numbers], tuple[list[str], list[list[str]]]] | None = None
    measured: bool = False  # in runs, by a training or a measurement: what was measured before is drawn again


@dataclass(eq=False)
class PaperFigure:
    """A figure that was made: its numbers, and the files that hold it."""

    name: str
    numbers: Numbers
    files: list[Path]

    @property
    def title(self) -> str:
        """What it shows, in a line."""
        return FIGURES[self.name].title

    @property
    def caption(self) -> str:
        """How to read it."""
        return FIGURES[self.name].caption

    @cached_property
    def drawing(self) -> Drawing:
        """The figure, drawn from its numbers."""
        with _about(self.numbers.get("read_from")):
            drawn = FIGURES[self.name].draw(self.numbers)
            drawn.settle()
        return drawn

    def table(self) -> tuple[list[str], list[list[str]]] | None:
        """Head and rows of what is drawn, where that is a table's worth."""
        tabulate = FIGURES[self.name].table
        return None if tabulate is None else tabulate(self.numbers)


@contextmanager
def _about(path: str | None) -> Iterator[None]:
    """Name the file of results whose numbers are not what they should be."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        if path is None:
            raise
        raise DataError(f"{path}: not the numbers that this figure needs ({error!r:.200}); {HOW}") from None


def make_figures(name: str, request: Request, show: Show) -> tuple[list[PaperFigure], dict[str, str]]:
    """Make one figure, or all that what is given suffices for and a page; and say why the others are not made."""
    if name != ALL and name not in FIGURES:
        raise ConfigError(unknown_name("figure", name, [ALL, *FIGURES]))
    if not 0 <= request.seed < 2**63:
        raise ConfigError(f"--seed {request.seed}: give a number from 0 to 2^63 - 1")
    made, missing = [], {}
    request = replace(request, alone=name != ALL)
    for each in FIGURES if name == ALL else [name]:
        try:
            made.append(_made(each, request, show))
        except NotGivenError as error:
            if name != ALL:
                raise
            missing[each] = str(error)
    if name == ALL:
        shown = [FigureOnPage(each.name, each.title, each.caption, each.drawing, each.table()) for each in made]
        write_figure_page(request.out / PAGE, shown, missing)
    return made, missing


def _made(name: str, request: Request, show: Show) -> PaperFigure:
    kind = FIGURES[name]
    before = request.results.figures.get(name)
    numbers = None if before is None or request.asks_anew else before[1]
    if numbers is None:
        try:
            numbers = {"figure": name, "version": __version__, "title": kind.title, **kind.measure(request, show)}
        except NotGivenError:
            if before is None or request.alone:
                raise
            numbers = before[1]  # what is given is for others of all figures
    if before is not None and numbers is before[1]:
        numbers = {**numbers, "read_from": str(before[0])}
    figure = PaperFigure(name, numbers, [request.out / f"{name}.{ending}" for ending in ("png", "svg", "json")])
    with _about(numbers.get("read_from")):  # what can be read may not be drawn: NaN, numbers without end
        pictures = figure.drawing.png(), figure.drawing.svg(name)
        write_results(figure.files[-1], {key: value for key, value in numbers.items() if key != "read_from"})
    for path, content in zip(figure.files, pictures, strict=False):
        with atomic_write(path) as file:
            file.write(content)
    return figure


# What each figure is made from --------------------------------------------------------------------------------------


def _bars(request: Request, show: Show) -> Numbers:
    tables = request.results.tables
    with _about(", ".join(str(path) for path, _ in tables.values()) or None):
        return score_figures.bar_numbers({name: content for name, (_, content) in tables.items()})


def _shots(request: Request, show: Show) -> Numbers:
    given = [
        *request.results.shots,
        *([request.results.tables["table1-shots"]] if "table1-shots" in request.results.tables else []),
    ]
    for path, content in given:
        with _about(str(path)):
            numbers = score_figures.shot_numbers(content)
        if numbers["lines"]:
            return numbers
    raise NotGivenError(
        "fig8 is drawn from F1 at several shots, 5-way; name the file with --results. Make it with `python -m "
        "research.entity_grid report --ways 5 --shots 10 15 20 --run RUN --choices FILE --json FILE`"
    )


def _runs_for(name: str, what: str, request: Request) -> Sequence[str]:
    if not request.runs:
        raise NotGivenError(
            f"{name} looks into {what}: name each with --run, or its numbers, {name}.json, with --results"
        )
    return request.runs


def _distances(request: Request, show: Show) -> Numbers:
    from hyperproto.paper.representations import distance_numbers

    runs = _one_a_data_set(_runs_for("fig4", "trained runs, one for each data set", request), request)
    return distance_numbers(runs, request.split, request.seed, show)


def _similarities(request: Request, show: Show) -> Numbers:
    from hyperproto.paper.representations import similarity_numbers

    runs = _one_a_data_set(_runs_for("fig5", "trained runs, one for each data set", request), request)
    return similarity_numbers(runs, request.split, request.seed, show)


def _maps(request: Request, show: Show) -> Numbers:
    from hyperproto.paper.representations import WORDS, map_numbers

    runs = _runs_for("fig7", "two runs on the same data, one of protonet and one of hyperproto", request)
    if not request.alone:  # the first data set that several runs share
        by_data: dict[str, list[str]] = {}
        for run in runs:
            by_data.setdefault(_trained_on(run), []).append(run)
        runs = max(by_data.values(), key=len)
    return map_numbers(runs, request.split, request.seed, request.samples or WORDS, show)


def _radii(request: Request, show: Show) -> Numbers:
    from hyperproto.paper.representations import SCATTER_UNITS, radius_numbers

    runs = _runs_for("radius", "runs of hyperproto, its cone or its Gaussian", request)
    if not request.alone:
        runs = [run for run in runs if _method_of(run).startswith("hyperproto")]
        if not runs:
            raise NotGivenError("radius looks into runs of hyperproto, its cone or its Gaussian: name one with --run")
    return radius_numbers(runs, request.seed, request.samples or SCATTER_UNITS, show)


def _one_a_data_set(runs: Sequence[str], request: Request) -> Sequence[str]:
    """Of all runs, one for each data set: the first of hyperproto, or the first; named for one figure, all of them."""
    if request.alone:
        return runs
    chosen: dict[str, str] = {}
    for run in sorted(runs, key=lambda run: _method_of(run) != "hyperproto"):
        chosen.setdefault(_trained_on(run), run)
    return [run for run in runs if run in chosen.values()]


def _trained_on(run: str) -> str:
    return str(Run(run).read_config()["recipe"]["data"]["spec"])


def _method_of(run: str) -> str:
    return str(Run(run).read_config()["recipe"]["method"]["name"])


def _dynamics(request: Request, show: Show) -> Numbers:
    from hyperproto.paper.radius_dynamics import ANCHORS, anchor_recipe, radius_dynamics

    if not request.alone:
        raise NotGivenError(
            "fig6 trains once for each anchor class; make it by its own name, `hyperproto figure fig6 --out FOLDER`, "
            "and name its numbers, fig6.json, with --results"
        )
    recipe = anchor_recipe(request.recipe, request.overrides, request.seed)
    anchors = ANCHORS if request.anchors is None else request.anchors
    return radius_dynamics(request.out / "fig6-runs", recipe, anchors, show)


def _memory(request: Request, show: Show) -> Numbers:
    from hyperproto.paper.scoring_memory import SHOTS, memory_numbers

    if not request.alone and request.data is None:
        raise NotGivenError("memory draws episodes of a data set: name it with --data, such as --data fewnerd")
    data = request.data or "fewnerd"
    return memory_numbers(data, request.split or "test", request.shots or SHOTS, request.seed, show)


FIGURES: dict[str, Kind] = {
    "fig1": Kind(
        "A hypersphere is initialised and learned",
        "Left: five sampled examples give the centre (their mean) and the radius (their mean distance to it), eq. 3. "
        "Right: learning moves both; here to the mean and the mean distance of all the data. The green lines are the "
        "distances of two examples to the surface. A schematic: points drawn at random, the encoder left out.",
        lambda request, show: schematics.sphere_numbers(),
        schematics.draw_sphere,
    ),
    "fig2": Kind(
        "The two variants: cones on a unit ball, round Gaussians",
        "Left: a class is an axis and an angle, here the mean angle of its points. Right: a class is a mean and one "
        "standard deviation. A schematic: points drawn at random.",
        lambda request, show: schematics.variant_numbers(),
        schematics.draw_variants,
    ),
    "fig3": Kind(
        "Vanilla prototypes against HyperProto",
        "Published values are those of the paper's tables 1 to 3, with what they print after ±; for miniImageNet both "
        "WRN-28-10, whose average gain is the 3.45 points of the text, and Conv4. Ours have 95 % intervals over "
        "episodes. The text says 'at least 5 %' for entities; INTRA 10-way 1~2-shot gains 4.26.",
        _bars,
        score_figures.draw_bars,
        score_figures.bar_table,
    ),
    "fig4": Kind(
        "Distances of instances to hyperspheres",
        "25 instances of 5 random unseen classes (rows) against the spheres of these classes (columns), each fitted by "
        "eq. 3 to 5 other instances. A value is eq. 2, the distance to the surface, scaled to 0 to 1 within a panel.",
        _distances,
        space_figures.draw_distances,
        space_figures.distance_table,
        measured=True,
    ),
    "fig5": Kind(
        "Similarity of instances",
        "Cosine similarities of 25 instances of 5 random unseen classes, in four panels of other classes for each run. "
        "Cells on the diagonal blocks are of one class.",
        _similarities,
        space_figures.draw_similarities,
        space_figures.similarity_table,
        measured=True,
    ),
    "fig6": Kind(
        "Radius dynamics of anchor classes",
        "One training for each anchor; after the warm-up, blocks of good and bad episodes alternate. The claim of the "
        "paper: the radius follows the distance with a small lag. Below: correlation of the changes of the radius with "
        "the changes of the distance some blocks before; grey: each anchor, red: mean, 95 % interval for all lags at "
        "once.",
        _dynamics,
        radius_figure.draw_radius,
        radius_figure.lag_table,
        measured=True,
    ),
    "fig7": Kind(
        "t-SNE of training and unseen classes, before and after training",
        "The gap is the mean distance of instances to the prototypes of other classes less that to their own; over the "
        "scale of the space (root mean squared distance to the common mean), since a larger space has larger gaps. "
        "The paper's gaps, train / test: ProtoNet 2.33 / 1.55, HyperProto 5.09 / 4.56.",
        _maps,
        space_figures.draw_maps,
        space_figures.gap_table,
        measured=True,
    ),
    "fig8": Kind(
        "F1 against shots",
        "Ours is on Few-NERD INTER with MiniLM; the paper's figure, which prints no numbers, is on INTRA with BERT. "
        "INTRA is not at hand.",
        _shots,
        score_figures.draw_shots,
        score_figures.shot_table,
    ),
    "radius": Kind(
        "Learned radius against class scatter and class size",
        "The paper says that sparse classes learn larger radii, and never shows it. Each point is a training class; "
        "only differences of radii matter in training, so their mean is subtracted.",
        _radii,
        space_figures.draw_radii,
        space_figures.radius_table,
        measured=True,
    ),
    "memory": Kind(
        "Memory against shots",
        "The paper says that the memory of NNShot grows quadratically with the shots, and that of HyperProto does not. "
        "Mean over episodes. Queries grow with the shots, as in Few-NERD.",
        _memory,
        score_figures.draw_memory,
        score_figures.memory_table,
        measured=True,
    ),
}
