"""Measure the class doctor: wrong labels, overlaps, merge and split suggestions.

    python -m research.doctor --data banking77 --json results/intents/doctor-banking77.json

*Wrong labels.* In a support of K training texts a class, 5 % of the labels are changed to another class at random.
Precision and recall of the examples that each rule reports, and the average precision of its order:

- `mislabelled`: the doctor, odds of 10 or more by leave-one-out;
- `self-confidence`: as cleanlab does, from the same leave-one-out probabilities. A label is wrong if a class whose
  probability is at least its mean over the examples of that label is likelier than the given one; ordered by the
  probability of the given label;
- `k-NN`: of NEIGHBOURS neighbours, those with the label have less than KNN_SHARE of the votes (their cosines).
  Both numbers were chosen on HWU64.

*Overlaps.* The overlap of each class with its rival as `diagnose` states it, against that of all other texts.

*Merges and splits.* PLANTED classes get two labels at random; PLANTED pairs of classes get one label.
"""

import argparse
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from sklearn.metrics import average_precision_score

from hyperproto import HypersphereClassifier
from hyperproto.progress import progress_bar
from hyperproto.reports.tables import write_results
from research import command_of
from research.intents.over_draws import OverDraws
from research.intents.texts import Intents, load_intents

DATA = ("hwu64", "banking77", "clinc150")
SHOTS = (5, 20)
FLIPPED = 0.05
KNN_SHARE, NEIGHBOURS = 0.05, 10
PLANTED = 6
WIDEST = 0.5  # interval of an overlap that is shown

Rows = NDArray[Any]


def support_of(y: Rows, shots: int, random: np.random.Generator) -> Rows:
    """Draw `shots` rows of each class."""
    return np.concatenate([random.permutation(np.flatnonzero(y == n))[:shots] for n in range(int(y.max()) + 1)])


def wrong_labels(data: Intents, shots: int, seed: int, values: OverDraws) -> str:
    """Measure the rules on one draw; return the hash of the support."""
    random = np.random.default_rng(seed)
    rows = support_of(data.train_y, shots, random)
    x, truth, way = data.train[rows], data.train_y[rows], len(data.classes)
    given = truth.copy()
    changed = random.choice(len(rows), round(FLIPPED * len(rows)), replace=False)
    given[changed] = (truth[changed] + random.integers(1, way, len(changed))) % way
    wrong = given != truth
    model = HypersphereClassifier().fit(x, given)
    place = np.searchsorted(model.classes_, given)
    reports = model.diagnose().mislabelled
    odds = np.zeros(len(rows))
    odds[[each.example for each in reports]] = [each.odds for each in reports]
    measured = _measured(odds > 0, odds, wrong)
    right = [each.suggestion == truth[each.example] for each in reports if wrong[each.example]]
    values.add((str(shots), "mislabelled"), **measured, suggestion_right=float(np.mean(right or [np.nan])))
    found, confidence = confident_rule(model.left_out_proba_, place)
    values.add((str(shots), "self-confidence"), **_measured(found, -confidence, wrong))
    votes = neighbour_votes(x, given, NEIGHBOURS)
    values.add((str(shots), "k-NN"), **_measured(votes < KNN_SHARE, -votes, wrong))
    return sha256(rows.astype(np.int64).tobytes()).hexdigest()[:16]


def _measured(found: Rows, score: Rows, wrong: Rows) -> dict[str, float]:
    hits = float((found & wrong).sum())
    return {
        "precision": hits / max(int(found.sum()), 1),
        "recall": hits / int(wrong.sum()),
        "average_precision": float(average_precision_score(wrong, score)),
    }


def confident_rule(probabilities: Rows, labels: Rows) -> tuple[Rows, Rows]:
    """Return which labels are wrong by the rule of confident learning, and the probability of the given label."""
    probabilities = np.where(np.isnan(probabilities), 1.0, probabilities)  # alone in their class: not judged
    own = probabilities[np.arange(len(labels)), labels]
    limits = np.bincount(labels, own, probabilities.shape[1]) / np.maximum(np.bincount(labels), 1)
    confident = np.where(probabilities >= limits - 1e-6, probabilities, -1.0)
    return (confident.argmax(axis=1) != labels) & (confident.max(axis=1) >= 0), own


def neighbour_votes(x: Rows, labels: Rows, number: int) -> Rows:
    """Return the share of the votes of the nearest neighbours that have the label (n,)."""
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    similar = unit @ unit.T
    np.fill_diagonal(similar, -np.inf)
    nearest = np.argsort(-similar, axis=1)[:, :number]
    votes = np.maximum(np.take_along_axis(similar, nearest, axis=1), 0.0)
    share: Rows = ((labels[nearest] == labels[:, None]) * votes).sum(axis=1) / np.maximum(votes.sum(axis=1), 1e-12)
    return share


