"""Every benchmark runs, and its baseline computes what ours does. No test asserts a time."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.__main__ import BENCHMARKS, main
from benchmarks.drawing import QUERY, SHOT, WAY, draw_by_search
from benchmarks.measure import Times
from hyperproto.data import Pool
from hyperproto.episodes import EpisodeSampler

FIELDS = {"name", "baseline", "ours_seconds", "baseline_seconds", "ratio", "spread", "target", "comparison", "met"}


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_runs_and_writes_its_numbers(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "numbers.json"
    main(["--quick", "--only", name, "--json", str(file)])
    assert name in capsys.readouterr().err
    content = json.loads(file.read_text())
    assert content["command"].startswith("python -m benchmarks --quick")
    assert content["machine"]["cores"] >= 1
    assert content["measurements"]
    for row in content["measurements"]:
        assert row.keys() >= FIELDS
        assert row["ratio"] > 0
        assert row["spread"][0] <= row["ratio"] <= row["spread"][1]
        assert row["detail"].get("agreement", 1.0) > 0.99  # one rounding may turn a tie, not one query in a hundred
    if name in ("encode_once", "batched_scoring"):
        assert all("agreement" in row["detail"] for row in content["measurements"])


def test_an_unknown_benchmark_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--only", "encode_twice"])
    assert "encode_once" in capsys.readouterr().err


def test_a_ratio_is_a_speed_up_or_a_cost() -> None:
    times = Times(ours=[1.0, 2.0, 4.0], baseline=[3.0, 8.0, 8.0])
    faster = times.measurement("a", "b", ">=", 3.5)
    assert (faster.ratio, faster.spread, faster.met) == (3.0, (2.5, 3.5), False)
    cost = times.measurement("a", "b", "<=", 0.5)
    assert cost.ratio == pytest.approx(1 / 3)
    assert cost.met
    assert (cost.ours_seconds, cost.baseline_seconds) == (2.0, 8.0)


def test_the_plain_way_of_drawing_gives_episodes_like_ours() -> None:
    pool = Pool(range(400), np.arange(400) % 10, tuple("abcdefghij"))
    plain = draw_by_search(pool, np.random.default_rng(0))
    drawn = EpisodeSampler(pool, way=WAY, shot=SHOT, query=QUERY)[0]
    for episode in (plain, drawn):
        assert len({*episode.support.tolist(), *episode.query.tolist()}) == WAY * (SHOT + QUERY)
        np.testing.assert_array_equal(pool.labels[episode.support], episode.classes[episode.support_y])
        np.testing.assert_array_equal(pool.labels[episode.query], episode.classes[episode.query_y])
    np.testing.assert_array_equal(plain.support_y, drawn.support_y)
    np.testing.assert_array_equal(plain.query_y, drawn.query_y)
