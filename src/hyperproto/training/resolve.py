"""From a recipe's name to a complete, checked recipe: names, options and optimisers all at once."""

from statistics import median_high
from typing import Any

from hyperproto.data import Pool
from hyperproto.encoders import ENCODERS, Encoder, resolve_encoder
from hyperproto.errors import ConfigError, unknown_name
from hyperproto.methods import METHODS, Method
from hyperproto.recipes import Recipe, parse, read_recipe
from hyperproto.registry import Registry, keywords, option_problems


def load_recipe(name: str, overrides: list[str] | None = None) -> Recipe:
    """Read and check `NAME`, `NAME:ROW` or a path, with overrides `section.key=value`."""
    raw = read_recipe(name, overrides)
    problems = []
    for registry in (ENCODERS, METHODS):
        found = _registry_problems(registry, raw.get(registry.kind))
        renamed = any(override.partition("=")[0].strip() == f"{registry.kind}.name" for override in overrides or [])
        if found and renamed:
            kept = f"{registry.kind}.name=... keeps the recipe's other options"
            found.append(f"{kept}; {registry.kind}={{name='...'}} starts the section anew")
        problems += found
    recipe = parse(raw, name, problems + _method_problems(raw))
    method: type[Method] = METHODS.get(recipe.method.name)
    return recipe.model_copy(update={"transform": recipe.transform or method.transform or "none"})


def resolve(recipe: Recipe, pool: Pool) -> Recipe:
    """Fill in what follows from the training data and from the rest of the recipe: a run can be rebuilt from it."""
    name, options = resolve_encoder(recipe.encoder.name, recipe.encoder.options, pool)
    encoder = type(recipe.encoder).model_validate({"name": name, **options})
    return completed(recipe.model_copy(update={"encoder": encoder}))


def completed(recipe: Recipe) -> Recipe:
    """Fill in what follows from the rest of the recipe: instances a region starts from, which rates are scheduled."""
    method = recipe.method
    if "init_shot" in keywords(METHODS.get(method.name)) and method.options.get("init_shot", "shot") == "shot":
        method = method.model_copy(update={"init_shot": init_shot(recipe)})
    own = {"encoder", *_tables({"name": recipe.encoder.name})}
    optim = {
        section: config.model_copy(update={"scheduled": section in own}) if config.scheduled is None else config
        for section, config in recipe.optim.items()
    }
    return recipe.model_copy(update={"method": method, "optim": optim})


def init_shot(recipe: Recipe) -> int:
    """K of Algorithm 1's initialisation, the shots of the support (its caption): the median where they are unequal.

    Those of the training episodes or, where training draws no support (stored centres), of the validation episodes.
    """
    shots = [] if recipe.episodes is None else _positive(recipe.episodes.shot)
    return median_high(shots or _positive(recipe.validation.shot))


def _positive(shot: int | list[int]) -> list[int]:
    return [k for k in (shot if isinstance(shot, list) else [shot]) if k]


def _registry_problems(registry: Registry, section: Any) -> list[str]:
    """Check the name and the options of `[encoder]` or `[method]`; the schema reports what is not even a table."""
    if not isinstance(section, dict) or not isinstance(section.get("name"), str):
        return []
    name, options = _named(section)
    try:
        cls = registry.get(name)
    except ConfigError as error:
        return [f"{registry.kind}.name: {error}"]
    return option_problems(registry.kind, name, cls, options)


def _method_problems(raw: dict[str, Any]) -> list[str]:
    """Check what the rest of the recipe must have for its method; what is not a table the schema reports."""
    section, optim, episodes = raw.get("method"), raw.get("optim"), raw.get("episodes")
    if not (isinstance(section, dict) and isinstance(section.get("name"), str) and isinstance(optim, dict)):
        return []
    name, options = _named(section)
    if name not in METHODS.names():
        return []
    cls: type[Method] = METHODS.get(name)
    valid = {key: value for key, value in options.items() if not option_problems("method", name, cls, {key: value})}
    try:  # a tiny one: what does it optimise, and does it take these options?
        method = cls(feature_shape=(1,), n_classes=1, **valid)
    except ConfigError as error:
        return [f"method: {error}"]
    groups, tables = method.param_groups(), _tables(raw.get("encoder"))
    known = ["encoder", *groups, *tables]
    problems = [
        f"optim.{section}: {unknown_name('optimiser section', section, known)}"
        for section in optim
        if section not in known
    ]
    for group in (*groups, *tables):
        own = optim.get(group)
        if own is None and group in groups:
            problems.append(f"[optim.{group}] is missing: {name} learns it under an optimiser of its own")
        elif isinstance(own, dict) and (own.get("momentum") or own.get("weight_decay")):
            problems.append(
                f"optim.{group}: momentum and weight_decay do not go with rows that are updated only when drawn; "
                "leave them out"
            )
        elif isinstance(own, dict) and own.get("dense") and own.get("name", "adam") != "adam":
            problems.append(
                f"optim.{group}: dense = true is plain Adam on a whole table; leave it out for {own['name']}"
            )
    if isinstance(optim.get("encoder"), dict) and optim["encoder"].get("dense"):
        problems.append(
            "optim.encoder: dense = true is for tables of rows; the encoder's parameters are none: leave it out"
        )
    if method.transform is not None and raw.get("transform") not in (None, method.transform):
        problems.append(f"transform = {raw['transform']!r}: {name} is defined with {method.transform!r}")
    shot = episodes.get("shot") if isinstance(episodes, dict) else None
    if method.needs_support and 0 in (shot if isinstance(shot, list) else [shot]):
        problems.append(f"episodes.shot = {shot}: {name} trains on the support; draw at least 1")
    if method.needs_support and "batches" in raw:
        problems.append(f"[batches]: {name} trains on the support, which batches do not have; give it [episodes]")
    return problems


def _tables(section: Any) -> tuple[str, ...]:
    """Name the tables of the encoder, which may have an optimiser of their own."""
    if not isinstance(section, dict) or not isinstance(section.get("name"), str):
        return ()
    name, _ = _named(section)
    cls: type[Encoder] | None = ENCODERS.get(name) if name in ENCODERS.names() else None
    return () if cls is None else cls.tables


def _named(section: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Take a section apart: the name (without what follows a colon) and the options."""
    return section["name"].partition(":")[0], {key: value for key, value in section.items() if key != "name"}
