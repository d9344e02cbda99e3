"""LEO against its equations in loops, autograd for the inner steps, K copies a class, finite differences."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from hyperproto.errors import ConfigError
from hyperproto.methods import PAD, Task, make_method
from hyperproto.methods.leo import LEO, MOST_RAW
from hyperproto.methods.parts import weight_deviation
from tests.helpers.random_tasks import make_task

DIM = 6


def build(dim: int = DIM, seed: int = 0, **options: Any) -> LEO:
    torch.manual_seed(seed)
    method = make_method("leo", feature_shape=(dim,), **{"code_size": 4, **options})
    assert isinstance(method, LEO)
    return method.eval()


def unit_task(**options: Any) -> Task:
    """Episodes of vectors of length 1."""
    task = make_task(**options)
    return replace(task, support=F.normalize(task.support, dim=-1), query=F.normalize(task.query, dim=-1))


def doubled(task: Task) -> Task:
    return replace(task, support=task.support.repeat(1, 2, 1), support_y=task.support_y.repeat(1, 2))


def alike(shot: int, batch: int) -> Task:
    """The same episode many times."""
    task = unit_task(counts=(shot, shot), batch=1)
    return replace(task, support=task.support.expand(batch, -1, -1), support_y=task.support_y.expand(batch, -1))


def by_hand(x: list[list[float]], labels: list[int]) -> Task:
    """One episode whose queries are its support."""
    support, y = torch.tensor([x]), torch.tensor([labels])
    return Task(support, y, support, y, torch.arange(max(labels) + 1)[None], torch.arange(len(x) + 1)[None])


def support_loss(weights: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Sum over classes of the mean cross entropy of their examples, of one episode."""
    total = weights.new_zeros(())
    for n in range(len(weights)):
        mine = x[y == n]
        for row in mine:
            total = total - torch.log_softmax(weights @ row, -1)[n] / len(mine)
    return total


def naive_codes(method: LEO, x: Tensor, y: Tensor, way: int) -> Tensor:
    """The relation network on every ordered pair of one episode's support: (N, 2 H)."""
    first, second, last = method.relation
    hidden = [row @ method.embedding for row in x]
    means = []
    for left in hidden:
        pairs = [((torch.cat([left, right]) @ first).relu() @ second).relu() @ last for right in hidden]
        means.append(torch.stack(pairs).mean(0))
    return torch.stack(
        [torch.stack([m for m, label in zip(means, y, strict=True) if label == n]).mean(0) for n in range(way)]
    )


def naive_weights(method: LEO, task: Task) -> list[Tensor]:
    """Adapted weights of each episode as evaluation has them, inner gradients by autograd."""
    found = []
    for support, labels in zip(task.support, task.support_y, strict=True):
        x, y = support[labels != PAD], labels[labels != PAD]
        size = method.feature_shape[0]
        code = naive_codes(method, x, y, task.way)[:, : len(method.code_rate)]
        for _ in range(method.code_steps):
            [gradient] = torch.autograd.grad(
                support_loss(code @ method.decoder[:, :size], x, y), code, create_graph=True
            )
            code = code - method.code_rate * gradient
        weights = code @ method.decoder[:, :size]
        for _ in range(method.weight_steps):
            [gradient] = torch.autograd.grad(support_loss(weights, x, y), weights, create_graph=True)
            weights = weights - method.weight_rate * gradient
        found.append(weights)
    return found


