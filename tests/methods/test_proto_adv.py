"""Proto-ADV: ProtoNet's scores, a discriminator of domains, and an encoder that plays against it."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from hyperproto.data import Pool
from hyperproto.errors import ConfigError
from hyperproto.methods import Task, make_method
from hyperproto.methods.proto_adv import ProtoADV, domain_batch, reversed_gradient
from hyperproto.recipes import Unlabelled
from hyperproto.training import Run, load_recipe, train
from hyperproto.training.checkpoint import load_tensors
from hyperproto.training.tasks import UnlabelledItems
from tests.helpers.random_tasks import make_task


def task_of(unlabelled: int = 9, **how: Any) -> Task:
    task = make_task(**how)
    shape = (len(task.support), unlabelled, task.support.shape[-1])
    other = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    leaves = [x.clone().requires_grad_(True) for x in (task.support, task.query, other)]
    return replace(task, support=leaves[0], query=leaves[1]).with_evidence(unlabelled=leaves[2])


def method_of(**options: Any) -> ProtoADV:
    torch.manual_seed(0)
    return ProtoADV(feature_shape=(6,), n_classes=8, **{"dropout": 0.0, **options})


def gradient(loss: Tensor, of: Tensor) -> Tensor:
    [found] = torch.autograd.grad(loss, of, retain_graph=True)
    return found


def test_scores_are_those_of_protonet_to_the_last_bit() -> None:
    task = task_of()
    protonet = make_method("protonet", feature_shape=(6,), n_classes=8)
    assert torch.equal(method_of()(task), protonet(task))
    assert torch.equal(method_of()(task.with_evidence(unlabelled=None)), protonet(task))  # not needed to answer


def test_the_halves_are_as_large_and_padding_is_in_neither() -> None:
    x, domains = domain_batch(task_of(5, counts=(2, 1), pads=3))
    assert x.shape == (12, 6)  # two episodes of three examples
    assert domains.tolist() == [0] * 6 + [1] * 6
    x, domains = domain_batch(task_of(1, counts=(2, 1)))
    assert x.shape == (4, 6)


def test_a_discriminator_of_zeros_knows_nothing() -> None:
    method, task = method_of(adversary_weight=1.0), task_of()
    for parameter in method.discriminator.parameters():
        torch.nn.init.zeros_(parameter)
    losses = {**method.loss(task), **method.opponent_loss(task)}
    for part in ("adv", "dis"):
        assert losses[part].item() == pytest.approx(math.log(2))
        assert not gradient(losses[part], task.support).any()


def test_the_encoder_minimises_the_exchanged_labels() -> None:
    method, task = method_of(adversary_weight=0.3), task_of()
    x, domains = domain_batch(task)
    logits = method.discriminator(x)
    expected = -logits.log_softmax(-1).gather(1, (1 - domains)[:, None]).mean()
    torch.testing.assert_close(method.loss(task)["adv"], 0.3 * expected)
    expected = -logits.log_softmax(-1).gather(1, domains[:, None]).mean()
    torch.testing.assert_close(method.opponent_loss(task)["dis"], expected)
    assert method.monitor()["discriminator_accuracy"] == pytest.approx(
        (logits.argmax(-1) == domains).float().mean().item()
    )


def test_reversal_turns_the_gradient_of_the_encoder_only() -> None:
    x, weight = torch.randn(4, 3, requires_grad=True), torch.randn(3, requires_grad=True)
    plain, turned = (z @ weight for z in (x, reversed_gradient(x, 0.5)))
    assert torch.equal(gradient(turned.sum(), x), -0.5 * gradient(plain.sum(), x))
    assert torch.equal(gradient(turned.sum(), weight), gradient(plain.sum(), weight))


def test_reversed_it_rises_over_the_first_steps_and_has_no_opponent() -> None:
    method, task = method_of(adversary="reverse", adversary_weight=0.4, ramp=4), task_of()
    method.train()
    assert not method.param_groups()["discriminator"].opponent
    assert method.opponent_loss(task) == {}
    full = gradient(method_of().opponent_loss(task)["dis"], task.support)
    for risen in (0.25, 0.5, 0.75, 1.0, 1.0):
        found = gradient(method.loss(task)["dis"], task.support)
        torch.testing.assert_close(found, -0.4 * risen * full)


def test_what_is_refused() -> None:
    with pytest.raises(ConfigError, match="adversary_weight -1 and ramp 500 must not be negative"):
        method_of(adversary_weight=-1)
    with pytest.raises(ConfigError, match=r"needs unlabelled items besides its episodes; add \[unlabelled\]"):
        method_of().loss(make_task())


def probe_accuracy(weight: float) -> float:
    """Train a linear encoder on domains that differ in one coordinate: how well does a fresh linear probe do?"""
    torch.manual_seed(0)
    encoder = torch.nn.Linear(6, 6, bias=False)
    torch.nn.init.eye_(encoder.weight)
    method = ProtoADV(feature_shape=(6,), n_classes=8, adversary_weight=weight, dropout=0.0)
    players = torch.optim.Adam(encoder.parameters(), lr=0.01)
    opponent = torch.optim.Adam(method.discriminator.parameters(), lr=0.01)
    away = torch.zeros(6)
    away[0] = 3.0
    for step in range(300):
        task = make_task(counts=(4, 4, 4), batch=1, seed=step)
        other = task.support[:, torch.randperm(12)] + away
        task = replace(task, support=encoder(task.support), query=encoder(task.query))
        task = task.with_evidence(unlabelled=encoder(other))
        opponent.zero_grad()
        method.opponent_loss(task.detached())["dis"].backward()  # type: ignore[no-untyped-call]
        opponent.step()
        players.zero_grad()
        torch.stack(list(method.loss(task).values())).sum().backward()  # type: ignore[no-untyped-call]
        players.step()
    with torch.no_grad():
        x = torch.cat([make_task(counts=(4, 4, 4), batch=1, seed=step).support[0] for step in range(1000, 1040)])
        both = torch.cat([encoder(x), encoder(x + away)])
        both += torch.randn(both.shape)  # of an invertible map a linear probe would undo everything
    labels = torch.arange(2).repeat_interleave(len(x)).double()
    design = torch.cat([both.double(), torch.ones(len(both), 1)], 1)
    answer = design @ torch.linalg.lstsq(design, 2 * labels - 1).solution
    return float(((answer > 0) == (labels > 0)).float().mean())


def test_domains_are_harder_to_tell_apart() -> None:
    assert probe_accuracy(0.3) < probe_accuracy(0.0) - 0.05


RECIPE = """
data = {{ spec = "vectors:{data}" }}
encoder = {{ name = "tiny" }}
method = {{ name = "proto-adv", adversary = "{adversary}" }}
episodes = {{ way = 4, shot = 3, query = 4, batch = 2 }}
unlabelled = {{ data = "vectors:{data}", split = "test" }}
optim.encoder = {{ name = "adam", lr = 0.01 }}
optim.discriminator = {{ name = "adam", lr = 0.01 }}
training = {{ steps = 12, validate_every = 6, checkpoint_every = 4, log_every = 1 }}
validation = {{ way = 4, shot = 2, query = 5, episodes = 5 }}
"""


@pytest.fixture
def recipe(vectors_file: Path) -> Path:
    from tests.training.conftest import TINY

    exec(TINY, {"__name__": "tiny"})
    path = vectors_file.with_name("adv.toml")
    path.write_text(RECIPE.format(data=vectors_file, adversary="flip"))
    return path


def test_training_learns_and_keeps_the_second_player(recipe: Path, tmp_path: Path) -> None:
    run = train(load_recipe(str(recipe), ["training.steps=60"]), tmp_path / "run")
    rows = run.read_metrics()
    assert {"cls", "adv", "dis", "discriminator_accuracy"} <= rows[0].keys()
    assert rows[-1]["cls"] < 0.5 * rows[0]["cls"]
    names = load_tensors(run.checkpoint)[0]
    assert any(name.startswith("optim/discriminator/") for name in names)
    assert "model/method.discriminator.0.weight" in names


def test_the_opponent_does_not_move_in_the_encoders_step(recipe: Path, tmp_path: Path) -> None:
    """With a rate of nothing for its own step the discriminator stays as it was made, to the last bit."""
    still = ["optim.discriminator.name='sgd'", "optim.discriminator.lr=1e-30", "training.steps=6"]
    run = train(load_recipe(str(recipe), still), tmp_path / "run")
    after = load_tensors(run.checkpoint)[0]["model/method.discriminator.0.weight"]
    assert torch.equal(after, Run(tmp_path / "run").load()[0].method.state_dict()["discriminator.0.weight"])
    again = train(load_recipe(str(recipe), [*still, "training.steps=1"]), tmp_path / "one")
    assert torch.equal(after, load_tensors(again.checkpoint)[0]["model/method.discriminator.0.weight"])


@pytest.mark.parametrize("adversary", ["flip", "reverse"])
def test_a_resumed_run_ends_with_the_same_bytes(adversary: str, recipe: Path, tmp_path: Path) -> None:
    class KilledError(Exception):
        pass

    def kill(report: Any) -> None:
        if report.step == 7:
            raise KilledError

    recipes = [load_recipe(str(recipe), [f"method.adversary='{adversary}'", "method.ramp=9"]) for _ in range(2)]
    train(recipes[0], tmp_path / "whole")
    with pytest.raises(KilledError):
        train(recipes[1], tmp_path / "killed", kill)
    train(recipes[1], tmp_path / "killed")
    for name in ("model.safetensors", "metrics.jsonl", "checkpoint/last.safetensors"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def test_recipes_without_unlabelled_items_or_with_too_few(recipe: Path, tmp_path: Path) -> None:
    text = recipe.read_text()
    recipe.write_text("\n".join(line for line in text.splitlines() if not line.startswith("unlabelled")))
    with pytest.raises(ConfigError, match=r"\[unlabelled\] is missing: proto-adv learns from items without labels"):
        load_recipe(str(recipe))
    recipe.write_text(text)
    with pytest.raises(ConfigError, match=r"transform = 'center-unit': proto-adv is defined with 'none' or 'unit'"):
        load_recipe(str(recipe), ["transform='center-unit'"])
    with pytest.raises(ConfigError, match=r"\[unlabelled\]: 5000 items for each of 2 episodes, but .* has only"):
        train(load_recipe(str(recipe), ["unlabelled.number=5000"]), tmp_path / "run")


def test_unlabelled_items_follow_from_seed_and_step() -> None:
    pool = Pool(np.zeros((40, 2), np.float32), np.zeros(40, int), ("a",))
    episodes: Any = [type("Drawn", (), {"support_y": np.zeros(6)})() for _ in range(2)]
    draw = UnlabelledItems(pool, Unlabelled(data="x"), seed=3).draw
    first = draw(0, episodes)
    assert first.shape == (2, 6)
    assert len(np.unique(first)) == 12  # each at most once
    assert np.array_equal(first, draw(0, episodes))
    assert not np.array_equal(first, draw(1, episodes))
    assert UnlabelledItems(pool, Unlabelled(data="x", most=4), seed=3).draw(0, episodes).shape == (2, 2)
    tagged = Pool(["w"], np.zeros(2, int), ("a",), offsets=np.array([0, 2]))
    with pytest.raises(ConfigError, match=r"has items of many units \(words\)"):
        UnlabelledItems(tagged, Unlabelled(data="x"), seed=0)
