"""Every registered method, held to the contract and to what its traits promise."""

from typing import Any

import pytest
import torch

from hyperproto.data import Pool
from hyperproto.encoders.identity import Identity
from hyperproto.methods import METHODS, TRAITS, Method, Task, make_method
from hyperproto.registry import keywords
from tests.conftest import blobs
from tests.methods.conftest import make_task

CASES = [(name, fit) for name in METHODS.names() for fit in METHODS.get(name).fits]
POOL: Pool = blobs()


def start(name: str) -> dict[str, Any]:
    """What a recipe would fill in."""
    return {"init_shot": 5} if "init_shot" in keywords(METHODS.get(name)) else {}


def build(name: str, fit: str | None = None, n_classes: int = POOL.n_classes) -> Method:
    return make_method(name, feature_shape=(6,), n_classes=n_classes, fit=fit, **start(name))


def needs_trait(name: str, trait: str) -> None:
    if trait not in METHODS.get(name).traits:
        pytest.skip(f"{name} does not promise {trait!r}")


def changed(task: Task, **changes: torch.Tensor) -> Task:
    return Task(**{**vars(task), **changes})


@pytest.mark.parametrize("name", METHODS.names())
def test_traits_are_known_and_the_class_says_what_it_is(name: str) -> None:
    cls = METHODS.get(name)
    assert issubclass(cls, Method)
    assert cls.traits <= set(TRAITS)
    assert cls.needs in ("units", "items")
    assert cls.__doc__


@pytest.mark.parametrize(("name", "fit"), CASES)
def test_scores_have_the_shape_and_are_finite(name: str, fit: str) -> None:
    task = make_task(counts=(2, 2, 2))
    scores = build(name, fit).eval().scores(task)
    assert scores.shape == (2, 12, 3)
    assert scores.isfinite().all()


@pytest.mark.parametrize(("name", "fit"), CASES)
def test_better_than_chance(name: str, fit: str) -> None:
    task = make_task(counts=(5, 5, 5), batch=40)
    method = build(name, fit).eval()
    predicted = method.decode(method.scores(task), task)
    assert (predicted == task.query_y).float().mean() > 0.6


@pytest.mark.parametrize(("name", "fit"), CASES)
def test_renaming_the_classes_renames_the_scores(name: str, fit: str) -> None:
    needs_trait(name, "equivariant")
    task = make_task(counts=(3, 1, 5))
    order = torch.tensor([2, 0, 1])  # new label n is old label order[n]
    renamed = changed(task, support_y=torch.argsort(order)[task.support_y], classes=task.classes[:, order])
    method = build(name, fit).eval()
    torch.testing.assert_close(method.scores(renamed), method.scores(task)[..., order], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("name", "fit"), CASES)
def test_a_query_does_not_depend_on_the_others(name: str, fit: str) -> None:
    task = make_task()
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0))
    method = build(name, fit).eval()
    scores = method.scores(task)
    shuffled = method.scores(changed(task, query=task.query[:, order]))
    torch.testing.assert_close(shuffled, scores[:, order], rtol=1e-3, atol=1e-3)
    alone = method.scores(changed(task, query=task.query[:, :1]))
    torch.testing.assert_close(alone, scores[:, :1], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("name", "fit"), CASES)
def test_episodes_of_a_batch_do_not_mix(name: str, fit: str) -> None:
    task = make_task(batch=3)
    method = build(name, fit).eval()
    scores = method.scores(task)
    for b in range(3):
        alone = Task(*(None if part is None else part[b : b + 1] for part in list(vars(task).values())[:6]))  # type: ignore[arg-type]
        torch.testing.assert_close(method.scores(alone)[0], scores[b], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("name", "fit"), CASES)
def test_unequal_shots_and_padding(name: str, fit: str) -> None:
    needs_trait(name, "unequal-shots")
    method = build(name, fit).eval()
    plain, padded = make_task(counts=(1, 4, 7)), make_task(counts=(1, 4, 7), pads=5)
    torch.testing.assert_close(
        method.scores(changed(padded, query=plain.query)), method.scores(plain), rtol=1e-3, atol=1e-3
    )


@pytest.mark.parametrize(("name", "fit"), CASES)
def test_far_from_the_origin_the_answers_stay(name: str, fit: str) -> None:
    """What measures Euclidean distances cannot care where the origin is; single precision must not make it."""
    if name in ("classifier", "cosine", "hyperproto-cone", "logistic"):
        pytest.skip("angles and penalised weights do depend on the origin")
    task = make_task(counts=(5, 5, 5), batch=20)
    far = changed(task, support=task.support + 1e4, query=task.query + 1e4)
    method = build(name, fit).eval()
    same = (method.scores(far).argmax(-1) == method.scores(task).argmax(-1)).float().mean()
    assert same > 0.98


def novelty_of(name: str, fit: str, task: Task) -> torch.Tensor:
    method = build(name, fit).eval()
    return method.novelty(task, method.scores(task))


