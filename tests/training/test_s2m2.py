"""S2M2's chain in small, on a few glyphs: turns, then mixtures, then episodes; killed and resumed wherever it is."""

from pathlib import Path

import numpy as np
import pytest
import torch

from hyperproto.data import open_pool
from hyperproto.encoders import resnet12
from hyperproto.training import Report, Run, load_recipe, train
from hyperproto.training.checkpoint import load_tensors, model_tensors

RECIPE = """
data = {{ spec = "vectors:{data}" }}
encoder = {encoder}
augmentation = {{ crop = 2, flip = true }}
optim.encoder = {{ name = "adam", lr = 0.01 }}
training = {{ steps = 5, validate_every = 5, checkpoint_every = 2, log_every = 1 }}
validation = {{ way = 3, shot = 1, query = 3, episodes = 10 }}
batches = {{ size = 8 }}
[[row]]
name = "rotation"
method = {{ name = "s2m2", learn_temperature = true }}
[[row]]
name = "s2m2"
method = {{ name = "s2m2", mix = true, learn_temperature = true }}
[row.start]
recipe = "{recipe}:rotation"
weights = "last"
heads = ["weight", "turn_head", "log_temperature"]
[[row]]
name = "protonet"
start = "{recipe}:s2m2"
method = {{ name = "protonet" }}
episodes = {{ way = 3, shot = 2, query = 3 }}
"""
ENCODERS = {"conv4": '{ name = "conv4", filters = 8 }', "resnet12": '{ name = "resnet12" }'}
PARTS = {"rotation": {"cls", "turn"}, "s2m2": {"mix", "cls", "turn"}, "protonet": {"cls"}}


class KilledError(Exception):
    """Stands for a kill."""


@pytest.fixture(params=ENCODERS)
def chain(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The recipe file, of 6 characters to train on and 4 to validate with, 6 images each."""
    monkeypatch.setattr(resnet12, "FILTERS", (4, 4, 8, 8))
    images, labels, splits = [], [], []
    for split, count in (("train", 6), ("val", 4)):
        pool = open_pool("glyphs", split)
        for label in range(count):
            items = np.flatnonzero(pool.labels == label)[:6]
            images.append(np.asarray(pool.items)[items].astype(np.float32))
            labels += [f"{split} {label}"] * 6
            splits += [split] * 6
    data = tmp_path / "glyphs.npz"
    np.savez(data, x=np.concatenate(images), y=np.array(labels), split=np.array(splits))
    path = tmp_path / "chain.toml"
    path.write_text(RECIPE.format(data=data, recipe=path, encoder=ENCODERS[request.param]))
    return str(path)


def tensors(run: Run) -> dict[str, torch.Tensor]:
    return model_tensors(load_tensors(run.checkpoint)[0])


def test_a_chain_that_is_killed_in_and_between_its_stages_ends_with_the_same_bytes(chain: str, tmp_path: Path) -> None:
    recipe = load_recipe(f"{chain}:protonet")
    reports: list[Report] = []
    train(recipe, tmp_path / "whole" / "chain-protonet", reports.append)
    assert [report.recipe for report in reports] == ["rotation"] * 5 + ["s2m2"] * 5 + ["protonet"] * 5

    kills = [("rotation", 3), ("rotation", 5), ("s2m2", 3), ("s2m2", 5), ("protonet", 1)]
    for place in kills:

        def kill(report: Report, place: tuple[str, int] = place) -> None:
            if (report.recipe, report.step) == place:
                raise KilledError

        with pytest.raises(KilledError):
            train(recipe, tmp_path / "killed" / "chain-protonet", kill)
    train(recipe, tmp_path / "killed" / "chain-protonet")
    for stage, parts in PARTS.items():
        whole, killed = (tmp_path / folder / f"chain-{stage}" for folder in ("whole", "killed"))
        for name in ("model.safetensors", "metrics.jsonl", "checkpoint/last.safetensors", "config.json"):
            assert (killed / name).read_bytes() == (whole / name).read_bytes(), (stage, name)
        rows = Run(whole).read_metrics()
        assert len(rows) == 5
        assert parts < rows[0].keys()


def test_the_second_stage_takes_over_the_encoder_and_both_heads(chain: str, tmp_path: Path) -> None:
    """With a rate that moves nothing, it ends with what the first stage ended with, to the last bit."""
    still = ["optim.encoder.name='sgd'", "optim.encoder.lr=1e-30", "training.steps=1", "training.seed=4"]
    run = train(load_recipe(f"{chain}:s2m2", still), tmp_path / "runs" / "second")
    before, after = tensors(Run(tmp_path / "runs" / "chain-rotation")), tensors(run)
    assert {"method.weight", "method.turn_head.weight", "method.turn_head.bias"} <= before.keys()
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        if "running" not in name and "num_batches" not in name:
            assert torch.equal(after[name], tensor), name
    assert not torch.equal(before["method.log_temperature"], torch.tensor(0.1).log())
