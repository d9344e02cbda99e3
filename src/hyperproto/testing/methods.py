"""check_method: the contract of a method as a function, on a small pool with a trainable encoder."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor, nn

from hyperproto.data import IntArray, Pool
from hyperproto.decisions import DECISION_OPTIONS
from hyperproto.encoders import Encoder, Features, FeatureTransform, Units
from hyperproto.encoders.class_names import ClassNames, NameEncoder
from hyperproto.episodes import Episode, EpisodeSampler
from hyperproto.errors import ConfigError
from hyperproto.evaluation import EncodedPool, Predictor, score_episodes
from hyperproto.methods import TRAITS, Method, Task, TaskItems, gather_task, with_names
from hyperproto.methods.base import Reads
from hyperproto.registry import TRANSFORMS, keywords

SHAPES: dict[str, tuple[int, ...]] = {"vectors": (24,), "maps": (8, 3, 3), "tokens": (-1, 8), "items": (24,)}
LONGEST = 5  # tokens
WAY, SHOT, QUERY, UNLABELLED = 3, 2, 4, 6
NAME_SIZE = 384  # dimensions of a class name's vector, those of MiniLM
TOLERANCE = 1e-3


def check_method(cls: type[Method], **options: Any) -> None:
    """Check that a method, built with these options, keeps the contract and each trait of its class.

    Raise one AssertionError that lists every failed check.
    """
    failed = []
    for name, check in method_checks(cls, **options):
        try:
            check()
        except Exception as error:  # a method may raise any exception
            reason = str(error).strip().partition("\n")[0]
            failed.append(f"- {name}: {type(error).__name__}: {reason}")
    if failed:
        raise AssertionError(f"{cls.__name__} breaks its contract\n" + "\n".join(failed))


def method_checks(cls: type[Method], **options: Any) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield the checks that apply to a class, with their names, for one test each."""
    yield "declared", partial(_declared, cls)
    for fit in cls.fits:
        bench = Bench(cls, {**options, "fit": fit})
        for check in ALWAYS:
            yield f"{check.__name__.strip('_')} [{fit}]", partial(check, bench)
        for trait, check in BY_TRAIT.items():
            if trait in cls.traits:
                yield f"{trait} [{fit}]", partial(check, bench)
        if "transductive" not in cls.traits:
            yield f"queries_alone [{fit}]", partial(_queries_alone, bench)
    bench = Bench(cls, options)
    for check in TRAINED:
        yield check.__name__.strip("_"), partial(check, bench)


class LinearEncoder(Encoder):
    """Trainable linear layer, initially the identity, on vectors reshaped to the units of a method."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.feature_shape = shape
        self.weight = nn.Parameter(torch.eye(_size(shape)))

    def collate(self, prepared: Any, index: IntArray) -> Tensor:
        """Return the vectors of some items."""
        return torch.from_numpy(prepared[index])

    def collate_pairs(self, prepared: Any, first: IntArray, second: IntArray) -> Tensor:
        """Return the product of the vectors of each pair, which is larger within a class."""
        return torch.from_numpy(prepared[first] * prepared[second])

    def forward(self, batch: Tensor) -> Units:
        """Apply the layer and reshape the vectors."""
        return Units.one_each((batch @ self.weight).view(-1, *self.feature_shape))


class PictureEncoder(Encoder):
    """Linear layer with stages, initially the identity, on vectors read as images of 2 x 2 pixels."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.feature_shape = shape
        self.layer = nn.Linear(_size(shape), _size(shape), bias=False)
        nn.init.eye_(self.layer.weight)

    def collate(self, prepared: Any, index: IntArray) -> Tensor:
        """Return the vectors of some items as images (n, C, 2, 2)."""
        return torch.from_numpy(prepared[index]).view(len(index), -1, 2, 2)

    def stages(self) -> list[nn.Module]:
        """Return two stages: the layer and the identity."""
        return [nn.Sequential(nn.Flatten(), self.layer), nn.Identity()]

    def forward(self, batch: Tensor) -> Units:
        """Flatten the images and apply the layer."""
        return Units.one_each(self.layer(batch.flatten(1)))


class TokenEncoder(LinearEncoder):
    """Token states of unequal length with their mask; item n has 1 + n mod LONGEST tokens."""

    def lengths(self, prepared: Any) -> IntArray:
        """Return the number of tokens of each item."""
        return 1 + np.arange(len(prepared)) % LONGEST

    def collate(self, prepared: Any, index: IntArray) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        """Return the vectors of some items and their numbers of tokens."""
        return super().collate(prepared, index), torch.from_numpy(self.lengths(prepared)[index])

    def forward(self, batch: tuple[Tensor, Tensor]) -> Units:  # type: ignore[override]
        """Apply the layer and split the vectors into tokens (n, L, C), padded with zeros to the longest item."""
        vectors, lengths = batch
        longest = int(lengths.max())
        real = torch.arange(longest) < lengths[:, None]  # (n, L)
        x = (vectors @ self.weight).view(len(vectors), LONGEST, -1)[:, :longest]
        return Units.one_each(x.masked_fill(~real[..., None], 0.0), real)


