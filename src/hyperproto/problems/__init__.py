"""Problems: classification and tagging. `pool.problem` names one; it determines sampler, metric and decisions."""

from typing import Unpack

from hyperproto.data import Pool
from hyperproto.episodes import Sampler
from hyperproto.options import TrainingSamplerOptions
from hyperproto.problems.base import (
    Answers,
    FloatArray,
    Measurement,
    Problem,
    mean_interval,
    or_none,
    paired_difference,
)
from hyperproto.problems.classification import Verdicts, auroc
from hyperproto.problems.tagging import (
    SpanCounts,
    SpanErrors,
    Tags,
    f1_difference,
    f1_interval,
    f1_values,
    span_counts,
    span_errors,
    tagged_metrics,
)
from hyperproto.registry import Registry

__all__ = [
    "PROBLEMS",
    "Answers",
    "FloatArray",
    "Measurement",
    "Problem",
    "SpanCounts",
    "SpanErrors",
    "Tags",
    "Verdicts",
    "auroc",
    "f1_difference",
    "f1_interval",
    "f1_values",
    "make_sampler",
    "mean_interval",
    "or_none",
    "paired_difference",
    "problem_of",
    "span_counts",
    "span_errors",
    "tagged_metrics",
]

PROBLEMS = Registry(
    "problem",
    "hyperproto.problems",
    {
        "classification": "hyperproto.problems.classification:Classification",
        "tagging": "hyperproto.problems.tagging:Tagging",
    },
)


def problem_of(pool: Pool) -> Problem:
    """Return the problem of a pool."""
    problem: Problem = PROBLEMS.get(pool.problem)()
    return problem


def make_sampler(pool: Pool, **settings: Unpack[TrainingSamplerOptions]) -> Sampler:
    """Build the sampler of a pool's problem: K~2K for tagged sentences, N-way K-shot for everything else."""
    return problem_of(pool).sampler(pool, **settings)
