"""The prior_ratio that a run carries: measured on validation classes, used for others, shown in results."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from hyperproto.comparison.measure import Selection
from hyperproto.data import open_pool
from hyperproto.encoders import Encoder, Units
from hyperproto.encoders.parts import cache
from hyperproto.errors import DataError
from hyperproto.evaluation import EncodedPool
from hyperproto.regions import ClassStatistics
from hyperproto.regions.bayes import measured_ratio
from hyperproto.training import Run, load_recipe, train

from .conftest import recipe_file


@pytest.fixture
def run(vectors_file: Path, tmp_path: Path) -> Run:
    return train(load_recipe(str(recipe_file(vectors_file)), ["training.steps=10"]), tmp_path / "run")


def labels(run: Run, vectors: Path, split: str, **options: object) -> list[str]:
    pool = open_pool(f"vectors:{vectors}", split)
    selection = Selection(runs=[str(run.folder)], fits=["bayes", "unbiased"], **options)  # type: ignore[arg-type]
    return [candidate.label for candidate in selection.candidates(pool)]


def test_a_run_measures_it_on_its_validation_classes(run: Run, vectors_file: Path) -> None:
    found = json.loads(run.prior_ratio.read_text())
    pool = open_pool(f"vectors:{vectors_file}", "val")
    assert (found["data"], found["split"]) == (pool.name, "val")
    assert found["classes"] == list(pool.class_names)
    x = EncodedPool.encode(run.load()[0].features.encoder, pool).units.x.double()
    for kind, rows in (("none", x), ("unit", F.normalize(x, dim=-1))):
        stats = ClassStatistics.of(rows, torch.from_numpy(pool.labels), pool.n_classes)
        assert found["ratio"][kind] == pytest.approx(float(measured_ratio(stats)), abs=1e-4)


def test_the_last_validation_encodes_for_what_comes_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    encode_all = Encoder.encode_all

    def count(encoder: Encoder, prepared: Any, progress: Any = None) -> Units:
        sizes.append(len(prepared))
        return encode_all(encoder, prepared, progress)

    monkeypatch.setattr(cache, "MIN_SECONDS", 0.0)
    monkeypatch.setattr(Encoder, "encode_all", count)
    small = ["training.steps=2", "training.validate_every=2", "encoder.filters=4", "validation.episodes=4"]
    run = train(load_recipe("glyphs:protonet", small), tmp_path / "run")
    pool = open_pool("glyphs", "val")
    assert run.prior_ratio.exists()
    EncodedPool.encode(run.load()[0].features.encoder, pool, cached=True)  # as an evaluation does
    assert sizes == [len(pool)]


def test_center_unit_has_its_own(vectors_file: Path, tmp_path: Path) -> None:
    recipe = load_recipe(str(recipe_file(vectors_file, transform="center-unit")), ["training.steps=10"])
    assert set(json.loads(train(recipe, tmp_path / "run").prior_ratio.read_text())["ratio"]) == {
        "none",
        "unit",
        "center-unit",
    }


def test_it_is_used_for_other_classes_and_shown(run: Run, vectors_file: Path) -> None:
    ratio = json.loads(run.prior_ratio.read_text())["ratio"]
    both = labels(run, vectors_file, "test", transforms=["none", "unit"])
    assert both == [
        "hyperproto bayes none prior_ratio=measured",
        "hyperproto bayes unit prior_ratio=measured",
        "hyperproto unbiased none",
        "hyperproto unbiased unit",
    ]
    pool = open_pool(f"vectors:{vectors_file}", "test")
    first, *_ = Selection(runs=[str(run.folder)], fits=["bayes"]).candidates(pool)
    assert first.method.prior_ratio == ratio["none"]
    assert first.settings["options"]["prior_ratio"] == ratio["none"]
    torch.testing.assert_close(first.method.radius, run.load()[0].method.radius)  # what it learned is kept


def test_not_for_the_classes_it_was_measured_on(run: Run, vectors_file: Path) -> None:
    assert labels(run, vectors_file, "val") == ["hyperproto bayes none", "hyperproto unbiased none"]


def test_not_on_the_classes_it_was_trained_on(vectors_file: Path, tmp_path: Path) -> None:
    overrides = ["training.steps=10", "validation.split=train"]
    run = train(load_recipe(str(recipe_file(vectors_file)), overrides), tmp_path / "run")
    assert not run.prior_ratio.exists()
    assert labels(run, vectors_file, "test")[0] == "hyperproto bayes none"


def test_other_words_come_first(run: Run, vectors_file: Path, tmp_path: Path) -> None:
    own = labels(run, vectors_file, "test", options={"prior_ratio": [2.0]})
    assert own == ["hyperproto bayes none prior_ratio=2.0", "hyperproto unbiased none"]
    path = str(recipe_file(vectors_file))
    said = train(load_recipe(path, ["training.steps=10", "method.prior_ratio=3.0"]), tmp_path / "said")
    assert labels(said, vectors_file, "test")[0] == "hyperproto bayes none"
    pool = open_pool(f"vectors:{vectors_file}", "test")
    [candidate] = Selection(runs=[str(said.folder)]).candidates(pool)
    assert candidate.method.prior_ratio == 3.0


def test_a_run_that_was_killed_before_it_measured_does_so_later(run: Run, vectors_file: Path) -> None:
    before = run.prior_ratio.read_bytes()
    run.prior_ratio.unlink()
    train(load_recipe(str(recipe_file(vectors_file)), ["training.steps=10"]), run.folder)
    assert run.prior_ratio.read_bytes() == before


def test_a_damaged_file_is_said(run: Run, vectors_file: Path) -> None:
    for text, problem in (("{", "not JSON"), ('{"data": "x"}', "not the ratios of a run")):
        run.prior_ratio.write_text(text)
        with pytest.raises(DataError, match=rf"prior_ratio\.json: {problem} .*; remove it"):
            labels(run, vectors_file, "test")


def test_several_values_of_an_option_are_rows_of_their_own(run: Run, vectors_file: Path) -> None:
    options = {"prior_ratio": [2.0, 8.0], "radius_weight": [0.5]}
    assert labels(run, vectors_file, "test", options=options) == [
        "hyperproto bayes none prior_ratio=2.0",
        "hyperproto unbiased none",
        "hyperproto bayes none prior_ratio=8.0",
    ]


@pytest.mark.parametrize("ratio", [float("nan"), float("inf"), 0.0])
def test_what_cannot_be_measured_is_left_out(
    ratio: float, vectors_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Vectors that are all the same, as of a tiny encoder, have no ratio: the run can still be read."""
    monkeypatch.setattr("hyperproto.training.tasks.measured_ratio", lambda _: torch.tensor(ratio))
    trained = train(load_recipe(str(recipe_file(vectors_file)), ["training.steps=1"]), tmp_path / "run")
    assert json.loads(trained.prior_ratio.read_text())["ratio"] == {}
    assert labels(trained, vectors_file, "test") == ["hyperproto bayes none", "hyperproto unbiased none"]
