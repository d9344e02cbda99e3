"""Figures 1 and 2 of the paper: how a sphere is initialised and learned, and the cone and the Gaussian in its place.

Both are schematics: the points are drawn by a seed, the regions computed from them as the equations say.
"""

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle

from hyperproto.paper.figure import Drawing, FigureDefinition, Numbers
from hyperproto.reports.pictures import BLACK, BLUE, GREEN, ORANGE, VERMILLION

SHOTS, OTHERS = 5, 26


def sphere_numbers(seed: int = 2) -> Numbers:
    """Sample a class in the plane, and apply eq. 3 to 5 of its points (initialisation) and to all of them (learned).

    A point outside has a line to the surface, whose length is eq. 2 with plain distances.
    """
    random = np.random.default_rng(seed)
    everything = random.normal(size=(SHOTS + OTHERS, 2)) * (1.0, 0.8)
    lean = everything @ (0.9, 0.45)  # the sampled ones lie to one side, as few often do
    sampled = everything[np.argsort(lean)[[-2, -5, -9, -14, -18]]]
    others = np.array([point for point in everything if not (sampled == point).all(1).any()])
    first, last = _sphere(sampled), _sphere(everything)
    far = others[np.argsort(np.linalg.norm(others - last["center"], axis=1))[[-1, -3]]]
    return {
        "sampled": sampled.round(4).tolist(),
        "others": others.round(4).tolist(),
        "initialised": first,
        "learned": last,
        "to_surface": {
            "initialised": [_line(point, first) for point in far],
            "learned": [_line(point, last) for point in far],
        },
    }


def _sphere(points: Any) -> dict[str, Any]:
    center = points.mean(axis=0)
    return {
        "center": center.round(4).tolist(),
        "radius": round(float(np.linalg.norm(points - center, axis=1).mean()), 4),
    }


def _line(point: Any, sphere: dict[str, Any]) -> dict[str, Any]:
    """Return the shortest line from a point to a circle, and its length."""
    center = np.array(sphere["center"])
    distance = float(np.linalg.norm(point - center))
    end = center + (point - center) * sphere["radius"] / distance
    return {
        "from": point.round(4).tolist(),
        "to": end.round(4).tolist(),
        "length": round(distance - sphere["radius"], 4),
    }


def draw_sphere(numbers: Numbers) -> Drawing:
    """Draw two panels: initialisation and learning."""
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    titles = {
        "initialised": "Initialisation: eq. 3 on 5 sampled examples",
        "learned": "Learning: centre and radius move",
    }
    sampled, others = np.array(numbers["sampled"]), np.array(numbers["others"])
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    for axis, (stage, title) in zip(panels, titles.items(), strict=True):
        sphere = numbers[stage]
        outline = {"facecolor": "#fbe3d6", "edgecolor": VERMILLION, "linewidth": 1.8, "zorder": 1}
        axis.add_patch(Circle(tuple(sphere["center"]), sphere["radius"], **outline))
        axis.scatter(*others.T, marker="^", s=46, facecolors="none", edgecolors=BLUE, linestyle=":", linewidths=1.2)
        axis.scatter(*sampled.T, marker="^", s=62, color=BLUE, zorder=3)
        axis.scatter(*sphere["center"], marker="*", s=190, color=VERMILLION, edgecolors="white", zorder=5)
        for line in numbers["to_surface"][stage]:
            axis.plot(*zip(line["from"], line["to"], strict=True), color=GREEN, linewidth=2.4, zorder=4)
        axis.set_title(title, fontsize=11)
        axis.set_aspect("equal")
        axis.set_xticks([])
        axis.set_yticks([])
    before, after = numbers["initialised"], numbers["learned"]
    dashed = {"fill": False, "edgecolor": "#777777", "linestyle": "--", "linewidth": 1.2, "zorder": 2}
    panels[1].add_patch(Circle(tuple(before["center"]), before["radius"], **dashed))
    arrow = {"arrowstyle": "->", "color": "#444444", "linewidth": 1.4, "shrinkA": 0, "shrinkB": 6}
    panels[1].annotate("", after["center"], before["center"], arrowprops=arrow, zorder=4)
    _margins(panels[0], [before, after], np.concatenate([sampled, others]))
    marks: list[Any] = [
        Line2D([], [], marker="*", linestyle="", markersize=13, color=VERMILLION, label="centre"),
        Line2D([], [], marker="^", linestyle="", markersize=8, color=BLUE, label="sampled example"),
        Line2D(
            [], [], marker="^", linestyle="", markersize=7, color=BLUE, markerfacecolor="none", label="other example"
        ),
        Line2D([], [], color=VERMILLION, linewidth=1.8, label="surface"),
        Line2D([], [], color="#777777", linestyle="--", linewidth=1.2, label="surface before learning"),
        Line2D([], [], color=GREEN, linewidth=2.4, label="distance to the surface (eq. 2)"),
    ]
    figure.legend(handles=marks, loc="outside lower center", ncols=6, fontsize=8.5, frameon=False)
    return Drawing(figure)


def _margins(axis: Any, spheres: list[dict[str, Any]], points: Any) -> None:
    """Set the limits so that every point and circle is visible."""
    low = np.min([points.min(0), *(np.array(s["center"]) - s["radius"] for s in spheres)], axis=0) - 0.25
    high = np.max([points.max(0), *(np.array(s["center"]) + s["radius"] for s in spheres)], axis=0) + 0.25
    axis.set_xlim(low[0], high[0])
    axis.set_ylim(low[1], high[1])


