import numpy as np
import pytest
import torch

from hyperproto.encoders import Features, FeatureTransform
from hyperproto.encoders.conv4 import Conv4
from hyperproto.encoders.identity import Identity
from hyperproto.errors import ConfigError

X = torch.tensor([[3.0, 4.0], [1.0, 0.0], [-2.0, 2.0]])


def naive_unit(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([row / row.pow(2).sum().sqrt() for row in x])


def test_none_and_unit() -> None:
    assert FeatureTransform("none", (2,))(X) is X
    torch.testing.assert_close(FeatureTransform("unit", (2,))(X), naive_unit(X))
    zero = FeatureTransform("unit", (2,))(torch.zeros(1, 2))
    assert zero.tolist() == [[0, 0]]


def test_center_unit_takes_the_batch_then_the_training_data_then_what_it_is_given() -> None:
    transform = FeatureTransform("center-unit", (2,))
    torch.testing.assert_close(transform.train()(X), naive_unit(X - X.mean(0)))
    transform.eval()
    given = torch.tensor([1.0, 1.0])
    torch.testing.assert_close(transform(X, given), naive_unit(X - given))
    with pytest.raises(ConfigError, match="the mean of the training data is not set"):
        transform(X)
    transform.set_center(torch.tensor([0.5, 0.0]))
    torch.testing.assert_close(transform(X, given), naive_unit(X - torch.tensor([0.5, 0.0])))
    twin = FeatureTransform("center-unit", (2,))
    twin.load_state_dict(transform.state_dict())
    assert twin.has_center


def test_feature_maps_have_one_length_for_all_axes() -> None:
    maps = torch.randn(5, 3, 2, 2)
    unit = FeatureTransform("unit", (3, 2, 2))(maps)
    assert unit.shape == maps.shape
    torch.testing.assert_close(unit.flatten(1).norm(dim=1), torch.ones(5))


def test_an_unknown_transform_is_named() -> None:
    with pytest.raises(ConfigError, match=r"no transform 'units'; did you mean 'unit'\?"):
        FeatureTransform("units", (2,))


def test_features_are_an_encoder_with_the_transform_behind_it() -> None:
    features = Features(Identity(shape=[2]), FeatureTransform("unit", (2,)))
    prepared = features.prepare(X.numpy())
    units = features(features.collate(prepared, np.array([2, 0])))
    torch.testing.assert_close(units.x, naive_unit(X[[2, 0]]))
    assert features.feature_shape == (2,)


@pytest.mark.parametrize(("dtype", "scale"), [(torch.float32, 1e30), (torch.float64, 1e250)])
def test_unit_scales_vectors_of_any_size(dtype: torch.dtype, scale: float) -> None:
    transform = FeatureTransform("unit", (2,))
    for x in (X.to(dtype) * scale, X.to(dtype) / scale):
        torch.testing.assert_close(transform(x), naive_unit(X.to(dtype)))


def test_ordinary_vectors_are_scaled_as_torch_does() -> None:
    x, y = (torch.randn(20, 7, generator=torch.Generator().manual_seed(0)).requires_grad_() for _ in range(2))
    ours, theirs = FeatureTransform("unit", (7,))(x), torch.nn.functional.normalize(y, dim=-1)
    ours.square().cumsum(-1).sum().backward()
    theirs.square().cumsum(-1).sum().backward()  # type: ignore[no-untyped-call]
    assert torch.equal(ours, theirs)
    assert torch.equal(x.grad, y.grad)  # type: ignore[arg-type]


def test_fewer_bits_are_for_training_only() -> None:
    torch.manual_seed(0)
    encoder = Conv4(size=16, filters=8)
    images = torch.randint(256, (6, 1, 16, 16), dtype=torch.uint8)
    exact, fewer = (Features(encoder, FeatureTransform("unit", (8,)), fewer_bits=lower) for lower in (False, True))
    assert torch.equal(exact.eval()(images).x, fewer.eval()(images).x)
    a, b = exact.train()(images).x, fewer.train()(images).x
    assert a.dtype == b.dtype == torch.float32
    assert not torch.equal(a, b)
    torch.testing.assert_close(a, b, rtol=0.1, atol=0.05)
    b.square().sum().backward()
    assert all(
        parameter.grad is not None and parameter.grad.dtype == torch.float32 for parameter in encoder.parameters()
    )
