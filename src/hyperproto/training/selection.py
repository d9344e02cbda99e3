"""From what a user selects (runs, encoders, methods, fits, transforms) to contenders for an evaluation."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hyperproto.data import Pool, find_dataset, open_pool
from hyperproto.encoders import TRANSFORMS, Encoder, make_encoder, resolve_encoder
from hyperproto.errors import ConfigError, unknown_name
from hyperproto.evaluation import Contender, training_center
from hyperproto.methods import METHODS, Method, make_method
from hyperproto.training.run import Run


@dataclass(frozen=True, eq=False)
class Source:
    """Where vectors come from: a trained run, or a ready encoder; with what it was trained for, if it was."""

    label: str
    settings: dict[str, Any]
    encoder: Encoder
    transform: str  # unless told otherwise
    method: Method | None = None  # a run's own, with its learned parameters
    method_name: str | None = None
    train_data: tuple[str, str] | None = None  # spec and split that center-unit takes its mean from


def run_source(folder: str, pool: Pool) -> Source:
    """Open a trained run, and make sure that its encoder reads such data."""
    learner, recipe = Run(folder).load()
    needed, made = type(learner.features.encoder).options_for(pool), recipe.encoder.options
    different = [f"{key} {value!r}, not {made[key]!r}" for key, value in needed.items() if made[key] != value]
    if different:
        raise ConfigError(f"{folder}: its {recipe.encoder.name} cannot read {pool}, which has {', '.join(different)}")
    return Source(
        label=folder,
        settings={"run": folder, "encoder": recipe.encoder.name},
        encoder=learner.features.encoder,
        transform=recipe.transform or "none",
        method=learner.method,
        method_name=recipe.method.name,
        train_data=(recipe.data.spec, recipe.data.split),
    )


def encoder_source(spec: str, pool: Pool) -> Source:
    """Make a ready encoder for a pool; `center-unit` uses the training split of the same data, where it has one."""
    name, options = resolve_encoder(spec, {}, pool)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        encoder = make_encoder(name, options).eval()
    dataset, argument = find_dataset(pool.name)
    has_train = "train" in dataset.splits(argument) and pool.split != "train"
    train_data = (pool.name, "train") if has_train else None
    return Source(spec, {"run": None, "encoder": spec}, encoder, transform="none", train_data=train_data)


def select(
    sources: Sequence[Source],
    methods: Sequence[str],
    fits: Sequence[str],
    transforms: Sequence[str],
    options: dict[str, Any],
) -> list[Contender]:
    """Make every combination that makes sense; an empty list stands for the default of each source or method.

    With one method, a fit or a transform that it does not have is an error; with several, each takes those it has.
    """
    contenders = []
    for source in sources:
        names = methods or ([source.method_name] if source.method_name else [])
        if not names:
            raise ConfigError(f"encoder {source.label!r} comes without a method; name one with --method")
        _check_names(names, fits, transforms)
        center: Tensor | None = None
        for name, fit, transform in _combinations(source, names, fits, transforms):
            if transform == "center-unit" and center is None:
                center = _center(source)
            where = [source.label] if len(sources) > 1 else []
            label = " ".join([*where, name, fit, transform, *(f"{key}={value}" for key, value in options.items())])
            settings = {**source.settings, "options": options}
            method = _method(source, name, fit, options)
            contenders.append(Contender(label, source.encoder, method, name, transform, settings, center))
    return contenders


def _combinations(
    source: Source, names: Sequence[str], fits: Sequence[str], transforms: Sequence[str]
) -> Iterator[tuple[str, str, str]]:
    strict = len(names) == 1
    for name in names:
        cls: type[Method] = METHODS.get(name)
        own = (cls.transform,) if cls.transform else TRANSFORMS
        for fit in _meaningful("fit", name, fits, cls.fits, strict) or [cls.fits[0]]:
            chosen = _meaningful("transform", name, transforms, own, strict)
            for transform in chosen or [cls.transform or source.transform]:
                yield name, fit, transform


def _meaningful(kind: str, method: str, wanted: Sequence[str], has: Sequence[str], strict: bool) -> list[str]:
    """Keep what the method has."""
    kept = [name for name in wanted if name in has]
    if wanted and not kept and strict:
        raise ConfigError(f"{method} has no {kind} {wanted[0]!r}; it has: {', '.join(has)}")
    return kept


def _check_names(methods: Sequence[str], fits: Sequence[str], transforms: Sequence[str]) -> None:
    """Refuse what none of several methods has: each takes what it knows, so a slip of the finger would go unnoticed."""
    known_fits = {fit for name in methods for fit in METHODS.get(name).fits}
    for kind, wanted, known in (("fit", fits, known_fits), ("transform", transforms, TRANSFORMS)):
        for name in wanted:
            if len(methods) > 1 and name not in known:
                raise ConfigError(unknown_name(f"{kind} of these methods called", name, known))


def _method(source: Source, name: str, fit: str, options: dict[str, Any]) -> Method:
    if source.method is not None and name == source.method_name and not options:
        return source.method.with_fit(fit)
    return make_method(name, feature_shape=source.encoder.feature_shape, fit=fit, **options).eval()


def _center(source: Source) -> Tensor | None:
    return None if source.train_data is None else training_center(source.encoder, open_pool(*source.train_data))
