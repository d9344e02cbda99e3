"""Names of classes in training and evaluation: a method that learns how far a name says where its class is."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from hyperproto.comparison.measure import evaluate_candidates, select
from hyperproto.data import open_pool
from hyperproto.episodes import EpisodeSampler
from hyperproto.errors import ConfigError
from hyperproto.recipes import Recipe
from hyperproto.registry import trust
from hyperproto.training import Learner, Run, load_recipe, train
from hyperproto.training.resolve import resolve
from hyperproto.training.sources import encoder_source, run_source
from tests.helpers.tiny_models import tiny_bert

METHOD = """
import torch
from torch import nn

from hyperproto.methods import Group, Method


class Named(Method):
    '''Minus the distance to the mean of each class and a linear map of its name.'''

    traits = frozenset({"any-way", "any-shot"})
    needs_names = True

    def __init__(self, **options):
        super().__init__(**options)
        self.layer = nn.Linear(32, self.feature_shape[0])
        self.pools = []

    def read_pool(self, pool, names):
        self.pools.append((pool.split, names.texts))

    def scores(self, task):
        assert task.evidence.named.all()
        member = task.members()
        means = member.mT @ task.support / task.counts()[..., None]
        return -torch.cdist(task.query, (means + self.layer(task.names)) / 2)

    def param_groups(self):
        return {"head": Group(list(self.layer.parameters()))}
