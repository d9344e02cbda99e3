"""TRAML: the worked cases, margins against loops, names in training only, and a generator that plays against it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from hyperproto.comparison.measure import evaluate_candidates, select
from hyperproto.data import Pool, open_pool
from hyperproto.encoders.class_names import ClassNames, NameEncoder
from hyperproto.episodes import EpisodeSampler
from hyperproto.errors import ConfigError
from hyperproto.methods import Task, make_method
from hyperproto.methods.traml import TRAML
from hyperproto.testing import check_method
from hyperproto.training import load_recipe, train
from hyperproto.training.sources import encoder_source, run_source
from tests.helpers.random_tasks import make_task

MARGINS = ["fixed", "class", "task", "task-learned"]


def method_of(margin: str = "task", way: int | None = 3, **options: Any) -> TRAML:
    torch.manual_seed(0)
    method = make_method("traml", feature_shape=(6,), n_classes=8, margin=margin, way=way, **options)
    assert isinstance(method, TRAML)
    return method


def named_task(seed: int = 0, **how: Any) -> Task:
    """Random episodes with names of length 1; the same class has the same name."""
    task = make_task(seed=seed, **how)
    table = F.normalize(torch.randn(8, 4, generator=torch.Generator().manual_seed(seed + 1)), dim=-1)
    named = torch.ones_like(task.classes, dtype=torch.bool)
    return task.with_evidence(names=table[task.classes], named=named)


def similarities(wanted: list[float]) -> Tensor:
    """Names (1, N, D') of length 1 whose first has these cosines with the others."""
    rest = torch.eye(len(wanted))
    sims = torch.tensor(wanted)
    others = torch.cat([sims[:, None], (1 - sims**2).sqrt()[:, None] * rest], 1)
    return torch.cat([torch.eye(1, len(wanted) + 1), others])[None]


def on_a_line(scores: list[float]) -> Task:
    """One query at 0 of class 0, whose scores by ProtoNet are these, minus their largest."""
    places = (max(scores) - torch.tensor(scores)).sqrt()[None, :, None] * torch.eye(1, 6)
    way = len(scores)
    return Task(
        support=places,
        support_y=torch.arange(way)[None],
        query=torch.zeros(1, 1, 6),
        query_y=torch.zeros(1, 1, dtype=torch.long),
        classes=torch.arange(way)[None],
        query_offsets=torch.arange(2)[None],
    )


def with_margins(method: TRAML, margins: Tensor) -> TRAML:
    method.margins = lambda task: margins  # type: ignore[method-assign]
    return method


def test_a_loss_worked_by_hand() -> None:
    """s = (2, 1, 0), y = 0, m = (0, 0.5, 1): the gradient of a margin is the probability of its class."""
    task = on_a_line([2.0, 1.0, 0.0])
    assert method_of(beta=0.0, alpha=0.0, margin="fixed").loss(task)["cls"].item() == pytest.approx(0.40761, abs=5e-6)
    margins = torch.tensor([[[0.0, 0.5, 1.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]], requires_grad=True)
    loss = with_margins(method_of(), margins).loss(task)["cls"]
    assert loss.item() == pytest.approx(0.68027, abs=5e-6)
    [gradient] = torch.autograd.grad(loss, margins)
    assert gradient[0, 0, 1:].tolist() == pytest.approx([0.30720, 0.18632], abs=5e-6)


def test_task_margins_worked_by_hand() -> None:
    task = on_a_line([0.0] * 4).with_evidence(names=similarities([0.6, 0.2, 0.1]))
    margins = method_of().margins(task)
    assert margins[0, 0].tolist() == pytest.approx([0.0, 1.1944, 0.2685, 0.0371], abs=5e-5)
    by_class = method_of("class", alpha=2.0, beta=0.1).margins(task)
    assert by_class[0, 0].tolist() == pytest.approx([0.0, 1.3, 0.5, 0.3], abs=1e-5)


def naive_margins(method: TRAML, task: Task) -> Tensor:
    assert task.names is not None
    margins = torch.zeros(len(task.query), task.way, task.way)
    for b in range(len(task.query)):
        for y in range(task.way):
            others = [k for k in range(task.way) if k != y]
            sims = {k: float(task.names[b, y] @ task.names[b, k]) for k in others}
            mean, std = float(np.mean(list(sims.values()))), float(np.std(list(sims.values())))
            ranked = sorted(others, key=lambda k: (-sims[k], int(task.classes[b, k])))
            if method.margin == "task-learned":
                shares = method.generator(torch.tensor([sims[k] for k in ranked])).softmax(0)
            for k in others:
                if method.margin == "task-learned":
                    margins[b, y, k] = method.beta * len(others) * shares[ranked.index(k)]
                elif method.margin == "fixed":
                    margins[b, y, k] = method.beta
                elif method.margin == "class":
                    margins[b, y, k] = method.alpha * sims[k] + method.beta
                else:
                    margins[b, y, k] = method.beta + method.alpha * (sims[k] - mean) / (std + 1e-6)
    return margins


@pytest.mark.parametrize("margin", MARGINS)
@torch.no_grad()
def test_margins_and_loss_are_those_of_the_equations(margin: str) -> None:
    task = named_task(pads=2)
    assert task.query_y is not None
    assert task.names is not None
    task = replace(task, query_y=task.query_y.clone()).with_evidence(names=task.names.clone())
    assert task.query_y is not None
    assert task.names is not None
    task.names[1] = task.names[1, :1]  # as alike as can be: the numbers of the classes decide
    task.query_y[0, 3], task.query_y[1, 0] = -1, -2  # of none of the classes, and padding: neither has a loss
    method = method_of(margin, alpha=0.3, beta=0.7, temperature=2.0)
    margins = naive_margins(method, task)
    torch.testing.assert_close(method.margins(task), margins, rtol=1e-4, atol=1e-5)
    losses = []
    for b, labels in enumerate(task.query_y):
        for q, y in enumerate(labels.tolist()):
            if y >= 0:
                logits = method(task)[b, q] / 2 + margins[b, y]
                losses.append(-torch.log(logits[y].exp() / logits.exp().sum()))
    torch.testing.assert_close(method.loss(task)["cls"], torch.stack(losses).mean(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("margin", MARGINS)
def test_without_margins_it_is_protonet_to_the_last_bit(margin: str) -> None:
    task, protonet = named_task(), make_method("protonet", feature_shape=(6,), n_classes=8)
    method = method_of(margin, alpha=0.0, beta=0.0)
    assert torch.equal(method.loss(task)["cls"], protonet.loss(task)["cls"])
    assert torch.equal(method_of(margin)(task), protonet(task))  # scores have no margins at all


@torch.no_grad()
def test_scores_do_not_depend_on_names() -> None:
    task = named_task()
    assert task.names is not None
    scores = method_of()(task)
    assert torch.equal(method_of()(task.with_evidence(names=None, named=None)), scores)
    assert torch.equal(method_of()(task.with_evidence(names=-task.names.roll(1, 1))), scores)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("margin", MARGINS)
@torch.no_grad()
def test_renaming_the_classes_leaves_the_loss(margin: str, ties: bool) -> None:
    task = named_task(counts=(2, 1, 3, 2))
    if ties:
        task = task.with_evidence(names=torch.ones_like(task.names) if task.names is not None else None)
    order = torch.tensor([2, 0, 3, 1])  # new label n is old label order[n]
    new = order.argsort()
    assert task.names is not None
    assert task.query_y is not None
    renamed = replace(
        task,
        support_y=new[task.support_y],
        query_y=new[task.query_y],
        classes=task.classes[:, order],
        evidence=replace(task.evidence, names=task.names[:, order]),
    )
    method = method_of(margin, way=4)
    torch.testing.assert_close(method.loss(renamed)["cls"], method.loss(task)["cls"])
    torch.testing.assert_close(method.margins(renamed), method.margins(task)[:, order][:, :, order])


def test_two_classes_have_one_margin_and_one_has_none() -> None:
    two = method_of(way=2).margins(named_task(counts=(2, 2)))
    assert torch.equal(two[0], torch.tensor([[0.0, 0.5], [0.5, 0.0]]))
    one = named_task(counts=(2,))
    for margin in MARGINS[:3]:
        assert not method_of(margin).margins(one).any()
        assert method_of(margin).loss(one)["cls"].item() == 0.0


@pytest.mark.parametrize("margin", MARGINS)
def test_a_name_without_known_words_is_alike_to_none(margin: str) -> None:
    task = named_task(counts=(2, 2, 2))
    assert task.names is not None
    task.names[0, 1] = 0.0
    task.names[1] = 0.0
    method = method_of(margin)
    assert method.margins(task).isfinite().all()
    assert method.loss(task)["cls"].isfinite()
    if margin == "class":
        assert method.margins(task)[0, 1].tolist() == [0.5, 0.0, 0.5]
    if margin == "task":
        assert torch.equal(method.margins(task)[1], 0.5 * (1 - torch.eye(3)))


def test_names_get_no_gradient() -> None:
    """They could only learn to make all margins small."""
    task = named_task()
    assert task.names is not None
    names = task.names.clone().requires_grad_(True)
    query = task.query.clone().requires_grad_(True)
    method_of().loss(replace(task, query=query).with_evidence(names=names))["cls"].backward()  # type: ignore[no-untyped-call]
    assert names.grad is None
    assert query.grad is not None
    assert query.grad.any()


def test_the_generator_keeps_its_sum_and_raises_the_loss_while_the_encoder_lowers_it() -> None:
    method = method_of("task-learned", way=4, beta=0.8)
    encoder = torch.nn.Linear(6, 6)
    plain = [named_task(seed, counts=(2, 2, 2, 2), queries=6) for seed in range(6)]

    def tasks() -> list[Task]:
        return [replace(task, support=encoder(task.support), query=encoder(task.query)) for task in plain]

    def mean_loss() -> Tensor:
        return torch.stack([method.loss(task)["cls"] for task in tasks()]).mean()

    def sums_are_exact() -> None:
        for task in tasks():
            torch.testing.assert_close(method.margins(task).sum(-1), torch.full((2, 4), 0.8 * 3))

    group = method.param_groups()["generator"]
    assert group.opponent
    second = torch.optim.SGD(group.params, lr=0.5)
    first = torch.optim.SGD(encoder.parameters(), lr=0.005)
    for _ in range(3):
        sums_are_exact()
        before = mean_loss().item()
        second.zero_grad()
        torch.stack([method.opponent_loss(t.detached())["generator"] for t in tasks()]).mean().backward()  # type: ignore[no-untyped-call]
        second.step()
        between = mean_loss()
        assert between.item() > before
        first.zero_grad()
        between.backward()  # type: ignore[no-untyped-call]
        first.step()
        assert mean_loss().item() < between.item()
    sums_are_exact()
    largest = method.monitor()["largest_margin"]
    assert isinstance(largest, float)
    assert largest > 0.8


def test_only_learned_margins_have_a_second_player() -> None:
    for margin in MARGINS[:3]:
        method = method_of(margin)
        assert method.param_groups() == {}
        assert method.opponent_loss(named_task()) == {}
        assert not [name for name, _ in method.named_parameters() if name != "log_temperature"]


@pytest.mark.parametrize("margin", MARGINS)
def test_every_margin_keeps_the_contract(margin: str) -> None:
    check_method(TRAML, margin=margin, way=3)


@pytest.mark.parametrize("margin", MARGINS)
def test_a_loss_stays_on_the_device_of_its_vectors(margin: str) -> None:
    task = named_task()
    assert task.names is not None
    assert task.query_y is not None
    task = replace(
        task,
        support=task.support.to("meta"),
        support_y=task.support_y.to("meta"),
        query=task.query.to("meta"),
        query_y=task.query_y.to("meta"),
        classes=task.classes.to("meta"),
        evidence=replace(task.evidence, names=task.names.to("meta")),
    )
    assert method_of(margin).to("meta").loss(task)["cls"].is_meta


def names_of(*texts: str | None) -> tuple[Pool, ClassNames]:
    """Classes and their names; a text of digits has a vector, another has zeros."""
    pool = Pool(np.zeros((len(texts), 6), np.float32), np.arange(len(texts)), tuple(map(str, texts)), name="animals")

    def read(texts: Any) -> Tensor:
        return torch.tensor([[float(text), 1.0] if text.isdigit() else [0.0, 0.0] for text in texts])

    return pool, ClassNames(texts, {}, read, frozen=True)


def test_names_without_known_words_are_refused_before_they_are_trained_with() -> None:
    method = method_of()
    method.read_pool(*names_of("1", None, "2", "komondor"))
    with pytest.raises(
        ConfigError, match=r"only 1 of the 3 names of animals \(all\) have known words; give \[names\] a file .*encoder"
    ):
        method.read_pool(*names_of("1", "komondor", None))
    method.read_pool(names_of("1")[0], None)  # at evaluation


def test_what_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"TRAML: alpha = -1 must be a number, 0 or more"):
        method_of(alpha=-1)
    with pytest.raises(ConfigError, match=r"TRAML: beta = inf must be a number, 0 or more"):
        method_of(beta=float("inf"))
    with pytest.raises(ConfigError, match=r"(?s)margin.*'wide'.*task-learned"):
        method_of("wide")
    for way in (None, 1):
        with pytest.raises(ConfigError, match=rf"at least 2, but way is {way}; say in \[episodes\] how many"):
            method_of("task-learned", way=way)
    with pytest.raises(ConfigError, match="hidden = 0 must be at least 1"):
        method_of("task-learned", hidden=0)
    with pytest.raises(ConfigError, match=r"reads the names of classes in training; give the recipe \[names\], or"):
        method_of().loss(make_task())
    with pytest.raises(ConfigError, match="learns margins for 4 classes an episode, but these have 3; train it with"):
        method_of("task-learned", way=4).loss(named_task())


RECIPE = """
data = {{ spec = "vectors:{data}" }}
encoder = {{ name = "tiny" }}
method = {{ name = "traml", margin = "{margin}" }}
names = {{ source = "labels", encoder = "glove:{words}" }}
episodes = {{ way = 4, shot = 3, query = 4, batch = 2 }}
optim.encoder = {{ name = "adam", lr = 0.01 }}
{generator}
training = {{ steps = 12, validate_every = 6, checkpoint_every = 4, log_every = 1 }}
validation = {{ way = 3, shot = 2, query = 5, episodes = 5 }}
"""
GENERATOR = 'optim.generator = { name = "adam", lr = 0.01 }'


@pytest.fixture
def recipe(vectors_file: Path) -> Path:
    from tests.training.conftest import TINY

    exec(TINY, {"__name__": "tiny"})
    random, words = np.random.default_rng(0), vectors_file.with_name("words.txt")
    words.write_text("".join(f"{n:02d} {' '.join(map(str, random.normal(size=3)))}\n" for n in range(24)))
    path = vectors_file.with_name("traml.toml")
    path.write_text(RECIPE.format(data=vectors_file, words=words, margin="task-learned", generator=GENERATOR))
    return path


def no_names(*_: Any) -> None:
    raise AssertionError("names were read")


def test_training_learns_and_evaluation_reads_no_names(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pools: list[str] = []
    of = NameEncoder.of

    def watched(self: NameEncoder, pool: Pool, own: Any) -> ClassNames:
        pools.append(pool.split)
        return of(self, pool, own)

    monkeypatch.setattr(NameEncoder, "of", watched)
    run = train(load_recipe(str(recipe), ["training.steps=60"]), tmp_path / "run")
    assert set(pools) == {"train"}  # in no validation
    rows = run.read_metrics()
    assert {"cls", "generator", "largest_margin"} <= rows[0].keys()
    assert rows[-1]["cls"] < 0.5 * rows[0]["cls"]
    assert run.load()[1].method.options["way"] == 4

    monkeypatch.setattr(NameEncoder, "of", no_names)
    pool = open_pool(f"vectors:{recipe.with_name('vectors.npz')}", "test")
    source = run_source(str(run.folder), pool)
    episodes = EpisodeSampler(pool, way=3, shot=2, query=3, seed=0).draw(4)  # another way than in training
    candidates = select([source], ["traml", "protonet"], [], [], {})
    own, protonet = evaluate_candidates(candidates, pool, episodes, {})
    assert np.array_equal(own.values, protonet.values)
    assert "names" not in own.to_json()
    untrained = select([encoder_source("identity", pool)], ["traml"], [], [], {})
    assert evaluate_candidates(untrained, pool, episodes, {})[0].values.mean() > 0.4


def test_a_resumed_run_ends_with_the_same_bytes(recipe: Path, tmp_path: Path) -> None:
    class KilledError(Exception):
        pass

    def kill(report: Any) -> None:
        if report.step == 7:
            raise KilledError

    loaded = load_recipe(str(recipe))
    train(loaded, tmp_path / "whole")
    with pytest.raises(KilledError):
        train(loaded, tmp_path / "killed", kill)
    train(loaded, tmp_path / "killed")
    for name in ("model.safetensors", "metrics.jsonl", "checkpoint/last.safetensors"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def test_recipes_that_do_not_fit(recipe: Path, tmp_path: Path) -> None:
    text = recipe.read_text()
    with pytest.raises(ConfigError, match=r"optim.generator: there is no optimiser section 'generator'"):
        load_recipe(str(recipe), ["method.margin='task'"])
    with pytest.raises(ConfigError, match=r"names: the classes of omniglot are characters"):
        load_recipe(str(recipe), ["data.spec='omniglot'"])
    with pytest.raises(ConfigError, match=r"one number of classes, at least 2, but way is all; say in \[episodes\]"):
        load_recipe(str(recipe), ["episodes.way='all'"])
    recipe.write_text(text.replace(GENERATOR, ""))
    with pytest.raises(ConfigError, match=r"\[optim.generator\] is missing: traml learns it under an optimiser"):
        load_recipe(str(recipe))
    load_recipe(str(recipe), ["method.margin='task'"])
    recipe.write_text("\n".join(line for line in text.replace(GENERATOR, "").splitlines() if "names" not in line))
    with pytest.raises(ConfigError, match=r"\[names\] is missing: traml reads the names of classes"):
        load_recipe(str(recipe), ["method.margin='task'"])
    fixed = load_recipe(str(recipe), ["method.margin='fixed'"])  # the control needs no names
    assert train(fixed, tmp_path / "fixed").read_metrics()
