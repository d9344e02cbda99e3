"""Figure 6 of the paper: does the radius of a class follow the distance of its samples to its centre?

One training for each of 8 anchor classes, by Algorithm 1 on 5-way episodes that all hold the anchor. After a warm-up,
blocks of "good" episodes (the anchor's accuracy is above the one logged last) and "bad" ones (below) alternate, by
rejection sampling: at most 50 draws, then the best of them. Every block ends with a row of the run's log. A killed
training goes on where it stopped, to the very same result.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from hyperproto.data import Pool, Progress, open_pool
from hyperproto.episodes import Episode, EpisodeSampler
from hyperproto.episodes.random import PICTURES, shuffled
from hyperproto.errors import ConfigError
from hyperproto.methods.hyperproto import HyperProto
from hyperproto.paper.figure import Drawing, FigureDefinition, NotGivenError, Numbers, Points, Request, Table, style
from hyperproto.paper.space_figures import class_words
from hyperproto.progress import Show
from hyperproto.recipes import Recipe
from hyperproto.reports.pictures import BLUE, VERMILLION, Floats, plain
from hyperproto.training import Run, load_recipe, train
from hyperproto.training.learner import Learner
from hyperproto.training.tasks import TaskSource

RECIPE = "table2:hyperproto-cnn"
WARMUP, BLOCK, DRAWS, STEPS, ANCHORS = 500, 50, 50, 2000, 8
AT_ONCE = 8  # draws that are looked at together
MOST_LAG = 5  # blocks, of the cross-correlation
COLUMNS = 4  # panels in a row
DISTANCE, RADIUS = "distance to the centre (left scale)", "radius (right scale)"
OVERRIDES = [  # 5-way 5-shot on a CPU: one episode a step, word vectors fixed
    "episodes.way=5", "episodes.batch=1", "encoder.learn_words=false",
    f"training.steps={STEPS}", f"training.validate_every={STEPS}", "training.checkpoint_every=250",
    "validation.episodes=100",
]  # fmt: skip


class AnchorTasks(TaskSource):
    """One episode a step that holds the anchor class; blocks of good and bad episodes alternate."""

    def __init__(
        self,
        recipe: Recipe,
        pool: Pool,
        learner: Learner,
        progress: Progress | None = None,
        *,
        anchor: int,
        warmup: int = WARMUP,
        draws: int = DRAWS,
    ) -> None:
        super().__init__(recipe, pool, learner, progress)
        task = recipe.episodes
        assert task is not None  # `anchor_recipe` sees to it
        shape: dict[str, Any] = {"way": task.way, "shot": task.shot, "query": task.query}
        self.sampler = EpisodeSampler(pool, **shape, seed=recipe.training.seed, anchor=anchor)
        self.anchor = anchor
        self.warmup, self.draws, self.block = warmup, draws, recipe.training.log_every
        self.last = 0.0  # accuracy logged last
        self.accuracy = self.distance = 0.0  # of the episode drawn last
        self.seen: list[tuple[float, int, bool]] = []  # of the block: distance, draws, whether none was as wanted

    def begin(self, rows: Sequence[dict[str, Any]], progress: Progress | None = None) -> None:
        """Restore the accuracy logged last from the log of a resumed run."""
        super().begin(rows, progress)
        self.last = float(rows[-1]["anchor_accuracy"]) if rows else 0.0

    def draw(self, step: int) -> list[Episode]:
        """Return the episode of a step: the first good (or bad) one of its draws, or the one that comes nearest."""
        first, number = step * self.draws, step + 1
        if number <= self.warmup:
            episode = self.sampler.draw(1, start=first)
            [self.accuracy], [self.distance] = self.look(episode)
            self.seen.append((self.distance, 1, False))
            return episode
        sign = 1 if (number - self.warmup - 1) // self.block % 2 == 0 else -1
        best: tuple[float, float, float, Episode] | None = None
        for start in range(0, self.draws, AT_ONCE):
            episodes = self.sampler.draw(min(AT_ONCE, self.draws - start), start=first + start)
            for place, (accuracy, distance) in enumerate(zip(*self.look(episodes), strict=True)):
                if best is None or sign * accuracy > best[0]:
                    best = sign * accuracy, accuracy, distance, episodes[place]
                if sign * accuracy > sign * self.last:
                    return self._take(accuracy, distance, episodes[place], start + place + 1, False)
        assert best is not None
        return self._take(*best[1:], self.draws, True)

    def _take(self, accuracy: float, distance: float, episode: Episode, draws: int, forced: bool) -> list[Episode]:
        self.accuracy, self.distance = accuracy, distance
        self.seen.append((distance, draws, forced))
        return [episode]

    @torch.no_grad()
    def look(self, episodes: Sequence[Episode]) -> tuple[list[float], list[float]]:
        """Return the anchor's accuracy in each episode, and the mean distance of its samples to its centre."""
        self.learner.eval()
        learner, method = self.learner, self.learner.method
        assert isinstance(method, HyperProto)
        own = []
        for episode in episodes:
            assert episode.query_y is not None
            mine = episode.query_y == 0  # the anchor is the first class
            own.append(
                Episode(episode.classes, episode.support, episode.support_y, episode.query[mine], episode.query_y[mine])
            )
        task = learner.task(*learner.collate(self.pool, own))
        measure = method.measure(method.stored_regions(task), task.query)  # (B, Q, N)
        accuracy = (measure.argmin(-1) == 0).double().mean(-1)
        distance = (measure[..., 0] + method.radius[self.anchor, 0]).double().mean(-1)  # eq. 2 without its radius
        return accuracy.tolist(), distance.tolist()

    def log(self) -> dict[str, float]:
        """Return a row of the log: accuracy and distance of the last episode, distance over the block, radius."""
        method = self.learner.method
        assert isinstance(method, HyperProto)
        distances, draws, forced = zip(*self.seen, strict=True)
        self.last, self.seen = self.accuracy, []
        return {
            "anchor_accuracy": self.accuracy,
            "anchor_distance": self.distance,
            "anchor_block_distance": float(np.mean(distances)),
            "anchor_radius": method.radius[self.anchor, 0].item(),
            "mean_radius": method.radius.mean().item(),
            "draws": float(np.mean(draws)),
            "forced": float(sum(forced)),
        }