"""
RECIPE = """
data = {{ spec = "{data}" }}
encoder = {encoder}
method = {{ name = "{method}:Named" }}
episodes = {{ way = 4, shot = 3, query = 4 }}
optim.encoder = {{ lr = 0.01 }}
optim.head = {{ lr = 0.01 }}
names = {names}
[training]
steps = {steps}
validate_every = 2
checkpoint_every = 3
[validation]
split = "{val}"
way = 3
shot = 2
query = 3
episodes = 3
"""


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_bert(tmp_path_factory.mktemp("bert")))


def recipe_of(path: Path, data: str, encoder: str, names: str, steps: int = 4, val: str = "val") -> Recipe:
    method = path / "named.py"
    method.write_text(METHOD)
    trust(method)
    recipe = path / "named.toml"
    recipe.write_text(RECIPE.format(data=data, encoder=encoder, method=method, names=names, steps=steps, val=val))
    return load_recipe(str(recipe))


@pytest.fixture
def frozen(vectors_file: Path, bert: str) -> Recipe:
    names = f'{{ source = "labels", encoder = "sentence-transformer:{bert}" }}'
    return recipe_of(vectors_file.parent, f"vectors:{vectors_file}", '{ name = "tiny" }', names)


def relations_file(folder: Path) -> Path:
    words = ["anna", "met", "bob", "in", "paris"]
    instance = {"tokens": words, "h": ["anna", "Q1", [[0]]], "t": ["bob", "Q2", [[2]]]}
    path = folder / "relations.json"
    path.write_text(json.dumps({f"king_{n}": [instance] * 8 for n in "abcdefgh"}))
    return path


def test_a_run_takes_its_names_along(frozen: Recipe, tmp_path: Path) -> None:
    run = train(frozen, tmp_path / "run")
    pool = open_pool(frozen.data.spec, "test")
    source = run_source(str(run.folder), pool)
    candidates = select([source], [], [], [], {})
    episodes = EpisodeSampler(pool, way=3, shot=2, query=3, seed=0).draw(4)
    [result] = evaluate_candidates(candidates, pool, episodes, {})
    assert frozen.names is not None
    assert result.to_json()["names"] == {"source": "labels", "encoder": frozen.names.encoder}
    method: Any = candidates[0].method
    assert method.pools[-1] == ("test", tuple(f"class {n}" for n in range(16, 24)))
    other = select([source], ["protonet"], [], [], {})
    assert other[0].names is None
    assert "names" not in other[0].settings


def test_training_shows_a_method_its_own_pool_again_after_validation(frozen: Recipe, tmp_path: Path) -> None:
    pool = open_pool(frozen.data.spec, "train")
    learner = Learner.build(resolve(frozen, pool), pool.n_labels)
    learner.setup(pool)
    method: Any = learner.method
    assert [split for split, _ in method.pools] == ["train"]
    sampler = EpisodeSampler(pool, way=4, shot=3, query=4, seed=0)
    learner(*learner.collate(pool, sampler.draw(1)))["cls"].backward()
    assert [split for split, _ in method.pools] == ["train", "train"]
    assert method.layer.weight.grad.abs().sum() > 0


def test_a_run_that_was_killed_goes_on_alike(frozen: Recipe, tmp_path: Path) -> None:
    whole = train(frozen, tmp_path / "whole")

    def kill(report: Any) -> None:
        if report.step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(frozen, tmp_path / "killed", kill)
    killed = train(frozen, tmp_path / "killed")
    for a, b in zip(whole.load()[0].state_dict().values(), killed.load()[0].state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_the_same_encoder_learns_from_names(tmp_path: Path, bert: str) -> None:
    encoder = f'{{ name = "relation-transformer", model = "{bert}", frozen = false, representation = "mean" }}'
    data = f"fewrel:{relations_file(tmp_path)},holdout=3"
    recipe = recipe_of(tmp_path, data, encoder, '{ source = "labels" }', steps=2)
    pool = open_pool(data, "train")
    learner = Learner.build(resolve(recipe, pool), pool.n_labels)
    learner.setup(pool)
    sampler = EpisodeSampler(pool, way=4, shot=3, query=4, seed=0)
    batch, episodes, items = learner.collate(pool, sampler.draw(1))
    reader: Any = learner.features.encoder
    table = reader.model.get_input_embeddings().weight
    learner(batch, episodes, items)["cls"].backward()
    king = reader.tokenizer.convert_tokens_to_ids("king")
    assert table.grad[king].abs().sum() > 0  # the word is in names only
    run = train(recipe, tmp_path / "run")
    assert Run(run.folder).best_validation()["accuracy"] >= 0


def test_a_recipe_without_names_is_refused(frozen: Recipe, tmp_path: Path) -> None:
    path = next(tmp_path.glob("named.toml"))
    path.write_text("\n".join(line for line in path.read_text().splitlines() if not line.startswith("names")))
    with pytest.raises(ConfigError, match=r"\[names\] is missing: .*Named reads the names of classes; add source"):
        load_recipe(str(path))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("names.source='label'", "names.source: .*'label'.*labels.*or the path of a file .json"),
        ("names.encoder='minlm'", "names.encoder: .*'minlm'.*minilm"),
        ("names.sorce='labels'", "names.sorce: .*source"),
        ("names.source=3", "names.source = 3"),
        ("names='labels'", "names = 'labels'"),
        (
            "names.encoder='same'",
            "names.encoder = 'same': tiny reads no texts; choose a sentence",
        ),
        ("data.spec='omniglot'", "names: the classes of omniglot are characters, and their labels are not words"),
    ],
)
def test_wrong_sections_are_named(frozen: Recipe, tmp_path: Path, change: str, words: str) -> None:
    with pytest.raises(ConfigError, match=f"(?s){words}"):
        load_recipe(str(tmp_path / "named.toml"), [change])


def test_a_method_that_needs_names_is_refused_where_there_are_none(frozen: Recipe) -> None:
    pool = open_pool(frozen.data.spec, "test")
    candidates = select([encoder_source("identity", pool)], [frozen.method.name], [], [], {})
    episodes = EpisodeSampler(pool, way=3, shot=2, query=3, seed=0).draw(1)
    with pytest.raises(ConfigError, match=r"Named reads the names of classes, and there are none here; train it with"):
        evaluate_candidates(candidates, pool, episodes, {})
