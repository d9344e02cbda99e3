"""RandomSample(D_n, K) of Algorithm 1: some instances of every training class, encoded."""

import numpy as np
import torch
from torch import Tensor

from hyperproto.data import OUTSIDE, IntArray, Pool
from hyperproto.encoders import Features, Units, moved
from hyperproto.encoders.base import rows_between
from hyperproto.episodes.random import INITIALISATION, SHUFFLE, shuffled
from hyperproto.errors import DataError

BATCH = 256  # items per forward


def random_instances(pool: Pool, features: Features, shot: int) -> tuple[Tensor, Tensor]:
    """Encode `shot` units of each class as training does (batch norm sees mixed batches): vectors and labels.

    Where items have many units, those of no class are a class too, O, numbered `pool.n_classes`: it is what else is in
    the sentences that were drawn, as in the support of an episode.
    """
    labels, units = _drawn(pool, shot)
    items = pool.items_of(units)
    new = np.zeros(len(items), bool)
    new[np.unique(items, return_index=True)[1]] = True  # the O of a sentence counts once, however often it was drawn
    prepared = features.prepared(pool)
    vectors, found = [], []
    for start in range(0, len(items), BATCH):
        here = slice(start, start + BATCH)
        encoded: Units = features(moved(features.collate(prepared, items[here]), features.device))
        rows, own = encoded.offsets[:-1], labels[here]
        if pool.outside_row is not None:
            outside = _outside(pool, items[here], new[here])
            rows = np.concatenate([rows + units[here] - pool.unit_offsets[items[here]], outside])
            own = np.concatenate([own, np.full(len(outside), pool.outside_row)])
        vectors.append(encoded.x[rows])
        found.append(own)
    return torch.cat(vectors), torch.from_numpy(np.concatenate(found)).to(vectors[0].device)


def _drawn(pool: Pool, shot: int) -> tuple[IntArray, IntArray]:
    """Draw classes and units, in random order."""
    short = [pool.class_names[n] for n, count in enumerate(pool.counts) if not count]
    if short:
        raise DataError(f"{pool}: class {short[0]!r} has no instance to start its region from; leave it out")
    drawn, seed = [], torch.initial_seed() % 2**63  # the run's own: another seed starts from other instances
    for n, members in enumerate(pool.members):
        order = shuffled(seed, INITIALISATION, n, len(members))[:shot]
        drawn += [(n, members[i]) for i in order]
    labels, units = np.array(drawn)[shuffled(seed, SHUFFLE, 0, len(drawn))].T
    return labels, units


def _outside(pool: Pool, items: IntArray, new: IntArray) -> IntArray:
    """Find the rows of the encoded items that are of no class, in items that are new."""
    starts, ends = pool.unit_offsets[items], pool.unit_offsets[items + 1]
    labels = pool.labels[rows_between(starts, ends)]
    return np.flatnonzero((labels == OUTSIDE) & np.repeat(new, ends - starts))
