import os
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from hyperproto.errors import ConfigError, DataError
from hyperproto.methods.regrab import RelationGraph, nearest_neighbours, normalised_adjacency

OFFICIAL = Path(os.environ.get("HYPERPROTO_DATA", "")) / "fewrel" / "relation-graph"


def random_vectors(count: int = 40, size: int = 5) -> Tensor:
    return torch.randn(count, size, generator=torch.Generator().manual_seed(0))


def read(texts: Sequence[str]) -> Tensor:
    return torch.stack([torch.randn(5, generator=torch.Generator().manual_seed(len(text))) for text in texts])


def test_every_node_has_at_least_nine_neighbours() -> None:
    near = nearest_neighbours(random_vectors())
    assert torch.equal(near, near.mT)
    assert not near.diagonal().any()
    assert near.sum(1).min() >= 9
    assert near.sum(1).max() > 9  # it is among the nearest of others, too
    assert nearest_neighbours(random_vectors(4)).sum(1).tolist() == [3, 3, 3, 3]
    assert nearest_neighbours(random_vectors(1)).tolist() == [[False]]


def test_the_adjacency_against_a_loop() -> None:
    vectors = random_vectors()
    units = [v / v.norm() for v in vectors]
    cosine = [[float(a @ b) for b in units] for a in units]
    nearest = [sorted(set(range(40)) - {i}, key=[-c for c in cosine[i]].__getitem__)[:9] for i in range(40)]
    edges = [
        [1.0 if i == j else max(cosine[i][j], 0.0) if j in nearest[i] or i in nearest[j] else 0.0 for j in range(40)]
        for i in range(40)
    ]
    expected = [[edges[i][j] / (sum(edges[i]) * sum(edges[j])) ** 0.5 for j in range(40)] for i in range(40)]
    found = normalised_adjacency(vectors)
    assert torch.allclose(found, torch.tensor(expected), atol=1e-6)
    assert torch.allclose(found, found.mT)


def test_an_isolated_node_keeps_to_itself() -> None:
    vectors = torch.tensor([[1.0, 0.0], [1.0, 0.1], [-1.0, -0.05]])
    adjacency = normalised_adjacency(vectors)
    assert adjacency[2].tolist() == [0.0, 0.0, 1.0]
    assert adjacency[0, 1] > 0


def test_a_new_class_changes_no_vector_of_another() -> None:
    texts = {f"P{n}": "x" * n for n in range(1, 20)}
    before, after = RelationGraph.of_texts(texts, read), RelationGraph.of_texts(texts | {"new": "x" * 30}, read)
    assert torch.equal(before.vectors, after.vectors[:-1])
    assert before.nodes == {name: node for name, node in after.nodes.items() if name != "new"}


def test_rows_of_what_is_no_node_are_zero() -> None:
    graph = RelationGraph.of_texts({"a": "x", "b": "xx"}, read)
    rows = graph.rows_of(["b", "c", "a"])
    assert torch.equal(rows[[0, 2]], graph.adjacency[[1, 0]])
    assert not rows[1].any()
    assert graph.rows_of(["c"]).shape == (1, 2)


def write(folder: Path, edges: str, vectors: np.ndarray) -> Path:
    (folder / "relations.txt").write_text("P1\nP2\n")
    np.save(folder / "vectors.npy", vectors)
    (folder / "edges.tsv").write_text(edges)
    return folder


def test_a_folder_is_read_and_edges_add_up(tmp_path: Path) -> None:
    graph = RelationGraph.read(write(tmp_path, "P1\tP2\t0.5\nP1\tP2\t0.25\nP2\tP2\t1\n", np.eye(2)))
    assert graph.nodes == {"P1": 0, "P2": 1}
    assert graph.vectors.dtype == torch.float32
    assert graph.adjacency.tolist() == [[0.0, 0.75], [0.0, 1.0]]


def test_what_is_wrong_with_a_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no relations.txt, vectors.npy, edges.tsv there; name a folder .*names"):
        RelationGraph.read(tmp_path)
    with pytest.raises(DataError, match=r"edges.tsv, line 2: not FROM, TO, WEIGHT with tabs \('P3'\)"):
        RelationGraph.read(write(tmp_path, "P1\tP2\t0.5\nP3\tP2\t0.5\n", np.eye(2)))
    with pytest.raises(DataError, match=r"edges.tsv, line 1: not FROM, TO, WEIGHT with tabs"):
        RelationGraph.read(write(tmp_path, "P1\tP2\n", np.eye(2)))
    with pytest.raises(DataError, match=r"vectors.npy: shape \(3, 3\), but relations.txt names 2 relations"):
        RelationGraph.read(write(tmp_path, "", np.eye(3)))
    (tmp_path / "vectors.npy").write_text("no array")
    with pytest.raises(DataError, match=r"vectors.npy: no array of numbers"):
        RelationGraph.read(tmp_path)


@pytest.mark.skipif(not OFFICIAL.exists(), reason="HYPERPROTO_DATA names no folder with the released graph")
def test_the_released_graph() -> None:
    with warnings.catch_warnings(action="error"):
        graph = RelationGraph.read(OFFICIAL)
    assert graph.vectors.shape == (828, 512)
    assert graph.adjacency.diagonal().all()
    assert torch.equal(graph.adjacency != 0, nearest_neighbours(graph.vectors) | torch.eye(828, dtype=torch.bool))
    assert torch.allclose(graph.adjacency, graph.adjacency.mT)
    assert graph.adjacency.sum(1).max() > 20  # not normalised
