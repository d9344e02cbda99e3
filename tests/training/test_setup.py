"""The initialisation phase of Algorithm 1: which instances, how many, and in which mode the encoder reads them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from hyperproto.data import Pool, open_pool
from hyperproto.encoders import Units
from hyperproto.encoders.identity import Identity
from hyperproto.errors import ConfigError
from hyperproto.methods import make_method
from hyperproto.methods.stored import StoredRegions
from hyperproto.training import Learner, load_recipe
from hyperproto.training.resolve import resolve
from tests.helpers.predicting import features_of

from .conftest import recipe_file


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
    method = make_method("hyperproto", feature_shape=(6,), n_classes=8, init_shot=4)
    learner = Learner.of(method, Noisy(shape=[6]), transform)
    learner.setup(pool)
    x = torch.from_numpy(pool.items)
    x = (x - x.mean(0)) / (x.var(0, unbiased=False) + 1e-5).sqrt()
    if transform == "center-unit":
        x = x - x.mean(0)
    if transform != "none":
        x = F.normalize(x, dim=-1)
    assert isinstance(method, StoredRegions)
    for n in range(8):
        own = x[torch.from_numpy(pool.labels == n)]
        torch.testing.assert_close(method.center[n].detach(), own.mean(0), atol=1e-5, rtol=1e-4)
        radius = ((own - own.mean(0)) ** 2).sum(1).mean()
        torch.testing.assert_close(method.radius[n, 0].detach(), radius, atol=1e-5, rtol=1e-4)


def test_running_statistics_of_batch_norm_start_from_the_instances(make_blobs: Callable[..., Pool]) -> None:
    pool = make_blobs(per_class=4)
    encoder = Noisy(shape=[6])
    Learner.of(make_method("hyperproto", feature_shape=(6,), n_classes=8, init_shot=4), encoder).setup(pool)
    assert encoder.norm.running_mean is not None
    expected = 0.1 * pool.items.mean(0)
    np.testing.assert_allclose(encoder.norm.running_mean, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([], 3),  # the shots of the training episodes
        (["episodes.shot=0", "validation.shot=2"], 2),  # stored centres: those of the validation episodes
        (["episodes.shot=[1, 1, 2, 20]"], 2),  # unequal: the median
        (["episodes.shot=0", "validation.shot=[1, 5, 5, 7]"], 5),
        (["method.init_shot=7"], 7),
        (["method.init_shot=shot"], 3),
    ],
)
def test_regions_start_from_as_many_instances_as_the_support_has(
    overrides: list[str], expected: int, vectors_file: Path
) -> None:
    recipe = load_recipe(str(recipe_file(vectors_file)), ["episodes.way=4", *overrides])
    resolved = resolve(recipe, open_pool(recipe.data.spec, "train"))
    assert resolved.method.options["init_shot"] == expected
    learner = Learner.build(resolved, 8)
    assert learner.method.init_shot == expected


def test_rows_of_the_tables_start_from_the_shots_they_are_tested_with() -> None:
    from hyperproto.training.resolve import init_shot

    expected = {
        "table1:hyperproto-inter-5way-1shot": 1,
        "table1:hyperproto-inter-5way-5shot": 5,
        "table1-shots:hyperproto-intra-5way-10shot": 10,
        "table2:hyperproto-cnn": 5,
        "table3:hyperproto-conv4-1shot": 1,
        "table4:cone-1shot": 1,
    }
    for name, shot in expected.items():
        assert init_shot(load_recipe(name)) == shot, name


def test_without_a_recipe_the_shots_are_not_known(make_blobs: Callable[..., Pool]) -> None:
    method = make_method("hyperproto", feature_shape=(6,), n_classes=8)
    with pytest.raises(ConfigError, match='init_shot = "shot" is the number of shots of a recipe; without one, give'):
        method.setup(make_blobs(), features_of(Identity(shape=[6])))
