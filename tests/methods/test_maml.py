"""MAML against a loop that writes into a copy, worked examples, its statistics, and what it leaves alone."""

from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hyperproto.data import Pool
from hyperproto.encoders import Encoder, Features, Units
from hyperproto.encoders.conv4 import Conv4
from hyperproto.encoders.identity import Identity
from hyperproto.episodes import Episode, EpisodeSampler
from hyperproto.errors import ConfigError
from hyperproto.evaluation import EncodedPool, score_episodes
from hyperproto.methods import Task, TaskItems, gather_task, make_method
from hyperproto.methods.maml import MAML, Weights, batch_norms, descended
from hyperproto.testing import check_method
from hyperproto.training import Learner, load_recipe, train
from tests.conftest import blobs
from tests.helpers.predicting import features_of
from tests.methods.test_batch_norm import SplitNorm

WAY = 3
NORMS = ["support", "episode", "running"]


def images(per_class: int = 8, size: int = 16) -> Pool:
    """Noisy pictures of classes, each of a pattern of its own."""
    random = np.random.default_rng(0)
    labels = np.repeat(np.arange(5), per_class)
    patterns = random.integers(40, 216, (5, size, size))
    pixels = patterns[labels] + random.integers(-40, 40, (len(labels), size, size))
    return Pool(pixels.astype(np.uint8), labels, tuple("abcde"))


