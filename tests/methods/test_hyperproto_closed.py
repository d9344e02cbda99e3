"""The closed form in training: the loss is that of spheres fitted to the support, and the encoder learns through it."""

from typing import Any

import pytest
import torch

from hyperproto.decisions import make_decision
from hyperproto.encoders.class_names import ClassNames
from hyperproto.encoders.identity import Identity
from hyperproto.episodes import EpisodeSampler
from hyperproto.errors import ConfigError
from hyperproto.methods import make_method
from hyperproto.regions import Sphere
from hyperproto.training import Learner
from tests.conftest import blobs
from tests.helpers.predicting import features_of
from tests.helpers.random_tasks import make_task


def build(**options: Any) -> Any:
    return make_method("hyperproto-closed", feature_shape=(6,), **options)


@pytest.mark.parametrize("fit", ["bayes", "unbiased"])
@pytest.mark.parametrize("prior_ratio", [4.0, 0.5])
def test_the_loss_is_cross_entropy_of_fitted_spheres(fit: str, prior_ratio: float) -> None:
    task = make_task((1, 2, 4))
    method = build(fit=fit, prior_ratio=prior_ratio, temperature=2.0)
    assert task.query_y is not None
    losses = []
    for b in range(len(task.support)):
        options: dict[str, Any] = {"prior_ratio": prior_ratio} if fit == "bayes" else {}
        own = task.support_y[b] >= 0
        sphere = Sphere.fit(task.support[b][own], task.support_y[b][own], 3, mode=fit, **options)
        for x, label in zip(task.query[b], task.query_y[b].tolist(), strict=True):
            if label >= 0:
                losses.append(torch.nn.functional.cross_entropy(-sphere.measure(x[None]) / 2.0, torch.tensor([label])))
    found = method.loss(task)["cls"]
    assert float(found.detach()) == pytest.approx(float(torch.stack(losses).mean()), rel=1e-4)


def test_gradients_reach_support_and_queries() -> None:
    task = make_task((1, 2, 4))
    task.support.requires_grad_()
    task.query.requires_grad_()
    build().loss(task)["cls"].backward()
    for part in (task.support, task.query):
        assert part.grad is not None
        assert part.grad.isfinite().all()
        assert part.grad.abs().sum() > 0


def test_names_are_learned_in_the_space_of_the_items() -> None:
    pool = blobs(6, 12)
    learner = Learner(features_of(Identity(shape=[6]), "unit"), build(), make_decision(build(), {}))
    vectors = torch.randn(6, 6, generator=torch.Generator().manual_seed(0)).requires_grad_()
    texts = tuple(pool.class_names)
    learner.read_pool(pool, training=True)
    learner.class_names = ClassNames(texts, {}, lambda some: vectors[[texts.index(t) for t in some]], frozen=False)
    episodes = EpisodeSampler(pool, way=4, shot=2, query=3).draw(2)
    names = learner.class_names
    batch = learner.collate(pool, episodes)  # reads the pool, which has no names of its own
    learner.class_names = names
    task = learner.task(*batch)
    assert task.names is not None
    torch.testing.assert_close(task.names.norm(dim=-1), torch.ones(2, 4))
    build().loss(task)["cls"].backward()
    assert vectors.grad is not None
    assert vectors.grad.abs().sum() > 0


def test_a_wrong_ratio_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"prior_ratio 0\.0 must be above 0"):
        build(prior_ratio=0.0)
