"""How little a query belongs to any class: the formulas against plain loops, and against what they are for."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from hyperproto.decisions import softmax_doubt
from hyperproto.methods import Method, Task, make_method
from hyperproto.regions import Cone, Sphere
from hyperproto.regions.statistics import PRIOR_EXAMPLES
from tests.helpers.predicting import doubt_of
from tests.helpers.random_tasks import make_task


def build(name: str, **options: Any) -> Method:
    return make_method(name, feature_shape=(6,), **options).eval()


def double(task: Task) -> Task:
    return Task(**{**vars(task), "support": task.support.double(), "query": task.query.double()})


def test_doubt_rises_as_the_largest_probability_falls_and_does_not_saturate() -> None:
    logits = 3 * torch.randn(4, 50, 5, generator=torch.Generator().manual_seed(0)).double()
    largest = logits.softmax(-1).amax(-1)
    torch.testing.assert_close(softmax_doubt(logits), torch.log((1 - largest) / largest))
    sure = torch.tensor([[[300.0, 0.0], [200.0, 0.0]]])
    assert (sure.softmax(-1).amax(-1) == 1).all()
    assert softmax_doubt(sure).tolist() == [[-300.0, -200.0]]
    assert softmax_doubt(torch.tensor([[[3.0]]])).tolist() == [[0.0]]


def test_the_softmax_has_a_temperature(task: Task) -> None:
    for temperature in (5.0, 50.0):
        method = build("protonet", temperature=temperature)
        probability = (method.scores(task).double() / temperature).softmax(-1).amax(-1)
        expected = torch.log((1 - probability) / probability)
        torch.testing.assert_close(doubt_of(method, task).double(), expected, rtol=1e-3, atol=1e-3)


def test_cosine_prototypes_take_the_largest_cosine(task: Task) -> None:
    method = build("cosine", temperature=5.0)
    assert torch.equal(doubt_of(method, task), -method.scores(task).amax(-1))


@pytest.mark.parametrize(
    ("name", "fit"), [("hyperproto", "unbiased"), ("hyperproto", "paper"), ("hyperproto-cone", None)]
)
def test_distance_in_units_of_shrunken_extents(name: str, fit: str | None) -> None:
    counts = (3, 1, 5)
    task = double(make_task(counts=counts))
    found = doubt_of(build(name, fit=fit), task)
    for b in range(2):
        support, labels, query = task.support[b], task.support_y[b], task.query[b]
        region = Cone.fit(support, labels, 3) if "cone" in name else Sphere.fit(support, labels, 3, mode="point")
        scatter = [float(region.extent_radius[n]) ** 2 / (1 + 1 / counts[n]) for n in range(3)]
        common = sum((counts[n] - 1) * scatter[n] for n in range(3)) / sum(count - 1 for count in counts)
        distance = region.distance(query)
        for q in range(len(query)):
            ratios = []
            for n, count in enumerate(counts):
                trust = (count - 1) / (count - 1 + PRIOR_EXAMPLES)
                reach = (trust * scatter[n] + (1 - trust) * common) * (1 + 1 / count)
                ratios.append(float(distance[q, n]) / math.sqrt(reach))
            assert float(found[b, q]) == pytest.approx(min(ratios))


def test_without_extents_it_is_the_smallest_distance() -> None:
    task = double(make_task(counts=(1, 1, 1)))
    smallest = torch.cdist(task.query, task.support).amin(-1)
    torch.testing.assert_close(doubt_of(build("hyperproto", fit="paper"), task), smallest)
    torch.testing.assert_close(doubt_of(build("hyperproto-gaussian"), task), smallest)


def log_normal(x: torch.Tensor, mean: torch.Tensor, variance: float) -> float:
    """Log density of a round Gaussian whose *total* variance, over all dimensions, is given."""
    dim = len(x)
    each = variance / dim
    return -0.5 * (float(((x - mean) ** 2).sum()) / each + dim * math.log(2 * math.pi * each))


@pytest.mark.parametrize("counts", [(3, 1, 5), (1, 1, 1)])
def test_the_likelihood_ratio_of_an_unseen_class(counts: tuple[int, ...]) -> None:
    task = double(make_task(counts=counts))
    found = doubt_of(build("hyperproto", fit="bayes"), task)
    for b in range(2):
        support, labels = task.support[b], task.support_y[b]
        sphere = Sphere.fit(support, labels, 3, mode="bayes")
        assert sphere.whiten is not None
        means = torch.stack([sphere.whiten(support[labels == n]).mean(0) for n in range(3)])
        query, k = sphere.whiten(task.query[b]), float(sphere.ratio)
        weight = [count / (count + k) for count in counts]
        middle = sum(w * mean for w, mean in zip(weight, means, strict=True)) / sum(weight)
        v = float(sphere.scatter)
        if not v:  # the spread of the means must tell: sum of w ||z - m||^2 is (N - 1) tau^2 on average
            v = k * sum(w * float(((z - middle) ** 2).sum()) for w, z in zip(weight, means, strict=True)) / 2
        unsure = v / k / sum(weight)
        for q, x in enumerate(query):
            unseen = log_normal(x, middle, v + v / k + unsure)
            seen = []
            for n, count in enumerate(counts):
                trust = (count - 1) / (count - 1 + PRIOR_EXAMPLES)
                own = float(sphere.extent_radius[n]) ** 2 / (1 + 1 / (count + k))
                reach = (trust * own + (1 - trust) * v) * (1 + 1 / (count + k)) + (1 - weight[n]) ** 2 * unsure
                center = middle + weight[n] * (means[n] - middle)
                seen.append(log_normal(x, center, reach))
            assert float(found[b, q]) == pytest.approx((unseen - max(seen)) * 2 / len(x), rel=1e-6, abs=1e-6)


def test_zero_is_as_likely_one_of_these_as_another() -> None:
    """Classes drawn as the model says: near 0 about half of the queries are of none, and far from it few or most."""
    random = np.random.default_rng(0)
    batch, way, shot, dim, queries = 300, 5, 5, 24, 10
    centers = random.normal(size=(batch, 2 * way, dim))  # five of them are never shown
    support = centers[:, :way].repeat(shot, axis=1) + 1.5 * random.normal(size=(batch, way * shot, dim))
    query = centers.repeat(queries, axis=1) + 1.5 * random.normal(size=(batch, 2 * way * queries, dim))
    labels = torch.arange(way).repeat_interleave(shot).expand(batch, -1)
    classes = torch.arange(way).expand(batch, -1)
    offsets = torch.arange(query.shape[1] + 1).expand(batch, -1)
    task = Task(torch.from_numpy(support), labels, torch.from_numpy(query), None, classes, offsets)
    novelty = doubt_of(build("hyperproto", fit="bayes", prior_ratio=2.25), task).numpy() * dim / 2  # log ratio
    outside = np.broadcast_to(np.arange(query.shape[1]) >= way * queries, novelty.shape)
    for low, high in ((-3, -2), (-1, 1), (2, 3)):
        share = outside[(novelty > low) & (novelty < high)].mean()
        assert (low < -1) == (share < 0.45)
        assert (low > 1) == (share > 0.75)
