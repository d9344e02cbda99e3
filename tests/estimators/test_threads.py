"""Threads that predict while others add: each answer is that of the model before or after a change, never of a mixture.

`functools.cached_property` locks on Python 3.11 and no longer does on 3.12, so these tests run without its lock.
"""

import copy
import pickle
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from threading import Barrier, Event
from typing import Any

import numpy as np
import pytest

from hyperproto.estimators import HypersphereClassifier, state
from hyperproto.estimators.conformal import Conformal
from hyperproto.estimators.snapshot import Snapshot
from hyperproto.regions.left_out import LeftOut
from hyperproto.regions.statistics import FlatStatistics
from tests.estimators.conftest import blobs

THREADS = 4


class LockFree:
    """`cached_property` as Python 3.12 has it."""

    def __init__(self, derive: Callable[[Any], Any]) -> None:
        self.derive = derive

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if self.name not in vars(instance):
            vars(instance)[self.name] = self.derive(instance)
        return vars(instance)[self.name]


def slowly(work: Callable[..., Any]) -> Callable[..., Any]:
    """The same after a pause, in which other threads see what was done before it."""

    def slow(*arguments: Any) -> Any:
        time.sleep(0.005)
        return work(*arguments)

    return slow


@pytest.fixture(autouse=True)
def as_on_3_12(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Derive without a lock, let sums take their time, and switch threads as often as Python can."""
    for name in ("squares_about", "moments_of"):
        monkeypatch.setattr(state, name, slowly(getattr(state, name)))
    for owner in (Snapshot, Conformal, LeftOut, FlatStatistics):
        for name, value in list(vars(owner).items()):
            if isinstance(value, cached_property):
                free = LockFree(value.func)
                free.__set_name__(owner, name)
                monkeypatch.setattr(owner, name, free)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def at_once(work: Callable[[int], Any], threads: int = THREADS) -> list[Any]:
    """Start `work` in several threads at the same moment; return what each gave."""
    ready = Barrier(threads)

    def started(number: int) -> Any:
        ready.wait()
        return work(number)

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(started, range(threads)))


@pytest.mark.parametrize("mode", ["bayes", "unbiased", "point"])
def test_the_first_answers_after_a_fit_are_the_same_in_all_threads(mode: str) -> None:
    """The squares of a first fit are added up when the first thread asks for them; no other may see them missing."""
    x, y = blobs((300, 200, 400), dim=16)
    settings: dict[str, Any] = {"fit_mode": mode, "coverage": 0.9, "feature_transform": "none"}
    expected = HypersphereClassifier(**settings).fit(x, y)
    wanted = expected.predict_proba(x[:20]), expected.thresholds_
    model = HypersphereClassifier(**settings).fit(x, y)
    for found in at_once(lambda _: (model.predict_proba(x[:20]), model.thresholds_)):
        np.testing.assert_array_equal(found[0], wanted[0])
        np.testing.assert_array_equal(found[1], wanted[1])


def test_readers_see_the_old_or_the_new_model_while_examples_come_and_go() -> None:
    x, y = blobs((20, 30, 10), dim=6)
    more, labels = x[:8] + 5, np.array(["new"] * 8)

    def state(model: HypersphereClassifier) -> bytes:
        return pickle.dumps((model.classes_.tolist(), model.predict_proba(x[:5]).tolist()))

    def build() -> HypersphereClassifier:
        return HypersphereClassifier().fit(x, y)

    model, done = build(), Event()
    legal = {state(build()), state(build().partial_fit(more, labels))}
    legal |= {state(build().partial_fit(more, labels).remove_class("new"))}

    def read() -> set[bytes]:
        seen = set()
        while not done.is_set():
            proba = model.predict_proba(x[:5])
            classes = ["a", "b", "c", "new"][: proba.shape[1]]
            seen.add(pickle.dumps((classes, proba.tolist())))
        return seen

    with ThreadPoolExecutor(THREADS) as pool:
        readers = [pool.submit(read) for _ in range(THREADS - 1)]
        try:
            for _ in range(30):
                model.partial_fit(more, labels)
                model.predict(x[:1])
                model.remove_class("new")
        finally:
            done.set()
        seen = set().union(*(reader.result() for reader in readers))
    assert seen <= legal
    assert seen


def test_no_example_of_threads_that_add_at_once_is_lost() -> None:
    x, y = blobs((5, 5), dim=6)
    model = HypersphereClassifier().fit(x, y)

    def add(number: int) -> None:
        for row in range(25):
            model.partial_fit(x[row % 10 : row % 10 + 1] + number, [f"class {number}"])
            model.predict(x[:1])

    at_once(add)
    assert model.counts_.tolist() == [5, 5] + [25] * THREADS
    rows = np.concatenate([x, *(x[[row % 10 for row in range(25)]] + number for number in range(THREADS))])
    labels = np.concatenate([y, np.repeat([f"class {number}" for number in range(THREADS)], 25)])
    np.testing.assert_allclose(model.means_, HypersphereClassifier().fit(rows, labels).means_, rtol=1e-9)


def test_two_that_merge_each_other_do_not_wait_forever() -> None:
    x, y = blobs((5, 5), dim=6)
    pair = [HypersphereClassifier().fit(x + n, y) for n in range(2)]
    at_once(lambda n: pair[n].merge(pair[1 - n]), threads=2)
    assert sorted(int(model.counts_.sum()) for model in pair) in ([20, 20], [20, 30])


def test_what_is_pickled_while_others_add_is_whole() -> None:
    x, y = blobs((20, 30, 10), dim=6)
    model, done = HypersphereClassifier().fit(x, y), Event()

    def write() -> None:
        while not done.is_set():
            model.partial_fit(x[:7], y[:7])

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        try:
            for _ in range(20):
                again = pickle.loads(pickle.dumps(model))
                rows = again._state.rows.size
                assert again.counts_.sum() == rows
                assert (rows - 60) % 7 == 0
        finally:
            done.set()
        writing.result()


def test_a_copy_shares_nothing_that_changes() -> None:
    x, y = blobs()
    model = HypersphereClassifier().fit(x, y)
    before = model.predict_proba(x)
    other = copy.copy(model)
    other.partial_fit(x[:1], ["new"]).forget(x[1:2], y[1:2])
    np.testing.assert_array_equal(model.predict_proba(x), before)
    model.partial_fit(x[:1], ["else"])
    assert "else" not in other.classes_
    assert other.get_params() == model.get_params()
    unfitted = copy.copy(HypersphereClassifier(coverage=0.9))
    assert unfitted.coverage == 0.9