@pytest.mark.parametrize("block", [1, 32 << 20])
def test_scores_are_those_of_the_equations(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr("hyperproto.methods.parts.BLOCK_BYTES", block)
    task, method = unit_task(counts=(2, 1, 3), pads=2), build(weight_rate=0.1)
    expected = torch.stack([q @ w.mT for q, w in zip(task.query, naive_weights(method, task), strict=True)])
    with torch.no_grad():
        torch.testing.assert_close(method(task), expected, rtol=1e-4, atol=1e-5)


def test_one_step_by_hand() -> None:
    """z = 0: p is 1/2 everywhere, so that the code of each class moves to its own example."""
    method = build(2, code_size=1, code_steps=1, weight_steps=0)
    with torch.no_grad():
        method.relation[2].zero_()
        method.decoder.copy_(torch.tensor([[1.0, 0.0, 0.0, 0.0]]))
    task = by_hand([[1.0, 0.0], [-1.0, 0.0]], [0, 1])
    found = method.adapted(task)
    assert found.before.flatten().tolist() == [0.0, 0.0]
    torch.testing.assert_close(found.after, torch.tensor([[[1.0], [-1.0]]]))
    torch.testing.assert_close(found.weights, torch.tensor([[[1.0, 0.0], [-1.0, 0.0]]]))


def test_without_steps_weights_are_decoded_means() -> None:
    method, task = build(code_steps=0, weight_steps=0), unit_task()
    [mean, _] = method.codes(task.support, task.members() / task.counts()[:, None]).chunk(2, -1)
    torch.testing.assert_close(method(task), task.query @ (mean @ method.decoder[:, :DIM]).mT)


def naive_training(method: LEO, task: Task) -> tuple[Tensor, Tensor, Tensor]:
    """Weights (B, N, D), code before the steps and divergence in training without dropout; autograd in every step.

    Draws its noise in the same order as the method does.
    """
    size, hidden, counts = DIM, len(method.code_rate), task.counts()[..., None]
    raw = torch.stack([naive_codes(method, x, y, task.way) for x, y in zip(task.support, task.support_y, strict=True)])
    mean, deviation = raw[..., :hidden], (raw[..., hidden:].exp() - 1).clamp(min=1e-10)
    noise = torch.randn_like(mean)
    code = before = mean + deviation / counts.sqrt() * noise
    sample = mean + deviation * noise
    kl = (-deviation.log() - noise**2 / 2 + sample**2 / 2).mean()  # log(2 pi) cancels

    def decoded(code: Tensor) -> Tensor:
        mean, raw = (code @ method.decoder).chunk(2, -1)
        deviation = (raw.clamp(max=MOST_RAW).exp() - (1 - math.sqrt(2 / (task.way + size)))).clamp(min=1e-10)
        return mean + deviation / counts.sqrt() * torch.randn_like(mean)

    def loss(weights: Tensor) -> Tensor:
        rows = zip(weights, task.support, task.support_y, strict=True)
        return torch.stack([support_loss(w, x, y) for w, x, y in rows]).sum()

    for _ in range(method.code_steps):
        [gradient] = torch.autograd.grad(loss(decoded(code)), code, create_graph=True)
        code = code - method.code_rate * gradient
    weights = decoded(code)
    for _ in range(method.weight_steps):
        [gradient] = torch.autograd.grad(loss(weights), weights, create_graph=True)
        weights = weights - method.weight_rate * gradient
    return weights, before, kl


@pytest.mark.parametrize("scale", [1.0, 4.0])  # 4: some deviations are at their bound
def test_training_differentiates_through_noise_and_steps(scale: float) -> None:
    """Values, and gradients of the query's loss, against autograd within autograd."""
    options: dict[str, Any] = {"dropout": 0.0, "code_steps": 2, "weight_steps": 2, "weight_rate": 0.2}
    task, gradients = unit_task(counts=(2, 1, 3)), []
    method = build(**options).train()
    with torch.no_grad():
        method.decoder.mul_(scale)
        method.relation[2].mul_(scale)
    torch.manual_seed(1)
    found = method.adapted(task)
    torch.manual_seed(1)
    weights, before, kl = naive_training(method, task)
    torch.testing.assert_close(found.weights, weights, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found.before, before, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found.kl, kl, rtol=1e-4, atol=1e-4)
    params = method.param_groups()["head"].params
    for each, other in ((found.weights, found.kl), (weights, kl)):
        loss = method.cross_entropy(task.query @ each.mT, task) + other
        gradients.append(torch.autograd.grad(loss, params))
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-3, atol=1e-4)


