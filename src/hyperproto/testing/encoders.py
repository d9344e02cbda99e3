"""check_encoder: the contract of an encoder as a function, on items of the caller."""

from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hyperproto.data import IntArray, Pool
from hyperproto.encoders.base import Encoder, Units, moved
from hyperproto.errors import ConfigError

TOLERANCE = 1e-4  # relative and absolute: the order of sums depends on the batch


def check_encoder(encoder: Encoder | type[Encoder], items: Any, **options: Any) -> None:
    """Check that an encoder keeps its contract; raise an AssertionError that says what does not hold.

    `encoder` is an instance, or a class that is built with `options` and the result of its `options_for`. `items` are
    at least three different items (of different lengths, if they have one), or a `Pool`, as for tagged sentences.

    These are checked:

    - shapes and types of the result of `forward`; padding is masked and zero;
    - in eval mode, the vectors of an item depend neither on the rest of its batch nor on its position;
    - `encode_all`, `encode` and the stages, if there are any, agree with `forward`;
    - all weights are in `state_dict`, and gradients reach them.
    """
    pool = items if isinstance(items, Pool) else Pool(items, np.zeros(len(items), np.int64), ("class",))
    if isinstance(encoder, type):
        options = {**encoder.options_for(pool), **options}
        encoder = encoder(**options)
        encoder.made_from = type(encoder).__name__, options
    _require(len(pool) >= 3, f"{len(pool)} items; give at least three that differ")
    was_training = encoder.training
    encoder.eval()
    try:
        _check_shape(encoder)
        _check_options(encoder, pool)
        prepared = encoder.prepare(pool.items)
        _require(len(prepared) == len(pool), f"prepare made {len(prepared)} items of {len(pool)}")
        whole = _encoded(encoder, prepared, np.arange(len(pool)))
        _check_units(encoder, whole, len(pool))
        _check_independence(encoder, prepared, whole)
        _check_encode(encoder, prepared, whole)
        _check_state(encoder, prepared, whole)
        _check_stages(encoder, prepared, whole)
        _check_gradients(encoder, prepared)
    finally:
        encoder.train(was_training)


def _require(holds: bool, problem: str) -> None:
    if not holds:
        raise AssertionError(problem)


def _check_shape(encoder: Encoder) -> None:
    shape = encoder.feature_shape
    whole = isinstance(shape, tuple) and len(shape) > 0 and all(isinstance(axis, int) for axis in shape)
    _require(whole, f"feature_shape is {shape!r}; it must be a tuple of integers, such as (64,)")
    ragged = shape[0] == -1 and len(shape) > 1
    _require(
        all(axis > 0 for axis in shape[ragged:]),
        f"feature_shape is {shape}; its axes must be positive, except the first one of token states: (-1, C)",
    )


def _check_options(encoder: Encoder, pool: Pool) -> None:
    found = type(encoder).options_for(pool)
    _require(
        set(found) == set(encoder.data_options),
        f"options_for returns {sorted(found)}, but data_options names {sorted(encoder.data_options)}",
    )
    groups = encoder.param_groups()
    _require(set(groups) <= set(encoder.tables), f"param_groups are {sorted(groups)}, tables {sorted(encoder.tables)}")
    own = {id(parameter) for parameter in encoder.parameters()}
    for name, parameters in groups.items():
        _require(all(id(p) in own for p in parameters), f"group {name!r} holds tensors that are not its parameters")


def _encoded(encoder: Encoder, prepared: Any, index: IntArray) -> Units:
    with torch.no_grad():
        units = encoder(moved(encoder.collate(prepared, index), encoder.device))
    _require(isinstance(units, Units), f"forward returned {type(units).__name__}; it must return Units")
    assert isinstance(units, Units)
    return units


def _check_units(encoder: Encoder, units: Units, count: int) -> None:
    x, mask, shape = units.x, units.mask, encoder.feature_shape
    _require(x.is_floating_point(), f"x has type {x.dtype}; it must be of floats")
    _require(
        len(units.offsets) == count + 1
        and units.offsets[0] == 0
        and units.offsets[-1] == len(x)
        and bool((np.diff(units.offsets) >= 0).all()),
        f"offsets {units.offsets} do not rise from 0 to the {len(x)} units, one more than the {count} items",
    )
    fits = x.ndim == len(shape) + 1 and all(axis in (-1, found) for axis, found in zip(shape, x.shape[1:], strict=True))
    _require(fits, f"units have shape {tuple(x.shape[1:])}, but feature_shape is {shape}")
    _require(bool(x.isfinite().all()), "x holds NaN or infinity")
    _require((mask is None) == (shape[0] != -1), "a mask goes with feature_shape = (-1, ...), and only with that")
    if mask is not None:
        _require(
            mask.dtype == torch.bool and mask.shape == x.shape[:2],
            f"the mask is {mask.dtype} {tuple(mask.shape)}; it must be bool {tuple(x.shape[:2])}",
        )
        _require(bool(mask.any(1).all()), "a unit has no real position")
        _require(bool((mask[:, 1:] <= mask[:, :-1]).all()), "real positions must come first")
        _require(bool((x[~mask] == 0).all()), "padded positions of x must hold 0")


