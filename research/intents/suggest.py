"""Accuracy by the number of labels, for strategies that choose what to label next.

    python -m research.intents.suggest --data banking77 --pool all --json results/intents/suggest-banking77.json
    python -m research.intents.suggest --figure docs/images/suggest.png results/intents/suggest-*.json

A pool is a draw of training texts whose labels are shown when a strategy asks for them; all test texts are classified.
`unequal`: 150 texts of one class, 75 of the next, 150 / rank of each. The start is class names without an example, or
one example of an eighth of the classes; the others are found by labelling. The classifier is ours for all strategies,
fitted anew after every round. The BALD strategy takes ten draws of the centres from our posterior.
"""

import argparse
import warnings
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.preprocessing import normalize

from hyperproto import HypersphereClassifier
from hyperproto.files import atomic_write, read_json
from hyperproto.problems.base import paired_difference
from hyperproto.progress import progress_bar
from hyperproto.reports.tables import write_results
from research import command_of
from research.intents.over_draws import OverDraws
from research.intents.texts import Intents, load_intents

LABELS = (25, 50, 100)
ROUND, LATE_ROUND = 5, 10  # texts labelled in a round, up to 50 labels and later
POOLS = ("all", "unequal")
MOST = 2000  # texts of a pool
LARGEST = 150  # texts of the first class of `unequal`
STARTS = ("names", "examples")
SAMPLES = 10  # of the posterior, for BALD
CLUSTERS = 300  # of TypiClust at most
NEIGHBOURS = 20  # of TypiClust's typicality
OURS = "suggest"

Rows = NDArray[Any]


class Labelling:
    """Pool of one draw, the labels seen so far, and the classifier of these labels."""

    def __init__(self, data: Intents, names: Rows | None, rows: Rows, start: Rows, seed: int) -> None:
        self.pool, self.y = normalize(data.train[rows]), data.train_y[rows]
        self.names = names
        self.seen = start
        self.random = np.random.default_rng(seed)

    @property
    def left(self) -> Rows:
        """Positions in the pool without a label."""
        return np.setdiff1d(np.arange(len(self.pool)), self.seen)

    def fit(self) -> HypersphereClassifier:
        """Fit to the labels seen so far."""
        x, y = (self.pool[self.seen], self.y[self.seen]) if len(self.seen) else (None, None)
        names = None if self.names is None else dict(enumerate(self.names))
        return HypersphereClassifier().fit(x, y, names=names)


Strategy = Callable[[Labelling, HypersphereClassifier, int], Sequence[int] | Rows]


def ours(task: Labelling, model: HypersphereClassifier, n: int) -> Rows:
    """Take what `suggest` suggests."""
    left = task.left
    return left[[each.index for each in model.suggest(task.pool[left], n)]]


def at_random(task: Labelling, model: HypersphereClassifier, n: int) -> Rows:
    """Take any."""
    found: Rows = task.random.choice(task.left, n, replace=False)
    return found


def least_confidence(task: Labelling, model: HypersphereClassifier, n: int) -> Rows:
    """Take the least largest probability."""
    left = task.left
    return left[np.argsort(model.predict_proba(task.pool[left]).max(axis=1), kind="stable")[:n]]


def margin(task: Labelling, model: HypersphereClassifier, n: int) -> Rows:
    """Take the least difference of the two largest probabilities ("breaking ties")."""
    left = task.left
    best = np.sort(model.predict_proba(task.pool[left]), axis=1)
    return left[np.argsort(best[:, -1] - best[:, -2], kind="stable")[:n]]


def bald(task: Labelling, model: HypersphereClassifier, n: int) -> Rows:
    """Take the largest mutual information of the label and the class centres (Houlsby et al. 2011)."""
    left = task.left
    region: Any = model.region_
    rows, k = region.whiten(task.pool[left].astype(np.float64)), float(region.ratio)
    spread = float(((rows - rows.mean(axis=0)) ** 2).sum(axis=1).mean())
    v = float(region.scatter) or spread / (1 + 1 / k)
    count = np.array([(task.y[task.seen] == label).sum() for label in model.classes_])
    deviation = np.sqrt(v / rows.shape[1] / (count + k))[:, None]
    mean, entropy = 0.0, 0.0
    for _ in range(SAMPLES):
        center = region.center + deviation * task.random.standard_normal(region.center.shape)
        scores = (2 * rows @ center.T - (center**2).sum(axis=1) + region.bias_radius) / model.temperature_
        power = np.exp(scores - scores.max(axis=1, keepdims=True))
        share = power / power.sum(axis=1, keepdims=True)
        mean, entropy = mean + share / SAMPLES, entropy + _entropy(share) / SAMPLES
    return left[np.argsort(entropy - _entropy(mean), kind="stable")[:n]]


