"""Parts put together as an evaluation does, for tests that look at one of them."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from hyperproto.data import IntArray
from hyperproto.decisions import Decision, make_decision
from hyperproto.encoders import Encoder, Features, FeatureTransform
from hyperproto.encoders.identity import Identity
from hyperproto.episodes import Episode
from hyperproto.evaluation import EncodedPool, Predictor, predict_episodes, tag_alike
from hyperproto.methods import Method, Task, make_method
from hyperproto.problems import Tags
from hyperproto.problems.classification import count_correct
from hyperproto.training.sources import Source


def features_of(encoder: Encoder, transform: str = "none") -> Features:
    """An encoder as a method sees it."""
    return Features(encoder, FeatureTransform(transform, encoder.feature_shape))


def predictor(
    method: Method, encoded: EncodedPool, transform: str = "none", center: Tensor | None = None, **decision: Any
) -> Predictor:
    return Predictor.of(method, encoded.encoder, transform, center, make_decision(method, decision))


def accuracies(
    method: Method,
    encoded: EncodedPool,
    episodes: Sequence[Episode],
    transform: str = "none",
    center: Tensor | None = None,
) -> tuple[IntArray, IntArray]:
    """Correct and scored queries for each local class of each episode, (E, N)."""
    return count_correct(predict_episodes(predictor(method, encoded, transform, center), encoded, episodes))


def tags_by(
    method: Method, encoded: EncodedPool, episodes: Sequence[Episode], transform: str = "none", **decision: Any
) -> Tags:
    [tags] = tag_alike([predictor(method, encoded, transform, **decision)], encoded, episodes)
    return tags


def decided(method: Method, task: Task, decision: Decision | None = None) -> Tensor:
    """Labels of the queries, (B, Q)."""
    decision = make_decision(method, {}) if decision is None else decision
    return decision.decide(method.logits(method(task)), task)


def doubt_of(method: Method, task: Task) -> Tensor:
    """The score for "none of these" of each query, (B, Q)."""
    scores = method(task)
    own = method.doubt(task, scores)
    return make_decision(method, {}).doubt(method.logits(scores), task) if own is None else own


def source(label: str = "vectors", method: str | None = None, **options: Any) -> Source:
    """Vectors of six coordinates, scaled to length 1; with `method` and its options, as if a run had trained it."""
    own = None if method is None else make_method(method, feature_shape=(6,), n_classes=3, **options)
    return Source(label, {"run": None, "encoder": "identity"}, Identity(shape=[6]), "unit", own, method)
