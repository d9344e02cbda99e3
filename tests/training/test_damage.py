"""Damaged, edited and shared folders of runs: noticed by name, or harmless; never used in silence."""

import errno
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hyperproto.api.files import new_classifier
from hyperproto.errors import BusyError, ConfigError, DataError
from hyperproto.estimators.items import run_folder
from hyperproto.training import Report, Run, load_recipe, train
from hyperproto.training.checkpoint import HEAD, NO_CHECKSUM, load_tensors, save_tensors
from hyperproto.training.optimisers import Optimisers
from hyperproto.training.run import PriorRatio
from tests.helpers.damage import flipped

from .conftest import TINY, recipe_file

WAY_OUT = r"; take it from a copy, or train again into another folder: hyperproto train RECIPE --out FOLDER$"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run; tests copy it."""
    exec(TINY, {"__name__": "tiny"})
    folder = tmp_path_factory.mktemp("trained")
    random = np.random.default_rng(0)
    labels = np.repeat(np.arange(24), 30)
    vectors = (2 * random.normal(size=(24, 8))[labels] + random.normal(size=(720, 8))).astype(np.float32)
    split = np.array(["train", "val", "test"])[labels // 8]
    np.savez(folder / "vectors.npz", x=vectors, y=np.array([f"class {n:02d}" for n in labels]), split=split)
    return train(load_recipe(str(recipe_file(folder / "vectors.npz"))), folder / "run").folder


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Run:
    shutil.copytree(trained, tmp_path / "run")
    return Run(tmp_path / "run")


def go_on(run: Run, recipe: Path) -> None:
    train(load_recipe(str(recipe)), run.folder)


def weights(run: Run) -> Any:
    learner, recipe = run.load()
    return {name: tensor.numpy().tobytes() for name, tensor in learner.state_dict().items()}, recipe


def resumed(run: Run) -> Any:
    tensors, state = load_tensors(run.checkpoint)
    return {name: tensor.numpy().tobytes() for name, tensor in tensors.items()}, state


READERS: dict[str, Callable[[Run], Any]] = {
    "model": weights,
    "config": lambda run: (run.read_config(), weights(run)),
    "metrics": lambda run: (run.read_metrics(), run.best_validation()),
    "prior_ratio": lambda run: PriorRatio.read(run.prior_ratio),
    "checkpoint": resumed,
}


@pytest.mark.parametrize("kind", READERS)
def test_a_flipped_bit_is_noticed_or_harmless(run: Run, kind: str) -> None:
    path: Path = getattr(run, kind)
    read, good = READERS[kind], path.read_bytes()
    expected = read(run)
    refused = 0
    cases = [
        *flipped(good, max(1, len(good) // 90)),
        good[: len(good) // 2],
        good[:-2],
        b"",
        b"\xff\xfe",
        b"[" * 100_000,
    ]
    for damaged in cases:
        path.write_bytes(damaged)
        message = ""
        try:
            assert read(run) == expected
        except DataError as error:
            message = str(error)
            refused += 1
        assert not message or (str(path) in message and ("take it from a copy" in message or "remove it" in message))
    assert refused > 0.9 * len(cases)  # the others changed the order of nothing, or a space


def test_a_damaged_checkpoint_and_log_are_not_gone_on_with(run: Run, trained: Path) -> None:
    recipe = trained.parent / "hyperproto.toml"
    good = run.checkpoint.read_bytes()
    run.checkpoint.write_bytes(next(flipped(good, len(good), len(good) - 5)))
    with pytest.raises(
        DataError, match=r"last\.safetensors: damaged, or changed after it was saved \(its ch.*" + WAY_OUT
    ):
        go_on(run, recipe)
    run.checkpoint.write_bytes(good)
    lines = run.metrics.read_bytes().splitlines(keepends=True)
    run.metrics.write_bytes(b"".join([lines[0], lines[1].replace(b'"cls": 0', b'"cls": 1'), *lines[2:]]))
    before = run.metrics.read_bytes()
    with pytest.raises(
        DataError, match=r"metrics\.jsonl, line 2: damaged, or changed .* \(its checksum does not match\)" + WAY_OUT
    ):
        go_on(run, recipe)
    assert run.metrics.read_bytes() == before  # nothing is cut off
    run.metrics.write_bytes(b"".join([*lines, b'{"step": 31, "cl']))  # as SIGKILL leaves it
    assert len(run.read_metrics()) == len(lines)
    go_on(run, recipe)
    assert run.metrics.read_bytes() == b"".join(lines)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("[]", "no JSON object"),
        ('{"cls": 1}', "step None after step 10"),
        ('{"step": 10, "cls": 1}', "step 10 after step 10"),
        ('{"step": true}', "step True after"),
        ('{"step": 11, "cls": "low"}', "cls is 'low'"),
        ('{"step": 11, "accuracy": 0.5}', "ci95 is None"),
        ('{"step": 11, "cls": 1, "crc32": "00000000"}', "its checksum does not match"),
        ('{"step": 11, "cls": [[1]]}', r"cls is \[\[1\]\]"),
        ("[" * 100_000, "no JSON: maximum recursion"),
        ("\udcff", "no JSON: 'utf-8' codec"),
    ],
)
def test_a_log_of_an_older_version_is_looked_at_line_by_line(run: Run, line: str, words: str) -> None:
    as_format_3(run)
    whole = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    shutil.rmtree(run.checkpoint.parent)
    rows = [{key: value for key, value in row.items() if key != "crc32"} for row in whole]
    run.metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run.read_metrics() == rows
    text = "".join(json.dumps(row) + "\n" for row in rows[:2]) + line + "\n"
    run.metrics.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(DataError, match=rf"metrics\.jsonl, line 3: damaged, or changed after it was written \({words}"):
        run.read_metrics()


def as_format_3(run: Run, **changes: Any) -> None:
    """Write config.json without a checksum, as before; with some keys changed, None meaning none."""
    config = json.loads(run.config.read_text())
    config.pop("checksum", None)
    config |= {"format": 3, **changes}
    run.config.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"n_classes": None}, "'n_classes' is missing"),
        ({"n_classes": "8"}, "'n_classes' is '8'"),
        ({"n_classes": True}, "'n_classes' is True"),
        ({"n_classes": -1}, "'n_classes' is -1"),
        ({"n_classes": 10**12}, "the method 'hyperproto' cannot be made|no such model can be built"),
        ({"version": None}, "'version' is missing"),
        ({"data_digest": 7}, "'data_digest' is 7"),
        ({"recipe": []}, r"'recipe' is \[\]"),
        ({"recipe": {}}, "problem"),
        ({"recipe": {"method": 7}, "format": 1}, "not the configuration of a run"),
        ({"recipe": {"method": {"name": "x"}, "optim": {}}, "format": 1}, "there is no method 'x'"),
        ({"recipe": {"method": {}, "optim": 3}, "format": 2}, "problem"),
        ({"format": 4}, "damaged, or changed after it was written: its checksum does not match"),
        ({"format": 6}, "format 6; this version reads 1 to 5"),
        ({"format": 0}, "format 0; this version"),
        ({"format": "3"}, "format '3'; this version"),
        ({"checksum": "00"}, "its checksum does not match"),
    ],
)
def test_an_edited_configuration_is_refused_by_name(run: Run, changes: dict[str, Any], words: str) -> None:
    as_format_3(run)
    run.load()
    as_format_3(run, **changes)
    with pytest.raises((DataError, ConfigError), match=rf"(?s)run/config\.json: .*({words})"):
        run.load()


@pytest.mark.parametrize(
    ("section", "change", "words"),
    [
        ("encoder", {"name": "nothing"}, "there is no encoder 'nothing'"),
        ("encoder", {"shape": "long"}, "cannot be made with .*'shape'"),
        ("encoder", {"sise": 3}, "sise"),
        ("method", {"name": "hyperprot"}, "there is no method 'hyperprot'; did you mean 'hyperproto'"),
        ("method", {"colour": 3}, "colour"),
        ("decision", {"tau": []}, "tau"),
        ("training", {"steps": -3}, "training.steps = -3"),
        ("validation", {"wax": 3}, "validation.wax"),
    ],
)
def test_unknown_names_and_wrong_types_in_a_recipe(run: Run, section: str, change: dict[str, Any], words: str) -> None:
    recipe = json.loads(run.config.read_text())["recipe"]
    as_format_3(run, recipe={**recipe, section: {**recipe[section], **change}})
    with pytest.raises((DataError, ConfigError), match=rf"(?s)run/config\.json: .*({words})"):
        run.load()


def test_an_encoder_name_that_no_folder_can_have_is_no_run() -> None:
    assert run_folder("a" * 6000) is None


def test_a_damaged_configuration_is_named_also_by_classifiers(run: Run) -> None:
    for content in (b"{", b"[" * 100_000, b"\xff"):
        run.config.write_bytes(content)
        assert run_folder(str(run.folder)) == run.folder
        with pytest.raises(DataError, match=r"config\.json.*(not JSON|nested|not UTF-8).*" + WAY_OUT):
            new_classifier(str(run.folder)).fit(["a", "b"], ["x", "y"])


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("old", [False, True])
def test_weights_that_are_not_finite_are_refused_by_name(run: Run, value: float, old: bool, trained: Path) -> None:
    for path, reading in (
        (run.model, run.load),
        (run.checkpoint, lambda: go_on(run, trained.parent / "hyperproto.toml")),
    ):
        tensors, state = load_tensors(path)
        name = next(name for name in tensors if name.endswith("linear.weight"))
        save_tensors(path, {**tensors, name: torch.full_like(tensors[name], value)}, state)
        if old:
            as_written_by_0_1(path)
        with pytest.raises(
            DataError, match=r"safetensors: features\.encoder\.linear\.weight holds NaN or infinity, so.*" + WAY_OUT
        ):
            reading()


def as_written_by_0_1(path: Path) -> None:
    from safetensors.torch import save_file

    tensors, state = load_tensors(path)
    save_file(tensors, path, {HEAD: json.dumps({"format": NO_CHECKSUM, "state": state})})
    assert load_tensors(path)[1] == state


def test_a_center_that_is_not_known_yet_is_no_damage(vectors_file: Path, tmp_path: Path) -> None:
    recipe = load_recipe(str(recipe_file(vectors_file, transform="center-unit")), ["training.checkpoint_every=1"])
    steps: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        train(recipe, tmp_path / "run", stop_at(3))
    assert load_tensors(Run(tmp_path / "run").checkpoint)[0]["model/features.transform.center"].isnan().all()
    train(recipe, tmp_path / "run", lambda report: steps.append(report.step))
    assert steps[0] == 4


def stop_at(step: int) -> Callable[[Report], None]:
    def stop(report: Report) -> None:
        if report.step == step:
            raise KeyboardInterrupt

    return stop


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["optim.encoder={name='sgd', lr=1e38}"], "step [23]: (the loss is|features.encoder.linear)"),
        (["optim.encoder={name='adam', lr=1e38}"], "step 1: a learning rate is too large"),
        (["optim.encoder.lr=inf", "training.checkpoint_every=1"], "step 1: features.encoder.linear.weight holds NaN"),
        (["optim.encoder={name='sgd', lr=1e37}", "training.validate_every=1"], r"step [12]: "),
    ],
)  # fmt: skip
def test_a_training_that_goes_astray_says_when(
    vectors_file: Path, tmp_path: Path, overrides: list[str], words: str
) -> None:
    recipe = load_recipe(str(recipe_file(vectors_file)), [*overrides, "training.clip_norm=1e38"])
    with pytest.raises(ConfigError, match=rf"{words}(.|\n)*\. Lower the learning rates .* --out; .*run (keeps|has no)"):
        train(recipe, tmp_path / "run")
    assert not list(tmp_path.glob("run/**/*.tmp"))


def test_weights_that_were_good_are_kept(vectors_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = load_recipe(str(recipe_file(vectors_file)), ["training.checkpoint_every=2", "training.validate_every=2"])
    real, done = Optimisers.step, []

    def harm(optimisers: Optimisers, losses: Any) -> torch.Tensor:
        loss = real(optimisers, losses)
        done.append(loss)
        if len(done) == 8:
            with torch.no_grad():
                optimisers.groups["encoder"].params[0].fill_(torch.nan)
        return loss

    monkeypatch.setattr(Optimisers, "step", harm)
    with pytest.raises(ConfigError, match=r"step 8: \S+ holds NaN or infinity\. Lower .*run keeps its last checkpoint"):
        train(recipe, tmp_path / "run")
    run = Run(tmp_path / "run")
    assert load_tensors(run.checkpoint)[1]["step"] == 6
    run.load()
    assert run.read_metrics()[-1]["step"] == 6


def test_a_full_disk_names_the_log(run: Run) -> None:
    run.metrics.unlink()
    run.metrics.symlink_to("/dev/full")
    with pytest.raises(OSError, match=r"No space left on device: '.*metrics\.jsonl'") as caught:
        run.append_metrics([{"step": 1, "cls": 0.5}])
    assert caught.value.errno == errno.ENOSPC


LONG = """
data = {{ spec = "vectors:{data}" }}
encoder = {{ name = "identity" }}
method = {{ name = "hyperproto" }}
episodes = {{ way = 4, shot = 3, query = 4 }}
optim.encoder = {{ lr = 0.01 }}
optim.radius = {{ name = "adam", lr = 0.1 }}
training = {{ steps = 1000000, validate_every = 5, checkpoint_every = 5, log_every = 5 }}
validation = {{ way = 4, shot = 2, query = 5, episodes = 3 }}
"""


HOLD = """
import sys, time
from hyperproto.training import Run
with Run(sys.argv[1]).lock():
    print("held", flush=True)
    time.sleep(60)
