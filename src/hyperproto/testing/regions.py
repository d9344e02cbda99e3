"""check_region: the contract of a region as a function.

from hyperproto.testing import check_region
check_region(Box)                                   # NumPy
check_region(Box, array=torch.tensor)               # torch, with gradients
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from hyperproto.regions.arrays import Array, Doubles, Indices, unit
from hyperproto.regions.base import FIT_MODES, ClosedForm, Region
from hyperproto.regions.left_out import LeftOut, left_out_measures, measures_by_refitting
from hyperproto.regions.statistics import ClassStatistics, FlatStatistics, Moments, moments_of

WAY, DIM = 3, 4
LABELS = np.array([0, 1, 2, 0, 1, 0, 0, 1, 2, 2])


def check_region(cls: type[Region], *, array: Callable[[Any], Array] = np.asarray, tolerance: float = 1e-6) -> None:
    """Check that a region keeps its contract in each of its modes; an AssertionError says what should hold.

    `array` converts NumPy arrays to those of another library of the array API standard. If they have
    `requires_grad_`, as torch's have, gradients must be finite, also for identical examples.
    """
    if not cls.modes or not set(cls.modes) <= set(FIT_MODES):
        raise AssertionError(f"{cls.__name__}: modes {cls.modes} must be some of {FIT_MODES}")
    for mode in cls.modes:
        case = _Case(cls, mode, array, tolerance)
        for part in (case.shapes, case.symmetries, case.limits, case.linear, case.novelty, case.statistics):
            for should in part():
                raise AssertionError(f"{cls.__name__}, mode {mode!r}: {should}")
        if hasattr(array(case.queries), "requires_grad_"):
            for should in case.gradients():
                raise AssertionError(f"{cls.__name__}, mode {mode!r}: {should}")


@dataclass(frozen=True, eq=False)
class _Case:
    """A support set of three classes with queries. Each check yields the requirements that are violated."""

    cls: type[Region]
    mode: str
    array: Callable[[Any], Array]
    tolerance: float

    @cached_property
    def x(self) -> Doubles:
        rng = np.random.default_rng(0)
        x = rng.normal(size=(len(LABELS), DIM)) + 2 * rng.normal(size=(WAY, DIM))[LABELS]
        return np.asarray(unit(x)) if self.cls.directions else x

    @cached_property
    def queries(self) -> Doubles:
        queries = np.random.default_rng(1).normal(size=(6, DIM))
        return np.asarray(unit(queries)) if self.cls.directions else queries

    @cached_property
    def region(self) -> Region:
        return self.fit(self.x, LABELS)

    @cached_property
    def measured(self) -> Doubles:
        return self.measure(self.region)

    def fit(self, x: Array, labels: Indices, way: int = WAY) -> Region:
        support = x if hasattr(x, "requires_grad_") else self.array(x)
        return self.cls.fit(support, self.array(labels), way, mode=self.mode)

    def measure(self, region: Region, x: Doubles | None = None) -> Doubles:
        return _plain(region.measure(self.array(self.queries if x is None else x)))

    def same(self, a: Any, b: Any) -> bool:
        return bool(np.allclose(_plain(a), _plain(b), rtol=self.tolerance, atol=self.tolerance))

    def shapes(self) -> Iterator[str]:
        region, measured = self.region, self.measured
        distance = _plain(region.distance(self.array(self.queries)))
        if measured.shape != (len(self.queries), WAY) or not np.isfinite(measured).all():
            yield f"measure gives finite numbers (Q, N), not {measured.shape}"
        if distance.shape != measured.shape or (distance < 0).any():
            yield "distance gives numbers of at least 0 (Q, N)"
        if _plain(region.center).shape != (WAY, DIM) or _plain(region.bias_radius).shape != (WAY,):
            yield "center has shape (N, D) and bias_radius (N,)"
        if region.extent_radius is None or (_plain(region.extent_radius) < 0).any():
            yield "a fitted region has an extent_radius (N,) of at least 0"
        elif not _plain(region.inside(self.array(self.x))).any():
            yield "some examples are inside a region that was fitted to them"
        if (self.measure(region, self.x).argmin(axis=1) != LABELS).mean() > 0.5:
            yield "most examples are nearest to their own class: lower is more likely"

    def symmetries(self) -> Iterator[str]:
        mixed, renamed = np.random.default_rng(2).permutation(len(LABELS)), np.array([2, 0, 1])
        if not self.same(self.measure(self.fit(self.x[mixed], LABELS[mixed])), self.measured):
            yield "the order of the support changes nothing"
        if not self.same(self.measure(self.fit(self.x, renamed[LABELS]))[:, renamed], self.measured):
            yield "renaming classes renames columns"
        padded = self.fit(np.concatenate([self.x, np.full((2, DIM), 7.0)]), np.concatenate([LABELS, [-1, -1]]))
        if not self.same(self.measure(padded), self.measured):
            yield "a negative label is padding, which changes nothing"
        batch = self.fit(np.stack([self.x, self.x[mixed] + 1]), np.stack([LABELS, LABELS[mixed]]))
        both = self.measure(batch, np.stack([self.queries, self.queries]))
        if both.shape != (2, *self.measured.shape) or not self.same(both[0], self.measured):
            yield "leading axes are a batch of episodes, each as if alone"

    def limits(self) -> Iterator[str]:
        for name, x, labels in (
            ("one example a class", self.x[:WAY], LABELS[:WAY]),
            ("identical examples", np.ones_like(self.x), LABELS),
            ("one class", self.x, np.zeros_like(LABELS)),
        ):
            if not np.isfinite(self.measure(self.fit(x, labels, int(labels.max()) + 1))).all():
                yield f"{name}: the measure is finite"

    def linear(self) -> Iterator[str]:
        if not self.region.is_linear:
            return
        form, queries = self.region.linear(), self.array(self.queries)
        shared = _plain(form.scores(queries)) + self.measured
        if form.curve is None and not self.same(shared, shared[:, :1]):
            yield "linear scores are minus the measure, up to a constant for each query"
        for middle in (None, self.array(self.x.mean(axis=0))):
            if not self.same(self.region.linear(middle).measure(queries), self.measured):
                yield "the measure of the linear form is the measure"

    def novelty(self) -> Iterator[str]:
        mean = self.x.mean(axis=0, keepdims=True)
        far = np.asarray(unit(-mean)) if self.cls.directions else mean + 100.0
        count = self.array(np.bincount(LABELS).astype(np.float64))
        examples, queries, outliers = (
            _plain(self.region.novelty(self.array(x), count)) for x in (self.x, self.queries, far)
        )
        if queries.shape != (len(self.queries),) or not np.isfinite(queries).all():
            yield "novelty gives finite numbers (Q,)"
        if not outliers.min() > np.median(examples):
            yield "novelty is larger far from all classes than at the examples"

    def statistics(self) -> Iterator[str]:
        """Check fits to statistics and leave-one-out measures, in NumPy as the estimators use them."""
        x, form = self.x, ClosedForm(self.cls, self.mode)

        def measure(region: Any, rows: Doubles) -> Doubles:
            return np.asarray(region.measure(rows, **self.cls.measure_options))

        stats = FlatStatistics.of(x, LABELS, np.ones(len(x)), moments_of(x, LABELS, None, WAY))
        region = form.fit(stats)
        measured = measure(region, self.queries)
        if not self.same(measure(form.fit(ClassStatistics.of(x, LABELS, WAY)), self.queries), measured):
            yield "fits to both kinds of statistics agree"
        bare = Moments.of(x, LABELS, WAY)
        if form.needs_examples is None and not self.same(measure(form.fit(bare), self.queries), measured):
            yield "needs_examples is None, so count, mean and squares are enough"
        out, index = LeftOut(stats), np.arange(len(x))
        found, again = left_out_measures(out, region, form, index), measures_by_refitting(out, index, form)
        if found.shape != (len(x), WAY) or not np.isfinite(found).all():
            yield "leave-one-out measures (S, N) are finite"
        elif self.mode != "bayes" and not self.same(found, again):  # "bayes" keeps its prior
            yield "leave-one-out measures are those of a fit to the other examples"
        elif np.abs(found - again).mean() > np.abs(measure(region, x) - again).mean() + self.tolerance:
            yield "leave-one-out measures are closer to a fit to the other examples than plain measures"

    def gradients(self) -> Iterator[str]:
        for name, x in (("", self.x), ("identical examples: ", np.ones_like(self.x)), ("queries at centres: ", self.x)):
            support = self.array(x).requires_grad_()
            region = self.fit(support, LABELS)
            at_centers = region.center.detach().clone()
            queries = (at_centers if name.startswith("queries") else self.array(self.queries)).requires_grad_()
            region.measure(queries).sum().backward()
            for of, tensor in (("support", support), ("queries", queries)):
                if tensor.grad is not None and not np.isfinite(_plain(tensor.grad)).all():
                    yield f"{name}the gradient in the {of} is finite"


def _plain(values: Any) -> Doubles:
    return np.asarray(values.detach() if hasattr(values, "detach") else values)
