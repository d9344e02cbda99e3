"""Runs saved while the decision was part of the method (format 2): they load, answer and go on as they did."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from hyperproto.comparison.measure import select
from hyperproto.data import open_pool
from hyperproto.episodes import GreedySampler
from hyperproto.errors import DataError
from hyperproto.evaluation import EncodedPool, tag_alike
from hyperproto.files import json_checksum
from hyperproto.training import Report, Run, load_recipe, train
from hyperproto.training.checkpoint import load_tensors, save_tensors
from hyperproto.training.sources import run_source
from tests.helpers.tagged import random_sentences
from tests.helpers.tiny_words import register, write_conll

RECIPE = """
[data]
spec = "conll:{data}"
[encoder]
name = "tiny-words"
[method]
name = "protonet"
[decision]
path = true
tau = 0.5
outside_weight = 0.5
[episodes]
way = 3
shot = 2
query = 2
[optim.encoder]
name = "adam"
lr = 0.03
[training]
steps = 6
validate_every = 2
checkpoint_every = 2
log_every = 1
[validation]
way = 3
shot = 2
query = 2
episodes = 4
"""
GIVEN = [0.5, 0.5, 0.5, 0.5, 0.25, 0.5, 0.25]


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    register()
    for seed, split in enumerate(("train", "val", "test")):
        write_conll(tmp_path / "data" / f"{split}.txt", random_sentences(100, 5, seed=seed, most_runs=3))
    path = tmp_path / "words.toml"
    path.write_text(RECIPE.format(data=tmp_path / "data"))
    return str(path)


def as_format_2(run: Run) -> None:
    """Write a run as it was written then: options in [method], and tensors under the names of its parts."""
    config = json.loads(run.config.read_text())
    del config["checksum"]
    decision = config["recipe"].pop("decision")
    assert decision
    config["recipe"]["method"] |= decision
    config["format"] = 2
    run.config.write_text(json.dumps(config))
    for path in (run.model, run.checkpoint):
        tensors, state = load_tensors(path)
        renamed = {name.replace("decision.", "method."): tensor for name, tensor in tensors.items()}
        changed = renamed.keys() - tensors.keys()
        assert {name.removeprefix("model/") for name in changed} == {
            "method.path.transitions", "method.outside.direction", "method.outside.offset"
        }  # fmt: skip
        save_tensors(path, renamed, state)


def predicted(folder: Path, data: str) -> list[int]:
    """Tags of the words of some episodes, with what the decision learned on the training data."""
    pool = open_pool(data, "test")
    episodes = GreedySampler(pool, way=3, shot=2, query=2).draw(8)
    [candidate] = select([run_source(str(folder), pool)], [], [], [], {})
    assert candidate.decision.outside is not None
    assert candidate.decision.outside.fitted
    [tags] = tag_alike([candidate.predictor], EncodedPool.encode(candidate.encoder, pool), episodes)
    found: list[int] = tags.predicted.tolist()
    return found


def test_options_and_weights_of_the_decision_are_found_in_the_method(recipe: str, tmp_path: Path) -> None:
    loaded = load_recipe(recipe)
    run = train(loaded, tmp_path / "run")
    before, today = predicted(run.folder, loaded.data.spec), run.load()[0].state_dict()
    as_format_2(run)
    learner, found = run.load()
    assert found.decision.options == {"path": True, "tau": 0.5, "outside_weight": 0.5}
    assert found.method.options.keys().isdisjoint({"path", "tau", "outside_weight", "transitions"})
    assert learner.decision.path is not None
    assert learner.decision.path.tau == 0.5
    assert learner.decision.path.fitted
    state = learner.state_dict()
    assert state.keys() == today.keys()
    assert all(torch.equal(state[name], today[name]) or name.startswith("decision.outside.") for name in state)
    assert predicted(run.folder, loaded.data.spec) == before
    assert len(set(before)) > 1


@pytest.mark.parametrize(("given", "length"), [({}, 128), ({"max_length": 64}, 64)])
def test_a_run_on_texts_of_an_older_format_averages_as_it_did(
    recipe: str, tmp_path: Path, given: dict[str, int], length: int
) -> None:
    """Up to format 3 a sentence-transformer read nothing of its checkpoint's own files, and 128 word pieces."""
    run = train(load_recipe(recipe), tmp_path / "run")
    config = json.loads(run.config.read_text())
    assert run.read_config()["recipe"] == config["recipe"]
    texts = {"name": "sentence-transformer", "model": "minilm", **given}
    config.pop("checksum")  # which came with format 4
    older = {**config, "format": 3, "recipe": {**config["recipe"], "encoder": texts}}
    run.config.write_text(json.dumps(older))
    assert run.read_config()["recipe"]["encoder"] == {**texts, "pooling": "plain", "max_length": length}
    today = {**older, "format": 4}
    run.config.write_text(json.dumps({**today, "checksum": json_checksum(today)}))
    assert run.read_config()["recipe"]["encoder"] == texts


