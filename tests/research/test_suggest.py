"""The study of strategies that choose what to label next, on a small synthetic data set."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hyperproto.progress import Show
from research.intents import suggest
from research.intents.texts import Intents


@pytest.fixture
def data() -> Intents:
    random = np.random.default_rng(0)
    names = random.normal(size=(16, 8)).astype(np.float32)
    y = np.repeat(np.arange(16), 12)
    train, test = (names[y] + random.normal(size=(len(y), 8)).astype(np.float32) for _ in range(2))
    return Intents("tiny", "test", [str(n) for n in range(16)], train, y, test, y, test[:0], names)


def test_every_strategy_asks_for_as_many_labels_and_none_twice(data: Intents) -> None:
    rows = suggest.pool_of(data, "all", np.random.default_rng(0))
    task = suggest.Labelling(data, data.names, rows, np.array([3, 8]), 0)
    for name, strategy in suggest.STRATEGIES.items():
        found = np.asarray(strategy(task, task.fit(), 5))
        assert 1 <= len(set(found.tolist())) == len(found) <= 5, name
        assert not {3, 8} & set(found.tolist()), name


def test_an_unequal_pool_falls_as_one_by_rank(data: Intents, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suggest, "LARGEST", 12)
    rows = suggest.pool_of(data, "unequal", np.random.default_rng(0))
    assert sorted(np.bincount(data.train_y[rows]).tolist(), reverse=True) == [12, 6, 4, 3, *[2] * 12]


def test_results_have_all_cells_and_can_be_drawn(
    data: Intents, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(suggest, "LABELS", (3, 6))
    monkeypatch.setattr(
        suggest, "STRATEGIES", {name: suggest.STRATEGIES[name] for name in ("suggest", "random", "margin")}
    )
    shown: list[int] = []
    show: Show = lambda done, total, note="": shown.append(total)  # noqa: E731
    found: dict[str, Any] = suggest.measure(data, "all", 2, show)
    assert set(shown) == {12}
    assert len(found["results"]) == 3 * 2 * 2
    assert {row["accuracy"]["mean"] > 0.1 for row in found["results"]} == {True}
    assert len(found["comparisons"]) == 2 * 2 * 2
    assert found["new_class"]["asked"] == 12
    suggest.draw([{"data": "tiny", "pool": "all", **found}], tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
