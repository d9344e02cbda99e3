"""Hostile arrays, labels and weights: of any scale, type, shape and mixture."""

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.fuzz.mutations import extreme_number, extreme_string

SCALES = (-320, -300, -160, -30, -20, 6, 18, 19, 20, 38, 150, 155, 200, 300, 307)  # powers of ten
TYPES: tuple[Any, ...] = (np.int8, np.uint64, np.int64, np.float16, np.complex128, "U4", "S4", object)
CELLS: tuple[Any, ...] = (None, "a", 10**400, 2**70, [1], {}, np.nan, b"1", object())

Rows = NDArray[Any]  # (rows, columns), what is made hostile


def _scaled(random: Random, x: Rows) -> Any:
    scaled = x * 10.0 ** random.choice(SCALES)
    with np.errstate(all="ignore"):
        return scaled.astype(np.float32) if random.random() < 0.4 else scaled


def _one_number(random: Random, x: Rows) -> Any:
    x[random.randrange(len(x)), random.randrange(x.shape[1])] = random.choice((np.nan, np.inf, -np.inf, 1e308, 5e-324))
    return x


def _one_cell(random: Random, x: Rows) -> Any:
    mixed = x.astype(object)
    mixed[0, 0] = random.choice(CELLS)
    return mixed


def _frozen(random: Random, x: Rows) -> Any:
    x.setflags(write=False)
    return x


def _no_rows(random: Random, x: Rows) -> Any:
    empty = np.empty((0, x.shape[1])), np.empty((len(x), 0)), np.empty((0, 0))
    return random.choice((*empty, [], [[]], [[], []]))


def _other_shape(random: Random, x: Rows) -> Any:
    others: tuple[Any, ...] = np.float64(1.0), 3, None, "text", b"bytes", {}, {"a": 1}
    return random.choice((x[0], x[0, 0], x[None], x[..., None], *others))


HOSTILE: tuple[Callable[[Random, Rows], Any], ...] = (
    _scaled, _scaled, _scaled, _scaled, _scaled, _scaled, _one_number, _one_cell, _frozen, _no_rows, _other_shape,
    lambda random, x: x + 10.0 ** random.choice((3, 6, 9, 15, 30, 150)),
    lambda random, x: np.zeros(x.shape, random.choice((np.float64, np.float32, np.int64, bool, np.uint8))),
    lambda random, x: (x * 10).astype(random.choice(TYPES)),
    lambda random, x: x[:, : random.randrange(x.shape[1])],
    lambda random, x: [*x.tolist()[:-1], [0.0]],
    lambda random, x: np.asfortranarray(x),
    lambda random, x: np.repeat(x[:1], len(x), axis=0),
    lambda random, x: np.full(x.shape, random.choice((2**62, 2**53 + 1, -(2**63))), np.int64),
    lambda random, x: np.ma.masked_array(x, mask=x > 0),
    lambda random, x: [[10**400] * x.shape[1]] * len(x),
    lambda random, x: x.tolist(),
)  # fmt: skip


def hostile_array(random: Random, rows: int, columns: int) -> Any:
    """Draw an array or an array-like object."""
    x = np.random.default_rng(random.getrandbits(32)).normal(size=(rows, columns))
    with np.errstate(all="ignore"):
        return random.choice(HOSTILE)(random, x)


Numbers = list[int]  # (rows,) from 0 to 2, what labels are made from

LABELS: tuple[Callable[[Random, Numbers], Any], ...] = (
    *([lambda random, some: [f"class {n}" for n in some]] * 5),
    lambda random, some: some,
    lambda random, some: [random.choice(("a", 1, None, 2.5, True, (1, 2))) for _ in some],
    lambda random, some: [extreme_string(random) for _ in some],
    lambda random, some: [extreme_number(random) for _ in some],
    lambda random, some: np.array(some, float),
    lambda random, some: some[:-1],
    lambda random, some: random.choice(([], None, "a", 3, {"a": 1}, np.zeros((len(some), 2)))),
    lambda random, some: random.choice((np.array(some)[:, None], np.array(some, dtype=object))),
    lambda random, some: np.array([f"c{n}" for n in some]).astype(random.choice(("U9", "S9", object))),
    lambda random, some: [n + 2**62 for n in some],
)  # fmt: skip


def hostile_labels(random: Random, rows: int) -> Any:
    """Labels of any type, number and mixture."""
    return random.choice(LABELS)(random, [random.randrange(3) for _ in range(rows)])


def hostile_weights(random: Random, rows: int) -> Any:
    """Weights: often none, sometimes zero, negative, huge, tiny, not a number, or of another shape."""
    numbers = random.choice((1.0, 0.0, -1.0, 1e308, 1e-320, np.nan, 0.5))
    return random.choice((None, None, None, [numbers] * rows, [numbers] * rows, [1.0], 2.0, "a", [[1.0]] * rows))
