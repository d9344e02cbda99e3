"""Load a recipe, check its names, options and optimisers, and fill in what it leaves open."""

from statistics import median_high
from typing import Any

import torch

from hyperproto.data import Pool
from hyperproto.data.names import SOURCES, check_source
from hyperproto.decisions import DECISION_OPTIONS, Decision
from hyperproto.encoders import ENCODERS, Encoder, resolve_encoder
from hyperproto.encoders.class_names import SAME
from hyperproto.encoders.parts.pretrained import ALIASES
from hyperproto.errors import ConfigError, unknown_name
from hyperproto.methods import METHODS, Group, Method
from hyperproto.recipes import Recipe, parse, parse_values, read_recipe
from hyperproto.registry import Registry, Trust, TrustError, keywords, option_problems, trust_names
from hyperproto.registry import trust as trust_files

USUAL_SHAPES: dict[str, tuple[int, ...]] = {"maps": (64, 5, 5), "tokens": (-1, 200)}  # other methods: vectors of 768
FIXED = {"way", "shot"}  # options that methods without any-way or any-shot take from the training episodes


def load_recipe(name: str, overrides: list[str] | None = None, *, trust: Trust = None) -> Recipe:
    """Read and check `NAME`, `NAME:ROW` or a path, with overrides `section.key=value`.

    A method `FILE.py:CLASS` is imported only if `trust`, one of the overrides or an earlier consent names the file.
    """
    trust_files(trust)
    raw = read_recipe(name, overrides)
    for override in overrides or []:  # from the caller, hence trusted
        if override.partition("=")[0].strip() in ("method", "method.name"):
            section = parse_values([override])["method"]
            trust_names([section.get("name")] if isinstance(section, dict) else [])
    problems = []
    for registry in (ENCODERS, METHODS):
        found = _registry_problems(registry, raw.get(registry.kind))
        renamed = any(override.partition("=")[0].strip() == f"{registry.kind}.name" for override in overrides or [])
        if found and renamed:
            kept = f"{registry.kind}.name=... keeps the recipe's other options"
            found.append(f"{kept}; {registry.kind}={{name='...'}} starts the section anew")
        problems += found
    recipe = parse(raw, name, problems + _names_problems(raw) + _method_problems(raw))
    method: type[Method] = METHODS.get(recipe.method.name)
    own = "none" if method.transforms is None or "none" in method.transforms else method.transforms[0]
    return recipe.model_copy(update={"transform": recipe.transform or own})


def resolve(recipe: Recipe, pool: Pool) -> Recipe:
    """Fill in the settings that follow from the training data, so that the recipe alone rebuilds the run."""
    name, options = resolve_encoder(recipe.encoder.name, recipe.encoder.options, pool)
    encoder = type(recipe.encoder).model_validate({"name": name, **options})
    episodes = recipe.episodes
    if episodes is not None and episodes.way == "all":
        episodes = episodes.model_copy(update={"way": pool.n_classes})
    return completed(recipe.model_copy(update={"encoder": encoder, "episodes": episodes}))


def completed(recipe: Recipe) -> Recipe:
    """Fill in the settings that follow from others: `init_shot`, and which learning rates are scheduled."""
    method = recipe.method
    cls: type[Method] = METHODS.get(method.name)
    episodes = {} if recipe.episodes is None else {"way": recipe.episodes.way, "shot": recipe.episodes.shot}
    method = method.model_copy(update={**_fixed(cls, episodes), **method.options})
    if "init_shot" in keywords(cls) and method.options.get("init_shot", "shot") == "shot":
        method = method.model_copy(update={"init_shot": init_shot(recipe)})
    own = {"encoder", *_tables({"name": recipe.encoder.name})}
    optim = {
        section: config.model_copy(update={"scheduled": section in own}) if config.scheduled is None else config
        for section, config in recipe.optim.items()
    }
    return recipe.model_copy(update={"method": method, "optim": optim})


def init_shot(recipe: Recipe) -> int:
    """Return K of Algorithm 1's initialisation: the shots of the support, or their median if they are unequal.

    They are the shots of the training episodes or, if these have no support (stored centres), of validation.
    """
    shots = [] if recipe.episodes is None else _positive(recipe.episodes.shot)
    return median_high(shots or _positive(recipe.validation.shot))


def _positive(shot: int | list[int]) -> list[int]:
    return [k for k in (shot if isinstance(shot, list) else [shot]) if k]


