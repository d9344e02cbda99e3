"""From a recipe's name to a complete, checked recipe: names, options and optimisers all at once."""

from typing import Any

from hyperproto.data import Pool
from hyperproto.encoders import ENCODERS, resolve_encoder
from hyperproto.errors import ConfigError, unknown_name
from hyperproto.methods import METHODS, Method
from hyperproto.recipes import Recipe, parse, read_recipe
from hyperproto.registry import Registry, option_problems


def load_recipe(name: str, overrides: list[str] | None = None) -> Recipe:
    """Read and check `NAME`, `NAME:ROW` or a path, with overrides `section.key=value`."""
    raw = read_recipe(name, overrides)
    problems = _registry_problems(ENCODERS, raw.get("encoder")) + _registry_problems(METHODS, raw.get("method"))
    recipe = parse(raw, name, problems)
    method_class: type[Method] = METHODS.get(recipe.method.name)
    method = method_class(
        feature_shape=(1,), n_classes=1, **recipe.method.options
    )  # a tiny one: what does it optimise?
    problems = [
        f"optim.{section}: {unknown_name('optimiser section', section, ['encoder', *method.param_groups()])}"
        for section in recipe.optim
        if section not in ("encoder", *method.param_groups())
    ]
    problems += [
        f"[optim.{group}] is missing: {recipe.method.name} learns it under an optimiser of its own"
        for group in method.param_groups()
        if group not in recipe.optim
    ]
    problems += [
        f"optim.{group}: momentum and weight_decay do not go with rows that are updated only when drawn; leave them out"
        for group in method.param_groups()
        if group in recipe.optim and (recipe.optim[group].momentum or recipe.optim[group].weight_decay)
    ]
    if method.transform is not None and recipe.transform not in (None, method.transform):
        problems.append(f"transform = {recipe.transform!r}: {recipe.method.name} is defined with {method.transform!r}")
    shot = recipe.episodes.shot
    if method.needs_support and 0 in (shot if isinstance(shot, list) else [shot]):
        problems.append(f"episodes.shot = {shot}: {recipe.method.name} trains on the support; draw at least 1")
    if problems:
        raise ConfigError(f"{name}: {len(problems)} problem(s)\n" + "\n".join(f"- {problem}" for problem in problems))
    return recipe.model_copy(update={"transform": recipe.transform or method.transform or "none"})


def resolve(recipe: Recipe, pool: Pool) -> Recipe:
    """Fill in what follows from the training data, so that the run can be rebuilt without it."""
    name, options = resolve_encoder(recipe.encoder.name, recipe.encoder.options, pool)
    encoder = type(recipe.encoder).model_validate({"name": name, **options})
    return recipe.model_copy(update={"encoder": encoder})


def _registry_problems(registry: Registry, section: Any) -> list[str]:
    """Check the name and the options of `[encoder]` or `[method]`; the schema reports what is not even a table."""
    if not isinstance(section, dict) or not isinstance(section.get("name"), str):
        return []
    options = {key: value for key, value in section.items() if key != "name"}
    name = section["name"].partition(":")[0]
    try:
        cls = registry.get(name)
    except ConfigError as error:
        return [f"{registry.kind}.name: {error}"]
    return option_problems(registry.kind, name, cls, options)