def test_k_copies_are_one_copy_with_averaged_losses() -> None:
    """The released form: code and weights for each example, logits averaged over these copies, a summed loss."""
    shot, way = 3, 2
    task, method = unit_task(counts=(shot,) * way, batch=1), build(code_steps=3, weight_steps=3, weight_rate=0.3)
    x, y = task.support[0], task.support_y[0]
    code = naive_codes(method, x, y, way)[:, :4].repeat_interleave(shot, 0)  # (N K, H)

    def loss(weights: Tensor) -> Tensor:
        logits = torch.einsum("sd,nkd->snk", x, weights.view(way, shot, DIM)).mean(-1)
        return F.cross_entropy(logits, y, reduction="sum")

    for _ in range(method.code_steps):
        [gradient] = torch.autograd.grad(loss(code @ method.decoder[:, :DIM]), code, retain_graph=True)
        code = code - method.code_rate * gradient
    weights = code @ method.decoder[:, :DIM]
    for _ in range(method.weight_steps):
        [gradient] = torch.autograd.grad(loss(weights), weights, retain_graph=True)
        weights = weights - method.weight_rate * gradient
    expected = task.query @ weights.view(way, shot, DIM).mean(1).mT
    torch.testing.assert_close(method(task), expected, rtol=1e-4, atol=1e-5)


def test_the_support_in_another_order_or_twice_scores_the_same() -> None:
    task, method = unit_task(counts=(2, 1, 3), pads=1), build(weight_rate=0.1)
    scores = method(task)
    order = torch.tensor([4, 0, 6, 5, 2, 1, 3])
    turned = replace(task, support=task.support[:, order], support_y=task.support_y[:, order])
    torch.testing.assert_close(method(turned), scores)
    torch.testing.assert_close(method(doubled(task)), scores)


def test_padding_is_no_example() -> None:
    plain, padded = unit_task(), unit_task(pads=3)
    padded = replace(padded, query=plain.query)
    method = build(weight_rate=0.1)
    torch.testing.assert_close(method(padded), method(plain))


def test_rows_of_the_decoder_are_pushed_apart() -> None:
    method, task = build(), unit_task()
    rows = F.normalize(method.decoder.detach(), dim=-1)
    cosines = rows @ rows.mT
    expected = sum(float(cosines[i, j]) ** 2 for i in range(4) for j in range(4) if i != j) / 16
    assert method.row_correlation().item() == pytest.approx(expected, rel=1e-4)
    with torch.no_grad():
        method.decoder.copy_(3 * torch.eye(4, 2 * DIM))
    assert method.loss(task)["orth"].item() == 0


@pytest.mark.parametrize("name", ["code_rate", "weight_rate"])
def test_rates_learn_by_the_gradient_through_all_steps(name: str) -> None:
    """Finite differences in double precision."""
    task, method = unit_task(counts=(2, 1, 3)), build(weight_rate=0.3).double()
    task = replace(task, support=task.support.double(), query=task.query.double())
    rate = getattr(method, name)
    [gradient] = torch.autograd.grad(method.loss(task)["cls"], rate)
    for i in range(len(rate)):
        losses = []
        for step in (1e-5, -2e-5):
            with torch.no_grad():
                rate[i] += step
                losses.append(method.loss(task)["cls"].item())
        with torch.no_grad():
            rate[i] += 1e-5
        assert gradient[i].item() == pytest.approx((losses[0] - losses[1]) / 2e-5, rel=1e-4, abs=1e-9)


