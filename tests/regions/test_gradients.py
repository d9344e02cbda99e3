"""Gradients: right where they can be checked, finite everywhere else."""

from collections.abc import Callable
from typing import Any

import pytest

from hyperproto.regions import Cone, Gaussian, Point, Region, Sphere, cone_overlap_loss
from hyperproto.regions.whitening import root_slope

torch = pytest.importorskip("torch")

Y = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2, 3, -1, 0])


def normal(*shape: Any, seed: int = 0) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


SUPPORTS = {
    "plain": (normal(12, 8), Y),
    "low dimension": (normal(12, 3), Y),
    "line": (normal(12, 1), Y),
    "identical": (normal(4, 8)[Y.clamp(min=0)], Y),
    "all the same": (torch.ones(12, 8, dtype=torch.float64), Y),
    "zeros": (torch.zeros(12, 8, dtype=torch.float64), Y),
    "some zeros": (normal(12, 8) * (torch.arange(12) % 3 > 0)[:, None], Y),
    "opposite": (normal(1, 8) * (-1.0) ** torch.arange(12)[:, None], Y),
    "one turned": (normal(1, 8) * (1 - 2.0 * (torch.arange(12) % 5 == 0))[:, None], Y),
    "one shot": (normal(12, 8), torch.tensor([0, 1, 2, 3, *[-1] * 8])),
    "one class": (normal(12, 8), torch.zeros(12, dtype=torch.int64)),
    "padding only": (normal(12, 8), torch.full((12,), -1)),
    "axes": (torch.cat([torch.eye(6), -torch.eye(6)]).to(torch.float64), torch.arange(12) % 4),  # repeated eigenvalues
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", SUPPORTS)
def test_values_and_gradients_are_finite(fit: Callable[..., Region], name: str, dtype: Any) -> None:
    x, y = SUPPORTS[name]
    x = x.to(dtype).requires_grad_()
    region = fit(x, y, 4)
    at_center = region.center.detach()
    q = torch.cat([at_center, -at_center, 0 * at_center, x.detach(), x.detach() + 1]).requires_grad_()
    parts = [region.measure(q), region.distance(q), region.bias_radius, region.extent_radius]
    for part in parts:
        assert part.isfinite().all()
        if part.requires_grad:
            for gradient in torch.autograd.grad(part.sum(), (x, q), retain_graph=True, allow_unused=True):
                assert gradient is None or gradient.isfinite().all()


@pytest.mark.parametrize(("size", "dim"), [(12, 16), (12, 12), (24, 5)])
def test_bayes_has_the_right_gradient(size: int, dim: int) -> None:
    y = torch.cat([torch.tensor([-1, 3]), torch.arange(size - 2) % 3])  # padding, and a class of one
    x = (normal(size, dim) * torch.logspace(-1, 1, dim)).requires_grad_()  # far from round: OAS is below 1
    q = normal(4, dim, seed=1).requires_grad_()

    def outputs(x: Any, q: Any) -> Any:
        sphere = Sphere.fit(x, y, 4)
        return sphere.measure(q), sphere.linear().weights, sphere.linear().bias, sphere.extent_radius, sphere.ratio

    whiten = Sphere.fit(x, y, 4).whiten
    assert whiten is not None
    assert (whiten.left @ whiten.right).abs().max() > 0.1
    assert torch.autograd.gradcheck(outputs, (x, q), fast_mode=True)


def test_a_function_of_a_matrix_with_repeated_eigenvalues() -> None:
    vectors = torch.linalg.qr(normal(5, 5))[0]
    values = torch.tensor([0.0, 0.0, 2.0, 2.0, 5.0], dtype=torch.float64)

    def symmetric(change: Any) -> Any:
        return root_slope(vectors @ torch.diag(values) @ vectors.T + change + change.T)

    u = torch.sqrt(1 + values)
    expected = vectors @ torch.diag(-1 / (u * (1 + u))) @ vectors.T
    change = torch.zeros(5, 5, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(symmetric(change).detach(), expected)
    step = 1e-5 * (vectors[:, 2:] @ normal(3, 3) @ vectors[:, 2:].T)  # stays positive semi-definite
    derivative = torch.autograd.functional.jvp(symmetric, change, step)[1]
    torch.testing.assert_close((symmetric(step) - symmetric(-step)).detach() / 2, derivative, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize(
    "measure",
    [
        lambda z, eps, q: Sphere(z, eps).measure(q),
        lambda z, eps, q: Sphere(center=z, bias_radius=eps, squared=False).measure(q),
        lambda z, eps, q: Cone(z, eps).measure(q),
        lambda z, eps, q: Cone(z, eps).measure(q, break_ties=True),
        lambda z, eps, q: Gaussian(z, eps).measure(q),
        lambda z, eps, q: Point(z).measure(q) + eps,
        lambda z, eps, q: cone_overlap_loss(z, eps) + q.sum(),
    ],
)
def test_regions_of_stored_parameters_train(measure: Any) -> None:
    z, q = normal(3, 5).requires_grad_(), normal(2, 4, 5, seed=1).requires_grad_()  # one set of classes, many episodes
    eps = torch.tensor([0.5, -0.8, 1.2], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(measure, (z, eps, q))
