"""Training on pairs: statements and labelled sentences, validation on other data, and a stage that follows."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from hyperproto.errors import ConfigError, EpisodeError
from hyperproto.training import load_recipe, train
from hyperproto.training.checkpoint import load_tensors, model_tensors
from tests.helpers.tiny_models import tiny_bert, tiny_bert_with_head

WORDS = ("met", "born", "river", "city", "king", "queen")
NAMES = ("anna", "bob", "paris", "london")
RECIPE = """
encoder = {{ name = "relation-transformer:{model}", frozen = false, blanks = true }}
optim.encoder = {{ name = "adam", lr = 0.001 }}
optim.head = {{ name = "adam", lr = 0.001 }}
training = {{ steps = 2, validate_every = 2, checkpoint_every = 1, log_every = 1 }}
validation = {{ spec = "fewrel:{labelled}", split = "all", way = 2, shot = 1, query = 1, episodes = 4 }}
episodes = {{ way = 3, shot = 1, query = 1 }}
[[row]]
name = "pretrain"
data = {{ spec = "statements:{statements}" }}
encoder = {{ mlm = "auto" }}
method = {{ name = "mtb-pretrain" }}
pairs = {{ size = 8 }}
[[row]]
name = "labels"
data = {{ spec = "fewrel:{labelled}", split = "all" }}
method = {{ name = "mtb-pretrain" }}
pairs = {{ source = "labels" }}
[[row]]
name = "mtb"
start = {{ recipe = "{recipe}:pretrain", weights = "last", heads = ["norm"] }}
data = {{ spec = "fewrel:{labelled}", split = "all" }}
method = {{ name = "mtb" }}
"""


def sentence(relation: int, n: int) -> dict[str, Any]:
    words = [NAMES[n % 4], *WORDS[relation : relation + 2], NAMES[(n + 1 + n // 4) % 4], str(n)]
    entities = [[words[0], f"Q{n % 4}", [[0]]], [words[3], f"Q{(n + 1 + n // 4) % 4}", [[3]]]]
    return {"tokens": words, "h": entities[0], "t": entities[1]}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_bert(tmp_path_factory.mktemp("bert")))


@pytest.fixture(scope="module")
def with_head(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_bert_with_head(tmp_path_factory.mktemp("head")))


def written(folder: Path, model: str) -> str:
    """A recipe, and the files that it reads."""
    relations = {f"P{r}": [sentence(r, n) for n in range(8)] for r in range(4)}
    paths = {name: folder / f"{name}.json" for name in ("labelled", "statements")}
    paths["labelled"].write_text(json.dumps(relations))
    paths["statements"].write_text(json.dumps([one for found in relations.values() for one in found]))
    recipe = folder / "pairs.toml"
    recipe.write_text(RECIPE.format(model=model, recipe=recipe, **paths))
    return str(recipe)


@pytest.mark.parametrize("row", ["pretrain", "labels"])
@pytest.mark.filterwarnings("ignore:statements.*left out")
def test_pairs_are_trained_on(row: str, model: str, tmp_path: Path) -> None:
    still = ["training.steps=30", "training.validate_every=30", "optim.encoder.lr=0.003"]
    run = train(load_recipe(f"{written(tmp_path, model)}:{row}", still), tmp_path / "run")
    rows = run.read_metrics()
    first, last = (sum(step["pairs"] for step in part) for part in (rows[:8], rows[-8:]))
    assert last < first
    assert "mlm" not in rows[0]
    assert "accuracy" in rows[-1]
    assert run.load()[0].method.state_dict().keys() == {"log_temperature", "norm.weight", "norm.bias"}


@pytest.mark.filterwarnings("ignore:statements.*left out")
def test_a_checkpoint_with_a_head_predicts_masked_pieces_too(with_head: str, tmp_path: Path) -> None:
    run = train(load_recipe(f"{written(tmp_path, with_head)}:pretrain"), tmp_path / "run")
    assert all(row["mlm"] > 0 and row["pairs"] > 0 for row in run.read_metrics())


@pytest.mark.filterwarnings("ignore:statements.*left out")
def test_the_second_stage_starts_from_the_first_to_the_last_bit(with_head: str, tmp_path: Path) -> None:
    """Encoder, markers, blank and norm; the head for masked pieces stays behind. Its rates move nothing."""
    still = [f"optim.{section}={{name='sgd', lr=1e-30}}" for section in ("encoder", "head")]
    recipe = load_recipe(f"{written(tmp_path, with_head)}:mtb", [*still, "training.steps=1", "training.seed=7"])
    second = train(recipe, tmp_path / "runs" / "second")
    [first] = [folder for folder in (tmp_path / "runs").iterdir() if folder.name != "second"]
    before, after = (
        model_tensors(load_tensors(folder / "checkpoint" / "last.safetensors")[0]) for folder in (first, second.folder)
    )
    assert {key for key in before if ".masked." not in key} == after.keys()
    for key, tensor in after.items():
        assert torch.equal(tensor, before[key]), key
    assert not torch.equal(after["method.norm.bias"], torch.zeros_like(after["method.norm.bias"]))


@pytest.mark.filterwarnings("ignore:statements.*left out")
def test_a_killed_training_goes_on_to_the_same_bits(with_head: str, tmp_path: Path) -> None:
    recipe = load_recipe(f"{written(tmp_path, with_head)}:pretrain")
    whole = train(recipe, tmp_path / "whole")

    def stop(report: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(recipe, tmp_path / "killed", stop)
    again = train(recipe, tmp_path / "killed")
    for key, tensor in load_tensors(whole.checkpoint)[0].items():
        assert torch.equal(tensor, load_tensors(again.checkpoint)[0][key]), key


@pytest.mark.parametrize(
    ("row", "changes", "message"),
    [
        ("labels", ["encoder.blanks=false"], r"a piece that relation-transformer lacks; add blanks = true to \[encod"),
        ("labels", ["method={name='mtb'}"], r"\[pairs\]: mtb does not learn from pairs; mtb-pretrain does"),
        ("labels", ["pairs.source='words'"], "pairs.source = 'words': input should be 'identities' or 'labels'"),
        ("labels", ["pairs.blanks=1.5"], "pairs.blanks = 1.5: input should be less than or equal to 1"),
        ("labels", ["pairs.size=0"], "pairs.size = 0"),
        ("labels", ["episodes.way=2"], r"give one of .*; found \[episodes\] and \[pairs\]"),
    ],
)
def test_mistakes_in_a_recipe_of_pairs(row: str, changes: list[str], message: str, model: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        load_recipe(f"{written(tmp_path, model)}:{row}", changes)


def test_pairs_by_identity_of_data_without_any(model: str, tmp_path: Path) -> None:
    recipe = load_recipe(f"{written(tmp_path, model)}:labels", ["pairs.source='identities'"])
    with pytest.raises(EpisodeError, match=r"have no ids to make pairs by; read the file as statements:FILE"):
        train(recipe, tmp_path / "run")
    assert not (tmp_path / "run").exists()