def _size(shape: tuple[int, ...]) -> int:
    """Return the size of a unit, for token states that of the longest."""
    return int(np.prod([LONGEST if axis == -1 else axis for axis in shape]))


class RandomNames(NameEncoder):
    """Random unit vectors as class names, a function of the text."""

    def __init__(self, size: int) -> None:
        super().__init__("labels", "random")
        self.size = size

    def vectors(self, texts: Sequence[str]) -> Tensor:
        """Draw a vector for each text, seeded by the text."""
        drawn = [np.random.default_rng(list(text.encode())).normal(size=self.size) for text in texts]
        return torch.tensor(np.array([x / np.linalg.norm(x) for x in drawn]), dtype=torch.float32)


@dataclass(frozen=True, eq=False)
class Bench:
    """A seeded pool, encoder and episodes to check a method on."""

    cls: type[Method]
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the units that the method reads."""
        return SHAPES[self.cls.reads]

    def pool(self, shift: float = 0.0) -> Pool:
        """Build a pool of eight isotropic classes with 30 vectors each, moved by `shift` along every axis."""
        random, dim = np.random.default_rng(0), _size(self.shape)
        labels = np.repeat(np.arange(8), 30)
        x = random.normal(size=(8, dim))[labels] / 2 + random.normal(size=(len(labels), dim))
        names = tuple(f"class {n}" for n in range(8))
        return Pool((x + shift).astype(np.float32), labels, names, name="bench")

    def features(self) -> Features:
        """Build features with a trainable encoder and no transform."""
        encoder: Encoder = TokenEncoder(self.shape) if self.cls.reads == "tokens" else LinearEncoder(self.shape)
        if self.cls.trains_on_items:
            encoder = PictureEncoder(self.shape)
        return Features(encoder, FeatureTransform("none", self.shape))

    def build(self, **changes: Any) -> Method:
        """Build the method as a recipe would, with a fixed seed, and let it read the pool."""
        method, pool = self._made(**changes), self.pool()
        method.read_pool(pool, self._class_names(pool))
        return method

    def _made(self, **changes: Any) -> Method:
        given: dict[str, Any] = {"feature_shape": self.shape, "n_classes": 8}
        given |= {key: value for key, value in (("way", WAY), ("shot", SHOT)) if f"any-{key}" not in self.cls.traits}
        if "init_shot" in keywords(self.cls):
            given["init_shot"] = 5  # training takes it from the episodes
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return self.cls(**{**given, **self.options, **changes})

    @property
    def names(self) -> NameEncoder | None:
        """Encoder of class names, for a method that needs them."""
        if not self.cls.needs_names:
            return None
        return RandomNames(_size(self.shape) if "names" in self._made().uses_evidence else NAME_SIZE)

    def _class_names(self, pool: Pool) -> ClassNames | None:
        return None if self.names is None else self.names.of(pool, self.features())

    def ready(self, **changes: Any) -> tuple[Method, Features]:
        """Return the initialised method and its features."""
        method, features = self.build(**changes), self.features()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            method.setup(self.pool(), features.eval())
        return method, features

    def episodes(self, count: int = 2, way: int = WAY, shot: int | Sequence[int] = SHOT) -> list[Episode]:
        """Draw episodes of the pool."""
        return EpisodeSampler(self.pool(), way=way, shot=shot, query=QUERY, seed=0).draw(count)

    def task(self, features: Features, episodes: Sequence[Episode]) -> Task:
        """Encode the episodes in the form that the method reads, with gradients."""
        pool = self.pool()
        if self.cls.reads == "items":
            named = TaskItems.of(features, pool, episodes)
            task = gather_task(named.units, episodes, named)
        else:
            units = features(features.batch(features.prepared(pool), np.arange(len(pool))))
            items = TaskItems.of(features, pool, episodes) if self.cls.trains_on_items else None
            task = gather_task(units, episodes, items)
            if self.build().needs_unlabelled:
                shape = len(episodes), UNLABELLED
                task = task.with_evidence(unlabelled=units.x[: len(episodes) * UNLABELLED].unflatten(0, shape))
        return with_names(task, self._class_names(pool))

    def scores(self, episodes: Sequence[Episode], shift: float = 0.0, pool: Pool | None = None) -> list[Tensor]:
        """Return the scores (Q, N) of each episode, computed as in an evaluation."""
        method, features = self.ready()
        pool = self.pool(shift) if pool is None else pool
        encoded = (
            EncodedPool.unread(features.encoder, pool)
            if method.reads == "items"
            else EncodedPool.encode(features.encoder, pool)
        )
        predictor = Predictor.of(method, features.encoder, names=self.names)
        found = score_episodes(predictor, encoded, episodes)
        scores = [row for _, block in found for row in block]
        return [row[: len(episode.query)] for row, episode in zip(scores, episodes, strict=True)]


def _declared(cls: type[Method]) -> None:
    """Check the class attributes."""
    assert issubclass(cls, Method), "not a subclass of hyperproto.methods.Method"
    assert cls.__doc__, "no docstring: describe what it computes, and cite the paper"
    assert cls.traits <= TRAITS.keys(), f"unknown traits {sorted(cls.traits - TRAITS.keys())}; known: {sorted(TRAITS)}"
    assert cls.reads in get_args(Reads), f"reads = {cls.reads!r}; known: {get_args(Reads)}"
    assert cls.fits, "fits is empty; a method has at least one closed form"
    assert set(cls.transforms or ()) <= set(TRANSFORMS), f"unknown transforms {cls.transforms}; known: {TRANSFORMS}"
    taken = keywords(cls).keys() & DECISION_OPTIONS.keys()
    assert not taken, f"options {sorted(taken)} are options of a decision; rename them"


def _scores(bench: Bench) -> None:
    """Check that scores (Q, N) are finite and do not depend on other episodes of the batch."""
    episodes = bench.episodes(3)
    together = bench.scores(episodes)
    for episode, scores in zip(episodes, together, strict=True):
        assert scores.shape == (len(episode.query), episode.way), f"scores of shape {tuple(scores.shape)}"
        assert scores.isfinite().all(), "scores are not finite"
        _close(bench.scores([episode])[0], scores, "an episode scores differently alone and in a batch")


def _doubt(bench: Bench) -> None:
    """Check that the score for "none of these" has one finite number a query."""
    method, features = bench.ready()
    task = bench.task(features, bench.episodes())
    with torch.no_grad():
        doubt = method.eval().doubt(task, method(task))
    if doubt is not None:
        assert doubt.shape == task.query.shape[:2], f"doubt of shape {tuple(doubt.shape)}, not (episodes, queries)"
        assert doubt.isfinite().all(), "doubt is not finite"


def _queries_alone(bench: Bench) -> None:
    """Check that the scores of a query depend neither on the other queries nor on their order."""
    [episode] = bench.episodes(1)
    [scores] = bench.scores([episode])
    order = np.random.default_rng(0).permutation(len(episode.query))
    _close(bench.scores([_with_queries(episode, order)])[0], scores[order], "the order of the queries matters")
    _close(bench.scores([_with_queries(episode, order[:1])])[0], scores[order[:1]], "queries see each other")


def _any_way(bench: Bench) -> None:
    for way in (1, 2, 7):
        episodes = bench.episodes(way=way)
        for scores in bench.scores(episodes):
            assert scores.shape[-1] == way
            assert scores.isfinite().all(), f"scores of {way} classes are not finite"


def _any_shot(bench: Bench) -> None:
    for shot in (1, 5):
        for scores in bench.scores(bench.episodes(shot=shot)):
            assert scores.isfinite().all(), f"scores of {shot} shots are not finite"


def _unequal_shots(bench: Bench) -> None:
    """Check unequal shots, also in a batch with episodes of more support, where the support is padded."""
    few, many = bench.episodes(1, shot=(1, 2, 4))[0], bench.episodes(1, shot=(2, 6, 3))[0]
    alone, beside = bench.scores([few])[0], bench.scores([few, many])[0]
    assert alone.isfinite().all(), "scores of unequal shots are not finite"
    _close(beside, alone, "the padding of a shorter support is read as examples")


def _equivariant(bench: Bench) -> None:
    [episode] = bench.episodes(1)
    order = np.array([2, 0, 1])  # new label n is old label order[n]
    new = np.argsort(order)
    renamed = replace(episode, classes=episode.classes[order], support_y=new[episode.support_y])
    _close(bench.scores([renamed])[0], bench.scores([episode])[0][:, order], "renaming the classes changes scores")


def _untrained(bench: Bench) -> None:
    episodes = bench.episodes(40, shot=SHOT if "any-shot" not in bench.cls.traits else 5)
    right = [(s.argmax(-1).numpy() == e.query_y).mean() for s, e in zip(bench.scores(episodes), episodes, strict=True)]
    assert np.mean(right) > 0.6, f"accuracy {np.mean(right):.2f} on three round classes, without training"


def _translation_free(bench: Bench) -> None:
    episodes = bench.episodes(20)
    here, there = bench.scores(episodes), bench.scores(episodes, shift=1e4)
    same = np.mean([(a.argmax(-1) == b.argmax(-1)).float().mean() for a, b in zip(here, there, strict=True)])
    assert same > 0.98, f"{100 * (1 - same):.0f} % of the answers change when all vectors are moved by 10,000"


def _transductive(bench: Bench) -> None:
    [episode] = bench.episodes(1)
    order = np.arange(len(episode.query))
    alone = bench.scores([_with_queries(episode, order[:1])])[0]
    assert not torch.allclose(alone, bench.scores([episode])[0][:1], atol=1e-6), "no query sees another"


def _gradients(bench: Bench) -> None:
    """Check that losses are finite scalars and that gradients reach all trainable parameters.

    They must reach the encoder if and only if `learns_encoder` is true.
    """
    method, features = bench.ready(learn_temperature=True)
    method.train()
    task = bench.task(features.train(), bench.episodes())
    losses = method.loss(task)
    assert losses, "no loss"
    assert all(part.ndim == 0 and part.isfinite() for part in losses.values()), "a part of the loss is no finite number"
    torch.stack(list(losses.values())).sum().backward()  # type: ignore[no-untyped-call]
    _check_opponent(method, task)
    reached = [p for p in features.parameters() if p.grad is not None and p.grad.abs().sum() > 0]
    assert reached or not method.learns_encoder, "no gradient reaches the encoder"
    assert not reached or method.learns_encoder, "a gradient reaches the encoder, though learns_encoder is False"
    for name, parameter in method.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None, f"no gradient reaches {name}"
            assert parameter.grad.to_dense().isfinite().all(), f"the gradient of {name} is not finite"


def _check_opponent(method: Method, task: Task) -> None:
    """Check that an opponent has a loss, and that its gradient reaches all of the opponent's parameters."""
    params = [p for group in method.param_groups().values() if group.opponent for p in group.params]
    losses = list(method.opponent_loss(task.detached()).values())
    assert bool(params) == bool(losses), "groups marked opponent and an opponent_loss go together"
    if losses:
        for gradient in torch.autograd.grad(torch.stack(losses).sum(), params, allow_unused=True):
            assert gradient is not None, "opponent_loss does not reach a parameter of the opponent"
            assert gradient.isfinite().all(), "a gradient of opponent_loss is not finite"


