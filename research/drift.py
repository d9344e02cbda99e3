"""Drift: size of its tests without drift, and power when classes appear or shares change; HWU64 and vectors.

    python -m research.drift --draws 100 --json results/robustness/drift.json --figure docs/images/drift-power.png

Each draw takes some classes, a support of them, and 300 new texts, drawn from the rest. `level` is the share of tests
with a p-value below 5 %. Without drift it is the size, also measured with 1,000 new items. Out-of-class texts are of
left-out classes. The class shares are changed by drawing a third of the classes three times as often. Constants were
chosen on draws 0 to 199; the study starts at draw 1000.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from hyperproto import HypersphereClassifier
from hyperproto.progress import progress_bar
from hyperproto.reports.tables import write_results
from research import command_of
from research.intents.texts import load_intents

SHARES = (0.0, 0.05, 0.1, 0.2)  # of new items that are out-of-class
SHOTS = (5, 20)
NEW, MANY, LEFT_OUT, LEVEL = 300, 1000, 0.25, 0.05
FIRST = 1000  # seed of the first draw; those below were used to choose constants
CHANGED, NO_DRIFT = "shares changed", f"no drift, {MANY:,} new"
REFERENCES = ("examples", "unlabelled", "given")
Rows = NDArray[np.floating[Any]]


def texts(x: Rows, y: NDArray[np.int64], shots: int, random: np.random.Generator) -> tuple[Any, ...]:
    """Return support, its labels, natural items of the known classes, and items of left-out classes."""
    classes = random.permutation(int(y.max()) + 1)
    known = classes[int(LEFT_OUT * len(classes)) :]
    support = np.concatenate([random.permutation(np.flatnonzero(y == n))[:shots] for n in known])
    rest = np.setdiff1d(np.arange(len(y)), support)
    inside = np.isin(y[rest], known)
    own, others = random.permutation(rest[inside]), random.permutation(rest[~inside])
    return x[support], y[support], x[own], y[own], x[others]


def vectors(shots: int, random: np.random.Generator) -> tuple[Any, ...]:
    """Return the same of Gaussian classes of unequal width and share, in 32 dimensions."""
    way, dim = 12, 32
    centers, width = 1.2 * random.normal(size=(way + 4, dim)), np.exp(0.2 * random.normal(size=way + 4))

    def rows(classes: NDArray[np.int64]) -> Rows:
        found: Rows = centers[classes] + width[classes, None] * random.normal(size=(len(classes), dim))
        return found

    support = np.repeat(np.arange(way), shots)
    own = random.choice(way, 2 * (NEW + MANY), p=random.dirichlet(np.full(way, 3.0)))
    return rows(support), support, rows(own), own, rows(random.integers(way, way + 4, NEW))


def measured(parts: tuple[Any, ...], transform: str, random: np.random.Generator) -> dict[str, bool]:
    """Return whether each test of each reference is below the level, by `reference, test, change`."""
    x, y, own, own_y, others = parts
    before, rest, rest_y = own[:NEW], own[NEW:], own_y[NEW:]
    plain = HypersphereClassifier(feature_transform=transform).fit(x, y)
    fitted = HypersphereClassifier(feature_transform=transform).fit(x, y, unlabelled=before)
    kinds = {f"out-of-class {share:.0%}": _mixed(rest, others, share, random) for share in SHARES}
    tripled = np.isin(rest_y, random.permutation(np.unique(rest_y))[: len(np.unique(rest_y)) // 3])
    kinds[NO_DRIFT] = rest[:MANY]
    kinds[CHANGED] = rest[random.choice(len(rest), NEW, p=(1 + 2 * tripled) / (1 + 2 * tripled).sum())]
    found = {}
    for change, new in kinds.items():
        for reference in REFERENCES:
            model = fitted if reference == "unlabelled" else plain
            report = model.drift(new, before if reference == "given" else None)
            for test in report.tests:
                found[f"{reference}, {test.quantity}, {change}"] = bool(test.raw_p_value < LEVEL)
            found[f"{reference}, any (Holm), {change}"] = report.drifted
    return found


def _mixed(own: Rows, others: Rows, share: float, random: np.random.Generator) -> Rows:
    number = round(share * NEW)
    return np.concatenate([own[random.permutation(len(own))[: NEW - number]], others[:number]])


def draw_power(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw the power of the corrected tests against the share of out-of-class items, and at changed class shares."""
    from matplotlib.figure import Figure
    from PIL import Image

    level = {(row["data"], row["shots"], row["test"]): 100 * row["level"] for row in rows}
    names = list(dict.fromkeys(row["data"] for row in rows))
    figure = Figure(figsize=(8.5, 4.1), layout="constrained")
    axes = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
    shares, aside = [100 * share for share in SHARES], 26
    for axis, data in zip(axes, names, strict=True):
        for reference, colour in zip(REFERENCES, ("tab:blue", "tab:orange", "tab:green"), strict=True):
            for shots, style, face in zip(SHOTS, ("--", "-"), ("white", colour), strict=True):
                test = f"{reference}, any (Holm)"
                power = [level[data, shots, f"{test}, out-of-class {share:.0%}"] for share in SHARES]
                look = {"color": colour, "marker": "o", "markerfacecolor": face, "markersize": 5}
                axis.plot(shares, power, style, label=f"{reference}, {shots} shots", **look)
                axis.plot([aside], [level[data, shots, f"{test}, {CHANGED}"]], **look)
        axis.axhline(100 * LEVEL, color="grey", linewidth=0.8)
        axis.set_xticks([*shares, aside], [*(f"{share:g}" for share in shares), "class shares\nchanged"])
        axis.set_title({"hwu64": "HWU64, MiniLM", "vectors": "Gaussian vectors"}[data], fontsize=10)
        axis.set_xlabel(f"out-of-class items among {NEW} new ones, %")
    axes[0].set_ylabel("drift reported, % of draws")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=3, fontsize=8, title="compared with", frameon=False
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    image = Image.open(path).convert("RGB")
    image.quantize(256).save(path, optimize=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the study, print its rows, write JSON and draw the figure."""
    parser = argparse.ArgumentParser(prog="python -m research.drift", description=__doc__)
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--data", nargs="+", choices=("hwu64", "vectors"), default=["hwu64", "vectors"])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args(arguments)
    rows = []
    for data in options.data:
        if data == "hwu64":
            intents = load_intents(data)
            x, y = np.concatenate([intents.train, intents.test]), np.concatenate([intents.train_y, intents.test_y])
        for shots in SHOTS:
            counts: dict[str, int] = {}
            with progress_bar(f"{data}, {shots} shots") as show:
                for seed in range(options.draws):
                    show(seed, options.draws)
                    random = np.random.default_rng(FIRST + seed)
                    parts = vectors(shots, random) if data == "vectors" else texts(x, y, shots, random)
                    transform = "none" if data == "vectors" else "unit"
                    for name, below in measured(parts, transform, random).items():
                        counts[name] = counts.get(name, 0) + below
            for name, count in counts.items():
                level = {"level": count / options.draws, "ci95": _half(count, options.draws)}
                rows.append({"data": data, "shots": shots, "test": name, **level})
    for row in rows:
        line = f"{row['data']:8} {row['shots']:3} {row['test']:45} {row['level']:.3f} ± {row['ci95']:.3f}"
        Console(width=120).print(line, highlight=False)
    if options.json:
        facts = {
            "draws": options.draws,
            "new": NEW,
            "classes left out": LEFT_OUT,
            "seeds": [FIRST, FIRST + options.draws - 1],
        }
        write_results(options.json, {"command": command_of("drift", arguments), **facts, "results": rows})
    if options.figure:
        draw_power(rows, options.figure)


def _half(count: int, number: int) -> float:
    """Return half the width of a 95 % interval of a share, of Agresti and Coull."""
    share = (count + 2) / (number + 4)
    return round(float(1.96 * np.sqrt(share * (1 - share) / (number + 4))), 5)


if __name__ == "__main__":
    main()