def _entropy(share: Any) -> Any:
    return -(share * np.log(np.maximum(share, 1e-12))).sum(axis=1)


def k_means(task: Labelling, model: HypersphereClassifier, n: int) -> Rows:
    """Take the texts nearest to the centres of `n` clusters of those without a label."""
    left = task.left
    rows = task.pool[left]
    centers = KMeans(n, n_init=1, max_iter=50, random_state=int(task.random.integers(1 << 30))).fit(rows)
    away = 2 - 2 * rows @ normalize(centers.cluster_centers_).T
    found: Rows = left[np.unique(away.argmin(axis=0))]
    return found


def typiclust(task: Labelling, model: HypersphereClassifier, n: int) -> list[int]:
    """Take the most typical text of each of the largest clusters with the fewest labels (Hacohen et al. 2022)."""
    number = min(len(task.seen) + n, CLUSTERS)
    made = KMeans(number, n_init=1, max_iter=20, random_state=int(task.random.integers(1 << 30))).fit(task.pool)
    covered = np.bincount(made.labels_[task.seen], minlength=number)
    order = np.lexsort((-np.bincount(made.labels_, minlength=number), covered))
    found: list[int] = []
    for cluster in order.tolist():
        own = np.setdiff1d(np.flatnonzero(made.labels_ == cluster), task.seen)
        if len(own) and len(found) < n:
            near = np.sort(task.pool[own] @ task.pool[own].T, axis=1)[:, -NEIGHBOURS:]
            found.append(int(own[near.mean(axis=1).argmax()]))
    return found


STRATEGIES: dict[str, Strategy] = {
    OURS: ours,
    "random": at_random,
    "least confidence": least_confidence,
    "margin": margin,
    "BALD": bald,
    "k-means": k_means,
    "TypiClust": typiclust,
}


