"""Rejection measured against what is promised: rules on test texts, and risk by the share answered.

    python -m research.intents rejection --data hwu64 --shots 5 20 --draws 5 --json intents-hwu64-rejection.json
    python -m research.intents.rejection docs/images/rejection.png results/intents/intents-*-rejection.json

A quarter of the classes is left out; models have class names. *Genuine* texts are test texts of the other classes. Risk
is the share of wrong answers among genuine texts that are answered, the most probable answers first.
"""

import argparse
import warnings
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import normalize

from hyperproto import HypersphereClassifier
from hyperproto.errors import ConfigError
from hyperproto.files import atomic_write, read_json
from research.intents.left_out import known_classes
from research.intents.over_draws import OverDraws
from research.intents.supports import Supports
from research.intents.texts import Intents

RULES = (("reject_rate", 0.05), ("reject_rate", 0.1), ("precision", 0.9), ("precision", 0.95), ("coverage", 0.9))
PROMISED = {rule: 1 - rule for rule in (0.9, 0.95)}  # risk, of the rules `precision`
REJECTED = -1  # the reject label among numbers
SHARES = np.arange(1, 21) / 20  # shares of texts answered, of the curves

Rows = NDArray[Any]


def rejection(data: Intents, supports: Supports, prior_ratio: float) -> dict[str, Any]:
    """Measure what each rule rejects and how precise its answers are, against what the model expects of itself."""
    values, curves = OverDraws("shots", "rule"), OverDraws("shots", "share")
    way = len(data.classes)
    for shot, rows in supports:
        known = known_classes(way, supports.index)
        own, genuine = rows[np.isin(data.train_y[rows], known)], np.isin(data.test_y, known)
        names = {int(n): data.names[n] for n in known}
        model = HypersphereClassifier(prior_ratio=prior_ratio)
        model.fit(normalize(data.train[own]), data.train_y[own], names=names)
        test = normalize(data.test)
        for share, risks in risk_by_share(model, test[genuine], data.test_y[genuine]).items():
            curves.add((shot, share), **risks)
        for rule, value in RULES:
            settings: dict[str, Any] = {"reject_rate": None, "precision": None, "coverage": None, rule: value}
            model.set_params(**settings)
            values.add((shot, f"{rule}={value}"), **measured(model, test, data.test_y, genuine))
    return {"supports": supports.hashes, "results": values.rows(), "curves": curves.rows()}


def measured(model: HypersphereClassifier, rows: Rows, y: Rows, genuine: Rows) -> dict[str, float]:
    """Return rejected shares and the precision of answers, measured and expected; what is undefined is left out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of thresholds that the examples do not support, which is seen in the shares
        answer, expected = model.predict(rows), model.expected_
    kept = answer != REJECTED
    found = {
        "genuine_answered": float(kept[genuine].mean()),
        "genuine_rejected": 1 - float(kept[genuine].mean()),
        "outside_rejected": 1 - float(kept[~genuine].mean()),
    }
    if kept[genuine].any():
        found["precision"] = float((answer == y)[kept & genuine].mean())
    promised = {
        "expected_genuine_rejected": expected.rejected,
        "expected_outside_rejected": expected.outside_rejected,
        "expected_precision": expected.precision,
    }
    return {**found, **{name: value for name, value in promised.items() if value is not None}}


def risk_by_share(model: HypersphereClassifier, rows: Rows, y: Rows) -> dict[str, dict[str, float]]:
    """Return the risk among the share of rows (n, D) with the largest probabilities, and its leave-one-out estimate."""
    probability = model.predict_proba(rows)
    wrong = model.classes_[probability.argmax(axis=1)] != y
    order = np.argsort(-probability.max(axis=1), kind="stable")
    risk = np.cumsum(wrong[order]) / np.arange(1, len(y) + 1)
    found = {f"{share:.2f}": {"risk": float(risk[int(np.ceil(share * len(y))) - 1])} for share in SHARES}
    try:
        expected = model.risk_coverage_
    except ConfigError:  # one example a class
        return found
    for share in SHARES:
        at = min(int(np.searchsorted(expected.answered, share - 1e-9)), len(expected.answered) - 1)
        found[f"{share:.2f}"]["expected_risk"] = 1 - float(expected.precision[at])
    return found


def draw(results: Sequence[dict[str, Any]], target: Path) -> None:
    """Draw the risk by the share answered: a column for each file of results, a row for each number of shots."""
    from matplotlib.figure import Figure
    from PIL import Image

    shots = list(dict.fromkeys(row["shots"] for content in results for row in content["curves"]))
    figure = Figure(figsize=(3.1 * len(results), 2.4 * len(shots) + 0.4), layout="constrained")
    axes = figure.subplots(len(shots), len(results), squeeze=False, sharex=True, sharey="row")
    for column, content in enumerate(results):
        for row, shot in enumerate(shots):
            draw_curve(axes[row][column], content, shot)
    for ax in axes[-1]:
        ax.set_xlabel("share answered (%)", fontsize=8)
    for line in axes:
        line[0].set_ylabel("wrong among the answers (%)", fontsize=8)
        line[0].set_ylim(bottom=0)
    handles, names = axes[-1][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=3, fontsize=8)
    drawn = BytesIO()
    figure.savefig(drawn, format="png", dpi=110)
    with atomic_write(target) as file:
        Image.open(drawn).convert("RGB").quantize(256).save(file, format="png")  # small


def draw_curve(ax: Any, content: dict[str, Any], shot: str) -> None:
    """Draw measured and expected risk of one data set, and what each precision promises and does."""
    curve = [row for row in content["curves"] if row["shots"] == shot]
    share = [100 * float(row["share"]) for row in curve]
    ax.plot(share, [100 * row["risk"]["mean"] for row in curve], linewidth=2, color="C0", label="measured")
    if "expected_risk" in curve[0]:
        expected = [100 * row["expected_risk"]["mean"] for row in curve]
        ax.plot(share, expected, "--", linewidth=1.2, color="C1", label="expected, by leave-one-out")
    for number, (precision, risk) in enumerate(PROMISED.items()):
        color, marker = f"C{2 + number}", "os"[number]
        rule = f"precision={precision}"
        ax.axhline(100 * risk, linewidth=0.8, linestyle=":", color=color, label=f"promised by {rule}")
        [found] = [row for row in content["results"] if (row["shots"], row["rule"]) == (shot, rule)]
        answered = np.array(found["genuine_answered"]["draws"])
        if answered.any():  # all answers together: draws without an answer have no precision
            wrong = 1 - np.array(found["precision"]["draws"])
            at = 100 * answered.mean(), 100 * np.average(wrong, weights=answered[answered > 0])
            ax.plot(*at, marker, markersize=6, color=color, linestyle="none", label=f"answers of {rule}")
    ax.set_title(f"{content['data'].upper()}, {shot} examples a class", fontsize=8)
    ax.tick_params(labelsize=7)


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw the figure of files of results."""
    parser = argparse.ArgumentParser(prog="python -m research.intents.rejection", description=__doc__)
    parser.add_argument("figure", type=Path, metavar="PNG")
    parser.add_argument("files", type=Path, nargs="+", help="files of results to draw")
    options = parser.parse_args(arguments)
    draw([read_json(path) for path in options.files], options.figure)


if __name__ == "__main__":
    main()