class Counting(Conv4):
    """Counts the images of each forward, and says whether it kept a graph."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.passes: list[int] = []
        self.graphs: list[bool] = []

    def forward(self, batch: Tensor) -> Units:
        self.passes.append(len(batch))
        self.graphs.append(torch.is_grad_enabled())
        return super().forward(batch)

    def centred(self, images: Tensor) -> Tensor:
        return super().centred(images).to(next(self.parameters()).dtype)


def conv(dtype: torch.dtype = torch.float) -> Counting:
    """A small network whose stored statistics are not those it starts with."""
    torch.manual_seed(0)
    encoder = Counting(size=16, filters=4)
    for layer in batch_norms(encoder):
        assert layer.running_mean is not None
        assert layer.running_var is not None
        layer.running_mean.uniform_(-0.5, 0.5)
        layer.running_var.uniform_(0.5, 1.5)
    return encoder.to(dtype)


def build(encoder: Encoder, way: int = WAY, **options: Any) -> MAML:
    torch.manual_seed(0)
    few = {"steps": 2, "test_steps": 3, **options}
    method = make_method("maml", feature_shape=encoder.feature_shape, way=way, **few)
    assert isinstance(method, MAML)
    with torch.no_grad():
        method.head.bias.uniform_(-0.1, 0.1)
    return method.eval()


def task_of(features: Features, pool: Pool, episodes: list[Episode]) -> Task:
    items = TaskItems.of(features, pool, episodes)
    return gather_task(items.units, episodes, items)


def drawn(count: int = 2, shot: int | tuple[int, ...] = 2, query: int = 2) -> list[Episode]:
    return EpisodeSampler(images(), way=WAY, shot=shot, query=query, seed=0).draw(count)


def naive_scores(method: MAML, features: Features, episode: Episode, steps: int) -> Tensor:
    """Steps of SGD that write into copies; then one pass over support and queries."""
    encoder, head = deepcopy(features.encoder), deepcopy(method.head)
    support, query = (features.batch(images().items, index) for index in (episode.support, episode.query))
    y = torch.from_numpy(episode.support_y)
    encoder.train(method.norm != "running")
    weights = [*head.parameters(), *(encoder.parameters() if method.adapt == "all" else ())]
    optimiser = torch.optim.SGD(weights, lr=method.inner_rate)
    for _ in range(steps):
        optimiser.zero_grad()
        torch.autograd.backward(F.cross_entropy(head(features.transform(encoder(support).x)), y))
        optimiser.step()
    if method.norm == "support":
        for part in list(encoder.modules()):
            for name, layer in list(part.named_children()):
                if isinstance(layer, nn.BatchNorm2d):
                    setattr(part, name, SplitNorm(layer, len(support)))
        found: Tensor = head(features.transform(encoder(torch.cat([support, query])).x))[len(support) :]
        return found.detach()
    found = head(features.transform(encoder(query).x))
    return found.detach()


@pytest.mark.parametrize("adapt", ["all", "head"])
@pytest.mark.parametrize("norm", NORMS)
def test_scores_are_those_of_steps_that_write_into_a_copy(norm: str, adapt: str) -> None:
    features = features_of(conv(), "unit" if adapt == "all" else "none").eval()
    episodes = drawn(shot=(1, 2, 4))
    method = build(features.encoder, norm=norm, adapt=adapt, inner_rate=0.3)
    with torch.no_grad():
        scores = method(task_of(features, images(), episodes))
    for episode, found in zip(episodes, scores, strict=True):
        torch.testing.assert_close(found, naive_scores(method, features, episode, 3), rtol=1e-3, atol=1e-4)
    trained = method.train()(task_of(features, images(), episodes))[0]
    torch.testing.assert_close(trained, naive_scores(method, features, episodes[0], 2), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("norm", NORMS)
def test_without_steps_scores_are_the_plain_networks(norm: str) -> None:
    features = features_of(conv())
    [episode] = drawn(1)
    task = task_of(features, images(), [episode])
    found = [build(features.encoder, norm=norm, order=order, steps=0, test_steps=0)(task)[0] for order in (1, 2)]
    assert torch.equal(found[0], found[1])
    method = build(features.encoder, norm=norm)
    torch.testing.assert_close(found[0], naive_scores(method, features, episode, 0), rtol=1e-4, atol=1e-5)


def line_task(points: list[float], labels: list[int], queries: list[float]) -> Task:
    """Numbers as they are."""
    pool = Pool(np.array([*points, *queries], np.float32)[:, None], np.zeros(len(points) + len(queries), int), ("",))
    rows = np.arange(len(pool))
    episode = Episode(np.arange(2), rows[: len(points)], np.array(labels), rows[len(points) :], None)
    return task_of(features_of(Identity(shape=[1])), pool, [episode])


def test_an_example_by_hand() -> None:
    method = build(Identity(shape=[1]), way=2, inner_rate=1.0, test_steps=1)
    nn.init.zeros_(method.head.weight)
    nn.init.zeros_(method.head.bias)
    task = line_task([1.0, -1.0], [0, 1], [2.0, 0.0])
    torch.testing.assert_close(method(task), torch.tensor([[[1.0, -1.0], [0.0, 0.0]]]))
    unequal = line_task([1.0, 1.0, 1.0, -1.0], [0, 0, 0, 1], [0.0])  # biases are gradients: 3/4 - 1/2, 1/4 - 1/2
    torch.testing.assert_close(method(unequal), torch.tensor([[[0.25, -0.25]]]))


@pytest.mark.parametrize(("order", "expected"), [(2, 1.71), (1, 1.9)])
def test_the_outer_gradient_of_a_parabola(order: int, expected: float) -> None:
    theta = torch.tensor(2.0, requires_grad=True)

    def loss(weights: Weights) -> Tensor:
        return (weights["theta"] - 1) ** 2 / 2

    moved = descended({"theta": theta}, loss, rate=0.1, steps=1, keeps_graph=order == 2)["theta"]
    assert moved.item() == pytest.approx(1.9)
    [slope] = torch.autograd.grad(moved**2 / 2, theta)
    assert slope.item() == pytest.approx(expected)


def outer_loss(method: MAML, task: Task) -> Tensor:
    return method.loss(task)["cls"]


@pytest.mark.parametrize(("norm", "adapt"), [*((norm, "all") for norm in NORMS), ("support", "head")])
def test_second_order_gradients_are_finite_differences(norm: str, adapt: str) -> None:
    features = features_of(conv(torch.double))
    task = task_of(features, images(), drawn(1, shot=(1, 2, 2)))
    method = build(features.encoder, norm=norm, adapt=adapt, inner_rate=0.3).double().train()
    torch.autograd.backward(outer_loss(method, task))
    random = torch.Generator().manual_seed(0)
    for parameter in (*features.encoder.parameters(), *method.head.parameters()):
        assert parameter.grad is not None
        direction = torch.randn(parameter.shape, generator=random, dtype=torch.double)
        found = []
        with torch.no_grad():
            for step in (1e-6, -1e-6):
                parameter.add_(direction, alpha=step)
                found.append(outer_loss(method, task).item())
                parameter.sub_(direction, alpha=step)
        expected = (found[0] - found[1]) / 2e-6
        assert float((parameter.grad * direction).sum()) == pytest.approx(expected, rel=1e-4, abs=1e-7)


def test_first_order_gradients_are_those_at_the_last_weights() -> None:
    features = features_of(conv())
    [episode] = drawn(1)
    task = task_of(features, images(), [episode])
    gradients = []
    for steps in (2, 0):
        method = build(features.encoder, order=1, norm="episode", inner_rate=0.3, steps=steps).train()
        if not steps:  # stand where two steps led to
            copies = deepcopy(features.encoder).train(), method.head
            optimiser = torch.optim.SGD([p for part in copies for p in part.parameters()], lr=0.3)
            images_of = features.batch(images().items, episode.support)
            for _ in range(2):
                optimiser.zero_grad()
                logits = method.head(copies[0](images_of).x)
                torch.autograd.backward(F.cross_entropy(logits, torch.from_numpy(episode.support_y)))
                optimiser.step()
            features.encoder.load_state_dict(copies[0].state_dict())
        features.zero_grad()
        method.zero_grad()
        torch.autograd.backward(outer_loss(method, task))
        gradients.append([p.grad for p in (*features.encoder.parameters(), *method.head.parameters())])
        assert all(gradient is not None for gradient in gradients[-1])
        gradients[-1] = [gradient.clone() for gradient in gradients[-1] if gradient is not None]
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-3, atol=1e-4)


def test_first_order_keeps_no_graph_of_the_inner_steps() -> None:
    """Only the last pass is differentiated: what the inner steps saved is gone."""
    for order, kept in ((1, 1), (2, 4)):  # three inner passes of the support, and the queries
        encoder = conv()
        features = features_of(encoder)
        task = task_of(features, images(), drawn(1))
        method = build(encoder, order=order, norm="episode", steps=3).train()
        loss = outer_loss(method, task)
        encodings = 0
        seen, nodes = set(), [loss.grad_fn]
        while nodes:
            node = nodes.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            encodings += node.name() == "ConvolutionBackward0"
            nodes += [other for other, _ in node.next_functions]
        assert encodings == 4 * kept


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("training", [True, False])
def test_an_evaluation_leaves_weights_and_buffers_alone(norm: str, training: bool) -> None:
    encoder = conv()
    features = features_of(encoder).train(training)
    method = build(encoder, norm=norm)
    state = {**encoder.state_dict(keep_vars=True), **method.state_dict(keep_vars=True)}
    before = {name: (tensor.detach().clone(), tensor._version) for name, tensor in state.items()}
    task = task_of(features, images(), drawn())
    with torch.no_grad():
        scores = method(task)
    assert not scores.requires_grad
    for name, tensor in state.items():
        assert torch.equal(tensor, before[name][0])
        assert tensor._version == before[name][1]
        assert tensor.grad is None
    assert features.training == training
    with torch.inference_mode():
        assert torch.equal(method(task_of(features, images(), drawn())), scores)


def test_running_statistics_stay_in_training_too() -> None:
    for norm in NORMS:
        encoder = conv()
        before = [buffer.clone() for buffer in encoder.buffers()]
        features = features_of(encoder).train()
        torch.autograd.backward(outer_loss(build(encoder, norm=norm).train(), task_of(features, images(), drawn())))
        assert all(map(torch.equal, encoder.buffers(), before))


@pytest.mark.parametrize(("norm", "apart"), [("support", True), ("running", True), ("episode", False)])
def test_queries_are_independent_unless_statistics_are_their_own(norm: str, apart: bool) -> None:
    features = features_of(conv())
    [episode] = drawn(1)
    one = replace(episode, query=episode.query[:1], query_y=None)
    method = build(features.encoder, norm=norm)
    together, alone = (method(task_of(features, images(), [each])) for each in (episode, one))
    assert torch.allclose(together[:, :1], alone, atol=1e-5) == apart
    assert ("transductive" in method.traits) != apart
    assert "transductive" not in MAML.traits


@pytest.mark.parametrize("norm", NORMS)
def test_episodes_in_a_batch_score_and_learn_as_alone(norm: str) -> None:
    features = features_of(conv())
    episodes = [*drawn(1, shot=(1, 2, 4)), *drawn(2, shot=2, query=3)]
    method = build(features.encoder, norm=norm).train()
    together = method(task_of(features, images(), episodes))
    for found, episode in zip(together, episodes, strict=True):
        alone = method(task_of(features, images(), [episode]))[0]
        torch.testing.assert_close(found[: len(episode.query)], alone, rtol=1e-4, atol=1e-5)
        assert not found[len(episode.query) :].any()
    losses = [outer_loss(method, task_of(features, images(), [episode])) for episode in episodes[1:]]
    both = outer_loss(method, task_of(features, images(), episodes[1:]))
    torch.testing.assert_close(both, torch.stack(losses).mean(), rtol=1e-4, atol=1e-5)


def test_renaming_classes_changes_scores_unless_the_head_starts_equal() -> None:
    features = features_of(conv())
    [episode] = drawn(1)
    order = np.array([2, 0, 1])
    renamed = replace(episode, classes=episode.classes[order], support_y=np.argsort(order)[episode.support_y])
    tasks = [task_of(features, images(), [each]) for each in (episode, renamed)]
    method = build(features.encoder)
    assert (method(tasks[1]) - method(tasks[0])[..., order]).abs().max() > 1e-2
    assert "equivariant" not in MAML.traits
    with torch.no_grad():
        for parameter in method.head.parameters():
            parameter.copy_(parameter[:1].expand_as(parameter).clone())
    torch.testing.assert_close(method(tasks[1]), method(tasks[0])[..., order], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "passes"),
    [
        ({}, [6, 6, 6, 6, 9]),  # three inner steps, the statistics of the support, the queries
        ({"norm": "episode"}, [6, 6, 6, 9]),
        ({"norm": "running"}, [6, 6, 6, 9]),
        ({"adapt": "head"}, [6, 6, 9]),
        ({"adapt": "head", "norm": "running"}, [6, 9]),
    ],
)
def test_nothing_is_encoded_that_it_does_not_ask_for(options: dict[str, Any], passes: list[int]) -> None:
    encoder, pool = conv(), images()
    learner = Learner.of(build(encoder, steps=3, test_steps=3, **options), encoder)
    episodes = drawn(2, query=3)
    batch, named, items = learner.train().collate(pool, episodes[:1])
    learner(batch, named, items)
    assert encoder.passes == passes
    encoder.passes.clear()
    [(task, _)] = score_episodes(learner, EncodedPool.unread(encoder, pool), episodes)
    assert encoder.passes == 2 * passes
    assert task.query.shape == (2, 9, 0)


def test_an_encoder_without_batch_norm_reads_the_support_in_inner_steps_only() -> None:
    pool = blobs()
    encoder = Identity(shape=[6])
    seen: list[int] = []
    encoder.register_forward_pre_hook(lambda _, given: seen.append(len(given[0])))
    method = build(encoder)
    method(task_of(features_of(encoder), pool, EpisodeSampler(pool, way=3, shot=2, query=3).draw(1)))
    assert seen == [6, 6, 6, 9]


@pytest.mark.parametrize(
    ("adapt", "graphs"), [("all", [True, True, True, False, False]), ("head", [False, False, False])]
)
def test_in_evaluation_only_inner_steps_of_the_encoder_keep_a_graph(adapt: str, graphs: list[bool]) -> None:
    encoder = conv()
    with torch.no_grad():
        build(encoder, adapt=adapt)(task_of(features_of(encoder), images(), drawn(1)))
    assert encoder.graphs == graphs


def test_weights_without_a_part_in_the_vectors_stay() -> None:
    encoder = conv()
    expected = build(encoder)(task_of(features_of(encoder), images(), drawn()))
    encoder.register_parameter("unused", nn.Parameter(torch.ones(3)))
    method = build(encoder)
    found = method(task_of(features_of(encoder), images(), drawn()))
    torch.testing.assert_close(found, expected)
    torch.autograd.backward(found.sum())


def test_weights_that_do_not_learn_move_all_the_same() -> None:
    features = features_of(conv())
    method, task = build(features.encoder), task_of(features, images(), drawn())
    expected = method(task)
    features.requires_grad_(False)
    method.requires_grad_(False)
    torch.testing.assert_close(method(task), expected)


def test_the_head_starts_without_bias() -> None:
    method = make_method("maml", feature_shape=(6,), way=4)
    assert isinstance(method, MAML)
    assert method.head.bias.tolist() == [0.0] * 4
    assert method.head.weight.abs().max() > 0
    assert (method.inner_rate, method.steps, method.test_steps) == (0.05, 5, 10)
    assert (method.order, method.norm, method.adapt) == (2, "support", "all")


def test_what_it_cannot_do_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"MAML has an output for each class of an episode: give their number, such as way = 5"
    ):
        make_method("maml", feature_shape=(6,))
    with pytest.raises(ConfigError, match=r"a linear head over vectors, but .* shape \(4, 3, 3\); leave output out of"):
        make_method("maml", feature_shape=(4, 3, 3), way=3)
    for options, words in (
        ({"inner_rate": 0.0}, r"inner_rate 0\.0 must be above 0, such as 0\.05"),
        ({"inner_rate": float("nan")}, "inner_rate nan must be above 0"),
        ({"steps": -1}, "steps -1: the number of inner steps is at least 0, such as 5"),
        ({"test_steps": -2}, "test_steps -2: the number of inner steps is at least 0"),
        ({"order": 3}, "option 'order': 3 is not valid"),
        ({"norm": "query"}, "option 'norm': 'query' is not valid"),
        ({"adapt": "body"}, "option 'adapt': 'body' is not valid"),
    ):
        with pytest.raises(ConfigError, match=words):
            build(Identity(shape=[6]), **options)
    features = features_of(conv())
    task = task_of(features, images(), drawn())
    with pytest.raises(ConfigError, match="MAML was made for 2 classes an episode, but these have 3; train it so"):
        build(features.encoder, way=2)(task)
    with pytest.raises(ConfigError, match=r"MAML adapts the encoder and reads the items themselves: .* has no items"):
        build(features.encoder)(replace(task, items=None))
    maml = "method={name='maml'}"
    with pytest.raises(ConfigError, match="transform = 'center-unit': maml is defined with 'none' or 'unit'"):
        load_recipe("glyphs:protonet", [maml, "transform=center-unit"])
    with pytest.raises(ConfigError, match=r"validation\.way = 7: maml serves no other way than that of its training"):
        load_recipe("glyphs:protonet", [maml, "validation.way=7"])


@pytest.mark.parametrize("options", [{"order": 1}, {"adapt": "head"}, {"norm": "running", "steps": 1}])
def test_every_option_keeps_the_contract(options: dict[str, Any]) -> None:
    check_method(MAML, **options)


@pytest.mark.parametrize("order", [1, 2])
def test_it_learns_to_adapt(order: int) -> None:
    """Two classes are opposite directions of an episode's own: only the support tells which is which."""
    random = np.random.default_rng(0)
    torch.manual_seed(0)

    def draw() -> Task:
        sign = np.tile([1.0, -1.0], 12)
        x = random.normal(size=4) * sign[:, None] + 0.2 * random.normal(size=(24, 4))
        pool = Pool(x.astype(np.float32), (sign < 0).astype(int), ("a", "b"))
        y = np.arange(2).repeat(1)
        return task_of(features, pool, [Episode(np.arange(2), np.arange(2), y, np.arange(2, 24), np.tile(y, 11))])

    class Layer(Identity):
        def __init__(self) -> None:
            super().__init__(shape=[4])
            self.layer = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU())
            self.feature_shape = (16,)

        def forward(self, batch: Tensor) -> Units:
            return Units.one_each(self.layer(batch))

    features = features_of(Layer())
    method = build(features.encoder, way=2, order=order, inner_rate=0.1, test_steps=2)

    def accuracy() -> float:
        with torch.no_grad():
            tasks = [draw() for _ in range(20)]
            return float(torch.stack([(method(t).argmax(-1) == t.query_y).float().mean() for t in tasks]).mean())

    optimiser = torch.optim.Adam([*features.parameters(), *method.parameters()], lr=2e-2)
    for _ in range(40):
        optimiser.zero_grad()
        torch.autograd.backward(outer_loss(method.train(), draw()))
        optimiser.step()
    method.eval()
    assert accuracy() > 0.95


