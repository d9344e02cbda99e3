"""The best path of labels: Viterbi against every path there is, transitions against counts by hand."""

from itertools import pairwise, product
from math import log
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hyperproto.data import Pool
from hyperproto.decisions import make_decision
from hyperproto.decisions.path import Path, abstract_transitions, best_paths
from hyperproto.errors import ConfigError
from hyperproto.methods import METHODS, PAD, Method, Task, make_method
from hyperproto.methods.nearest import NNShot, StructShot
from tests.conftest import blobs
from tests.helpers.predicting import decided
from tests.helpers.random_tasks import make_task
from tests.helpers.tagged import tagged

CLASSES = {name: METHODS.get(name) for name in METHODS.names() if name != "structshot"}
VECTORS = [
    name
    for name, cls in CLASSES.items()
    if cls.reads == "vectors" and "unequal-shots" in cls.traits and not cls.needs_names
]


def build(name: str, **options: Any) -> Method:
    return make_method(name, feature_shape=(6,), **options).eval()


def path_score(path: tuple[int, ...], scores: torch.Tensor, start: torch.Tensor, moves: torch.Tensor) -> float:
    total = float(start[path[0]]) + sum(float(scores[t, label]) for t, label in enumerate(path))
    return total + sum(float(moves[a, b]) for a, b in pairwise(path))


