from collections.abc import Callable
from dataclasses import replace
from math import exp, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from hyperproto.data import Pool
from hyperproto.encoders.class_names import ClassNames
from hyperproto.encoders.identity import Identity
from hyperproto.episodes import EpisodeSampler
from hyperproto.errors import ConfigError
from hyperproto.evaluation import EncodedPool, Predictor, score_episodes
from hyperproto.methods import Task
from hyperproto.methods.regrab import REGRAB
from hyperproto.testing import NAME_SIZE, RandomNames, check_method
from hyperproto.training import load_recipe
from tests.conftest import blobs
from tests.helpers.random_tasks import make_task

NO_PRIOR: dict[str, Any] = {"prior_weight": 0.0}


def names_of(pool: Pool) -> ClassNames:
    return RandomNames(NAME_SIZE).of(pool, Identity(shape=[6]))


def made(**options: Any) -> REGRAB:
    """A method that has read eight classes and is ready to score."""
    torch.manual_seed(0)
    method = REGRAB(**{"feature_shape": (6,), "n_classes": 8, "samples": 3, "steps": 2, **options})
    pool = blobs(8)
    method.read_pool(pool, names_of(pool))
    return method.eval()


def layer(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:])


def means(task: Task, x: Tensor) -> Tensor:
    members = task.members()
    return members.mT @ x / members.sum(1)[..., None]


@pytest.mark.parametrize("changes", [{"steps": 0}, {"eps": 0.0}])
@pytest.mark.parametrize("normalise", ["layer", "none"])
def test_without_steps_and_prior_it_is_a_dot_product_with_the_means(changes: Any, normalise: Any) -> None:
    task = make_task(pads=2)
    method = made(**NO_PRIOR, **changes, normalise=normalise)
    read: Callable[[Tensor], Tensor] = layer if normalise == "layer" else lambda x: x
    gamma = 1 / sqrt(6) if normalise == "layer" else 1.0
    expected = (gamma * read(task.query) @ means(task, read(task.support)).mT).log_softmax(-1)
    assert torch.allclose(method(task), expected, atol=1e-5)


def test_the_mean_of_the_support_is_taken_off() -> None:
    task = make_task(pads=2)
    method = made(**NO_PRIOR, steps=0, normalise="none", mean_weight=0.5)
    middle = torch.stack([x[y >= 0].mean(0) for x, y in zip(task.support, task.support_y, strict=True)])
    expected = (task.query @ (means(task, task.support) - 0.5 * middle[:, None]).mT).log_softmax(-1)
    assert torch.allclose(method(task), expected, atol=1e-5)


def test_the_prior_moves_the_start() -> None:
    task = make_task()
    method = made(steps=0, normalise="none", prior_weight=0.3)
    prior = method.prior_mean(task)
    assert prior is not None
    expected = (task.query @ (means(task, task.support) + 0.3 * prior).mT).log_softmax(-1)
    assert torch.allclose(method(task), expected, atol=1e-5)


def test_a_step_worked_by_hand() -> None:
    x = torch.eye(2)[None]
    method = made(**NO_PRIOR, likelihood_temperature=1.0, feature_shape=(2,))
    gradient = method.drift(x[:, None], x, torch.eye(2)[None], None)[0, 0]
    share = exp(1) / (exp(1) + 1)
    assert share == pytest.approx(0.7311, abs=5e-5)
    assert gradient[0].tolist() == pytest.approx([0.1345, -0.1345], abs=5e-5)
    assert gradient[0].tolist() == pytest.approx([(1 - share) / 2, -(1 - share) / 2])


def test_the_released_drift_against_a_loop() -> None:
    task, method = make_task(counts=(2, 1), pads=1, dim=3, batch=1), made(likelihood_temperature=2.0, prior_weight=0.3)
    v, prior = torch.randn(1, 2, 2, 3), torch.randn(1, 2, 3)
    found = method.drift(v, task.support, task.members(), prior)
    for m in range(2):
        for n in range(2):
            total = torch.zeros(3)
            for s in range(3):
                shares = torch.stack([task.support[0, s] @ v[0, m, k] / 2.0 for k in range(2)]).softmax(0)
                total += ((task.support_y[0, s] == n).float() - shares[n]) * task.support[0, s]
            assert torch.allclose(found[0, m, n], total / 3 + 0.3 * (prior[0, n] - v[0, m, n]), atol=1e-5)


