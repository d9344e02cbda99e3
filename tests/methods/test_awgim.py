"""AWGIM against its equations in loops, independent queries, what its parts teach, and blocks."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from hyperproto.data import OUTSIDE
from hyperproto.errors import ConfigError
from hyperproto.methods import PAD, Task, make_method
from hyperproto.methods.awgim import AWGIM, Attention
from hyperproto.methods.parts import Dropout
from hyperproto.testing import method_checks
from tests.helpers.random_tasks import make_task

DIM, SIZE = 6, 8


def build(seed: int = 0, dim: int = DIM, **options: Any) -> AWGIM:
    torch.manual_seed(seed)
    method = make_method("awgim", feature_shape=(dim,), **{"size": SIZE, "heads": 2, **options})
    assert isinstance(method, AWGIM)
    return method.eval()


def learned(**options: Any) -> AWGIM:
    """A method whose norms have learned something."""
    method = build(**options)
    with torch.no_grad():
        for name, parameter in method.named_parameters():
            if name.endswith(("gain", "shift")):
                parameter.add_(0.3 * torch.randn_like(parameter))
    return method


def layers(part: torch.nn.Module, x: Tensor) -> Tensor:
    """Linear layers with ReLU between them."""
    for i, weight in enumerate(part.parameters()):
        x = (x if i == 0 else x.relu()) @ weight.mT
    return x


def normed(rows: Tensor, norm: torch.nn.Module, over: str) -> Tensor:
    """Normalise rows (T, d) each by itself, or all together."""
    mean, variance = rows.mean(), rows.var(unbiased=False)
    if over == "token":
        mean, variance = rows.mean(-1, keepdim=True), rows.var(-1, unbiased=False, keepdim=True)
    return (rows - mean) / (variance + 1e-5).sqrt() * norm.get_parameter("gain") + norm.get_parameter("shift")


def naive_attention(part: Attention, query: Tensor, key: Tensor, value: Tensor, over: str) -> Tensor:
    """One head and one query after another, (Q, d)."""
    size = SIZE // part.heads
    out = []
    for q in query:
        total = q
        for head in range(part.heads):
            mine = slice(head * size, (head + 1) * size)
            alike = torch.stack([part.query.weight[mine] @ q @ (part.key.weight[mine] @ k) for k in key])
            share = (alike / math.sqrt(size)).softmax(0)
            read = sum(
                (a * (part.value.weight[mine] @ v) for a, v in zip(share, value, strict=True)), torch.zeros(size)
            )
            total = total + part.output.weight[:, mine] @ read
        out.append(total)
    x = normed(torch.stack(out), part.first_norm, over)
    return normed(x + layers(part.mlp, x), part.second_norm, over)


def naive(method: AWGIM, task: Task, over: str = "token") -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Context codes (B, N, d), attentive codes (B, Q, d), weights (B, Q, N, D) and scores, without noise."""
    found: list[list[Tensor]] = [[], [], [], []]
    for support, labels, query in zip(task.support, task.support_y, task.query, strict=True):
        x, y = support[labels != PAD], labels[labels != PAD]
        s, t = layers(method.attentive_input, x), layers(method.attentive_input, query)
        c = naive_attention(method.support_attention, s, s, s, over)
        value = torch.stack([c[y == label].mean(0) for label in y])
        attentive = naive_attention(method.query_attention, t, s, value, over)
        s = layers(method.context_input, x)
        c = naive_attention(method.context_attention, s, s, s, over)
        context = torch.stack([c[y == n].mean(0) for n in range(task.way)])
        pairs = [[layers(method.generator, torch.cat([c, a])) for c in context] for a in attentive]
        weights = torch.stack([torch.stack(row) for row in pairs])[..., : task.query.shape[-1]]
        scores = torch.stack([torch.stack([q @ w for w in row]) for q, row in zip(query, weights, strict=True)])
        for each, part in zip(found, (context, attentive, weights, scores), strict=True):
            each.append(part)
    context, attentive, weights, scores = (torch.stack(each) for each in found)
    return context, attentive, weights, scores


