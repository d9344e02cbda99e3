"""GNN: one graph per query, with learned edges that propagate labels from the support to the query."""

from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from hyperproto.errors import ConfigError
from hyperproto.methods.base import Group, Method
from hyperproto.methods.parts import in_blocks, masked_softmax
from hyperproto.methods.task import PAD, Task

Norm = Literal["layer", "batch"]
EDGE_WIDTHS = (192, 192, 96, 96)  # hidden layers of the edge network
NODE_WIDTH = 48  # channels added by a graph convolution
LAYERS = 2  # number of graph convolutions before the last one


class GNN(Method):
    """Garcia & Bruna, "Few-Shot Learning with Graph Neural Networks", ICLR 2018.

    The support examples and one query are the nodes of a complete graph; a node is a vector and a one-hot label. A
    network maps |z_u - z_v| to the weight of an edge, a softmax over the other nodes normalises each row, and a graph
    convolution combines each node with the weighted mean of the others. After two of them, the output of a last one at
    the query is its score for each class. The number of classes is fixed in training; the number of shots is not.

    The label of the query is 0 in each channel (`query_label="zero"`, as in the released code) or 1/N ("uniform", as in
    the paper). The released code has `norm="batch"`: statistics over all nodes and all V x V edges of a training step,
    in both directions and with self loops. `norm="layer"` normalises over the channels of one node or edge, so that
    queries and episodes are independent in training.
    """

    traits = frozenset({"any-shot", "unequal-shots"})

    def __init__(
        self, *, norm: Norm = "layer", query_label: Literal["zero", "uniform"] = "zero", **options: Any
    ) -> None:
        super().__init__(**options)
        if self.way is None:
            raise ConfigError("GNN has a channel for each class of an episode: give their number, such as way = 5")
        [dim] = self.feature_shape
        self.norm = norm
        self.query_label = query_label
        self.sizes = [dim + self.way + NODE_WIDTH * layer for layer in range(LAYERS + 1)]  # sizes of a node
        self.edges = nn.ModuleList(_edge_network(size, norm) for size in self.sizes)
        self.nodes = nn.ModuleList(_layer(2 * size, NODE_WIDTH, norm) for size in self.sizes[:-1])
        self.readout = nn.Linear(2 * self.sizes[-1], self.way)

    def param_groups(self) -> dict[str, Group]:
        """Return all networks as the group `head`."""
        modules = (self.edges, self.nodes, self.readout)
        return {"head": Group([parameter for module in modules for parameter in module.parameters()])}

    def scores(self, task: Task) -> Tensor:
        """Return scores (B, Q, N), computed in blocks of queries, or at once if batch norm needs all of them."""
        if task.way != self.way:
            raise ConfigError(f"GNN was made for {self.way} classes an episode, but these have {task.way}; train it so")
        support = torch.cat([task.support, task.members()], -1)  # (B, S, F)
        real = task.support_y >= 0  # (B, S)
        if self.norm == "batch" and self.training:
            _refuse_padding(task)
            return self._graphs(task.query, support, real)
        shots = support.shape[1]
        values = shots * (shots + 1) // 2 * (self.sizes[-1] + sum(EDGE_WIDTHS))
        episodes = [slice(b, b + 1) for b in range(len(support))]
        found = [
            in_blocks(partial(self._graphs, support=support[at], real=real[at]), task.query[at], values)
            for at in episodes
        ]
        return torch.cat(found)

    def _graphs(self, query: Tensor, support: Tensor, real: Tensor) -> Tensor:
        """Score queries (B, Q, D) by one graph each, (B, Q, N); `real` is the mask of support nodes (B, S, F)."""
        batch, queries = query.shape[:2]
        way = self.readout.out_features
        label = 1 / way if self.query_label == "uniform" else 0.0
        query = torch.cat([query, query.new_full((batch, queries, way), label)], -1)  # (B, Q, F)
        support = support[:, None]  # (B, 1, S, F): equal in all graphs at first
        for edge, node in zip(self.edges[:-1], self.nodes, strict=True):
            shares = self.adjacency(edge, query, support, real)  # (B, Q, V, V)
            z = torch.cat([query[:, :, None], support.expand(-1, queries, -1, -1)], 2)  # (B, Q, V, F), V = S + 1
            z = torch.cat([z, node(torch.cat([z, shares @ z], -1))], -1)
            query, support = z[:, :, 0], z[:, :, 1:]
        if self.norm == "batch" and self.training:  # its statistics need the other rows
            share = self.adjacency(self.edges[-1], query, support, real)[:, :, :1, 1:]  # (B, Q, 1, S)
        else:
            phi = self.edges[-1]((query[:, :, None] - support).abs())[..., 0]  # (B, Q, S): the row of the query
            share = masked_softmax(phi, real[:, None])[:, :, None]
        mean = (share @ support)[:, :, 0]  # (B, Q, F)
        scores: Tensor = self.readout(torch.cat([query, mean], -1))
        return scores

    def adjacency(self, edge: nn.Module, query: Tensor, support: Tensor, real: Tensor) -> Tensor:
        """Return the edge weights of each graph, (B, Q, V, V); node 0 is the query.

        Rows sum to 1, the diagonal is 0. |z_u - z_v| is symmetric, so each pair of nodes is computed once, and pairs of
        support nodes once an episode while they are equal in all graphs, (B, 1, S, F). Batch norm weights each by its
        number of occurrences in the V x V matrices of all graphs.
        """
        queries, (graphs, shots) = query.shape[1], support.shape[1:3]
        u, v = torch.triu_indices(shots, shots, 1, device=support.device)
        pairs = (support[:, :, u] - support[:, :, v]).flatten(1, 2)  # (B, 1 or Q times pairs, F)
        to_query = (query[:, :, None] - support).flatten(1, 2)  # (B, Q S, F)
        to_itself = torch.zeros_like(query[:, :1])  # (B, 1, F): equal for all nodes
        inputs = torch.cat([pairs, to_query, to_itself], 1).abs()
        counts = [2 * queries // graphs] * pairs.shape[1] + [2] * to_query.shape[1] + [queries * (shots + 1)]
        edges = _through(edge, inputs, inputs.new_tensor(counts).expand(inputs.shape[:2]))[..., 0]
        of_pairs, of_query, _ = torch.split(edges, [pairs.shape[1], to_query.shape[1], 1], 1)
        phi = query.new_zeros(*query.shape[:2], shots + 1, shots + 1)
        phi[:, :, u + 1, v + 1] = phi[:, :, v + 1, u + 1] = of_pairs.reshape(len(query), graphs, len(u))
        phi[:, :, 0, 1:] = phi[:, :, 1:, 0] = of_query.reshape(len(query), queries, shots)
        there = torch.cat([real.new_ones(len(real), 1), real], 1)[:, None, None]  # (B, 1, 1, V)
        others = ~torch.eye(shots + 1, dtype=torch.bool, device=real.device)
        return masked_softmax(phi, there & others)


def _refuse_padding(task: Task) -> None:
    """Raise an EpisodeError if episodes of one training step differ in size."""
    padded = [(task.support_y < 0).any(), *([] if task.query_y is None else [(task.query_y == PAD).any()])]
    if any(map(bool, padded)):
        raise ConfigError(
            'the episodes of this step differ in size, and padding would count in norm = "batch"; draw equal ones, '
            'one a step (episodes.batch = 1), or take norm = "layer"'
        )


def _edge_network(size: int, norm: Norm) -> nn.Sequential:
    """Return a network from |z_u - z_v|, (..., size), to one number."""
    sizes = (size, *EDGE_WIDTHS)
    layers = [_layer(sizes[i], sizes[i + 1], norm) for i in range(len(EDGE_WIDTHS))]
    return nn.Sequential(*[part for layer in layers for part in layer], nn.Linear(sizes[-1], 1))


def _layer(inputs: int, outputs: int, norm: Norm) -> nn.Sequential:
    normed = nn.LayerNorm(outputs) if norm == "layer" else LastAxisBatchNorm(outputs)
    return nn.Sequential(nn.Linear(inputs, outputs), normed, nn.LeakyReLU(0.01))


def _through(network: nn.Module, x: Tensor, count: Tensor) -> Tensor:
    """Apply an edge network to x (B, E, F); `count` (B, E) is the weight of each edge in batch norms."""
    for part in network.children():
        x = part(x, count) if isinstance(part, LastAxisBatchNorm) else part(x)
    return x


class LastAxisBatchNorm(nn.BatchNorm1d):
    """Batch norm of the last axis over all other axes, with optional counts of entries."""

    running_mean: Tensor
    running_var: Tensor

    def forward(self, x: Tensor, count: Tensor | None = None) -> Tensor:
        """Normalise x (..., channels); `count` (...) is the number of entries that each represents, default 1."""
        if count is None or not self.training:
            return super().forward(x.flatten(0, -2)).view_as(x)
        rows, count = x.flatten(0, -2), count.flatten()[:, None]  # (R, C), (R, 1)
        total = count.sum()
        mean = (count * rows).sum(0) / total
        variance = (count * (rows - mean) ** 2).sum(0) / total
        assert self.num_batches_tracked is not None
        assert self.momentum is not None
        with torch.no_grad():
            self.num_batches_tracked += 1
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance * total / (total - 1), self.momentum)
        normed = (rows - mean) * torch.rsqrt(variance + self.eps) * self.weight + self.bias
        return normed.view_as(x)