"""


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-c", "from hyperproto.cli import main; main()", *map(str, arguments)]


@pytest.fixture
def trainer(vectors_file: Path, tmp_path: Path) -> Iterator["tuple[list[str], subprocess.Popen[bytes]]"]:
    """A real command that trains for ever, its first checkpoint written; and its words."""
    recipe = tmp_path / "long.toml"
    recipe.write_text(LONG.format(data=vectors_file))
    words = command("train", recipe, "--out", tmp_path / "run")
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while not Run(tmp_path / "run").checkpoint.exists():
            assert process.poll() is None
            time.sleep(0.05)
        yield words, process
        process.kill()


@pytest.mark.slow
def test_a_second_trainer_is_refused_and_the_first_goes_on(
    trainer: "tuple[list[str], subprocess.Popen[bytes]]", vectors_file: Path, tmp_path: Path
) -> None:
    words, first = trainer
    run = Run(tmp_path / "run")
    second = subprocess.run(words, capture_output=True, text=True, timeout=100, check=False)
    assert second.returncode == 1
    assert " ".join(second.stderr.split()) == (
        f"error: {run.folder}: another process is training in this folder; wait until it ends, or name another folder "
        "with --out"
    )
    step = load_tensors(run.checkpoint)[1]["step"]
    evaluate = command("evaluate", "--run", run.folder, "--data", f"vectors:{vectors_file}", "--episodes", 5)
    found = subprocess.run(evaluate, capture_output=True, text=True, timeout=100, check=False)
    assert found.returncode == 0, found.stderr
    assert run.read_metrics()
    assert first.poll() is None
    while load_tensors(run.checkpoint)[1]["step"] <= step:
        time.sleep(0.05)
    first.send_signal(signal.SIGKILL)
    first.wait()
    step = load_tensors(run.checkpoint)[1]["step"]
    with pytest.raises(KeyboardInterrupt):  # the lock is free, and it goes on
        train(load_recipe(str(tmp_path / "long.toml")), run.folder, stop_at(step + 1))


def test_a_run_that_trains_is_refused_before_its_data_are_opened(
    run: Run, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = sys.modules["hyperproto.training.train"]
    with subprocess.Popen([sys.executable, "-c", HOLD, str(run.folder)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        monkeypatch.setattr(module, "training_pool", lambda *_: pytest.fail("opened"))
        with pytest.raises(BusyError, match=r"run: another process is training in this folder; wait until it ends, or"):
            go_on(run, trained.parent / "hyperproto.toml")
        run.load()
        holder.kill()
    monkeypatch.undo()
    go_on(run, trained.parent / "hyperproto.toml")
