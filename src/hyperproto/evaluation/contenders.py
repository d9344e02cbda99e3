"""Contenders: encoders x methods x closed forms x transforms, all on the same episodes."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from torch import Tensor

from hyperproto.data import Pool
from hyperproto.decisions import Decision
from hyperproto.encoders import Encoder
from hyperproto.encoders.class_names import NameEncoder
from hyperproto.episodes import Episode, episodes_hash
from hyperproto.evaluation.knowledge import Known
from hyperproto.evaluation.predictor import Predictor, check_names
from hyperproto.evaluation.results import Result
from hyperproto.evaluation.scoring import EncodedPool, check_shape, encoded_for, measure_episodes
from hyperproto.evaluation.thresholds import Rejection
from hyperproto.methods import Method
from hyperproto.problems import problem_of
from hyperproto.problems.tagging import Convention
from hyperproto.progress import Show, noted


@dataclass(frozen=True, eq=False)
class Contender:
    """One row of a comparison: an encoder (shared by many), a method with its closed form, a transform."""

    label: str
    encoder: Encoder
    method: Method
    method_name: str
    decision: Decision
    transform: str
    settings: dict[str, Any]  # what else the result should say: run, encoder
    center: Tensor | None = None  # the mean of the training data, where there is any
    names: NameEncoder | None = None  # what reads the names of classes, where a run says or they are told
    known: Known = field(default_factory=Known)  # what is told besides the support

    @cached_property
    def predictor(self) -> Predictor:
        """What answers queries, on the encoder's device."""
        parts = self.method, self.encoder, self.transform, self.center, self.decision, self.names
        return Predictor.of(*parts, known=self.known)


def evaluate_contenders(
    contenders: Sequence[Contender],
    pool: Pool,
    episodes: Sequence[Episode],
    settings: dict[str, Any],
    encoded: dict[Encoder, EncodedPool] | None = None,
    progress: Show | None = None,
    rejection: Rejection | None = None,
    convention: Convention = "sentence",
) -> list[Result]:
    """Score every contender on the same episodes; each encoder encodes the pool once.

    With `rejection`, for episodes with queries of none of the classes, a contender may reject queries: by its novelty,
    at the threshold that is best for it on the episodes named there. Accuracies are then those with NOTA.

    Where words are tagged, results are F1 of exact spans; `convention` says which one comes first.
    """
    encoded = {} if encoded is None else encoded
    unlabelled: dict[str, Any] = {key: settings[key] for key in ("unlabelled", "strangers") if key in settings}
    settings = {key: value for key, value in settings.items() if key not in unlabelled}
    settings = {**settings, "data": pool.name, "split": pool.split, "episode_hash": episodes_hash(pool, episodes)}
    if rejection is not None:
        settings |= rejection.settings()
    settings |= problem_of(pool).settings(convention=convention)
    for contender in contenders:
        check_shape(contender.method, episodes)
        check_names(contender.method, contender.names)
    results = []
    scored = "episodes scored" + (f" by {len(contenders)} contenders" if len(contenders) > 1 else "")
    for number, contender in enumerate(contenders):
        start = time.perf_counter()
        encoding = noted(progress, f"items of {pool.split} encoded")
        vectors = encoded_for(contender.method, contender.encoder, pool, encoded, encoding)

        def report(done: int, total: int, number: int = number) -> None:
            if progress is not None:
                progress(number * total + done, len(contenders) * total, scored)

        own = {"method": contender.method_name, "fit": contender.method.fit, "transform": contender.transform}
        own |= contender.known.settings(unlabelled)
        threshold = None if rejection is None else rejection.threshold(contender.predictor)
        how = {"shots": settings.get("shot"), "threshold": threshold, "convention": convention}
        measured = measure_episodes(contender.predictor, vectors, episodes, report, **how)
        seconds = time.perf_counter() - start
        own_settings = {**contender.settings, **own, **settings}
        parts = measured.values, measured.metrics, seconds, measured.others, measured.metric
        results.append(Result(contender.label, own_settings, *parts))
    return results
