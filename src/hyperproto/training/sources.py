"""Sources of vectors (a trained run, or a pretrained encoder) and the candidates built on them."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from hyperproto.data import OUTSIDE, Pool, open_pool, training_split
from hyperproto.decisions import DECISION_OPTIONS, Decision, make_decision
from hyperproto.encoders import ENCODERS, Encoder, default_device, make_encoder, resolve_encoder
from hyperproto.encoders.class_names import NameEncoder
from hyperproto.errors import ConfigError, unknown_name
from hyperproto.evaluation import EvidenceChoice, Predictor, training_center, training_units
from hyperproto.files import is_there
from hyperproto.methods import METHODS, Method, make_method
from hyperproto.recipes import Recipe, parse_values
from hyperproto.registry import TRANSFORMS, keywords, option_problems
from hyperproto.training.run import PriorRatio, Run

RANDOM = ":random"  # suffix of an encoder's name: use random weights
# Options of a method that affect only some of its closed forms.
FITS_OF_OPTION = {
    "radius_weight": ("paper",),
    "radius_distance": ("paper",),
    "one_shot_radius": ("paper",),
    "prior_ratio": ("bayes",),
    "unit_correlation": ("bayes",),
    "mean_of": ("paper", "point"),
}

READING = "radius_distance"  # reading of eq. 3; a label "paper" means the default, the mean of squared distances
CARRIED = {"prior_ratio": "measured", "temperature": "run's"}  # options taken from a run, as shown in labels


@dataclass(frozen=True, eq=False)
class Candidate:
    """One row of a comparison: an encoder (shared by many rows), a transform, a method with its closed form."""

    label: str
    encoder: Encoder
    method: Method
    method_name: str
    decision: Decision
    transform: str
    settings: dict[str, Any]  # further settings of the result: run, encoder
    center: Tensor | None = None  # mean of the training data, if there is any
    names: NameEncoder | None = None  # encoder of class names, if they are used
    evidence: EvidenceChoice = field(default_factory=EvidenceChoice)  # besides the support

    @cached_property
    def predictor(self) -> Predictor:
        """Predictor on the encoder's device."""
        parts = self.method, self.encoder, self.transform, self.center, self.decision, self.names
        return Predictor.of(*parts, evidence=self.evidence)


@dataclass(frozen=True, eq=False)
class Source:
    """A trained run or a pretrained encoder, with the run's own method and training data if there are any."""

    label: str
    settings: dict[str, Any]
    encoder: Encoder
    transform: str  # default transform
    method: Method | None = None  # of the run, with its learned parameters
    method_name: str | None = None
    method_options: dict[str, Any] = field(default_factory=dict)  # from the recipe of the run
    decision: Decision | None = None  # of the run, with its fitted parameters
    decision_options: dict[str, Any] = field(default_factory=dict)
    # Training data for center-unit and the decision: spec and split, or a pool.
    train_data: tuple[str, str] | Pool | None = None
    prior_ratio: dict[str, float] = field(default_factory=dict)  # measured by the run, by transform
    names: NameEncoder | None = None  # encoder of class names, if the recipe has [names]

    @cached_property
    def train_pool(self) -> Pool | None:
        """Training data, opened once; None if there are none."""
        return open_pool(*self.train_data) if isinstance(self.train_data, tuple) else self.train_data

    @cached_property
    def train_units(self) -> tuple[Tensor, Tensor] | None:
        """Vectors and labels of words in the training data, encoded once; None if they are not tagged sentences."""
        if self.train_pool is None or self.train_pool.outside_row is None:
            return None
        return training_units(self.encoder, self.train_pool, cached=True)

    @cached_property
    def train_center(self) -> Tensor | None:
        """Mean vector of the training data; None if there are none."""
        return None if self.train_pool is None else training_center(self.encoder, self.train_pool, cached=True)

    @property
    def own_method(self) -> str:
        """Name of the method that was trained with the encoder."""
        if self.method_name is None:
            raise ConfigError(f"encoder {self.label!r} comes without a method; name one with --method")
        return self.method_name


def run_source(folder: str, pool: Pool) -> Source:
    """Load a trained run; raise a ConfigError if its encoder cannot read the pool."""
    run = Run(folder)
    learner, recipe = run.load()
    different = learner.features.encoder.differences(pool)
    if different:
        raise ConfigError(f"{folder}: its {recipe.encoder.name} cannot read {pool}, which has {', '.join(different)}")
    return Source(
        label=folder,
        settings={"run": folder, "encoder": recipe.encoder.name, **_seen(recipe)},
        encoder=learner.features.encoder.to(default_device()),
        transform=recipe.transform or "none",
        method=learner.method,
        method_name=recipe.method.name,
        method_options=recipe.method.options,
        decision=learner.decision,
        decision_options=recipe.decision.options,
        train_data=(recipe.data.spec, recipe.data.split),
        prior_ratio=PriorRatio.read(run.prior_ratio).for_pool(pool) if run.prior_ratio.exists() else {},
        names=learner.names,
    )


