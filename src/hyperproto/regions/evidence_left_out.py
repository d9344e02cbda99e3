"""Leave-one-out of a fit with unlabelled rows: expectation-maximisation without each fold of the examples. NumPy only.

An example has moved clusters, its own and those of its rivals, so they must be found again without it. In each of
FOLDS fits, expectation-maximisation starts at the centres without the fold and reads a sample of the rows: 24 rows a
class change the temperature by 1 %. What all examples estimate together stays as it is: k, g, v, the radii and the gain
of the whitening. The whitening without an example follows by Sherman and Morrison's formula, as without unlabelled
rows.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hyperproto.regions.arrays import Doubles, Floats, Indices, row_squares
from hyperproto.regions.bayes import whitened_without
from hyperproto.regions.evidence import UnlabelledRows, clusters_of, inlier_rows, joined_means
from hyperproto.regions.left_out import FOLDS, LeftOut, folds_of, projection
from hyperproto.regions.names import posterior_centers
from hyperproto.regions.statistics import moments_of

ROWS_OF_CLASS = 24  # rows that a fold reads for each class


@dataclass(frozen=True, eq=False)
class FoldCenters:
    """Whitened centres of fits without one fold of the examples each."""

    fold: Indices  # (S,) of each example
    center: Doubles  # (FOLDS, N, D)

    @classmethod
    def fit(cls, sphere: Any, out: LeftOut, rows: Floats) -> "FoldCenters":
        """Fit again without each fold; `sphere` was fitted to `out.stats` and unlabelled `rows` (U, D)."""
        stats, evidence, way = out.stats, sphere.evidence, len(out.stats.count)
        fold, centers = folds_of(stats), []
        rows, inlier = inlier_rows(rows, stats, sphere.whiten)
        rows = sampled_rows(rows if inlier is None else rows[inlier > 0], ROWS_OF_CLASS * way)
        read = UnlabelledRows.of(rows, None, sphere.whiten, stats.mean.dtype)
        read = replace(read, spread=evidence.clusters.spread, dim=evidence.clusters.dim)
        names = np.zeros_like(stats.mean) if evidence.names is None else sphere.whiten(evidence.names)
        given = sphere.ratio, evidence.name_weight  # k, g
        for each in range(FOLDS):
            kept = fold != each
            others = moments_of(stats.rows[kept], stats.labels[kept], stats.weights[kept], way)
            mean = sphere.whiten(others.mean)
            start, _ = posterior_centers(mean, others.count, names, *given)
            fit = replace(sphere, center=start)
            clusters = clusters_of(read, mean, others.count, names, given[1], fit, evidence.common_ratio)
            both = joined_means(mean, others.count, sphere.whiten(clusters.mean), clusters.weight)
            weight = others.count + clusters.weight
            centers.append(posterior_centers(both, weight, names, *given)[0])
        return cls(fold, np.stack(centers))

    def distances(self, sphere: Any, out: LeftOut, index: Indices) -> Doubles:
        """Return ||A x - centre||^2 of the examples `index` to every class (B, N), all without the example."""
        found = np.empty((len(index), self.center.shape[1]))
        for each in np.unique(self.fold[index]):
            here = np.flatnonzero(self.fold[index] == each)
            part, center = index[here], self.center[each]
            about = center.mean(axis=0)
            x = sphere.whiten(out.stats.rows[part].astype(np.float64)) - about
            r, places = sphere.whiten(out.stats.residual[part]), center - about
            distance2 = row_squares(x)[:, None] - 2 * x @ places.T + row_squares(places)
            along = np.vecdot(r, x)[:, None] - r @ places.T
            found[here] = whitened_without(out, part, distance2, along, row_squares(r)[:, None], sphere.gain)
        return found


def sampled_rows(rows: Floats, number: int) -> Floats:
    """Return about `number` of the rows (U, D), evenly spaced in an order by content."""
    step = max(1, len(rows) // max(1, number))
    return rows if step == 1 else rows[np.sort(np.argsort(projection(rows), kind="stable")[::step])]
