"""F1 of candidates: values whose mean is F1, both conventions, and what is printed of them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from scipy.stats import t as student

from hyperproto.comparison.measure import Selection, Tasks, measure
from hyperproto.data import open_pool
from hyperproto.encoders import make_encoder
from hyperproto.episodes import GreedySampler, episodes_hash, save_fewnerd_episodes
from hyperproto.errors import ConfigError, EpisodeError
from hyperproto.evaluation import EncodedPool
from hyperproto.methods import make_method
from hyperproto.problems import (
    SpanCounts,
    f1_difference,
    f1_interval,
    f1_values,
    mean_interval,
    paired_difference,
    span_errors,
)
from hyperproto.reports.comparison import Comparison, columns_table, describe, errors_table, spans_table
from tests.helpers.predicting import tags_by
from tests.helpers.tagged import random_sentences
from tests.helpers.tiny_words import register, write_conll


def counts(seed: int, episodes: int = 30) -> SpanCounts:
    random = np.random.default_rng(seed)
    gold, predicted = random.integers(1, 9, episodes), random.integers(0, 9, episodes)
    return SpanCounts(predicted, gold, random.integers(0, np.minimum(gold, predicted) + 1))


def f1_without(found: SpanCounts, left_out: int) -> float:
    kept = [i for i in range(len(found.gold)) if i != left_out]
    total = sum(int(found.predicted[i] + found.gold[i]) for i in kept)
    return 2 * sum(int(found.correct[i]) for i in kept) / max(1, total)


def test_the_mean_of_the_values_is_f1_and_its_interval_the_jackknifes() -> None:
    a, b = counts(0), counts(1)
    n = len(a.gold)
    assert f1_values(a).mean() == pytest.approx(a.f1)
    for found, without in (
        (mean_interval(f1_values(a)), [f1_without(a, i) for i in range(n)]),
        (paired_difference(f1_values(a), f1_values(b)), [f1_without(a, i) - f1_without(b, i) for i in range(n)]),
    ):
        middle = sum(without) / n
        error = ((n - 1) / n * sum((value - middle) ** 2 for value in without)) ** 0.5
        assert found[1] == pytest.approx(student.ppf(0.975, n - 1) * error)
    assert f1_interval(a) == pytest.approx(mean_interval(f1_values(a)))
    assert f1_difference(a, b)[0] == pytest.approx(a.f1 - b.f1)
    assert np.isnan(f1_interval(counts(2, episodes=1))[1])
    with pytest.raises(ValueError, match="paired counts must be of the same episodes, not of 30 and 4"):
        f1_difference(a, counts(3, episodes=4))


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    register()
    monkeypatch.setenv("HYPERPROTO_CACHE", str(tmp_path / "cache"))
    for seed, split in enumerate(("train", "test")):
        write_conll(tmp_path / "data" / f"{split}.txt", random_sentences(120, 5, seed=seed, most_runs=3))
    return f"conll:{tmp_path / 'data'}"


def tasks(data: str, *shots: int, **more: Any) -> Tasks:
    return Tasks(**{"data": data, "shots": shots, "way": 3, "episodes": 12, "seed": 5, **more})


CHOSEN = Selection(encoders=["tiny-words"], methods=["protonet", "structshot", "hyperproto"], fits=["bayes"])


def test_candidates_are_measured_by_f1(data: str) -> None:
    [results] = measure(CHOSEN, tasks(data, 2))
    pool = open_pool(data, "test")
    episodes = GreedySampler(pool, way=3, shot=2, query=2, seed=5).draw(12)
    torch.manual_seed(0)
    encoded = EncodedPool.encode(make_encoder("tiny-words", {}).eval(), pool)
    tags = tags_by(make_method("protonet", feature_shape=(8,)), encoded, episodes)
    content = results[0].to_json()
    for convention in ("sentence", "toolkit"):
        expected = tags.counts(convention)
        found = content["metrics"][convention]
        assert (found["precision"], found["recall"]) == (expected.precision, expected.recall)
        assert (found["f1"], found["ci95"]) == pytest.approx(f1_interval(expected))
        assert found["spans"]["gold"] == expected.gold.sum()
    assert (content["f1"], content["ci95"]) == pytest.approx(f1_interval(tags.counts("sentence")))
    assert content["metrics"]["errors"] == span_errors(tags, pool.class_names).to_json()
    settings = {"way": 3, "shot": 2, "query": 2, "episodes": 12, "seed": 5, "convention": "sentence"}
    assert settings.items() <= content.items()
    assert content["episode_hash"] == episodes_hash(pool, episodes)
    assert "accuracy" not in content
    [first, *_] = Comparison([results]).differences
    assert first["difference"] == pytest.approx(results[0].values.mean() - results[1].values.mean())
    toolkit = [result.metrics["toolkit"]["f1"] for result in results]
    assert first["toolkit_difference"] == pytest.approx(toolkit[0] - toolkit[1])
    assert first["toolkit_ci95"] > 0


def test_the_rule_and_the_smallest_class_may_be_chosen(data: str) -> None:
    pool = open_pool(data, "test")
    expected = GreedySampler(pool, way=2, shot=1, query=3, seed=5, rule="appendix", least_spans=30).draw(12)
    [[result]] = measure(
        Selection(encoders=["tiny-words"], methods=["nnshot"]),
        tasks(data, 1, way=2, query=3, rule="appendix", least_spans=30),
    )
    assert result.settings["episode_hash"] == episodes_hash(pool, expected)
    assert (result.settings["rule"], result.settings["least_spans"]) == ("appendix", 30)


def test_episodes_of_a_file(data: str, tmp_path: Path) -> None:
    pool = open_pool(data, "test")
    episodes = GreedySampler(pool, way=3, shot=2, query=2, seed=5).draw(12)
    path = tmp_path / "test_3_2.jsonl"
    save_fewnerd_episodes(path, pool, episodes)
    [drawn] = measure(CHOSEN, tasks(data, 2))
    [read] = measure(CHOSEN, tasks(data, episode_file=path, episodes=None))
    for a, b in zip(drawn, read, strict=True):
        assert a.metrics == b.metrics  # structshot, too, found its transitions in the training data
    settings = read[0].settings
    assert (settings["way"], settings["shot"], settings["episodes"], settings["seed"]) == (3, 2, 12, None)
    assert describe(read[0].to_json()) == (
        "fewnerd-episodes:test_3_2.jsonl test, 3-way, 2~4 shots, 12 episodes, of test_3_2.jsonl, "
        f"hash {settings['episode_hash']}"
    )
    [few] = measure(CHOSEN, tasks(data, episode_file=path, episodes=5))
    assert len(few[0].values) == 5
    other = path.rename(tmp_path / "mine.jsonl")
    assert measure(CHOSEN, tasks(data, 2, episode_file=other))[0][0].metrics == drawn[0].metrics
    with pytest.raises(EpisodeError, match="the name gives no number of shots"):
        measure(CHOSEN, tasks(data, episode_file=other))
    with pytest.raises(ConfigError, match=r"mine.jsonl: its episodes are as they are; leave out how they should be"):
        measure(CHOSEN, tasks(data, episode_file=other, rule="toolkit"))


def printed(table: object) -> str:
    console = Console(width=250)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def test_what_is_printed(data: str) -> None:
    [results] = measure(CHOSEN, tasks(data, 2))
    text = printed(spans_table("title", results))
    assert "F1 %, sentence" in text
    assert "F1 %, toolkit" in text
    second = results[1]
    for convention in ("sentence", "toolkit"):
        found = second.metrics[convention]
        for name in ("f1", "precision", "recall"):
            assert f"{100 * found[name]:.2f}" in text
    for both in ([r.values for r in results], [r.others["toolkit"] for r in results]):
        assert f"{100 * (both[1].mean() - both[0].mean()):+.2f}" in text
    rates = second.metrics["errors"]["rates"]
    wrong = printed(errors_table(results))
    assert all(f"{100 * rate:.2f}" in wrong for rate in rates.values())
    assert "O, predicted %" in wrong
    columns = measure(CHOSEN, tasks(data, 1, 2))
    shown = printed(columns_table(["one", "two"], columns))
    assert "1~2 shots" in shown
    assert "2~4 shots" in shown
    spans = columns[1][2].metrics["sentence"]
    assert f"P {100 * spans['precision']:.2f} R {100 * spans['recall']:.2f}" in shown
    assert f"toolkit {100 * columns[1][2].metrics['toolkit']['f1']:.2f}" in shown
    shown = Comparison([results]).table(250)
    assert "F1 %, sentence" in shown
    assert "2~4 queries a type, 12 episodes, seed 5" in shown
    assert "O, predicted %" in shown
    assert Comparison(columns).table(250).count("O, predicted %") == 2
