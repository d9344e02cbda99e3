"""A diagnosis as a figure: classes as circles in a plane, overlaps where they lie over each other, examples as dots."""

from typing import TYPE_CHECKING, Any

import numpy as np

from hyperproto.errors import ConfigError

if TYPE_CHECKING:
    from hyperproto.estimators.doctor import Diagnosis

WIDEST = 40  # characters of a label: the time to lay out a text grows with the square of its length
LEAST_OVERLAP = 0.005  # of a pair that is joined by a line
BOX = {"boxstyle": "round,pad=0.15", "facecolor": "white", "alpha": 0.75, "linewidth": 0}
LEGEND = (
    "circle: covers {covered:.0%} of the class's own examples in this plane; line: overlap with the nearest rival; "
    "black ring: possibly mislabelled; black cross: far from its class"
)


def draw(diagnosis: "Diagnosis") -> Any:
    """Draw a matplotlib Figure."""
    try:
        from matplotlib import colormaps
        from matplotlib.figure import Figure

        from hyperproto.reports.drawing import plain
    except ImportError as error:
        raise ConfigError(f"figures are drawn with matplotlib ({error}); pip install 'hyperproto[plots]'") from error
    plane = diagnosis.plane
    figure = Figure(figsize=(8.5, 7), layout="constrained")
    axis = figure.subplots()
    colours = colormaps["tab20"](np.arange(len(plane.classes)) % 20)
    _circles(axis, plane, colours)
    axis.scatter(plane.examples[:, 0], plane.examples[:, 1], s=9, c=colours[plane.labels], zorder=3, linewidths=0)
    _marks(axis, diagnosis)
    _lines(axis, diagnosis)
    for n, mean in zip(plane.classes, plane.means, strict=True):
        axis.annotate(
            plain(_short(diagnosis.classes[n].label)), mean, fontsize=8, ha="center", va="center", bbox=BOX, zorder=6
        )
    axis.set_aspect("equal")
    axis.autoscale_view()
    axis.set_xticks([])
    axis.set_yticks([])
    some = len(plane.classes) < len(diagnosis.classes)
    which = f"The {len(plane.classes)} most confused of {len(diagnosis.classes)} classes" if some else "Classes"
    axis.set_title(f"{which}, in the plane in which their means lie farthest apart", fontsize=10)
    axis.set_xlabel(LEGEND.format(covered=plane.covered), fontsize=7)
    return figure


def _short(label: Any) -> str:
    """Return a label on one line of at most WIDEST characters."""
    text = " ".join(str(label).split())
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 1]}…"


def _circles(axis: Any, plane: Any, colours: Any) -> None:
    from matplotlib.patches import Circle

    for mean, radius, colour in zip(plane.means, plane.radii, colours, strict=True):
        axis.add_patch(Circle(tuple(mean), float(radius), facecolor=(*colour[:3], 0.15), edgecolor="none", zorder=1))
        axis.add_patch(Circle(tuple(mean), float(radius), fill=False, edgecolor=colour, linewidth=1.2, zorder=2))


def _marks(axis: Any, diagnosis: "Diagnosis") -> None:
    plane = diagnosis.plane
    for reports, style in (
        (diagnosis.mislabelled, {"marker": "o", "facecolors": "none", "edgecolors": "black", "s": 60}),
        (diagnosis.outlying, {"marker": "x", "c": "black", "s": 45}),
    ):
        marked = plane.examples[np.isin(plane.numbers, [report.example for report in reports])]
        axis.scatter(marked[:, 0], marked[:, 1], zorder=4, linewidths=1.0, **style)


def _lines(axis: Any, diagnosis: "Diagnosis") -> None:
    """Join each class and its rival, once, and say how large their overlap is."""
    plane = diagnosis.plane
    place = {diagnosis.classes[n].label: mean for n, mean in zip(plane.classes, plane.means, strict=True)}
    pairs: dict[frozenset[Any], float] = {}
    for report in diagnosis.classes:
        if report.label in place and report.rival in place and (report.overlap or 0.0) >= LEAST_OVERLAP:
            pair = frozenset((report.label, report.rival))
            pairs[pair] = max(pairs.get(pair, 0.0), report.overlap or 0.0)
    for pair, overlap in pairs.items():
        ends = np.stack([place[label] for label in pair])
        axis.plot(ends[:, 0], ends[:, 1], color="black", alpha=0.55, linewidth=0.5 + 12 * overlap, zorder=5)
        axis.annotate(f"{overlap:.0%}", ends.mean(axis=0), fontsize=7, ha="center", va="center", bbox=BOX, zorder=6)
