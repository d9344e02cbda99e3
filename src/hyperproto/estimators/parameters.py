"""Parameters of `HypersphereClassifier`: allowed values, combinations, and the closed form that they select."""

from collections.abc import Collection
from numbers import Real
from operator import attrgetter
from typing import Any

from sklearn.utils._param_validation import Interval, StrOptions, make_constraint

from hyperproto.errors import ConfigError, DataError, unknown_name
from hyperproto.heads import RefinedForm
from hyperproto.regions import FIT_MODES, REGIONS, ClosedForm
from hyperproto.regions.arrays import Floats
from hyperproto.regions.sphere import RADIUS_DISTANCES, check_radius_distance
from hyperproto.registry import TRANSFORMS

LARGEST = 1e100  # of a numeric parameter: products of larger numbers overflow
POSITIVE = Interval(Real, 0, None, closed="neither")
CONSTRAINTS: dict[str, Any] = {  # as scikit-learn declares them
    "region": [str],  # a name in `hyperproto.regions.REGIONS`
    "fit_mode": [StrOptions(set(FIT_MODES))],
    "feature_transform": [StrOptions(set(TRANSFORMS)), None],
    "squared": ["boolean"],
    "coverage": [Interval(Real, 0, 1, closed="neither"), None],
    "reject_rate": [Interval(Real, 0, 1, closed="neither"), None],
    "precision": [Interval(Real, 0, 1, closed="neither"), None],
    "class_thresholds": ["boolean"],
    "guarantee": ["boolean"],
    "reject_label": "no_validation",
    "temperature": [StrOptions({"auto"}), POSITIVE],
    "store_support": ["boolean"],
    "prior_ratio": [POSITIVE],
    "radius_distance": [StrOptions(set(RADIUS_DISTANCES))],
    "refine": ["boolean", StrOptions({"auto"})],
    "unlabelled_label": "no_validation",
}
RULES = ("coverage", "reject_rate", "precision")  # by which `predict` rejects
CHECKS = {
    name: tuple(map(make_constraint, allowed)) for name, allowed in CONSTRAINTS.items() if allowed != "no_validation"
}
NAMES = tuple(CHECKS)  # the parameters that a fitted model depends on
values_of = attrgetter(*NAMES)
OPTION_NAMES = {"fit_mode": "fit mode", "feature_transform": "transform", "radius_distance": "radius_distance"}
EXPECTED = {
    "coverage": "a share between 0 and 1, such as 0.95, or None",
    "reject_rate": "a share between 0 and 1, such as 0.05, or None",
    "precision": "a share between 0 and 1, such as 0.95, or None",
    "temperature": "'auto' or a number above 0",
    "prior_ratio": "a number above 0",
    **dict.fromkeys(("squared", "class_thresholds", "guarantee", "store_support", "refine"), "True or False"),
}


def closed_form(parameters: Any) -> tuple[ClosedForm, bool]:
    """Check all parameters, alone and in combination, and return what they select.

    This is the closed form, and whether rows are scaled to length 1 as they come in: by the transform, or because cones
    need it. `parameters` is an object with the parameters as attributes, such as the classifier itself.
    """
    _check_values(parameters)
    if len(rules := rules_of(parameters)) > 1:
        given = " and ".join(f"{name}={getattr(parameters, name)!r}" for name in rules)
        raise ConfigError(f"{given}: each is a rule of rejection of its own; set one, and the others to None")
    region, mode = REGIONS[parameters.region], parameters.fit_mode
    check_radius_distance(parameters.radius_distance, parameters.squared)
    refined = parameters.refine != "auto" and bool(parameters.refine)
    if refined and not (mode == "bayes" and parameters.squared):
        raise ConfigError("refine=True is for region='sphere' with fit_mode='bayes' and squared=True")
    names = region.options(mode)
    options = dict(zip(names, map(parameters.__getattribute__, names), strict=True))
    form = (RefinedForm if refined else ClosedForm)(region, mode, options)
    if parameters.radius_distance != "squared" and (parameters.region, mode) != ("sphere", "paper"):
        raise ConfigError("radius_distance is a reading of eq. 3: only spheres of fit_mode='paper' have such a radius")
    if not parameters.store_support:
        if reason := form.needs_examples:
            raise ConfigError(f"store_support=False keeps no examples, but {reason}, or set store_support=True")
        if parameters.feature_transform == "center-unit":
            raise ConfigError(
                "store_support=False keeps no examples, but feature_transform='center-unit' transforms them again "
                "after each change; use 'unit' or 'none', or set store_support=True"
            )
        for name in rules_of(parameters):
            raise ConfigError(
                f"store_support=False keeps no examples, but {name} scores each of them; use {name}=None, or set "
                "store_support=True"
            )
    transform = parameters.feature_transform or "none"
    return form, transform == "unit" or (transform == "none" and region.directions)


def rules_of(parameters: Any) -> list[str]:
    """Return the names of the rejection rules that are set."""
    return [name for name in RULES if getattr(parameters, name) is not None]


def check_evidence(form: ClosedForm, declared: Collection[Any], unlabelled: Floats | None) -> None:
    """Refuse class names and unlabelled rows if the closed form cannot use them."""
    if form.mode != "bayes" and (declared or unlabelled is not None):
        raise ConfigError(
            "names of classes and unlabelled rows are for region='sphere' with fit_mode='bayes'; "
            f"fit_mode={form.mode!r} cannot use them"
        )
    if unlabelled is not None and not form.options["squared"]:
        raise ConfigError("unlabelled rows go with the squared measure; use squared=True")


def check_alike(one: Any, other: Any) -> None:
    """Refuse to merge two classifiers that keep different vectors."""
    (_, our_unit), (_, their_unit) = closed_form(one), closed_form(other)
    for name, same in (
        ("feature_transform", (one.feature_transform or "none") == (other.feature_transform or "none")),
        ("region", our_unit == their_unit),
        ("store_support", one.store_support == other.store_support),
    ):
        if not same:
            raise ConfigError(
                f"the two classifiers differ in {name} ({getattr(one, name)!r} and {getattr(other, name)!r}), "
                "so they do not remember the same things; fit both alike"
            )
    if one.n_features_in_ != other.n_features_in_:
        raise DataError(
            f"this classifier was fitted to vectors of {one.n_features_in_} numbers, the other to "
            f"{other.n_features_in_}; only classifiers of one encoder can be merged"
        )


def _check_values(parameters: Any) -> None:
    """Check each parameter by itself."""
    if not isinstance(parameters.region, str) or parameters.region not in REGIONS:
        raise ConfigError(unknown_name("region", str(parameters.region), REGIONS))
    for name, checks in CHECKS.items():
        value, allowed = getattr(parameters, name), CONSTRAINTS[name]
        number_wanted = isinstance(value, bool) and "boolean" not in allowed
        too_large = isinstance(value, int) and abs(value) > LARGEST
        if number_wanted or too_large or not any(check.is_satisfied_by(value) for check in checks):
            if name in OPTION_NAMES:
                raise ConfigError(unknown_name(OPTION_NAMES[name], str(value), allowed[0].options))
            raise ConfigError(f"{name}={value!r}: give {EXPECTED[name]}")
