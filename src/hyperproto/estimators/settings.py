"""The settings of a classifier, checked, and the region they ask for."""

from dataclasses import dataclass
from math import isfinite
from numbers import Real
from operator import attrgetter
from typing import Any

from hyperproto.errors import ConfigError, unknown_name
from hyperproto.regions import PRIOR_RATIO, REGIONS, Region, Statistics, check_mode
from hyperproto.regions.sphere import check_radius_distance
from hyperproto.transforms import TRANSFORMS


@dataclass(frozen=True)
class Settings:
    """What a user may choose, see `HypersphereClassifier`; here it is known to make sense."""

    region: str = "sphere"
    fit_mode: str = "bayes"
    feature_transform: str | None = "unit"
    squared: bool = True
    radius_distance: str = "squared"
    prior_ratio: float = PRIOR_RATIO
    coverage: float | None = None
    class_thresholds: bool = False
    guarantee: bool = False
    temperature: float | str = "auto"
    store_support: bool = True

    @classmethod
    def of(cls, estimator: Any) -> "Settings":
        """Read and check the settings of an estimator."""
        return cls(*cls.read(estimator))

    @classmethod
    def read(cls, estimator: Any) -> tuple[Any, ...]:
        """Read the settings of an estimator, without a look at them."""
        return _READ(estimator)

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        if self.region not in REGIONS:
            raise ConfigError(unknown_name("region", str(self.region), REGIONS))
        if self.feature_transform not in (None, *TRANSFORMS):
            raise ConfigError(unknown_name("transform", str(self.feature_transform), TRANSFORMS))
        check_mode(REGIONS[self.region], self.fit_mode)
        check_radius_distance(self.radius_distance, self.squared)
        if self.radius_distance != "squared" and (self.region, self.fit_mode) != ("sphere", "paper"):
            raise ConfigError(
                "radius_distance is a reading of eq. 3: only spheres of fit_mode='paper' have such a radius"
            )
        if self.coverage is not None and not (_number(self.coverage) and 0 < self.coverage < 1):
            raise ConfigError(f"coverage={self.coverage!r}: give a share between 0 and 1, such as 0.95, or None")
        if self.temperature != "auto" and not (_number(self.temperature) and float(self.temperature) > 0):
            raise ConfigError(f"temperature={self.temperature!r}: give 'auto' or a number above 0")
        if not (_number(self.prior_ratio) and self.prior_ratio > 0):
            raise ConfigError(f"prior_ratio={self.prior_ratio!r}: give a number above 0")
        if not self.store_support:
            self._check_without_support()

    @property
    def transform(self) -> str:
        """The name of the feature transform."""
        return self.feature_transform or "none"

    @property
    def unit(self) -> bool:
        """Whether every vector can be scaled to length 1 as it comes: a cone knows directions only."""
        return self.transform == "unit" or (self.transform == "none" and self.region == "cone")

    @property
    def averages_distances(self) -> bool:
        """Whether the radius is a mean of distances or angles themselves, which no statistic knows."""
        unsquared = self.region == "sphere" and (not self.squared or self.radius_distance == "plain")
        return self.fit_mode == "paper" and (self.region == "cone" or unsquared)

    @property
    def needs_examples(self) -> bool:
        """Whether the fit needs more than count, mean and squares of each class."""
        return self.fit_mode == "bayes" or self.averages_distances or self.transform == "center-unit"

    @property
    def measure_options(self) -> dict[str, Any]:
        """How to measure: a point inside several of the paper's cones belongs to the one it is deepest in."""
        return {"break_ties": True} if self.region == "cone" else {}

    def fit(self, stats: Statistics) -> Region:
        """Fit the region."""
        options: dict[str, Any] = {}
        if self.region in ("sphere", "point"):
            options["squared"] = self.squared
        if self.region == "sphere":
            options["radius_distance"] = self.radius_distance
        if self.fit_mode == "bayes":
            options["prior_ratio"] = self.prior_ratio
        return REGIONS[self.region].from_statistics(stats, mode=self.fit_mode, **options)

    def _check_without_support(self) -> None:
        needy = [
            (self.fit_mode == "bayes", "fit_mode='bayes' whitens by them; use 'unbiased'"),
            (
                self.averages_distances,
                "the mean distance of fit_mode='paper' is no statistic; use 'unbiased', or mean squared distances "
                "(squared=True, radius_distance='squared')",
            ),
            (self.transform == "center-unit", "feature_transform='center-unit' moves them all; use 'unit' or 'none'"),
            (self.coverage is not None, "coverage judges each of them; use coverage=None"),
        ]
        for needs, why in needy:
            if needs:
                raise ConfigError(f"store_support=False keeps no examples, but {why}, or set store_support=True")


_READ = attrgetter(*Settings.__dataclass_fields__)


def _number(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, Real) and isfinite(value)