def overlaps(data: Intents, shots: int, seed: int) -> list[tuple[float, ...]]:
    """Return stated overlap, its interval, and the overlap of all other texts, for each class."""
    rows = support_of(data.train_y, shots, np.random.default_rng(seed))
    model = HypersphereClassifier().fit(data.train[rows], data.train_y[rows])
    rest = np.setdiff1d(np.arange(len(data.train)), rows)
    x = np.concatenate([data.train[rest], data.test]).astype(float)
    y = np.concatenate([data.train_y[rest], data.test_y])
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    means, found = model.means_, []
    for report in model.diagnose().classes:
        a, b = means[report.label], means[report.rival]
        beyond = x @ (a - b) - (a + b) @ (a - b) / 2
        true = float((beyond[y == report.label] < 0).mean() + (beyond[y == report.rival] > 0).mean())
        stated = (value or 0.0 for value in (report.overlap, report.overlap_low, report.overlap_high))
        found.append((*stated, true))
    return found


def by_tenth(found: Sequence[tuple[float, ...]]) -> dict[str, Any]:
    """Summarise overlaps: means, coverage of the intervals, and stated against measured by tenth of the stated ones."""
    table = np.array(found)
    said, low, high, true = table.T
    parts = np.array_split(table[np.argsort(said, kind="stable")], 10)
    return {
        "said": round(float(said.mean()), 5),
        "measured": round(float(true.mean()), 5),
        "correlation": round(float(np.corrcoef(said, true)[0, 1]), 5) if true.std() > 0 else None,
        "covered": round(float(((low <= true) & (true <= high)).mean()), 5),
        "shown": round(float((high - low <= WIDEST).mean()), 5),
        "tenths": [[round(float(part[:, 0].mean()), 5), round(float(part[:, 3].mean()), 5)] for part in parts],
    }


def changes(data: Intents, shots: int, seed: int, values: OverDraws) -> None:
    """Count merge and split suggestions: planted ones that are found, and others."""
    random = np.random.default_rng(seed)
    y, way = data.train_y, len(data.classes)
    rows, chosen = support_of(y, shots, random), random.permutation(way)
    plain = HypersphereClassifier().fit(data.train[rows], y[rows]).diagnose()
    doubled, labels = rows, y[rows]
    for n in chosen[:PLANTED]:  # `shots` examples under either label, if the class has as many
        own = random.permutation(np.flatnonzero(y == n))[: 2 * shots]
        doubled = np.concatenate([doubled[labels != n], own])
        labels = np.concatenate([labels[labels != n], np.where(np.arange(len(own)) % 2, n, way + n)])
    merged = HypersphereClassifier().fit(data.train[doubled], labels).diagnose().merges
    labels = y[rows].copy()
    for a, b in chosen[: 2 * PLANTED].reshape(-1, 2):
        labels[labels == b] = a
    split = HypersphereClassifier().fit(data.train[rows], labels).diagnose().splits
    pairs = [abs(int(each.labels[0]) - int(each.labels[1])) == way for each in merged]
    joined = [each.label in chosen[: 2 * PLANTED : 2] for each in split]
    values.add(
        (str(shots),),
        merges_found=sum(pairs),
        other_merges=len(pairs) - sum(pairs),
        splits_found=sum(joined),
        other_splits=len(joined) - sum(joined),
        merges_unchanged=len(plain.merges),
        splits_unchanged=len(plain.splits),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the study on one data set; print its rows, or write them as JSON."""
    parser = argparse.ArgumentParser(prog="python -m research.doctor", description=__doc__)
    parser.add_argument("--data", choices=DATA, required=True)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    content = {"command": command_of("doctor", arguments), **measure(load_intents(options.data), options.draws)}
    if options.json:
        write_results(options.json, content)
    console = Console(width=200)
    for row in [*content["wrong_labels"], *content["changes"], *content["overlaps"]]:
        shown = {name: value["mean"] if isinstance(value, dict) else value for name, value in row.items()}
        console.print(shown, highlight=False)


def measure(data: Intents, draws: int) -> dict[str, Any]:
    """Measure everything on draws 0, 1, ... of the support."""
    labels, changed = OverDraws("shots", "rule"), OverDraws("shots")
    hashes: dict[str, list[str]] = {}
    stated: dict[int, list[tuple[float, ...]]] = {shots: [] for shots in SHOTS}
    with progress_bar(data.name) as show:
        for step, (shots, seed) in enumerate((shots, seed) for shots in SHOTS for seed in range(draws)):
            show(step, draws * len(SHOTS))
            hashes.setdefault(str(shots), []).append(wrong_labels(data, shots, seed, labels))
            stated[shots] += overlaps(data, shots, seed)
            changes(data, shots, seed, changed)
    return {
        "data": data.name,
        "split": "train; overlaps: texts of train that were not drawn, and test",
        "draws": draws,
        "flipped": FLIPPED,
        "planted": PLANTED,
        "supports": hashes,
        "wrong_labels": labels.rows(),
        "overlaps": [{"shots": shots, **by_tenth(found)} for shots, found in stated.items()],
        "changes": changed.rows(),
    }


if __name__ == "__main__":
    main()
