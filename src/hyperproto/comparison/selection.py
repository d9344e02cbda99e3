"""Expand runs x encoders x methods x fits x transforms into `Candidate`s."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from hyperproto.encoders.class_names import NameEncoder
from hyperproto.errors import ConfigError
from hyperproto.evaluation import EvidenceChoice
from hyperproto.methods import METHODS, Method
from hyperproto.registry import keywords
from hyperproto.training.sources import READING, Candidate, Source, check_choices, make_candidate, transforms_of


def select(
    sources: Sequence[Source],
    methods: Sequence[str],
    fits: Sequence[str],
    transforms: Sequence[str],
    options: dict[str, Any],
    known: Sequence[EvidenceChoice] = (EvidenceChoice(),),
    names_of: str = "labels",
) -> list[Candidate]:
    """Make every combination that makes sense; an empty list stands for the default of each source or method.

    Of several methods each takes the fits, transforms and options it has, and is told of `known` what it has a use for;
    what none of them has is an error. `names_of` is the source of names that are told.
    """
    wanted = [(source, name) for source in sources for name in methods or [source.own_method]]
    names = list(dict.fromkeys(name for _, name in wanted))
    check_choices(names, fits, transforms, options)
    candidates: list[Candidate] = []
    teller = NameEncoder(names_of)
    for source, name in wanted:
        cls: type[Method] = METHODS.get(name)
        own_fits: Sequence[str | None] = [fit for fit in fits if fit in cls.fits] or [None]
        own_transforms: Sequence[str | None] = [each for each in transforms if each in transforms_of(cls)] or [None]
        for fit, transform in product(own_fits, own_transforms):
            made = make_candidate(source, name, fit, transform, options)
            if len(sources) > 1:
                made = replace(made, label=f"{source.label} {made.label}")
            candidates += [_told(made, what, teller) for what in known if what.serves(made.method)]
    for what in known:
        if not any(candidate.evidence == what for candidate in candidates):
            raise ConfigError(
                f"--evidence {what}: none of the methods has a use for it; hyperproto with --fit bayes has, and every "
                "method of vectors takes names as an example (--evidence example)"
            )
    return _with_readings(candidates)


def _with_readings(candidates: list[Candidate]) -> list[Candidate]:
    """Name the default reading of eq. 3 too, where another one stands beside it."""
    if not any(f"{READING}=" in candidate.label for candidate in candidates):
        return candidates
    return [
        replace(each, label=f"{each.label} {READING}=squared")
        if each.method.fit == "paper"
        and READING in keywords(METHODS.get(each.method_name))
        and f"{READING}=" not in each.label
        else each
        for each in candidates
    ]


def _told(candidate: Candidate, what: EvidenceChoice, teller: NameEncoder) -> Candidate:
    """The same candidate, told more than the support."""
    if what == EvidenceChoice():
        return candidate
    more: dict[str, Any] = {"evidence": what, "label": f"{candidate.label} + {what}"}
    if what.names is not None:
        said = {"names": {**teller.settings, "use": what.names}}
        more |= {"names": teller, "settings": {**candidate.settings, **said}}
    return replace(candidate, **more)
