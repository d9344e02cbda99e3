"""Variational few-shot learning, as reconstructed: against naive loops and cases worked by hand."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hyperproto.errors import ConfigError
from hyperproto.methods import PAD, Task, make_method
from hyperproto.methods.variational import Variational, divergence, log_density
from hyperproto.testing import check_method
from tests.helpers.random_tasks import make_task


def build(dim: int = 6, **options: Any) -> Variational:
    torch.manual_seed(0)
    method = make_method("variational", feature_shape=(dim,), **{"latent": 4, **options})
    assert isinstance(method, Variational)
    return method.eval()


def varied(**options: Any) -> Variational:
    """A method whose variances differ, as they do after training."""
    method = build(**options)
    nn.init.normal_(method.log_var.weight, std=0.3)
    return method


def gaussian(mean: list[float], variance: list[float]) -> tuple[Tensor, Tensor]:
    return torch.tensor(mean), torch.tensor(variance)


def naive(method: Variational, task: Task) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Scores (B, Q, N), then m and s2 (B, N, L), mu and var (B, Q, L), one number at a time."""
    size = method.latent
    shape = len(task.query), task.query.shape[1], task.way
    scores, m, s2 = torch.zeros(shape), torch.zeros(shape[0], task.way, size), torch.zeros(shape[0], task.way, size)
    mu, var = method.mean(task.query), method.log_var(task.query).clamp(-6, 2).exp()
    for b in range(shape[0]):
        for n in range(task.way):
            examples = task.support[b][task.support_y[b] == n]
            means, variances = method.mean(examples), method.log_var(examples).clamp(-6, 2).exp()
            for k in range(size):
                m[b, n, k] = sum(means[:, k]) / len(examples)
                s2[b, n, k] = sum(v + (a - m[b, n, k]) ** 2 for a, v in zip(means[:, k], variances[:, k], strict=True))
                s2[b, n, k] /= len(examples)
            for q in range(shape[1]):
                for k in range(size):
                    total = s2[b, n, k] + var[b, q, k]
                    scores[b, q, n] -= (total.log() + (mu[b, q, k] - m[b, n, k]) ** 2 / total) / 2
    return scores, m, s2, mu, var


def naive_divergence(a: Tensor, big_a: Tensor, b: Tensor, big_b: Tensor) -> float:
    terms = zip(a.tolist(), big_a.tolist(), b.tolist(), big_b.tolist(), strict=True)
    return float(sum((math.log(q / p) + (p + (x - y) ** 2) / q - 1) / 2 for x, p, y, q in terms))


