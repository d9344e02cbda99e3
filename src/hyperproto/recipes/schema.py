"""Recipe schema (pydantic, strict): every mistake is reported at once, with the nearest valid name."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, ValidationError, create_model

from hyperproto.errors import ConfigError, unknown_name
from hyperproto.options import SamplerOptions, declared
from hyperproto.registry import Transform

WORDS = ("name", "description", "cost", "expected", "paper")  # of a recipe: they say what a run is, and change nothing

DRAWS = ("episodes", "batches", "pairs")  # what a step draws; a recipe has one of them

PositiveInt = Annotated[int, Field(gt=0, lt=2**31)]
NonNegativeInt = Annotated[int, Field(ge=0, lt=2**31)]
Shot = NonNegativeInt | list[NonNegativeInt]  # 0: stored centres need no support in training
SomeShot = PositiveInt | list[PositiveInt]


class Section(BaseModel):
    """A table of TOML: no key but its own, no value of another type."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class _Named(BaseModel):
    """A name from a registry, and that entry's own options, which the registry checks."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    name: str

    @property
    def options(self) -> dict[str, Any]:
        """Everything but the name."""
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
    """Settings of a sampler that a recipe may have besides way, shot and query; see `options.SamplerOptions`."""

    def sampler_options(self) -> dict[str, Any]:
        """Return them as arguments of `make_sampler`."""
        return {name: getattr(self, name) for name in _SAMPLER_FIELDS}


class Episodes(Sampled):
    """`[episodes]`: the training episodes; `batch` of them make one step. `way = "all"` draws every training class.

    Each support example is replaced with the probability `noise_rate` by one of a class outside the episode. With
    `most_shots` every class of every episode has a number of examples of its own, from `shot` to `most_shots`.
    """

    way: PositiveInt | Literal["all"]
    shot: Shot
    query: PositiveInt
    batch: PositiveInt = 1
    noise_rate: float | None = Field(default=None, ge=0, le=1)
    most_shots: PositiveInt | None = None


class Unlabelled(Section):
    """`[unlabelled]`: items without labels that a step sees beside its episodes, of another data set or split.

    `number` of them are drawn for each episode, each at most once a step; None: as many as the episode's support has,
    but no more than `most` a step.
    """

    data: str
    split: str = "unlabelled"
    number: PositiveInt | None = None
    most: PositiveInt = 256


class Batches(Section):
    """`[batches]`, in place of `[episodes]`: items of all classes, for whole-classification (pre-training)."""

    size: PositiveInt


class Pairs(Section):
    """`[pairs]`, in place of `[episodes]`: pairs of sentences, and whether they say the same (pre-training).

    They do where head and tail have the same identities, or where the sentences have the same label; see `PairSampler`.
    """

    size: PositiveInt = 16
    source: Literal["identities", "labels"] = "identities"
    blanks: float = Field(default=0.7, ge=0, le=1)  # how likely each entity is replaced by a blank


class Augmentation(Section):
    """`[augmentation]` of training images: pixels of padding for a random crop, mirror images, colour jitter."""

    crop: int = Field(default=0, ge=0)
    flip: bool = False
    jitter: float = Field(default=0.0, ge=0, le=1)

    @property
    def varies(self) -> bool:
        """Whether it does anything: rows of a frozen encoder switch off what their file says."""
        return bool(self.crop or self.flip or self.jitter)


class Clipping(Section):
    """Limits on gradients: of the common norm of a section's parameters, of each coordinate, of each tensor's norm."""

    clip_norm: PositiveFloat | None = None
    clip_value: PositiveFloat | None = None
    clip_each: PositiveFloat | None = None


class DecisionOptions(Section):
    """`[decision]`: how labels follow from scores; what is left out is as the method has it. See `decisions`."""

    path: bool | None = None
    tau: float | None = None
    transitions: list[float] | None = None
    outside_weight: float | None = None

    @property
    def options(self) -> dict[str, Any]:
        """What was said."""
        return {name: value for name, value in self if value is not None}


class Names(Section):
    """`[names]`: which text a class has, and what reads it.

    `source` is "labels" (in words), "descriptions" (of Wikidata's relations) or a file .json, `{class: text}`.
    `encoder` is a sentence encoder, frozen, such as "minilm", or "glove", the mean of word vectors; "same" is the
    encoder that is trained, with gradients.
    """

    source: str = "labels"
    encoder: str = "same"


Decay = Annotated[float, Field(ge=0, lt=1)]


class Optim(Clipping):
    """`[optim.encoder]`, `[optim.radius]`: an optimiser and its learning rate.

    `scheduled` says whether warm-up and schedule scale the rate: by default those of the encoder's sections, not those
    of a method's own (the paper's optimiser of the radius is independent). `dense` is for tables: plain Adam, under
    which rows that a step did not draw go on moving by momentum. `betas` are Adam's decay rates of the two moments.
    """

    name: Literal["sgd", "adam", "adamw"] = "adam"
    lr: PositiveFloat
    momentum: float = Field(default=0.0, ge=0, lt=1)
    betas: tuple[Decay, Decay] = Field(default=(0.9, 0.999), strict=False)  # TOML has lists
    weight_decay: float = Field(default=0.0, ge=0)
    scheduled: bool | None = None
    dense: bool = False


class Training(Section):
    """`[training]`: how long, how the learning rate moves, how often to look.

    `precision = "bfloat16"` computes the encoder's products in training with 8 bits in place of 24, which is faster on
    processors that have such instructions. Weights, losses and evaluation stay as they are.
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
    """`[validation]`: the episodes that choose the best checkpoint; never those that are reported."""

    spec: str | None = None  # of the data; None: those of training
    split: str = "val"
    way: PositiveInt = 5
    shot: SomeShot = 5
    query: PositiveInt = 15
    episodes: int = Field(default=200, ge=2)  # one has no interval
    seed: int = Field(default=1, ge=0, lt=2**63)