@pytest.mark.parametrize("norm", ["token", "episode"])
@torch.no_grad()
def test_scores_are_those_of_the_equations(norm: str) -> None:
    task, method = make_task(counts=(2, 1, 3), queries=2, pads=2), learned(norm=norm)
    context, attentive, _, scores = naive(method, task, norm)
    torch.testing.assert_close(method.codes(task), (context, attentive), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(method(task), scores, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_the_parts_of_the_loss() -> None:
    """In evaluation mode, where nothing is drawn; padded examples and padded queries count nowhere."""
    options: dict[str, Any] = {"support_weight": 2.0, "context_weight": 3.0, "query_weight": 5.0, "temperature": 0.5}
    task, method = make_task(counts=(2, 1, 3), queries=2, pads=2), learned(**options)
    assert task.query_y is not None
    query_y = task.query_y.clone()
    query_y[0, 0], query_y[1, -1] = OUTSIDE, PAD
    task = replace(task, query_y=query_y)
    context, attentive, weights, scores = naive(method, task)
    sums = {"cls": 0.0, "support": 0.0, "context": 0.0, "query": 0.0}
    numbers = dict.fromkeys(sums, 0)
    for b, q in torch.cartesian_prod(torch.arange(2), torch.arange(6)).tolist():
        if query_y[b, q] == PAD:
            continue
        if query_y[b, q] != OUTSIDE:
            sums["cls"] -= torch.log_softmax(scores[b, q] / 0.5, -1)[query_y[b, q]].item()
            numbers["cls"] += 1
        for x, y in zip(task.support[b], task.support_y[b], strict=True):
            if y != PAD:
                sums["support"] -= torch.log_softmax(weights[b, q] @ x / 0.5, -1)[y].item()
                numbers["support"] += 1
        for n in range(3):
            read = layers(method.context_reader, weights[b, q, n]), layers(method.query_reader, weights[b, q, n])
            sums["context"] += ((context[b, n] - read[0]) ** 2).sum().item()
            sums["query"] += ((attentive[b, q] - read[1]) ** 2).sum().item()
            numbers["context"] += 1
            numbers["query"] += 1
    factors = {"cls": 1, "support": 2, "context": 3, "query": 5}
    expected = {name: factors[name] * sums[name] / numbers[name] for name in sums}
    assert {name: part.item() for name, part in method.loss(task).items()} == pytest.approx(expected, rel=1e-4)


@torch.no_grad()
def test_a_query_alone_scores_as_among_74_others() -> None:
    task = make_task(counts=(2, 1, 3, 2, 1), queries=15, batch=1)
    one = replace(task, query=task.query[:, 7:8], query_y=None)
    torch.testing.assert_close(build()(one), build()(task)[:, 7:8])
    released = build(norm="episode")
    assert not torch.allclose(released(one), released(task)[:, 7:8], atol=1e-4)


def test_what_the_released_norm_promises() -> None:
    """Everything but independent queries; `check_method` looks for those by the class."""
    assert "transductive" not in build().traits
    assert build(norm="episode").traits == AWGIM.traits | {"transductive"}
    for name, check in method_checks(AWGIM, norm="episode", size=8):
        if not name.startswith("queries_alone"):
            check()


@pytest.mark.parametrize("norm", ["token", "episode"])
@torch.no_grad()
def test_order_padding_and_doubling_of_the_support_change_nothing(norm: str) -> None:
    task, method = make_task(counts=(2, 1, 3)), learned(norm=norm)
    scores = method(task)
    order = torch.tensor([4, 0, 5, 2, 1, 3])
    turned = replace(task, support=task.support[:, order], support_y=task.support_y[:, order])
    padded = replace(make_task(counts=(2, 1, 3), pads=3), query=task.query)
    doubled = replace(task, support=task.support.repeat(1, 2, 1), support_y=task.support_y.repeat(1, 2))
    for other in (turned, padded, doubled):
        torch.testing.assert_close(method(other), scores, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_padded_queries_are_in_no_statistic() -> None:
    task, method = make_task(counts=(2, 1, 3)), build(norm="episode")
    assert task.query_y is not None
    hidden = task.query_y.clone()
    hidden[:, -2:] = PAD
    padded = replace(task, query_y=hidden)
    fewer = replace(task, query=task.query[:, :-2], query_y=task.query_y[:, :-2])
    torch.testing.assert_close(method(padded)[:, :-2], method(fewer))


def gradients(method: AWGIM, task: Task, part: str) -> dict[str, Tensor]:
    """Gradients of one part of the loss, of what it reaches."""
    method.zero_grad()
    torch.autograd.backward(method.loss(task)[part])
    return {name: p.grad for name, p in method.named_parameters() if p.grad is not None and p.grad.any()}


def test_readers_without_weight_learn_nothing() -> None:
    method, task = build(context_weight=0.0, query_weight=0.0).train(), make_task()
    torch.autograd.backward(torch.stack(list(method.loss(task).values())).sum())
    for part in (method.context_reader, method.query_reader):
        assert not any(p.grad is not None and p.grad.any() for p in part.parameters())


@pytest.mark.parametrize(
    ("part", "code", "own", "reader"),
    [
        ("context", slice(0, SIZE), ("context_input", "context_attention"), "context_reader"),
        ("query", slice(SIZE, None), ("support_attention", "query_attention"), "query_reader"),
    ],
)
def test_a_code_is_a_constant_to_what_reads_it(part: str, code: slice, own: tuple[str, ...], reader: str) -> None:
    """Where weights do not depend on a code its path learns nothing of the error of reading it; else it does."""
    method, task = build(), make_task()
    found = gradients(method, task, part)
    assert any(name.startswith(own) for name in found)
    first = method.generator[1].weight
    assert isinstance(first, Tensor)
    with torch.no_grad():
        first[:, code] = 0
    found = gradients(method, task, part)
    assert not any(name.startswith(own) for name in found)
    assert any(name.startswith(reader) for name in found)


@torch.no_grad()
def test_noise_and_dropout_are_for_training() -> None:
    task = make_task()
    for dropout in (0.0, 0.5):
        method = build(dropout=dropout)
        assert torch.equal(method(task), method(task))
        method.train()
        assert not torch.equal(method(task), method(task))


@torch.no_grad()
def test_dropout_is_on_vectors_and_on_the_input_of_each_network(monkeypatch: pytest.MonkeyPatch) -> None:
    task, seen = make_task(counts=(2, 2), queries=3), []

    def kept(self: Dropout, x: Tensor) -> Tensor:
        seen.append((self.keep, *x.shape))
        return x

    monkeypatch.setattr(Dropout, "forward", kept)
    build(dropout=0.25).train().loss(task)
    support, query, token, asked = (2, 4, DIM), (2, 6, DIM), (2, 4, SIZE), (2, 6, SIZE)
    pairs, weights = (2, 6, 2, 2 * SIZE), (2, 6, 2, DIM)
    paths = [support, query, token, asked, support, token]  # both inputs, an attention after each, the context's own
    assert seen == [(0.75, *shape) for shape in [*paths, support, query, pairs, weights, weights]]


@torch.no_grad()
def test_training_samples_weights_at_their_deviation() -> None:
    """Scores of a query of length 1 along one coordinate spread as its weight does."""
    method = build(dropout=0.0).train()
    task = make_task(counts=(1, 1), queries=1, batch=1)
    task = replace(task, query=torch.eye(DIM)[:1].expand(1, 2, -1))
    generator = method.generator[3].weight
    assert isinstance(generator, Tensor)
    generator[DIM:] = 0  # raw deviations of 0
    many = replace(
        task,
        support=task.support.expand(3000, -1, -1),
        support_y=task.support_y.expand(3000, -1),
        query=task.query.expand(3000, -1, -1),
        query_y=None,
        classes=task.classes.expand(3000, -1),
    )
    drawn = method(many)
    torch.testing.assert_close(drawn.std(0), torch.full((2, 2), math.sqrt(2 / (2 + DIM))), rtol=0.1, atol=0)
    torch.testing.assert_close(drawn.mean(0), method.eval()(task)[0], rtol=0, atol=0.05)


def test_blocks_score_and_learn_as_the_whole_does(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for size in (1 << 30, 1):
        monkeypatch.setattr("hyperproto.methods.parts.BLOCK_BYTES", size)
        method, task = build(), make_task(pads=1)
        with torch.no_grad():
            scores = method(task)
        torch.autograd.backward(torch.stack(list(method.loss(task).values())).sum())
        found.append([scores, *[p.grad for p in method.param_groups()["head"].params]])
    torch.testing.assert_close(found[0], found[1], rtol=1e-5, atol=1e-5)


def test_sizes_are_the_published_ones() -> None:
    method = make_method("awgim", feature_shape=(640,))
    group = method.param_groups()["head"]
    assert sum(p.numel() for p in group.params) == 1_345_024
    assert not group.table
    assert {id(p) for p in group.params} == {id(p) for p in method.parameters() if p.requires_grad}


def test_weights_start_as_published() -> None:
    method = make_method("awgim", feature_shape=(640,))
    assert isinstance(method, AWGIM)
    for layer in (method.query_attention.key, method.context_attention.output):
        assert layer.weight.std().item() == pytest.approx(128**-0.5, rel=0.05)
    weight = method.generator[3].weight
    assert isinstance(weight, Tensor)
    assert weight.abs().max().item() == pytest.approx(math.sqrt(6 / (256 + 1280)), rel=0.01)


def test_what_it_cannot_serve_is_refused() -> None:
    for options in ({"size": 10, "heads": 4}, {"size": 0, "heads": 1}, {"size": 4, "heads": 0}):
        words = f"AWGIM: size = {options['size']} must be a multiple of heads = {options['heads']}, both at least 1"
        with pytest.raises(ConfigError, match=words):
            make_method("awgim", feature_shape=(DIM,), **options)
    for name in ("support_weight", "context_weight", "query_weight"):
        weight: dict[str, Any] = {name: -0.5}
        with pytest.raises(ConfigError, match=rf"AWGIM: {name} = -0\.5 must be 0 or more"):
            build(**weight)
    with pytest.raises(ConfigError, match=r"AWGIM: dropout = 1\.0 must be at least 0 and below 1, such as 0\.3"):
        build(dropout=1.0)
    with pytest.raises(ConfigError, match="option 'norm': 'batch' is not valid"):
        build(norm="batch")
    task = replace(make_task(), query_y=None)
    with pytest.raises(ConfigError, match="these episodes hide the labels of their queries"):
        build().loss(task)


def test_it_learns_to_tell_classes_apart() -> None:
    """New episodes of two of six round classes: only the support tells which is which."""
    random = torch.Generator().manual_seed(0)
    means = F.normalize(torch.randn(6, DIM, generator=random), dim=-1)
    labels = torch.arange(2).repeat(8, 5)
    method = build(dropout=0.0).train()
    optimiser = torch.optim.Adam(method.parameters(), lr=5e-3)

    def draw() -> Task:
        classes = torch.stack([torch.randperm(6, generator=random)[:2] for _ in range(8)])
        places = means[torch.cat([classes, classes.gather(1, labels)], 1)]
        x = F.normalize(places + 0.15 * torch.randn(8, 12, DIM, generator=random), dim=-1)
        return Task(x[:, :2], labels[:, :2], x[:, 2:], labels, classes, torch.arange(11).expand(8, -1))

    for _ in range(80):
        optimiser.zero_grad()
        torch.autograd.backward(torch.stack(list(method.loss(draw()).values())).sum())
        optimiser.step()
    method.eval()
    right = [(method(task).argmax(-1) == task.query_y).float().mean() for task in [draw() for _ in range(10)]]
    assert torch.stack(right).mean() > 0.9
