"""A third problem is one class: grades, whose classes are in order; a near miss is better than a far one."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from hyperproto.comparison.measure import evaluate_candidates, select
from hyperproto.data import DATASETS, Pool
from hyperproto.encoders import ENCODERS, Units
from hyperproto.encoders.identity import Identity
from hyperproto.episodes import Episode, EpisodeSampler
from hyperproto.errors import ConfigError
from hyperproto.evaluation import EncodedPool, compare, measure_episodes, predict_episodes
from hyperproto.methods import make_method
from hyperproto.problems import PROBLEMS, Answers, Measurement, Problem, make_sampler, problem_of
from hyperproto.training import load_recipe, train
from hyperproto.training.run import validated
from tests.helpers.predicting import predictor, source


class NextGrades:
    """Episodes of grades that follow each other, in their order."""

    def __init__(self, pool: Pool, *, way: int, shot: int, query: int, seed: int) -> None:
        self.pool, self.way, self.shot, self.query, self.seed = pool, way, shot, query, seed

    def __getitem__(self, i: int) -> Episode:
        random = np.random.default_rng([self.seed, i])
        classes = random.integers(self.pool.n_classes - self.way + 1) + np.arange(self.way)
        drawn = [random.permutation(self.pool.members[n])[: self.shot + self.query] for n in classes]
        support, query = ([row[part] for row in drawn] for part in (slice(self.shot), slice(self.shot, None)))
        support_y, query_y = (np.repeat(np.arange(self.way), count) for count in (self.shot, self.query))
        return Episode(classes, np.concatenate(support), support_y, np.concatenate(query), query_y)

    def draw(self, count: int, start: int = 0) -> list[Episode]:
        return [self[i] for i in range(start, start + count)]


class Grades(Problem):
    """How near the answers are: 1 where they are right, 0 at the other end of the scale."""

    name = "grades"
    metric = "closeness"

    def sampler(self, pool: Pool, *, way: int = 5, shot: Any = 5, query: Any = None, seed: int = 0, **more: Any) -> Any:
        refused = [key for key, value in more.items() if value]
        if refused:
            raise ConfigError(f"{pool}: {', '.join(refused)} of grades have no meaning")
        return NextGrades(pool, way=way, shot=shot, query=query or 5, seed=seed)

    def measure(self, pool: Pool, episodes: Sequence[Episode], answers: Iterable[Answers], **how: Any) -> Measurement:
        near = [1 - (b.labels - b.truth).abs().double().mean(1) / (b.task.way - 1) for b in answers]
        values = torch.cat(near).numpy()
        return Measurement(self.metric, float(values.mean()), values, log={"worst": float(values.min())})

    def settings(self, **how: Any) -> dict[str, Any]:
        return {"grades": True}


class Scaled(Identity):
    """Learns a factor for each coordinate."""

    def __init__(self, *, shape: list[int]) -> None:
        super().__init__(shape=shape)
        self.factor = nn.Parameter(torch.ones(shape[0]))

    def forward(self, batch: Any) -> Units:
        return Units.one_each(batch * self.factor)

    def encode_all(self, prepared: Any, progress: Any = None) -> Units:
        return super(Identity, self).encode_all(prepared)


def graded(split: str = "all") -> Pool:
    """Six coordinates of noise, of which the first follows the grade."""
    random = np.random.default_rng(len(split))
    labels = np.repeat(np.arange(9), 20)
    items = random.normal(size=(len(labels), 6)).astype(np.float32)
    items[:, 0] += labels
    return Pool(items, labels, tuple("123456789"), name="graded", split=split, problem="grades")


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Known while a test runs, and not to other tests."""
    data = SimpleNamespace(
        SUMMARY="grades", splits=lambda _: ("train", "val"), load=lambda split, argument, progress: graded(split)
    )
    for registry, name, entry in (
        (PROBLEMS, "grades", Grades),
        (DATASETS, "graded", data),
        (ENCODERS, "scaled", Scaled),
    ):
        monkeypatch.setitem(registry._entries, name, entry)


