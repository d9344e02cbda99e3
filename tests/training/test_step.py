"""Two steps of Algorithm 1 against a reference written by hand: gradients, optimisers, and which rows move."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from hyperproto.data import open_pool
from hyperproto.encoders import ENCODERS, Units
from hyperproto.encoders.identity import Identity
from hyperproto.episodes import EpisodeSampler
from hyperproto.methods.stored import StoredRegions
from hyperproto.training import Learner, load_recipe, train
from hyperproto.training.checkpoint import load_tensors
from hyperproto.training.resolve import resolve

Array = NDArray[np.float64]
LR, RADIUS_LR, DECAY, TEMPERATURE, STEPS = 0.05, 0.3, 0.01, 2.0, 3
RECIPE = """
data = {{ spec = "vectors:{data}" }}
encoder = {{ name = "linear" }}
method = {{ name = "hyperproto", temperature = {temperature}, centers = "{centers}" }}
episodes = {{ way = 3, shot = {shot}, query = 4, batch = 2 }}
optim.encoder = {{ name = "sgd", lr = {lr}, weight_decay = {decay} }}
optim.radius = {{ name = "adam", lr = {radius_lr} }}
[training]
steps = {steps}
schedule = "linear"
checkpoint_every = 1
[validation]
way = 3
shot = 2
query = 5
episodes = 5
"""


class Linear(Identity):
    """f(x) = W x + b."""

    def __init__(self, *, shape: list[int]) -> None:
        super().__init__(shape=shape)
        self.linear = nn.Linear(shape[0], 4)
        self.feature_shape = (4,)

    def forward(self, batch: Any) -> Units:
        return Units.one_each(self.linear(batch))

    def encode_all(self, prepared: Any, progress: Any = None) -> Units:
        with torch.inference_mode():
            units: Units = self(torch.from_numpy(prepared))
            return units


class Reference:
    """Spheres, softmax and both optimisers in plain loops; gradients by hand."""

    def __init__(self, learner: Learner, adam: str) -> None:
        state = {name: tensor.double().numpy().copy() for name, tensor in learner.state_dict().items()}
        self.weight, self.bias = state["features.encoder.linear.weight"], state["features.encoder.linear.bias"]
        self.center, self.radius = state.get("method.center"), state["method.radius"][:, 0]
        self.adam = adam  # "rows" or "dense"
        self.count, self.first, self.second = (np.zeros(len(self.radius)) for _ in range(3))

    def step(self, pool: Any, episodes: Any, factor: float) -> None:
        """One update: z, eps and f by the mean cross entropy of all queries."""
        weight, bias = np.zeros_like(self.weight), np.zeros_like(self.bias)
        center = np.zeros((len(self.radius), 4))
        radius, drawn = np.zeros_like(self.radius), set()
        total = sum(len(episode.query) for episode in episodes)
        for episode in episodes:
            drawn |= set(episode.classes.tolist())
            x = pool.items[episode.query].astype(float)
            f = x @ self.weight.T + self.bias
            s = pool.items[episode.support].astype(float)
            for q in range(len(x)):
                z = self.centers(episode, s)
                logits = [
                    -(((f[q] - z[n]) ** 2).sum() - self.radius[c]) / TEMPERATURE for n, c in enumerate(episode.classes)
                ]
                p = np.exp(logits) / np.exp(logits).sum()
                for n, c in enumerate(episode.classes):
                    slope = (p[n] - (episode.query_y[q] == n)) / total / TEMPERATURE  # dL / d(-M)
                    radius[c] += slope  # -M = eps - ||f - z||^2
                    away = -2 * slope * (f[q] - z[n])  # dL / df, and minus dL / dz
                    weight += np.outer(away, x[q])
                    bias += away
                    if self.center is not None:
                        center[c] -= away
                    else:  # the mean of the support moves with the encoder, too
                        own = s[episode.support_y == n]
                        weight -= np.outer(away, own.mean(0))
                        bias -= away
        rate = LR * factor
        self.weight = self.weight - rate * (weight + DECAY * self.weight)
        self.bias = self.bias - rate * bias  # biases do not decay
        if self.center is not None:
            self.center = self.center - rate * (center + DECAY * self.center)
        for c in range(len(self.radius)):
            if c in drawn or self.adam == "dense":
                self.move(c, radius[c])

    def centers(self, episode: Any, s: Array) -> list[Array]:
        if self.center is not None:
            return [self.center[c] for c in episode.classes]
        return [(s[episode.support_y == n] @ self.weight.T + self.bias).mean(0) for n in range(3)]

    def move(self, c: int, slope: float) -> None:
        """Adam (Kingma & Ba 2015) at a rate that no schedule touches."""
        self.count[c] += 1
        self.first[c] = 0.9 * self.first[c] + 0.1 * slope
        self.second[c] = 0.999 * self.second[c] + 0.001 * slope**2
        mean, square = self.first[c] / (1 - 0.9 ** self.count[c]), self.second[c] / (1 - 0.999 ** self.count[c])
        self.radius[c] -= RADIUS_LR * mean / (np.sqrt(square) + 1e-8)


@pytest.mark.parametrize("centers", ["stored", "episode"])
@pytest.mark.parametrize("adam", ["rows", "dense"])
def test_steps_of_the_trainer_are_those_of_a_reference_by_hand(
    centers: str, adam: str, vectors_file: Path, tmp_path: Path
) -> None:
    if "linear" not in ENCODERS.names():
        ENCODERS.add("linear", Linear)
    shot = 0 if centers == "stored" else 2
    numbers = {"lr": LR, "radius_lr": RADIUS_LR, "decay": DECAY, "temperature": TEMPERATURE, "steps": STEPS}
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE.format(data=vectors_file, centers=centers, shot=shot, **numbers))
    recipe = load_recipe(str(path), ["optim.radius.dense=true"] if adam == "dense" else [])
    run = train(recipe, tmp_path / "run")
    found = load_tensors(run.checkpoint)[0]

    pool = open_pool(recipe.data.spec, "train")
    learner = Learner.build(resolve(recipe, pool), pool.n_labels)
    torch.manual_seed(0)
    learner.setup(pool)
    assert isinstance(learner.method, StoredRegions)
    start = learner.method.radius.detach().flatten().clone()
    reference = Reference(learner, adam)
    sampler = EpisodeSampler(pool, way=3, shot=shot, query=4, seed=0)
    drawn = set()
    for step in range(STEPS):
        episodes = sampler.draw(2, start=2 * step)
        drawn |= {c for episode in episodes for c in episode.classes.tolist()}
        reference.step(pool, episodes, factor=1 - step / STEPS)
    ours = {name.removeprefix("model/"): tensor.numpy() for name, tensor in found.items()}
    close: dict[str, Any] = {"rtol": 1e-3, "atol": 2e-5}
    np.testing.assert_allclose(ours["features.encoder.linear.weight"], reference.weight, **close)
    np.testing.assert_allclose(ours["features.encoder.linear.bias"], reference.bias, **close)
    np.testing.assert_allclose(ours["method.radius"][:, 0], reference.radius, **close)
    if reference.center is not None:
        np.testing.assert_allclose(ours["method.center"], reference.center, **close)
    moved = {c for c in range(pool.n_classes) if ours["method.radius"][c, 0] != start[c]}
    assert moved == drawn


def test_the_schedule_may_scale_the_radius_too(vectors_file: Path, tmp_path: Path) -> None:
    if "linear" not in ENCODERS.names():
        ENCODERS.add("linear", Linear)
    numbers = {"lr": LR, "radius_lr": RADIUS_LR, "decay": DECAY, "temperature": TEMPERATURE, "steps": 20}
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE.format(data=vectors_file, centers="stored", shot=0, **numbers))
    spread = []
    for scheduled in ("false", "true"):
        recipe = load_recipe(str(path), [f"optim.radius.scheduled={scheduled}", "training.warmup=19"])
        run = train(recipe, tmp_path / scheduled)
        radius = load_tensors(run.checkpoint)[0]["model/method.radius"]
        spread.append(radius)
    assert not torch.equal(*spread)
    default = train(load_recipe(str(path), ["training.warmup=19"]), tmp_path / "default")
    assert torch.equal(load_tensors(default.checkpoint)[0]["model/method.radius"], spread[0])