def anchor_recipe(name: str | None, overrides: Sequence[str], seed: int) -> Recipe:
    """Read the recipe of the trainings, and make sure that a block is a row of the log."""
    own = OVERRIDES if name is None else []
    recipe = load_recipe(name or RECIPE, [*own, f"training.log_every={BLOCK}", f"training.seed={seed}", *overrides])
    steps, every = recipe.training.steps, recipe.training.log_every
    if recipe.method.name != "hyperproto" or recipe.episodes is None or recipe.stage_before is not None:
        raise ConfigError(f"fig6 trains hyperproto on episodes, from the start; {recipe.name} does something else")
    if steps % every or recipe.training.checkpoint_every % every or recipe.training.validate_every % every:
        raise ConfigError(
            f"fig6 logs every {every} steps (training.log_every), and training.steps, checkpoint_every and "
            f"validate_every must be multiples of it; they are {steps}, {recipe.training.checkpoint_every} and "
            f"{recipe.training.validate_every}"
        )
    return recipe


def radius_dynamics(
    folder: Path,
    recipe: Recipe,
    anchors: int,
    show: Show,
    *,
    warmup: int = WARMUP,
    draws: int = DRAWS,
) -> Numbers:
    """Train once for each anchor, below `folder`, or go on; return what was logged, and the cross-correlations."""
    pool = open_pool(recipe.data.spec, recipe.data.split)
    if not 1 <= anchors <= pool.n_classes:
        raise ConfigError(f"--anchors {anchors}: {pool} has {pool.n_classes} classes; give 1 to {pool.n_classes}")
    chosen = shuffled(recipe.training.seed, PICTURES, 0, pool.n_classes)[:anchors]
    names, found = class_words(pool), []
    for number, anchor in enumerate(chosen):

        def on_step(report: Any, number: int = number) -> None:
            total = anchors * report.steps
            show(number * report.steps + report.step, total, f"steps, anchor {number + 1} of {anchors}")

        source = partial(AnchorTasks, anchor=anchor, warmup=warmup, draws=draws)
        run = train(recipe, folder / f"anchor-{anchor}", on_step, source=source)
        found.append({"anchor": names[anchor], "class": anchor, **_series(run, warmup)})
    return {
        "recipe": recipe.name,
        "data": recipe.data.spec,
        "way": recipe.episodes.way if recipe.episodes else None,
        "seed": recipe.training.seed,
        "warmup": warmup,
        "block": recipe.training.log_every,
        "most_draws": draws,
        "anchors": found,
        "correlation": {key: cross_correlation(found, key) for key in ("distance", "block_distance")},
    }


