"""Whitening by the shrunk within-class covariance, of low rank where the support is smaller than the space."""

from dataclasses import dataclass
from typing import Any

from array_api_compat import array_namespace, device

from hyperproto.regions.arrays import Array

UNUSUAL = 1e6  # scatter above this, or below its inverse, is scaled to 1 before it is squared


@dataclass(frozen=True, eq=False)
class Whitening:
    """Symmetric linear map A = I + left right, applied to rows: A x = x + (x left) right."""

    left: Array  # (..., D, r)
    right: Array  # (..., r, D)

    def __call__(self, x: Array) -> Array:
        """Map rows (..., Q, D)."""
        return x + (x @ self.left) @ self.right

    def undo(self, x: Array) -> Array:
        """Apply A^-1 = I - left (I + right left)^-1 right to rows (..., Q, D)."""
        xp = array_namespace(self.left)
        inner = self.right @ self.left  # (..., r, r)
        eye = xp.eye(inner.shape[-1], dtype=inner.dtype, device=device(inner))
        return x - (x @ self.left) @ xp.linalg.solve(eye + inner, self.right)

    def astype(self, dtype: Any) -> "Whitening":
        """Return the map in another precision."""
        xp = array_namespace(self.left)
        return Whitening(xp.astype(self.left, dtype), xp.astype(self.right, dtype))


def within_class_whitening(residual: Array, scatter: Array, dof: Array, known: Array) -> tuple[Whitening, Array]:
    """Return A = sqrt(c) Sigma^(-1/2) with Sigma = (1 - a) W + c I, W = R^T R / dof, and its gain b (...).

    `residual` R (..., S, D), `scatter` v = ||R||^2 / dof (...), `dof` (...). The shrinkage a lies half-way from OAS
    (Chen et al. 2010) to the identity: 1 - a = (1 - OAS) / 2; c = a v / D. Where scatter is not `known` (...), A is the
    identity and b is 0.

    With b = (1 - a) / (c dof), A = (I + b R^T R)^(-1/2). Since 1/u - 1 = t g(t) for u = sqrt(1 + t), that is
    I + R^T [b g(b R R^T)] R, or I + [b g(b R^T R)] R^T R. This needs no inverse and no threshold on small singular
    values, and takes the smaller of the two Gram matrices.
    """
    xp = array_namespace(residual)
    size, dim = residual.shape[-2:]
    gram = residual @ residual.mT if size <= dim else residual.mT @ residual  # (..., r, r), r = min(S, D)
    usual = (scatter > 1 / UNUSUAL) & (scatter < UNUSUAL)
    size2 = xp.where(usual, 1.0, scatter)  # so that squares neither overflow nor vanish; shrinkage is free of units
    scaled = gram / size2[..., None, None]
    shrinkage = oas(xp.sum(scaled * scaled, axis=(-2, -1)) / dof**2, scatter / size2, dof, dim)
    shrinkage = 1 - (1 - shrinkage) / 2
    gain = xp.where(known, (1 - shrinkage) * dim / (shrinkage * scatter * dof), 0.0)  # b
    b = gain[..., None, None]
    inner = b * root_slope(b * gram)
    return (Whitening(residual.mT, inner @ residual) if size <= dim else Whitening(inner, gram)), gain


def oas(square: Array, trace: Array, dof: Array, dim: int) -> Array:
    """Return the oracle approximating shrinkage of tr(W^2) and tr(W), at most 1; 1 where it is undefined (D = 1)."""
    xp = array_namespace(square)
    above = (1 - 2 / dim) * square + trace * trace
    below = (dof + 1 - 2 / dim) * (square - trace * trace / dim)
    proper = (above > 0) & (above < below)
    return xp.where(proper, above / xp.where(proper, below, 1.0), 1.0)


def root_slope(matrix: Array) -> Array:
    """Return g(P) of symmetric P >= 0 (..., r, r), g(t) = ((1 + t)^(-1/2) - 1) / t = -1 / (u (1 + u)), u^2 = 1 + t.

    The gradient of `eigh` is NaN for repeated eigenvalues, and a support set has them (its residuals are dependent).
    So the decomposition is of a constant, and P enters again to first order. By the theorem of Daleckii and Krein its
    derivative is exact: dg(P) = U [Gamma * (U^T dP U)] U^T, where Gamma are the divided differences of g, which have a
    form without cancellation. Second derivatives are wrong.
    """
    xp = array_namespace(matrix)
    constant = matrix.detach() if hasattr(matrix, "detach") else matrix
    value, vector = _eigh(constant)  # (..., r), (..., r, r)
    value = xp.where(value < 0, 0.0, value)  # rounding
    u = xp.sqrt(1 + value)[..., :, None]
    w = u.mT
    gamma = (1 + u + w) / (u * w * (1 + u) * (1 + w) * (u + w))
    eye = xp.eye(value.shape[-1], dtype=value.dtype, device=device(value))
    change = vector.mT @ matrix @ vector - eye * value[..., None, :]  # 0 but for rounding, and for its gradient
    return vector @ (gamma * change - eye / (u * (1 + u))) @ vector.mT


def _eigh(matrix: Array) -> tuple[Array, Array]:
    """Return eigenvalues and vectors of a symmetric matrix; in float64 where LAPACK does not converge in float32.

    It failed on one of some hundred Gram matrices of word vectors, finite and with eigenvalues from 0 to 15.
    """
    xp = array_namespace(matrix)
    try:
        value, vector = xp.linalg.eigh(matrix)
    except (ValueError, RuntimeError):  # LinAlgError of NumPy and of torch
        if matrix.dtype == xp.float64:
            raise
        value, vector = (xp.astype(part, matrix.dtype) for part in xp.linalg.eigh(xp.astype(matrix, xp.float64)))
    return value, vector
