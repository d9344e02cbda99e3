"""The nearest other class of each class: exact among thousands, by cells among more."""

import math

import numpy as np

from hyperproto.regions.arrays import Doubles, Indices, row_squares

MOST_PAIRS = 100_000_000  # of classes that are compared; all pairs of 10,000 classes
PROBED = 8  # cells whose classes are compared with those of a cell, its own among them
ROUNDS = 3  # in which cells are moved to the middle of their classes
BLOCK = 1 << 20  # distances in memory at once


def nearest_others(means: Doubles, noise: Doubles) -> Indices:
    """The class m beside n of the least ||z_n - z_m||^2 - noise_m, for each n (N,).

    While there are at most MOST_PAIRS pairs, all are compared. Of more classes, those of a cell are compared with the
    classes of the nearest cells, at most MOST_PAIRS pairs in all: what is found is near, but not always the nearest.
    """
    way = len(means)
    if way * way <= MOST_PAIRS:
        return _nearest(means, noise, np.arange(way), np.arange(way))
    cell = cells_of(means)
    order = np.argsort(cell, kind="stable")
    members = np.split(order, np.flatnonzero(np.diff(cell[order])) + 1)
    middles = np.stack([means[own].mean(axis=0) for own in members])
    nearest = np.empty(way, dtype=np.intp)
    for own, middle in zip(members, middles, strict=True):
        probed = np.argsort(row_squares(middles - middle), kind="stable")[:PROBED]
        near = np.concatenate([members[each] for each in probed])
        if len(near) > MOST_PAIRS // way:
            away = row_squares(means[near] - middle)
            near = near[np.argpartition(away, MOST_PAIRS // way)[: MOST_PAIRS // way]]
        nearest[own] = _nearest(means, noise, own, near)
    return nearest


def cells_of(means: Doubles) -> Indices:
    """A cell for each class (N,): about sqrt(N) groups of near classes, by a few rounds of Lloyd's algorithm."""
    way = len(means)
    middles = means[np.linspace(0, way - 1, math.isqrt(way)).astype(np.intp)]
    for _ in range(ROUNDS):
        cell = np.concatenate([_distances(means[part], middles).argmin(axis=1) for part in _parts(way, len(middles))])
        order = np.argsort(cell, kind="stable")
        starts = np.flatnonzero(np.diff(cell[order], prepend=-1))
        sizes = np.diff(starts, append=way)
        middles = np.add.reduceat(means[order], starts, axis=0) / sizes[:, None]  # a cell without classes is dropped
    return cell


def _nearest(means: Doubles, noise: Doubles, rows: Indices, columns: Indices) -> Indices:
    """The nearest of `columns` to each of `rows`, but for itself."""
    found = np.empty(len(rows), dtype=np.intp)
    for part in _parts(len(rows), len(columns)):
        apart = _distances(means[rows[part]], means[columns]) - noise[columns]
        apart[rows[part][:, None] == columns] = np.inf
        found[part] = columns[apart.argmin(axis=1)]
    return found


def _distances(x: Doubles, y: Doubles) -> Doubles:
    """||x - y||^2 (n, m), but for ||x||^2, which is the same for all of a row."""
    distances: Doubles = row_squares(y) - 2 * (x @ y.T)
    return distances


def _parts(n_rows: int, n_columns: int) -> list[slice]:
    size = max(1, BLOCK // n_columns)
    return [slice(start, start + size) for start in range(0, n_rows, size)]
