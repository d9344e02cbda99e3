"""A graph of relations: a vector for each, and weighted edges between those of similar meaning."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from hyperproto.errors import ConfigError, DataError
from hyperproto.files import read_utf8, split_lines
from hyperproto.regions.arrays import unit

NEAREST = 9  # neighbours of a relation, and those whose neighbour it is
FILES = ("relations.txt", "vectors.npy", "edges.tsv")


@dataclass(frozen=True, eq=False)
class RelationGraph:
    """Nodes are relations, by name; `adjacency` weighs the edges between them, self loops included."""

    nodes: dict[str, int]
    vectors: Tensor  # (C, d_r)
    adjacency: Tensor  # (C, C)

    @classmethod
    def of_texts(cls, texts: dict[str, str], read: Callable[[Sequence[str]], Tensor]) -> "RelationGraph":
        """Build the graph of relations that have a text; `read` turns texts into vectors."""
        vectors = read(list(texts.values())).detach()
        return cls({name: node for node, name in enumerate(texts)}, vectors, normalised_adjacency(vectors))

    @classmethod
    def read(cls, folder: str | Path) -> "RelationGraph":
        """Read a graph from files: one relation a line, their vectors, and edges `from, to, weight`, which add up."""
        folder = Path(folder).expanduser()
        missing = [name for name in FILES if not (folder / name).is_file()]
        if missing:
            raise ConfigError(
                f"graph = {str(folder)!r}: no {', '.join(missing)} there; name a folder with {', '.join(FILES)}, or "
                'take graph = "names"'
            )
        relations, table, edges = (folder / name for name in FILES)
        nodes = {name: node for node, name in enumerate(split_lines(read_utf8(relations)))}
        try:
            vectors = torch.from_numpy(np.load(table, allow_pickle=False).astype(np.float32))
        except (ValueError, TypeError, AttributeError, OSError) as error:  # AttributeError: an .npz file
            raise DataError(f"{table}: no array of numbers ({error})") from None
        if vectors.ndim != 2 or len(vectors) != len(nodes):
            raise DataError(f"{table}: shape {tuple(vectors.shape)}, but {relations.name} names {len(nodes)} relations")
        adjacency = torch.zeros(len(nodes), len(nodes))
        for number, line in enumerate(split_lines(read_utf8(edges)), start=1):
            try:
                start, end, weight = line.split("\t")
                adjacency[nodes[start], nodes[end]] += float(weight)
            except (ValueError, KeyError) as error:
                raise DataError(f"{edges}, line {number}: not two relations and a weight ({error})") from None
        return cls(nodes, vectors, adjacency)

    def rows_of(self, names: Sequence[str]) -> Tensor:
        """Rows of the adjacency, (n, C), of some relations; zeros of those that are no node."""
        rows = self.adjacency.new_zeros(len(names), len(self.nodes))
        known = [place for place, name in enumerate(names) if name in self.nodes]
        rows[known] = self.adjacency[[self.nodes[names[place]] for place in known]]
        return rows


def nearest_neighbours(vectors: Tensor, count: int = NEAREST) -> Tensor:
    """Say of every two nodes whether one is among the nearest of the other by cosine, (C, C) bool, nobody's own."""
    cosine = _cosine(vectors).fill_diagonal_(-torch.inf)
    nearest = cosine.topk(min(count, len(cosine) - 1), dim=1).indices
    near = torch.zeros_like(cosine, dtype=torch.bool).scatter_(1, nearest, value=True)
    return near | near.mT


def normalised_adjacency(vectors: Tensor) -> Tensor:
    """Weigh neighbours by their cosine (0 where it is negative) and self loops by 1: E_ij / sqrt(e_i e_j), (C, C)."""
    weights = _cosine(vectors).clamp(min=0).where(nearest_neighbours(vectors), 0.0).fill_diagonal_(1.0)
    scale = weights.sum(1).rsqrt()
    return scale[:, None] * weights * scale


def _cosine(vectors: Tensor) -> Tensor:
    directions: Tensor = unit(vectors)
    return directions @ directions.mT
