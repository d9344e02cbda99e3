"""The demo, which is the main job in small: train, evaluate on unseen scripts, compare in pairs, draw."""

import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from hyperproto.comparison.measure import evaluate_candidates
from hyperproto.comparison.selection import select
from hyperproto.data import Pool, open_pool
from hyperproto.encoders import Encoder
from hyperproto.episodes import EpisodeSampler
from hyperproto.evaluation import EncodedPool, Result
from hyperproto.methods.stored import watched_classes
from hyperproto.progress import Show
from hyperproto.regions import PRIOR_RATIO, Sphere
from hyperproto.reports import pictures as figures
from hyperproto.reports.demo_page import DemoReport, Picture
from hyperproto.reports.tables import write_results
from hyperproto.training import Run, load_recipe, train
from hyperproto.training.sources import Candidate, Source, run_source

RECIPE = "glyphs"
TRAINED = ("protonet", "hyperproto")  # rows of the recipe, trained with the same budget
QUERY, SEED = 15, 0
TUNED = 0.5  # prior_ratio of the bayes fit, chosen on the validation scripts, as is C of logistic regression
C = 10.0
SHOWN = 20  # unseen classes in the picture


@dataclass(frozen=True)
class EpisodeKind:
    """A kind of episodes; each has as many queries in all."""

    name: str
    way: int
    shot: int | list[int]
    episodes: int


TASKS = (
    EpisodeKind("5-way, 1 shot", 5, 1, 2000),
    EpisodeKind("5-way, 5 shots", 5, 5, 2000),
    EpisodeKind("5-way, shots 1,1,2,5,20", 5, [1, 1, 2, 5, 20], 2000),
    EpisodeKind("20-way, 1 shot", 20, 1, 500),
    EpisodeKind("20-way, 5 shots", 20, 5, 500),
)


def run_demo(out: Path, show: Show) -> DemoReport:
    """Train both encoders below `out` (or go on with what is there), score every method, write a page and pictures.

    `show(done, total, note)` is called all along; each part of the work has a total of its own.
    """
    start = time.perf_counter()
    pool = open_pool(RECIPE, "test", lambda done, total: show(done, total, "classes of glyphs drawn"))
    sources = {row: _trained(row, out, pool, show) for row in TRAINED}
    candidates = [candidate for source in sources.values() for candidate in _candidates(source)]
    encoded: dict[Encoder, EncodedPool] = {}
    columns: dict[str, list[Result]] = {}
    for task in TASKS:
        shape = {"way": task.way, "shot": task.shot, "query": QUERY, "seed": SEED}
        episodes = EpisodeSampler(pool, way=task.way, shot=task.shot, query=QUERY, seed=SEED).draw(task.episodes)
        settings = {**shape, "episodes": task.episodes}
        columns[task.name] = evaluate_candidates(
            candidates, pool, episodes, settings, encoded, _noted(show, f"episodes scored, {task.name}")
        )
    vectors = encoded[sources["hyperproto"].encoder].units.x.double().numpy()
    pictures = _pictures(pool, vectors, Run(out / "hyperproto"), _noted(show, "pictures drawn:"))
    report = DemoReport(f"hyperproto demo --out {out}", columns, _notes(), pictures, time.perf_counter() - start)
    report.write_page(out / "report.html")
    for picture in pictures:  # docs/images/episode.png is one of them
        (out / f"{picture.heading.lower().replace(' ', '-')}.png").write_bytes(picture.png)
    write_results(out / "report.json", report.to_json())
    return report


def _trained(row: str, out: Path, pool: Pool, show: Show) -> Source:
    recipe = load_recipe(f"{RECIPE}:{row}")
    run = train(recipe, out / row, lambda report: show(report.step, report.steps, f"steps of {report.words()}"))
    return run_source(str(run.folder), pool)


def _noted(show: Show, words: str) -> Show:
    return lambda done, total, note="": show(done, total, f"{words} {note}".strip())