def _seen(recipe: Recipe) -> dict[str, Any]:
    """Return the unlabelled data that the training used, for a result."""
    unlabelled = recipe.unlabelled
    return {} if unlabelled is None else {"unlabelled": f"{unlabelled.data} ({unlabelled.split})"}


def encoder_source(spec: str, pool: Pool, data: str | Pool | None = None) -> Source:
    """Build a pretrained encoder for a pool.

    Training data are the training split of `data` (a spec, by default that of the pool), or `data` itself (a pool).
    Options of the encoder follow its name and argument: `NAME:ARGUMENT,key=value`. An encoder without pretrained
    weights must be requested as `NAME:random`.
    """
    asked, given = _with_options(spec)
    plain = asked.removesuffix(RANDOM)
    name, options = resolve_encoder(plain, given, pool)
    if not ENCODERS.get(name).pretrained and plain == asked:
        raise ConfigError(
            f"encoder {spec!r} comes without trained weights; train it and name the run (--run FOLDER), or write "
            f"{asked}{RANDOM} to see what random weights do"
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        encoder = make_encoder(name, options).eval().to(default_device())
    source = Source(spec, {"run": None, "encoder": spec}, encoder, transform="none")
    if isinstance(data, Pool):
        return replace(source, train_data=data)
    data = data or pool.name
    split = training_split(data)
    if split is None or (data, split) == (pool.name, pool.split):
        return source
    return replace(source, train_data=(data, split))


def _with_options(spec: str) -> tuple[str, dict[str, Any]]:
    """Split a spec into name with argument, and options; an existing path may contain commas."""
    settings: list[str] = []
    while True:
        path, (rest, comma, last) = spec.partition(":")[2], spec.rpartition(",")
        if not comma or "=" not in last or (path and is_there(path)):
            break
        spec, settings = rest, [last, *settings]
    return spec, parse_values(settings)


def make_candidate(
    source: Source, name: str, fit: str | None, transform: str | None, options: dict[str, Any]
) -> Candidate:
    """Build a candidate from a source and the name of a method.

    Fit and transform default to those of the run, or else to the first ones of the method. Options that the method
    does not have are ignored; `check_choices` reports options that no method has.
    """
    cls: type[Method] = METHODS.get(name)
    if fit is None:
        fit = source.method.fit if source.method is not None and name == source.method_name else cls.fits[0]
    if transform is None:
        transform = source.transform if source.transform in transforms_of(cls) else transforms_of(cls)[0]
    carried = _measured(source, name, cls, transform) | _path_temperature(source, name, cls, transform, options)
    method, own_options = _method(source, name, cls, fit, {**carried, **options})
    decision, decision_options = _decision(source, name, method, options)
    own_options |= decision_options
    reads_names = method.names_at_evaluation and (name == source.method_name or method.needs_names)
    reader = source.names if reads_names else None
    candidate = Candidate(
        label=" ".join([name, fit, transform, *_shown_options(own_options, carried, options, fit)]),
        encoder=source.encoder,
        method=method,
        method_name=name,
        decision=decision,
        transform=transform,
        settings={**source.settings, "options": own_options} | ({"names": reader.settings} if reader else {}),
        center=source.train_center if transform == "center-unit" else None,
        names=reader,
    )
    _learn_outside(candidate, source)
    return candidate


def _shown_options(own: dict[str, Any], carried: dict[str, Any], given: dict[str, Any], fit: str) -> list[str]:
    """Return the options to show in a label: those given, those taken from a run, and another reading of eq. 3."""
    shown = {key: CARRIED[key] for key in carried} | given  # without values of a run, which differ between seeds
    if own.get(READING, "squared") != "squared":
        shown.setdefault(READING, own[READING])
    return [f"{key}={value}" for key, value in shown.items() if key in own and _matters(key, fit)]


def _measured(source: Source, name: str, cls: type[Method], transform: str) -> dict[str, Any]:
    """Return the prior_ratio measured by the run, unless its recipe sets one for this method."""
    is_set = name == source.method_name and "prior_ratio" in source.method_options
    if is_set or transform not in source.prior_ratio or "prior_ratio" not in keywords(cls):
        return {}
    return {"prior_ratio": source.prior_ratio[transform]}


def _path_temperature(
    source: Source, name: str, cls: type[Method], transform: str, options: dict[str, Any]
) -> dict[str, Any]:
    """Return the temperature of path decoding for a method that is not the run's own: that of the run.

    Without a run, unit vectors need an explicit temperature: their squared distances are at most 4, so that
    probabilities at temperature 1 are nearly uniform.
    """
    path = {**cls.decision, **options}.get("path")
    if not path or name == source.method_name or "temperature" in options:
        return {}
    if source.method is not None and transform == source.transform:
        return {"temperature": float(f"{float(source.method.log_temperature.exp()):.6g}")}
    if transform in ("unit", "center-unit"):
        raise ConfigError(
            f"{name} decodes paths with probabilities, which need a temperature for vectors of length 1 ({transform}); "
            "choose one on validation data: -o temperature=0.05"
        )
    return {}


def transforms_of(cls: type[Method]) -> Sequence[str]:
    """Return the feature transforms that a method supports."""
    return TRANSFORMS if cls.transforms is None else cls.transforms


def _matters(option: str, fit: str) -> bool:
    """Return whether an option has an effect with this closed form."""
    return fit in FITS_OF_OPTION.get(option, (fit,))


def check_choices(
    methods: Sequence[str], fits: Sequence[str], transforms: Sequence[str], options: dict[str, Any]
) -> None:
    """Raise a ConfigError for a fit, transform or option that none of the methods has."""
    classes: list[type[Method]] = [METHODS.get(name) for name in methods]
    known_fits = {fit for cls in classes for fit in cls.fits}
    known_transforms = {transform for cls in classes for transform in transforms_of(cls)}
    for kind, wanted, known in (("fit", fits, known_fits), ("transform", transforms, known_transforms)):
        for name in wanted:
            if name not in known:
                raise ConfigError(unknown_name(f"{kind} of {' or '.join(methods)} called", name, known))
    if "fit" in options:
        raise ConfigError("the fit is not an option of a method here; use --fit")
    for key, value in options.items():
        problems = [option_problems("method", n, cls, {key: value}) for n, cls in zip(methods, classes, strict=True)]
        if key in DECISION_OPTIONS:
            problems = [option_problems("decision", "of all methods", Decision, {key: value})]
        if all(problems):
            raise ConfigError(problems[0][0])


def _method(
    source: Source, name: str, cls: type[Method], fit: str, options: dict[str, Any]
) -> tuple[Method, dict[str, Any]]:
    """Return the method and its options: those of the run, overridden by the given ones that it has."""
    own = source.method_options if name == source.method_name else {}
    given = {key: value for key, value in options.items() if not option_problems("method", name, cls, {key: value})}
    merged = {key: value for key, value in {**own, **given}.items() if key != "fit"}
    shape = source.encoder.feature_shape
    if source.method is None or name != source.method_name:
        return make_method(name, feature_shape=shape, fit=fit, **merged).eval(), merged
    if not given:
        return source.method.with_fit(fit), merged
    method = make_method(name, feature_shape=shape, n_classes=source.method.n_classes, fit=fit, **merged)
    learned = source.method.state_dict()
    for option, parameter in method.starts.items():
        if option in given:
            del learned[parameter]
    method.load_state_dict(learned, strict=False)  # parameters that the given options do not replace
    return method.eval(), merged


def _decision(source: Source, name: str, method: Method, options: dict[str, Any]) -> tuple[Decision, dict[str, Any]]:
    """Return the decision and its options: those of the run, overridden by the given ones."""
    same = source.decision is not None and name == source.method_name
    given = {key: value for key, value in options.items() if key in DECISION_OPTIONS}
    merged = {**(source.decision_options if same else {}), **given}
    if same and not given and source.decision is not None and source.decision.outside is None:
        return source.decision, merged  # nothing in it is fitted again
    decision = make_decision(method, merged)
    if same and source.decision is not None:
        learned = source.decision.state_dict()
        if "transitions" in given:
            learned.pop("path.transitions", None)
        decision.load_state_dict(learned, strict=False)
    if decision.missing is not None:
        if source.train_pool is None:
            raise ConfigError(
                f"{name} finds its {decision.missing} in training data, and {source.label} comes without any here; "
                f"give them: -o {decision.missing}=..."
            )
        decision.read_labels(source.train_pool)
    return decision.eval(), merged


def _learn_outside(candidate: Candidate, source: Source) -> None:
    """Fit the O discriminant of a decision, if it has one, to transformed words of the training data."""
    if candidate.decision.outside is None:
        return
    if source.train_units is None:
        raise ConfigError(
            f"outside_weight is fitted to words of training data, and {source.label} comes without any here; "
            "leave it out"
        )
    words, labels = source.train_units
    candidate.decision.outside.learn(candidate.predictor.features.transform.eval()(words), labels == OUTSIDE)