def _series(run: Run, warmup: int) -> dict[str, Any]:
    """Return the log after the warm-up and two blocks, column by column."""
    rows = [row for row in run.read_metrics() if "anchor_radius" in row]
    block = rows[0]["step"] if rows else 0
    kept = [row for row in rows if row["step"] >= warmup + 2 * block]
    columns = {
        "step": "step", "distance": "anchor_distance", "block_distance": "anchor_block_distance",
        "radius": "anchor_radius", "mean_radius": "mean_radius", "accuracy": "anchor_accuracy", "draws": "draws",
        "forced": "forced",
    }  # fmt: skip
    return {name: [round(row[key], 6) for row in kept] for name, key in columns.items()}


def cross_correlation(anchors: Sequence[dict[str, Any]], key: str) -> dict[str, Any]:
    """Correlate the changes of the radius with those of the distance `lag` blocks before, mean over anchors.

    Changes are first differences, so that a common trend counts for nothing. At a positive lag the radius follows. Each
    anchor gives one correlation a lag; the interval is Student's over anchors, of Fisher's z, for all lags at once
    (Bonferroni). The claim holds if the largest mean is at a lag from 0 to 2 and its interval lies above 0.
    """
    most = min(MOST_LAG, min((len(anchor["step"]) for anchor in anchors), default=0) - 5)
    lags = list(range(-most, most + 1)) if most >= 0 else []
    rows: list[dict[str, Any]] = []
    for lag in lags:
        own = [_lagged(np.diff(anchor[key]), np.diff(anchor["radius"]), lag) for anchor in anchors]
        rows.append({"lag": lag, "anchors": own, **_interval(np.array(own), len(lags))})
    best = max(rows, key=lambda row: row["mean"], default=None)
    follows = best is not None and 0 <= best["lag"] <= 2 and best["low"] is not None and best["low"] > 0
    return {"lags": rows, "best_lag": None if best is None else best["lag"], "radius_follows": follows}


def _lagged(distance: Floats, radius: Floats, lag: int) -> float:
    """Return Pearson's correlation of distance[t] and radius[t + lag]; 0 where one does not vary."""
    size = len(distance) - abs(lag)
    a, b = distance[max(0, -lag) :][:size], radius[max(0, lag) :][:size]
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return 0.0
    return round(float(np.corrcoef(a, b)[0, 1]), 5)


def _interval(correlations: Floats, lags: int) -> dict[str, float | None]:
    z = np.arctanh(np.clip(correlations, -0.999999, 0.999999))
    mean = float(z.mean())
    if len(z) < 2:
        return {"mean": round(float(np.tanh(mean)), 5), "low": None, "high": None}
    half = float(stats.t.ppf(1 - 0.025 / lags, len(z) - 1) * z.std(ddof=1) / np.sqrt(len(z)))
    return {
        key: round(float(np.tanh(at)), 5) for key, at in (("mean", mean), ("low", mean - half), ("high", mean + half))
    }