def test_the_exact_drift_is_the_gradient_of_the_log_posterior() -> None:
    task, method = make_task(pads=2), made(update="exact", likelihood_temperature=3.0)
    v = torch.randn(2, 4, 3, 6, requires_grad=True)
    prior = torch.randn(2, 3, 6)
    logits = torch.einsum("bsd,bmnd->bmsn", task.support, v) / 3.0
    likelihood = (logits.log_softmax(-1) * task.members()[:, None]).sum()
    (likelihood - ((v - prior[:, None]) ** 2).sum() / 2).backward()  # type: ignore[no-untyped-call]
    assert v.grad is not None
    assert torch.allclose(method.drift(v, task.support, task.members(), prior), v.grad, atol=1e-5)


def test_scores_against_a_loop_over_samples_steps_and_classes() -> None:
    task = make_task(counts=(2, 1), batch=1)
    method = made(eps=0.2, rho=0.5)
    x, q, members = layer(task.support), layer(task.query), task.members()
    prior = method.prior_mean(task)
    assert prior is not None
    tables = [method._class_noise(c, (2, 3, 6)) for c in task.classes[0].tolist()]
    probabilities = []
    for m in range(3):
        v = means(task, x) + 0.1 * prior
        for t in range(2):
            size = 0.2 * 0.5**t
            noise = torch.stack([table[t, m] for table in tables])
            v = v + size / 2 * method.drift(v[:, None], x, members, prior)[:, 0] + size**0.5 * noise
        probabilities.append((q @ v.mT / sqrt(6)).softmax(-1))
    assert torch.allclose(method(task), torch.stack(probabilities).mean(0).log(), atol=1e-5)


def test_probabilities_sum_to_one_and_come_again() -> None:
    task, method = make_task(), made()
    scores = method(task)
    assert torch.allclose(scores.exp().sum(-1), torch.ones(2, 12), atol=1e-5)
    assert torch.equal(scores, method(task))
    assert not torch.allclose(scores, made(sample_seed=1)(task), atol=1e-4)


def test_scores_are_log_probabilities_at_the_temperature() -> None:
    task, method = make_task(), made(temperature=0.5)
    logits = method.logits(method._sampled_logits(task))
    assert torch.allclose(method.logits(method(task)), logits.softmax(-1).mean(1).log(), atol=1e-4)


def test_an_episode_alone_and_renamed() -> None:
    task, method = make_task(), made()
    scores = method(task)
    parts: Any = {key: value[1:] for key, value in vars(task).items() if isinstance(value, Tensor)}
    assert torch.allclose(method(replace(task, **parts)), scores[1:], atol=1e-5)
    order = torch.tensor([2, 0, 1])
    renamed = replace(task, classes=task.classes[:, order], support_y=order.argsort()[task.support_y])
    assert torch.allclose(method(renamed), scores[..., order], atol=1e-5)


def test_noise_differs_between_classes_samples_and_steps() -> None:
    task, method = make_task(), made()
    samples = torch.arange(3).expand(2, -1)
    noise = torch.stack([method._seeded_noise(task)(step, samples) for step in range(2)])
    assert noise.shape == (2, 2, 3, 3, 6)
    assert len(noise[:, 0].reshape(-1, 6).unique(dim=0)) == 2 * 3 * 3  # type: ignore[no-untyped-call]


@torch.no_grad()
def test_blocks_of_samples_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    task, method = make_task(), made(samples=5)
    whole = method(task)
    monkeypatch.setattr("hyperproto.methods.parts.BLOCK_BYTES", 1)
    assert torch.allclose(method(task), whole, atol=1e-6)


def test_gradients_reach_queries_and_the_prior_but_not_the_support() -> None:
    for options in ({}, {"layers": 2}, {"update": "exact"}):
        task, method = make_task(), made(**options).train()
        support, query = task.support.clone().requires_grad_(), task.query.clone().requires_grad_()
        method.loss(replace(task, support=support, query=query))["cls"].backward()  # type: ignore[no-untyped-call]
        assert support.grad is None
        assert query.grad is not None
        assert query.grad.abs().sum() > 0
        for parameter in method.param_groups()["head"].params:
            assert parameter.grad is not None
            assert parameter.grad.abs().sum() > 0


