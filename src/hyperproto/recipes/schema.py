"""Recipe schema (pydantic, strict): every mistake is reported at once, with the nearest valid name."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, ValidationError, create_model

from hyperproto.errors import ConfigError, unknown_name
from hyperproto.options import SamplerOptions, declared
from hyperproto.registry import Transform

WORDS = ("name", "description", "cost", "expected", "paper")  # keys of a recipe that only describe a run

DRAWS = ("episodes", "batches", "pairs")  # sections that define a training step; a recipe has one of them

PositiveInt = Annotated[int, Field(gt=0, lt=2**31)]
NonNegativeInt = Annotated[int, Field(ge=0, lt=2**31)]
Shot = NonNegativeInt | list[NonNegativeInt]  # 0: no support, as stored centres need none in training
SomeShot = PositiveInt | list[PositiveInt]


class Section(BaseModel):
    """A table of TOML, strict: unknown keys and values of other types are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class _Named(BaseModel):
    """A name of a registry, with options that the registry checks."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    name: str

    @property
    def options(self) -> dict[str, Any]:
        """Return all options except the name."""
        return dict(self.__pydantic_extra__ or {})


class Data(Section):
    """`[data]`: a spec as in `--data`, and the split to train on."""

    spec: str
    split: str = "train"


_SAMPLER_FIELDS = {
    name: (hint, Field(default=option.default, ge=option.least))
    for name, (hint, option) in declared(SamplerOptions).items()
    if option.in_recipes
}
_SamplerFields: Any = create_model("_SamplerFields", __base__=Section, **_SAMPLER_FIELDS)  # type: ignore[call-overload]


class Sampled(_SamplerFields):  # type: ignore[misc] # its fields are those of `SamplerOptions`
    """Sampler options of a recipe besides way, shot and query; see `options.SamplerOptions`."""

    def sampler_options(self) -> dict[str, Any]:
        """Return the options as arguments of `make_sampler`."""
        return {name: getattr(self, name) for name in _SAMPLER_FIELDS}


class Episodes(Sampled):
    """`[episodes]`: training episodes, `batch` of them in a step. `way = "all"` draws every training class.

    See `EpisodeSampler` for `noise_rate` and `most_shots`.
    """

    way: PositiveInt | Literal["all"]
    shot: Shot
    query: PositiveInt
    batch: PositiveInt = 1
    noise_rate: float | None = Field(default=None, ge=0, le=1)
    most_shots: PositiveInt | None = None


class Unlabelled(Section):
    """`[unlabelled]`: unlabelled items of another data set or split that a step uses besides its episodes.

    `number` of them are drawn for each episode, each at most once a step. None: as many as the episode's support, at
    most `most` a step.
    """

    data: str
    split: str = "unlabelled"
    number: PositiveInt | None = None
    most: PositiveInt = 256


class Batches(Section):
    """`[batches]`, instead of `[episodes]`: items of all classes, for pre-training a classifier."""

    size: PositiveInt


class Pairs(Section):
    """`[pairs]`, instead of `[episodes]`: positive and negative pairs of sentences, for pre-training.

    A pair is positive if head and tail have the same ids, or if the labels are equal; see `PairSampler`.
    """

    size: PositiveInt = 16
    source: Literal["identities", "labels"] = "identities"
    blanks: float = Field(default=0.7, ge=0, le=1)  # probability of replacing an entity by a blank


class Augmentation(Section):
    """`[augmentation]` of training images: padding in pixels for random crops, flips, colour jitter."""

    crop: int = Field(default=0, ge=0)
    flip: bool = False
    jitter: float = Field(default=0.0, ge=0, le=1)

    @property
    def varies(self) -> bool:
        """True if any augmentation is on."""
        return bool(self.crop or self.flip or self.jitter)


class Clipping(Section):
    """Gradient clipping: by the norm over a section's parameters, by coordinate, and by the norm of each tensor."""

    clip_norm: PositiveFloat | None = None
    clip_value: PositiveFloat | None = None
    clip_each: PositiveFloat | None = None


