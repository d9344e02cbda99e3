"""Tag the query words of episodes: what a token-level method predicts, ready to be counted as spans."""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from hyperproto.data import OUTSIDE, IntArray, Pool, Progress
from hyperproto.encoders import FeatureTransform
from hyperproto.encoders.base import offsets_of
from hyperproto.episodes import Episode
from hyperproto.errors import EpisodeError
from hyperproto.evaluation.scoring import EncodedPool, score_episodes
from hyperproto.evaluation.spans import Tags
from hyperproto.methods import PAD, Method, Task


def tag_episodes(
    method: Method,
    transform: FeatureTransform,
    encoded: EncodedPool,
    episodes: Sequence[Episode],
    progress: Progress | None = None,
) -> Tags:
    """Score the episodes and return the labels of all query words as classes of the pool, O as OUTSIDE."""
    return tag_alike([method], transform, encoded, episodes, progress)[0]


def tag_alike(
    methods: Sequence[Method],
    transform: FeatureTransform,
    encoded: EncodedPool,
    episodes: Sequence[Episode],
    progress: Progress | None = None,
) -> list[Tags]:
    """The same for methods that score alike and decide differently (temperature, path, O): the first one scores."""
    pool = encoded.pool
    if pool.offsets is None:
        raise EpisodeError(f"{pool}: items of one unit are no sentences to tag")
    gold: list[IntArray] = []
    predicted: list[list[IntArray]] = [[] for _ in methods]
    for _, scores, task in score_episodes(methods[0], transform, encoded, episodes, progress):
        if task.query_y is None:
            raise EpisodeError("these episodes hide the labels of their queries; there is nothing to count")
        gold.append(_classes(task.query_y, task, pool))
        for method, found in zip(methods, predicted, strict=True):
            found.append(_classes(method.decode(scores, task), task, pool))
    lengths = np.diff(pool.offsets)
    sentences = [lengths[episode.query] for episode in episodes]
    borders = offsets_of(np.concatenate(sentences)), offsets_of(np.array([each.sum() for each in sentences]))
    truth = np.concatenate(gold)
    return [Tags(truth, np.concatenate(found), *borders) for found in predicted]


def _classes(local: Tensor, task: Task, pool: Pool) -> IntArray:
    """The labels of all real queries, local ones, as classes of the pool."""
    real = task.query_y != PAD
    classes: IntArray = task.classes.gather(1, local.clamp(min=0))[real].cpu().numpy()
    return np.where(classes == pool.n_classes, OUTSIDE, classes)
