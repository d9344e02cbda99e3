"""Whole-classification against a naive loop."""

import math
from typing import Any

import pytest
import torch

from hyperproto.encoders.identity import Identity
from hyperproto.methods import PAD, Task, make_method
from hyperproto.methods.classifier import Classifier
from tests.conftest import blobs
from tests.helpers.predicting import features_of

POOL = blobs(n_classes=8, dim=6)


def make_task() -> Task:
    random = torch.Generator().manual_seed(0)
    return Task(
        support=torch.zeros(2, 0, 6),
        support_y=torch.zeros(2, 0, dtype=torch.long),
        query=torch.randn(2, 5, 6, generator=random),
        query_y=torch.tensor([[0, 1, 2, -1, 1], [2, 0, PAD, 1, 1]]),
        classes=torch.tensor([[7, 3, 5], [0, 6, 2]]),
        query_offsets=torch.arange(6).expand(2, -1),
    )


@pytest.mark.parametrize(("head", "norm"), [("linear", False), ("cosine", False), ("cosine", True)])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_the_loss_is_cross_entropy_over_all_training_classes(head: str, norm: bool, smoothing: float) -> None:
    options: dict[str, Any] = {"head": head, "class_norm": norm, "label_smoothing": smoothing, "temperature": 0.5}
    method = make_method("classifier", feature_shape=(6,), n_classes=8, **options)
    assert isinstance(method, Classifier)
    method.setup(POOL, features_of(Identity(shape=[6])))
    task = make_task()
    assert task.query_y is not None
    losses = []
    for b in range(2):
        for q in range(5):
            local = int(task.query_y[b, q])
            if local < 0:
                continue
            x, label = task.query[b, q], int(task.classes[b, local])
            logits = []
            for n in range(8):
                w = method.weight[n].detach()
                score = float(x @ w) if head == "linear" else float(x @ w / (x.norm() * w.norm()))
                score *= float(w.norm()) if norm else 1.0  # where the lengths start
                logits.append(score / 0.5)
            top = max(logits)
            log_sum = top + math.log(sum(math.exp(value - top) for value in logits))
            target = [smoothing / 8 + (1 - smoothing) * (n == label) for n in range(8)]
            losses.append(sum(t * (log_sum - value) for t, value in zip(target, logits, strict=True)))
    assert float(method.loss(task)["cls"].detach()) == pytest.approx(sum(losses) / len(losses), rel=1e-5)


def test_a_linear_head_starts_without_temperature_and_a_cosine_head_with_a_tenth() -> None:
    def temperature(**options: Any) -> float:
        method = make_method("classifier", feature_shape=(6,), n_classes=8, **options)
        return float(method.log_temperature.exp())

    assert temperature(head="linear") == pytest.approx(1.0)
    assert temperature(head="cosine") == pytest.approx(0.1)


def test_another_seed_starts_another_layer() -> None:
    weights = []
    for seed in (0, 0, 1):
        method = make_method("classifier", feature_shape=(6,), n_classes=8)
        assert isinstance(method, Classifier)
        torch.manual_seed(seed)
        method.setup(POOL, features_of(Identity(shape=[6])))
        weights.append(method.weight.detach().clone())
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert float(weights[0].abs().max()) <= 1 / math.sqrt(6)
