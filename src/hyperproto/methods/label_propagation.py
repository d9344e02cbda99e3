"""Label propagation over the graph of nearest neighbours of labelled and unlabelled examples."""

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

FEWEST_STEPS = 50  # so that labels come far, however small their share is there
LEFT = 1e-12  # of what the steps change at first
EQUAL = 1e-12  # of the largest square: distances that differ by less are the same
DOUBT = 1e-6  # share of the nearest example in an answer: it decides where the graph does not


class LabelPropagation(NearestNeighbour):
    """Zhou et al., "Learning with Local and Global Consistency", NIPS 2003, on nearest neighbours.

    Support and unlabelled examples are the nodes of a graph without weights: two are joined if either is among the
    nearest `neighbours` of the other (Euclidean; by cosine, for vectors of length 1), itself being the first of its
    own. With A the graph, D its degrees, Y the labels of the support (0 for the others), labels spread by

        F = alpha S F + (1 - alpha) Y,   S = D^-1/2 A D^-1/2

    to convergence, and each row of F is divided by its sum. A query takes the mean of F over its nearest neighbours
    (Delalleau et al., "Efficient Non-Parametric Function Induction in Semi-Supervised Learning", 2005), and its score
    is the logarithm of that. `symmetric=False` leaves the graph as it is found, with in-degrees, which is scikit-
    learn's `LabelSpreading(kernel="knn")`. Ours: `neighbours` is at most the number of examples a class, since a larger
    neighbourhood has no class; equally distant neighbours are all taken; the nearest support example decides ties.
    Without unlabelled examples it is `nearest`. It learns nothing of them: a graph has no gradient.
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
        """Logarithm of the labels that reach each query, (B, Q, N)."""
        nearest = super().scores(task)
        if task.unlabelled is None or not task.unlabelled.shape[1]:
            return nearest
        doubt = log(DOUBT) + nearest.double().log_softmax(-1)
        return torch.logaddexp(self.shares(task).log(), doubt).to(task.query)

    def loss(self, task: Task) -> dict[str, Tensor]:
        """Cross entropy of nearest neighbours."""
        if task.unlabelled is not None:
            raise ConfigError(
                "label-propagation cannot learn from [unlabelled]: its graph has no gradient; leave it out"
            )
        return super().loss(task)

    @torch.no_grad()
    def shares(self, task: Task) -> Tensor:
        """The labels of each query's neighbours, (B, Q, N), which sum to 1; all 0 where no label reaches them."""
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
        """Labels of all rows, (B, R, N), from those that are given; edges (E, 3) as in `_neighbours`."""
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
    """Find the nearest `count` (B,) of the rows (B, R, D) for each x (B, Q, D): edges (E, 3) of episode, x and row.

    Rows that are not `real` (B, R) have no part; equally far rows all count. `own`: x are the rows, and each is the
    first of its own neighbours, but has no edge to itself.
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
    """Edges (E, 3) from x (B, Q, D) to rows (B, R, D) as one sparse matrix, (B Q, B R), for all episodes."""
    episode, start, end = edges.T
    places = torch.stack([episode * x.shape[1] + start, episode * rows.shape[1] + end])
    shape = x.shape[0] * x.shape[1], rows.shape[0] * rows.shape[1]
    return _sparse(places, torch.ones(len(edges), dtype=torch.double, device=edges.device), shape)


def _sparse(places: Tensor, values: Tensor, shape: tuple[int, ...]) -> Tensor:
    return torch.sparse_coo_tensor(places, values, shape, check_invariants=False).coalesce()


def _normalised(x: Tensor) -> Tensor:
    """Rows divided by their sums; rows of zeros stay."""
    total = x.sum(-1, keepdim=True)
    return x / total.where(total > 0, 1.0)