def test_its_episodes_are_drawn_by_its_own_sampler() -> None:
    pool = graded()
    assert isinstance(problem_of(pool), Grades)
    sampler = make_sampler(pool, way=4, shot=2, seed=3)
    for episode in sampler.draw(20):
        assert np.diff(episode.classes).tolist() == [1, 1, 1]
        assert len(episode.query) == 4 * 5
    with pytest.raises(ConfigError, match=r"graded \(all\): rule of grades have no meaning"):
        make_sampler(pool, way=4, shot=2, rule="toolkit")


def test_its_answers_are_measured_by_its_own_metric() -> None:
    pool = graded()
    episodes = make_sampler(pool, way=4, shot=3).draw(15)
    encoded = EncodedPool.encode(Identity(shape=[6]), pool)
    answering = predictor(make_method("protonet", feature_shape=(6,)), encoded)
    found = measure_episodes(answering, encoded, episodes)
    expected = []
    for block in predict_episodes(answering, encoded, episodes):
        for labels, truth in zip(block.labels.tolist(), block.truth.tolist(), strict=True):
            expected.append(1 - sum(abs(a - b) for a, b in zip(labels, truth, strict=True)) / len(truth) / 3)
    np.testing.assert_allclose(found.values, expected)
    assert found.metric == "closeness"
    assert found.value == pytest.approx(np.mean(expected))
    assert 0.3 < found.value < 1
    assert found.row() == {"closeness": found.value, "ci95": found.ci95, "worst": min(found.values)}


def test_candidates_are_compared_by_it() -> None:
    pool = graded()
    episodes = make_sampler(pool, way=4, shot=3).draw(15)
    candidates = select([source()], ["protonet", "hyperproto"], [], ["none"], {})
    results = evaluate_candidates(candidates, pool, episodes, {"shot": 3})
    for result in results:
        content = result.to_json()
        assert (content["closeness"], content["grades"]) == (pytest.approx(result.values.mean()), True)
        assert "accuracy" not in content
    [row] = compare(results)
    assert row["difference"] == pytest.approx(results[0].values.mean() - results[1].values.mean())


def test_a_run_is_trained_on_it_and_keeps_the_weights_that_are_best_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[list[int]] = []
    plain: Callable[..., Episode] = NextGrades.__getitem__

    def remembered(self: NextGrades, i: int) -> Episode:
        episode = plain(self, i)
        drawn.append(episode.classes.tolist())
        return episode

    monkeypatch.setattr(NextGrades, "__getitem__", remembered)
    monkeypatch.delattr(EpisodeSampler, "draw")  # the one for classes that have no order
    recipe = tmp_path / "grades.toml"
    recipe.write_text("""
data = { spec = "graded" }
encoder = { name = "scaled" }
method = { name = "protonet" }
episodes = { way = 4, shot = 3, query = 4 }
optim.encoder = { name = "adam", lr = 0.05 }
training = { steps = 40, validate_every = 10 }
validation = { split = "val", way = 4, shot = 3, query = 4, episodes = 20 }
""")
    run = train(load_recipe(str(recipe)), tmp_path / "run")
    assert len(drawn) == 20 + 40
    metric, rows = validated(run.read_metrics())
    assert metric == "closeness"
    assert [row["step"] for row in rows] == [10, 20, 30, 40]
    assert all(row["worst"] <= row["closeness"] for row in rows)
    best = max(rows, key=lambda row: row["closeness"])
    assert run.best_validation() == {key: best[key] for key in ("step", "closeness", "ci95")}
    assert best["closeness"] > 0.7
    learner, _ = run.load()
    encoded = EncodedPool.encode(learner.features.encoder, graded("val"))
    episodes = make_sampler(encoded.pool, way=4, shot=3, query=4, seed=1).draw(20)
    assert measure_episodes(learner, encoded, episodes).value == pytest.approx(best["closeness"])
