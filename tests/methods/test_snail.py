"""SNAIL against whole sequences in loops, its causality, and what it refuses."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hyperproto.errors import ConfigError
from hyperproto.methods import Task, make_method
from hyperproto.methods.snail import SNAIL, CausalAttention, DilatedConvolution
from hyperproto.training import load_recipe
from tests.helpers.random_tasks import make_task

WAY, SHOT, DIM = 3, 2, 6
COUNTS = (SHOT,) * WAY


def build(way: int = WAY, shot: int | list[int] = SHOT, dim: int = DIM, **options: Any) -> SNAIL:
    torch.manual_seed(0)
    method = make_method("snail", feature_shape=(dim,), way=way, shot=shot, **options)
    assert isinstance(method, SNAIL)
    return method.eval()


def convolutions(method: SNAIL) -> list[DilatedConvolution]:
    return [layer for layer in method.layers if isinstance(layer, DilatedConvolution)]


def attentions(method: SNAIL) -> list[CausalAttention]:
    return [layer for layer in method.layers if isinstance(layer, CausalAttention)]


def linear(layer: nn.Linear, x: list[Tensor]) -> list[Tensor]:
    return [layer.weight @ place + layer.bias for place in x]


def normalised(x: Tensor) -> Tensor:
    return (x - x.mean()) / (x.var(correction=0) + 1e-5).sqrt()


def naive_sequence(method: SNAIL, z: list[Tensor]) -> list[Tensor]:
    """The equations, place by place: the channels before the read-out."""
    for layer in method.layers:
        if isinstance(layer, CausalAttention):
            keys, queries, values = linear(layer.key, z), linear(layer.query, z), linear(layer.value, z)
            read = []
            for i in range(len(z)):
                weights = [math.exp(float(keys[j] @ queries[i]) / math.sqrt(len(keys[j]))) for j in range(i + 1)]
                read.append(sum((w * v for w, v in zip(weights, values, strict=False)), 0 * values[0]) / sum(weights))
            z = [torch.cat(pair) for pair in zip(z, read, strict=True)]
        elif isinstance(layer, DilatedConvolution):
            f_weight, g_weight = layer.gates.weight.chunk(2)
            f_bias, g_bias = layer.gates.bias.chunk(2)
            size, d, out = len(z[0]), layer.dilation, []
            for t in range(len(z)):
                before = z[t - d] if t >= d else 0 * z[t]
                f = f_weight[:, :size] @ before + f_weight[:, size:] @ z[t] + f_bias
                g = g_weight[:, :size] @ before + g_weight[:, size:] @ z[t] + g_bias
                out.append(torch.cat([z[t], torch.tanh(f) * torch.sigmoid(g)]))
            z = out
        else:
            z = [normalised(p) for p in z]  # scale 1 and shift 0 at the start
    return z


@torch.no_grad()
def naive_scores(method: SNAIL, task: Task) -> Tensor:
    """A sequence for each query: the first example of each class, the second of each, ..., the query."""
    found = torch.empty(*task.query.shape[:2], task.way)
    for b in range(len(task.query)):
        support, seen = [], dict.fromkeys(range(task.way), 0)
        for x, y in zip(task.support[b], task.support_y[b].tolist(), strict=True):
            if y >= 0:
                support.append((seen[y], y, torch.cat([normalised(x), torch.eye(task.way)[y]])))
                seen[y] += 1
        support.sort(key=lambda entry: entry[:2])
        for q, query in enumerate(task.query[b]):
            last = torch.cat([normalised(query), torch.zeros(task.way)])
            found[b, q] = method.readout(naive_sequence(method, [x for *_, x in support] + [last])[-1])
    return found


def test_vectors_may_stay_as_they_are() -> None:
    method, task = build(normalise="none"), make_task(counts=COUNTS)
    assert torch.equal(method.support_of(task)[..., :DIM], task.by_class().transpose(1, 2).flatten(1, 2))
    moved = replace(task, support=3 * task.support + 1, query=3 * task.query + 1)
    assert not torch.allclose(method(moved), method(task), atol=1e-3)
    torch.testing.assert_close(build()(moved), build()(task), rtol=1e-3, atol=1e-4)


def test_keys_start_as_the_queries_and_learn_by_themselves() -> None:
    method = build()
    for layer in attentions(method):
        assert torch.equal(layer.key.weight, layer.query.weight)
        assert layer.key.weight is not layer.query.weight


@pytest.mark.parametrize("pads", [0, 2])
def test_scores_are_those_of_whole_sequences(pads: int) -> None:
    method, task = build(), make_task(counts=COUNTS, queries=1, pads=pads)
    order = torch.randperm(task.support.shape[1], generator=torch.Generator().manual_seed(0))
    task = replace(task, support=task.support[:, order], support_y=task.support_y[:, order])
    torch.testing.assert_close(method(task), naive_scores(method, task), rtol=1e-4, atol=1e-5)


def test_the_cached_support_gives_what_a_sequence_for_each_query_gives() -> None:
    method, task = build(way=4, shot=3), make_task(counts=(3, 3, 3, 3), queries=2)
    support = method.support_of(task)  # (2, 12, F)
    blank = torch.zeros(2, 1, 4)
    for q in range(task.query.shape[1]):
        last = torch.cat([method.normalised(task.query[:, q : q + 1]), blank], -1)
        whole, nothing = torch.cat([support, last], 1), last[:, :0]
        for layer in method.layers:
            whole, nothing = layer(whole, nothing)  # the query as the last place of the past
        torch.testing.assert_close(method(task)[:, q], method.readout(whole[:, -1]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("way", "shot", "depth", "sizes"),
    [
        (5, 1, 3, [235, 267, 651, 779, 1163, 1419]),
        (5, 5, 5, [235, 267, 907, 1035, 1675, 1931]),
        (10, 1, 4, [240, 272, 784, 912, 1424, 1680]),
        (10, 5, 6, [240, 272, 1040, 1168, 1936, 2192]),
        (1, 1, 1, [231, 263, 391, 519, 647, 903]),
    ],
)
def test_depth_and_sizes_follow_from_the_length(way: int, shot: int, depth: int, sizes: list[int]) -> None:
    with torch.device("meta"):
        method = build(way, shot, dim=230)
    first, second, third = attentions(method)
    layers = convolutions(method)
    assert [layer.dilation for layer in layers] == [2**level for level in range(depth)] * 2
    found = [first.key.in_features, layers[0].gates.in_features // 2, second.key.in_features]
    found += [layers[depth].gates.in_features // 2, third.key.in_features, method.readout.in_features]
    assert found == sizes
    assert [(layer.key.out_features, layer.value.out_features) for layer in (first, second, third)] == [
        (64, 32),
        (256, 128),
        (512, 256),
    ]


def test_attention_rows_sum_to_one_and_see_nothing_later() -> None:
    attention = attentions(build())[0]
    places = torch.randn(2, 5, DIM + WAY)
    shares = attention.shares(attention.query(places), attention.key(places))
    torch.testing.assert_close(shares.sum(-1), torch.ones(2, 5))
    assert (shares.triu(1) == 0).all()
    assert (shares.tril() > 0).sum() == 2 * 15


@pytest.mark.parametrize("place", range(6))
def test_a_place_changes_nothing_before_it(place: int) -> None:
    method = build()
    one = torch.randn(2, 6, DIM + WAY)
    other = one.clone()
    other[:, place] += 1
    last = one[:, :0]
    for layer in method.layers:
        (one, _), (other, _) = layer(one, last[..., :1].expand(-1, -1, one.shape[-1])), layer(other, other[:, :0])
    assert torch.equal(one[:, :place], other[:, :place])
    assert ((one[:, place:] - other[:, place:]).abs().amax(-1) > 0).all()


def test_labels_are_read_and_the_query_has_none() -> None:
    method, task = build(), make_task(counts=COUNTS)
    swapped = task.support_y.clone()
    swapped[:, 0], swapped[:, -1] = task.support_y[:, -1], task.support_y[:, 0]
    assert (method(replace(task, support_y=swapped)) - method(task)).abs().max() > 1e-4
    assert torch.equal(method.support_of(task)[..., DIM:], torch.eye(WAY).repeat(SHOT, 1).expand(2, -1, -1))
    seen = []

    def watch(_: nn.Module, inputs: tuple[Tensor, Tensor]) -> None:
        seen.append(inputs[1])

    method.layers[0].register_forward_pre_hook(watch)
    method(task)
    assert torch.equal(
        torch.cat(seen), torch.cat([method.normalised(task.query), torch.zeros(*task.query.shape[:2], WAY)], -1)
    )


def test_without_values_and_convolutions_the_support_is_not_read() -> None:
    method, task = build(), make_task(counts=COUNTS)
    other = replace(task, support=torch.randn_like(task.support))
    assert (method(other) - method(task)).abs().max() > 1e-4
    with torch.no_grad():
        for layer in [*(layer.value for layer in attentions(method)), *(layer.gates for layer in convolutions(method))]:
            layer.weight.zero_()
            layer.bias.zero_()
    assert torch.equal(method(other), method(task))


def test_renaming_classes_changes_more_than_names() -> None:
    method, task = build(), make_task(counts=COUNTS)
    renamed = replace(task, support_y=(task.support_y + 1) % WAY)
    assert (method(renamed) - method(task).roll(1, -1)).abs().max() > 1e-4
    assert not SNAIL.traits


def test_training_draws_an_order_of_its_own_for_each_episode() -> None:
    method, task = build(way=4, shot=5).train(), make_task(counts=(5,) * 4)
    one, other = method.support_of(task), method.support_of(task)
    assert not torch.equal(one, other)
    labels = one[..., DIM:].argmax(-1)
    assert not torch.equal(labels[0], labels[1])
    fixed = method.eval().support_of(task)
    assert torch.equal(fixed, method.support_of(task))
    for b in range(2):
        rows, expected = {tuple(row) for row in one[b].tolist()}, {tuple(row) for row in fixed[b].tolist()}
        assert rows == expected  # every example with its own label


@pytest.mark.parametrize("train", [False, True])
def test_episodes_in_blocks_score_as_together(train: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    method, task = build().train(train), make_task(counts=COUNTS, batch=3)
    found = []
    for size in (1 << 30, 1):
        monkeypatch.setattr("hyperproto.methods.parts.BLOCK_BYTES", size)
        torch.manual_seed(1)
        method.zero_grad()
        scores = method(task)
        torch.autograd.backward(scores.square().sum())
        found.append([scores, *(p.grad for p in method.param_groups()["head"].params)])
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-4)


def test_other_episodes_are_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"the depth of SNAIL depends on the length of its episodes: .* such as way = 5, shot = 1"
    ):
        make_method("snail", feature_shape=(DIM,), way=5)
    for shot in ([1, 2, 2], 0):
        with pytest.raises(ConfigError, match="SNAIL needs the same number of examples of each class, at least 1"):
            build(shot=shot)
    assert build(shot=[2, 2, 2]).examples == 2
    method = build()
    with pytest.raises(ConfigError, match="SNAIL was made for 3 classes an episode, but these have 2; train it so"):
        method(make_task(counts=(2, 2)))
    with pytest.raises(ConfigError, match="SNAIL was made for 2 examples of each class, these episodes have 1"):
        method(make_task(counts=(1, 1, 1)))
    with pytest.raises(ConfigError, match=r"different numbers of examples \(1, 2, 3\); this method needs equal shots"):
        method(make_task(counts=(1, 2, 3)))
    with pytest.raises(ConfigError, match=r"validation\.shot = 5: snail serves no other shot than that of its train"):
        load_recipe("fewrel-cnn:snail-1shot", ["validation.shot=5"])


def test_it_learns_to_read_labels() -> None:
    """New episodes of round classes, each with labels of its own: only the support tells which class is which."""
    random = torch.Generator().manual_seed(0)
    means = 2 * torch.randn(6, DIM, generator=random)
    method = build(way=2, shot=1).train()
    optimiser = torch.optim.Adam(method.parameters(), lr=1e-3)
    labels = torch.arange(2).repeat(8, 4)

    def draw() -> Task:
        classes = torch.stack([torch.randperm(6, generator=random)[:2] for _ in range(8)])  # (8, 2)
        support = means[classes] + 0.3 * torch.randn(8, 2, DIM, generator=random)
        query = means[classes.repeat(1, 4)] + 0.3 * torch.randn(8, 8, DIM, generator=random)
        return Task(support, labels[:, :2], query, labels, classes, torch.arange(9).expand(8, -1))

    for _ in range(60):
        optimiser.zero_grad()
        torch.autograd.backward(method.loss(draw())["cls"])
        optimiser.step()
    method.eval()
    right = [(method(task).argmax(-1) == task.query_y).float().mean() for task in [draw() for _ in range(5)]]
    assert torch.stack(right).mean() > 0.95
