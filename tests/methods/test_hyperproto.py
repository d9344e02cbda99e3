"""Algorithm 1's parts: initialisation, stored regions, losses, closed forms."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from hyperproto.data import IntArray, Pool
from hyperproto.encoders import Units
from hyperproto.encoders.identity import Identity
from hyperproto.errors import ConfigError, DataError
from hyperproto.methods import Task, make_method
from hyperproto.methods.stored import StoredRegions
from hyperproto.regions import REGIONS, Cone, Gaussian, Sphere
from tests.helpers.predicting import features_of
from tests.helpers.random_tasks import make_task

VARIANTS = {"hyperproto": "sphere", "hyperproto-cone": "cone", "hyperproto-gaussian": "gaussian"}


def trained_for(pool: Pool, name: str = "hyperproto", **options: Any) -> StoredRegions:
    method = make_method(name, feature_shape=(6,), n_classes=pool.n_classes, **{"init_shot": 5, **options})
    assert isinstance(method, StoredRegions)
    method.setup(pool, features_of(Identity(shape=[6])))
    return method


def test_initialisation_is_equation_3_on_k_instances_of_every_class(make_blobs: Callable[..., Pool]) -> None:
    pool = make_blobs(per_class=4)
    method = trained_for(pool, init_shot=4)  # all four: the draw does not matter
    for n in range(pool.n_classes):
        own = torch.from_numpy(pool.items[pool.labels == n])
        center = own.mean(0)
        torch.testing.assert_close(method.center[n].detach(), center)
        radius = torch.stack([((x - center) ** 2).sum() for x in own]).mean()
        torch.testing.assert_close(method.radius[n, 0].detach(), radius)


def test_initialisation_draws_init_shot_instances_of_the_class(make_blobs: Callable[..., Pool]) -> None:
    pool = make_blobs(per_class=12)
    method = trained_for(pool, init_shot=1)
    for n in range(pool.n_classes):
        own = pool.items[pool.labels == n]
        assert (np.abs(own - method.center[n].detach().numpy()).sum(1) < 1e-5).sum() == 1
    assert (method.radius == 0).all()
    assert not torch.equal(trained_for(pool, init_shot=3).radius, trained_for(pool, init_shot=12).radius)


def test_radii_may_start_at_zero(make_blobs: Callable[..., Pool]) -> None:
    pool = make_blobs(3, 4)
    free, paper = trained_for(pool, start_radius="zero"), trained_for(pool)
    assert (free.radius == 0).all()
    assert (paper.radius > 0).all()
    torch.testing.assert_close(free.center, paper.center)


def test_a_class_without_instances_cannot_start(make_blobs: Callable[..., Pool]) -> None:
    pool = make_blobs()
    empty = Pool(pool.items, pool.labels, (*pool.class_names, "empty"), name="blobs")
    with pytest.raises(DataError, match=r"blobs \(all\): class 'empty' has no instance to start its region from"):
        trained_for(empty)


def test_words_start_from_their_own_vectors() -> None:
    """A sentence is one item; a class starts from its words, not from the sentence's first."""
    words = np.random.default_rng(0).normal(size=(9, 6)).astype(np.float32)
    offsets = np.array([0, 4, 9])

    class Sentences(Identity):
        def prepare(self, items: Any) -> Any:
            return items

        def collate(self, prepared: Any, index: IntArray) -> Any:
            return [words[offsets[i] : offsets[i + 1]] for i in index]

        def forward(self, batch: Any) -> Units:
            lengths = np.cumsum([0, *map(len, batch)])
            return Units(torch.from_numpy(np.concatenate(batch)), lengths)

    pool = Pool(["a b c d", "e f g h i"], np.array([-1, 0, -1, 1, -1, 0, 1, 1, -1]), ("x", "y"), offsets=offsets)
    method = make_method("hyperproto", feature_shape=(6,), n_classes=pool.n_labels, init_shot=5)
    assert isinstance(method, StoredRegions)
    method.setup(pool, features_of(Sentences(shape=[6])))
    for row, label in ((0, 0), (1, 1), (2, -1)):  # the last row is O's
        torch.testing.assert_close(method.center[row].detach(), torch.from_numpy(words[pool.labels == label].mean(0)))