class DecisionOptions(Section):
    """`[decision]`: rule from scores to labels; unset options have the method's defaults. See `decisions`."""

    path: bool | None = None
    tau: float | None = None
    transitions: list[float] | None = None
    outside_weight: float | None = None

    @property
    def options(self) -> dict[str, Any]:
        """Return the options that were set explicitly."""
        return {name: value for name, value in self if value is not None}


class Names(Section):
    """`[names]`: texts of classes, and the encoder that reads them.

    `source` is "labels" (in words), "descriptions" (of Wikidata's relations) or a JSON file `{class: text}`. `encoder`
    is a frozen sentence encoder such as "minilm" or "glove" (mean word vectors); "same" is the trained encoder, with
    gradients.
    """

    source: str = "labels"
    encoder: str = "same"


Decay = Annotated[float, Field(ge=0, lt=1)]


class Optim(Clipping):
    """`[optim.encoder]`, `[optim.radius]`: an optimiser and its learning rate.

    `scheduled`: whether warm-up and schedule scale the rate; by default for sections of the encoder, but not of the
    method (the paper's optimiser of the radius is independent). `dense`: use plain Adam for a table, in which momentum
    also moves rows that a step did not draw. `betas`: Adam's decay rates of the two moments.
    """

    name: Literal["sgd", "adam", "adamw"] = "adam"
    lr: PositiveFloat
    momentum: float = Field(default=0.0, ge=0, lt=1)
    betas: tuple[Decay, Decay] = Field(default=(0.9, 0.999), strict=False)  # TOML has lists
    weight_decay: float = Field(default=0.0, ge=0)
    scheduled: bool | None = None
    dense: bool = False


class Training(Section):
    """`[training]`: number of steps, learning-rate schedule, intervals of validation and logging.

    `precision = "bfloat16"` computes the encoder's matrix products in training with 8 bits instead of 24, which is
    faster on processors with such instructions. Weights, losses and evaluation are unaffected.
    """

    steps: PositiveInt
    seed: int = Field(default=0, ge=0, lt=2**63)
    schedule: Literal["constant", "linear", "cosine", "step"] = "constant"
    warmup: int = Field(default=0, ge=0)
    decay_every: PositiveInt = 1000
    decay_factor: PositiveFloat = 0.5
    clip_norm: PositiveFloat | None = None
    precision: Literal["bfloat16"] | None = None
    validate_every: PositiveInt = 100
    patience: PositiveInt | None = None
    checkpoint_every: PositiveInt = 100
    log_every: PositiveInt = 10


class Validation(Sampled):
    """`[validation]`: episodes that select the best checkpoint; never those of reported results."""

    spec: str | None = None  # data spec; None: that of training
    split: str = "val"
    way: PositiveInt = 5
    shot: SomeShot = 5
    query: PositiveInt = 15
    episodes: int = Field(default=200, ge=2)  # an interval needs two
    seed: int = Field(default=1, ge=0, lt=2**63)


class Paper(Section):
    """`[paper]`: the published row that a run reproduces, in full or at a smaller scale (see `note`)."""

    table: str  # a recipe file with a [table]: table3
    method: str
    backbone: str
    columns: list[str] | None = None  # of the table; None: all
    episodes: Annotated[int, Field(ge=2)] | None = None  # use only the first episodes, for a costly method; None: all
    note: str = ""


class Start(Section):
    """`[start]`: another recipe (trained first, beside this run) or the folder of a run, whose encoder is copied.

    `heads` names parts of its method to copy as well (prefixes of parameter names).
    """

    recipe: str
    weights: Literal["best", "last"] = "best"  # best by validation, or of the last step
    heads: list[str] = Field(default_factory=list)


