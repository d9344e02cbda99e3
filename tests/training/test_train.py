"""Algorithm 1 end to end on small vectors."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hyperproto.errors import ConfigError, DataError, EpisodeError
from hyperproto.methods.protonet import ProtoNet
from hyperproto.methods.stored import StoredRegions
from hyperproto.training import Report, Run, load_recipe, train
from hyperproto.training.checkpoint import load_tensors, save_tensors

from .conftest import recipe_file


def test_a_run_learns_and_leaves_its_files(vectors_file: Path, tmp_path: Path) -> None:
    reports: list[Report] = []
    recipe = load_recipe(str(recipe_file(vectors_file)), ["training.steps=60"])
    run = train(recipe, tmp_path / "run", reports.append)
    assert [report.step for report in reports] == list(range(1, 61))
    assert "loss" in reports[-1].words()
    assert "accuracy" in reports[-1].words()
    assert "radius spread" in reports[-1].words()
    rows = run.read_metrics()
    assert [row["step"] for row in rows] == list(range(5, 61, 5))
    validated = {row["step"]: row["accuracy"] for row in rows if "accuracy" in row}
    assert sorted(validated) == [10, 20, 30, 40, 50, 60]
    assert rows[-1]["cls"] < rows[0]["cls"]
    assert len(rows[0]["radii"]) == 8
    _, state = load_tensors(run.model)
    assert state["accuracy"] == max(validated.values())
    assert state["step"] == max(validated, key=lambda step: (validated[step], -step))
    config = json.loads(run.config.read_text())
    assert config["recipe"]["encoder"] == {"name": "tiny", "shape": [8]}
    learner, _ = run.load()
    assert not learner.training
    assert not list(tmp_path.glob("run/**/*.tmp"))


@pytest.mark.parametrize("method", ["protonet", "cosine", "hyperproto", "hyperproto-cone", "hyperproto-gaussian"])
@pytest.mark.parametrize("transform", ["none", "center-unit"])
def test_every_method_trains(method: str, transform: str, vectors_file: Path, tmp_path: Path) -> None:
    recipe = load_recipe(str(recipe_file(vectors_file, method, transform)))
    rows = train(recipe, tmp_path / "run").read_metrics()
    assert rows[-1]["accuracy"] > 0.5  # chance is 0.25
    if transform == "center-unit":
        assert Run(tmp_path / "run").load()[0].features.transform.has_center


def test_stored_centres_without_support(vectors_file: Path, tmp_path: Path) -> None:
    overrides = ["episodes.shot=0", "method.centers=stored", "training.steps=40"]
    run = train(load_recipe(str(recipe_file(vectors_file)), overrides), tmp_path / "run")
    assert run.read_metrics()[-1]["accuracy"] > 0.5


def test_radii_of_classes_that_were_not_drawn_stay(vectors_file: Path, tmp_path: Path) -> None:
    overrides = ["training.steps=1", "episodes.way=2", "episodes.batch=1", "training.checkpoint_every=1"]
    recipe = load_recipe(str(recipe_file(vectors_file)), overrides)
    run = train(recipe, tmp_path / "run")
    moved = load_tensors(run.checkpoint)[0]["model/method.radius"].flatten()
    from hyperproto.data import open_pool
    from hyperproto.episodes import EpisodeSampler
    from hyperproto.training import Learner
    from hyperproto.training.resolve import resolve

    pool = open_pool(recipe.data.spec, "train")
    drawn = set(EpisodeSampler(pool, way=2, shot=3, query=4, seed=0)[0].classes.tolist())
    learner = Learner.build(resolve(recipe, pool), pool.n_classes)
    torch.manual_seed(0)
    learner.setup(pool)
    assert isinstance(learner.method, StoredRegions)
    still = learner.method.radius.detach().flatten()
    assert {n for n in range(8) if moved[n] != still[n]} == drawn


def test_every_step_has_new_episodes(vectors_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hyperproto.episodes import EpisodeSampler

    drawn: list[int] = []
    real = EpisodeSampler.draw

    def draw(self: EpisodeSampler, count: int, start: int = 0) -> Any:
        if self.pool.split == "train":
            drawn.extend(range(start, start + count))
        return real(self, count, start)

    monkeypatch.setattr(EpisodeSampler, "draw", draw)
    train(load_recipe(str(recipe_file(vectors_file))), tmp_path / "run")
    assert drawn == list(range(60))  # 30 steps of 2


def test_noise_is_of_the_training_episodes_alone(
    vectors_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hyperproto.episodes import EpisodeSampler

    rates: dict[str, set[float]] = {}
    real = EpisodeSampler.draw

    def draw(self: EpisodeSampler, count: int, start: int = 0) -> Any:
        rates.setdefault(self.pool.split, set()).add(self.noise_rate)
        return real(self, count, start)

    monkeypatch.setattr(EpisodeSampler, "draw", draw)
    path = str(recipe_file(vectors_file))
    train(load_recipe(path, ["episodes.noise_rate=0.3", "training.steps=2"]), tmp_path / "run")
    assert rates == {"train": {0.3}, "val": {0.0}}
    with pytest.raises(EpisodeError, match=r"noise_rate 0\.3 .*8-way episodes leave none of its 8; lower the way"):
        train(load_recipe(path, ["episodes.noise_rate=0.3", "episodes.way='all'"]), tmp_path / "other")
    with pytest.raises(ConfigError, match=r"episodes\.noise_rate = 2: input should be less than or equal to 1"):
        load_recipe(path, ["episodes.noise_rate=2"])


def test_the_global_random_state_is_left_alone(vectors_file: Path, tmp_path: Path) -> None:
    torch.manual_seed(123)
    expected = torch.rand(1)
    torch.manual_seed(123)
    train(load_recipe(str(recipe_file(vectors_file))), tmp_path / "run")
    assert torch.equal(torch.rand(1), expected)


def test_patience_ends_a_run_early(vectors_file: Path, tmp_path: Path) -> None:
    overrides = ["training.steps=500", "training.validate_every=2", "training.patience=3", "optim.encoder.lr=1e-9"]
    run = train(load_recipe(str(recipe_file(vectors_file)), overrides), tmp_path / "run")
    steps = [row["step"] for row in run.read_metrics()]
    assert steps[-1] < 100


def test_a_finished_run_is_not_trained_again(vectors_file: Path, tmp_path: Path) -> None:
    recipe = load_recipe(str(recipe_file(vectors_file)))
    run = train(recipe, tmp_path / "run")
    before = run.model.read_bytes(), run.metrics.read_bytes()
    steps: list[Report] = []
    train(recipe, tmp_path / "run", steps.append)
    assert not steps
    assert (run.model.read_bytes(), run.metrics.read_bytes()) == before


def test_other_settings_do_not_overwrite_a_run(vectors_file: Path, tmp_path: Path) -> None:
    path = str(recipe_file(vectors_file))
    train(load_recipe(path), tmp_path / "run")
    with pytest.raises(
        ConfigError, match=r"other settings \(optim\.encoder\.lr, training\.seed\); name another folder"
    ):
        train(load_recipe(path, ["training.seed=5", "optim.encoder.lr=0.5"]), tmp_path / "run")


def test_other_data_does_not_continue_a_run(vectors_file: Path, tmp_path: Path) -> None:
    recipe = load_recipe(str(recipe_file(vectors_file)))
    train(recipe, tmp_path / "run")
    with np.load(vectors_file) as arrays:
        np.savez(vectors_file, x=arrays["x"] + 1, y=arrays["y"], split=arrays["split"])
    with pytest.raises(ConfigError, match=r"other settings \(data_digest\); name another folder"):
        train(recipe, tmp_path / "run")


def test_a_recipe_that_cannot_be_drawn_leaves_no_run_behind(vectors_file: Path, tmp_path: Path) -> None:
    path = str(recipe_file(vectors_file))
    with pytest.raises(EpisodeError, match="500-way episodes from 8 classes"):
        train(load_recipe(path, ["episodes.way=500"]), tmp_path / "run")
    train(load_recipe(path), tmp_path / "run")


def test_a_log_that_was_lost_is_said(vectors_file: Path, tmp_path: Path) -> None:
    recipe = load_recipe(str(recipe_file(vectors_file)))
    train(recipe, tmp_path / "run").metrics.unlink()
    with pytest.raises(
        DataError, match=r"metrics\.jsonl: shorter than its checkpoint says, or lines were changed; take it"
    ):
        train(recipe, tmp_path / "run")


def test_items_are_prepared_once_a_pool(vectors_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hyperproto.encoders.identity import Identity

    calls: list[int] = []
    real = Identity.prepare

    def prepare(self: Identity, items: Any) -> Any:
        calls.append(len(items))
        return real(self, items)

    monkeypatch.setattr(Identity, "prepare", prepare)
    train(load_recipe(str(recipe_file(vectors_file, transform="center-unit"))), tmp_path / "run")
    assert len(calls) == 2  # the training pool and the validation pool


def test_float64_vectors_train(vectors_file: Path, tmp_path: Path) -> None:
    with np.load(vectors_file) as arrays:
        np.savez(vectors_file, x=arrays["x"].astype(float), y=arrays["y"], split=arrays["split"])
    overrides = ["encoder={name='identity'}", "method.centers=stored"]
    train(load_recipe(str(recipe_file(vectors_file)), overrides), tmp_path / "run")


def test_seeds_differ(vectors_file: Path, tmp_path: Path) -> None:
    path = str(recipe_file(vectors_file))
    runs = [train(load_recipe(path, [f"training.seed={seed}"]), tmp_path / str(seed)) for seed in (0, 1)]
    assert runs[0].model.read_bytes() != runs[1].model.read_bytes()


def test_nothing_to_learn_and_a_loss_that_explodes_are_said(vectors_file: Path, tmp_path: Path) -> None:
    path = str(recipe_file(vectors_file, "protonet"))
    plain = ["encoder={name='identity'}", "method.learn_temperature=false"]
    with pytest.raises(ConfigError, match="identity with protonet has nothing to learn; evaluate it as it is"):
        train(load_recipe(path, plain), tmp_path / "plain")
    wild = ["optim.encoder={name='sgd', lr=1e30}", "training.clip_norm=1e30"]
    with pytest.raises(ConfigError, match=r"step \d+: the loss is (nan|inf). Lower the learning rates"):
        train(load_recipe(path, wild), tmp_path / "wild")


def test_scores_of_nan_in_training_are_the_trainers_business(
    vectors_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ProtoNet, "scores", lambda self, task: torch.full((*task.query_y.shape, task.way), torch.nan))
    with pytest.raises(ConfigError, match=r"step 1: the loss is nan. Lower the learning rates .* has no checkpoint"):
        train(load_recipe(str(recipe_file(vectors_file, "protonet"))), tmp_path / "run")


def test_a_run_reads_only_data_of_its_own_shape(vectors_file: Path, tmp_path: Path, make_blobs: Any) -> None:
    from hyperproto.training.sources import run_source

    train(load_recipe(str(recipe_file(vectors_file))), tmp_path / "run")
    with pytest.raises(ConfigError, match=r"its tiny cannot read blobs \(all\), which has shape \[6\], not \[8\]"):
        run_source(str(tmp_path / "run"), make_blobs())


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"config\.json: no such file; is this the folder of a run\?"):
        Run(tmp_path).load()
    Run(tmp_path).config.write_text("[]")
    with pytest.raises(DataError, match="not the configuration of a run"):
        Run(tmp_path).load()


def test_damaged_and_foreign_weights_are_refused(vectors_file: Path, tmp_path: Path) -> None:
    run = train(load_recipe(str(recipe_file(vectors_file))), tmp_path / "run")
    whole = run.model.read_bytes()
    run.model.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="not a readable safetensors file"):
        run.load()
    save_tensors(run.model, {"x": torch.zeros(1)}, {})
    with pytest.raises(DataError, match=r"the weights do not fit the model of config\.json"):
        run.load()
    from safetensors.torch import save_file

    save_file({"x": torch.zeros(1)}, run.model)
    with pytest.raises(
        DataError, match="format None; this version reads 'hyperproto-tensors/2' and 'hyperproto-tensors/1'"
    ):
        run.load()
    run.model.unlink()
    with pytest.raises(DataError, match=r"no such file; has this run been trained\?"):
        run.load()


def test_words_of_a_recipe_may_change_between_two_starts(vectors_file: Path, tmp_path: Path) -> None:
    file = str(recipe_file(vectors_file, "protonet"))
    run = train(load_recipe(file, ["training.steps=10"]), tmp_path / "run")
    before = run.model.read_bytes()
    words = ["cost='an hour'", "expected='much'", "paper={table='t', method='m', backbone='b'}"]
    again = train(load_recipe(file, ["training.steps=10", *words]), tmp_path / "run")
    assert again.model.read_bytes() == before


def test_episodes_may_draw_every_training_class(vectors_file: Path, tmp_path: Path) -> None:
    recipe = load_recipe(str(recipe_file(vectors_file, "protonet")), ["episodes.way=all", "training.steps=2"])
    assert train(recipe, tmp_path / "run").read_config()["recipe"]["episodes"]["way"] == 8
    with pytest.raises(ConfigError, match=r"episodes\.way = 'every'"):
        load_recipe(str(recipe_file(vectors_file, "protonet")), ["episodes.way=every"])


def test_a_network_beyond_memory_is_said(vectors_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = load_recipe(str(recipe_file(vectors_file)))

    def failing(words: str) -> Any:
        def make(*_: Any) -> None:
            raise RuntimeError(words)

        return make

    monkeypatch.setattr("hyperproto.training.learner.make_encoder", failing("can't allocate memory: 77309411328 bytes"))
    with pytest.raises(
        ConfigError, match=r"the network does not fit into memory \(.*\); make it smaller: see \[encoder"
    ):
        train(recipe, tmp_path / "run")
    monkeypatch.setattr("hyperproto.training.learner.make_encoder", failing("something else"))
    with pytest.raises(RuntimeError, match="something else"):
        train(recipe, tmp_path / "run")
    assert not (tmp_path / "run").exists()