@pytest.mark.parametrize("centers", ["stored", "episode"])
@pytest.mark.parametrize("name", VARIANTS)
def test_the_loss_measures_queries_against_stored_regions(
    name: str, centers: str, task: Task, make_blobs: Callable[..., Pool]
) -> None:
    method = trained_for(make_blobs(), name, centers=centers, temperature=2.0)
    total = torch.zeros(())
    assert task.query_y is not None
    for b in range(2):
        rows = task.classes[b]
        radius = method.radius[rows, 0]
        if centers == "stored":
            center = method.center[rows]
        else:
            x = task.support[b] / task.support[b].norm(dim=1, keepdim=True) if "cone" in name else task.support[b]
            center = torch.stack([x[task.support_y[b] == n].mean(0) for n in range(3)])
        region = {"hyperproto": Sphere, "hyperproto-cone": Cone, "hyperproto-gaussian": Gaussian}[name](center, radius)
        logits = -region.measure(task.query[b]) / 2
        total += torch.nn.functional.cross_entropy(logits, task.query_y[b]) / 2
    torch.testing.assert_close(method.loss(task)["cls"], total)


def test_the_cone_adds_the_overlap_of_the_episodes_cones(task: Task, make_blobs: Callable[..., Pool]) -> None:
    method = trained_for(make_blobs(), "hyperproto-cone")
    with torch.no_grad():
        method.radius.add_(1.0)
    total = 0.0
    for b in range(2):
        z, eps = method.center[task.classes[b]], method.radius[task.classes[b], 0].abs()
        for i in range(3):
            for j in range(3):
                if i != j:
                    angle = torch.arccos(torch.dot(z[i], z[j]) / (z[i].norm() * z[j].norm()))
                    total += torch.clamp(eps[i] + eps[j] - angle, min=0).item() / 3 / 2
    assert total > 0
    assert method.loss(task)["dis"].item() == pytest.approx(total, rel=1e-4)


def test_stored_centers_need_no_support(make_blobs: Callable[..., Pool]) -> None:
    task = make_task()
    bare = Task(task.support[:, :0], task.support_y[:, :0], task.query, task.query_y, task.classes, task.query_offsets)
    method = trained_for(make_blobs())
    torch.testing.assert_close(method.loss(bare)["cls"], method.loss(task)["cls"])


@pytest.mark.parametrize("name", VARIANTS)
def test_only_drawn_rows_of_the_radius_have_a_gradient(name: str, task: Task, make_blobs: Callable[..., Pool]) -> None:
    method = trained_for(make_blobs(), name)
    torch.autograd.backward(list(method.loss(task).values()))
    assert method.radius.grad is not None
    assert method.radius.grad.is_sparse
    drawn = method.radius.grad.coalesce().indices()[0].tolist()
    assert set(drawn) == set(task.classes.flatten().tolist())
    [(name, group)] = method.param_groups().items()
    assert (name, group.params, group.table, group.opponent) == ("radius", [method.radius], True, False)


@pytest.mark.parametrize("name", VARIANTS)
def test_unseen_classes_are_scored_by_the_closed_form_of_their_support(name: str, task: Task) -> None:
    region = REGIONS[VARIANTS[name]]
    for fit in region.modes:
        method = make_method(name, feature_shape=(6,), fit=fit).eval()
        for b in range(2):
            fitted = region.fit(task.support[b], task.support_y[b], 3, mode=fit)
            expected = -fitted.measure(task.query[b])
            found = method.scores(task)[b]
            # a term that all classes share is free
            torch.testing.assert_close(found - found[:, :1], expected - expected[:, :1], rtol=1e-4, atol=1e-3)


def test_one_shot_of_the_paper_is_protonet() -> None:
    task = make_task(counts=(1, 1, 1, 1, 1))
    for squared in (True, False):
        ours = make_method("hyperproto", feature_shape=(6,), fit="paper", squared=squared).scores(task)
        theirs = make_method("protonet", feature_shape=(6,), squared=squared).scores(task)
        assert torch.equal(ours.argmax(-1), theirs.argmax(-1))


def test_radius_weight_counts_only_with_the_papers_fit(task: Task) -> None:
    half = make_method("hyperproto", feature_shape=(6,), fit="paper", radius_weight=0.5).scores(task)
    none = make_method("hyperproto", feature_shape=(6,), fit="point").scores(task)
    full = make_method("hyperproto", feature_shape=(6,), fit="paper").scores(task)
    torch.testing.assert_close(half - none, (full - none) / 2, rtol=1e-3, atol=1e-3)
    make_method("hyperproto", feature_shape=(6,), fit="bayes", radius_weight=0.5).scores(task)


