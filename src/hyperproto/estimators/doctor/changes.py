"""Suggested changes of the classes: pairs to merge, and classes to split.

*Merge.* The lower end of the overlap's interval is at least MERGED, and leave-one-out takes at least CONFUSED of the
examples of each of the two classes for the other.

*Split.* Two-means divides the examples of a class into clusters, which starts at the sign of the first principal axis.
The log of the scatter within the clusters over the scatter of the class is compared with that of Gaussian samples of
the same size, whose covariance is the pooled one of all classes (the idea of the gap statistic, Tibshirani et al.
2001). Mean and standard deviation of the null distribution are simulated for some sizes and interpolated. Real classes
are not Gaussian: if there are PEERS of them, z-scores are taken relative to their median and spread. A class is
reported at a p-value below LEVEL, corrected by Holm's method for the number of classes.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from hyperproto.estimators.doctor.report import ClassReport, MergeSuggestion, SplitSuggestion
from hyperproto.estimators.snapshot import Snapshot
from hyperproto.regions.arrays import Doubles, Indices
from hyperproto.regions.left_out import left_out_measures

MERGED, CONFUSED = 0.5, 0.25  # least lower end of the overlap; least share of examples of each class
LEAST_HALF = 3  # examples of each half of a class that is split
LEVEL = 0.05
PEERS = 8  # classes from which their z-scores show what real classes are like
SIMULATIONS = 100  # for each size
STEP = 1.5  # ratio of the sizes that are simulated
MOST_CLASSES, MOST_MEMBERS = 500, 300  # compared: the classes of widest scatter, and evenly spaced examples of each
MOST_AXES = 400  # rows that determine the spectrum of the null distribution
POWER_STEPS, ROUNDS = 20, 10  # of the first principal axis, of two-means
TYPICAL = 3  # examples of each half that are named


def merges(model: Snapshot, reports: list[ClassReport]) -> tuple[MergeSuggestion, ...]:
    """Return the pairs of classes that leave-one-out cannot separate, the largest overlap first."""
    place = {report.label: n for n, report in enumerate(reports)}
    found: dict[frozenset[Any], MergeSuggestion] = {}
    wide = [report for report in reports if (report.overlap_low or 0.0) >= MERGED]
    for report in sorted(wide, key=lambda report: -(report.overlap_low or 0.0)):
        pair = report.label, report.rival
        shares = [_taken_for(model, place[a], place[b]) for a, b in (pair, pair[::-1])]
        if min(shares) >= CONFUSED and frozenset(pair) not in found:
            overlap, low = report.overlap or 0.0, report.overlap_low or 0.0
            found[frozenset(pair)] = MergeSuggestion(pair, overlap, low, (shares[0], shares[1]))
    return tuple(sorted(found.values(), key=lambda each: -each.overlap))


def _taken_for(model: Snapshot, a: int, b: int) -> float:
    """Return the share of the examples of a to which leave-one-out finds b as likely as a."""
    out = model.left_out
    index = np.flatnonzero((model.stats.labels == a) & out.has_siblings)
    if not len(index):
        return 0.0
    measures = left_out_measures(out, model.region, model.form, index, fair=True)
    return float(np.average(measures[:, b] <= measures[:, a], weights=model.stats.weights[index]))


def splits(model: Snapshot, labels: list[Any], numbers: NDArray[np.int64]) -> tuple[SplitSuggestion, ...]:
    """Return the classes whose examples form two clusters, the least p-value first."""
    stats = model.stats
    order = np.argsort(stats.labels, kind="stable")
    order = order[stats.weights[order] > 0]
    members = np.split(order, np.flatnonzero(np.diff(stats.labels[order])) + 1)
    members = [_evenly(own, MOST_MEMBERS) for own in members if len(own) >= 2 * LEAST_HALF]
    if not members or not stats.scattered:
        return ()
    scatter = np.array([stats.squares[stats.labels[own[0]]] / len(own) for own in members])
    members = [members[n] for n in np.sort(np.argsort(-scatter, kind="stable")[:MOST_CLASSES])]
    ratios, halves = np.empty(len(members)), []
    for n, own in enumerate(members):
        rows = stats.rows[own].astype(np.float64)
        rows -= rows.mean(axis=0)
        [ratios[n]], [half] = two_means((rows @ rows.T)[None])
        halves.append(half)
    z = z_scores(ratios, np.array([len(own) for own in members]), _spectrum(stats.residual))
    found, least = [], 0.0
    for place, n in enumerate(np.argsort(z, kind="stable").tolist()):
        least = max(least, min(1.0, (len(z) - place) * float(ndtr(z[n]))))
        sizes = int((~halves[n]).sum()), int(halves[n].sum())
        if least < LEVEL and min(sizes) >= LEAST_HALF:
            typical = tuple(_typical(stats.rows, members[n][side], numbers) for side in (~halves[n], halves[n]))
            label = labels[stats.labels[members[n][0]]]
            found.append(SplitSuggestion(label, sizes, least, (typical[0], typical[1])))
    return tuple(found)


def z_scores(ratios: Doubles, sizes: Indices, variances: Doubles) -> Doubles:
    """Return z-scores of log ratios of classes of these sizes (N,): negative if two clusters fit too well."""
    steps = np.ceil(np.log(sizes.max() / sizes.min()) / np.log(STEP)) + 1
    grid = np.unique(np.geomspace(sizes.min(), sizes.max(), int(steps)).round().astype(int))
    random = np.random.default_rng(0)
    null = np.array([null_of(size, variances, random) for size in grid.tolist()])
    mean, spread = (np.interp(np.log(sizes), np.log(grid), column) for column in null.T)
    z: Doubles = (ratios - mean) / np.maximum(spread, 1e-9)
    if len(z) >= PEERS:
        middle = float(np.median(z))
        z = (z - min(middle, 0.0)) / max(1.0, 1.4826 * float(np.median(np.abs(z - middle))))
    return z


def null_of(size: int, variances: Doubles, random: np.random.Generator) -> tuple[float, float]:
    """Return mean and standard deviation of the log ratio of Gaussian samples with these principal variances (R,)."""
    found = []
    for _ in range(SIMULATIONS):
        rows = random.normal(size=(size, len(variances))) * np.sqrt(variances)
        rows -= rows.mean(axis=0)
        found.append(rows @ rows.T)
    ratios, _ = two_means(np.array(found))
    return float(ratios.mean()), float(ratios.std())


def two_means(gram: Doubles) -> tuple[Doubles, NDArray[np.bool_]]:
    """Divide samples, given their centred Gram matrices (B, n, n), into two clusters each.

    Return the log of the scatter within the clusters over the total (B,), and the membership in the second (B, n).
    """
    lengths = np.diagonal(gram, axis1=1, axis2=2)
    at = np.arange(len(gram))
    axis = gram[at, lengths.argmax(axis=1)]  # products with the farthest example
    for _ in range(POWER_STEPS):
        axis = np.einsum("bij,bj->bi", gram, axis / np.maximum(np.linalg.norm(axis, axis=1), 1e-300)[:, None])
    second = axis > 0
    for _ in range(ROUNDS):
        away = [_distances(gram, lengths, half) for half in (~second, second)]
        moved = away[1] < away[0]
        if (moved == second).all():
            break
        second = moved
    within = np.where(second, _distances(gram, lengths, second), _distances(gram, lengths, ~second)).sum(axis=1)
    total = np.maximum(lengths.sum(axis=1), 1e-300)
    return np.log(np.maximum(within / total, 1e-12)), second


def _distances(gram: Doubles, lengths: Doubles, half: NDArray[np.bool_]) -> Doubles:
    """Return squared distances of all examples to the mean of one half (B, n); infinite if the half is empty."""
    count = half.sum(axis=1)[:, None]
    share = half / np.maximum(count, 1)
    products = np.einsum("bij,bj->bi", gram, share)
    square = np.vecdot(products, share)[:, None]
    distances: Doubles = np.where(count > 0, np.maximum(lengths - 2 * products + square, 0.0), np.inf)
    return distances


def _spectrum(residual: Any) -> Doubles:
    """Return the principal variances of residuals (S, D), up to a factor; of many, of evenly spaced ones."""
    rows = residual[_evenly(np.arange(len(residual)), MOST_AXES)].astype(np.float64)
    product = rows.T @ rows if rows.shape[1] < len(rows) else rows @ rows.T
    variances = np.linalg.eigvalsh(product / max(float((rows**2).sum()), 1e-300))
    kept: Doubles = variances[variances > 1e-6 * variances.max()]
    return kept


def _evenly(index: Indices, most: int) -> Indices:
    return index if len(index) <= most else index[np.linspace(0, len(index) - 1, most).astype(np.intp)]


def _typical(rows: Any, own: Indices, numbers: NDArray[np.int64]) -> tuple[int, ...]:
    """Return the numbers of the examples nearest to the mean of `own`."""
    away = ((rows[own] - rows[own].mean(axis=0)) ** 2).sum(axis=1)
    return tuple(numbers[own[np.argsort(away, kind="stable")[:TYPICAL]]].tolist())
