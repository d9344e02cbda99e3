"""NNShot against nearest neighbour and plain bounds of memory."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from hyperproto.methods import Method, Task, make_method
from tests.helpers.random_tasks import make_task


def build(name: str, **options: Any) -> Method:
    return make_method(name, feature_shape=(6,), **options).eval()


@pytest.mark.parametrize("pads", [0, 3])
@pytest.mark.parametrize("block", [1, 1000, 32 << 20])
def test_nnshot_is_nearest_neighbour_whatever_the_block(monkeypatch: pytest.MonkeyPatch, pads: int, block: int) -> None:
    monkeypatch.setattr("hyperproto.methods.parts.BLOCK_BYTES", block)
    task = make_task(counts=(7, 1, 5), pads=pads)
    torch.testing.assert_close(build("nnshot").scores(task), build("nearest").scores(task), rtol=1e-4, atol=1e-4)


def test_nnshot_learns_as_nearest_neighbour_does() -> None:
    gradients = []
    for name in ("nnshot", "nearest"):
        task = make_task(counts=(4, 2, 5), pads=1)
        support, query = task.support.requires_grad_(), task.query.requires_grad_()
        torch.autograd.backward(build(name).loss(replace(task, support=support, query=query))["cls"])
        gradients.append((support.grad, query.grad))
    for ours, plain in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-5)


def test_a_class_without_support_is_never_chosen() -> None:
    task = make_task(counts=(3, 2, 2))
    task = replace(task, support_y=task.support_y.masked_fill(task.support_y == 0, 1))
    scores = build("nnshot").scores(task)
    assert (scores[..., 0] == -torch.inf).all()
    assert scores[..., 1:].isfinite().all()


def largest_tensor(method: Method, task: Task) -> int:
    """Bytes of the largest tensor that scoring makes."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call] # of torch
        largest = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor):
                self.largest = max(self.largest, out.numel() * out.element_size())
            return out

    watch = Watch()  # type: ignore[no-untyped-call]
    with watch, torch.no_grad():
        method.scores(task)
    return watch.largest


def test_memory_stays_bounded_with_many_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty shots are thousands of support words: no tensor may hold a number, let alone a vector, for every pair."""
    monkeypatch.setattr("hyperproto.methods.parts.BLOCK_BYTES", 1 << 20)
    task = make_task(counts=(700, 20, 20), queries=300, dim=64, batch=1)
    pairs = 4 * task.query.shape[1] * task.support.shape[1]
    assert largest_tensor(make_method("nnshot", feature_shape=(64,)), task) <= 1 << 20 < pairs
