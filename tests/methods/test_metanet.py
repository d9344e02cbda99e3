"""Meta networks: gradients against autograd, scores against a naive loop, and what the support does and does not do."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hyperproto.errors import ConfigError
from hyperproto.methods import Task, make_method
from hyperproto.methods.metanet import FastWeights, MetaNet, Windows, two_scales
from tests.helpers.random_tasks import make_task

NAMES = ["metanet", "metanet-conv"]
DIM, LONGEST, HIDDEN = 6, 5, 7


def build(name: str, way: int = 3, **options: Any) -> MetaNet:
    torch.manual_seed(0)
    shape = (DIM,) if name == "metanet" else (-1, DIM)
    method = make_method(name, feature_shape=shape, way=way, **{"hidden": HIDDEN, **options})
    assert isinstance(method, MetaNet)
    with torch.no_grad():
        for fast in (method.base_fast, method.base_out_fast, method.representation_fast):
            fast.out.weight.mul_(100)  # as torch has it: fast weights are not to vanish beside the slow ones
            fast.out.bias.mul_(100)
    return method.eval()


def task_for(name: str, counts: tuple[int, ...] = (2, 1, 3), **shape: Any) -> Task:
    """Vectors or, for the convolution, token states of 1 to 5 words with noise where nothing is real."""
    if name == "metanet":
        return make_task(counts=counts, dim=DIM, **shape)
    task = make_task(counts=counts, dim=DIM * LONGEST, **shape)
    random = torch.Generator().manual_seed(1)
    masks = [
        torch.arange(LONGEST) < torch.randint(1, LONGEST + 1, (*units.shape[:2], 1), generator=random)
        for units in (task.support, task.query)
    ]
    support, query = (units.view(*units.shape[:2], LONGEST, DIM) for units in (task.support, task.query))
    return replace(task, support=support, query=query, support_mask=masks[0], query_mask=masks[1])


def convolved(x: Tensor, real: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Activations (H,) of a sentence (L, C) by loops over words: nothing stands beyond its ends."""
    length, filters = int(real.sum()), weight.view(-1, DIM, 3)  # (H, C, 3)
    values = []
    for here in range(length):
        value = torch.zeros(len(weight)) if bias is None else bias.clone()
        for step in (-1, 0, 1):
            if 0 <= here + step < length:
                value = value + filters[..., step + 1] @ x[here + step]
        values.append(value.relu())
    return torch.stack(values).amax(0)