def variant_numbers(seed: int = 1) -> Numbers:
    """Return three cones on the unit ball (axis, mean angle of 12 points) and three round Gaussians."""
    random = np.random.default_rng(seed)
    cones = []
    for direction, spread in (((0.9, -0.75, 0.5), 0.16), ((-0.55, -0.8, 0.75), 0.24), ((0.35, -0.25, 1.2), 0.11)):
        points = np.array(direction) / np.linalg.norm(direction) + spread * random.normal(size=(12, 3))
        points /= np.linalg.norm(points, axis=1, keepdims=True)
        axis = points.mean(axis=0)
        axis /= np.linalg.norm(axis)
        angle = float(np.arccos(np.clip(points @ axis, -1, 1)).mean())
        cones.append({"axis": axis.round(4).tolist(), "angle": round(angle, 4), "points": points.round(4).tolist()})
    gaussians = []
    for mean, sigma in (((-1.7, 0.9), 0.55), ((1.3, 1.1), 0.85), ((0.1, -1.5), 0.4)):
        points = np.array(mean) + sigma * random.normal(size=(25, 2))
        center = points.mean(axis=0)
        found = float(np.sqrt(((points - center) ** 2).sum(1).mean() / 2))  # maximum likelihood, D = 2
        gaussians.append(
            {"mean": center.round(4).tolist(), "sigma": round(found, 4), "points": points.round(4).tolist()}
        )
    return {"cones": cones, "gaussians": gaussians}


def draw_variants(numbers: Numbers) -> Drawing:
    """Draw two panels: cones on a unit ball, and Gaussians."""
    figure = Figure(figsize=(10, 5), layout="constrained")
    ball: Any = figure.add_subplot(1, 2, 1, projection="3d")
    u, v = np.mgrid[0 : 2 * np.pi : 37j, 0 : np.pi : 19j]
    globe = np.cos(u) * np.sin(v), np.sin(u) * np.sin(v), np.cos(v)
    ball.plot_surface(*globe, color="#dfe6ee", alpha=0.18, linewidth=0)
    ball.plot_wireframe(*globe, color="#9aa6b5", linewidth=0.35, rstride=3, cstride=3)
    for cone, colour in zip(numbers["cones"], (BLUE, ORANGE, GREEN), strict=True):
        _cone(ball, cone, colour)
    ball.set_box_aspect((1, 1, 1), zoom=1.35)
    ball.view_init(elev=28, azim=-62)
    ball.set_axis_off()
    ball.set_title("Cones on the unit ball:\nan axis and an angle", fontsize=11, y=0.98)
    axis: Any = figure.add_subplot(1, 2, 2)
    for region, colour, marker in zip(numbers["gaussians"], (BLUE, ORANGE, GREEN), "^so", strict=True):
        for times, alpha in ((3, 0.10), (2, 0.16), (1, 0.26)):
            axis.add_patch(
                Circle(tuple(region["mean"]), times * region["sigma"], color=colour, alpha=alpha, linewidth=0)
            )
        axis.add_patch(Circle(tuple(region["mean"]), region["sigma"], fill=False, edgecolor=colour, linewidth=1.5))
        axis.scatter(
            *np.array(region["points"]).T, marker=marker, s=22, color=colour, edgecolors="white", linewidths=0.5
        )
        axis.scatter(*region["mean"], marker="*", s=170, color=BLACK, edgecolors="white", zorder=5)
    axis.set_aspect("equal")
    axis.autoscale_view()
    axis.set_xticks([])
    axis.set_yticks([])
    axis.set_title("Round Gaussians: a mean and one standard deviation\n(circles: 1, 2 and 3 of them)", fontsize=11)
    return Drawing(figure)


def _cone(ball: Any, cone: dict[str, Any], colour: str) -> None:
    """Draw the axis of a cone, its mantle from the origin, its rim on the ball, and its points."""
    axis, angle = np.array(cone["axis"]), cone["angle"]
    aside = np.linalg.svd(axis[None])[2][1:]  # two directions at right angles to the axis
    turn = np.linspace(0, 2 * np.pi, 61)
    rim = np.cos(angle) * axis + np.sin(angle) * (np.cos(turn)[:, None] * aside[0] + np.sin(turn)[:, None] * aside[1])
    mantle = np.stack([np.zeros_like(rim), rim])  # (2, 61, 3)
    ball.plot_surface(*np.moveaxis(mantle, -1, 0), color=colour, alpha=0.28, linewidth=0)
    ball.plot(*rim.T, color=colour, linewidth=1.8)
    ball.plot(*np.stack([np.zeros(3), axis]).T, color=BLACK, linewidth=1.1)
    ball.scatter(*axis, marker="*", s=110, color=BLACK, depthshade=False)
    ball.scatter(*np.array(cone["points"]).T, marker="^", s=20, color=colour, depthshade=False)


FIG1 = FigureDefinition(
    "A hypersphere is initialised and learned",
    "Left: five sampled examples give the centre (their mean) and the radius (their mean distance to it), eq. 3. "
    "Right: learning moves both; here to the mean and the mean distance of all the data. The green lines are the "
    "distances of two examples to the surface. A schematic: points drawn at random, the encoder left out.",
    lambda request, show: sphere_numbers(),
    draw_sphere,
)
FIG2 = FigureDefinition(
    "The two variants: cones on a unit ball, round Gaussians",
    "Left: a class is an axis and an angle, here the mean angle of its points. Right: a class is a mean and one "
    "standard deviation. A schematic: points drawn at random.",
    lambda request, show: variant_numbers(),
    draw_variants,
)