class Recipe(Section):
    """A training run. `cost` and `expected` describe its time and its expected result.

    `start` is the recipe or the folder of a run whose encoder is copied, as a name or in full (`Start`).
    """

    name: str
    description: str = ""
    cost: str = ""
    expected: str = ""
    transform: Transform | None = None
    data: Data
    encoder: _Named
    method: _Named
    decision: DecisionOptions = DecisionOptions()
    names: Names | None = None
    start: str | Start | None = None
    episodes: Episodes | None = None
    batches: Batches | None = None
    pairs: Pairs | None = None
    unlabelled: Unlabelled | None = None
    augmentation: Augmentation | None = None
    optim: dict[str, Optim]
    training: Training
    validation: Validation = Validation()
    paper: Paper | None = None

    @property
    def stage_before(self) -> Start | None:
        """Start of the run in full, or None."""
        if isinstance(self.start, str):  # `-o start=''` removes a recipe's start
            return Start(recipe=self.start) if self.start else None
        return self.start

    @property
    def validation_spec(self) -> str:
        """Data spec of the validation episodes."""
        return self.validation.spec or self.data.spec

    def optimiser(self, name: str) -> Optim:
        """Return the section `[optim.NAME]`; for an encoder's table without one, that of the encoder."""
        if name in self.optim:
            return self.optim[name]
        return self.optim["encoder"].model_copy(update={"momentum": 0.0, "weight_decay": 0.0})

    def clipping(self, name: str) -> Clipping:
        """Return the gradient clipping of a section; `training.clip_norm` applies to the encoder."""
        own = self.optim.get(name) or Clipping()
        limited = own.clip_norm is not None or name != "encoder"
        return own if limited else own.model_copy(update={"clip_norm": self.training.clip_norm})


def parse(raw: dict[str, Any], where: str, more_problems: list[str] | None = None) -> Recipe:
    """Validate a recipe; raise one ConfigError that lists every problem."""
    problems = list(more_problems or [])
    given = [f"[{key}]" for key in DRAWS if raw.get(key) is not None]
    if len(given) != 1:
        found = " and ".join(given) or "none of them"
        problems.append(f"give one of [episodes], [batches] and [pairs]; found {found}")
    try:
        recipe = Recipe.model_validate(raw)
        if "encoder" not in recipe.optim:
            problems.append("[optim.encoder] is missing; give it at least a learning rate: lr = 0.001")
    except ValidationError as error:
        problems = problems_in_words(error, Recipe) + problems
    if problems:
        raise found_problems(where, problems)
    return recipe


def found_problems(where: str, problems: list[str]) -> ConfigError:
    """Return one error that lists all problems."""
    return ConfigError(f"{where}: {len(problems)} problem(s)\n" + "\n".join(f"- {problem}" for problem in problems))


def problems_in_words(error: ValidationError, model: type[BaseModel]) -> list[str]:
    """Describe each validation error of `model` with its location."""
    places: dict[str, list[str]] = {}  # errors of all members of a union are one problem
    for detail in error.errors():
        place, words = _in_words(detail, model)
        places.setdefault(place, []).append(words)
    return [f"{place}{', or '.join(words)}" for place, words in places.items()]


def _in_words(detail: Any, model: type[BaseModel]) -> tuple[str, str]:
    """Return the location and the description of an error."""
    path = [str(part) for part in detail["loc"] if not _is_member(str(part))]
    dotted = ".".join(path)
    if detail["type"] == "extra_forbidden":
        return f"{dotted}: ", unknown_name("key", path[-1], _keys_at(path[:-1], model))
    if detail["type"] == "missing":
        return f"{dotted} ", "is missing"
    return f"{dotted} = {detail['input']!r}: ", f"{detail['msg'][0].lower()}{detail['msg'][1:]}"


def _is_member(part: str) -> bool:
    """Return True if a part of a path names a member of a union, such as `constrained-int`, `list[int]`, `Start`."""
    return part.rstrip("]").endswith("int") or part.startswith("literal[") or part in ("str", Start.__name__)


def _keys_at(path: list[str], model: type[BaseModel]) -> list[str]:
    """Return the keys of the section at `path`; parts that are not fields are list indices or dict keys."""
    for part in path:
        if part in model.model_fields:
            model = next(_models_in(model.model_fields[part].annotation), model)
    return list(model.model_fields)


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the sections in `Section`, `Section | None`, `list[Section]` and `dict[str, Section]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models_in(inner)