def naive_layer(x: Tensor, real: Tensor | None, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return (weight @ x).relu() if real is None else convolved(x, real, weight, bias)


def naive_fast(network: FastWeights, gradients: Tensor) -> Tensor:
    weights = []
    for g in gradients.flatten().tolist():
        both = (math.log(abs(g)) / 7, math.copysign(1, g)) if abs(g) >= math.exp(-7) else (-1.0, math.exp(7) * g)
        weights.append(network.out(network.reader(torch.tensor([both])))[0, 0])
    return torch.stack(weights).view_as(gradients)


def naive_scores(method: MetaNet, task: Task, episode: int) -> Tensor:
    """Steps 1 to 7, one example and one query at a time, with gradients by autograd."""
    keep = task.support_y[episode] >= 0
    x, y, queries = task.support[episode][keep], task.support_y[episode][keep], task.query[episode]
    none = [None] * 99
    masks = none if task.support_mask is None else task.support_mask[episode][keep]
    query_masks = none if task.query_mask is None else task.query_mask[episode]
    base, out = method.base, method.base_out.weight
    slow, slow_out = method.representation, method.representation_out.weight
    pairs = list(zip(x, masks, strict=False))
    logits = torch.stack([slow_out @ naive_layer(v, m, slow.weight, slow.bias) for v, m in pairs])
    [whole] = torch.autograd.grad(F.cross_entropy(logits, y), [slow.weight])
    fast = naive_fast(method.representation_fast, whole)
    fast_base, fast_out = [], []
    for (v, m), label in zip(pairs, y, strict=True):
        own = F.cross_entropy(out @ naive_layer(v, m, base.weight, base.bias), label)
        first, second = torch.autograd.grad(own, [base.weight, out])
        fast_base.append(naive_fast(method.base_fast, first))
        fast_out.append(naive_fast(method.base_out_fast, second))

    def represented(v: Tensor, m: Tensor | None) -> Tensor:
        return naive_layer(v, m, slow.weight, slow.bias) + naive_layer(v, m, fast)

    keys = [represented(v, m) for v, m in pairs]
    scores = []
    for q, m in zip(queries, query_masks, strict=False):
        alike = torch.stack([F.cosine_similarity(represented(q, m), key, dim=0) for key in keys])
        share = alike.softmax(0)
        mixed = sum(a * w for a, w in zip(share, fast_base, strict=True))
        mixed_out = sum(a * w for a, w in zip(share, fast_out, strict=True))
        assert isinstance(mixed, Tensor)
        assert isinstance(mixed_out, Tensor)
        h = naive_layer(q, m, base.weight, base.bias) + naive_layer(q, m, mixed)
        scores.append(out @ h + mixed_out @ h)
    return torch.stack(scores).detach()


@pytest.mark.parametrize("block", [1, 32 << 20])
@pytest.mark.parametrize("name", NAMES)
def test_scores_are_those_of_the_equations(monkeypatch: pytest.MonkeyPatch, name: str, block: int) -> None:
    monkeypatch.setattr("hyperproto.methods.parts.BLOCK_BYTES", block)
    task, method = task_for(name, queries=1, pads=2), build(name)
    scores = method(task)
    for episode in range(2):
        torch.testing.assert_close(scores[episode], naive_scores(method, task, episode), rtol=1e-4, atol=1e-4)


def test_coordinates_of_gradients_are_read_at_two_scales() -> None:
    e = math.e
    found = two_scales(torch.tensor([0.5 * e**-7, 1.0, -(e**-3.5), 0.0, -0.25 * e**-7], dtype=torch.float64))
    expected = torch.tensor([[-1, 0.5], [0, 1], [-0.5, -1], [-1, 0], [-1, -0.25]], dtype=torch.float64)
    torch.testing.assert_close(found, expected)


def windows_of(method: MetaNet, task: Task) -> tuple[Windows, Tensor]:
    """The support of the first episode."""
    mask = None if task.support_mask is None else task.support_mask[0]
    return method._windows(task.support[0], mask), task.support_y[0]


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_those_of_autograd(name: str) -> None:
    task, method = task_for(name), build(name)
    support, y = windows_of(method, task)

    def logits(first: nn.Linear, out: nn.Linear) -> Tensor:
        values = first(support.x).masked_fill(~support.real[..., None], -torch.inf).relu()
        found: Tensor = out(values.amax(1))
        return found

    loss = F.cross_entropy(logits(method.representation, method.representation_out), y)
    [expected] = torch.autograd.grad(loss, [method.representation.weight])
    torch.testing.assert_close(method.representation_gradient(support, y), expected)
    losses = F.cross_entropy(logits(method.base, method.base_out), y, reduction="none")
    first, second = method.base_gradients(support, y)
    for n, loss in enumerate(losses):
        weights = [method.base.weight, method.base_out.weight]
        own = torch.autograd.grad(loss, weights, retain_graph=True)
        torch.testing.assert_close(first[n], own[0])
        torch.testing.assert_close(second[n], own[1])
    assert not first.requires_grad
    assert not second.requires_grad


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_without_fast_weights_the_support_has_no_say(name: str) -> None:
    task, method = task_for(name), build(name)
    for fast in (method.base_fast, method.base_out_fast):
        fast.out.weight.zero_()
        fast.out.bias.zero_()
    scores = method(task)
    assert torch.equal(method(replace(task, support=-task.support)), scores)
    if name == "metanet":
        torch.testing.assert_close(scores, (task.query @ method.base.weight.mT).relu() @ method.base_out.weight.mT)


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_labels_of_the_support_matter_and_its_order_and_padding_do_not(name: str) -> None:
    task, method = task_for(name), build(name)
    scores = method(task)
    order = torch.tensor([4, 0, 5, 2, 1, 3])
    mask = None if task.support_mask is None else task.support_mask[:, order]
    turned = replace(task, support=task.support[:, order], support_y=task.support_y[:, order], support_mask=mask)
    torch.testing.assert_close(method(turned), scores)
    assert not torch.allclose(method(replace(task, support_y=task.support_y.flip(1))), scores, atol=1e-3)


@torch.no_grad()
def test_words_that_are_not_real_have_no_part() -> None:
    task, method = task_for("metanet-conv"), build("metanet-conv")
    assert task.support_mask is not None
    assert task.query_mask is not None
    other = replace(
        task,
        support=task.support.masked_fill(~task.support_mask[..., None], 9.0),
        query=task.query.masked_fill(~task.query_mask[..., None], -9.0),
    )
    assert torch.equal(method(other), method(task))


@torch.no_grad()
def test_one_example_is_all_that_a_query_attends_to() -> None:
    """Its fast weights are taken whole: the same example twice, each with half the attention, changes nothing."""
    method = build("metanet", way=1)
    task = make_task(counts=(1,), dim=DIM)
    twice = replace(task, support=task.support.repeat(1, 2, 1), support_y=task.support_y.repeat(1, 2))
    torch.testing.assert_close(method(twice), method(task))
    base, out = method.base_gradients(*windows_of(method, task))
    h = (task.query[0] @ method.base.weight.mT).relu() + (task.query[0] @ method.base_fast(base)[0].mT).relu()
    expected = h @ method.base_out.weight.mT + h @ method.base_out_fast(out)[0].mT
    torch.testing.assert_close(method(task)[0], expected)


@pytest.mark.parametrize("name", NAMES)
def test_scores_need_no_autograd_and_what_learns_has_gradients(name: str) -> None:
    task, method = task_for(name), build(name)
    with torch.no_grad():
        scores = method(task)
    assert torch.equal(method(task), scores)
    losses = method.loss(task)
    assert losses.keys() == {"cls", "emb"}
    embedded = torch.autograd.grad(losses["emb"], method.representation_out.weight, retain_graph=True)[0]
    assert embedded.abs().sum() > 0
    [untouched] = torch.autograd.grad(losses["cls"], [method.representation_out.weight], allow_unused=True)
    assert untouched is None


def test_generated_weights_start_small() -> None:
    method = make_method("metanet", feature_shape=(230,), way=5)
    assert isinstance(method, MetaNet)
    task = make_task(counts=(1,) * 5, dim=230)
    base, _ = method.base_gradients(*windows_of(method, task))
    assert method.base_fast(base).abs().max() < 0.01 < method.base.weight.abs().max()


def test_what_it_cannot_serve_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"MetaNet has an output for each class of an episode, but way is not given"):
        make_method("metanet", feature_shape=(DIM,))
    with pytest.raises(ConfigError, match="hidden 0: a layer has at least 1 unit"):
        build("metanet", hidden=0)
    with pytest.raises(
        ConfigError, match="MetaNet was made for 3 classes, but these episodes have 2; use its own number"
    ):
        build("metanet")(task_for("metanet", counts=(2, 2)))
    with pytest.raises(ConfigError, match=r'MetaNetConv reads token states.*relation-cnn with output = "embeddings"'):
        make_method("metanet-conv", feature_shape=(DIM,), way=3)


