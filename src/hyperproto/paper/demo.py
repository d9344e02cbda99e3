"""The demo: train two encoders on glyphs, evaluate on unseen scripts, compare in pairs, draw."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hyperproto import __version__
from hyperproto.comparison.measure import evaluate_candidates, select
from hyperproto.data import Pool, open_pool
from hyperproto.encoders import Encoder
from hyperproto.episodes import EpisodeSampler
from hyperproto.evaluation import EncodedPool, Result, compare
from hyperproto.methods.stored import watched_classes
from hyperproto.problems import mean_interval, paired_difference
from hyperproto.progress import Show
from hyperproto.regions import PRIOR_RATIO, Sphere
from hyperproto.reports import pictures as figures
from hyperproto.reports.page import Page
from hyperproto.reports.tables import TextTable, write_results
from hyperproto.training import Run, load_recipe, train
from hyperproto.training.sources import Candidate, Source, run_source

RECIPE = "glyphs"
TRAINED = ("protonet", "hyperproto")  # rows of the recipe, trained with the same budget
QUERY, SEED = 15, 0
TUNED = 0.5  # prior_ratio of the bayes fit, chosen on the validation scripts, as is C of logistic regression
C = 10.0
SHOWN = 20  # unseen classes in the picture


# The rows that the page opens with, by their labels: "encoder trained by: method closed-form transform options".
SHORT = {
    "protonet: protonet point none": "ProtoNet, on its own encoder",
    "hyperproto: protonet point none": "ProtoNet",
    "hyperproto: cosine point none": "Cosine prototypes",
    "hyperproto: simpleshot point center-unit": "CL2N (SimpleShot)",
    "hyperproto: nearest point unit": "Nearest neighbour",
    "hyperproto: logistic point unit C=10.0": "Logistic regression",
    "hyperproto: hyperproto paper none radius_distance=plain": "HyperProto, the paper's radius",
    "hyperproto: hyperproto bayes none prior_ratio=measured": "HyperProto, Bayes fit",
}
OURS = "hyperproto: hyperproto bayes none prior_ratio=measured"
SAME_FIT = "protonet: hyperproto bayes none prior_ratio=measured"  # on the other encoder
THEIRS = "protonet: protonet point none"
TITLE = "Accuracy on unseen scripts, % (± 95 % intervals over episodes); HyperProto's encoder, but in the first row"
BEST, LEVEL = "*", "="
MARKS = (
    f"{BEST} the best of its column; {LEVEL} level with it: the 95 % interval of the paired difference to the best "
    "includes 0."
)
DIGITS = (
    "Why the last digits differ on another machine: sums of floating-point numbers depend on the order in which they "
    "are taken, and that depends on the processor, the number of threads and the version of torch. The same seeds draw "
    "the same episodes everywhere, but 300 training steps carry such differences on. Two threads against one moved "
    "accuracies by up to 0.3 points, and by up to 2.2 points where validation then chose the weights of another step; "
    "smaller differences than that may turn around."
)


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure with its heading and its caption."""

    heading: str
    png: bytes
    caption: str


