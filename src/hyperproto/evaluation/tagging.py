"""Tag the query words of episodes: what a token-level method predicts, ready to be counted as spans."""

from collections.abc import Sequence

import numpy as np

from hyperproto.data import OUTSIDE, IntArray, Progress
from hyperproto.encoders import FeatureTransform
from hyperproto.encoders.base import offsets_of
from hyperproto.episodes import Episode
from hyperproto.errors import EpisodeError
from hyperproto.evaluation.scoring import EncodedPool, predict_episodes
from hyperproto.evaluation.spans import Tags
from hyperproto.methods import PAD, Method


def tag_episodes(
    method: Method,
    transform: FeatureTransform,
    encoded: EncodedPool,
    episodes: Sequence[Episode],
    progress: Progress | None = None,
) -> Tags:
    """Score the episodes and return the labels of all query words as classes of the pool, O as OUTSIDE."""
    pool = encoded.pool
    if pool.offsets is None:
        raise EpisodeError(f"{pool}: items of one unit are no sentences to tag")
    gold: list[IntArray] = []
    predicted: list[IntArray] = []
    for _, labels, task in predict_episodes(method, transform, encoded, episodes, progress):
        if task.query_y is None:
            raise EpisodeError("these episodes hide the labels of their queries; there is nothing to count")
        real = task.query_y != PAD
        for local, found in ((task.query_y, gold), (labels, predicted)):
            classes = task.classes.gather(1, local.clamp(min=0))[real].cpu().numpy()
            found.append(np.where(classes == pool.n_classes, OUTSIDE, classes))
    lengths = np.diff(pool.offsets)
    sentences = [lengths[episode.query] for episode in episodes]
    words = np.array([each.sum() for each in sentences])
    return Tags(
        np.concatenate(gold), np.concatenate(predicted), offsets_of(np.concatenate(sentences)), offsets_of(words)
    )
