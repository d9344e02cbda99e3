import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from hyperproto.methods import Group
from hyperproto.recipes import Clipping, Optim, Training
from hyperproto.training.optimisers import RowAdam, clip_gradients, make_optimiser, rate


@settings(deadline=None, max_examples=20)
@given(draws=st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=4), min_size=1, max_size=12))
def test_each_row_moves_as_under_an_adam_of_its_own(draws: list[list[int]]) -> None:
    """The oracle: torch's Adam on every row alone, stepped only when the row was drawn."""
    table = nn.Parameter(torch.arange(5.0)[:, None])
    ours = RowAdam([table], lr=0.3)
    alone = [nn.Parameter(torch.tensor([[float(n)]])) for n in range(5)]
    theirs = [torch.optim.Adam([row], lr=0.3) for row in alone]
    for rows in draws:
        ours.zero_grad()
        torch.autograd.backward((F.embedding(torch.tensor(rows), table, sparse=True) ** 3).sum())
        ours.step()
        for n in sorted(set(rows)):
            theirs[n].zero_grad()
            torch.autograd.backward((rows.count(n) * alone[n] ** 3).sum())
            theirs[n].step()
    torch.testing.assert_close(table.detach(), torch.cat([row.detach() for row in alone]))


def test_a_dense_gradient_is_plain_adam() -> None:
    ours, theirs = nn.Parameter(torch.ones(3, 1)), nn.Parameter(torch.ones(3, 1))
    optimisers = RowAdam([ours], lr=0.1), torch.optim.Adam([theirs], lr=0.1)
    for _ in range(5):
        for table, optimiser in zip((ours, theirs), optimisers, strict=True):
            optimiser.zero_grad()
            torch.autograd.backward((table**3).sum())
            optimiser.step()
    torch.testing.assert_close(ours, theirs)


def test_rows_that_were_not_drawn_do_not_move() -> None:
    table = nn.Parameter(torch.ones(4, 1))
    optimiser = make_optimiser(Optim(name="adam", lr=10.0), Group([table], table=True))
    for row in (0, 1, 1):
        optimiser.zero_grad()
        torch.autograd.backward(F.embedding(torch.tensor([row]), table, sparse=True).sum())
        before = table.detach().clone()
        optimiser.step()
        still = [n for n in range(4) if n != row]
        assert torch.equal(table[still], before[still])
        assert table[row] != before[row]
    plain = nn.Parameter(torch.ones(4, 1))
    adam = torch.optim.Adam([plain], lr=10.0)
    for row in (0, 1):
        adam.zero_grad()
        torch.autograd.backward(plain[row].sum())
        adam.step()
    assert plain[0] < -10  # what RowAdam is for: Adam moved row 0 again, by momentum alone


def test_optimisers_by_name() -> None:
    params = [nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2))]
    sgd = make_optimiser(Optim(name="sgd", lr=0.1, momentum=0.9, weight_decay=0.01), Group(params))
    assert isinstance(sgd, torch.optim.SGD)
    assert [group["weight_decay"] for group in sgd.param_groups] == [0.01, 0.0]
    assert sgd.param_groups[0]["momentum"] == 0.9
    assert type(make_optimiser(Optim(name="adam", lr=0.1), Group(params))) is torch.optim.Adam
    own = Optim(name="adam", lr=0.1, betas=(0.5, 0.9))
    table = Group(params[:1], table=True)
    for config in (own, own.model_copy(update={"name": "adamw"}), own.model_copy(update={"dense": True})):
        for group in (Group(params), table):
            assert make_optimiser(config, group).param_groups[0]["betas"] == (0.5, 0.9)
    assert make_optimiser(Optim(name="adam", lr=0.1), table).param_groups[0]["betas"] == (0.9, 0.999)
    assert type(make_optimiser(Optim(name="adamw", lr=0.1), Group(params))) is torch.optim.AdamW
    assert type(make_optimiser(Optim(name="sgd", lr=0.1), Group(params[:1], table=True))) is torch.optim.SGD


def config(**settings: object) -> Training:
    return Training(steps=100, **settings)  # type: ignore[arg-type]


def test_schedules() -> None:
    assert [rate(config(), step) for step in (0, 99)] == [1, 1]
    assert rate(config(schedule="linear"), 25) == 0.75
    assert rate(config(schedule="cosine"), 50) == pytest.approx(0.5)
    assert [rate(config(schedule="step", decay_every=40, decay_factor=0.1), s) for s in (39, 40, 80)] == pytest.approx(
        [1, 0.1, 0.01]
    )
    assert [rate(config(warmup=4), step) for step in range(5)] == [0.25, 0.5, 0.75, 1, 1]
    assert rate(config(schedule="linear", warmup=20), 60) == 0.5


def test_gradients_are_clipped_by_the_norm_of_all_by_coordinate_or_tensor_by_tensor() -> None:
    def clipped(**limits: float) -> list[list[float]]:
        params = [nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1))]
        for param, gradient in zip(params, ([3.0, 4.0], [12.0]), strict=True):
            param.grad = torch.tensor(gradient)
        clip_gradients(params, Clipping(**limits))
        return [param.grad.tolist() for param in params if param.grad is not None]

    assert clipped() == [[3.0, 4.0], [12.0]]
    assert clipped(clip_norm=6.5) == [pytest.approx([1.5, 2.0]), pytest.approx([6.0])]
    assert clipped(clip_value=3.5) == [[3.0, 3.5], [3.5]]
    assert clipped(clip_each=1.0) == [pytest.approx([0.6, 0.8]), pytest.approx([1.0])]
