"""Blocks of queries: the same numbers and gradients, and memory below the bound in both passes."""

from functools import partial

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from hyperproto.methods import METHODS, make_method, parts
from hyperproto.methods.parts import in_blocks
from tests.helpers.random_tasks import make_task

BATCH, QUERIES, SUPPORT, DIM = 2, 50, 30, 16
BOUND = 40_000


def work(query: Tensor, support: Tensor, sizes: list[int]) -> Tensor:
    """Compare coordinate by coordinate, (B, q, S, D), and count what is held."""
    difference = (query[:, :, None] - support[:, None]).tanh()
    sizes.append(difference.numel() * difference.element_size())
    return (difference**2).sum((-1, -2), keepdim=False)[..., None]


@pytest.mark.parametrize("grad", [False, True])
def test_blocks_give_the_same_scores_and_gradients_in_bounded_memory(grad: bool) -> None:
    random = torch.Generator().manual_seed(0)
    query, support = (torch.randn(BATCH, n, DIM, generator=random) for n in (QUERIES, SUPPORT))
    found, kept = [], []
    for bound in (1 << 30, BOUND):
        q, s, sizes, saved = query.clone().requires_grad_(grad), support.clone().requires_grad_(grad), [0], [0]

        def keep(tensor: Tensor, saved: list[int] = saved) -> Tensor:
            saved[0] += tensor.numel() * tensor.element_size()
            return tensor

        with saved_tensors_hooks(keep, lambda tensor: tensor), torch.set_grad_enabled(grad):
            scores = in_blocks(partial(work, support=s, sizes=sizes), q, SUPPORT * DIM, most_bytes=bound)
        assert scores.shape == (BATCH, QUERIES, 1)
        found.append([scores.detach()])
        kept.append(saved[0])
        if grad:
            scores.square().sum().backward()  # type: ignore[no-untyped-call]
            assert q.grad is not None
            assert s.grad is not None
            found[-1] += [q.grad, s.grad]
        assert max(sizes) <= max(bound, 4 * BATCH * SUPPORT * DIM)
        assert (len(sizes) - 1 >= 5) == (bound == BOUND)
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-3)
    if grad:
        assert kept[1] < kept[0] / 10  # what a block made is made again on the way back, not kept


def test_one_query_is_the_smallest_block() -> None:
    query = torch.randn(3, 4, 5)
    assert torch.equal(in_blocks(lambda part: part * 2, query, 10**9, most_bytes=1), query * 2)


@pytest.mark.parametrize("name", ["nearest", "nnshot"])
def test_methods_that_compare_with_every_example_keep_to_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    task = make_task(counts=(4, 3, 6), queries=20)
    method = make_method(name, feature_shape=(6,)).eval()
    whole = method(task)
    used: list[int] = []

    def small(score: object, query: Tensor, values: int) -> Tensor:
        used.append(values)
        return in_blocks(score, query, values, most_bytes=1000)  # type: ignore[arg-type]

    module = METHODS.get(name).__module__
    monkeypatch.setattr(f"{module}.in_blocks", small)
    torch.testing.assert_close(method(task), whole)
    assert used
    assert parts.BLOCK_BYTES == 32 << 20
