"""What a recipe may say: strict, and every mistake is reported at once with the nearest valid name."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveFloat, PositiveInt, ValidationError

from hyperproto.errors import ConfigError, unknown_name
from hyperproto.transforms import Transform

Shot = NonNegativeInt | list[NonNegativeInt]  # 0: stored centres need no support in training
SomeShot = PositiveInt | list[PositiveInt]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class _Named(BaseModel):
    """A name from a registry, and that entry's own options, which the registry checks."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    name: str

    @property
    def options(self) -> dict[str, Any]:
        """Everything but the name."""
        return dict(self.__pydantic_extra__ or {})


class Data(_Section):
    """`[data]`: a spec as in `--data`, and the split to train on."""

    spec: str
    split: str = "train"


class Episodes(_Section):
    """`[episodes]`: the training episodes; `batch` of them make one step."""

    way: PositiveInt
    shot: Shot
    query: PositiveInt
    batch: PositiveInt = 1


class Optim(_Section):
    """`[optim.encoder]`, `[optim.radius]`: an optimiser and its learning rate."""

    name: Literal["sgd", "adam", "adamw"] = "adam"
    lr: PositiveFloat
    momentum: float = Field(default=0.0, ge=0, lt=1)
    weight_decay: float = Field(default=0.0, ge=0)


class Training(_Section):
    """`[training]`: how long, how the learning rate moves, how often to look."""

    steps: PositiveInt
    seed: int = Field(default=0, ge=0, lt=2**63)
    schedule: Literal["constant", "linear", "cosine", "step"] = "constant"
    warmup: int = Field(default=0, ge=0)
    decay_every: PositiveInt = 1000
    decay_factor: PositiveFloat = 0.5
    clip_norm: PositiveFloat | None = None
    validate_every: PositiveInt = 100
    patience: PositiveInt | None = None
    checkpoint_every: PositiveInt = 100
    log_every: PositiveInt = 10


class Validation(_Section):
    """`[validation]`: the episodes that choose the best checkpoint; never those that are reported."""

    split: str = "val"
    way: PositiveInt = 5
    shot: SomeShot = 5
    query: PositiveInt = 15
    episodes: int = Field(default=200, ge=2)  # one has no interval
    seed: int = Field(default=1, ge=0, lt=2**63)


class Recipe(_Section):
    """One training run. `cost` and `expected` say, in words, what it takes and the number it should reach."""

    name: str
    description: str = ""
    cost: str = ""
    expected: str = ""
    transform: Transform | None = None
    data: Data
    encoder: _Named
    method: _Named
    episodes: Episodes
    optim: dict[str, Optim]
    training: Training
    validation: Validation = Validation()


def parse(raw: dict[str, Any], where: str, more_problems: list[str] | None = None) -> Recipe:
    """Check a recipe, or raise one ConfigError that holds every problem."""
    problems = list(more_problems or [])
    try:
        recipe = Recipe.model_validate(raw)
        if "encoder" not in recipe.optim:
            problems.append("[optim.encoder] is missing; give it at least a learning rate: lr = 0.001")
    except ValidationError as error:
        places: dict[str, list[str]] = {}  # a value that fits no member of a union is one problem, not several
        for detail in error.errors():
            place, words = _in_words(detail)
            places.setdefault(place, []).append(words)
        problems = [f"{place}{', or '.join(words)}" for place, words in places.items()] + problems
    if problems:
        raise ConfigError(f"{where}: {len(problems)} problem(s)\n" + "\n".join(f"- {problem}" for problem in problems))
    return recipe


def _in_words(detail: Any) -> tuple[str, str]:
    """Where a mistake is, and what it is."""
    path = [str(part) for part in detail["loc"] if "int" not in str(part)]  # without the names of a union's members
    dotted = ".".join(path)
    if detail["type"] == "extra_forbidden":
        return f"{dotted}: ", unknown_name("key", path[-1], _keys_at(path[:-1]))
    if detail["type"] == "missing":
        return f"{dotted} ", "is missing"
    return f"{dotted} = {detail['input']!r}: ", f"{detail['msg'][0].lower()}{detail['msg'][1:]}"


def _keys_at(path: list[str]) -> list[str]:
    """Name the keys that the section at `path` has."""
    model: Any = Recipe
    for part in path:
        model = Optim if part == "optim" else model if model is Optim else model.model_fields[part].annotation
    return list(model.model_fields)