def test_with_one_sample_the_loss_is_that_of_the_scores() -> None:
    task, method = make_task(), made(samples=1)
    assert task.query_y is not None
    expected = -method(task).gather(-1, task.query_y[..., None]).mean()
    assert torch.allclose(method.loss(task)["cls"], expected, atol=1e-6)


def test_with_several_samples_training_averages_logarithms() -> None:
    task, method = make_task(), made(samples=4)
    assert task.query_y is not None
    logs = method._sampled_logits(task).log_softmax(-1).mean(1)
    assert torch.allclose(method.loss(task)["cls"], -logs.gather(-1, task.query_y[..., None]).mean(), atol=1e-6)


def test_training_draws_fresh_noise_and_drops() -> None:
    task, method = make_task(), made(dropout=0.0).train()
    assert method.loss(task)["cls"] != method.loss(task)["cls"]
    still = made(eps=0.0, dropout=0.5).train()
    assert still.loss(task)["cls"] != still.loss(task)["cls"]
    still = made(eps=0.0, dropout=0.0).train()
    assert still.loss(task)["cls"] == still.loss(task)["cls"]


def test_the_prior_mean_is_a_graph_convolution() -> None:
    task, pool = make_task(), blobs(8)
    names = names_of(pool)
    vectors = names.read([text for text in names.texts if text])
    for layers in (1, 2):
        method = made(layers=layers)
        graph = method._names_graph(pool, names)
        assert torch.equal(graph.vectors, vectors)
        inputs = graph.vectors
        if method.hidden is not None:
            inputs = (graph.adjacency @ inputs @ method.hidden.weight.mT + method.hidden.bias).relu()
        mean = (graph.adjacency @ inputs @ method.prior.weight.mT + method.prior.bias).tanh()
        found = method.prior_mean(task)
        assert found is not None
        assert torch.allclose(found, mean[task.classes], atol=1e-5)


def test_nodes_are_all_texts_of_the_source_and_the_classes() -> None:
    pool, method = blobs(3), made()
    names = replace(names_of(pool), known={"P1": "capital", "class 1": "another"}, texts=("zero", "another", None))
    with pytest.warns(UserWarning, match=r"1 of 3 classes of blobs .*are not in the graph .*\(class 2\)"):
        method.read_pool(pool, names)
    graph = method._names_graph(pool, names)
    assert list(graph.nodes) == ["P1", "class 1", "class 0"]
    task = replace(make_task(counts=(1,)), classes=torch.tensor([[2], [0]]))
    prior = method.prior_mean(task)
    assert prior is not None
    assert torch.allclose(prior[0, 0], method.prior.bias.tanh())
    assert not torch.allclose(prior[1, 0], method.prior.bias.tanh())


def test_a_released_graph_is_read_and_needs_no_names(tmp_path: Path) -> None:
    (tmp_path / "relations.txt").write_text("class 0\nclass 1\n")
    np.save(tmp_path / "vectors.npy", np.array([[1.0, 0, 0], [0, 1, 0]]))
    (tmp_path / "edges.tsv").write_text("class 0\tclass 0\t2\nclass 0\tclass 1\t3\nclass 1\tclass 1\t1\n")
    method = REGRAB(feature_shape=(6,), n_classes=8, graph=str(tmp_path))
    assert not method.needs_names
    with pytest.warns(UserWarning, match=r"6 of 8 classes .*\(class 2, class 3, class 4, \.\.\.\)"):
        method.read_pool(blobs(8), None)
    prior = method.prior_mean(replace(make_task(counts=(1, 1, 1), batch=1), classes=torch.tensor([[0, 1, 5]])))
    assert prior is not None
    weight, bias = method.prior.weight, method.prior.bias
    assert torch.allclose(prior[0, 0], (2 * weight[:, 0] + 3 * weight[:, 1] + bias).tanh(), atol=1e-6)
    assert torch.allclose(prior[0, 1], (weight[:, 1] + bias).tanh(), atol=1e-6)
    assert torch.allclose(prior[0, 2], bias.tanh(), atol=1e-6)


def test_without_a_prior_nothing_is_learned_or_read() -> None:
    method = REGRAB(feature_shape=(6,), n_classes=8, **NO_PRIOR)
    assert not method.needs_names
    assert method.param_groups() == {}
    assert method.eval()(make_task()).isfinite().all()
    assert REGRAB(feature_shape=(6,), n_classes=8, **NO_PRIOR, update="exact").needs_names


