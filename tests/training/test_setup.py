"""The initialisation phase of Algorithm 1: which instances, how many, and in which mode the encoder reads them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from hyperproto.data import Pool
from hyperproto.encoders import Features, FeatureTransform, Units
from hyperproto.encoders.identity import Identity
from hyperproto.methods import make_method
from hyperproto.training import Learner


class Noisy(Identity):
    """Drops in both ways: by a module, and by a function, as the attention of a language model does."""

    def __init__(self, *, shape: list[int]) -> None:
        super().__init__(shape=shape)
        self.dropout = nn.Dropout(0.5)
        self.norm = nn.BatchNorm1d(shape[0])

    def forward(self, batch: Any) -> Units:
        return Units.one_each(F.dropout(self.dropout(self.norm(batch)), 0.5, self.training))


@pytest.mark.parametrize("transform", ["none", "unit", "center-unit"])
def test_the_initialisation_drops_nothing_and_normalises_by_batches(
    make_blobs: Callable[..., Pool], transform: str
) -> None:
    pool = make_blobs(per_class=4)  # 32 instances, one batch: all of them
    features = Features(Noisy(shape=[6]), FeatureTransform(transform, (6,)))
    learner = Learner(features, make_method("hyperproto", feature_shape=(6,), n_classes=8, init_shot=4))
    learner.setup(pool)
    x = torch.from_numpy(pool.items)
    x = (x - x.mean(0)) / (x.var(0, unbiased=False) + 1e-5).sqrt()
    if transform == "center-unit":
        x = x - x.mean(0)
    if transform != "none":
        x = F.normalize(x, dim=-1)
    for n in range(8):
        own = x[torch.from_numpy(pool.labels == n)]
        torch.testing.assert_close(learner.method.center[n].detach(), own.mean(0), atol=1e-5, rtol=1e-4)
        radius = ((own - own.mean(0)) ** 2).sum(1).mean()
        torch.testing.assert_close(learner.method.radius[n, 0].detach(), radius, atol=1e-5, rtol=1e-4)


def test_running_statistics_of_batch_norm_start_from_the_instances(make_blobs: Callable[..., Pool]) -> None:
    pool = make_blobs(per_class=4)
    encoder = Noisy(shape=[6])
    features = Features(encoder, FeatureTransform("none", (6,)))
    Learner(features, make_method("hyperproto", feature_shape=(6,), n_classes=8, init_shot=4)).setup(pool)
    expected = 0.1 * pool.items.mean(0)
    np.testing.assert_allclose(encoder.norm.running_mean.numpy(), expected, atol=1e-5)  # type: ignore[union-attr]
