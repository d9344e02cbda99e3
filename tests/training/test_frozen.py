"""A frozen encoder: it reads every item once, before the first step, and nothing of it moves."""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import hyperproto
from hyperproto.data import open_pool
from hyperproto.encoders import make_encoder
from hyperproto.encoders.conv4 import Conv4
from hyperproto.recipes import Recipe
from hyperproto.training import Report, Run, load_recipe, train
from hyperproto.training.checkpoint import load_tensors
from hyperproto.training.learner import Learner
from hyperproto.training.resolve import resolve

RECIPE = """
data = {{ spec = "folder:{images},size=16,channels=1" }}
encoder = {{ name = "conv4", frozen = true, filters = 4 }}
method = {{ name = "hyperproto", centers = "episode", learn_temperature = true }}
episodes = {{ way = 3, shot = 2, query = 2, batch = 2 }}
optim.encoder = {{ name = "adam", lr = 0.05 }}
optim.radius = {{ name = "adam", lr = 0.1 }}
training = {{ steps = 6, validate_every = 3, checkpoint_every = 2, log_every = 1 }}
validation = {{ way = 3, shot = 2, query = 2, episodes = 5 }}
"""


@pytest.fixture
def recipe(recipe_path: str) -> Recipe:
    return load_recipe(recipe_path)


@pytest.fixture
def recipe_path(tmp_path: Path) -> str:
    random = np.random.default_rng(0)
    for split, label in product(("train", "val"), range(5)):
        folder = tmp_path / "images" / split / f"class {label}"
        folder.mkdir(parents=True)
        for number in range(6):
            Image.fromarray(random.integers(256, size=(16, 16), dtype=np.uint8)).save(folder / f"{number}.png")
    path = tmp_path / "frozen.toml"
    path.write_text(RECIPE.format(images=tmp_path / "images"))
    return str(path)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many images each forward of the encoder reads."""
    sizes: list[int] = []
    forward = Conv4.forward

    def counted(self: Conv4, batch: Tensor) -> Any:
        sizes.append(len(batch))
        return forward(self, batch)

    monkeypatch.setattr(Conv4, "forward", counted)
    return sizes


def losses(run: Run) -> list[float]:
    return [row["cls"] for row in run.read_metrics()]


def test_every_item_is_read_once_before_training(recipe_path: str, read: list[int], tmp_path: Path) -> None:
    path = Path(recipe_path)
    path.write_text(path.read_text().replace("hyperproto", "classifier").replace('centers = "episode", ', ""))
    path.write_text("\n".join(line for line in path.read_text().split("\n") if "radius" not in line))
    recipe = load_recipe(recipe_path)
    train(recipe, tmp_path / "run")
    items = len(open_pool(recipe.data.spec, "train")) + len(open_pool(recipe.data.spec, "val"))
    assert sum(read) == items  # the training items and those of both validations


def test_losses_are_those_of_an_encoder_in_the_loop(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = train(recipe, tmp_path / "stored")
    monkeypatch.setattr(Learner, "store", lambda self, pool, progress: None)
    in_loop = train(recipe, tmp_path / "in-loop")
    assert losses(stored) == pytest.approx(losses(in_loop), rel=1e-5)
    assert len(losses(stored)) == 6


def test_nothing_of_the_encoder_moves(recipe: Recipe, tmp_path: Path) -> None:
    pool = open_pool(recipe.data.spec, "train")
    before = Learner.build(resolve(recipe, pool), pool.n_labels).state_dict()
    after = load_tensors(train(recipe, tmp_path / "run").model)[0]
    moved = {name for name, tensor in after.items() if not torch.equal(tensor, before[name])}
    assert moved
    assert not {name for name in moved if name.startswith("features.encoder")}  # nor the statistics of batch norm


def test_a_killed_run_goes_on_to_the_same_bits(recipe: Recipe, tmp_path: Path) -> None:
    whole = train(recipe, tmp_path / "whole")

    def stop(report: Report) -> None:
        if report.step == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(recipe, tmp_path / "killed", stop)
    resumed = train(recipe, tmp_path / "killed")
    assert resumed.model.read_bytes() == whole.model.read_bytes()
    assert resumed.metrics.read_bytes() == whole.metrics.read_bytes()


def test_images_that_vary_are_encoded_at_every_step(recipe_path: str, read: list[int], tmp_path: Path) -> None:
    train(load_recipe(recipe_path, ["augmentation={crop=2}"]), tmp_path / "run")
    assert read.count(2 * 3 * (2 + 2)) == 6  # one forward a step over exactly the items drawn


def test_an_augmentation_that_is_switched_off_varies_nothing(recipe_path: str, read: list[int], tmp_path: Path) -> None:
    train(load_recipe(recipe_path, ["augmentation={crop=0, flip=false}"]), tmp_path / "run")
    assert read.count(2 * 3 * (2 + 2)) == 0


def test_shipped_recipes_of_frozen_encoders_read_images_once() -> None:
    recipes = [load_recipe(row["recipe"]) for row in hyperproto.list_recipes()]
    frozen = [recipe for recipe in recipes if getattr(recipe.encoder, "frozen", False)]
    assert len(frozen) > 10
    assert not [recipe.description for recipe in frozen if recipe.augmentation and recipe.augmentation.varies]


def test_progress_tells_of_the_encoding_and_of_the_speed(recipe: Recipe, tmp_path: Path) -> None:
    done: list[tuple[int, int]] = []
    reports: list[Report] = []
    train(recipe, tmp_path / "run", reports.append, lambda now, total: done.append((now, total)))
    items = len(open_pool(recipe.data.spec, "train"))
    assert (items, items) in done
    assert reports[-1].speed > 0
    assert reports[-1].words().endswith(f"{reports[-1].speed:.3g} a second")


@pytest.mark.parametrize("name", ["conv4", "resnet12", "resnet18", "wrn28_10"])
def test_image_encoders_can_be_frozen(name: str) -> None:
    encoder = make_encoder(name, {"channels": 1, "size": 17, "frozen": True})
    assert not encoder.train().training
    assert not any(parameter.requires_grad for parameter in encoder.parameters())
    free = make_encoder(name, {"channels": 1, "size": 17})
    assert free.training
    assert all(parameter.requires_grad for parameter in free.parameters())
