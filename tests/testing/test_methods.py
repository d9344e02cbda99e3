"""Every registered method, held to the contract by the suite that we ship."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hyperproto.methods import METHODS, Group, Method, Task
from hyperproto.testing import check_method, method_checks

CASES = [
    pytest.param(check, id=f"{name}-{words}")
    for name in METHODS.names()
    for words, check in method_checks(METHODS.get(name))
]


@pytest.mark.parametrize("check", CASES)
def test_every_method_keeps_its_contract(check: Callable[[], None]) -> None:
    check()


class Graph(Method):
    """A graph network with no traits: attention between support and queries, for a fixed way and shot."""

    def __init__(self, *, heads: int = 4, **options: Any) -> None:
        super().__init__(**options)
        assert self.way is not None
        [dim] = self.feature_shape
        self.attention = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.head = nn.Linear(dim, self.way)
        self.scale = nn.Parameter(torch.tensor(1.0))

    def scores(self, task: Task) -> Tensor:
        batch, queries = task.query.shape[:2]
        support = task.support.repeat_interleave(queries, 0)  # (B Q, S, D): every query has a graph of its own
        query = task.query.reshape(batch * queries, 1, -1)
        attended, _ = self.attention(query, torch.cat([query, support], 1), torch.cat([query, support], 1))
        scores: Tensor = self.scale * self.head(attended).view(batch, queries, -1)
        return scores

    def param_groups(self) -> dict[str, Group]:
        return {"head": Group([*self.attention.parameters(), *self.head.parameters()]), "scale": Group([self.scale])}


def test_an_honest_method_without_traits_keeps_the_contract() -> None:
    check_method(Graph)
    check_method(Graph, heads=8)


class Means(Method):
    """Minus the distance to the mean of each class, right in every way."""

    traits = frozenset({"any-way", "any-shot", "unequal-shots", "equivariant", "untrained", "translation-free"})

    def scores(self, task: Task) -> Tensor:
        member = (task.support_y[..., None] == torch.arange(task.way)).float()
        means = member.mT @ task.support / member.sum(1)[..., None].clamp(min=1)
        return -torch.cdist(task.query, means, compute_mode="donot_use_mm_for_euclid_dist")


class Loose(Means):
    """Wrong in one way, which a subclass names."""


class WrongShape(Loose):
    """Forgets an axis."""

    def scores(self, task: Task) -> Tensor:
        return super().scores(task)[:, :, :1]


class NotANumber(Loose):
    """Divides by zero."""

    def scores(self, task: Task) -> Tensor:
        return super().scores(task) / 0 * 0


class MixesEpisodes(Loose):
    """Centres over the batch."""

    def scores(self, task: Task) -> Tensor:
        return super().scores(task) * (1 + task.support.mean())


class SeesQueries(Loose):
    """Normalises over the queries."""

    def scores(self, task: Task) -> Tensor:
        lengths: Tensor = task.query.norm(dim=-1)
        return super().scores(task) / lengths.mean(-1)[:, None, None]


class PrefersTheFirst(Loose):
    """Favours a position."""

    def scores(self, task: Task) -> Tensor:
        return super().scores(task) + torch.arange(task.way)


class ReadsPadding(Loose):
    """Takes padding for the last class."""

    def scores(self, task: Task) -> Tensor:
        labels = task.support_y.where(task.support_y >= 0, task.way - 1)
        member = (labels[..., None] == torch.arange(task.way)).float()
        means = member.mT @ task.support / member.sum(1)[..., None].clamp(min=1)
        return -torch.cdist(task.query, means)


class Angles(Loose):
    """Depends on the origin."""

    def scores(self, task: Task) -> Tensor:
        member = (task.support_y[..., None] == torch.arange(task.way)).float()
        means = nn.functional.normalize(member.mT @ task.support, dim=-1)
        return nn.functional.normalize(task.query, dim=-1) @ means.mT


class Blind(Loose):
    """Answers at random, though it calls itself ready."""

    def scores(self, task: Task) -> Tensor:
        return 0 * super().scores(task) + task.query[..., :1] * torch.arange(task.way)


class FixedWay(Loose):
    """Has weights for three classes, though it promises any number."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.bias = nn.Parameter(torch.zeros(3))

    def scores(self, task: Task) -> Tensor:
        return super().scores(task) + self.bias


class Unreached(Loose):
    """Has a parameter that the loss does not know."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.extra = nn.Parameter(torch.zeros(3))


class Detached(Loose):
    """Cuts the gradient."""

    def loss(self, task: Task) -> dict[str, Tensor]:
        return {"cls": super().loss(task)["cls"].detach() + self.log_temperature}


class SaysFrozen(Loose):
    """Trains the encoder, though it says that it does not."""

    learns_encoder = False


class Undecided(Loose):
    """Doubts a class, not a query."""

    def doubt(self, task: Task, scores: Tensor) -> Tensor:
        return scores[..., 0, :]


class TakesPath(Loose):
    """Has an option of the decision's name."""

    def __init__(self, *, path: bool = False, **options: Any) -> None:
        super().__init__(**options)


class SaysSo(Loose):
    """Promises what nobody knows."""

    traits = frozenset({"fast"})


class CreatesLate(Loose):
    """Makes a parameter in setup."""

    def setup(self, pool: Any, features: Any) -> None:
        self.late = nn.Parameter(torch.zeros(1))


class Twice(Loose):
    """Groups a parameter twice."""

    def param_groups(self) -> dict[str, Group]:
        return {"a": Group([self.log_temperature]), "b": Group([self.log_temperature])}


def test_a_right_method_passes() -> None:
    check_method(Means)


@pytest.mark.parametrize(
    ("cls", "words"),
    [
        (WrongShape, "scores .*returned shape"),
        (NotANumber, "scores .*NaN"),
        (MixesEpisodes, "scores differently alone and in a batch"),
        (SeesQueries, "queries see each other"),
        (PrefersTheFirst, "renaming the classes"),
        (ReadsPadding, "padding of a shorter support"),
        (Angles, "moved by 10,000"),
        (Blind, "without training"),
        (FixedWay, "any-way"),
        (Unreached, "no gradient reaches extra"),
        (Detached, "no gradient reaches the encoder"),
        (SaysFrozen, "a gradient reaches the encoder, though learns_encoder is False"),
        (Undecided, "doubt of shape"),
        (TakesPath, r"\['path'\] are options of a decision"),
        (SaysSo, "unknown traits .*fast"),
        (CreatesLate, "names or shapes of parameters"),
        (Twice, "in two groups"),
    ],
)
def test_what_breaks_the_contract_is_named(cls: type[Method], words: str) -> None:
    with pytest.raises(AssertionError, match=f"(?s){cls.__name__} breaks its contract.*{words}"):
        check_method(cls)
