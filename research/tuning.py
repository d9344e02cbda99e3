"""Tuning a frozen encoder on the examples: a low-rank map of the whitened vectors, fitted by leave-one-out.

    python -m research.tuning --data hwu64 --draws 5 --json results/intents/tuning-hwu64.json

A map L = I + M acts on the whitened rows f of the Bayes spheres. With c_m(i) the centre of class m without example i,
M minimises

    mean over i of -log softmax_m(-(||L (f_i - c_m(i))||^2 - eps_m) / T) at m = y_i, plus RIDGE ||M||^2

and keeps its RANK largest singular values. RIDGE, RANK and T were chosen on HWU64's valid texts at 10 and 20 shots.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import normalize
from torch import Tensor

from hyperproto import HypersphereClassifier
from hyperproto.progress import progress_bar
from hyperproto.regions import Sphere
from hyperproto.reports.tables import write_results
from research import command_of
from research.intents.__main__ import measure_tables
from research.intents.classifiers import EXACT
from research.intents.evidence import STRENGTH
from research.intents.over_draws import OverDraws
from research.intents.supports import Supports
from research.intents.texts import Intents, load_intents
from research.journal import Journal, Measured

RIDGE = 0.03
RANK = 64
SOFT = 20.0  # T = 2 v / SOFT, v the scatter, as in `hyperproto.heads.softmax`
STEPS = 60  # of L-BFGS
REFERENCE = ("map",)

Rows = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Spheres:
    """Whitened examples (n, D), centres (N, D), and the centre of each example's own class without it (n, D)."""

    rows: Tensor
    y: Tensor  # (n,)
    center: Tensor
    left_out: Tensor
    radius: Tensor  # (N,) eps
    temperature: float

    @classmethod
    def of(cls, model: HypersphereClassifier, x: Rows, y: Rows) -> Self:
        """Return those of a model fitted to unit vectors `x` and labels 0 to N - 1; each class has two examples."""
        region = model.region_
        assert isinstance(region, Sphere)
        assert region.whiten is not None
        rows = torch.from_numpy(region.whiten(x.astype(np.float64)))
        labels = torch.from_numpy(y)
        member = torch.nn.functional.one_hot(labels).to(rows.dtype)  # (n, N)
        count, ratio = member.sum(0), float(region.ratio)
        mean = member.T @ rows / count[:, None]
        weight = count / (count + ratio)
        middle = weight @ mean / weight.sum()
        rest = count[labels, None] - 1
        mean_left = (count[labels, None] * mean[labels] - rows) / rest
        left_out = middle + rest / (rest + ratio) * (mean_left - middle)
        center, radius = (torch.from_numpy(np.asarray(part)) for part in (region.center, region.bias_radius))
        return cls(rows, labels, center, left_out, radius, 2 * float(region.scatter) / SOFT)

    def loss(self, change: Tensor) -> Tensor:
        """Return the leave-one-out loss of M (D, D), without the ridge."""
        rows, center, left_out = (part + part @ change for part in (self.rows, self.center, self.left_out))
        distance = (rows**2).sum(1, keepdim=True) - 2 * rows @ center.T + (center**2).sum(1)  # (n, N)
        own = ((rows - left_out) ** 2).sum(1, keepdim=True)
        distance = distance.scatter(1, self.y[:, None], own)
        return torch.nn.functional.cross_entropy((self.radius - distance) / self.temperature, self.y)


def fitted_map(spheres: Spheres, rank: int = RANK) -> Tensor:
    """Return L (D, D)."""
    dim = spheres.rows.shape[1]
    change = torch.zeros(dim, dim, dtype=spheres.rows.dtype, requires_grad=True)
    optimiser = torch.optim.LBFGS([change], max_iter=STEPS, line_search_fn="strong_wolfe")

    def closure() -> float:
        optimiser.zero_grad()
        loss = spheres.loss(change) + RIDGE * (change**2).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return float(loss.detach())

    optimiser.step(closure)  # type: ignore[no-untyped-call]
    left, value, right = torch.linalg.svd(change.detach())
    found: Tensor = torch.eye(dim, dtype=left.dtype) + (left[:, :rank] * value[:rank]) @ right[:rank]
    return found


