"""What spheres offer for words: a prior by counts, and units of one item that are alike. Against plain loops."""

from dataclasses import replace
from math import log
from typing import Any

import numpy as np
import pytest
import torch

from hyperproto.encoders import Units
from hyperproto.episodes import GreedySampler
from hyperproto.errors import ConfigError
from hyperproto.methods import Method, Task, gather_task, make_method
from hyperproto.regions import Sphere
from tests.helpers.random_tasks import make_task
from tests.helpers.tagged import random_sentences

POOL = random_sentences(150, 5, most_runs=3)


def build(**options: Any) -> Method:
    return make_method("hyperproto", feature_shape=(6,), **options).eval()


def words_task() -> Task:
    assert POOL.offsets is not None
    vectors = np.random.default_rng(0).normal(size=(len(POOL.labels), 6)) + POOL.labels[:, None]
    units = Units(torch.from_numpy(vectors).float(), POOL.offsets)
    return gather_task(units, GreedySampler(POOL, way=3, shot=2, query=2).draw(3))


@pytest.mark.parametrize("fit", ["bayes", "unbiased", "paper", "point"])
@pytest.mark.parametrize("pads", [0, 2])
def test_the_prior_adds_its_share_to_every_class(fit: str, pads: int) -> None:
    counts = (7, 1, 4)
    task = make_task(counts=counts, pads=pads)
    plain, prior = build(fit=fit).scores(task), build(fit=fit, count_prior=1.5).scores(task)
    for b in range(2):
        own = [task.support[b][task.support_y[b] == n] for n in range(3)]
        v = sum(float(((x - x.mean(0)) ** 2).sum()) for x in own) / (sum(counts) - 3)
        if fit == "bayes":
            v = float(Sphere.fit(task.support[b], task.support_y[b].clamp(min=-1), 3).scatter)
        for n, count in enumerate(counts):
            added = 1.5 * 2 * v / 6 * log(count)
            torch.testing.assert_close(prior[b, :, n] - plain[b, :, n], torch.full((12,), added), rtol=1e-3, atol=1e-3)


def test_a_prior_of_0_changes_nothing_and_a_large_one_always_finds_the_largest_class() -> None:
    task = make_task(counts=(2, 9, 4))
    assert torch.equal(build(count_prior=0.0).scores(task), build().scores(task))
    assert (build(count_prior=1000.0).scores(task).argmax(-1) == 1).all()


def test_units_know_their_items() -> None:
    task = words_task()
    assert task.support_offsets is not None
    for row, offsets, labels in zip(task.support_items(), task.support_offsets, task.support_y, strict=True):
        for place, item in enumerate(row.tolist()):
            if labels[place] >= 0:
                assert offsets[item] <= place < offsets[item + 1]
    alone = make_task(counts=(2, 3))
    assert alone.support_items().tolist() == [[0, 1, 2, 3, 4]] * 2


def test_units_of_one_item_are_believed_less() -> None:
    task = words_task()
    scores = build(unit_correlation=0.4).scores(task)
    for b in range(len(scores)):
        real = task.support_y[b] >= 0
        items = task.support_items()[b]
        middle = task.support[b][real].mean(0)
        sphere = Sphere.fit(
            task.support[b][real] - middle, task.support_y[b][real], 4, groups=items[real], correlation=0.4
        )
        measure = sphere.measure(task.query[b] - middle)
        shared = (scores[b] + measure).mean(-1, keepdim=True)  # a term that all classes share
        torch.testing.assert_close(scores[b] - shared, -measure, rtol=1e-3, atol=1e-3)
    assert not torch.allclose(scores, build().scores(task))
    alone = replace(task, support_offsets=None)
    torch.testing.assert_close(build(unit_correlation=0.4).scores(alone), build().scores(alone))
    for fit in ("unbiased", "paper", "point"):
        assert torch.equal(build(fit=fit, unit_correlation=0.4).scores(task), build(fit=fit).scores(task))


def test_options_that_cannot_be() -> None:
    for correlation in (-0.1, 1.5):
        with pytest.raises(ConfigError, match=rf"unit_correlation {correlation} must be from 0 to 1"):
            build(unit_correlation=correlation)
    with pytest.raises(ConfigError, match="count_prior is in the unit of a squared distance; it goes with squared"):
        build(count_prior=1.0, squared=False)