def _check_independence(encoder: Encoder, prepared: Any, whole: Units) -> None:
    count = len(whole.offsets) - 1
    again = _encoded(encoder, prepared, np.arange(count))
    _require(_same(whole, again, 0.0), "the same batch gives other vectors the second time")
    backwards = np.arange(count)[::-1].copy()
    _require(
        _same(whole.of_items(backwards), _encoded(encoder, prepared, backwards)),
        "the vectors of an item depend on its position in the batch",
    )
    for item in range(count):
        alone = np.array([item])
        _require(
            _same(whole.of_items(alone), _encoded(encoder, prepared, alone)),
            f"item {item} has other vectors alone than in a batch",
        )


def _check_encode(encoder: Encoder, prepared: Any, whole: Units) -> None:
    count = len(whole.offsets) - 1
    lengths = encoder.lengths(prepared)
    _require(lengths is None or np.shape(lengths) == (count,), "lengths must be None or one number an item")
    encoder.train()
    asked = encoder.training  # a frozen encoder may stay in eval mode
    units = encoder.encode_all(prepared)
    _require(encoder.training == asked, "encode_all must leave the mode (train, eval) as it was")
    encoder.eval()
    _require(not units.x.requires_grad, "encode_all must not record gradients")
    _check_units(encoder, units, count)
    _require(_same(whole, units), "encode_all gives other vectors than forward")
    some = np.array([count - 1, 0])
    _require(_same(whole.of_items(some), encoder.encode(prepared, some)), "encode gives other vectors than forward")


def _check_state(encoder: Encoder, prepared: Any, whole: Units) -> None:
    """Check that loaded weights give the same vectors in another encoder of the same options, or else in a copy."""
    state = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    other = deepcopy(encoder) if encoder.made_from is None else type(encoder)(**encoder.made_from[1])
    with torch.no_grad():
        for tensor in other.state_dict().values():  # in place: these are the weights themselves
            tensor.zero_()
    other.to(encoder.device).eval().load_state_dict(state)
    again = _encoded(other, prepared, np.arange(len(whole.offsets) - 1))
    _require(_same(whole, again, 0.0), "weights that were saved and loaded give other vectors: state_dict lacks some")


def _check_stages(encoder: Encoder, prepared: Any, whole: Units) -> None:
    try:
        stages = encoder.stages()
    except ConfigError:
        return
    with torch.no_grad():
        x = encoder.centred(moved(encoder.collate(prepared, np.arange(len(whole.offsets) - 1)), encoder.device))
        for stage in stages:
            x = stage(x)
    _require(_close(x, whole.x, TOLERANCE), "stages, one after another, give other vectors than forward")


def _check_gradients(encoder: Encoder, prepared: Any) -> None:
    learned = [parameter for parameter in encoder.parameters() if parameter.requires_grad]
    if not learned:
        return
    before = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    encoder.train()
    x = encoder(moved(encoder.collate(prepared, np.arange(len(prepared))), encoder.device)).x
    _require(x.requires_grad, "no gradient reaches the weights in training, though some of them are trainable")
    loss = (x * torch.linspace(-1, 1, x.numel()).view_as(x).to(x)).sum()
    gradients = torch.autograd.grad(loss, learned, allow_unused=True)
    reached = [g for g in gradients if g is not None and bool((g.to_dense() if g.is_sparse else g).any())]
    _require(len(reached) > 0, "the gradient of every weight is 0 in training")
    encoder.eval()
    encoder.load_state_dict(before)  # running statistics have changed


def _same(one: Units, other: Units, tolerance: float = TOLERANCE) -> bool:
    if not np.array_equal(one.offsets, other.offsets):
        return False
    return all(_close(a, b, tolerance) for a, b in zip(_real(one), _real(other), strict=True))


def _real(units: Units) -> list[Tensor]:
    """Return each unit without its padding."""
    return [x if units.mask is None else x[units.mask[row]] for row, x in enumerate(units.x)]


def _close(one: Tensor, other: Tensor, tolerance: float) -> bool:
    return one.shape == other.shape and torch.allclose(one, other, rtol=tolerance, atol=tolerance)