def _setup(bench: Bench) -> None:
    """Check that `setup` creates no parameters, and that parameter groups do not overlap."""
    made, (filled, _) = bench.build(), bench.ready()
    shapes = [{key: value.shape for key, value in each.state_dict().items()} for each in (made, filled)]
    assert shapes[0] == shapes[1], "setup changes the names or shapes of parameters"
    grouped = [p for group in filled.param_groups().values() for p in group.params]
    assert {id(p) for p in grouped} <= {id(p) for p in filled.parameters()}, (
        "param_groups holds a tensor that is no parameter"
    )
    assert len({id(p) for p in grouped}) == len(grouped), "a parameter is in two groups"


def _state(bench: Bench) -> None:
    """Check that the same seed, or a saved and loaded state, gives the same scores and losses."""
    (first, features), (second, _), third = bench.ready(), bench.ready(), bench.build()
    third.load_state_dict(first.state_dict())
    task = bench.task(features, bench.episodes())
    for words, other in (("from the same seed", second), ("with its state", third)):
        with torch.no_grad():
            first.eval(), other.eval()
            assert torch.equal(first(task), other(task)), f"another {words} has other scores"
        for key, part in _drawn_loss(first, task).items():
            assert torch.equal(part, _drawn_loss(other, task)[key]), f"another {words} has another loss"