def test_the_parts_of_the_loss() -> None:
    """In evaluation mode, where nothing is drawn."""
    options: dict[str, Any] = {"code_weight": 2.0, "decay_weight": 3.0, "orth_weight": 0.5, "temperature": 0.5}
    task, method = unit_task(), build(**options)
    found, parts = method.adapted(task), method.loss(task)
    assert parts.keys() == {"cls", "kl", "code", "decay", "orth"}
    assert parts["kl"].item() == 0
    scores = method(task)
    assert task.query_y is not None
    expected = F.cross_entropy(scores.flatten(0, 1) / 0.5, task.query_y.flatten())
    torch.testing.assert_close(parts["cls"], expected)
    torch.testing.assert_close(parts["code"], 2 * ((found.after - found.before) ** 2).mean())
    matrices = [method.embedding, *method.relation, method.decoder]
    torch.testing.assert_close(parts["decay"], 1.5 * sum(((m**2).sum() for m in matrices), torch.zeros(())))
    torch.testing.assert_close(parts["orth"], 0.5 * method.row_correlation())


def test_the_code_is_pulled_to_where_the_steps_lead_and_not_the_other_way() -> None:
    """`code` sees the code before the steps only: what comes after is a constant."""
    method, task = build(code_weight=1.0), unit_task()
    torch.autograd.backward(method.loss(task)["code"])
    assert method.code_rate.grad is None
    assert method.embedding.grad is not None


def test_divergence_is_that_of_two_gaussians_on_average() -> None:
    method, task = build(dropout=0.0, code_steps=0, weight_steps=0).train(), alike(3, 4000)
    with torch.no_grad():
        method.relation[2].abs_()  # raw deviations above 0
        mean, raw = method.codes(task.support[:1], task.members()[:1] / 3).chunk(2, -1)
        deviation = raw.exp() - 1
        expected = (-deviation.log() + (mean**2 + deviation**2 - 1) / 2).mean()
        assert method.adapted(task).kl.item() == pytest.approx(expected.item(), rel=0.02)


@torch.no_grad()
def test_samples_of_several_examples_spread_less() -> None:
    """At 1 / sqrt(K) of the deviation, codes and weights."""
    method = build(dropout=0.0, code_steps=0, weight_steps=0).train()
    method.relation[2].abs_()
    one = alike(1, 1000)
    four = doubled(doubled(one))
    codes = [method.adapted(task).before.std(0).mean().item() for task in (one, four)]
    method.relation[2][:, 4:] = -1.0  # no deviation of codes: that of weights is left
    weights = [method.adapted(task).weights.std(0).mean().item() for task in (one, four)]
    assert codes[0] == pytest.approx(2 * codes[1], rel=0.1)
    assert weights[0] == pytest.approx(2 * weights[1], rel=0.1)


def test_the_deviation_of_weights_starts_near_its_offset() -> None:
    raw = torch.zeros(1, 5, 640, requires_grad=True)
    deviation, slope = weight_deviation(raw)
    torch.testing.assert_close(deviation, torch.full_like(raw, 0.0557), rtol=0, atol=1e-4)
    torch.testing.assert_close(torch.autograd.grad(deviation.sum(), raw)[0], slope)
    low, flat = weight_deviation(torch.full((5, 640), -1.0))
    assert (low == 1e-10).all()
    assert not flat.any()


def test_noise_and_dropout_are_for_training() -> None:
    task = unit_task()
    for dropout in (0.0, 0.5):
        method = build(dropout=dropout)
        assert torch.equal(method(task), method(task))
        method.train()
        assert not torch.equal(method(task), method(task))


def test_every_use_of_the_vectors_is_dropped_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The relation network, each inner step and the scores."""
    task, seen = unit_task(counts=(2, 2)), []
    method = build(code_steps=2, weight_steps=1).train()

    def nothing(x: Tensor) -> Tensor:
        seen.append(x)
        return 0 * x

    monkeypatch.setattr(method.dropout, "forward", nothing)
    assert not method(task).any()
    assert len(seen) == 5
    assert all(x is task.support for x in seen[:4])
    assert seen[4] is task.query


def test_training_is_finite_where_deviations_would_run_away() -> None:
    """Codes far out: without a bound the weights' deviation grows to infinity in two inner steps."""
    method, task = build(dropout=0.0).train(), unit_task()
    with torch.no_grad():
        method.decoder.mul_(30)
    torch.manual_seed(0)
    assert method.adapted(task).weights.isfinite().all()


