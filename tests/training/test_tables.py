"""Tables of an encoder: word vectors, of which only the rows that a step drew are updated."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hyperproto.encoders.relation_cnn import RelationCNN
from hyperproto.errors import ConfigError
from hyperproto.training import Report, Run, load_recipe, train

RECIPE = """
name = "small"
[data]
spec = "fewrel:{data},holdout=2"
[encoder]
name = "relation-cnn:{vectors}"
filters = 4
[method]
name = "protonet"
[episodes]
way = 2
shot = 1
query = 1
[optim.encoder]
name = "adam"
lr = 0.01
weight_decay = 0.1
[training]
steps = 4
checkpoint_every = 2
[validation]
way = 2
shot = 1
query = 1
episodes = 2
"""


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    random = np.random.default_rng(0)
    words = [f"w{n}" for n in range(40)]
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("".join(f"{w} {' '.join(map(str, random.normal(size=3).round(3)))}\n" for w in words))

    def instance() -> dict[str, Any]:
        return {"tokens": random.choice(words[:20], 6).tolist(), "h": ["", "", [[0]]], "t": ["", "", [[3, 4]]]}

    data = tmp_path / "relations.json"
    data.write_text(json.dumps({f"P{n}": [instance() for _ in range(4)] for n in range(5)}))
    path = tmp_path / "small.toml"
    path.write_text(RECIPE.format(data=data, vectors=vectors))
    return str(path)


def table(run: Run) -> torch.Tensor:
    encoder = run.load()[0].features.encoder
    assert isinstance(encoder, RelationCNN)
    return encoder.words.detach()


def test_only_words_that_were_drawn_move(recipe: str, tmp_path: Path) -> None:
    checked = load_recipe(recipe)
    run = train(checked, tmp_path / "run")
    before = train(load_recipe(recipe, ["optim.words.lr=1e-30"]), tmp_path / "still")
    moved = (table(run) != table(before)).any(1)
    assert moved[:20].any()
    assert not moved[20:].any()  # neither momentum nor weight decay touches a word that no sentence has


@pytest.mark.parametrize("optimiser", ["adam", "sgd", "adamw"])
def test_a_table_learns_as_the_encoder_unless_told_otherwise(recipe: str, tmp_path: Path, optimiser: str) -> None:
    alike = [f"optim.encoder.name={optimiser}", "optim.encoder.lr=0.02"]
    one = train(load_recipe(recipe, alike), tmp_path / "one")
    own = [f"optim.words.name={optimiser}", "optim.words.lr=0.02"]
    same = train(load_recipe(recipe, [*alike, *own]), tmp_path / "two")
    slower = train(load_recipe(recipe, [*alike, "optim.words.lr=0.0001"]), tmp_path / "three")
    torch.testing.assert_close(table(one), table(same), rtol=0, atol=0)
    assert not torch.equal(table(one), table(slower))


def test_a_killed_run_goes_on_with_its_tables(recipe: str, tmp_path: Path) -> None:
    def stop(report: Report) -> None:
        if report.step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(load_recipe(recipe), tmp_path / "cut", stop)
    cut, whole = train(load_recipe(recipe), tmp_path / "cut"), train(load_recipe(recipe), tmp_path / "whole")
    torch.testing.assert_close(table(cut), table(whole), rtol=0, atol=0)


def test_mistakes_in_the_sections_of_tables(recipe: str) -> None:
    with pytest.raises(ConfigError, match=r"optim.words: momentum and weight_decay do not go with rows"):
        load_recipe(recipe, ["optim.words.lr=0.1", "optim.words.momentum=0.9"])
    with pytest.raises(ConfigError, match=r"optim.word: there is no optimiser section 'word'; did you mean 'words'\?"):
        load_recipe(recipe, ["optim.word.lr=0.1"])
    with pytest.raises(ConfigError, match=r"there is no encoder 'relation-cn'; did you mean 'relation-cnn'\?"):
        load_recipe(recipe, ["encoder.name=relation-cn", "optim.words.lr=0.1"])