def _registry_problems(registry: Registry, section: Any) -> list[str]:
    """Check the name and the options of `[encoder]` or `[method]`; the schema reports sections that are not tables."""
    if not isinstance(section, dict) or not isinstance(section.get("name"), str):
        return []
    name, options = _named(section)
    if registry is ENCODERS:
        name = name.partition(":")[0]  # without the argument
    try:
        cls = registry.get(name)
    except TrustError:
        raise  # the rest of the recipe cannot be checked
    except ConfigError as error:
        return [f"{registry.kind}.name: {error}"]
    return option_problems(registry.kind, name, cls, options)


def _method_problems(raw: dict[str, Any]) -> list[str]:
    """Check that the other sections suit the method; the schema reports sections that are not tables."""
    section, optim, episodes = raw.get("method"), raw.get("optim"), raw.get("episodes")
    if not (isinstance(section, dict) and isinstance(section.get("name"), str) and isinstance(optim, dict)):
        return []
    name, options = _named(section)
    try:
        cls: type[Method] = METHODS.get(name)
    except ConfigError:
        return []  # reported by `_registry_problems`
    valid = {key: value for key, value in options.items() if not option_problems("method", name, cls, {key: value})}
    shape = {key: value for key, value in (episodes if isinstance(episodes, dict) else {}).items() if key in FIXED}
    problems = [
        f"method.{key} = {options[key]}: {name} takes it from [episodes], {key} = {shape[key]}; leave it out"
        for key in FIXED & options.keys() & shape.keys()
        if options[key] != shape[key]
    ]
    problems += _decision_problems(cls, raw.get("decision"))
    try:
        method = _stand_in(cls, {**_fixed(cls, shape), **valid})
    except ConfigError as error:
        return [*problems, f"method: {error}"]
    if method is None:
        return problems
    problems += _optimiser_problems(name, method.param_groups(), _tables(raw.get("encoder")), optim)
    if method.transforms is not None and raw.get("transform") not in (None, *method.transforms):
        known = " or ".join(map(repr, method.transforms))
        problems.append(f"transform = {raw['transform']!r}: {name} is defined with {known}")
    if method.needs_names and raw.get("names") is None:
        problems.append(f'[names] is missing: {name} reads the names of classes; add source = "labels", for example')
    shot = shape.get("shot")
    if method.needs_support and 0 in (shot if isinstance(shot, list) else [shot]):
        problems.append(f"episodes.shot = {shot}: {name} trains on the support; draw at least 1")
    if method.needs_unlabelled and raw.get("unlabelled") is None:
        problems.append(f'[unlabelled] is missing: {name} learns from items without labels; add data = "..." there')
    if method.needs_support and "batches" in raw:
        problems.append(f"[batches]: {name} trains on the support, which batches do not have; give it [episodes]")
    size = raw["batches"].get("size") if isinstance(raw.get("batches"), dict) else None
    if isinstance(size, int) and 0 < size < method.least_batch:
        problems.append(
            f"batches.size = {size}: {name} needs batches of at least {method.least_batch} with these options"
        )
    if raw.get("pairs") is not None:
        problems += _pairs_problems(name, method, raw.get("encoder"))
    validation = raw.get("validation")
    if isinstance(validation, dict):
        problems += _validation_problems(name, method, shape, validation)
    return problems


def _stand_in(cls: type[Method], options: dict[str, Any]) -> Method | None:
    """Build the method for units of a usual shape, to check its options and its parameter groups.

    The encoder's actual shape is known only when the data are open. Return None if the method needs another shape.
    """
    shape = USUAL_SHAPES.get(cls.reads, (768,))
    try:
        with torch.random.fork_rng(devices=[]):  # leaves the random state as it was
            return cls(feature_shape=shape, n_classes=64, **options)
    except ConfigError:
        raise
    except Exception:
        return None


def _fixed(cls: type[Method], shape: dict[str, Any]) -> dict[str, Any]:
    """Return the way and shot of the training episodes that the method takes as options."""
    always = {"way"} if cls.takes_way else set()
    return {key: value for key, value in shape.items() if f"any-{key}" not in cls.traits or key in always}