@dataclass(frozen=True, eq=False)
class DemoReport:
    """Results of the demo by type of episodes, in the same order in each, and the pictures."""

    command: str
    columns: dict[str, list[Result]]
    notes: Sequence[str]  # what was trained, chosen and drawn
    pictures: Sequence[Picture]
    seconds: float

    def takeaway(self) -> str:
        """Return one sentence: where HyperProto is better than ProtoNet, level, or worse."""
        pairs = {name: self._difference(name, OURS, THEIRS) for name in self.columns}
        better = [name for name, (mean, half) in pairs.items() if mean - half > 0]
        worse = [name for name, (mean, half) in pairs.items() if mean + half < 0]
        level = [name for name in pairs if name not in (*better, *worse)]
        opening = "HyperProto with the Bayes fit against ProtoNet, each on the encoder that it trained"
        if len(level) == len(pairs):
            return (
                f"{opening}: no difference that these episodes can show in any of the {len(pairs)} kinds of episodes."
            )
        parts = []
        for word, names in (("better", better), ("worse", worse)):
            if names:
                most = max(names, key=lambda name: abs(pairs[name][0]))
                share = "all" if len(names) == len(pairs) else f"{len(names)} of"
                parts.append(f"{word} in {share} {len(pairs)} kinds of episodes, most in {self._against(most)}")
        if level:
            parts.append(f"level in {' and in '.join(level)}")
        return f"{opening}: {'; '.join(parts)}."

    def _against(self, column: str) -> str:
        ours, theirs = (100 * self._result(column, label).values.mean() for label in (OURS, THEIRS))
        mean, half = self._difference(column, OURS, THEIRS)
        return f"{column}: {ours:.1f} % against {theirs:.1f} %, a paired difference of {_signed(mean, half)} points"

    def fit_alone(self) -> str:
        """Return what the Bayes fit gains without HyperProto's training, on the encoder that ProtoNet trained."""
        gains = [f"{name}: {_signed(*self._difference(name, SAME_FIT, THEIRS))}" for name in self.columns]
        return f"The Bayes fit alone, on ProtoNet's encoder, minus ProtoNet, in points: {'; '.join(gains)}."

    def short_rows(self, intervals: bool = True) -> list[list[str]]:
        """Return a row for each method of SHORT: name, and accuracy in percent by type of episodes, the best marked."""
        rows = []
        for label, words in SHORT.items():
            cells = []
            for name in self.columns:
                mean, half = mean_interval(self._result(name, label).values)
                number = f"{100 * mean:.2f} ± {100 * half:.2f}" if intervals else f"{100 * mean:.1f}"
                cells.append(f"{number} {self._mark(name, label)}")
            rows.append([words, *cells])
        return rows

    def _mark(self, column: str, label: str) -> str:
        """Return BEST for the best row of SHORT, LEVEL where the paired difference to it may be 0, else a blank."""
        best = max(SHORT, key=lambda other: self._result(column, other).values.mean())
        mean, half = self._difference(column, best, label)
        return BEST if label == best else LEVEL if mean - half <= 0 else " "

    def table(self) -> TextTable:
        """Return the rows of SHORT for a terminal: with intervals, and in a narrower form without."""
        head = ["", *(name.replace(", ", "\n", 1) for name in self.columns)]
        narrower = TextTable(TITLE, head, self.short_rows(intervals=False))
        return TextTable(TITLE, head, self.short_rows(), narrower=narrower)

    def all_rows(self) -> list[list[str]]:
        """Return a row for each candidate; a row of one cell opens the group of an encoder."""
        rows, trainer = [], ""
        for column in zip(*self.columns.values(), strict=True):
            before, _, label = column[0].label.partition(": ")
            if before != trainer:
                trainer = before
                rows.append([f"encoder trained by {trainer}"])
            rows.append([label, *(_percent(result) for result in column)])
        return rows

    def difference_rows(self) -> list[list[str]]:
        """Return paired differences in points, the Bayes fit minus every other row of the same encoder."""
        rows = []
        for reference in (SAME_FIT, OURS):
            trainer, _, own = reference.partition(": ")
            rows.append([f"encoder trained by {trainer}"])
            first = next(iter(self.columns.values()))
            for result in first:
                before, _, label = result.label.partition(": ")
                if before == trainer and label != own:
                    pairs = [self._difference(name, reference, result.label) for name in self.columns]
                    rows.append([label, *(_signed(*pair) for pair in pairs)])
        return rows

    def to_json(self) -> dict[str, Any]:
        """Return every result and every paired difference; metrics are fractions."""
        comparisons = []
        for results in self.columns.values():
            task = {key: results[0].settings[key] for key in ("way", "shot")}
            comparisons += [{**row, **task} for row in compare(results)]
        return {
            "command": self.command,
            "version": __version__,
            "takeaway": self.takeaway(),
            "results": [result.to_json() for results in self.columns.values() for result in results],
            "comparisons": comparisons,
            "seconds": self.seconds,
        }

    def write_page(self, path: Path) -> None:
        """Write the page: the sentence, the chart, eight rows, pictures; every other number is folded below."""
        page = Page("Classes as regions: few-shot recognition of unseen scripts", self.takeaway())
        chart = {
            name: [(words, *mean_interval(self._result(name, label).values)) for label, words in SHORT.items()]
            for name in self.columns
        }
        page.picture(figures.accuracy_chart(chart), f"{TITLE}.")
        rows = self.short_rows()
        strong = {(y, x) for y, row in enumerate(rows) for x, cell in enumerate(row) if cell.endswith(BEST)}
        page.table(["method", *self.columns], rows, strong)
        page.note(f"{MARKS} One training of each encoder: the intervals speak of episodes, not of other trainings.")
        page.text(self.fit_alone())
        for picture in self.pictures:
            page.heading(picture.heading)
            page.picture(picture.png, picture.caption)
        page.heading("How it was made")
        page.command(self.command)
        for note in (*self.notes, DIGITS):
            page.note(note)
        hashes = ", ".join(f"{name}: {results[0].settings['episode_hash']}" for name, results in self.columns.items())
        with page.folded(f"All {len(next(iter(self.columns.values())))} rows: every method, closed form and transform"):
            page.table(["method, closed form, transform", *self.columns], self.all_rows())
            page.note(f"Percent, with 95 % intervals over episodes. Episode hashes: {hashes}")
        with page.folded("Paired differences: the Bayes fit minus every other row of the same encoder"):
            page.table([f"{OURS.partition(': ')[2]}, minus", *self.columns], self.difference_rows())
            page.note("Points, same encoder, same episodes, with 95 % intervals.")
        page.write(path)

    def _result(self, column: str, label: str) -> Result:
        return next(result for result in self.columns[column] if result.label == label)

    def _difference(self, column: str, a: str, b: str) -> tuple[float, float]:
        return paired_difference(self._result(column, a).values, self._result(column, b).values)


def _percent(result: Result) -> str:
    mean, half = mean_interval(result.values)
    return f"{100 * mean:.2f} ± {100 * half:.2f}"


def _signed(mean: float, half: float) -> str:
    return f"{round(100 * mean, 2) + 0.0:+.2f} ± {100 * half:.2f}"  # no -0.00


@dataclass(frozen=True)
class EpisodeKind:
    """Way, shots and number of a list of episodes; all lists have the same number of queries."""

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
    out.mkdir(parents=True, exist_ok=True)  # an error here comes before the work
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
    """Return simple baselines, then HyperProto with every closed form, each with and without unit length."""
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
