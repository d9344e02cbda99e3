"""Training on tagged sentences: K~2K episodes, a row for O, F1 as what chooses the weights."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from hyperproto.data import IntArray, Pool, open_pool
from hyperproto.encoders import Encoder
from hyperproto.episodes import GreedySampler
from hyperproto.errors import ConfigError, EpisodeError
from hyperproto.evaluation import EncodedPool, tag_alike
from hyperproto.problems import f1_interval
from hyperproto.training import Report, Run, load_recipe, train
from hyperproto.training.run import validated
from tests.helpers.tagged import random_sentences
from tests.helpers.tiny_words import register, write_conll

RECIPE = """
[data]
spec = "conll:{data}"
[encoder]
name = "tiny-words"
[method]
name = "{method}"
[episodes]
way = 3
shot = {shot}
query = 2
batch = 2
rule = "appendix"
least_spans = 10
[optim.encoder]
name = "adam"
lr = 0.03
{radius}
[training]
steps = 12
validate_every = 4
checkpoint_every = 5
log_every = 3
[validation]
way = 3
shot = 2
query = 2
episodes = 10
"""
METHODS = ["protonet", "cosine", "nnshot", "structshot", "hyperproto", "hyperproto-cone", "hyperproto-gaussian"]


@pytest.fixture(autouse=True)
def words() -> None:
    register()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for seed, split in enumerate(("train", "val")):
        write_conll(tmp_path / "data" / f"{split}.txt", telling(random_sentences(150, 5, seed=seed, most_runs=3)))
    return tmp_path


def telling(pool: Pool) -> Pool:
    """Give every type words of its own, forty each: an encoder can learn which belong together."""
    assert pool.offsets is not None
    words = iter([f"{label}:{n * 7919 % 40}" for n, label in enumerate(pool.labels.tolist())])
    return replace(pool, items=[[next(words) for _ in sentence] for sentence in pool.items])


def recipe(folder: Path, method: str = "hyperproto", *overrides: str) -> Any:
    radius = '[optim.radius]\nname = "adam"\nlr = 0.1' if method.startswith("hyperproto") else ""
    path = folder / f"{method}.toml"
    text = RECIPE.format(data=folder / "data", method=method, shot=0 if radius else 2, radius=radius)
    path.write_text(text)
    return load_recipe(str(path), list(overrides))


@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns_words(method: str, folder: Path) -> None:
    steps: list[Report] = []
    run = train(recipe(folder, method), folder / "run", steps.append)
    metric, rows = validated(run.read_metrics())
    assert metric == "f1"
    assert [row["step"] for row in rows] == [4, 8, 12]
    assert all(0 <= row[part] <= 1 for row in rows for part in ("f1", "precision", "recall", "ci95"))
    assert steps[-1].measured is not None
    assert f"f1 {100 * rows[-1]['f1']:.1f} %" in steps[-1].words()
    learner, resolved = run.load()
    assert learner.method.n_classes == 6  # five types, and O
    best = max(rows, key=lambda row: row["f1"])
    pool = open_pool(resolved.data.spec, "val")
    episodes = GreedySampler(pool, way=3, shot=2, query=2, seed=1).draw(10)
    encoded = EncodedPool.encode(learner.features.encoder, pool)
    [tags] = tag_alike([learner], encoded, episodes)
    assert f1_interval(tags.counts("sentence")) == pytest.approx((best["f1"], best["ci95"]))


def test_a_killed_run_goes_on_to_the_same_bytes(folder: Path) -> None:
    def stop(report: Report) -> None:
        if report.step == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(recipe(folder), folder / "cut", stop)
    cut, whole = train(recipe(folder), folder / "cut"), train(recipe(folder), folder / "whole")
    for path in ("model", "metrics", "checkpoint"):
        assert getattr(cut, path).read_bytes() == getattr(whole, path).read_bytes()


def test_it_learns_to_find_entities(folder: Path) -> None:
    overrides = ["training.steps=60", "optim.encoder.lr=0.1", "training.validate_every=60", "validation.split=train"]
    run = train(recipe(folder, "protonet", *overrides), folder / "run")
    [row] = validated(run.read_metrics())[1]
    short = train(recipe(folder, "protonet", *overrides, "training.steps=1"), folder / "short")
    [start] = validated(short.read_metrics())[1]
    assert row["f1"] > start["f1"] + 0.1


def test_o_learns_a_radius_and_a_centre_of_its_own(folder: Path) -> None:
    before = train(recipe(folder, "hyperproto", "optim.encoder.lr=1e-30", "optim.radius.lr=1e-30"), folder / "still")
    after = train(recipe(folder), folder / "run")
    for name in ("radius", "center"):
        rows = [getattr(run.load()[0].method, name)[-1] for run in (before, after)]
        assert not torch.equal(*rows)


def test_only_the_sentences_that_validation_draws_are_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[IntArray] = []
    plain = EncodedPool.of_items

    def of_items(encoder: Encoder, pool: Pool, items: IntArray) -> EncodedPool:
        read.append(items)
        return plain(encoder, pool, items)

    monkeypatch.setattr(EncodedPool, "of_items", of_items)
    train(recipe(folder, "protonet", "validation.episodes=2"), folder / "run")
    pool = open_pool(f"conll:{folder / 'data'}", "val")
    episodes = GreedySampler(pool, way=3, shot=2, query=2, seed=1).draw(2)
    drawn = {i for episode in episodes for part in (episode.support, episode.query) for i in part.tolist()}
    assert [set(items.tolist()) for items in read] == [drawn] * 3


def test_mistakes_are_said(folder: Path) -> None:
    with pytest.raises(EpisodeError, match="K~2K episodes have one K for all types"):
        train(recipe(folder, "protonet", "episodes.shot=[1, 2, 2]"), folder / "run")
    with pytest.raises(ConfigError, match=r"episodes.rule = 'greedy': input should be 'toolkit' or 'appendix'"):
        recipe(folder, "protonet", "episodes.rule=greedy")
    assert not Run(folder / "run").config.exists()