def test_a_recipe_trains_it_and_its_run_is_scored(tmp_path: Path) -> None:
    pool = images()
    x = np.concatenate([pool.items, 255 - pool.items]).astype(np.float32)
    y = [f"{split} {label}" for split in ("train", "val") for label in pool.labels]
    np.savez(tmp_path / "images.npz", x=x, y=np.array(y), split=np.array([name.split()[0] for name in y]))
    recipe = load_recipe(
        "glyphs:protonet",
        [
            f"data.spec='vectors:{tmp_path / 'images.npz'}'",
            "method={name='maml', order=1, steps=1, test_steps=2}",
            "episodes={way=3, shot=1, query=2, batch=2}",
            "encoder.filters=4",
            "training.steps=2",
            "training.validate_every=1",
            "validation={way=3, shot=2, query=2, episodes=2}",
        ],
    )
    learner = train(recipe, tmp_path / "run").load("best")[0]
    assert learner.method.way == 3
    assert not next(learner.features.encoder.buffers()).any()  # no running mean is stored
    episodes = EpisodeSampler(pool, way=3, shot=1, query=2).draw(2)
    [(_, scores)] = score_episodes(learner, EncodedPool.unread(learner.features.encoder, pool), episodes)
    assert scores.isfinite().all()
    four = EpisodeSampler(pool, way=4, shot=1, query=2).draw(1)
    with pytest.raises(ConfigError, match="MAML was trained with 3 classes an episode and serves no other number"):
        list(score_episodes(learner, EncodedPool.unread(learner.features.encoder, pool), four))
