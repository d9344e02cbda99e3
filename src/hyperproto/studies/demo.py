"""The demo, and the main job in small: train, evaluate on unseen scripts, compare in pairs, draw, write a page."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from hyperproto import __version__
from hyperproto.data import Pool, open_pool
from hyperproto.encoders import Encoder
from hyperproto.episodes import EpisodeSampler
from hyperproto.evaluation import Contender, EncodedPool, Result, compare, evaluate_contenders, mean_interval
from hyperproto.files import atomic_write
from hyperproto.progress import progress_bar
from hyperproto.regions import PRIOR_RATIO, Sphere
from hyperproto.reports import figures
from hyperproto.reports.page import Page
from hyperproto.training import load_recipe, train
from hyperproto.training.selection import Source, run_source, select

RECIPE = "glyphs"
TRAINED = ("protonet", "hyperproto")  # rows of the recipe, trained with the same budget
SHOTS: dict[str, int | list[int]] = {"1 shot": 1, "5 shots": 5, "shots 1,1,2,5,20": [1, 1, 2, 5, 20]}
EPISODES, WAY, QUERY, SEED = 2000, 5, 15, 0
TUNED = 0.5  # prior_ratio of the bayes fit, chosen on the validation scripts, as is C of logistic regression
C = 10.0
REFERENCE = "hyperproto bayes none prior_ratio=measured"  # what the paired differences are about


def run_demo(out: Path, console: Console) -> dict[str, Any]:
    """Do it all; return what report.json holds."""
    start = time.perf_counter()
    with progress_bar("draw glyphs") as show:
        pool = open_pool(RECIPE, "test", show)
    sources = [_trained(row, out, pool) for row in TRAINED]
    contenders = [contender for source in sources for contender in _contenders(source)]
    encoded: dict[Encoder, EncodedPool] = {}
    results: dict[str, list[Result]] = {}
    for name, shot in SHOTS.items():
        settings = {"way": WAY, "shot": shot, "query": QUERY, "episodes": EPISODES, "seed": SEED}
        episodes = EpisodeSampler(pool, way=WAY, shot=shot, query=QUERY, seed=SEED).draw(EPISODES)
        with progress_bar(f"evaluate, {name}") as show:
            results[name] = evaluate_contenders(contenders, pool, episodes, settings, encoded, show)
    report: dict[str, Any] = {
        "command": f"hyperproto demo --out {out}",
        "version": __version__,
        "results": [result.to_json() for column in results.values() for result in column],
        "comparisons": [{**row, "shot": SHOTS[name]} for name, column in results.items() for row in compare(column)],
    }
    console.print(_table(results))
    console.print(_differences(results))
    with progress_bar("draw the report") as show:
        _write_page(out, pool, sources, encoded, results, show)
    report["seconds"] = time.perf_counter() - start
    with atomic_write(out / "report.json") as file:
        file.write(json.dumps(report, indent=1).encode() + b"\n")
    console.print(f"{out / 'report.html'}, {out / 'report.json'}: written after {report['seconds']:.0f} s")
    return report


def _trained(row: str, out: Path, pool: Pool) -> Source:
    recipe = load_recipe(f"{RECIPE}:{row}")
    with progress_bar(f"train {row}") as show:
        run = train(recipe, out / row, lambda report: show(report.step, report.steps, report.words()))
    return run_source(str(run.folder), pool)


def _contenders(source: Source) -> list[Contender]:
    """Simple baselines, then HyperProto with every closed form, each with and without unit length."""
    plain, unit = ["none"], ["unit"]
    rows = [
        *select([source], ["protonet"], [], plain + unit, {}),
        *select([source], ["cosine"], [], plain, {}),
        *select([source], ["simpleshot"], [], [], {}),
        *select([source], ["nearest"], [], unit, {}),
        *select([source], ["logistic"], [], unit, {"C": C}),
        *select([source], ["hyperproto"], ["paper", "point", "unbiased", "bayes"], plain + unit, {}),
        *select([source], ["hyperproto"], ["paper"], plain, {"radius_distance": "plain"}),
        *select([source], ["hyperproto"], ["bayes"], plain, {"prior_ratio": TUNED}),
        *select([source], ["hyperproto"], ["bayes"], plain, {"prior_ratio": PRIOR_RATIO}),
        *select([source], ["hyperproto-cone", "hyperproto-gaussian"], ["paper", "unbiased"], plain, {}),
    ]
    trainer = Path(source.label).name
    return [replace(c, label=f"{trainer}: {c.label}") for c in rows]


def _cells(result: Result) -> str:
    accuracy, ci95 = mean_interval(result.values)
    return f"{100 * accuracy:.2f} ± {100 * ci95:.2f}"


def _rows(results: dict[str, list[Result]]) -> list[list[str]]:
    """One row a contender, one column for each kind of shots; a row of one cell opens an encoder's group."""
    rows, trainer = [], ""
    for column in zip(*results.values(), strict=True):
        before, _, label = column[0].label.partition(": ")
        if before != trainer:
            trainer = before
            rows.append([f"encoder trained by {trainer}"])
        rows.append([label, *map(_cells, column)])
    return rows