@pytest.mark.parametrize(
    "options",
    [
        {"layers": 2, "update": "exact", "eps": 0.01, "samples": 2},
        {"normalise": "none", "mean_weight": 0.5, "samples": 1},
        {**NO_PRIOR, "samples": 2},
    ],
)
def test_options_keep_the_contract(options: dict[str, Any]) -> None:
    check_method(REGRAB, **options)


def test_a_pool_is_read_once_until_another_comes() -> None:
    method, pools = made(), (blobs(3), blobs(4))
    names = [names_of(pool) for pool in pools]
    method.read_pool(pools[0], names[0])
    first = method._graph
    method.read_pool(pools[0], names[0])
    assert method._graph is first
    method.read_pool(pools[1], names[1])
    assert method._graph is not None
    assert len(method._graph.rows) == 4


def test_refusals() -> None:
    shape: dict[str, Any] = {"feature_shape": (6,), "n_classes": 8}
    pool = blobs(8)
    with pytest.raises(ConfigError, match=r"REGRAB reads the names of classes; give the recipe \[names\]"):
        REGRAB(**shape).read_pool(pool, None)
    with pytest.raises(ConfigError, match=r"names whose vectors do not change; give \[names\] a frozen encoder"):
        REGRAB(**shape).read_pool(pool, replace(names_of(pool), frozen=False))
    with pytest.raises(ConfigError, match=f"have size {NAME_SIZE}; set relation_size = {NAME_SIZE}, not 7"):
        REGRAB(**shape, relation_size=7).read_pool(pool, names_of(pool))
    with pytest.raises(ConfigError, match="REGRAB has no graph yet; call read_pool"):
        REGRAB(**shape)(make_task())
    negative: list[dict[str, Any]] = [{"steps": -1}, {"eps": -0.1}, {"rho": float("nan")}, {"prior_weight": -1.0}]
    for options in negative:
        with pytest.raises(ConfigError, match=f"REGRAB: {next(iter(options))} = .* must be 0 or more"):
            REGRAB(**shape, **options)
    none: list[dict[str, Any]] = [{"samples": 0}, {"likelihood_temperature": 0.0}]
    for options in none:
        with pytest.raises(ConfigError, match="samples must be at least 1, and likelihood_temperature above 0"):
            REGRAB(**shape, **options)
    with pytest.raises(ConfigError, match=r"dropout = 1.0 must be at least 0 and below 1"):
        REGRAB(**shape, dropout=1.0)
    with pytest.raises(ConfigError, match=r"\[names\] is missing: regrab reads the names of classes"):
        load_recipe("fewrel-cnn:regrab-no-prior", ["method.prior_weight=0.1", "optim.head={lr=0.001}"])
    load_recipe("fewrel-cnn:regrab")


def test_it_learns_from_names_where_a_class_is() -> None:
    """One noisy example of a class says little; its name, which comes again in other episodes, says all."""
    random = np.random.default_rng(0)
    labels = np.repeat(np.arange(12), 10)
    directions = np.eye(12, 16)[labels]
    pool = Pool((directions + 0.35 * random.normal(size=(120, 16))).astype(np.float32), labels, tuple("abcdefghijkl"))
    encoder = Identity(shape=[16])
    names = RandomNames(NAME_SIZE)
    torch.manual_seed(0)
    method = REGRAB(feature_shape=(16,), n_classes=12, prior_weight=3.0, samples=4, steps=2, rho=0.1, dropout=0.1)
    predictor = Predictor.of(method, encoder, names=names)
    encoded = EncodedPool.encode(encoder, pool)
    episodes = EpisodeSampler(pool, way=5, shot=1, query=4, seed=0).draw(30)

    def accuracy() -> float:
        [(task, scores)] = score_episodes(predictor, encoded, episodes)
        assert task.query_y is not None
        return float((scores.argmax(-1) == task.query_y).float().mean())

    before = accuracy()
    optimiser = torch.optim.Adam(method.param_groups()["head"].params, lr=0.01)
    [(task, _)] = score_episodes(predictor, encoded, episodes)
    method.train()
    for _ in range(60):
        optimiser.zero_grad()
        loss = method.loss(task)["cls"]
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    after = accuracy()
    assert before < 0.8
    assert after > 0.95
