"""Memory against shots: bytes of tensors as they come and go, and how they grow."""

from pathlib import Path

import pytest
import torch

from hyperproto.paper import memory_figure
from hyperproto.paper.memory_figure import growth, memory_numbers, peak_bytes
from tests.helpers.tagged import random_sentences
from tests.helpers.tiny_words import write_conll
from tests.paper.test_drawings import check


def test_the_peak_is_what_is_held_at_one_time() -> None:
    assert peak_bytes(lambda: torch.ones(1000) + torch.ones(1000)) == 12_000
    assert peak_bytes(lambda: [torch.ones(1000).sum().item() for _ in range(5)]) == 4004
    assert peak_bytes(lambda: torch.ones(1000).view(10, 100).mT[3]) == 4000  # a view is no copy
    given = torch.ones(1000)
    assert peak_bytes(lambda: given[:10]) == 0
    assert peak_bytes(lambda: given.add_(1)) == 0


def test_memory_by_shots(tmp_path: Path) -> None:
    write_conll(tmp_path / "all.conll", random_sentences(200, 7))
    numbers = memory_numbers(f"conll:{tmp_path / 'all.conll'}", "all", (1, 2, 4), 0, lambda *_: None, size=16)
    assert [(row["method"], row["shots"]) for row in numbers["rows"]] == [
        (method, shots) for shots in (1, 2, 4) for method in ("NNShot", "HyperProto")
    ]
    for row in numbers["rows"]:
        wanted = row["support"] * 16 if row["method"] == "NNShot" else 6 * 17  # 5 types and O, with a radius each
        assert row["kept"] == pytest.approx(4 * wanted, rel=1e-3)
        assert row["all_differences"] == pytest.approx(16 * row["all_distances"], rel=1e-3)
        assert row["measured"] > 0
    powers = numbers["power_of_shots"]
    assert powers["HyperProto"]["kept"] == 0
    assert powers["NNShot"]["all_distances"] > powers["NNShot"]["kept"] > 0.5
    check(memory_figure.draw_memory(numbers), "memory")
    head, rows = memory_figure.memory_table(numbers)
    assert len(rows) == 6
    assert len(head) == len(rows[0])


def test_growth_is_a_power() -> None:
    rows = [{"shots": k, "kept": 3 * k**1.5} for k in (1, 2, 5, 20)]
    assert growth(rows, "kept") == pytest.approx(1.5)
    assert growth(rows[:1], "kept") is None