class Mapped:
    """Bayes spheres behind the map; `refine` fits them anew to the mapped rows, with softmax regression."""

    def __init__(self, refine: bool = False) -> None:
        self.refine = refine

    def fit(self, x: Rows, y: Rows) -> Self:
        """Fit the spheres, then the map."""
        model = HypersphereClassifier().fit(x, y)
        spheres = Spheres.of(model, x, y)
        assert isinstance(model.region_, Sphere)
        assert model.region_.whiten is not None
        self.whiten, self.map = model.region_.whiten, fitted_map(spheres).numpy()
        self.center, self.radius = spheres.center.numpy() @ self.map, spheres.radius.numpy()
        if self.refine:
            self.head = HypersphereClassifier(refine=True, feature_transform="none").fit(self._mapped(x), y)
        return self

    def predict(self, x: Rows) -> Rows:
        """Return labels 0 to N - 1."""
        rows = self._mapped(x)
        if self.refine:
            return self.head.predict(rows)
        best: Rows = (2 * rows @ self.center.T + self.radius - (self.center**2).sum(1)).argmax(axis=1)
        return best

    def _mapped(self, x: Rows) -> Rows:
        rows: Rows = self.whiten(x.astype(np.float64)) @ self.map
        return rows


def methods(shot: str) -> dict[str, Callable[[], Any]]:
    """Return all methods by name."""
    balanced: dict[str, Any] = {"class_weight": "balanced", "tol": EXACT, "max_iter": 10_000}
    return {
        "ours": HypersphereClassifier,
        "ours, refined": lambda: HypersphereClassifier(refine=True),
        "logistic regression": lambda: LogisticRegression(C=STRENGTH[shot], **balanced),
        "map": Mapped,
        "map, refined": lambda: Mapped(refine=True),
    }


def study(data: Intents, supports: Supports, journal: Journal) -> dict[str, Any]:
    """Measure every method on the same supports."""
    values, train, test = OverDraws("shots", "method"), normalize(data.train), normalize(data.test)
    for shot, support in supports:
        for name, make in methods(shot).items():

            def measure(make: Callable[[], Any] = make, rows: Rows = support) -> Measured:
                start = process_time()
                model = make().fit(train[rows], data.train_y[rows])
                model.predict(test[:1])  # ours may fit when it is first needed
                seconds = process_time() - start
                return {"accuracy": float((model.predict(test) == data.test_y).mean()), "fit_seconds": seconds}

            values.add((shot, name), **journal.measured(f"{shot} shots, draw {supports.index}: {name}", measure))
    return {
        "reference": REFERENCE[0],
        "supports": supports.hashes,
        "results": values.rows(),
        "comparisons": values.against(REFERENCE, ("accuracy",)),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the study, print its tables, and write JSON with --json."""
    parser = argparse.ArgumentParser(prog="python -m research.tuning", description=__doc__)
    parser.add_argument("--data", choices=("hwu64", "banking77", "clinc150"), required=True)
    parser.add_argument("--split", choices=("test", "valid"), default="test")
    parser.add_argument("--shots", nargs="+", choices=("5", "10", "20"), default=["10", "20"])
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every number there")
    options = parser.parse_args(arguments)
    facts = {"data": options.data, "split": options.split, "encoder": "minilm", "ridge": RIDGE, "rank": RANK}
    journal = Journal(options.json, facts)
    data = load_intents(options.data, options.split)
    with progress_bar(data.name) as show:
        found = study(data, Supports(data.train_y, options.shots, options.draws, show), journal)
    for table in measure_tables(found["results"]):
        Console(width=140).print(table)
    if options.json:
        write_results(options.json, {"command": command_of("tuning", arguments), **facts, **found})
        journal.close()


if __name__ == "__main__":
    main()
