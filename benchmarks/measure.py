"""Two implementations timed alternately, so that other load of the machine affects both."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median, quantiles
from time import perf_counter
from typing import Any, Literal

Comparison = Literal[">=", "<="]


@dataclass(frozen=True)
class Measurement:
    """One ratio against its target: a speed-up (">=": baseline / ours) or a cost ("<=": ours / baseline)."""

    name: str
    baseline: str  # what ours is compared with, in words
    ours_seconds: float
    baseline_seconds: float | None  # None where the baseline is no time
    ratio: float
    spread: tuple[float, float]  # quartiles of the ratios of the repeats
    target: float
    comparison: Comparison
    detail: dict[str, Any]

    @property
    def met(self) -> bool:
        """True if the ratio meets its target."""
        return self.ratio >= self.target if self.comparison == ">=" else self.ratio <= self.target

    def to_json(self) -> dict[str, Any]:
        """Return every field, and whether the target is met."""
        return {**asdict(self), "met": self.met}


@dataclass(frozen=True)
class Times:
    """Seconds of each repeat: `ours[i]` and `baseline[i]` were measured one right after the other."""

    ours: Sequence[float]
    baseline: Sequence[float]

    def measurement(
        self, name: str, baseline: str, comparison: Comparison, target: float, **detail: Any
    ) -> Measurement:
        """Return the median of the ratios of pairs, since the two times of a pair share the load of the machine."""
        upper, lower = (self.baseline, self.ours) if comparison == ">=" else (self.ours, self.baseline)
        ratios = [a / b for a, b in zip(upper, lower, strict=True)]
        low, _, high = quantiles(ratios, method="inclusive") if len(ratios) > 1 else ratios * 3
        return Measurement(
            name=name,
            baseline=baseline,
            ours_seconds=median(self.ours),
            baseline_seconds=median(self.baseline),
            ratio=median(ratios),
            spread=(low, high),
            target=target,
            comparison=comparison,
            detail={"repeats": len(ratios), "ratio_of_fastest": min(upper) / min(lower), **detail},
        )


def seconds(run: Callable[[], object]) -> float:
    """Time one call."""
    start = perf_counter()
    run()
    return perf_counter() - start


def in_turns(
    ours: Callable[[], object], baseline: Callable[[], object], repeats: int, parts: tuple[float, float] = (1, 1)
) -> Times:
    """Time both `repeats` times, alternately and in alternating order, after one untimed call of each.

    `parts` are the shares of the work that one call of each does; times are divided by them.
    """
    ours(), baseline()
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(repeats):
        for which in (0, 1) if turn % 2 else (1, 0):
            times[which].append(seconds((ours, baseline)[which]) / parts[which])
    return Times(*times)
