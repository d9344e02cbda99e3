"""Infinite mixture prototypes against naive loops, cases worked by hand, ProtoNet and nearest neighbour."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hyperproto.errors import ConfigError
from hyperproto.methods import PAD, Task, make_method
from hyperproto.methods.imp import IMP, NO_CLASS, ClusterBatch
from hyperproto.regions import Evidence
from hyperproto.testing import check_method
from hyperproto.training import load_recipe, train
from tests.helpers.random_tasks import make_task


def build(dim: int = 6, **options: Any) -> IMP:
    method = make_method("imp", feature_shape=(dim,), **options)
    assert isinstance(method, IMP)
    return method.eval()


def on_a_line(classes: list[list[float]], queries: list[float], unlabelled: list[float] | None = None) -> Task:
    """One episode of numbers."""
    support = [x for members in classes for x in members]
    labels = [n for n, members in enumerate(classes) for _ in members]
    return Task(
        support=torch.tensor(support)[None, :, None],
        support_y=torch.tensor([labels]),
        query=torch.tensor(queries)[None, :, None],
        query_y=None,
        classes=torch.arange(len(classes))[None],
        query_offsets=torch.arange(len(queries) + 1)[None],
        evidence=Evidence(unlabelled=None if unlabelled is None else torch.tensor(unlabelled)[None, :, None]),
    )


def with_unlabelled(task: Task, number: int = 5) -> Task:
    other = torch.randn(len(task.support), number, task.support.shape[-1], generator=torch.Generator().manual_seed(1))
    return task.with_evidence(unlabelled=4 * other)


def class_means(task: Task) -> ClusterBatch:
    """The clusters that an episode starts from."""
    center = task.members().mT @ task.support / task.counts()[..., None]
    labels = torch.arange(task.way).expand(len(center), -1)
    return ClusterBatch(center, labels, torch.ones_like(labels, dtype=torch.bool))


def found_at(method: IMP, task: Task, label: int) -> list[float]:
    """Centres of the clusters of a label, on a line, in order."""
    clusters = method.clusters(task)
    return sorted(clusters.center[0, clusters.of(label)[0], 0].tolist())


def square(a: Tensor, b: Tensor) -> float:
    return float(((a - b) ** 2).sum())


def naive_columns(method: IMP, task: Task) -> Tensor:
    """The equations, one row, cluster and query at a time; the last column is of no class."""
    sigma = math.exp(method.log_sigma.item())
    sigma_u = math.exp(method.log_sigma_unlabelled.item()) if method.needs_unlabelled else sigma
    columns = torch.full((*task.query.shape[:2], task.way + 1), -math.inf)
    for b in range(len(task.query)):
        support = [(x, int(y)) for x, y in zip(task.support[b], task.support_y[b], strict=True) if y >= 0]
        loose = [] if task.unlabelled is None else [(u, NO_CLASS) for u in task.unlabelled[b]]
        means = [torch.stack([x for x, y in support if y == n]).mean(0) for n in range(task.way)]
        dim = len(means[0])
        rho = float(torch.stack(means).var(0).mean()) if task.way > 1 else 0.0
        scale = (sigma + sigma_u) / 2 if loose else sigma
        limit = -2 * scale * math.log(method.alpha) + dim * scale * math.log(1 + rho / scale)
        limit = limit if method.fixed_threshold is None else method.fixed_threshold
        clusters = list(zip(means, range(task.way), strict=True))
        for _ in range(method.passes):
            for x, y in support:
                own = [square(x, center) for center, label in clusters if label == y]
                if (own[0] if method.rule == "first" else min(own)) > limit:
                    clusters.append((x, y))
            for u, _none in loose:
                if min(square(u, center) for center, _label in clusters) > limit:
                    clusters.append((u, NO_CLASS))
            total, mass = [torch.zeros(dim) for _ in clusters], [0.0 for _ in clusters]
            for x, y in support + loose:
                weight = []
                for center, label in clusters:
                    s = sigma_u if label == NO_CLASS else sigma
                    logit = -square(x, center) / (2 * s) - (dim / 2 * math.log(s) if loose else 0)
                    weight.append(math.exp(logit) if y in (label, NO_CLASS) else 0.0)
                for c, w in enumerate(weight):
                    total[c] = total[c] + w / sum(weight) * x
                    mass[c] += w / sum(weight)
            kept = [c for c in range(len(clusters)) if mass[c] > 1e-3]
            clusters = [(total[c] / mass[c], clusters[c][1]) for c in kept]
        for q, query in enumerate(task.query[b]):
            for center, label in clusters:
                s = sigma_u if label == NO_CLASS else sigma
                logit = -square(query, center) / (2 * s) - (dim / 2 * math.log(s) if method.needs_unlabelled else 0)
                columns[b, q, label] = max(columns[b, q, label].item(), logit)
    return columns


CASES: list[dict[str, Any]] = [
    {"sigma": 0.2, "alpha": 0.9},
    {"sigma": 0.5, "threshold": 3.0, "passes": 3},
    {"sigma": 2.0, "threshold": 6.0, "rule": "first", "passes": 2},
    {"sigma": 1.0, "alpha": 0.9, "unlabelled": True},
    {"sigma": 1.5, "threshold": 5.0, "rule": "first", "passes": 2, "unlabelled": True},
]


@pytest.mark.parametrize("options", CASES)
@pytest.mark.parametrize("block", [1, 32 << 20])
@torch.no_grad()
def test_scores_are_those_of_the_equations(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], block: int
) -> None:
    monkeypatch.setattr("hyperproto.methods.parts.BLOCK_BYTES", block)
    method = build(**options)
    task = make_task(counts=(5, 1, 4), queries=2, pads=2)
    if method.needs_unlabelled:
        method.log_sigma_unlabelled.fill_(math.log(2.5))
        task = with_unlabelled(task)
    expected = naive_columns(method, task)
    torch.testing.assert_close(method(task), expected[..., :3], rtol=1e-4, atol=1e-4)
    clusters = method.clusters(task)
    assert (clusters.active.sum(1) > task.way).all()  # otherwise this would be ProtoNet
    if method.needs_unlabelled:
        assert task.query_y is not None
        assert expected[..., 3].isfinite().any()
        own = expected.log_softmax(-1).gather(-1, task.query_y[..., None])
        torch.testing.assert_close(method.loss(task)["cls"], -own.mean(), rtol=1e-4, atol=1e-4)


LINE = [[0.0, 10.0], [100.0]]


@torch.no_grad()
def test_two_modes_become_two_clusters() -> None:
    method, task = build(1, sigma=1.0, alpha=0.1), on_a_line(LINE, [1.0, 60.0])
    threshold = method.threshold(class_means(task))
    assert threshold.item() == pytest.approx(-2 * math.log(0.1) + math.log(1 + 4512.5), rel=1e-6)
    assert threshold.item() == pytest.approx(13.0200, abs=5e-5)
    assert found_at(method, task, 0) == pytest.approx([0.0, 10.0], abs=1e-4)  # the mean's share, 7.5e-6, is gone
    assert found_at(method, task, 1) == [100.0]
    expected = torch.tensor([[[-0.5, -4900.5], [-1250.0, -800.0]]])
    torch.testing.assert_close(method(task), expected, rtol=1e-5, atol=1e-3)


@torch.no_grad()
def test_the_shares_of_a_cluster_that_goes() -> None:
    method, task = build(1, sigma=1.0, alpha=0.1), on_a_line(LINE, [1.0])
    start = class_means(task)
    found, shares = method.shared(start, task.support, task.support_y, method.threshold(start))
    assert found.active[0].tolist() == [True, True, True, True, False]
    assert shares.sum(1)[0, 0].item() == pytest.approx(7.5e-6, abs=5e-8)


@torch.no_grad()
def test_without_a_threshold_it_is_protonet() -> None:
    method = build(1, sigma=1.0, threshold=math.inf)
    torch.testing.assert_close(method(on_a_line(LINE, [1.0])), torch.tensor([[[-8.0, -4900.5]]]), rtol=1e-4, atol=0)
    task = make_task(counts=(3, 1, 5), pads=2)
    distance = make_method("protonet", feature_shape=(6,), squared=False)(task)
    for passes in (1, 3):
        method = build(sigma=0.7, threshold=math.inf, passes=passes)
        torch.testing.assert_close(method(task), -(distance**2) / 1.4, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_the_rule_says_which_clusters_an_example_is_compared_with() -> None:
    """Class A = {0, 0, 0, 9, 9.5}, its mean 3.7: 9 founds a cluster, which 9.5 is near to."""
    task = on_a_line([[0.0, 0.0, 0.0, 9.0, 9.5], [50.0]], [1.0])
    options: dict[str, Any] = {"sigma": 1.0, "threshold": 20.0}
    assert found_at(build(1, **options), task, 0) == pytest.approx([0.0, 9.25], abs=1e-4)
    first = found_at(build(1, rule="first", **options), task, 0)
    assert len(first) == 3
    assert first[0] == pytest.approx(0.0, abs=1e-3)
    assert 9 < first[1] < first[2] < 9.5


@torch.no_grad()
def test_with_a_threshold_of_nothing_it_is_nearest_neighbour() -> None:
    task = make_task(queries=20, pads=1)
    nearest = make_method("nearest", feature_shape=(6,)).eval()
    assert torch.equal(build(sigma=1e-6, threshold=0.0)(task).argmax(-1), nearest(task).argmax(-1))


@torch.no_grad()
def test_with_one_shot_it_is_protonet() -> None:
    task = make_task(counts=(1, 1, 1, 1), queries=10)
    distance = make_method("protonet", feature_shape=(6,), squared=False)(task)
    for options in ({}, {"threshold": 0.0}, {"sigma": 1e-3, "alpha": 1.0, "rule": "first"}):
        method = build(**options)
        sigma = math.exp(method.log_sigma.item())
        assert method.clusters(task).active.sum().item() == 8
        torch.testing.assert_close(method(task), -(distance**2) / (2 * sigma), rtol=1e-4, atol=1e-4)


def test_sigma_is_learned_by_the_scores_alone() -> None:
    """The loss as a function of sigma, the clusters held fixed."""
    task, method = make_task(counts=(4, 2, 5)), build(sigma=2.0, threshold=6.0)
    [gradient] = torch.autograd.grad(method.loss(task)["cls"], method.log_sigma)
    centred = task.centred()
    clusters = method.clusters(centred)
    distance = ((centred.query[:, :, None] - clusters.center[:, None]) ** 2).sum(-1)
    log_sigma = method.log_sigma.detach().clone().requires_grad_()
    logits = -distance.detach() / (2 * log_sigma.exp())
    best = [logits.masked_fill(~clusters.of(n)[:, None], -math.inf).amax(-1) for n in range(3)]
    [expected] = torch.autograd.grad(method.cross_entropy(torch.stack(best, -1), task), log_sigma)
    assert clusters.active.sum() > 6
    assert expected.abs() > 1e-3
    torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-5)


def test_examples_learn_through_centres_with_their_shares_held_fixed() -> None:
    task, method = make_task(counts=(4, 2, 5)), build(sigma=2.0, threshold=6.0)
    support = task.support.clone().requires_grad_()
    center = method.clusters(replace(task, support=support)).center
    [gradient] = torch.autograd.grad(center[0, 0, 0], support)
    start = class_means(task)
    _, shares = method.shared(start, task.support, task.support_y, method.threshold(start))
    torch.testing.assert_close(gradient[0, :, 0], shares[0, :, 0] / shares[0, :, 0].sum())
    assert not gradient[0, :, 1:].any()


@pytest.mark.parametrize("options", [{"sigma": 1.0, "alpha": 0.9}, {"sigma": 1.0, "threshold": 5.0, "rule": "first"}])
@torch.no_grad()
def test_padding_changes_nothing(options: dict[str, Any]) -> None:
    task, method = make_task(), build(**options)
    rows = torch.tensor([0, 0, 1, 2, 0, 3, 4, 5, 6, 7, 8, 0])
    support, labels = task.support[:, rows].clone(), task.support_y[:, rows].clone()
    support[:, [0, 4, 11]], labels[:, [0, 4, 11]] = 50.0, PAD
    torch.testing.assert_close(method(replace(task, support=support, support_y=labels)), method(task))


@torch.no_grad()
def test_one_class_has_a_threshold_and_a_class_without_examples_no_score() -> None:
    single = on_a_line([[0.0, 1.0]], [3.0])
    method = build(1, sigma=1.0, alpha=0.5)
    assert method.threshold(class_means(single)).item() == pytest.approx(2 * math.log(2))
    assert method(single).isfinite().all()
    missing = replace(on_a_line([[0.0, 1.0], [9.0]], [3.0]), classes=torch.arange(3)[None])
    scores = method(missing)
    assert scores[0, 0].isfinite().tolist() == [True, True, False]
    there = torch.tensor([[True, True, False]])
    means = ClusterBatch(torch.tensor([[[0.0], [9.0], [7.0]]]), torch.arange(3)[None], there)
    expected = 2 * math.log(2) + math.log(1 + 9**2 / 2)  # the variance of 0 and 9
    assert method.threshold(means).item() == pytest.approx(expected)


# Unlabelled examples ----------------------------------------------------------------------------------------------


@torch.no_grad()
def test_unlabelled_examples_join_clusters_or_found_their_own() -> None:
    """11 pulls the cluster at 10; 50 and 51 found one of no class, which wins the query 49."""
    method = build(1, sigma=1.0, threshold=13.0, unlabelled=True)
    task = on_a_line(LINE, [49.0, 10.0], unlabelled=[11.0, 50.0, 51.0])
    assert found_at(method, task, 0) == pytest.approx([0.0, 10.5], abs=1e-4)
    assert found_at(method, task, 1) == [100.0]
    assert found_at(method, task, NO_CLASS) == pytest.approx([50.5], abs=1e-4)
    assert method(task).shape == (1, 2, 2)  # that column is not among the scores
    losses = [method.loss(replace(task, query_y=torch.tensor([[y, -1]])))["cls"].item() for y in (0, 1)]
    assert losses == pytest.approx([(38.5**2 - 1.5**2) / 2, (51**2 - 1.5**2) / 2], rel=1e-4)


@torch.no_grad()
def test_both_variances_make_the_threshold_where_there_are_unlabelled_examples() -> None:
    method = build(1, sigma=1.0, alpha=0.1, unlabelled=True)
    method.log_sigma_unlabelled.fill_(math.log(3.0))
    means = class_means(on_a_line(LINE, [1.0]))
    assert method.threshold(means).item() == pytest.approx(13.0200, abs=5e-5)
    expected = -4 * math.log(0.1) + 2 * math.log(1 + 4512.5 / 2)
    assert method.threshold(means, unlabelled=True).item() == pytest.approx(expected)


def test_unlabelled_examples_and_their_variance_learn() -> None:
    method, task = build(sigma=1.0, threshold=9.0, unlabelled=True), with_unlabelled(make_task())
    assert task.unlabelled is not None
    unlabelled = task.unlabelled.requires_grad_()
    loss = method.loss(task.with_evidence(unlabelled=unlabelled))["cls"]
    for gradient in torch.autograd.grad(loss, [unlabelled, method.log_sigma, method.log_sigma_unlabelled]):
        assert gradient.isfinite().all()
        assert gradient.abs().sum() > 0


@torch.no_grad()
def test_without_unlabelled_examples_it_scores_as_the_supervised_method_does() -> None:
    task = make_task()
    plain, other = build(sigma=1.0, alpha=0.9), build(sigma=1.0, alpha=0.9, unlabelled=True)
    torch.testing.assert_close(other(task), plain(task))  # the constant of sigma = 1 is 0


RECIPE = """
data = {{ spec = "vectors:{data}" }}
encoder = {{ name = "tiny" }}
method = {{ name = "imp", sigma = 1.0, unlabelled = true }}
episodes = {{ way = 4, shot = 3, query = 4, batch = 2 }}
unlabelled = {{ data = "vectors:{data}", split = "test", number = 5 }}
optim.encoder = {{ name = "adam", lr = 0.01 }}
training = {{ steps = 8, validate_every = 8, log_every = 1 }}
validation = {{ way = 4, shot = 2, query = 5, episodes = 5 }}
"""


def test_a_recipe_with_unlabelled_items(vectors_file: Path, tmp_path: Path) -> None:
    from tests.training.conftest import TINY

    exec(TINY, {"__name__": "tiny"})
    path = vectors_file.with_name("imp.toml")
    path.write_text(RECIPE.format(data=vectors_file))
    rows = train(load_recipe(str(path)), tmp_path / "run").read_metrics()
    assert {"cls", "sigma", "sigma_unlabelled", "clusters"} <= rows[0].keys()
    assert rows[-1]["sigma_unlabelled"] != rows[0]["sigma_unlabelled"]
    assert rows[-1]["accuracy"] > 0.5
    with pytest.raises(ConfigError, match=r"imp ignores \[unlabelled\]; add unlabelled = true to \[method\]"):
        train(load_recipe(str(path), ["method.unlabelled=false"]), tmp_path / "unread")
    path.write_text("\n".join(line for line in path.read_text().splitlines() if not line.startswith("unlabelled")))
    with pytest.raises(ConfigError, match=r"\[unlabelled\] is missing: imp learns from items without labels"):
        load_recipe(str(path))


# ------------------------------------------------------------------------------------------------------------------


def test_training_is_watched() -> None:
    task, method = make_task(counts=(2, 2, 3)), build(threshold=0.0, sigma=0.1)
    method(task)
    assert method.monitor() == {"sigma": pytest.approx(0.1)}
    method.train().loss(task)
    found = method.monitor()["clusters"]
    assert isinstance(found, float)
    assert 2 < found < 3


def test_what_it_cannot_serve_is_refused() -> None:
    for name in ("sigma", "alpha"):
        wrong: dict[str, Any] = {name: 0.0}
        with pytest.raises(ConfigError, match=rf"{name} 0\.0 must be a number above 0, such as 0\.1"):
            build(**wrong)
    with pytest.raises(ConfigError, match="passes 0 must be at least 1, and threshold None not below 0"):
        build(passes=0)
    with pytest.raises(ConfigError, match=r"passes 1 must be at least 1, and threshold -1\.0 not below 0"):
        build(threshold=-1.0)
    with pytest.raises(ConfigError, match=r"imp with unlabelled = true learns from items without labels; add"):
        build(unlabelled=True).loss(make_task())


@pytest.mark.parametrize("options", [{"threshold": 3.0, "passes": 2, "rule": "first"}, {"unlabelled": True}])
def test_options_keep_the_contract(options: dict[str, Any]) -> None:
    check_method(IMP, **options)


def test_it_learns_a_task_by_heart() -> None:
    torch.manual_seed(0)
    task = make_task(counts=(3, 3, 3), dim=16, batch=2)
    noise = replace(task, support=torch.randn_like(task.support), query=torch.randn_like(task.query))
    method, layer = build(16, sigma=5.0, alpha=0.9).train(), nn.Sequential(nn.Linear(16, 64), nn.Tanh())
    layer.append(nn.Linear(64, 16))
    optimiser = torch.optim.Adam([*layer.parameters(), *method.parameters()], lr=0.01)
    losses = []
    for _ in range(60):
        seen = replace(noise, support=layer(noise.support), query=layer(noise.query))
        loss = method.loss(seen)["cls"]
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 10
    assert noise.query_y is not None
    assert (method.eval()(seen).argmax(-1) == noise.query_y).float().mean() > 0.95