class Paper(Section):
    """`[paper]`: the published row that a run reproduces, in full or in small (`note` says how small)."""

    table: str  # a recipe file with a [table]: table3
    method: str
    backbone: str
    columns: list[str] | None = None  # of the table; None: all
    episodes: Annotated[int, Field(ge=2)] | None = None  # of the table's, the first so many: a costly method; None: all
    note: str = ""


class Start(Section):
    """`[start]`: another recipe (trained first, beside this run) or the folder of a run, and what is taken from it.

    Its encoder is; `heads` names parts of its method that are, too (the first words of their parameters' names).
    """

    recipe: str
    weights: Literal["best", "last"] = "best"  # the best by validation, or those of its last step
    heads: list[str] = Field(default_factory=list)


class Recipe(Section):
    """One training run. `cost` and `expected` say, in words, what it takes and the number it should reach.

    `start` names what the encoder starts from, a recipe or the folder of a run; `Start` says more than a name.
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
        """What the run starts from, in full."""
        if isinstance(self.start, str):  # an empty name is none: `-o start=''` takes a recipe's start away
            return Start(recipe=self.start) if self.start else None
        return self.start

    @property
    def validation_spec(self) -> str:
        """The data set that validation episodes are drawn from."""
        return self.validation.spec or self.data.spec

    def optimiser(self, name: str) -> Optim:
        """Return the section `[optim.NAME]`; an encoder's table without one learns as the encoder does."""
        if name in self.optim:
            return self.optim[name]
        return self.optim["encoder"].model_copy(update={"momentum": 0.0, "weight_decay": 0.0})

    def clipping(self, name: str) -> Clipping:
        """Return the limits on the gradients of a section; `training.clip_norm` is the encoder's."""
        own = self.optim.get(name) or Clipping()
        limited = own.clip_norm is not None or name != "encoder"
        return own if limited else own.model_copy(update={"clip_norm": self.training.clip_norm})


def parse(raw: dict[str, Any], where: str, more_problems: list[str] | None = None) -> Recipe:
    """Check a recipe, or raise one ConfigError that holds every problem."""
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
    """Make one error of all that is wrong."""
    return ConfigError(f"{where}: {len(problems)} problem(s)\n" + "\n".join(f"- {problem}" for problem in problems))


def problems_in_words(error: ValidationError, model: type[BaseModel]) -> list[str]:
    """Say where each mistake is, and what it is; `model` is what was to be made."""
    places: dict[str, list[str]] = {}  # a value that fits no member of a union is one problem, not several
    for detail in error.errors():
        place, words = _in_words(detail, model)
        places.setdefault(place, []).append(words)
    return [f"{place}{', or '.join(words)}" for place, words in places.items()]


def _in_words(detail: Any, model: type[BaseModel]) -> tuple[str, str]:
    """Where a mistake is, and what it is."""
    path = [str(part) for part in detail["loc"] if not _is_member(str(part))]
    dotted = ".".join(path)
    if detail["type"] == "extra_forbidden":
        return f"{dotted}: ", unknown_name("key", path[-1], _keys_at(path[:-1], model))
    if detail["type"] == "missing":
        return f"{dotted} ", "is missing"
    return f"{dotted} = {detail['input']!r}: ", f"{detail['msg'][0].lower()}{detail['msg'][1:]}"


def _is_member(part: str) -> bool:
    """Whether a part of a path names a member of a union: `constrained-int`, `list[int]`, `literal['all']`, `Start`."""
    return part.rstrip("]").endswith("int") or part.startswith("literal[") or part in ("str", Start.__name__)


def _keys_at(path: list[str], model: type[BaseModel]) -> list[str]:
    """Name the keys of the section at `path`; a part that is no field is a place in a list, or a key of a dict."""
    for part in path:
        if part in model.model_fields:
            model = next(_models_in(model.model_fields[part].annotation), model)
    return list(model.model_fields)


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Find the sections in `Section`, `Section | None`, `list[Section]` and `dict[str, Section]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models_in(inner)
