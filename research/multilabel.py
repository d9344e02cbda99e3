"""Labels of Few-NERD's sentences: multi-label classifiers on frozen vectors, at a few examples a label.

A sentence carries the types of the entities in it: `coarse` (8) or `fine` (13 or 17). Of 6,000 different sentences of
a split, half are to draw examples from; the others are classified. Examples are drawn until each label has as many as
asked for, rarest label first, so that frequent labels have more. Settings were chosen on the split dev.

    python -m research.multilabel --split test --draws 5 --json results/multilabel/fewnerd.json
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, f1_score

from hyperproto import MultiLabelClassifier, TextEncoder, open_pool
from hyperproto.heads.label_regions import count_threshold
from hyperproto.progress import progress_bar
from hyperproto.regions.arrays import Doubles
from hyperproto.reports.tables import write_results
from research import command_of
from research.intents.__main__ import measure_tables
from research.intents.over_draws import OverDraws
from research.intents.setfit import SetFit

SENTENCES = 6000  # different sentences of a split that are used
UNLABELLED = 1000  # of those that are to draw from
LEVELS = ("coarse", "fine")
STRENGTHS = (0.1, 1.0, 10.0, 100.0)  # C of logistic regression
CHOSEN = {1: 100.0, 5: 0.1, 20: 0.1}  # C by shots, of the split dev
FOLDS, BINS = 3, 15
OURS = "regions"
Members = NDArray[np.bool_]
Answer = tuple[Members, Doubles | None]  # predicted labels (n, L) and their probabilities


@dataclass(frozen=True, eq=False)
class Sentences:
    """Encoded sentences and the labels that they carry."""

    texts: list[str]
    x: NDArray[np.float32]  # (n, D)
    member: Members  # (n, L)
    names: NDArray[np.float32]  # (L, D) of the labels


def load(split: str) -> dict[str, Sentences]:
    """Read the sentences of a split, with their coarse and their fine types."""
    pool = open_pool("fewnerd", split)
    assert pool.offsets is not None
    sentence = np.repeat(np.arange(len(pool)), np.diff(pool.offsets))
    typed = pool.labels >= 0
    fine = np.zeros((len(pool), pool.n_classes), dtype=bool)
    fine[sentence[typed], pool.labels[typed]] = True
    texts = [" ".join(words) for words in pool.items]
    first: dict[str, int] = {}
    for place, text in enumerate(texts):
        first.setdefault(text, place)
    kept = np.random.default_rng(0).permutation(sorted(first.values()))[:SENTENCES]
    texts, fine = [texts[place] for place in kept], fine[kept]
    parts = [name.split("-", 1) for name in pool.class_names]
    kinds = sorted({kind for kind, _ in parts})
    coarse = np.stack([fine[:, [kind == other for other, _ in parts]].any(axis=1) for kind in kinds], axis=1)
    encoder = TextEncoder("minilm", progress=True)
    x = encoder.transform(texts)
    words = {"coarse": kinds, "fine": [f"{own.replace('/', ' ')} {kind}" for kind, own in parts]}
    members = {"coarse": coarse, "fine": fine}
    return {level: Sentences(texts, x, members[level], encoder.transform(words[level])) for level in LEVELS}


def drawn(member: Members, shots: int, among: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Draw examples until each label has `shots` of them, the rarest label first, or has no more."""
    random = np.random.default_rng([seed, shots])
    chosen: list[int] = []
    count = np.zeros(member.shape[1], dtype=int)
    for label in np.argsort(member[among].sum(axis=0), kind="stable"):
        for place in random.permutation(among[member[among, label]]).tolist():
            if count[label] >= shots:
                break
            if place not in chosen:
                chosen.append(place)
                count += member[place]
    return np.array(chosen)


def logistic(x: Any, member: Members, asked: Any, strength: float) -> Doubles:
    """Return the probabilities (n, L) of one balanced logistic regression a label."""
    found = np.zeros((len(asked), member.shape[1]))
    for label, truth in enumerate(member.T):
        if truth.all() or not truth.any():  # in a fold
            found[:, label] = truth.mean()
        else:
            model = LogisticRegression(C=strength, class_weight="balanced", max_iter=1000).fit(x, truth)
            found[:, label] = model.predict_proba(asked)[:, 1]
    return found


def cross_validated(x: Any, member: Members, strength: float) -> float:
    """Return the threshold at which cross-validation predicts as many labels as the examples carry."""
    fold, found = np.arange(len(x)) % min(FOLDS, len(x)), np.zeros(member.shape)
    for number in range(int(fold.max()) + 1):
        here = fold == number
        found[here] = logistic(x[~here], member[~here], x[here], strength)
    return count_threshold(found, member)


Fit = Callable[[Sentences, NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]], Answer]


def ours(with_names: bool, with_unlabelled: bool) -> Fit:
    """Return a function that fits our classifier with some of the evidence."""

    def answer(data: Sentences, support: Any, asked: Any, others: Any) -> Answer:
        names = dict(enumerate(data.names)) if with_names else None
        unlabelled = data.x[others] if with_unlabelled else None
        y = data.member[support].astype(int)
        model = MultiLabelClassifier().fit(data.x[support], y, names=names, unlabelled=unlabelled)
        return model.predict(data.x[asked]).astype(bool), model.predict_proba(data.x[asked])

    return answer


