"""What the command line does, from Python: the same numbers, typed, silent, with progress by a callback."""

import doctest
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import hyperproto
from hyperproto import ConfigError, HyperProtoError
from hyperproto.cli import app
from hyperproto.problems import paired_difference
from hyperproto.recipes import override_texts, parse_values
from tests.helpers.tagged import random_sentences
from tests.helpers.tiny_words import register, write_conll
from tests.training.conftest import recipe_file, tiny

__all__ = ["tiny"]

SMALL = {"training.steps": 4, "validation.episodes": 5}


@pytest.fixture(autouse=True)
def silent(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """No function prints."""
    yield
    assert capfd.readouterr() == ("", "")


@pytest.fixture
def data(vectors_file: Path) -> str:
    return f"vectors:{vectors_file}"


def command(*arguments: str) -> Any:
    """The answer of a command as JSON."""
    result = CliRunner().invoke(app, [*arguments, "--json", "-"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def timeless(found: Any) -> Any:
    """Without what differs from time to time."""
    if isinstance(found, dict):
        return {key: timeless(value) for key, value in found.items() if key not in ("seconds", "command")}
    return [timeless(each) for each in found] if isinstance(found, list) else found


def test_evaluate_is_the_command(data: str) -> None:
    seen: list[tuple[int, int, str]] = []

    def progress(done: int, total: int, note: str = "") -> None:
        seen.append((done, total, note))

    chosen: dict[str, Any] = {"encoder": "identity", "method": "hyperproto", "fit": "paper", "transform": "unit"}
    options = {"radius_weight": 0.5}
    found = hyperproto.evaluate(
        data, **chosen, options=options, way=3, shot=(1, 2, 5), query=7, episodes=30, seed=4, progress=progress
    )
    words = [part for key, value in chosen.items() for part in (f"--{key}", value)]
    words += ["-o", "radius_weight=0.5", "--way", "3", "--shot", "1,2,5", "--query", "7", "--seed", "4"]
    assert timeless(found.to_json()) == timeless(command("evaluate", "--data", data, *words, "--episodes", "30"))
    assert found.values.shape == (30,)
    assert found.settings["shot"] == [1, 2, 5]
    assert seen[-1] == (30, 30, "episodes scored")


def test_compare_is_the_command(data: str) -> None:
    found = hyperproto.compare(
        data,
        encoder="identity",
        methods=["protonet", "hyperproto"],
        fits=["bayes", "point"],
        transforms="unit",
        options={"prior_ratio": [0.5, 2.0]},
        shots=[1, (1, 1, 2, 5, 5), 1],
        query=5,
        episodes=20,
    )
    words = ["--encoder", "identity", "--method", "protonet", "--method", "hyperproto", "--fit", "bayes"]
    words += ["--fit", "point", "--transform", "unit", "-o", "prior_ratio=0.5", "-o", "prior_ratio=2.0"]
    words += ["--shot", "1", "--shot", "1,1,2,5,5", "--shot", "1", "--query", "5", "--episodes", "20"]
    assert timeless(found.to_json()) == timeless(command("compare", "--data", data, *words))
    assert [len(group) for group in found.groups] == [4, 4]
    assert [result.label for result in found.results[:4]] == [
        "protonet point unit",
        "hyperproto bayes unit prior_ratio=0.5",
        "hyperproto point unit",
        "hyperproto bayes unit prior_ratio=2.0",
    ]
    first, second, *_ = found.results
    pair = found.differences[0]
    assert (pair["difference"], pair["ci95"]) == paired_difference(first.values, second.values)
    for text in (found.table(), found.table(width=80)):
        assert f"{100 * first.values.mean():.2f} ± " in text
        assert f"({100 * (second.values.mean() - first.values.mean()):+.2f} ± " in text
    lines = found.table(width=80).splitlines()
    assert max(len(line) for line in lines if "vectors:" not in line) <= 80  # a path is one word, however long


def test_a_comparison_is_drawn(data: str) -> None:
    found = hyperproto.compare(data, encoder="identity", methods=["protonet", "cosine"], shots=[1, 5], episodes=9)
    [axis] = found.plot().axes
    assert [label.get_text() for label in axis.get_yticklabels()] == ["protonet point none", "cosine point none"]
    _, labels = axis.get_legend_handles_labels()
    assert labels == ["shots 1", "shots 5"]
    drawn = [np.asarray(line.get_xdata(), float).tolist() for line in axis.lines]
    for group in found.groups:
        assert pytest.approx([100 * result.values.mean() for result in group]) in drawn
    one = hyperproto.compare(data, encoder="identity", methods="cosine", episodes=1)  # has no interval
    assert one.plot().axes[0].get_xlabel() == "accuracy, %, with 95 % intervals over episodes"


def test_learning_curves(data: str) -> None:
    shots: Any = [(1, 1, 2, 4, 5), 5, 1]
    found = hyperproto.compare(data, encoder="identity", methods=["protonet", "cosine"], shots=shots, episodes=9)
    [axis] = found.curves().axes
    assert [label.get_text() for label in axis.get_xticklabels()] == ["1", "5", "1,1,2,4,5"]
    assert axis.get_legend_handles_labels()[1] == ["protonet point none", "cosine point none"]
    drawn = [np.asarray(line.get_ydata(), float).tolist() for line in axis.lines]
    unequal, five, one = ([100 * result.values.mean() for result in group] for group in found.groups)
    for row in range(2):
        assert pytest.approx([one[row], five[row]]) in drawn
        assert pytest.approx([unequal[row]]) in drawn
    alone = hyperproto.compare(data, encoder="identity", methods="cosine", shots=[(1, 1, 2, 4, 5)], episodes=1)
    assert alone.curves().axes[0].get_legend_handles_labels()[1] == ["cosine point none"]


def test_entities_are_measured_and_encoding_is_shown(tmp_path: Path) -> None:
    register()
    for seed, split in enumerate(("train", "test")):
        write_conll(tmp_path / "words" / f"{split}.txt", random_sentences(60, 5, seed=seed, most_runs=3))
    seen: list[tuple[int, int, str]] = []

    def progress(done: int, total: int, note: str = "") -> None:
        seen.append((done, total, note))

    words = f"conll:{tmp_path / 'words'}"
    common: dict[str, Any] = {"encoder": "tiny-words", "way": 3, "episodes": 4}
    found = hyperproto.compare(words, methods=["protonet", "nnshot"], shots=[1, 2], **common, progress=progress)
    assert [result.metric for result in found.results] == ["f1"] * 4
    notes = list(dict.fromkeys(note for _, _, note in seen))
    assert notes == ["items of test encoded", "episodes scored by 2 candidates"]
    assert (60, 60, notes[0]) in seen
    assert "1~2 shots" in found.table()
    assert found.plot().axes[0].get_xlabel().startswith("F1, %")


def test_none_of_the_above(data: str) -> None:
    nota: dict[str, Any] = {"encoder": "identity", "method": "cosine", "query": 5, "episodes": 20, "nota_share": 0.4}
    found = hyperproto.evaluate(data, **nota, threshold_split="train")
    assert found.settings["threshold_split"] == "train"
    assert 0 < found.metrics["nota"]["auroc"] <= 1


@pytest.mark.usefixtures("tiny")
def test_train_is_the_command_and_a_run_is_evaluated(data: str, vectors_file: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int, str]] = []

    def progress(done: int, total: int, note: str = "") -> None:
        seen.append((done, total, note))

    folder, recipe = tmp_path / "run", recipe_file(vectors_file, "protonet")
    run = hyperproto.train(recipe, folder, overrides=SMALL, progress=progress)
    assert seen[-1][:2] == (4, 4)
    assert seen[-1][2].startswith("steps of protonet: loss ")
    said = [part for key, value in SMALL.items() for part in ("-o", f"{key}={value}")]
    trained = command("train", str(recipe), "--out", str(tmp_path / "again"), *said)
    assert {key: trained[key] for key in ("step", "accuracy", "ci95")} == run.best_validation()
    assert trained["validation"]["episodes"] == 5
    assert run.model.read_bytes() == (tmp_path / "again" / "model.safetensors").read_bytes()
    assert "-o training.steps=4 -o validation.episodes=5" in (folder / "report.html").read_text()
    as_text = [f"{key}={value}" for key, value in SMALL.items()]
    assert hyperproto.train(recipe, folder, overrides=as_text).folder == folder  # the same: nothing is left to do

    by_object = hyperproto.evaluate(data, run=run, way=3, episodes=10)
    assert np.array_equal(by_object.values, hyperproto.evaluate(data, run=folder, way=3, episodes=10).values)
    assert (by_object.settings["run"], by_object.settings["method"]) == (str(folder), "protonet")
    both = hyperproto.compare(data, run=[run], encoder="identity", methods="protonet", episodes=10)
    labels = [f"{where} protonet point none" for where in (folder, "identity")]
    assert [result.label for result in both.results] == labels


def test_overrides_are_written_as_toml() -> None:
    given = {"training.seed": 3, "start": "a'b\"c", "episodes.shot": [1, 2], "encoder": {"name": "x", "deep": True}}
    texts = override_texts(given)
    assert texts == [
        "training.seed=3",
        'start="a\'b\\"c"',
        "episodes.shot=[1, 2]",
        'encoder={"name" = "x", "deep" = true}',
    ]
    assert parse_values(texts) == {
        "training": {"seed": 3},
        "start": "a'b\"c",
        "episodes": {"shot": [1, 2]},
        "encoder": {"name": "x", "deep": True},
    }


def test_a_table_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = hyperproto.report("table4")
    assert timeless(found.to_json()) == timeless(command("report", "table4"))
    assert list(found.to_run)[:2] == ["table4:cone-1shot", "table4:cone-5shot"]


def test_lists_are_those_of_the_commands(data: str) -> None:
    assert hyperproto.list_methods() == command("methods", "list")
    assert hyperproto.list_data() == command("data", "list")
    assert hyperproto.list_recipes() == command("recipes", "list")
    assert hyperproto.check_data(data) == command("data", "check", data)


def test_a_corpus_is_that_of_the_command(tmp_path: Path) -> None:
    entities = [{"id": "a", "start": 0, "end": 1}, {"id": "b", "positions": [2]}]
    lines = [json.dumps({"tokens": ["x", str(n), "y"], "entities": entities}) for n in range(5)]
    sentences, triples, out = (tmp_path / name for name in ("s.jsonl", "t.tsv", "corpus.json"))
    sentences.write_text("\n".join(lines))
    triples.write_text("a\tP1\tb\nb\tP2\ta\nb\tP3\ta\n")
    options: dict[str, Any] = {"without": None, "without_relations": None, "most": 3, "ambiguous": "keep"}
    found = hyperproto.distant_data(sentences, triples, out, **options)
    assert found.kept == {"P1": 3, "P2": 3, "P3": 3}
    written = out.read_bytes()
    words = [str(sentences), str(triples), "--out", str(out), "--most", "3", "--ambiguous", "keep"]
    nothing = ["--without", "none", "--without-relations", "none"]
    assert found.to_json() == command("data", "distant", *words, *nothing)
    assert out.read_bytes() == written


def test_recipes_by_data_method_and_cost() -> None:
    def names(**wanted: Any) -> list[str]:
        return [row["recipe"] for row in hyperproto.list_recipes(**wanted)]

    everything = names()
    own = ["glyphs:hyperproto", "glyphs:hyperproto-published", "glyphs:hyperproto-stored"]
    assert sorted(names(data="glyphs", method="hyperproto")) == own
    assert sorted([*names(cost="cpu"), *names(cost="gpu")]) == sorted(everything)
    assert names(cost="cpu") == names(cost=10_000)  # every cost that is no GPU says its minutes
    assert {"glyphs:protonet", "fewrel-cnn:protonet"} <= set(names(cost=5)) < set(names(cost="cpu"))
    assert {name.partition(":")[0] for name in names(cost=5)} == {"glyphs", "fewrel-cnn"}
    assert "miniimagenet-conv4:classifier" in names(cost="93")  # 56, after 37
    assert "miniimagenet-conv4:classifier" not in names(cost=92)
    assert "miniimagenet-conv4:classifier-42px" in names(data="miniimagenet", cost="cpu")
    shown = command("recipes", "list", "--data", "glyphs", "--method", "cosine", "--cost", "1")
    assert [row["recipe"] for row in shown] == ["glyphs:cosine"]


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"data": "glyph"}, "--data: there is no recipe with data 'glyph'; did you mean 'glyphs'?"),
        ({"method": "protnet"}, "--method: there is no recipe with method 'protnet'; did you mean 'protonet'?"),
        ({"cost": "little"}, "--cost little: write cpu, gpu, or how many minutes of CPU it may take, such as 30"),
        ({"data": "glyphs", "cost": "gpu"}, "leave out one of --data, --method and --cost"),
    ],
)
def test_recipes_that_do_not_exist(wanted: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        hyperproto.list_recipes(**wanted)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({}, "encoder 'identity' comes without a method; name one with --method"),
        ({"method": "protonet", "run": "runs/a"}, "give one of --run and --encoder"),
        ({"method": ["protonet"]}, "method = ['protonet']: name one, as a string; `compare` takes several"),
        ({"method": "protonet", "shot": "5"}, "--shot '5': write one number (5), or one for each class (1,1,2,5,20)"),
        ({"method": "protonet", "shot": 0}, "--shot 0: unseen classes are fitted to their support"),
        ({"method": "protonet", "shot": (1, 0)}, "--shot 1,0: unseen classes are fitted to their support"),
        ({"method": "protonet", "episodes": 0}, "--episodes 0: draw at least 1"),
        ({"method": "protonet", "rule": "toolkits"}, "--rule: there is no rule 'toolkits'; did you mean 'toolkit'?"),
        ({"method": "protonet", "options": {"taus": 1}}, "there is no option of method 'protonet' called 'taus'"),
    ],
)
def test_mistakes_are_errors_of_ours(data: str, wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(HyperProtoError) as caught:
        hyperproto.evaluate(data, encoder="identity", **wrong)
    assert message in str(caught.value)


def test_mistakes_of_a_comparison(data: str) -> None:
    with pytest.raises(ConfigError, match="give at least one --run or --encoder"):
        hyperproto.compare(data, methods="protonet")
    with pytest.raises(ConfigError, match=r"methods = \[1\]: give a name, or a list of names"):
        hyperproto.compare(data, encoder="identity", methods=[1])  # type: ignore[list-item]


def test_an_option_of_one_method_is_given_once(data: str) -> None:
    words = ["evaluate", "--data", data, "--encoder", "identity", "--method", "hyperproto", "-o", "prior_ratio=1.0"]
    with pytest.raises(ConfigError, match=r"-o prior_ratio is given 2 times; `hyperproto compare` takes several"):
        command(*words, "-o", "prior_ratio=2.0")


def test_examples_of_the_docstrings_run() -> None:
    from hyperproto.api import lists, paper, research
    from hyperproto.reports import tables as text_table

    for module in (lists, paper, research, text_table):
        assert doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE).failed == 0
