"""No GPU is at hand here: torch's `meta` device stands in, which computes nothing but refuses to mix with the CPU."""

import numpy as np
import pytest
import torch

from hyperproto.data import Pool
from hyperproto.decisions import make_decision
from hyperproto.encoders import Features, FeatureTransform, Units, default_device, moved
from hyperproto.encoders.conv4 import Conv4
from hyperproto.episodes import EpisodeSampler
from hyperproto.errors import ConfigError
from hyperproto.methods import METHODS, gather_task, make_method
from hyperproto.recipes import Augmentation
from hyperproto.testing import NAME_SIZE, RandomNames
from hyperproto.training import Learner

PIXELS = np.random.default_rng(0).integers(0, 256, (40, 16, 16, 3), dtype=np.uint8)
POOL = Pool(PIXELS, np.repeat(np.arange(4), 10), tuple("abcd"))
EPISODES = EpisodeSampler(POOL, way=3, shot=(1, 2, 4), query=3).draw(2)
# It computes no numbers, and some methods ask for one: logistic regression and self-training whether they have
# converged, Baseline++ how many updates an episode takes, NNShot how many words a class has, MTB whether it has any,
# MetaNet which gradients are small, Proto-ADV how often it was right, TRAML how many names have vectors, others whether
# shots are equal; noise in evaluation follows from the classes' numbers, which REGRAB asks for.
ASKING = (
    "baseline-plus", "logistic", "metanet", "mtb", "mtb-pretrain", "nnshot", "proto-adv", "self-training", "structshot",
    "traml",
)  # fmt: skip
CLASSES = {name: METHODS.get(name) for name in METHODS.names() if name not in ASKING}
NAMES = [name for name, cls in CLASSES.items() if cls.reads == "vectors" and "unequal-shots" in cls.traits]
CASES = [(name, fit) for name in NAMES if not METHODS.get(name).needs_names for fit in METHODS.get(name).fits]


@pytest.mark.parametrize("transform", ["none", "center-unit"])
@pytest.mark.parametrize("name", NAMES)
def test_a_training_step_stays_on_its_device(name: str, transform: str) -> None:
    augmentation = Augmentation(crop=2, flip=True, jitter=0.2)
    features = Features(Conv4(channels=3, size=16), FeatureTransform(transform, (64,)), augmentation)
    method = make_method(name, feature_shape=(64,), n_classes=4, way=3)
    names = RandomNames(64 if "names" in method.uses_evidence else NAME_SIZE) if method.needs_names else None
    learner = Learner(features, method, make_decision(method, {}), names).to("meta").train()
    losses = method.loss(learner.task(*learner.collate(POOL, EPISODES)))
    assert {loss.device.type for loss in losses.values()} == {"meta"}
    if not method.param_groups():  # torch has no sparse gradients on this device
        torch.autograd.backward(torch.stack(list(losses.values())).sum())


@pytest.mark.parametrize(("name", "fit"), CASES)
def test_scores_stay_on_the_device_of_the_vectors(name: str, fit: str) -> None:
    units = Units.one_each(torch.randn(40, 64).to("meta"))
    method = make_method(name, feature_shape=(64,), n_classes=4, way=3, fit=fit).to("meta").eval()
    scores = method.scores(gather_task(units, EPISODES))
    assert (scores.device.type, scores.shape) == ("meta", (2, 9, 3))


def test_the_environment_names_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HYPERPROTO_DEVICE", raising=False)
    assert default_device().type == ("cuda" if torch.cuda.is_available() else "cpu")
    monkeypatch.setenv("HYPERPROTO_DEVICE", "cpu")
    assert default_device().type == "cpu"
    for wrong in ("gpu", "cuda:99"):
        monkeypatch.setenv("HYPERPROTO_DEVICE", wrong)
        with pytest.raises(ConfigError, match=f"HYPERPROTO_DEVICE={wrong}: no such device here .*; use cpu"):
            default_device()


def test_a_batch_moves_with_all_its_tensors() -> None:
    batch = {"a": torch.zeros(2), "b": [torch.zeros(1), (torch.ones(3), "text")], "c": 7}
    there = moved(batch, torch.device("meta"))
    assert there["a"].is_meta
    assert there["b"][0].is_meta
    assert there["b"][1][0].is_meta
    assert there["b"][1][1] == "text"
    assert there["c"] == 7
