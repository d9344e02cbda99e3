"""All that is said of a method that tags words: exact spans in both conventions, and what goes wrong."""

from collections.abc import Sequence
from typing import Any

from hyperproto.evaluation.f1_intervals import f1_values
from hyperproto.evaluation.intervals import FloatArray, mean_interval
from hyperproto.evaluation.results import or_none
from hyperproto.evaluation.span_errors import span_errors
from hyperproto.evaluation.spans import CONVENTIONS, Convention, SpanCounts, Tags


def tagged_metrics(tags: Tags, class_names: Sequence[str]) -> tuple[dict[Convention, FloatArray], dict[str, Any]]:
    """Return the values of each convention, whose mean is F1, and every number as `--json` prints it.

    `errors` takes spans as sentences have them; its rates hold the share of words that are O, and that are called O.
    """
    counts = {convention: tags.counts(convention) for convention in CONVENTIONS}
    values = {convention: f1_values(found) for convention, found in counts.items()}
    metrics: dict[str, Any] = {
        convention: _numbers(counts[convention], values[convention]) for convention in CONVENTIONS
    }
    return values, {**metrics, "errors": span_errors(tags, class_names).to_json()}


def _numbers(counts: SpanCounts, values: FloatArray) -> dict[str, Any]:
    spans = {name: int(getattr(counts, name).sum()) for name in ("predicted", "gold", "correct")}
    return {**counts.to_json(), "ci95": or_none(mean_interval(values)[1]), "spans": spans}
