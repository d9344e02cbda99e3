"""Contenders on the same episodes: what their results say, and how they are compared."""

from collections.abc import Callable

import numpy as np
import pytest

from hyperproto.data import Pool
from hyperproto.episodes import EpisodeSampler, episodes_hash
from hyperproto.evaluation import Result, compare, evaluate_contenders
from hyperproto.problems import paired_difference
from hyperproto.training.selection import select
from tests.helpers.predicting import source


def test_results_say_what_they_are(make_blobs: Callable[..., Pool]) -> None:
    pool = make_blobs(noise=2.0)
    settings = {"way": 3, "shot": [1, 5, 9], "query": 4, "episodes": 50, "seed": 3}
    episodes = EpisodeSampler(pool, way=3, shot=[1, 5, 9], query=4, seed=3).draw(50)
    contenders = select([source()], ["protonet", "hyperproto"], ["bayes", "paper"], ["unit"], {})
    progress: list[tuple[int, int, str]] = []
    results = evaluate_contenders(contenders, pool, episodes, settings, progress=lambda *seen: progress.append(seen))
    assert progress[-1] == (150, 150, "episodes scored by 3 contenders")
    content = results[0].to_json()
    assert content["episode_hash"] == episodes_hash(pool, episodes)
    expected = {"method": "protonet", "fit": "point", "transform": "unit", "data": "blobs", "split": "all", **settings}
    assert {key: content[key] for key in expected} == expected
    assert 0 < content["accuracy"] < 1
    assert content["ci95"] > 0
    assert content["seconds"] > 0
    by_shot = content["metrics"]["accuracy_by_shot"]
    assert list(by_shot) == ["1", "5", "9"]
    assert np.mean(list(by_shot.values())) == pytest.approx(content["accuracy"])
    assert by_shot["1"] < by_shot["9"]  # ProtoNet all but ignores its rare classes
    rows = compare(results)
    assert [(row["a"], row["b"]) for row in rows] == [
        ("protonet point unit", "hyperproto bayes unit"),
        ("protonet point unit", "hyperproto paper unit"),
        ("hyperproto bayes unit", "hyperproto paper unit"),
    ]
    difference, ci95 = paired_difference(results[0].values, results[1].values)
    assert (rows[0]["difference"], rows[0]["ci95"]) == (difference, ci95)


def test_different_episodes_are_not_paired() -> None:
    results = [Result(name, {"episode_hash": name}, np.ones(3)) for name in ("a", "b")]
    with pytest.raises(ValueError, match="different episodes"):
        compare(results)
