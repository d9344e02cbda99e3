"""Tagging: every word of a sentence has a label; episodes are K~2K, and the metric is the F1 of exact spans."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from hyperproto.data import OUTSIDE, IntArray, Pool
from hyperproto.encoders.base import offsets_of
from hyperproto.episodes import Episode, GreedySampler
from hyperproto.episodes.greedy import Rule
from hyperproto.errors import EpisodeError
from hyperproto.methods import PAD, Task
from hyperproto.problems.base import Answers, Measurement, Problem
from hyperproto.problems.intervals import FloatArray
from hyperproto.problems.spans import Convention, Tags, tagged_metrics


class Tagging(Problem):
    """K~2K episodes of sentences and the micro F1 of their entities."""

    name = "tagging"
    metric = "f1"
    few_items = True

    def sampler(
        self,
        pool: Pool,
        *,
        way: int,
        shot: int | Sequence[int],
        query: int | None = None,
        seed: int = 0,
        nota_share: float = 0.0,
        na_rate: int = 0,
        rule: Rule | None = None,
        least_spans: int | None = None,
        noise_rate: float = 0.0,
        unlabelled: int = 0,
        strangers: int = 0,
        most_shots: int | None = None,
    ) -> GreedySampler:
        """Draw as many entities a type in the queries as in the support, as in Few-NERD, unless `query` is given."""
        if nota_share or na_rate:
            raise EpisodeError(f"{pool}: what is of none of the types is O here, in every episode; leave NOTA out")
        if noise_rate:
            raise EpisodeError(
                f"{pool}: noise_rate {noise_rate} replaces items of one class each, and sentences have many words; "
                "leave it out"
            )
        if unlabelled or strangers:
            raise EpisodeError(
                f"{pool}: sentences with tagged words have no items without a label here; leave them out"
            )
        if not isinstance(shot, int) or most_shots is not None:
            raise EpisodeError(
                f"{pool}: K~2K episodes have one K for all types, not shots {_said(shot, most_shots)}; give one number"
            )
        return GreedySampler(
            pool,
            way=way,
            shot=shot,
            query=max(1, shot) if query is None else query,
            seed=seed,
            rule=rule or "toolkit",
            least_spans=least_spans or 0,
        )

    def measure(
        self,
        pool: Pool,
        episodes: Sequence[Episode],
        answers: Iterable[Answers],
        *,
        convention: Convention = "sentence",
        **how: Any,
    ) -> Measurement:
        """F1 in the convention asked for, and in the other one; precision, recall and kinds of errors."""
        [tags] = tags_of(pool, episodes, ([block] for block in answers))
        values, metrics = tagged_metrics(tags, pool.class_names)
        others: dict[str, FloatArray] = {name: each for name, each in values.items() if name != convention}
        log = {name: metrics[convention][name] for name in ("precision", "recall")}
        return Measurement(self.metric, metrics[convention]["f1"], values[convention], metrics, others, log)

    def settings(self, *, convention: Convention = "sentence", **how: Any) -> dict[str, Any]:
        """Results say how spans were counted."""
        return {"convention": convention}


def tags_of(pool: Pool, episodes: Sequence[Episode], answers: Iterable[Sequence[Answers]]) -> list[Tags]:
    """Collect the labels of all query words as classes of the pool, O as OUTSIDE.

    Each block holds the answers of one or several decisions on the same task; a `Tags` is returned for each decision.
    """
    if pool.outside_row is None:
        raise EpisodeError(f"{pool}: items of one unit are no sentences to tag")
    gold: list[IntArray] = []
    predicted: list[list[IntArray]] = []
    for block in answers:
        gold.append(_classes(block[0].truth, block[0].task, pool))
        predicted.append([_classes(each.labels, each.task, pool) for each in block])
    lengths = np.diff(pool.unit_offsets)
    sentences = [lengths[episode.query] for episode in episodes]
    borders = offsets_of(np.concatenate(sentences)), offsets_of(np.array([each.sum() for each in sentences]))
    truth = np.concatenate(gold)
    return [Tags(truth, np.concatenate(found), *borders) for found in zip(*predicted, strict=True)]


def _classes(local: Tensor, task: Task, pool: Pool) -> IntArray:
    """The labels of all real queries, local ones, as classes of the pool."""
    real = task.query_y != PAD
    classes: IntArray = task.classes.gather(1, local.clamp(min=0))[real].cpu().numpy()
    return np.where(classes == pool.outside_row, OUTSIDE, classes)


def _said(shot: int | Sequence[int], most_shots: int | None) -> str:
    return str(list(shot)) if not isinstance(shot, int) else f"from {shot} to {most_shots}"