def draw_radius(numbers: Numbers) -> Drawing:
    """Draw a panel for each anchor, with two scales, and below them the cross-correlation by lag."""
    anchors = numbers["anchors"]
    rows = -(-len(anchors) // COLUMNS)
    figure = Figure(figsize=(12, 2.5 * rows + 2.9), layout="constrained")
    drawing = Drawing(figure)
    upper, lower = figure.subfigures(2, 1, height_ratios=[2.5 * rows, 2.9], squeeze=False)[:, 0]
    grid = upper.subplots(rows, min(COLUMNS, len(anchors)), squeeze=False)
    for axis, anchor in zip(grid.ravel(), anchors, strict=False):
        _draw_anchor(drawing, axis, anchor, numbers)
    for axis in grid.ravel()[len(anchors) :]:
        axis.set_axis_off()
    upper.supxlabel("training step (grey: blocks of bad episodes)", fontsize=9)
    handles = {label: h for axis in upper.axes for h, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    upper.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=2, fontsize=9, frameon=False)
    titles = {"distance": "distance of the logged episode", "block_distance": "mean distance over the block"}
    for axis, (key, title) in zip(lower.subplots(1, 2, sharey=True), titles.items(), strict=True):
        _draw_correlation(drawing, axis, numbers["correlation"][key], title)
    lower.supylabel("correlation of changes", fontsize=9)
    return drawing


def _draw_anchor(drawing: Drawing, axis: Axes, anchor: dict[str, Any], numbers: Numbers) -> None:
    steps = np.array(anchor["step"])
    right = axis.twinx()
    for scale, key, label, colour, look in (
        (axis, "distance", DISTANCE, BLUE, "-"),
        (right, "radius", RADIUS, VERMILLION, "--"),
    ):
        line = scale.plot(
            steps, anchor[key], look, color=colour, linewidth=1.5, marker="o", markersize=2.6, label=label
        )
        words = [
            f"{anchor['anchor']}\nstep {s}: {key} {value:.4g}" for s, value in zip(steps, anchor[key], strict=True)
        ]
        places = np.stack([steps, anchor[key]], axis=1)
        series = drawing.belongs(label, line)
        drawing.spots.append(Points(scale, places, [drawing.tip(text) for text in words], series))
        scale.tick_params(axis="y", labelsize=7, colors=colour)
    block, start = numbers["block"], numbers["warmup"]
    for end in steps[(steps - start) // block % 2 == 0]:
        axis.axvspan(end - block, end, color="#999999", alpha=0.16, linewidth=0)
    axis.tick_params(axis="x", labelsize=7)
    axis.set_title(plain(anchor["anchor"][:34]), fontsize=9)
    axis.spines["top"].set_visible(False)
    right.spines["top"].set_visible(False)


def _draw_correlation(drawing: Drawing, axis: Axes, found: dict[str, Any], title: str) -> None:
    rows = found["lags"]
    lags, means = [row["lag"] for row in rows], [row["mean"] for row in rows]
    axis.axhline(0, color="black", linewidth=0.7)
    for row in rows:
        axis.scatter([row["lag"]] * len(row["anchors"]), row["anchors"], s=9, color="#999999", linewidths=0, zorder=2)
        if row["low"] is not None:
            axis.plot([row["lag"]] * 2, [row["low"], row["high"]], color=VERMILLION, linewidth=1.6, zorder=3)
    axis.scatter(lags, means, s=34, color=VERMILLION, zorder=4)
    words = [_lag_words(row) for row in rows]
    drawing.spots.append(Points(axis, np.array([lags, means]).T.reshape(-1, 2), [drawing.tip(text) for text in words]))
    style(axis)
    axis.set_xticks(lags)
    axis.set_xlabel("lag in blocks (above 0: the radius follows the distance)", fontsize=9)
    verdict = "the radius follows" if found["radius_follows"] else "not shown that the radius follows"
    axis.set_title(f"{title}: {verdict}", fontsize=9)


def _lag_words(row: dict[str, Any]) -> str:
    interval = "" if row["low"] is None else f" [{row['low']:.3f}, {row['high']:.3f}]"
    return f"lag {row['lag']}: mean correlation {row['mean']:.3f}{interval} over {len(row['anchors'])} anchors"


def lag_table(numbers: Numbers) -> Table:
    """Return head and rows: a row for each lag."""
    rows = []
    for key, words in (("distance", "of the logged episode"), ("block_distance", "over the block")):
        for row in numbers["correlation"][key]["lags"]:
            interval = "" if row["low"] is None else f"{row['low']:.3f} to {row['high']:.3f}"
            rows.append([words, str(row["lag"]), f"{row['mean']:.3f}", interval])
    return ["distance", "lag, blocks", "mean correlation of changes", "95 % interval, all lags at once"], rows


def _measure(request: Request, show: Show) -> Numbers:
    if not request.alone:
        raise NotGivenError(
            "fig6 trains once for each anchor class; make it by its own name, `hyperproto figure fig6 --out FOLDER`, "
            "and name its numbers, fig6.json, with --results"
        )
    recipe = anchor_recipe(request.recipe, request.overrides, request.seed)
    anchors = ANCHORS if request.anchors is None else request.anchors
    return radius_dynamics(request.out / "fig6-runs", recipe, anchors, show)


FIG6 = FigureDefinition(
    "Radius dynamics of anchor classes",
    "One training for each anchor; after the warm-up, blocks of good and bad episodes alternate. The claim of the "
    "paper: the radius follows the distance with a small lag. Below: correlation of the changes of the radius with "
    "the changes of the distance some blocks before; grey: each anchor, red: mean, 95 % interval for all lags at "
    "once.",
    _measure,
    draw_radius,
    lag_table,
    measured=True,
)
