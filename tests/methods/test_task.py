"""What a task offers to methods, and reductions over positions of which some are padding."""

import pytest
import torch

from hyperproto.errors import ConfigError
from hyperproto.methods.parts import masked_max, masked_mean, masked_softmax
from tests.helpers.random_tasks import make_task


def test_members_of_classes_leave_padding_out() -> None:
    task = make_task((2, 1), pads=2)
    assert task.members()[0].tolist() == [[1, 0], [1, 0], [0, 1], [0, 0], [0, 0]]
    assert task.counts()[0].tolist() == [2, 1]


def test_by_class_keeps_the_order_within_each_class() -> None:
    task = make_task((2, 2, 2), pads=3)
    order = torch.tensor([4, 8, 0, 2, 6, 5, 1, 7, 3])  # padding between the examples
    mixed = type(task)(
        task.support[:, order], task.support_y[:, order], task.query, task.query_y, task.classes, task.query_offsets
    )
    found = mixed.by_class()
    for n in range(3):
        expected = task.support[:, [place for place in order.tolist() if place < 6 and place // 2 == n]]
        assert torch.equal(found[:, n], expected)


def test_unequal_shots_cannot_be_arranged() -> None:
    with pytest.raises(ConfigError, match=r"different numbers of examples \(1, 3\); this method needs equal shots"):
        make_task((3, 1)).by_class()


def test_masked_reductions_ignore_padding() -> None:
    x = torch.tensor([[-3.0, -1.0, 9.0], [5.0, 6.0, 7.0]])
    real = torch.tensor([[True, True, False], [False, False, False]])
    assert masked_softmax(x, real)[0, :2].tolist() == x[0, :2].softmax(0).tolist()
    assert masked_softmax(x, real)[1].tolist() == [0, 0, 0]
    assert masked_mean(x, real, -1).tolist() == [-2, 0]
    assert masked_max(x, real, -1).tolist() == [-1, 0]


def test_a_row_without_real_entries_has_finite_gradients() -> None:
    x = torch.randn(2, 3, requires_grad=True)
    real = torch.tensor([[True, False, True], [False, False, False]])
    (masked_softmax(x, real).square().sum() + masked_max(x, real, -1).sum()).backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    assert x.grad.isfinite().all()
