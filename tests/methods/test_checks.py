"""What the base of all methods checks: the shape of scores, and, outside training, that they are numbers."""

from typing import Any

import pytest
import torch
from torch import Tensor

from hyperproto.errors import ConfigError
from hyperproto.methods import Method, Task


class Returns(Method):
    """Scores of a given shape, all of one value."""

    def __init__(self, *, shape: tuple[int, ...], value: float = 0.0, **options: Any) -> None:
        super().__init__(**options)
        self.shape, self.value = shape, value

    def scores(self, task: Task) -> Tensor:
        return torch.full(self.shape, self.value)


def returns(*shape: int, value: float = 0.0) -> Returns:
    return Returns(shape=shape, value=value, feature_shape=(6,), n_classes=0)


@pytest.mark.parametrize("shape", [(2, 12), (2, 12, 1), (2, 3, 12), (1, 12, 3), (2, 12, 4)])
@pytest.mark.parametrize("training", [True, False])
def test_a_wrong_shape_is_refused_and_both_shapes_are_named(shape: tuple[int, ...], training: bool, task: Task) -> None:
    wrong = rf"Returns\.scores returned shape \({', '.join(map(str, shape))}\); \(2, 12, 3\) was expected"
    with pytest.raises(ConfigError, match=wrong):
        returns(*shape).train(training)(task)


def test_nan_is_refused_outside_training_only(task: Task) -> None:
    method = returns(2, 12, 3, value=torch.nan)
    with pytest.raises(
        ConfigError, match=r"Returns\.scores returned NaN for some queries; check its inputs and options"
    ):
        method.eval()(task)
    assert method.train()(task).isnan().all()  # the trainer names the step and what to do
    assert method.loss(task)["cls"].isnan()


def test_infinite_scores_are_answers(task: Task) -> None:
    assert returns(2, 12, 3, value=-torch.inf).eval()(task).isinf().all()  # a class without support
