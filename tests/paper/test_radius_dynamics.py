"""Figure 6: every episode holds the anchor, good and bad ones alternate, and a killed training goes on the same."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hyperproto.episodes import Episode, EpisodeSampler
from hyperproto.errors import ConfigError, EpisodeError
from hyperproto.paper import radius_dynamics as fig6
from hyperproto.paper.radius_dynamics import AnchorTasks, anchor_recipe, cross_correlation, radius_dynamics
from hyperproto.recipes import Recipe
from hyperproto.training import Run, load_recipe, train
from tests.conftest import blobs
from tests.paper.test_drawings import check
from tests.training.conftest import TINY

RECIPE = """
data.spec = "vectors:{data}"
encoder = {{ name = "tiny" }}
method = {{ name = "hyperproto", centers = "stored" }}
episodes = {{ way = 4, shot = 0, query = 5 }}
optim.encoder = {{ name = "adam", lr = 0.01 }}
optim.radius = {{ name = "adam", lr = 0.5 }}
training = {{ steps = 40, validate_every = 40, checkpoint_every = 8, log_every = 4 }}
validation = {{ way = 4, shot = 2, query = 5, episodes = 4 }}
"""


@pytest.fixture
def recipe(vectors_file: Path) -> Recipe:
    exec(TINY, {"__name__": "tiny"})
    path = vectors_file.with_name("mine.toml")
    path.write_text(RECIPE.format(data=vectors_file))
    return anchor_recipe(str(path), ["training.log_every=4"], 0)


@settings(max_examples=30)
@given(st.integers(0, 7), st.integers(1, 8), st.integers(0, 1000))
def test_every_episode_holds_the_anchor(anchor: int, way: int, start: int) -> None:
    pool = blobs(per_class=6, dim=1)
    for episode in EpisodeSampler(pool, way=way, shot=1, query=2, anchor=anchor).draw(5, start=start):
        assert episode.classes[0] == anchor
        assert len(set(episode.classes.tolist())) == way
        assert (pool.labels[episode.query] == episode.classes[episode.query_y]).all()


def test_the_other_classes_of_an_anchor_are_even() -> None:
    episodes = EpisodeSampler(blobs(per_class=3, dim=1), way=3, shot=0, query=1, anchor=2).draw(3500)
    counts = np.bincount(np.concatenate([episode.classes[1:] for episode in episodes]), minlength=8)
    assert counts[2] == 0
    assert np.abs(np.delete(counts, 2) - 1000).max() < 120
    with pytest.raises(EpisodeError, match="anchor 8; its classes are 0 to 7"):
        EpisodeSampler(blobs(), way=3, shot=0, query=1, anchor=8)


class Watched(AnchorTasks):
    """Keeps what was drawn, beside what was logged before."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.drawn: list[tuple[int, float, float, bool, Episode]] = []

    def draw(self, step: int) -> list[Episode]:
        last = self.last
        episodes = super().draw(step)
        self.drawn.append((step + 1, last, self.accuracy, self.seen[-1][2], episodes[0]))
        return episodes


def test_good_and_bad_episodes_alternate(recipe: Recipe, tmp_path: Path) -> None:
    watched: list[Watched] = []

    def source(*given: Any) -> Watched:
        watched.append(Watched(*given, anchor=3, warmup=8, draws=5))
        return watched[0]

    run = train(recipe, tmp_path / "run", source=source)
    drawn = watched[0].drawn
    assert [number for number, *_ in drawn] == list(range(1, 41))
    assert all(episode.classes[0] == 3 for *_, episode in drawn)
    forced = {True: 0, False: 0}
    for number, last, accuracy, was_forced, _ in drawn:
        if number > 8:
            good = (number - 9) // 4 % 2 == 0  # 9 to 12 good, 13 to 16 bad, ...
            assert was_forced != (accuracy > last if good else accuracy < last)
            forced[was_forced] += 1
    assert min(forced.values()) > 0  # both come up
    rows = run.read_metrics()
    assert [row["step"] for row in rows] == list(range(4, 41, 4))
    for row in rows:
        own = [one for one in drawn if row["step"] - 4 < one[0] <= row["step"]]
        assert row["anchor_accuracy"] == own[-1][2]
        assert row["forced"] == sum(one[3] for one in own)
        assert 1 <= row["draws"] <= 5
        assert {one[1] for one in own} == {rows[rows.index(row) - 1]["anchor_accuracy"] if row["step"] > 4 else 0.0}
    method: Any = run.load("last")[0].method
    assert rows[-1]["anchor_radius"] == pytest.approx(method.radius[3].item())