def test_the_networks_that_generate_weights_are_a_group() -> None:
    method = build("metanet")
    names = {id(parameter): name for name, parameter in method.named_parameters()}
    grouped = {names[id(parameter)].split(".")[0] for parameter in method.param_groups()["meta"].params}
    assert grouped == {"base_fast", "base_out_fast", "representation_fast"}


@pytest.mark.parametrize("name", NAMES)
def test_it_learns_from_the_labels_of_the_support(name: str) -> None:
    """Which of two clusters is class 0 changes from episode to episode: only the support tells."""
    random = torch.Generator().manual_seed(0)
    task = task_for(name, counts=(2, 2), queries=3, batch=4)
    swapped = torch.arange(4) % 2  # in odd episodes
    centres = torch.randn(2, DIM, generator=random)

    def clusters(labels: Tensor, like: Tensor) -> Tensor:
        own = centres[(labels + swapped[:, None]) % 2]  # (B, n, D)
        noise = 0.1 * torch.randn(like.shape, generator=random)
        return noise + (own if like.ndim == 3 else own[:, :, None])

    assert task.query_y is not None
    task = replace(task, support=clusters(task.support_y, task.support), query=clusters(task.query_y, task.query))
    method = build(name, way=2, hidden=12).train()
    optimiser = torch.optim.Adam(method.parameters(), lr=0.02)
    for _ in range(50):
        optimiser.zero_grad()
        losses = method.loss(task)
        torch.autograd.backward(losses["cls"] + losses["emb"])
        optimiser.step()
    assert method.loss(task)["cls"].item() < 0.1
    assert (method(task).argmax(-1) == task.query_y).float().mean() > 0.95
