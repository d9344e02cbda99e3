"""Dropout against torch's own."""

import pytest
import torch

from hyperproto.methods.parts import Dropout


def test_coordinates_are_dropped_at_the_rate_and_the_mean_is_kept() -> None:
    torch.manual_seed(0)
    layer, x = Dropout(0.25), torch.ones(400, 500)
    dropped = layer(x)
    assert sorted(set(dropped.flatten().tolist())) == [0.0, pytest.approx(4 / 3)]
    assert (dropped == 0).float().mean().item() == pytest.approx(0.25, abs=0.01)
    assert not torch.equal(layer(x), dropped)


def test_nothing_is_dropped_in_evaluation_or_at_rate_0() -> None:
    x = torch.ones(3, 4)
    assert Dropout(0.0)(x) is x
    assert Dropout(0.5).eval()(x) is x


def test_gradients_pass_where_nothing_was_dropped() -> None:
    torch.manual_seed(0)
    x = torch.randn(50, requires_grad=True)
    dropped = Dropout(0.5)(x)
    [gradient] = torch.autograd.grad(dropped.sum(), x)
    torch.testing.assert_close(gradient, 2.0 * (dropped != 0))