def _candidates(source: Source) -> list[Candidate]:
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


def _notes() -> list[str]:
    counts = {f"{task.way}-way": task.episodes for task in TASKS}
    return [
        "Two Conv4 encoders, trained for as many steps on the same episodes of the built-in glyphs, one by "
        "ProtoNet and one by HyperProto; then every method on the same episodes of scripts that neither has seen.",
        f"{' and '.join(f'{number} {way} episodes' for way, number in counts.items())} of each kind, {QUERY} queries a "
        f"class, seed {SEED}. A run measures its prior_ratio on the validation scripts; prior_ratio={TUNED} and C={C} "
        "were chosen there, everything else is the default. The paper's radius is read as a mean of plain distances; "
        "that of squared ones is among all rows.",
    ]


def _pictures(pool: Pool, vectors: figures.Floats, run: Run, show: Show) -> list[Picture]:
    """Draw an episode, unseen classes, radii and distances; `vectors` are those of HyperProto's encoder."""
    show(0, 4, "an episode")
    task = next(task for task in TASKS if (task.way, task.shot) == (5, 5))
    episode = EpisodeSampler(pool, way=task.way, shot=task.shot, query=QUERY, seed=SEED)[0]
    support, query = vectors[episode.support], vectors[episode.query]
    centers = Sphere.fit(support, episode.support_y, task.way, mode="unbiased").center
    middle = centers.mean(axis=0)
    axes = np.linalg.svd(centers - middle, full_matrices=False)[2][:2].T  # (D, 2)
    plane = (np.concatenate([support, query]) - middle) @ axes
    pictures = [
        Picture(
            "An episode with its spheres",
            figures.episode_figure(pool, episode, plane, (centers - middle) @ axes),
            "The first test episode with 5 shots a class. Right: the vectors of its images, projected onto the plane "
            "in which the class centres vary most; each circle is around the mean of the class's support and covers "
            f"{100 * figures.SHARE:.0f} % of its points.",
        )
    ]
    show(1, 4, "unseen classes in the plane")
    chosen = EpisodeSampler(pool, way=SHOWN, shot=0, query=40, seed=SEED)[0]
    assert chosen.query_y is not None
    names = [pool.class_names[n] for n in chosen.classes]
    tsne = figures.tsne(vectors[chosen.query].astype(np.float32))
    pictures.append(
        Picture(
            "Unseen classes as regions",
            figures.class_map(tsne, chosen.query_y, names, f"{SHOWN} classes of unseen scripts"),
            f"t-SNE of {SHOWN} unseen classes, 40 images each, encoder trained by HyperProto. Each circle is around "
            f"the class's mean and covers {100 * figures.SHARE:.0f} % of its points in this plane, whose distances are "
            "not those of the embedding space.",
        )
    )
    show(2, 4, "radii over training")
    rows = [row for row in run.read_metrics() if "radii" in row]
    classes = open_pool(RECIPE, "train").class_names
    watched = [classes[n] for n in watched_classes(len(classes)).tolist()]
    radii = np.array([row["radii"] for row in rows])
    title = f"Learned radii of {len(watched)} of the {len(classes)} training classes"
    pictures.append(
        Picture(
            "Radii over training",
            figures.radius_curves([row["step"] for row in rows], radii, watched, title),
            "Only differences of radii matter in the softmax, so the mean over all classes is subtracted.",
        )
    )
    show(3, 4, "distances")
    spheres = Sphere.fit(support, episode.support_y, task.way)
    picked = np.concatenate([np.arange(QUERY * n, QUERY * n + 5) for n in range(task.way)])
    pictures.append(
        Picture(
            "Queries against spheres",
            figures.distance_heatmap(
                spheres.measure(query[picked]),
                [pool.class_names[n] for n in episode.classes],
                "Five queries of each class against each sphere",
            ),
            "Measure of 25 queries to the five hyperspheres of the episode above (Bayes fit).",
        )
    )
    show(4, 4, "done")
    return pictures
