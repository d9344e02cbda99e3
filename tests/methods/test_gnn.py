"""GNN against its equations in loops, its masks, and what it refuses."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hyperproto.errors import ConfigError
from hyperproto.methods import PAD, Task, make_method
from hyperproto.methods.gnn import GNN
from hyperproto.testing import check_method
from hyperproto.training import load_recipe
from tests.helpers.random_tasks import make_task

WAY, DIM = 3, 6


def build(seed: int = 0, way: int = WAY, **options: Any) -> GNN:
    torch.manual_seed(seed)
    method = make_method("gnn", feature_shape=(DIM,), way=way, **options)
    assert isinstance(method, GNN)
    return method.eval()


def networks(method: GNN, layer: int) -> tuple[nn.Module, Tensor, Tensor]:
    """An edge network, queries and support nodes of a size that it takes."""
    size = method.sizes[layer]
    return method.edges[layer], torch.randn(2, 4, size), torch.randn(2, 4, 5, size)


def naive_scores(method: GNN, task: Task, label: float = 0.0) -> Tensor:
    """The equations, one query, one edge and one node at a time, in double precision; no padding."""
    method = method.double()
    found = torch.empty(*task.query.shape[:2], task.way, dtype=torch.double)
    for b in range(len(task.query)):
        for q in range(task.query.shape[1]):
            nodes = [torch.cat([task.query[b, q].double(), torch.full((task.way,), label).double()])]
            for x, y in zip(task.support[b], task.support_y[b], strict=True):
                nodes.append(torch.cat([x.double(), F.one_hot(y, task.way).double()]))
            for layer, edge in enumerate(method.edges):
                means = []
                for u, node in enumerate(nodes):
                    others = [other for v, other in enumerate(nodes) if v != u]
                    phi = torch.stack([edge((node - other).abs()[None])[0, 0] for other in others])
                    weights = phi.exp() / phi.exp().sum()
                    means.append(sum((w * other for w, other in zip(weights, others, strict=True)), 0 * node))
                if layer == 2:
                    found[b, q] = method.readout(torch.cat([nodes[0], means[0]]))
                    break
                out = [method.nodes[layer](torch.cat(pair)[None])[0] for pair in zip(nodes, means, strict=True)]
                nodes = [torch.cat(pair) for pair in zip(nodes, out, strict=True)]
    method.float()
    return found.detach().float()


@pytest.mark.parametrize("norm", ["layer", "batch"])
@pytest.mark.parametrize(("query_label", "label"), [("zero", 0.0), ("uniform", 1 / 3)])
def test_scores_are_those_of_the_equations(norm: str, query_label: str, label: float) -> None:
    task = make_task(counts=(1, 1, 2), queries=1, batch=1)
    method = build(norm=norm, query_label=query_label)
    torch.testing.assert_close(method(task), naive_scores(method, task, label), rtol=1e-4, atol=1e-5)


def test_the_sizes_are_the_published_ones() -> None:
    for way, sizes in ((5, [235, 283, 331]), (10, [240, 288, 336])):
        method = make_method("gnn", feature_shape=(230,), way=way)
        assert isinstance(method, GNN)
        assert method.sizes == sizes
        linears = [part for edge in method.edges for part in edge.children() if isinstance(part, nn.Linear)]
        assert [part.in_features for part in linears] == [w for size in sizes for w in (size, 192, 192, 96, 96)]
        assert (method.readout.in_features, method.readout.out_features) == (2 * sizes[-1], way)


@pytest.mark.parametrize("layer", [0, 1])
def test_rows_sum_to_one_and_the_diagonal_is_zero(layer: int) -> None:
    method = build()
    edge, query, support = networks(method, layer)
    real = torch.tensor([[True] * 5, [True, True, True, False, False]])
    shares = method.adjacency(edge, query, support, real)  # (2, 4, 6, 6)
    torch.testing.assert_close(shares.sum(-1), torch.ones(2, 4, 6))
    assert (shares.diagonal(dim1=-2, dim2=-1) == 0).all()
    assert (shares[1, :, :, 4:] == 0).all()
    assert (shares[1, :, :, :4] > 0).sum() == 4 * (6 * 4 - 4)


def test_edges_without_weights_are_uniform() -> None:
    method = build()
    edge, query, support = networks(method, 0)
    with torch.no_grad():
        for parameter in edge.parameters():
            parameter.zero_()
    shares = method.adjacency(edge, query, support, torch.ones(2, 5, dtype=torch.bool))
    torch.testing.assert_close(shares, ((1 - torch.eye(6)) / 5).expand(2, 4, 6, 6))


def test_two_nodes_have_one_edge_whatever_the_network() -> None:
    method = build()
    edge, query, support = networks(method, 1)
    shares = method.adjacency(edge, query, support[:, :, :1], torch.ones(2, 1, dtype=torch.bool))
    assert torch.equal(shares, torch.tensor([[0.0, 1.0], [1.0, 0.0]]).expand(2, 4, 2, 2))


def test_padding_is_no_node() -> None:
    plain, padded = make_task(counts=(2, 1, 3)), make_task(counts=(2, 1, 3), pads=4)
    padded = replace(padded, query=plain.query)
    for norm in ("layer", "batch"):
        method = build(norm=norm)
        torch.testing.assert_close(method(padded), method(plain))


def test_the_order_of_the_support_does_not_matter_but_its_labels_do() -> None:
    method, task = build(), make_task(counts=(2, 1, 3))
    order = torch.tensor([4, 0, 5, 2, 1, 3])
    moved = replace(task, support=task.support[:, order], support_y=task.support_y[:, order])
    torch.testing.assert_close(method(moved), method(task))
    swapped = replace(task, support_y=task.support_y.flip(1))
    assert (method(swapped) - method(task)).abs().max() > 1e-3


def test_renaming_classes_changes_more_than_names() -> None:
    method, task = build(), make_task(counts=(2, 2, 2))
    renamed = replace(task, support_y=(task.support_y + 1) % WAY)
    assert (method(renamed) - method(task).roll(1, -1)).abs().max() > 1e-3
    assert "equivariant" not in GNN.traits


@pytest.mark.parametrize("norm", ["layer", "batch"])
def test_queries_in_a_block_score_as_alone(norm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    method, task = build(norm=norm), make_task(counts=(2, 1, 3))
    together = method(task)
    alone = [method(replace(task, query=task.query[:, q : q + 1])) for q in range(task.query.shape[1])]
    torch.testing.assert_close(torch.cat(alone, 1), together)
    monkeypatch.setattr("hyperproto.methods.parts.BLOCK_BYTES", 1)
    torch.testing.assert_close(method(task), together)


def test_blocks_learn_as_the_whole_does(monkeypatch: pytest.MonkeyPatch) -> None:
    gradients = []
    for size in (1 << 30, 1):
        monkeypatch.setattr("hyperproto.methods.parts.BLOCK_BYTES", size)
        method = build().train()
        torch.autograd.backward(method.loss(make_task(counts=(2, 1, 3)))["cls"])
        gradients.append([p.grad for p in method.param_groups()["head"].params])
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-4, atol=1e-6)


def test_layer_norm_keeps_queries_apart_in_training_and_batch_norm_mixes_them() -> None:
    task = make_task(counts=(2, 2, 2))
    one = replace(task, query=task.query[:, :1])
    for norm, apart in (("layer", True), ("batch", False)):
        method = build(norm=norm).train()
        assert torch.allclose(method(task)[:, :1], method(one), atol=1e-5) == apart


def released_training_scores(method: GNN, task: Task) -> Tensor:
    """Score in training mode as the released code does: every layer sees all V x V edges of all graphs at once."""
    support = torch.cat([task.support, task.members()], -1)[:, None].expand(-1, task.query.shape[1], -1, -1)
    query = torch.cat([task.query, task.query.new_zeros(*task.query.shape[:2], task.way)], -1)
    z = torch.cat([query[:, :, None], support], 2).flatten(0, 1)  # (graphs, V, F)
    itself = torch.eye(z.shape[1], dtype=torch.bool)
    for edge, node in zip(method.edges, [*method.nodes, None], strict=True):
        x = (z[:, :, None] - z[:, None]).abs()  # (graphs, V, V, F)
        for part in edge.children():
            x = F.batch_norm(x.movedim(-1, 1), None, None, training=True).movedim(1, -1) if is_norm(part) else part(x)
        shares = x[..., 0].masked_fill(itself, -torch.inf).softmax(-1)
        joined = torch.cat([z, shares @ z], -1)
        if node is None:
            scores: Tensor = method.readout(joined[:, 0])
            return scores.view(*task.query.shape[:2], task.way)
        linear, _, activation = node.children()
        out = F.batch_norm(linear(joined).flatten(0, 1), None, None, training=True).view(*z.shape[:2], -1)
        z = torch.cat([z, activation(out)], -1)
    raise AssertionError("the last layer returns")


def is_norm(part: nn.Module) -> bool:
    return isinstance(part, nn.BatchNorm1d)


def test_batch_norm_in_training_is_the_released_one_over_all_edges() -> None:
    task = make_task(counts=(2, 2, 2), queries=2, batch=2)
    method = build(norm="batch").train()
    torch.testing.assert_close(method(task), released_training_scores(method, task), rtol=1e-3, atol=1e-4)


def test_running_statistics_count_every_edge_as_the_released_code_does() -> None:
    task = make_task(counts=(1, 1, 1), queries=2, batch=1)
    method = build(norm="batch").train()
    method(task)
    linear, norm = list(method.edges[0].children())[:2]
    nodes = torch.cat([task.support, task.members()], -1)[0]  # (3, F)
    edges = []
    for query in task.query[0]:
        graph = torch.stack([torch.cat([query, torch.zeros(WAY)]), *nodes])
        edges += [(graph[u] - graph[v]).abs() for u in range(4) for v in range(4)]
    inputs = linear(torch.stack(edges)).detach()
    assert norm.get_buffer("num_batches_tracked") == 1
    torch.testing.assert_close(norm.get_buffer("running_mean"), 0.1 * inputs.mean(0), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(norm.get_buffer("running_var"), 0.9 + 0.1 * inputs.var(0), rtol=1e-4, atol=1e-5)


def test_batch_norm_refuses_to_train_on_padding() -> None:
    message = 'differ in size, and padding would count in norm = "batch"; draw equal ones'
    method, task = build(norm="batch").train(), make_task(counts=(2, 2, 2))
    assert task.query_y is not None
    method.loss(task)
    hidden = replace(task, query_y=None)
    assert method(hidden).isfinite().all()
    for padded in (make_task(counts=(2, 2, 2), pads=1), replace(task, query_y=task.query_y.clone().fill_(PAD))):
        with pytest.raises(ConfigError, match=message):
            method.loss(padded)
    assert build(norm="layer").train().loss(make_task(pads=1))["cls"].isfinite()


def test_another_way_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"GNN has a channel for each class of an episode: give their number, such as way = 5"
    ):
        make_method("gnn", feature_shape=(DIM,))
    with pytest.raises(ConfigError, match="GNN was made for 3 classes an episode, but these have 2"):
        build()(make_task(counts=(2, 2)))
    with pytest.raises(ConfigError, match=r"validation\.way = 10: gnn serves no other way than that of its training"):
        load_recipe("fewrel-cnn:gnn", ["validation.way=10"])
    with pytest.raises(ConfigError, match="option 'norm': 'group' is not valid"):
        build(norm="group")


def test_one_shot_weights_serve_five_shots() -> None:
    method = build(shot=1)
    assert method(make_task(counts=(1, 1, 1))).isfinite().all()
    assert method(make_task(counts=(5, 5, 5))).isfinite().all()


@pytest.mark.parametrize("options", [{"norm": "batch"}, {"query_label": "uniform"}])
def test_every_option_keeps_the_contract(options: dict[str, Any]) -> None:
    check_method(GNN, **options)


@pytest.mark.parametrize("norm", ["layer", "batch"])
def test_it_learns_to_read_labels(norm: str) -> None:
    """New episodes of round classes, each with labels of its own: only the support tells which class is which."""
    random = torch.Generator().manual_seed(0)
    means = 2 * torch.randn(6, DIM, generator=random)
    method = build(norm=norm, way=2).train()
    optimiser = torch.optim.Adam(method.parameters(), lr=3e-3)
    labels = torch.arange(2).repeat(1, 8)

    def draw() -> Task:
        classes = torch.randperm(6, generator=random)[None, :2]
        support = means[classes] + 0.3 * torch.randn(1, 2, DIM, generator=random)
        query = means[classes[:, labels[0]]] + 0.3 * torch.randn(1, 16, DIM, generator=random)
        return Task(support, labels[:, :2], query, labels, classes, torch.arange(17)[None])

    for _ in range(100):
        optimiser.zero_grad()
        torch.autograd.backward(method.loss(draw())["cls"])
        optimiser.step()
    method.eval()
    right = [(method(task).argmax(-1) == task.query_y).float().mean() for task in [draw() for _ in range(40)]]
    assert torch.stack(right).mean() > 0.95