def regression(strength: float, tuned: bool) -> Fit:
    """Return a function that fits logistic regression, with the threshold 1/2 or a `tuned` one."""

    def answer(data: Sentences, support: Any, asked: Any, others: Any) -> Answer:
        unit = data.x / np.linalg.norm(data.x, axis=1, keepdims=True)
        x, member = unit[support], data.member[support]
        probabilities = logistic(x, member, unit[asked], strength)
        threshold = cross_validated(x, member, strength) if tuned else 0.5
        return probabilities > threshold, probabilities

    return answer


def setfit(python: str) -> Fit:
    """Return a function that fits SetFit in another interpreter."""

    def answer(data: Sentences, support: Any, asked: Any, others: Any) -> Answer:
        texts, labels = [data.texts[place] for place in support], data.member[support].astype(int).tolist()
        found = SetFit(python, "minilm", texts, labels, [data.texts[place] for place in asked])
        return found.labels.astype(bool), None

    return answer


def methods(shots: int, every: bool, python: str | None) -> dict[str, Fit]:
    """Return the methods by name; with `every`, logistic regression at every strength."""
    found = {
        OURS: ours(False, False),
        f"{OURS}, names": ours(True, False),
        f"{OURS}, unlabelled": ours(False, True),
        f"{OURS}, both": ours(True, True),
    }
    for strength in STRENGTHS if every else (CHOSEN[shots],):
        mark = f", C={strength:g}" if every else ""
        found[f"logistic regression{mark}"] = regression(strength, False)
        found[f"logistic regression{mark}, tuned threshold"] = regression(strength, True)
    if python is not None:
        found["setfit"] = setfit(python)
    return found


def calibration_error(probabilities: Doubles, truth: Members) -> float:
    """Return the mean distance of probability and frequency over all rows and labels, in 15 equal bins."""
    place = np.minimum((probabilities * BINS).astype(int), BINS - 1).ravel()
    gap = np.bincount(place, (probabilities - truth).ravel(), minlength=BINS)
    return float(np.abs(gap).sum() / truth.size)


def measured(answer: Answer, truth: Members) -> dict[str, float]:
    """Return F1 and, if there are probabilities, mean average precision over labels and calibration error."""
    predicted, probabilities = answer
    found = {f"{kind}_f1": f1_score(truth, predicted, average=kind, zero_division=0) for kind in ("micro", "macro")}
    if probabilities is None:
        return found
    there = truth.any(axis=0)
    precision = average_precision_score(truth[:, there], probabilities[:, there], average="macro")
    return {**found, "average_precision": precision, "calibration_error": calibration_error(probabilities, truth)}


def study(options: argparse.Namespace) -> dict[str, Any]:
    """Measure all methods on the same draws."""
    found = OverDraws("shots", "labels", "method")
    hashes: dict[str, list[str]] = {}
    splits = load(options.split)
    some = np.random.default_rng(0).permutation(SENTENCES)
    pool, asked = np.sort(some[: SENTENCES // 2]), some[SENTENCES // 2 :][: options.tested]
    others = np.random.default_rng(1).permutation(pool)[:UNLABELLED]
    total, done = len(LEVELS) * len(options.shots) * options.draws, 0
    with progress_bar("fewnerd") as show:
        for level, data in splits.items():
            for shots in options.shots:
                fits = methods(shots, options.strengths, options.setfit)
                if options.methods:
                    fits = {name: fit for name, fit in fits.items() if name in options.methods}
                for draw in range(options.draws):
                    support = drawn(data.member, shots, pool, draw)
                    hashes.setdefault(f"{level} {shots}", []).append(sha256(support.tobytes()).hexdigest()[:16])
                    for name, fit in fits.items():
                        values = measured(fit(data, support, asked, others), data.member[asked])
                        found.add((str(shots), level, name), **values)
                    done += 1
                    show(done, total)
    differences = [
        row
        for reference in (OURS, f"{OURS}, names")
        for level in LEVELS
        for row in found.against((level, reference), ("micro_f1", "macro_f1"))
        if row["labels"] == level
        for row in ({**row, "reference": reference},)
    ]
    return {"results": found.rows(), "differences": differences, "supports": hashes, "tested": len(asked)}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the study, print its tables, and write JSON with --json."""
    parser = argparse.ArgumentParser(prog="python -m research.multilabel", description=__doc__)
    parser.add_argument("--split", choices=("dev", "test"), default="test")
    parser.add_argument("--shots", nargs="+", type=int, choices=sorted(CHOSEN), default=sorted(CHOSEN))
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--tested", type=int, default=SENTENCES, help="sentences that are classified at most")
    parser.add_argument("--strengths", action="store_true", help="logistic regression at every strength")
    parser.add_argument("--methods", nargs="+", metavar="METHOD", help="these only, not all of them")
    parser.add_argument("--setfit", metavar="PYTHON", help="measure SetFit, too, which this interpreter has")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every number there")
    options = parser.parse_args(arguments)
    found = study(options)
    for table in measure_tables(found["results"]):
        Console(width=140).print(table)
    if options.json:
        facts = {"data": "fewnerd", "split": options.split, "encoder": "minilm", "sentences": SENTENCES}
        facts |= {"unlabelled": UNLABELLED, "draws": options.draws}
        write_results(options.json, {"command": command_of("multilabel", arguments), **facts, **found})


if __name__ == "__main__":
    main()
