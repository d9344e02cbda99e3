"""Classification of all classes, and episodes that start from what it learned."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from hyperproto.errors import ConfigError
from hyperproto.training import Report, Run, load_recipe, train
from hyperproto.training.checkpoint import load_tensors, model_tensors

from .conftest import recipe_file

TWO_STAGES = """
data = {{ spec = "vectors:{data}" }}
encoder = {{ name = "tiny" }}
optim.encoder = {{ name = "adam", lr = 0.01 }}
training = {{ steps = 40, validate_every = 20 }}
validation = {{ way = 4, shot = 2, query = 5, episodes = 20 }}
[[row]]
name = "classifier"
method = {{ name = "classifier", head = "linear" }}
batches = {{ size = 16 }}
[[row]]
name = "protonet"
start = "{recipe}:classifier"
method = {{ name = "protonet" }}
episodes = {{ way = 4, shot = 3, query = 4 }}
training = {{ steps = 2, validate_every = 1 }}
"""


@pytest.fixture
def two_stages(vectors_file: Path) -> str:
    path = vectors_file.with_name("stages.toml")
    path.write_text(TWO_STAGES.format(data=vectors_file, recipe=path))
    return str(path)


def encoder_of(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {key.rpartition("encoder.")[2]: t for key, t in tensors.items() if "encoder." in key}


def test_classification_of_all_classes_learns(two_stages: str, tmp_path: Path) -> None:
    run = train(load_recipe(f"{two_stages}:classifier"), tmp_path / "run")
    rows = run.read_metrics()
    assert rows[-1]["cls"] < rows[0]["cls"]
    assert rows[-1]["accuracy"] > 0.5
    assert load_tensors(run.model)[0]["method.weight"].shape == (8, 5)


def test_the_stage_before_is_trained_first_and_only_once(two_stages: str, tmp_path: Path) -> None:
    reports: list[Report] = []
    recipe = load_recipe(f"{two_stages}:protonet", ["optim.encoder.lr=1e-12"])
    run = train(recipe, tmp_path / "runs" / "second", reports.append)
    first = tmp_path / "runs" / "stages-classifier"
    assert [report.recipe for report in reports] == ["classifier"] * 40 + ["protonet"] * 2
    assert reports[0].words().startswith("classifier: loss")
    before = encoder_of(load_tensors(Run(first).model)[0])
    after = encoder_of(load_tensors(run.model)[0])
    assert before.keys() == after.keys()
    for key, tensor in before.items():
        torch.testing.assert_close(after[key], tensor, msg=key)
    again = load_recipe(f"{two_stages}:protonet", ["training.seed=3"])
    reports.clear()
    train(again, tmp_path / "runs" / "third", reports.append)
    assert {report.recipe for report in reports} == {"protonet"}


def test_a_run_may_start_from_the_folder_of_another(two_stages: str, vectors_file: Path, tmp_path: Path) -> None:
    first = train(load_recipe(f"{two_stages}:classifier"), tmp_path / "first")
    recipe = load_recipe(f"{two_stages}:protonet", [f"start='{first.folder}'", "optim.encoder.lr=1e-12"])
    run = train(recipe, tmp_path / "second")
    before, after = (encoder_of(load_tensors(r.model)[0]) for r in (first, run))
    torch.testing.assert_close(after["linear.weight"], before["linear.weight"])
    assert json.loads(run.config.read_text())["recipe"]["start"] == str(first.folder)


def test_a_start_hands_on_last_weights_and_heads(two_stages: str, tmp_path: Path) -> None:
    """With a learning rate that moves nothing, the second stage holds what the first ended with, to the last bit."""
    first = train(load_recipe(f"{two_stages}:classifier", ["training.validate_every=1"]), tmp_path / "first")
    stage = f"start={{recipe='{first.folder}', weights='last', heads=['weight']}}"
    still = ["optim.encoder.name='sgd'", "optim.encoder.lr=1e-30", stage]
    recipe = load_recipe(f"{two_stages}:classifier", [*still, "training.steps=1", "training.seed=5"])
    run = train(recipe, tmp_path / "second")
    last, after = (model_tensors(load_tensors(r.checkpoint)[0]) for r in (first, run))
    assert torch.equal(after["method.weight"], last["method.weight"])
    assert torch.equal(after["features.encoder.linear.weight"], last["features.encoder.linear.weight"])
    assert not torch.equal(load_tensors(first.model)[0]["method.weight"], last["method.weight"])  # best is another
    assert json.loads(run.config.read_text())["recipe"]["start"]["weights"] == "last"


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        ("{recipe='FIRST', heads=['norm']}", r"start.heads names 'norm', but no part of that name and shape is common"),
        ("{recipe='FIRST', weights='worst'}", r"start.weights = 'worst': input should be 'best' or 'last'"),
        ("{weights='last'}", "start.recipe is missing"),
        ("{recipe='FIRST', head=['norm']}", "there is no key 'head'; did you mean 'heads'"),
    ],
)
def test_mistakes_in_a_start(stage: str, message: str, two_stages: str, tmp_path: Path) -> None:
    first = train(load_recipe(f"{two_stages}:classifier", ["training.steps=1"]), tmp_path / "first")
    start = f"start={stage.replace('FIRST', str(first.folder))}"
    with pytest.raises(ConfigError, match=message):
        train(load_recipe(f"{two_stages}:protonet", [start]), tmp_path / "second")


TWO_STAGE = """
data = {{ spec = "vectors:{data}" }}
encoder = {{ name = "tiny" }}
episodes = {{ way = 4, shot = 2, query = 3 }}
optim.encoder = {{ name = "adam", lr = 0.01 }}
optim.head = {{ name = "adam", lr = 0.01 }}
training = {{ steps = 6, validate_every = 3, checkpoint_every = 2 }}
validation = {{ way = 4, shot = 2, query = 5, episodes = 10 }}
[[row]]
name = "metric"
method = {{ name = "two-stage" }}
[[row]]
name = "prototype"
start = {{ recipe = "{recipe}:metric", heads = ["variance", "omega", "log_temperature"] }}
method = {{ name = "two-stage", stage = "prototype" }}
"""


def test_the_second_of_two_stages_leaves_the_first_as_it_is_and_can_be_resumed(
    vectors_file: Path, tmp_path: Path
) -> None:
    """Both in one go, each by a command of its own, and killed within the second: the same to the last bit."""
    path = vectors_file.with_name("stages.toml")
    path.write_text(TWO_STAGE.format(data=vectors_file, recipe=path))
    whole = train(load_recipe(f"{path}:prototype"), tmp_path / "whole" / "run")
    metric = train(load_recipe(f"{path}:metric"), tmp_path / "parts" / "stages-metric")

    def killed(report: Report) -> None:
        assert report.recipe == "prototype"
        if report.step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(load_recipe(f"{path}:prototype"), tmp_path / "parts" / "run", killed)
    parts = train(load_recipe(f"{path}:prototype"), tmp_path / "parts" / "run")
    for first, second in ((whole.checkpoint, parts.checkpoint), (whole.model, parts.model)):
        found, expected = load_tensors(first)[0], load_tensors(second)[0]
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[key], expected[key]) for key in found)
    before, after = load_tensors(metric.model)[0], load_tensors(whole.model)[0]
    kept = [key for key in before if key in after]
    assert {"method.omega", "method.variance.0.weight", "method.log_temperature"} < set(kept)
    assert all(torch.equal(before[key], after[key]) for key in kept)
    assert {"method.base", "method.map.0.weight"} <= after.keys() - before.keys()


def test_a_start_that_is_nothing_or_does_not_fit(two_stages: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no recipe 'nowhere'"):
        train(load_recipe(f"{two_stages}:protonet", ["start='nowhere'"]), tmp_path / "a")
    first = train(load_recipe(f"{two_stages}:classifier", ["encoder.size=7"]), tmp_path / "first")
    with pytest.raises(ConfigError, match="its encoder does not fit into this recipe's"):
        train(load_recipe(f"{two_stages}:protonet", [f"start='{first.folder}'"]), tmp_path / "b")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            ["batches.size=8"],
            r"give one of \[episodes\], .* and \[pairs\]; found \[episodes\] and \[batches\]",
        ),
        (["batches.size=0"], r"batches.size = 0: input should be greater than 0"),
        (["augmentation.crop=-1"], r"augmentation.crop = -1: input should be greater than or equal to 0"),
        (["augmentation.flop=true"], r"there is no key 'flop'; did you mean 'flip'"),
        (["augmentation.jitter=2.0"], r"augmentation.jitter = 2.0"),
    ],
)
def test_mistakes_in_the_new_sections(changes: list[str], message: str, vectors_file: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        load_recipe(str(recipe_file(vectors_file, "protonet")), changes)


def test_neither_episodes_nor_batches(two_stages: str) -> None:
    text = Path(two_stages).read_text().replace("batches = { size = 16 }\n", "")
    Path(two_stages).write_text(text)
    with pytest.raises(ConfigError, match=r"give one of \[episodes\], \[batches\] and \[pairs\]; found none of them"):
        load_recipe(f"{two_stages}:classifier")


def test_batches_are_not_for_methods_that_need_support(two_stages: str) -> None:
    message = r"\[batches\]: protonet trains on the support, which batches do not have; give it \[episodes\]"
    with pytest.raises(ConfigError, match=message):
        load_recipe(f"{two_stages}:classifier", ["method={name='protonet'}"])


def test_augmentation_of_vectors_is_refused(vectors_file: Path, tmp_path: Path) -> None:
    recipe = load_recipe(str(recipe_file(vectors_file, "protonet")), ["augmentation.flip=true"])
    with pytest.raises(ConfigError, match=r"\[augmentation\] is for images"):
        train(recipe, tmp_path / "run")


def test_augmentation_is_for_training_only() -> None:
    from hyperproto.data import Pool
    from hyperproto.decisions import Decision
    from hyperproto.encoders import Features, FeatureTransform
    from hyperproto.encoders.conv4 import Conv4
    from hyperproto.episodes import EpisodeSampler
    from hyperproto.methods import make_method
    from hyperproto.recipes import Augmentation
    from hyperproto.training import Learner

    pixels = np.random.default_rng(0).integers(0, 256, (40, 16, 16), dtype=np.uint8)
    pool = Pool(pixels, np.repeat(np.arange(4), 10), tuple("abcd"))
    encoder, transform = Conv4(size=16), FeatureTransform("none", (64,))
    method = make_method("protonet", feature_shape=(64,))
    episodes = EpisodeSampler(pool, way=3, shot=2, query=2).draw(1)

    def losses(augmentation: Augmentation | None, seed: int, training: bool = False) -> float:
        learner = Learner(Features(encoder, transform, augmentation), method, Decision(dimension=64))
        learner.train(training)
        torch.manual_seed(seed)
        return float(learner(*learner.collate(pool, episodes))["cls"].detach())

    crop = Augmentation(crop=4, flip=True)
    assert losses(None, 0) == losses(None, 1)
    assert losses(crop, 0) == losses(None, 0)  # in eval mode nothing is changed
    assert losses(crop, 0, training=True) != losses(crop, 1, training=True)