def _difference_rows(results: dict[str, list[Result]]) -> list[list[str]]:
    """What the reference gains on every other row of the same encoder, in pairs."""
    rows = []
    for trainer in TRAINED:
        reference = f"{trainer}: {REFERENCE}"
        rows.append([f"encoder trained by {trainer}"])
        columns = []
        for column in results.values():
            by_label = {result.label: result for result in column}
            own = [result for result in column if result.label.startswith(f"{trainer}:")]
            pairs = {r.label: compare([by_label[reference], r])[0] for r in own if r.label != reference}
            columns.append(pairs)
        for label in columns[0]:
            pairs_of_row = [column[label] for column in columns]
            cells = [f"{100 * pair['difference']:+.2f} ± {100 * pair['ci95']:.2f}" for pair in pairs_of_row]
            rows.append([label.partition(": ")[2], *cells])
    return rows


def _table(results: dict[str, list[Result]]) -> Table:
    hashes = ", ".join(f"{name}: {column[0].settings['episode_hash']}" for name, column in results.items())
    title = (
        f"Accuracy in %, 95 % intervals over {EPISODES} episodes of unseen scripts (glyphs test), {WAY}-way, "
        f"{QUERY} queries a class, seed {SEED}; episode hashes: {hashes}"
    )
    return _rich(title, ["method, closed form, transform", *results], _rows(results))


def _differences(results: dict[str, list[Result]]) -> Table:
    title = f"Paired difference in points: {REFERENCE} minus each other row, same encoder, same episodes"
    return _rich(title, ["minus", *results], _difference_rows(results))


def _rich(title: str, head: list[str], rows: list[list[str]]) -> Table:
    table = Table(title=title, title_justify="left")
    for number, name in enumerate(head):
        table.add_column(name, justify="right" if number else "left", no_wrap=number > 0)
    for row in rows:
        table.add_row(*row, style="bold" if len(row) == 1 else None)
    return table


def _write_page(
    out: Path,
    pool: Pool,
    sources: list[Source],
    encoded: dict[Encoder, EncodedPool],
    results: dict[str, list[Result]],
    show: Any,
) -> None:
    page = Page(
        "Classes as regions: few-shot recognition of unseen scripts",
        "Two Conv4 encoders, trained for the same number of steps on the same episodes of the built-in glyphs, one by "
        "ProtoNet and one by HyperProto; then every method on the same episodes of scripts that neither has seen.",
    )
    page.command(f"hyperproto demo --out {out}")
    page.heading("Accuracy")
    page.table(["method, closed form, transform", *results], _rows(results))
    page.note(
        f"A run measures its prior_ratio on the validation scripts; prior_ratio={TUNED} and C={C} were chosen there, "
        "everything else is the default. "
        f"Percent, with 95 % intervals over {EPISODES} {WAY}-way episodes, {QUERY} queries a class, seed {SEED}. One "
        "training seed per encoder: the intervals speak of episodes, not of trainings. Episode hashes: "
        + ", ".join(f"{name}: {column[0].settings['episode_hash']}" for name, column in results.items())
    )
    page.heading("Paired differences")
    page.table([f"{REFERENCE} minus", *results], _difference_rows(results))
    page.note("Points, same encoder, same episodes.")
    page.heading("Pictures")
    show(1, 5, "an episode")
    episode = EpisodeSampler(pool, way=WAY, shot=5, query=QUERY, seed=SEED)[0]
    page.picture(figures.contact_sheet(pool, episode), "The first test episode with 5 shots: support, then queries.")
    chosen = EpisodeSampler(pool, way=20, shot=0, query=40, seed=SEED)[0]
    names = [pool.class_names[n] for n in chosen.classes]
    for number, (row, source) in enumerate(zip(TRAINED, sources, strict=True), start=2):
        show(number, 5, "unseen classes in the plane")
        vectors = encoded[source.encoder].units.x[torch.from_numpy(chosen.query)].numpy()
        assert chosen.query_y is not None
        page.picture(
            figures.class_map(vectors, chosen.query_y, names, f"Twenty unseen classes, encoder trained by {row}"),
            "t-SNE of twenty unseen classes. Circles: how far each class reaches in this plane.",
        )
    show(4, 5, "distances and radii")
    x = encoded[sources[1].encoder].units.x.double().numpy()
    spheres = Sphere.fit(x[episode.support], episode.support_y, WAY)
    picked = np.concatenate([np.arange(QUERY * n, QUERY * n + 5) for n in range(WAY)])
    page.picture(
        figures.distance_heatmap(
            spheres.measure(x[episode.query[picked]]),
            [pool.class_names[n] for n in episode.classes],
            "Five queries of each class against each sphere",
        ),
        "Measure of 25 queries to the five hyperspheres of the episode above (fit bayes).",
    )
    metrics = [json.loads(line) for line in (out / TRAINED[1] / "metrics.jsonl").read_text().splitlines()]
    page.picture(
        figures.radius_curves(metrics, "Learned radii of twelve training classes, centred"),
        "Only differences of radii matter in the softmax, so the mean over all classes is subtracted.",
    )
    page.write(out / "report.html")
    show(5, 5, "done")