def _drawn_loss(method: Method, task: Task) -> dict[str, Tensor]:
    """Return the losses, computed with a fixed random seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return method.loss(task)


def _wrong_shape(bench: Bench) -> None:
    """Check that units of a shape that the method cannot read raise a ConfigError."""
    for kind, shape in SHAPES.items():
        if "items" in (kind, bench.cls.reads) or kind == bench.cls.reads:
            continue
        try:
            bench.build(feature_shape=shape)
        except ConfigError:
            continue
        raise AssertionError(f"{kind} of shape {shape} are accepted by a method that reads {bench.cls.reads}")


def _with_queries(episode: Episode, order: IntArray) -> Episode:
    return replace(
        episode, query=episode.query[order], query_y=None if episode.query_y is None else episode.query_y[order]
    )


def _close(found: Tensor, expected: Tensor, words: str) -> None:
    assert torch.allclose(found, expected, rtol=TOLERANCE, atol=TOLERANCE), (
        f"{words} (by {(found - expected).abs().max():.2g})"
    )


ALWAYS = (_scores, _doubt)
TRAINED = (_gradients, _setup, _state, _wrong_shape)
BY_TRAIT = {
    "any-way": _any_way,
    "any-shot": _any_shot,
    "unequal-shots": _unequal_shots,
    "equivariant": _equivariant,
    "untrained": _untrained,
    "translation-free": _translation_free,
    "transductive": _transductive,
}