def test_sizes_are_the_published_ones() -> None:
    method = make_method("leo", feature_shape=(640,))
    params = method.param_groups()["head"].params
    assert sum(p.numel() for p in params) == 172_736
    assert not method.param_groups()["head"].table
    assert {id(p) for p in params} == {id(p) for p in method.parameters() if p.requires_grad}


def test_the_support_loss_is_watched_in_training() -> None:
    """Weights of almost nothing leave each class a loss of log N; steps of a large rate lower it."""
    task, method = unit_task(counts=(2, 2, 2)), build(dropout=0.0, code_steps=1, weight_steps=2, weight_rate=3.0)
    method(task)
    assert method.monitor() == {}
    with torch.no_grad():
        method.decoder.zero_()
        method.code_rate.zero_()
        method.relation[2][:, 4:] = -1.0
    method.train()
    weights, found = method.adapted(task).weights.detach(), method.monitor()
    losses, length = found["support_loss"], found["code_length"]
    assert isinstance(losses, list)
    assert len(losses) == 4
    assert losses[0] > losses[2] > losses[3]
    last = [support_loss(*each) for each in zip(weights, task.support, task.support_y, strict=True)]
    assert losses[3] == pytest.approx(torch.stack(last).mean().item(), rel=1e-4)
    codes = method.codes(task.support, task.members() / 2)[..., :4]
    assert length == pytest.approx(codes.norm(dim=-1).mean().item(), rel=1e-4)


def test_what_it_cannot_serve_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"LEO: code_size = 0 must be at least 1, such as 64"):
        build(code_size=0)
    counts, penalties = ("code_steps", "weight_steps"), ("kl_weight", "code_weight", "decay_weight", "orth_weight")
    for name, value in [*((name, -1) for name in counts), *((name, -0.5) for name in penalties)]:
        options: dict[str, Any] = {name: value}
        with pytest.raises(ConfigError, match=f"LEO: {name} = {value} must be 0 or more"):
            build(**options)
    with pytest.raises(ConfigError, match=r"LEO: dropout = 1\.0 must be at least 0 and below 1, such as 0\.3"):
        build(dropout=1.0)


def test_it_learns_by_which_features_classes_differ() -> None:
    """New episodes of classes that differ in two of eight coordinates; the others are louder."""
    random = torch.Generator().manual_seed(0)
    labels = torch.arange(2).repeat(4, 5)

    def draw() -> Task:
        means = torch.zeros(4, 2, 8)
        means[..., :2] = F.normalize(torch.randn(4, 2, 2, generator=random), dim=-1)
        means[:, 1, :2] = -means[:, 0, :2]
        noise = torch.tensor([0.2, 0.2, *[1.0] * 6]) * torch.randn(4, 12, 8, generator=random)
        x = F.normalize(torch.cat([means, means[:, labels[0]]], 1) + noise, dim=-1)
        return Task(x[:, :2], labels[:, :2], x[:, 2:], labels, labels[:, :2], torch.arange(11).expand(4, -1))

    def right() -> float:
        random.manual_seed(1)
        with torch.no_grad():
            tasks = [draw() for _ in range(20)]
            return float(
                torch.stack([(method(task).argmax(-1) == task.query_y).float().mean() for task in tasks]).mean()
            )

    method = build(8, dropout=0.0, code_size=16, code_steps=2, weight_steps=1)
    before = right()
    optimiser = torch.optim.Adam(method.train().parameters(), lr=0.01)
    for _ in range(40):
        optimiser.zero_grad()
        torch.autograd.backward(torch.stack(list(method.loss(draw()).values())).sum())
        optimiser.step()
    method.eval()
    assert right() > before + 0.1