def test_monitor_watches_centred_radii(make_blobs: Callable[..., Pool]) -> None:
    method = trained_for(make_blobs(n_classes=30))
    seen = method.monitor()
    radius = method.radius.detach().flatten()
    watched = seen["radii"]
    assert isinstance(watched, list)
    assert len(watched) == 12
    assert watched[0] == pytest.approx(float(radius[0] - radius.mean()))
    assert seen["radius_spread"] == pytest.approx(float(radius.std(unbiased=False)))


def test_another_fit_shares_the_parameters(make_blobs: Callable[..., Pool]) -> None:
    method = trained_for(make_blobs(), fit="bayes")
    twin = method.with_fit("paper")
    assert (method.fit, twin.fit) == ("bayes", "paper")
    assert twin.radius is method.radius


def test_the_initialisation_may_average_plain_distances(make_blobs: Callable[..., Pool]) -> None:
    pool = make_blobs(per_class=4)
    method = trained_for(pool, init_shot=4, radius_distance="plain")
    for n in range(pool.n_classes):
        own = torch.from_numpy(pool.items[pool.labels == n])
        radius = (own - own.mean(0)).norm(dim=1).mean()
        torch.testing.assert_close(method.radius[n, 0].detach(), radius)


def test_evaluation_may_average_plain_distances(task: Task) -> None:
    method = make_method("hyperproto", feature_shape=(6,), fit="paper", radius_distance="plain")
    for b in range(2):
        fitted = Sphere.fit(task.support[b], task.support_y[b], 3, mode="paper", radius_distance="plain")
        expected, found = -fitted.measure(task.query[b]), method.scores(task)[b]
        torch.testing.assert_close(found - found[:, :1], expected - expected[:, :1], rtol=1e-4, atol=1e-3)
    with pytest.raises(ConfigError, match="'plain' goes with the squared measure"):
        make_method("hyperproto", feature_shape=(6,), radius_distance="plain", squared=False)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_class_of_one_example_may_have_a_radius(name: str, make_blobs: Callable[..., Pool]) -> None:
    task = make_task(counts=(1, 4, 1))
    plain = trained_for(make_blobs(), name, fit="paper")
    radius = getattr(plain.fitted(task), plain.radius_name)
    for given in (0.7, "learned"):
        method = trained_for(make_blobs(), name, fit="paper", one_shot_radius=given)
        found = getattr(method.fitted(task), method.radius_name)
        expected = 0.7 if given == 0.7 else float(method.radius.detach().mean())
        assert found[:, [0, 2]].flatten().tolist() == pytest.approx([expected] * 4)
        torch.testing.assert_close(found[:, 1], radius[:, 1])
        assert not torch.equal(method.eval().scores(task), plain.eval().scores(task))
        other = method.with_fit("unbiased")
        assert torch.equal(other.eval().scores(task), plain.with_fit("unbiased").eval().scores(task))


def test_learned_radii_are_those_of_a_run() -> None:
    with pytest.raises(ConfigError, match='"learned" is the mean of the radii that training stored, and nothing was'):
        make_method("hyperproto", feature_shape=(6,), one_shot_radius="learned")


def test_readings_of_the_cone(task: Task, make_blobs: Callable[..., Pool]) -> None:
    raw = trained_for(make_blobs(), "hyperproto-cone", centers="episode", mean_of="raw", fit="paper")
    for b in range(2):
        fitted = Cone.fit(task.support[b], task.support_y[b], 3, mode="paper", mean_of="raw")
        torch.testing.assert_close(raw.eval().scores(task)[b], -fitted.measure(task.query[b], break_ties=True))
        means = torch.stack([task.support[b][task.support_y[b] == n].mean(0) for n in range(3)])
        torch.testing.assert_close(raw.episode_centers(task)[b], means)
    torch.testing.assert_close(
        raw.with_fit("unbiased").scores(task), make_method("hyperproto-cone", feature_shape=(6,)).eval().scores(task)
    )
    own = trained_for(make_blobs(), "hyperproto-cone", own_pair=True)
    other = trained_for(make_blobs(), "hyperproto-cone")
    reach = 2 * own.radius.detach()[task.classes, 0].abs().sum(-1).mean() / 3
    torch.testing.assert_close(own.loss(task)["dis"] - other.loss(task)["dis"], reach)