@pytest.mark.parametrize("block", [1, 32 << 20])
@torch.no_grad()
def test_scores_are_those_of_the_definition(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr("hyperproto.methods.parts.BLOCK_BYTES", block)
    task, method = make_task(queries=1, pads=2), varied()
    torch.testing.assert_close(method(task), naive(method, task)[0], rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_the_parts_of_the_loss() -> None:
    task, method = make_task(queries=2, pads=2), varied(beta=0.5, gamma=0.3)
    assert task.query_y is not None
    hidden = task.query_y.clone()
    hidden[0, 0], hidden[1, 3] = -1, PAD
    scores, m, s2, mu, var = naive(method, task)
    cls, pull, prior = [], [], []
    for b in range(2):
        for q, y in enumerate(hidden[b].tolist()):
            if y >= 0:
                cls.append(-float(scores[b, q].log_softmax(0)[y]))
                pull.append(naive_divergence(mu[b, q], var[b, q], m[b, y], s2[b, y]))
        prior += [naive_divergence(m[b, n], s2[b, n], torch.zeros(4), torch.ones(4)) for n in range(3)]
    losses = method.loss(replace(task, query_y=hidden))
    expected = {
        "cls": sum(cls) / 10,
        "pull": 0.3 / 4 * sum(pull) / 10,
        "prior": 0.5 / 4 * sum(prior) / 6,
    }
    assert {name: part.item() for name, part in losses.items()} == pytest.approx(expected, rel=1e-4)


def test_a_score_by_hand() -> None:
    """-1/2 [log 4 + 4 / 4] for m = 0, s2 = 1, mu = 2, var = 3."""
    assert log_density(torch.tensor([2.0]), torch.tensor([0.0]), torch.tensor([1.0 + 3.0])).item() == pytest.approx(
        -1.19315, abs=5e-6
    )


def test_divergences_by_hand() -> None:
    assert divergence(*gaussian([1.0], [1.0]), *gaussian([0.0], [1.0])).item() == pytest.approx(0.5)
    assert divergence(*gaussian([2.0], [1.0]), *gaussian([0.0], [4.0])).item() == pytest.approx(0.81815, abs=5e-6)
    assert divergence(*gaussian([2.0, 1.0], [3.0, 4.0]), *gaussian([2.0, 1.0], [3.0, 4.0])).item() == 0


@torch.no_grad()
def test_with_equal_variances_and_one_shot_it_is_protonet_on_the_means() -> None:
    """Differences of scores are those of squared distances divided by 4 v."""
    task, method = make_task(counts=(1, 1, 1)), build()
    method.log_var.weight.zero_()
    method.log_var.bias.fill_(math.log(0.7))
    latent = replace(task, support=method.mean(task.support), query=method.mean(task.query))
    distance = make_method("protonet", feature_shape=(4,), squared=False)(latent) ** 2
    scores = method(task)
    torch.testing.assert_close(
        scores - scores[..., :1], (distance[..., :1] - distance) / (4 * 0.7), rtol=1e-4, atol=1e-4
    )


@torch.no_grad()
def test_many_samples_approach_the_closed_form() -> None:
    task, method = make_task(queries=2, batch=1), varied(latent=2, samples=20_000)
    task = replace(task, support=task.support / 4, query=task.query / 4)
    closed = method(task)
    torch.manual_seed(0)
    sampled = method.train()(task)
    assert not torch.equal(sampled, closed)
    assert (sampled - closed).abs().max() < 0.02


@torch.no_grad()
def test_samples_are_drawn_in_training_only_and_score_as_defined() -> None:
    task, method = make_task(queries=2), varied(samples=3)
    assert torch.equal(method(task), varied()(task))
    torch.manual_seed(5)
    found = method.train()(task)
    _, m, s2, mu, var = naive(method, task)
    torch.manual_seed(5)
    drawn = m[:, :, None] + s2.sqrt()[:, :, None] * torch.randn(2, 3, 3, 4)  # (B, N, T, L)
    expected = torch.zeros_like(found)
    for b, q, n in torch.cartesian_prod(*map(torch.arange, found.shape)).tolist():
        each = [-float((var[b, q].log() + (p - mu[b, q]) ** 2 / var[b, q]).sum()) / 2 for p in drawn[b, n]]
        expected[b, q, n] = math.log(sum(math.exp(x) for x in each) / 3)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_one_shot_has_the_variance_of_its_example() -> None:
    task, method = make_task(counts=(1, 4), pads=1), varied()
    mean, variance = method.inferred(task.support)
    center, spread = method.classes(task)
    assert torch.equal(center[:, 0], mean[:, 0])
    assert torch.equal(spread[:, 0], variance[:, 0])
    assert (spread[:, 1] >= variance[:, 1:5].amin(1)).all()
    assert method(task).isfinite().all()


@torch.no_grad()
def test_a_class_without_examples_is_the_prior() -> None:
    task = make_task()
    center, spread = build().classes(replace(task, support_y=task.support_y.masked_fill(task.support_y == 1, PAD)))
    assert not center[:, 1].any()
    assert (spread[:, 1] == 1).all()


def test_the_class_is_held_constant_where_it_pulls() -> None:
    task, method = make_task(), varied(gamma=1.0)
    support, query = task.support.clone().requires_grad_(), task.query.clone().requires_grad_()
    pull = method.loss(replace(task, support=support, query=query))["pull"]
    torch.autograd.backward(pull)
    assert support.grad is None
    assert query.grad is not None
    assert query.grad.abs().sum() > 0


def test_the_clamp_holds_at_a_large_rate() -> None:
    task, method = make_task(), build().train()
    optimiser = torch.optim.Adam(method.parameters(), lr=10.0)
    for _ in range(20):
        loss = torch.stack(list(method.loss(task).values())).sum()
        assert loss.isfinite()
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()
    raw = method.log_var(task.query)
    assert not ((raw > -6) & (raw < 2)).all()  # it would have gone beyond
    variance = method.inferred(task.query)[1]
    assert variance.min() >= math.exp(-6) * 0.999
    assert variance.max() <= math.exp(2) * 1.001


def test_variances_start_near_one_and_both_layers_are_heads() -> None:
    method = build(64, latent=8)
    variance = method.inferred(torch.randn(5, 64))[1]
    assert (variance - 1).abs().max() < 0.1
    heads = method.param_groups()["heads"]
    assert not heads.table
    layers = *method.mean.parameters(), *method.log_var.parameters()
    assert {id(p) for p in heads.params} == {id(p) for p in layers}
    assert Variational(feature_shape=(6,), n_classes=0).latent == 64


def test_variances_of_the_queries_are_watched() -> None:
    task, method = make_task(), varied()
    assert method.monitor() == {}
    assert task.query_y is not None
    method.train().loss(replace(task, query_y=task.query_y.index_fill(1, torch.tensor([0]), PAD)))
    variance = method.inferred(task.query)[1].mean(-1)[:, 1:]
    expected = {"variance": variance.mean().item(), "variance_spread": variance.std(unbiased=False).item()}
    assert method.monitor() == pytest.approx(expected)


def test_what_it_cannot_serve_is_refused() -> None:
    with pytest.raises(ConfigError, match="latent 0 must be at least 1, and samples 0 0 or more"):
        build(latent=0)
    with pytest.raises(ConfigError, match="latent 4 must be at least 1, and samples -1 0 or more"):
        build(samples=-1)
    with pytest.raises(ConfigError, match=r"beta -1\.0 and gamma 0\.1 must not be negative"):
        build(beta=-1.0)


def test_options_keep_the_contract() -> None:
    check_method(Variational, latent=3, beta=0.0)


def test_a_task_is_learned_by_heart() -> None:
    torch.manual_seed(0)
    task = make_task(counts=(2, 2, 2), dim=16, batch=2)
    noise = replace(task, support=torch.randn_like(task.support), query=torch.randn_like(task.query))
    method, layer = build(64, latent=8, samples=4).train(), nn.Sequential(nn.Linear(16, 64), nn.Tanh())
    optimiser = torch.optim.Adam([*layer.parameters(), *method.parameters()], lr=0.01)
    losses = []
    for _ in range(60):
        seen = replace(noise, support=layer(noise.support), query=layer(noise.query))
        parts = method.loss(seen)
        optimiser.zero_grad()
        torch.autograd.backward(torch.stack(list(parts.values())).sum())
        optimiser.step()
        losses.append(parts["cls"].item())
    assert losses[-1] < losses[0] / 10
    assert noise.query_y is not None
    assert (method.eval()(seen).argmax(-1) == noise.query_y).float().mean() > 0.95
