"""Label propagation on the nearest-neighbour graph of labelled and unlabelled examples."""

from math import ceil, log
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from hyperproto.errors import ConfigError
from hyperproto.methods.nearest import NearestNeighbour
from hyperproto.methods.parts import BLOCK_BYTES
from hyperproto.methods.task import Task
from hyperproto.regions.arrays import squared_distance

FEWEST_STEPS = 50  # smallest number of iterations, so that labels reach distant nodes
LEFT = 1e-12  # change relative to the first step at which iteration stops
EQUAL = 1e-12  # distances that differ by less, relative to the largest square, count as equal
DOUBT = 1e-6  # weight of the nearest support example in the result, which breaks ties


class LabelPropagation(NearestNeighbour):
    """Zhou et al., "Learning with Local and Global Consistency", NIPS 2003, on nearest neighbours.

    Support and unlabelled examples are the nodes of an unweighted graph: two are joined if either is among the
    `neighbours` nearest of the other (Euclidean distance), where each node is its own first neighbour. With A the
    graph, D its degrees, and Y the labels of the support (0 for other nodes), labels spread by

        F = alpha S F + (1 - alpha) Y,   S = D^-1/2 A D^-1/2

    until convergence, and each row of F is divided by its sum. The score of a query is the logarithm of the mean of F
    over its nearest neighbours (Delalleau et al., "Efficient Non-Parametric Function Induction in Semi-Supervised
    Learning", 2005). `symmetric=False` uses the directed graph with in-degrees, as scikit-learn's
    `LabelSpreading(kernel="knn")`. Our choices: `neighbours` is at most the number of examples per class; neighbours at
    equal distance are all used; the nearest support example breaks ties. Without unlabelled examples the method is
    `nearest`. It cannot be trained with unlabelled examples, since the graph has no gradient.
    """

    uses_evidence = frozenset({"unlabelled"})

    def __init__(self, *, neighbours: int = 30, alpha: float = 0.2, symmetric: bool = True, **options: Any) -> None:
        super().__init__(**options)
        if neighbours < 1:
            raise ConfigError(f"neighbours {neighbours} must be at least 1")
        if not 0 < alpha < 1:
            raise ConfigError(f"alpha {alpha} must be between 0 and 1, such as 0.2")
        self.neighbours, self.alpha, self.symmetric = neighbours, alpha, symmetric

    def scores(self, task: Task) -> Tensor:
        """Return the logarithm of the propagated labels at each query, (B, Q, N)."""
        nearest = super().scores(task)
        if task.unlabelled is None or not task.unlabelled.shape[1]:
            return nearest
        doubt = log(DOUBT) + nearest.double().log_softmax(-1)
        return torch.logaddexp(self.shares(task).log(), doubt).to(task.query)

    def loss(self, task: Task) -> dict[str, Tensor]:
        """Return the cross entropy of nearest-neighbour scores."""
        if task.unlabelled is not None:
            raise ConfigError(
                "label-propagation cannot be trained with [unlabelled]: its graph has no gradient; leave it out"
            )
        return super().loss(task)

    @torch.no_grad()
    def shares(self, task: Task) -> Tensor:
        """Return the mean labels of each query's neighbours, (B, Q, N), with sum 1, or 0 if no label reaches them."""
        task = task.centred()
        assert task.unlabelled is not None
        rows = torch.cat([task.support, task.unlabelled], 1).double()  # (B, R, D)
        number = task.unlabelled.shape[1]
        real = F.pad(task.support_y >= 0, (0, number), value=True)  # (B, R)
        given = F.pad(task.members().double(), (0, 0, 0, number))  # (B, R, N)
        count = (real.sum(1) // task.way).clamp(1, self.neighbours)  # (B,)
        spread = self._spread(_neighbours(rows, rows, real, count, own=True), given)
        graph = _matrix(_neighbours(task.query.double(), rows, real, count), task.query, rows)
        return _normalised(graph @ spread.flatten(0, 1)).view(*task.query.shape[:2], task.way)

    def _spread(self, edges: Tensor, given: Tensor) -> Tensor:
        """Return propagated labels of all rows, (B, R, N), from the given ones; edges (E, 3) as in `_neighbours`."""
        if self.symmetric:
            edges = torch.cat([edges, edges[:, [0, 2, 1]]])
        graph = _matrix(edges, given, given)
        start, end = graph.indices()
        root = end.bincount(minlength=len(graph)).clamp(min=1).to(given).sqrt()
        graph = _sparse(graph.indices(), 1 / (root[start] * root[end]), graph.shape)
        first = found = given.flatten(0, 1)
        for _ in range(max(FEWEST_STEPS, ceil(log(LEFT) / log(self.alpha)))):
            found = self.alpha * (graph @ found) + (1 - self.alpha) * first
        return _normalised(found).view_as(given)


def _neighbours(x: Tensor, rows: Tensor, real: Tensor, count: Tensor, *, own: bool = False) -> Tensor:
    """Return the `count` (B,) nearest rows (B, R, D) of each x (B, Q, D) as edges (E, 3) of episode, x and row.

    Rows that are not `real` (B, R) are excluded; rows at equal distance are all included. With `own`, x are the rows,
    and each is its own first neighbour, but has no edge to itself.
    """
    most = int(count.max())
    slack = EQUAL * (rows.square().sum(-1) * real).amax(-1)[:, None, None]
    places = torch.arange(rows.shape[1], device=rows.device)
    found = []
    size = max(1, BLOCK_BYTES // (8 * rows.shape[0] * rows.shape[1]))
    for start in range(0, x.shape[1], size):
        distance = squared_distance(x[:, start : start + size], rows)  # (B, q, R)
        distance = distance.masked_fill(~real[:, None], torch.inf)
        here = torch.arange(start, start + distance.shape[1], device=rows.device)
        itself = (here[:, None] == places) & own
        nearest = distance.masked_fill(itself, -1.0).topk(most, largest=False).values  # (B, q, most)
        last = nearest.gather(-1, (count - 1)[:, None, None].expand(-1, nearest.shape[1], 1))
        edges = (distance <= last + slack) & ~itself
        if own:
            edges &= real[:, here, None]
        found.append(edges.nonzero() + torch.tensor([0, start, 0], device=rows.device))
    return torch.cat(found)


def _matrix(edges: Tensor, x: Tensor, rows: Tensor) -> Tensor:
    """Return edges (E, 3) from x (B, Q, D) to rows (B, R, D) as one sparse matrix, (B Q, B R)."""
    episode, start, end = edges.T
    places = torch.stack([episode * x.shape[1] + start, episode * rows.shape[1] + end])
    shape = x.shape[0] * x.shape[1], rows.shape[0] * rows.shape[1]
    return _sparse(places, torch.ones(len(edges), dtype=torch.double, device=edges.device), shape)


def _sparse(places: Tensor, values: Tensor, shape: tuple[int, ...]) -> Tensor:
    return torch.sparse_coo_tensor(places, values, shape, check_invariants=False).coalesce()


def _normalised(x: Tensor) -> Tensor:
    """Divide rows by their sums; rows of zeros are unchanged."""
    total = x.sum(-1, keepdim=True)
    return x / total.where(total > 0, 1.0)
