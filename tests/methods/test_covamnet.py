"""CovaMNet against its equations in loops, worked examples, what leaves its scores alone, and what it refuses."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hyperproto.errors import ConfigError
from hyperproto.methods import PAD, Task, make_method
from hyperproto.methods.covamnet import CovaMNet
from hyperproto.testing import check_method
from tests.helpers.random_tasks import make_task

SHAPE = (4, 3, 2)
P = 6


def build(shape: tuple[int, ...] = SHAPE, **options: Any) -> CovaMNet:
    method = make_method("covamnet", feature_shape=shape, **options)
    assert isinstance(method, CovaMNet)
    nn.init.uniform_(method.weight, 0.5, 1.5)
    return method.eval()


def maps_task(shape: tuple[int, ...] = SHAPE, **how: Any) -> Task:
    task = make_task(dim=torch.Size(shape).numel(), **{"queries": 2, **how})
    support, query = (x.reshape(*x.shape[:2], *shape) for x in (task.support, task.query))
    return replace(task, support=support, query=query)


def two_classes(query: Tensor) -> Task:
    """Class 0 varies along the first channel, class 1 along the second; maps are (2, 1, 2)."""
    first, second = torch.tensor([[1.0, -1], [0, 0]]), torch.tensor([[0.0, 0], [1, -1]])
    support = torch.stack([first, second])[None, :, :, None]
    return Task(
        support, torch.tensor([[0, 1]]), query[None, None, :, None], None, torch.tensor([[0, 1]]), torch.arange(2)[None]
    )


def naive_similarities(method: CovaMNet, task: Task) -> Tensor:
    """The equations, one query, class and position at a time."""
    found = torch.empty(*task.query.shape[:2], task.way, method.positions)
    for b, labels in enumerate(task.support_y):
        for n in range(task.way):
            columns = [x.flatten(1)[:, p] for x in task.support[b][labels == n] for p in range(method.positions)]
            mean = sum(columns, torch.zeros(())) / len(columns)
            covariance = sum(torch.outer(x - mean, x - mean) for x in columns) / (len(columns) - 1)
            for q, query in enumerate(task.query[b].flatten(2)):
                for p in range(method.positions):
                    x = query[:, p]
                    if method.normalise == "channel":
                        x = torch.stack([value / query[c].norm() for c, value in enumerate(x)])
                    elif method.normalise == "descriptor":
                        x = x / x.norm()
                    found[b, q, n, p] = x @ covariance @ x
    return found


@pytest.mark.parametrize("normalise", ["channel", "descriptor", "none"])
def test_scores_are_those_of_the_equations(normalise: str) -> None:
    method, task = build(normalise=normalise), maps_task(pads=2)
    expected = naive_similarities(method, task)
    found = method.similarities(method.covariances(task), task.query)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(method(task), (expected * method.weight).sum(-1), rtol=1e-4, atol=1e-5)
    undropped = build(normalise=normalise, dropout=0.0).train()
    undropped.load_state_dict(method.state_dict())
    torch.testing.assert_close(undropped(task), method(task))


@pytest.mark.parametrize(
    ("normalise", "sims"),
    [("descriptor", [[0.72, 0.72], [1.28, 1.28]]), ("channel", [[1, 1], [1, 1]]), ("none", [[18, 18], [32, 32]])],
)
def test_an_example_by_hand(normalise: str, sims: list[list[float]]) -> None:
    task = two_classes(torch.tensor([[3.0, 3], [4, -4]]))
    method = build((2, 1, 2), normalise=normalise)
    covariance = method.covariances(task)
    assert covariance.tolist() == [[[[2, 0], [0, 0]], [[0, 0], [0, 2]]]]
    torch.testing.assert_close(method.similarities(covariance, task.query)[0, 0], torch.tensor(sims).float())


def test_with_equal_weights_the_score_is_a_trace() -> None:
    method, task = build(), maps_task()
    nn.init.ones_(method.weight)
    covariance, x = method.covariances(task), method.descriptors(task.query)
    for b in range(2):
        for q in range(task.query.shape[1]):
            for n in range(task.way):
                trace = (covariance[b, n] @ x[b, q] @ x[b, q].mT).trace()
                torch.testing.assert_close(method(task)[b, q, n], trace)


def test_no_similarity_is_negative() -> None:
    task = maps_task((8, 2, 2), counts=(1, 1, 1), queries=20)  # covariances of rank 3 of 8
    for normalise in ("channel", "descriptor"):
        method = build((8, 2, 2), normalise=normalise)
        assert method.similarities(method.covariances(task), task.query).min() >= -1e-6


def test_positions_of_the_support_have_no_order_and_those_of_a_query_keep_theirs() -> None:
    method, task, order = build(), maps_task(), torch.tensor([3, 0, 5, 1, 4, 2])

    def moved(maps: Tensor) -> Tensor:
        return maps.flatten(3)[..., order].view_as(maps)

    covariance = method.covariances(task)
    torch.testing.assert_close(method.covariances(replace(task, support=moved(task.support))), covariance)
    found = method.similarities(covariance, moved(task.query))
    torch.testing.assert_close(found, method.similarities(covariance, task.query)[..., order])


def test_what_is_added_to_all_descriptors_of_the_support_changes_nothing() -> None:
    method, task = build(), maps_task()
    moved = replace(task, support=task.support + torch.tensor([5.0, -3, 0, 8])[:, None, None])
    torch.testing.assert_close(method(moved), method(task), rtol=1e-4, atol=1e-4)


def test_the_same_map_twice_shrinks_the_covariance() -> None:
    method, task = build(), maps_task(counts=(1, 1))
    twice = replace(task, support=task.support.repeat(1, 2, 1, 1, 1), support_y=task.support_y.repeat(1, 2))
    torch.testing.assert_close(method.covariances(twice), 2 * (P - 1) / (2 * P - 1) * method.covariances(task))


def test_evaluation_is_deterministic_and_training_drops_similarities() -> None:
    method, task = build(dropout=0.2), maps_task(batch=1, queries=200)
    nn.init.zeros_(method.weight)
    with torch.no_grad():
        method.weight[3] = 1
    plain = method(task)
    assert torch.equal(method(task), plain)
    torch.manual_seed(0)
    dropped = method.train()(task)
    kept = dropped != 0  # one position counts: a similarity is there, or not
    assert 0.75 < kept.float().mean() < 0.85
    torch.testing.assert_close(dropped[kept], plain[kept] / 0.8, rtol=1e-4, atol=1e-5)
    assert not torch.equal(method(task), dropped)


def test_classes_that_differ_in_the_mean_only_score_alike() -> None:
    one = maps_task(counts=(2,), queries=3)
    support = torch.cat([one.support, one.support + torch.tensor([9.0, 0, -9, 4])[:, None, None]], 1)
    task = replace(
        one, support=support, support_y=torch.tensor([[0, 0, 1, 1]]).expand(2, -1), classes=torch.ones(2, 2).long()
    )
    scores = build()(task)
    torch.testing.assert_close(scores[..., 0], scores[..., 1], rtol=1e-4, atol=1e-4)


def test_padding_and_dead_channels() -> None:
    method = build()
    plain, padded = maps_task(counts=(2, 1, 3)), maps_task(counts=(2, 1, 3), pads=4)
    padded = replace(padded, query=plain.query)
    torch.testing.assert_close(method(padded), method(plain))
    far = torch.where((padded.support_y == PAD)[..., None, None, None], torch.tensor(1e6), padded.support)
    torch.testing.assert_close(method(replace(padded, support=far)), method(plain))
    dead = plain.query.clone().requires_grad_()
    with torch.no_grad():
        dead[:, :, 1] = 0
    torch.autograd.backward(method(replace(plain, query=dead)).sum())
    assert dead.grad is not None
    assert dead.grad.isfinite().all()


@pytest.mark.parametrize("training", [False, True])
def test_blocks_score_and_learn_as_the_whole_does(training: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for size in (1 << 30, 1):
        monkeypatch.setattr("hyperproto.methods.parts.BLOCK_BYTES", size)
        monkeypatch.setattr(F, "dropout", lambda x, share: x * share)
        torch.manual_seed(0)
        method, task = build().train(training), maps_task()
        scores = method(task)
        torch.autograd.backward(scores.sum())
        found.append((scores, method.weight.grad))
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-5)


def test_the_temperature_starts_at_the_number_of_channels_and_learns() -> None:
    method = build()
    assert method.log_temperature.exp().item() == pytest.approx(4)
    assert method.log_temperature.requires_grad
    assert method.weight.shape == (P,)
    fixed = build(temperature=2.0, learn_temperature=False)
    assert fixed.log_temperature.exp().item() == pytest.approx(2)
    assert not fixed.log_temperature.requires_grad
    assert make_method("covamnet", feature_shape=SHAPE).get_parameter("weight").tolist() == [1.0] * P


def test_what_has_no_covariance_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"CovaMNet needs at least two local descriptors of a class, but one has 1 "
                                          r"examples of maps with 1 positions; give more examples,"):  # fmt: skip
        build((4, 1, 1))(maps_task((4, 1, 1), counts=(2, 1)))
    assert build((4, 1, 1))(maps_task((4, 1, 1), counts=(2, 3))).isfinite().all()
    with pytest.raises(ConfigError, match=r"CovaMNet was made for maps of shape \(4, 3, 2\), but these are of shape "
                                          r"\(4, 2, 2\); use images of the size that it was trained with"):  # fmt: skip
        build()(maps_task((4, 2, 2)))
    with pytest.raises(ConfigError, match=r'reads feature maps, but .* \(6,\); add output = "maps" to \[encoder\]'):
        make_method("covamnet", feature_shape=(6,))
    with pytest.raises(ConfigError, match=r"dropout 1\.0 must be at least 0 and below 1, such as 0\.5"):
        build(dropout=1.0)
    with pytest.raises(ConfigError, match="option 'normalise': 'row' is not valid"):
        build(normalise="row")


@pytest.mark.parametrize("options", [{"normalise": "descriptor"}, {"normalise": "none", "dropout": 0.0}])
def test_every_option_keeps_the_contract(options: dict[str, Any]) -> None:
    check_method(CovaMNet, **options)


def test_it_learns_which_covariances_tell_classes() -> None:
    """Descriptors of a class vary along directions of its own in four channels of eight; the other four are noise."""
    random = torch.Generator().manual_seed(0)
    mixing = torch.randn(6, 4, 4, generator=random)
    torch.manual_seed(0)
    encoder, method = nn.Conv2d(8, 4, 1, bias=False), build((4, 5, 5)).train()
    optimiser = torch.optim.Adam([*encoder.parameters(), *method.parameters()], lr=3e-2)
    labels = torch.arange(2).repeat(1, 8)

    def drawn(classes: Tensor) -> Tensor:
        signal = torch.einsum("ncd,ndp->ncp", mixing[classes], torch.randn(len(classes), 4, 25, generator=random))
        maps = torch.cat([signal, 2 * torch.randn(len(classes), 4, 25, generator=random)], 1)
        found: Tensor = encoder(maps.view(-1, 8, 5, 5))
        return found[None]

    def draw() -> Task:
        classes = torch.randperm(6, generator=random)[:2]
        support, query = drawn(classes[labels[0, :4]]), drawn(classes[labels[0]])
        return Task(support, labels[:, :4], query, labels, classes[None], torch.arange(17)[None])

    def accuracy() -> float:
        method.eval()
        right = [(method(task).argmax(-1) == task.query_y).float().mean() for task in [draw() for _ in range(40)]]
        return float(torch.stack(right).mean())

    before = accuracy()
    method.train()
    for _ in range(100):
        optimiser.zero_grad()
        torch.autograd.backward(method.loss(draw())["cls"])
        optimiser.step()
    assert before < 0.75
    assert accuracy() > 0.85