@pytest.mark.parametrize(
    ("given", "mean"),
    [
        ({}, True),
        ({"representation": "auto"}, True),
        ({"representation": "entities"}, False),
        ({"frozen": False}, False),
        ({"output": "maps"}, False),
        ({"markers": False}, False),
    ],
)
def test_a_run_on_relations_of_an_older_format_reads_no_prompt(
    recipe: str, tmp_path: Path, given: dict[str, object], mean: bool
) -> None:
    """Up to format 4 a frozen relation-transformer that was told nothing gave the mean of the sentence as it is."""
    run = train(load_recipe(recipe, ["training.steps=1", "training.validate_every=1"]), tmp_path / "run")
    encoder = {"name": "relation-transformer", "model": "minilm", **given}
    config = {key: value for key, value in json.loads(run.config.read_text()).items() if key != "checksum"}
    config["recipe"]["encoder"] = encoder
    for form, expected in ((4, {**encoder, "representation": "mean"} if mean else encoder), (5, encoder)):
        config["format"] = form
        run.config.write_text(json.dumps({**config, "checksum": json_checksum(config)}))
        assert run.read_config()["recipe"]["encoder"] == expected


def test_transitions_that_were_given_stay_given(recipe: str, tmp_path: Path) -> None:
    run = train(load_recipe(recipe, [f"decision.transitions={GIVEN}"]), tmp_path / "run")
    as_format_2(run)
    learner, found = run.load()
    assert found.decision.options["transitions"] == GIVEN
    assert learner.decision.path is not None
    assert learner.decision.path.given
    assert learner.decision.path.transitions.tolist() == pytest.approx(GIVEN)


def test_a_killed_run_of_then_goes_on_to_the_same_weights(recipe: str, tmp_path: Path) -> None:
    loaded = load_recipe(recipe)
    whole = train(loaded, tmp_path / "whole")

    def stop(report: Report) -> None:
        if report.step == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(loaded, tmp_path / "cut", stop)
    cut = Run(tmp_path / "cut")
    as_format_2(cut)
    steps: list[int] = []
    train(loaded, cut.folder, lambda report: steps.append(report.step))
    assert steps == [5, 6]
    for file in ("model", "metrics", "checkpoint"):
        assert tensors_or_text(getattr(cut, file)) == tensors_or_text(getattr(whole, file))


def tensors_or_text(path: Path) -> Any:
    """What a file says, tensors under today's names."""
    if path.suffix != ".safetensors":
        return path.read_text()
    tensors, state = load_tensors(path)
    named = {name.replace("method.path.", "decision.path.").replace("method.outside.", "decision.outside."): tensor
             for name, tensor in tensors.items()}  # fmt: skip
    return {name: tensor.numpy().tobytes() for name, tensor in named.items()}, state


def test_a_tensor_of_another_name_is_still_refused(recipe: str, tmp_path: Path) -> None:
    run = train(load_recipe(recipe), tmp_path / "run")
    tensors, state = load_tensors(run.model)
    save_tensors(run.model, {**tensors, "method.paths.transitions": torch.zeros(7)}, state)
    with pytest.raises(DataError, match=r"(?s)the weights do not fit the model of config\.json .*method\.paths\.tr"):
        run.load()
