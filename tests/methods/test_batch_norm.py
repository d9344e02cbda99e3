"""Batch norm by statistics of one's choice: against torch's own, in derivatives, and without a trace in the layers."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hyperproto.methods.maml import BatchNorm, KeptStatistics, batch_norm_by, batch_norms, by_batch, by_stored

SHAPES = [(5, 3), (4, 3, 6), (4, 3, 2, 2)]


def layer_for(x: Tensor, **options: Any) -> nn.Module:
    """A layer with weights and statistics that are not those it starts with."""
    torch.manual_seed(1)
    cls = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d}[x.ndim]
    layer = cls(x.shape[1], **options)
    for tensor in (*layer.parameters(), *(b for b in layer.buffers() if b.is_floating_point())):
        nn.init.uniform_(tensor, 0.5, 2.0)
    return layer.to(x.dtype)


def values(shape: tuple[int, ...], dtype: torch.dtype = torch.double) -> Tensor:
    torch.manual_seed(0)
    return (3 + 2 * torch.randn(shape, dtype=dtype)).requires_grad_()


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_by_batch_is_training_mode_and_by_stored_evaluation_mode(shape: tuple[int, ...], affine: bool) -> None:
    x = values(shape)
    for normalise, training in ((by_batch, True), (by_stored, False), (KeptStatistics().measure, True)):
        layer = layer_for(x, affine=affine)
        with batch_norm_by(layer, normalise):
            found = layer.train(not training)(x)  # whatever its mode
        torch.testing.assert_close(found, layer.train(training)(x))


def test_a_layer_that_stores_nothing_takes_the_statistics_at_hand() -> None:
    x = values((5, 3))
    layer = layer_for(x, track_running_stats=False)
    with batch_norm_by(layer, by_stored):
        found = layer(x)
    torch.testing.assert_close(found, layer(x))


@pytest.mark.parametrize("shape", SHAPES)
def test_derivatives_are_right_twice(shape: tuple[int, ...]) -> None:
    x = values(shape)
    weight, bias = (torch.rand(3, dtype=torch.double, requires_grad=True) for _ in range(2))

    def normalised(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        found: Tensor = BatchNorm.apply(x, weight, bias, 0.1)  # type: ignore[no-untyped-call]
        return found

    assert torch.autograd.gradcheck(normalised, (x, weight, bias))
    assert torch.autograd.gradgradcheck(normalised, (x, weight, bias))


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_second_derivatives_are_torchs_own_whatever_the_layout(layout: torch.memory_format) -> None:
    x = values((6, 3, 4, 4), torch.float).detach().contiguous(memory_format=layout).requires_grad_()
    layer = layer_for(x)
    upstream = torch.randn(6, 3, 4, 4)
    inputs = [x, *layer.parameters()]
    found = []
    for normalise in (by_batch, None):
        if normalise is None:
            y = layer.train()(x)
        else:
            with batch_norm_by(layer, normalise):
                y = layer(x)
        first = torch.autograd.grad((y.square() * upstream).sum(), inputs, create_graph=True)
        squares = torch.stack([gradient.square().sum() for gradient in first]).sum()
        found.append([*first, *torch.autograd.grad(squares, inputs)])
    torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=1e-3)


def test_one_value_a_channel_becomes_the_shift() -> None:
    x = values((1, 3))
    layer = layer_for(x)
    with batch_norm_by(layer, by_batch):
        found = layer(x)
    torch.testing.assert_close(found[0], layer.get_parameter("bias"))


class SplitNorm(nn.Module):
    """One pass over all rows, with the statistics of the first ones: what two passes should give."""

    def __init__(self, layer: nn.Module, rows: int) -> None:
        super().__init__()
        self.layer, self.rows = layer, rows

    def forward(self, x: Tensor) -> Tensor:
        first = x[: self.rows].transpose(0, 1).flatten(1)  # (C, values)
        shape = 1, -1, *[1] * (x.ndim - 2)
        mean, variance = first.mean(1).view(shape), first.var(1, correction=0).view(shape)
        weight, bias = self.layer.get_parameter("weight").view(shape), self.layer.get_parameter("bias").view(shape)
        return (x - mean) / (variance + 1e-5).sqrt() * weight + bias


def network(x: Tensor) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 1), nn.BatchNorm2d(2), nn.Flatten()
    ).to(x.dtype)


def test_two_passes_are_one_with_the_statistics_of_the_first_rows() -> None:
    x = values((7, 3, 5, 5))
    net, kept = network(x), KeptStatistics()
    with batch_norm_by(net, kept.measure):
        first = net(x[:3])
    with batch_norm_by(net, kept.apply):
        second = net(x[3:])
    split = nn.Sequential(*(SplitNorm(part, 3) if isinstance(part, nn.BatchNorm2d) else part for part in net))
    expected = split(x)
    torch.testing.assert_close(torch.cat([first, second]), expected)
    inputs = [x, *net.parameters()]
    found = torch.autograd.grad(second.square().sum(), inputs)  # the first rows count through their statistics
    torch.testing.assert_close(found, torch.autograd.grad(expected[3:].square().sum(), inputs))
    assert found[0][:3].abs().sum() > 0


@pytest.mark.parametrize("normalise", [by_batch, by_stored, KeptStatistics().measure])
def test_nothing_is_written_into_the_layers(normalise: Any) -> None:
    x = values((7, 3, 5, 5))
    net = network(x).train()
    assert [type(layer) for layer in batch_norms(net)] == [nn.BatchNorm2d] * 2
    before = {name: (tensor.clone(), tensor._version) for name, tensor in net.state_dict().items()}
    with batch_norm_by(net, normalise):
        torch.autograd.backward(net(x).sum())
    for name, tensor in net.state_dict().items():
        assert torch.equal(tensor, before[name][0])
        assert tensor._version == before[name][1]
    assert all("forward" not in vars(layer) for layer in batch_norms(net))


def test_an_error_within_leaves_the_layers_as_they_were() -> None:
    x = values((7, 3, 5, 5))
    net = network(x)
    with pytest.raises(ZeroDivisionError), batch_norm_by(net, by_batch):
        _ = 1 / 0
    assert all("forward" not in vars(layer) for layer in batch_norms(net))