@pytest.mark.parametrize(("name", "fit"), CASES)
@pytest.mark.parametrize("counts", [(4,), (1,), (1, 1, 1), (2, 3), (1, 4, 7)])
def test_novelty_has_the_shape_and_is_finite(name: str, fit: str, counts: tuple[int, ...]) -> None:
    task = make_task(counts=counts)
    for same in (task, changed(task, support=torch.ones_like(task.support))):  # even if all examples are one
        novelty = novelty_of(name, fit, same)
        assert novelty.shape == (2, 4 * len(counts))
        assert novelty.isfinite().all()


@pytest.mark.parametrize(("name", "fit"), CASES)
def test_novelty_does_not_depend_on_names_order_padding_or_other_queries(name: str, fit: str) -> None:
    task = make_task(counts=(3, 1, 5))
    novelty = novelty_of(name, fit, task)
    close = {"rtol": 1e-3, "atol": 1e-3}
    order = torch.tensor([2, 0, 1])
    if "equivariant" in METHODS.get(name).traits:
        renamed = changed(task, support_y=torch.argsort(order)[task.support_y], classes=task.classes[:, order])
        torch.testing.assert_close(novelty_of(name, fit, renamed), novelty, **close)
    mixed = torch.randperm(12, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(
        novelty_of(name, fit, changed(task, query=task.query[:, mixed])), novelty[:, mixed], **close
    )
    torch.testing.assert_close(novelty_of(name, fit, changed(task, query=task.query[:, :1])), novelty[:, :1], **close)
    padded = make_task(counts=(3, 1, 5), pads=4)
    torch.testing.assert_close(novelty_of(name, fit, changed(padded, query=task.query)), novelty, **close)


@pytest.mark.parametrize(("name", "fit"), CASES)
def test_what_is_of_no_class_is_newer(name: str, fit: str) -> None:
    """A query moved far off to where no class is; for a softmax, to where it is as near to one class as to another."""
    task = make_task(counts=(5, 5, 5), batch=40)
    means = torch.stack([task.support[:, task.support_y[0] == n].mean(1) for n in range(3)], 1)
    between = means.mean(1, keepdim=True) + 0.5 * torch.randn(40, 12, 6, generator=torch.Generator().manual_seed(0))
    newer = novelty_of(name, fit, changed(task, query=between)) > novelty_of(name, fit, task)
    assert newer.float().mean() > 0.7


@pytest.mark.parametrize(("name", "fit"), CASES)
def test_novelty_stays_far_from_the_origin(name: str, fit: str) -> None:
    if name in ("classifier", "cosine", "hyperproto-cone", "logistic"):
        pytest.skip("angles and penalised weights do depend on the origin")
    task = make_task(counts=(5, 5, 5), batch=20)
    far = changed(task, support=task.support + 1e4, query=task.query + 1e4)
    novelty = novelty_of(name, fit, task)
    off = (novelty_of(name, fit, far) - novelty).abs()
    assert off.median() < 0.01 * novelty.std()  # the vectors themselves are rounded at that distance


@pytest.mark.parametrize(("name", "fit"), CASES)
def test_any_number_of_classes(name: str, fit: str) -> None:
    needs_trait(name, "any-way")
    method = build(name, fit).eval()
    for counts in ((4,), (2, 3), (1,) * 7):
        scores = method.scores(make_task(counts=counts))
        assert scores.shape[-1] == len(counts)
        assert scores.isfinite().all()


@pytest.mark.parametrize("name", METHODS.names())
def test_gradients_reach_the_vectors_and_every_learned_parameter(name: str) -> None:
    task = make_task(counts=(3, 3, 3))
    query = task.query.requires_grad_()
    method = make_method(
        name, feature_shape=(6,), n_classes=POOL.n_classes, learn_temperature=True, **start(name)
    ).train()
    method.setup(POOL, Identity(shape=[6]))
    losses = method.loss(changed(task, query=query))
    assert all(part.ndim == 0 and part.isfinite() for part in losses.values())
    sum(losses.values()).backward()
    assert query.grad is not None
    assert query.grad.isfinite().all()
    assert query.grad.abs().sum() > 0
    for parameter in method.parameters():
        assert parameter.grad is not None
        dense = parameter.grad.to_dense()
        assert dense.isfinite().all()


@pytest.mark.parametrize("name", METHODS.names())
def test_setup_fills_parameters_and_creates_none(name: str) -> None:
    method = build(name)
    before = {key: (value.shape, value.dtype) for key, value in method.state_dict().items()}
    method.setup(POOL, Identity(shape=[6]))
    assert {key: (value.shape, value.dtype) for key, value in method.state_dict().items()} == before
    groups = [p for params in method.param_groups().values() for p in params]
    assert {id(p) for p in groups} <= {id(p) for p in method.parameters()}


@pytest.mark.parametrize("name", METHODS.names())
def test_state_round_trip_and_determinism(name: str) -> None:
    task = make_task()
    first, second, third = build(name), build(name), build(name)
    first.setup(POOL, Identity(shape=[6]))
    second.setup(POOL, Identity(shape=[6]))
    third.load_state_dict(first.state_dict())
    for other in (second, third):
        assert torch.equal(first.eval().scores(task), other.eval().scores(task))
        for key, part in first.loss(task).items():
            assert torch.equal(part, other.loss(task)[key])