def pool_of(data: Intents, pool: str, random: np.random.Generator) -> Rows:
    """Draw the training texts of a pool."""
    if pool == "all":
        return random.permutation(len(data.train))[:MOST]
    order, parts = random.permutation(len(data.classes)), []
    for rank, label in enumerate(order, 1):
        own = random.permutation(np.flatnonzero(data.train_y == label))
        parts.append(own[: max(2, LARGEST // rank)])
    return np.concatenate(parts)


def measure(data: Intents, pool: str, draws: int, show: Any) -> dict[str, Any]:
    """Measure every strategy from every start on the same pools."""
    values, hashes = OverDraws("labels", "start", "strategy"), []
    flagged: list[tuple[bool, bool]] = []  # of the items that ours asks for: marked as a new class, and is of one
    test, names, way = normalize(data.test), normalize(data.names), len(data.classes)
    total = draws * len(STARTS) * len(STRATEGIES)
    for draw in range(draws):
        random = np.random.default_rng(draw)
        rows = pool_of(data, pool, random)
        labels = data.train_y[rows]
        some = random.choice(np.unique(labels), way // 8, replace=False)
        few = np.array([random.choice(np.flatnonzero(labels == label)) for label in some])
        hashes.append(sha256(np.concatenate([rows, few]).astype(np.int64).tobytes()).hexdigest()[:16])
        for start in STARTS:
            for number, (name, strategy) in enumerate(STRATEGIES.items()):
                done = (draw * len(STARTS) + STARTS.index(start)) * len(STRATEGIES) + number
                show(done, total, f"draw {draw + 1}, {start}, {name}")
                named = start == "names"
                first = np.empty(0, np.int64) if named else few
                task = Labelling(data, names if named else None, rows, first, draw)
                while (got := len(task.seen) - len(first)) < LABELS[-1]:
                    model, n = task.fit(), ROUND if got < 50 else LATE_ROUND
                    wanted = min(n, next(at for at in LABELS if at > got) - got)
                    if name == OURS:
                        left = task.left
                        found = model.suggest(task.pool[left], wanted)
                        new = left[[each.index for each in found]]
                        known = set(task.y[task.seen].tolist())
                        flagged += [
                            (each.new_class, int(task.y[row]) not in known)
                            for each, row in zip(found, new, strict=True)
                            if not named
                        ]
                        score = found[0].score
                    else:
                        new, score = np.asarray(strategy(task, model, wanted)), None
                    task.seen = np.concatenate([task.seen, new])
                    got = len(task.seen) - len(first)
                    if got in LABELS:
                        right = float((task.fit().predict(test) == data.test_y).mean())
                        classes = len(np.unique(task.y[task.seen]))
                        more = {} if score is None else {"score": score}
                        values.add((str(got), start, name), accuracy=right, classes=classes, **more)
    marked = np.array(flagged)
    return {
        "reference": OURS,
        "pools": hashes,
        "results": values.rows(),
        "comparisons": _comparisons(values),
        "new_class": {
            "asked": len(marked),
            "marked": int(marked[:, 0].sum()),
            "of a new class": int(marked[:, 1].sum()),
            "marked and of a new class": int(marked.all(axis=1).sum()),
        },
    }


def _comparisons(values: OverDraws) -> list[dict[str, Any]]:
    """Return the accuracy of ours minus that of every other strategy, paired over draws."""
    found = []
    for (labels, start, name), row in values.values.items():
        if name != OURS:
            own = np.array(values.values[labels, start, OURS]["accuracy"])
            mean, half = paired_difference(own, np.array(row["accuracy"]))
            difference = {"difference": round(mean, 5), "ci95": None if np.isnan(half) else round(half, 5)}
            found.append({"labels": labels, "start": start, "strategy": name, "accuracy": difference})
    return found


def draw(results: Sequence[dict[str, Any]], target: Path) -> None:
    """Draw the accuracy by the number of labels: a column for each file of results, a row for each start."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.2 * len(results), 5), layout="constrained")
    axes = figure.subplots(len(STARTS), len(results), squeeze=False)
    for column, content in enumerate(results):
        for row, start in enumerate(STARTS):
            ax = axes[row][column]
            for name in STRATEGIES:
                own = [each for each in content["results"] if (each["start"], each["strategy"]) == (start, name)]
                points = [100 * each["accuracy"]["mean"] for each in own]
                width = 2.5 if name == OURS else 1.2
                ax.plot(LABELS, points, marker="o", markersize=3, linewidth=width, label=name)
            kind = "class names, no example" if start == "names" else "one example of an eighth of the classes"
            ax.set_title(f"{content['data']}, {content['pool']}\n{kind}", fontsize=8)
            ax.set_xticks(LABELS)
            ax.tick_params(labelsize=7)
    for ax in axes[-1]:
        ax.set_xlabel("labels", fontsize=8)
    for line in axes:
        line[0].set_ylabel("accuracy on all classes (%)", fontsize=8)
    handles, names = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=4, fontsize=8)
    with atomic_write(target) as file:
        figure.savefig(file, format="png", dpi=110)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write JSON."""
    parser = argparse.ArgumentParser(prog="python -m research.intents.suggest", description=__doc__)
    parser.add_argument("--data", choices=("hwu64", "clinc150", "banking77"))
    parser.add_argument("--pool", choices=POOLS, default="all")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the numbers there")
    parser.add_argument("--figure", type=Path, metavar="PNG", help="draw the files given after it, and measure nothing")
    parser.add_argument("files", type=Path, nargs="*", help="files of results to draw")
    options = parser.parse_args(arguments)
    if options.figure is not None:
        draw([read_json(path) for path in options.files], options.figure)
        return
    if options.json is None or options.data is None:
        parser.error("give --data and --json, or --figure and files")
    data = load_intents(options.data)
    with progress_bar(options.data) as show, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # k-means of equal texts; classes with one example
        found = measure(data, options.pool, options.draws, show)
    facts = {"data": options.data, "pool": options.pool, "draws": options.draws, "encoder": data.encoder}
    write_results(options.json, {"command": command_of("intents.suggest", arguments), **facts, **found})


if __name__ == "__main__":
    main()
