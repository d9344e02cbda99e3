"""What O looks like in general: the discriminant against scikit-learn's, what it adds, and where it is learned."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from hyperproto.comparison.measure import Selection, select
from hyperproto.data import OUTSIDE, open_pool
from hyperproto.decisions import Decision, make_decision
from hyperproto.decisions.outside import SHRINKAGE, Outside
from hyperproto.encoders import FeatureTransform, make_encoder
from hyperproto.errors import ConfigError
from hyperproto.evaluation import EncodedPool, training_units
from hyperproto.methods import make_method
from hyperproto.training import Run, load_recipe, train
from hyperproto.training.sources import Candidate, Source
from tests.helpers.predicting import decided
from tests.helpers.random_tasks import make_task
from tests.helpers.tagged import random_sentences
from tests.helpers.tiny_words import register, write_conll


def words(n: int = 400, dimension: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    random = np.random.default_rng(0)
    outside = random.random(n) < 0.8
    x = random.normal(size=(n, dimension)) @ random.normal(size=(dimension, dimension)) + 7.0
    x[outside] += random.normal(size=dimension)
    return torch.from_numpy(x), torch.from_numpy(outside)


def learned(weight: float = 1.0) -> Outside:
    module = Outside(weight, 5).double()
    module.learn(*words())
    return module


def test_the_log_odds_are_those_of_a_discriminant_analysis() -> None:
    x, outside = words()
    model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=SHRINKAGE).fit(x.numpy(), outside.numpy())
    added = learned().added_to(torch.zeros(1, len(x), 3).double(), x[None])
    # scikit-learn shrinks the covariance of each part towards its own variance, we that of all
    np.testing.assert_allclose(added[0, :, 0].numpy(), model.decision_function(x.numpy()), atol=0.05)
    assert not added[0, :, 1:].any()


def test_only_the_logit_of_o_changes_and_by_its_weight() -> None:
    x, _ = words(12)
    logits = torch.randn(2, 6, 4).double()
    once, thrice = (learned(weight).added_to(logits, x.view(2, 6, 5)) for weight in (1.0, 3.0))
    assert torch.equal(once[..., 1:], logits[..., 1:])
    torch.testing.assert_close(thrice[..., 0] - logits[..., 0], 3 * (once[..., 0] - logits[..., 0]))


@pytest.mark.parametrize("path", [False, True])
def test_a_method_takes_it_into_account_when_it_decides(path: bool) -> None:
    task = make_task(counts=(3, 3, 3))
    transitions = {"transitions": [0.9, 0.1, 0.9, 0.1, 0.5, 0.4, 0.1]} if path else {}
    method = make_method("protonet", feature_shape=(6,), temperature=0.5).eval()
    decision = make_decision(method, {"outside_weight": 2.0, "path": path, **transitions})
    scores = method.scores(task)
    if not path:
        assert torch.equal(decided(method, task, decision), scores.argmax(-1))  # it has seen no words yet
    assert decision.outside is not None
    decision.outside.direction[:] = torch.linspace(-3, 3, 6)
    decision.outside.offset.fill_(0.5)
    logits = scores / 0.5
    logits[..., 0] += 2.0 * (task.query @ torch.linspace(-3, 3, 6) + 0.5)
    expected = logits.argmax(-1)
    if path:
        assert decision.path is not None
        expected = decision.path.best(logits, task.query_offsets)
    assert torch.equal(decided(method, task, decision), expected)
    assert not torch.equal(expected, scores.argmax(-1))


def test_bad_weights_and_words() -> None:
    with pytest.raises(ConfigError, match="outside_weight -1 must be at least 0; 0 uses only the support"):
        Decision(dimension=6, outside_weight=-1)
    x, _ = words()
    with pytest.raises(ConfigError, match="every word of the training data is O, or none is"):
        Outside(1.0, 5).learn(x, torch.ones(len(x), dtype=torch.bool))


@pytest.fixture
def data(tmp_path: Path) -> str:
    register()
    for seed, split in enumerate(("train", "val", "test")):
        write_conll(tmp_path / "data" / f"{split}.txt", random_sentences(120, 5, seed=seed, most_runs=3))
    return f"conll:{tmp_path / 'data'}"


def direction(candidate: Candidate) -> torch.Tensor:
    assert candidate.decision.outside is not None
    return candidate.decision.outside.direction


@pytest.mark.parametrize("transform", ["none", "unit", "center-unit"])
def test_a_ready_encoder_learns_it_on_the_training_data_as_transformed(data: str, transform: str) -> None:
    chosen = Selection(
        encoders=["tiny-words"], methods=["cosine"], transforms=[transform], options={"outside_weight": [0.5]}
    )
    [candidate] = chosen.candidates(open_pool(data, "test"))
    pool = open_pool(data, "train")
    encoded = EncodedPool.encode(candidate.encoder, pool)  # all of it: another order, the same words
    features = FeatureTransform(transform, (8,)).eval()
    if candidate.center is not None:
        features.set_center(candidate.center)
    expected = Outside(0.5, 8)
    expected.learn(features(encoded.units.x), torch.from_numpy(pool.labels == OUTSIDE))
    torch.testing.assert_close(direction(candidate), expected.direction, rtol=1e-3, atol=1e-3)
    assert candidate.label == f"cosine point {transform} outside_weight=0.5"


def test_a_run_learns_it_whether_its_recipe_says_so_or_the_command(data: str, tmp_path: Path) -> None:
    recipe = tmp_path / "words.toml"
    recipe.write_text(
        f'[data]\nspec = "{data}"\n[encoder]\nname = "tiny-words"\n[method]\nname = "protonet"\n'
        "[decision]\noutside_weight = 0.5\n"
        "[episodes]\nway = 3\nshot = 2\nquery = 2\n[optim.encoder]\nname = 'adam'\nlr = 0.03\n"
        "[training]\nsteps = 3\nvalidate_every = 3\n[validation]\nway = 3\nshot = 2\nquery = 2\nepisodes = 5\n"
    )
    folder = train(load_recipe(str(recipe)), tmp_path / "run").folder
    pool = open_pool(data, "test")
    found: list[Candidate] = []
    for options in ({}, {"outside_weight": [2.0]}):
        found += Selection(runs=[str(folder)], transforms=["none", "unit"], options=options).candidates(pool)
    assert [candidate.decision.outside.weight for candidate in found if candidate.decision.outside] == [0.5, 0.5, 2, 2]
    assert torch.equal(direction(found[0]), direction(found[2]))
    assert not torch.equal(direction(found[0]), direction(found[1]))  # each transform has its own
    stored = Run(folder).load()[0].decision
    assert stored.outside is not None
    assert not stored.outside.fitted  # the encoder had not been trained yet


def test_without_training_data_it_says_so(data: str) -> None:
    source = Source("words", {}, make_encoder("tiny-words", {}), "none")
    with pytest.raises(ConfigError, match="outside_weight is fitted to words of training data, "
                                          "and words comes without any here; leave it out"):  # fmt: skip
        select([source], ["protonet"], [], [], {"outside_weight": 1.0})


def test_labels_belong_to_their_vectors(data: str) -> None:
    pool = open_pool(data, "train")
    encoder = make_encoder("tiny-words", {}).eval()
    x, labels = training_units(encoder, pool)
    rows = encoder.encode(encoder.prepared(pool), np.arange(len(pool))).x
    expected = {(tuple(row), label) for row, label in zip(rows.tolist(), pool.labels.tolist(), strict=True)}
    assert {(tuple(row), label) for row, label in zip(x.tolist(), labels.tolist(), strict=True)} == expected