def test_what_is_looked_at_is_equation_2(recipe: Recipe, tmp_path: Path) -> None:
    seen: dict[str, Any] = {}

    class Loop(AnchorTasks):
        def draw(self, step: int) -> list[Episode]:
            episodes = super().draw(step)
            if step == 5:
                self._loop(episodes[0])
            return episodes

        @torch.no_grad()
        def _loop(self, episode: Episode) -> None:
            assert episode.query_y is not None
            learner, right, far = self.learner, [], []
            method: Any = learner.method
            center, radius = method.center, method.radius[:, 0]
            for item in episode.query[episode.query_y == 0]:
                x = learner.features(learner.features.batch(learner.features.prepared(self.pool), np.array([item]))).x[
                    0
                ]
                measures = [float(((x - center[n]) ** 2).sum() - radius[n]) for n in episode.classes]
                right.append(min(range(len(measures)), key=measures.__getitem__) == 0)
                far.append(float(((x - center[self.anchor]) ** 2).sum()))
            seen.update(accuracy=(self.accuracy, np.mean(right)), distance=(self.distance, np.mean(far)))

    def source(*given: Any) -> Loop:
        return Loop(*given, anchor=3, warmup=8, draws=5)

    train(recipe, tmp_path / "run", source=source)
    assert seen["accuracy"][0] == pytest.approx(seen["accuracy"][1])
    assert seen["distance"][0] == pytest.approx(seen["distance"][1], rel=1e-5)


class KilledError(Exception):
    pass


def test_a_killed_training_goes_on_to_the_same_result(recipe: Recipe, tmp_path: Path) -> None:
    short = {"steps": 24, "validate_every": 24, "log_every": 2}
    recipe = recipe.model_copy(update={"training": recipe.training.model_copy(update=short)})
    whole = radius_dynamics(tmp_path / "whole", recipe, 2, quiet, warmup=4, draws=5)

    def kill(done: int, total: int, note: str = "") -> None:
        if done == 24 + 19:
            raise KilledError

    with pytest.raises(KilledError):
        radius_dynamics(tmp_path / "killed", recipe, 2, kill, warmup=4, draws=5)
    assert len(Run(next(iter(sorted((tmp_path / "killed").iterdir())))).read_metrics()) > 0
    assert radius_dynamics(tmp_path / "killed", recipe, 2, quiet, warmup=4, draws=5) == whole
    assert [row["step"] for row in whole["anchors"]] == [list(range(8, 25, 2))] * 2  # from the second block on
    check(fig6.draw_radius(whole), "fig6")
    assert len(fig6.lag_table(whole)[1]) == sum(len(c["lags"]) for c in whole["correlation"].values())


def quiet(done: int, total: int, note: str = "") -> None:
    """Show nothing."""


def series(lag: int, count: int = 8, length: int = 29, noise: float = 0.1) -> list[dict[str, Any]]:
    random = np.random.default_rng(0)
    anchors = []
    for _ in range(count):
        distance = random.normal(size=length + 10).cumsum()
        radius = np.roll(distance, lag) + noise * random.normal(size=length + 10)
        anchors.append(
            {"step": list(range(length)), "distance": distance[5:-5].tolist(), "radius": radius[5:-5].tolist()}
        )
    return anchors


@pytest.mark.parametrize(("lag", "follows"), [(0, True), (1, True), (2, True), (3, False), (-1, False)])
def test_a_lag_is_found(lag: int, follows: bool) -> None:
    found = cross_correlation(series(lag), "distance")
    assert found["best_lag"] == lag
    assert found["radius_follows"] is follows


def test_no_relation_is_none() -> None:
    apart = [{**a, "radius": b["radius"][::-1]} for a, b in zip(series(0), series(0)[::-1], strict=True)]
    assert not cross_correlation(apart, "distance")["radius_follows"]
    assert cross_correlation([], "distance") == {"lags": [], "best_lag": None, "radius_follows": False}
    [one] = series(1, count=1)
    row = cross_correlation([one], "distance")["lags"][6]
    assert row["lag"] == 1
    assert row["low"] is None
    a, b = np.diff(one["distance"])[:-1], np.diff(one["radius"])[1:]
    top = sum((x - a.mean()) * (y - b.mean()) for x, y in zip(a, b, strict=True))
    assert row["mean"] == pytest.approx(
        top / math.sqrt(((a - a.mean()) ** 2).sum() * ((b - b.mean()) ** 2).sum()), abs=1e-4
    )


def test_recipes_that_do_not_fit_are_refused(recipe: Recipe, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"fig6 trains hyperproto on episodes, from the start; .* does something else"
    ):
        anchor_recipe("glyphs:protonet", [], 0)
    with pytest.raises(ConfigError, match=r"fig6 logs every 50 steps .* they are 75, 250 and 2000"):
        anchor_recipe(None, ["training.steps=75"], 0)
    with pytest.raises(ConfigError, match=r"--anchors 9: .* has 8 classes; give 1 to 8"):
        radius_dynamics(tmp_path, recipe, 9, quiet)
    ours = anchor_recipe(None, [], 4)
    paper = load_recipe("table2:hyperproto-cnn")
    assert ours.method == paper.method
    assert ours.optim == paper.optim
    assert ours.episodes is not None
    assert (ours.episodes.way, ours.episodes.query, ours.training.seed) == (5, 5, 4)
    assert (ours.training.steps, ours.training.log_every) == (2000, 50)