@given(
    lengths=st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=4), min_size=1, max_size=3),
    way=st.integers(1, 3),
    seed=st.integers(0, 1000),
)
@settings(deadline=None)
def test_the_best_path_is_the_best_of_all_paths(lengths: list[list[int]], way: int, seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    words = max(map(sum, lengths))
    scores = torch.randn(len(lengths), words, way, generator=random, dtype=torch.float64)
    start, moves = torch.randn(way, generator=random).double(), torch.randn(way, way, generator=random).double()
    most = max(map(len, lengths))
    offsets = torch.tensor([np.cumsum([0, *row, *[0] * (most - len(row))]).tolist() for row in lengths])
    labels = best_paths(scores, offsets, start, moves)
    for b, row in enumerate(offsets.tolist()):
        for first, stop in pairwise(row):
            if first < stop:
                part = scores[b, first:stop]
                best = max(path_score(path, part, start, moves) for path in product(range(way), repeat=stop - first))
                found = path_score(tuple(labels[b, first:stop].tolist()), part, start, moves)
                assert found == pytest.approx(best)
        assert (labels[b, row[-1] :] == PAD).all()


def test_transitions_are_counted_within_sentences() -> None:
    pool = tagged(["aa.b", ".ab", "b", "..a"])
    start_o, start_i, o_o, o_i, i_o, same, other = abstract_transitions(pool).tolist()
    assert (start_o, start_i) == (2 / 4, 2 / 4)
    assert (o_o, o_i) == (1 / 4, 3 / 4)
    assert (i_o, same, other) == pytest.approx((1 / 3, 1 / 3, 1 / 3))
    images = abstract_transitions(blobs()).tolist()
    assert images == pytest.approx([0, 1, 1 / 2, 1 / 2, 1 / 3, 1 / 3, 1 / 3])  # a source that never occurs: evenly


GIVEN = [0.8, 0.2, 0.9, 0.1, 0.3, 0.6, 0.1]


def test_transitions_are_shared_among_the_types() -> None:
    start, moves = Path(1.0, GIVEN).expanded(3)
    other = 0.1 / 2
    assert start.exp().tolist() == pytest.approx([0.8, *[0.2 / 3] * 3])
    assert moves.exp().tolist() == [
        pytest.approx([0.9, *[0.1 / 3] * 3]),
        pytest.approx([0.3, 0.6, other, other]),
        pytest.approx([0.3, other, 0.6, other]),
        pytest.approx([0.3, other, other, 0.6]),
    ]
    start, moves = Path(0.5, GIVEN).expanded(1)
    assert start.tolist() == pytest.approx([log(p**0.5 / (0.8**0.5 + 0.2**0.5)) for p in (0.8, 0.2)])
    assert moves[1].tolist() == pytest.approx([log(p**0.5 / (0.3**0.5 + 0.6**0.5)) for p in (0.3, 0.6)])
    never = Path(0.32, [1, 0, 1, 0, 1, 0, 0]).expanded(2)[1]
    assert never[0].exp().tolist() == pytest.approx([1, 1e-6, 1e-6])


def sentence_task(values: list[float], support: list[float], labels: list[int]) -> Task:
    """One sentence of words that are numbers."""
    query = torch.tensor(values)[None, :, None]
    offsets = torch.tensor([[0, len(values)]])
    return Task(
        torch.tensor(support)[None, :, None], torch.tensor(labels)[None], query, None, torch.arange(3)[None], offsets
    )


def test_transitions_mend_a_word_that_could_be_either() -> None:
    """A word between two of type 1 that lies a little nearer to type 2 becomes type 1, unless words are very sure."""
    task = sentence_task([0.0, 1.0, 1.55, 1.0, 0.0], [0.0, 1.0, 2.0], [0, 1, 2])
    plain = NNShot(feature_shape=(1,), n_classes=0)
    assert decided(plain, task).tolist() == [[0, 1, 2, 1, 0]]
    for temperature, middle in ((0.1, 1), (0.001, 2)):
        moves = [0.9, 0.1, 0.9, 0.1, 0.3, 0.69, 0.01]
        struct = StructShot(feature_shape=(1,), n_classes=0, temperature=temperature)
        decision = make_decision(struct, {"tau": 1.0, "transitions": moves})
        assert decided(struct, task, decision).tolist() == [[0, 1, middle, 1, 0]]


def test_without_training_data_the_labels_are_nnshots() -> None:
    task = make_task(counts=(3, 2, 2))
    plain, struct = build("nnshot"), build("structshot")
    assert torch.equal(decided(struct, task), decided(plain, task))
    decision = make_decision(struct, {})
    missing = [decision.missing]
    for pool in (blobs(), tagged(["aa.b", "..ab"])):  # items of one unit have no path
        decision.read_labels(pool)
        missing.append(decision.missing)
    assert missing == ["transitions", "transitions", None]
    assert decision.path is not None
    assert decision.path.tau == 0.32  # the toolkit's
    assert decision.path.transitions.tolist() == abstract_transitions(tagged(["aa.b", "..ab"])).tolist()
    given = make_decision(struct, {"transitions": GIVEN})
    given.read_labels(tagged(["aa.b", "..ab"]))
    assert given.path is not None
    assert given.path.transitions.tolist() == pytest.approx(GIVEN)


@pytest.mark.parametrize("name", VECTORS)
def test_every_method_finds_the_best_path_if_asked_to(name: str) -> None:
    task = make_task(counts=(3, 2, 2))
    plain = build(name, temperature=0.5, way=3)
    path = make_decision(plain, {"path": True, "transitions": GIVEN, "tau": 0.7})
    scores = plain.scores(task)
    assert make_decision(plain, {}).missing is None
    start, moves = Path(0.7, GIVEN).expanded(2)
    expected = best_paths((scores.double() / 0.5).log_softmax(-1), task.query_offsets, start, moves)
    assert torch.equal(decided(plain, task, path), expected)
    assert torch.equal(decided(plain, task), scores.argmax(-1))
    with pytest.raises(ConfigError, match="tau and transitions apply only with path = true"):
        make_decision(plain, {"tau": 0.3})


def test_one_class_needs_no_path() -> None:
    task = make_task(counts=(3,))
    struct = build("structshot")
    assert not decided(struct, task, make_decision(struct, {"transitions": GIVEN})).any()


@pytest.mark.parametrize("values", [[0.5, 0.5], [-0.1, 1.1, *GIVEN[2:]], [0, 0, *GIVEN[2:]]])
def test_wrong_options_are_refused(values: list[float]) -> None:
    with pytest.raises(ConfigError, match="give seven numbers of at least 0, not all 0 from the same label: start-O"):
        make_decision(build("structshot"), {"transitions": values})
    with pytest.raises(ConfigError, match=r"tau -1\.0 must be from 0, which .* to 1000"):
        make_decision(build("structshot"), {"tau": -1.0})
    with pytest.raises(ConfigError, match="there is no option of decision 'after StructShot' called 'taw'"):
        make_decision(build("structshot"), {"taw": 1.0})
    assert {"nnshot", "structshot"} <= set(METHODS.names())


def test_a_pool_may_hold_sentences_without_words() -> None:
    pool = Pool([["a"], [], ["b", "c"], []], np.array([0, -1, 0]), ("x",), offsets=np.array([0, 1, 1, 3, 3]))
    assert abstract_transitions(pool).tolist()[:4] == [0.5, 0.5, 0.0, 1.0]