def _optimiser_problems(
    name: str, groups: dict[str, Group], tables: tuple[str, ...], optim: dict[str, Any]
) -> list[str]:
    """Check that the sections `[optim.NAME]` match the parameter groups of the method and the encoder."""
    known = ["encoder", *groups, *tables]
    problems = [
        f"optim.{section}: {unknown_name('optimiser section', section, known)}"
        for section in optim
        if section not in known
    ]
    problems += [
        f"[optim.{group}] is missing: {name} learns it under an optimiser of its own"
        for group in groups
        if group not in optim
    ]
    rows = {*tables, *(group for group in groups if groups[group].table)}
    for section in known:
        own = optim.get(section)
        if not isinstance(own, dict):
            continue
        if section in rows and (own.get("momentum") or own.get("weight_decay")):
            problems.append(
                f"optim.{section}: momentum and weight_decay do not go with rows that are updated only when drawn; "
                "leave them out"
            )
        elif section in rows and own.get("dense") and own.get("name", "adam") != "adam":
            problems.append(
                f"optim.{section}: dense = true is plain Adam on a whole table; leave it out for {own['name']}"
            )
        elif section not in rows and own.get("dense"):
            whose = "the encoder's parameters are none" if section == "encoder" else f"{section} is none"
            problems.append(f"optim.{section}: dense = true is for tables of rows; {whose}: leave it out")
    return problems


def _names_problems(raw: dict[str, Any]) -> list[str]:
    """Check source and encoder of `[names]`; the schema reports sections that are not tables."""
    section, data, own = raw.get("names"), raw.get("data"), raw.get("encoder")
    if not isinstance(section, dict):
        return []
    source, encoder = section.get("source", SOURCES[0]), section.get("encoder", SAME)
    problems = []
    if isinstance(source, str) and source not in SOURCES and not source.endswith(".json"):
        known = unknown_name("source of names called", source, SOURCES)
        problems.append(f"names.source: {known}, or the path of a file .json: {{class: text}}")
    if isinstance(encoder, str) and encoder.partition(":")[0] not in (SAME, *ALIASES, *ENCODERS.names()):
        problems.append(f"names.encoder: {unknown_name('encoder', encoder, (SAME, *ALIASES, *ENCODERS.names()))}")
    if isinstance(data, dict) and isinstance(data.get("spec"), str):
        try:
            check_source(source, data["spec"])
        except ConfigError as error:
            problems.append(str(error))
    name = str(own.get("name")).partition(":")[0] if isinstance(own, dict) else ""
    if encoder == SAME and name in ENCODERS.names() and ENCODERS.get(name).read_texts is Encoder.read_texts:
        problems.append(
            f"names.encoder = 'same': {name} reads no texts; choose a sentence encoder: 'minilm' or 'glove'"
        )
    return problems


def _decision_problems(cls: type[Method], section: Any) -> list[str]:
    """Check `[decision]`; the schema reports sections that are not tables."""
    if not isinstance(section, dict | None) or not {*(section or {})} <= DECISION_OPTIONS.keys():
        return []
    try:
        Decision(dimension=1, **{**cls.decision, **(section or {})})
    except ConfigError as error:
        return [f"decision: {error}"]
    except TypeError:  # the schema reports values of a wrong type
        return []
    return []


def _validation_problems(name: str, method: Method, shape: dict[str, Any], validation: dict[str, Any]) -> list[str]:
    """Compare way and shot of validation and training, for a method that is limited to those of training."""
    return [
        f"validation.{key} = {validation[key]}: {name} serves no other {key} than that of its training, {shape[key]}"
        for key in sorted(FIXED & shape.keys() & validation.keys())
        if f"any-{key}" not in method.traits and validation[key] != shape[key]
    ]


def _pairs_problems(name: str, method: Method, encoder: Any) -> list[str]:
    """Check that the method learns from pairs, and that the encoder has a token for blanks if it supports one."""
    problems = [] if method.reads_pairs else [f"[pairs]: {name} does not learn from pairs; mtb-pretrain does"]
    if isinstance(encoder, dict) and isinstance(encoder.get("name"), str):
        known, options = _named(encoder)
        known = known.partition(":")[0]
        if known in ENCODERS.names() and "blanks" in keywords(ENCODERS.get(known)) and not options.get("blanks"):
            problems.append(f"[pairs] replaces entities by a piece that {known} lacks; add blanks = true to [encoder]")
    return problems


def _tables(section: Any) -> tuple[str, ...]:
    """Return the names of the encoder's embedding tables, which may have their own optimiser."""
    if not isinstance(section, dict) or not isinstance(section.get("name"), str):
        return ()
    name = section["name"].partition(":")[0]
    cls: type[Encoder] | None = ENCODERS.get(name) if name in ENCODERS.names() else None
    return () if cls is None else cls.tables


def _named(section: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Split a section into its name and its options."""
    return section["name"], {key: value for key, value in section.items() if key != "name"}
