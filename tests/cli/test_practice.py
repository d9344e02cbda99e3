"""fit, predict, add, diagnose, export: from files to a model on disk and back; errors change nothing."""

import csv
import io
import json
import subprocess
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from hyperproto import FewShotTextClassifier, HypersphereClassifier
from hyperproto.cli import app
from hyperproto.errors import ConfigError, DataError
from hyperproto.estimators import load_classifier
from tests.helpers.items import LABELS, TEXTS
from tests.helpers.pictures import class_folders, write_tree

NEW = ["the king of london", 'bob, "anna"', "a river"]


def run(*arguments: object, stdin: str | None = None) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def table(path: Path, columns: dict[str, Any], form: str | None = None) -> Path:
    """Write columns in the format that the name says."""
    form = form or path.suffix[1:]
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    if form == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif form == "parquet":
        import pyarrow
        from pyarrow import parquet

        parquet.write_table(pyarrow.table(columns), path)
    else:
        with path.open("w", newline="") as file:
            writer = csv.writer(file, delimiter="\t" if form == "tsv" else ",")
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))
    return path


def snapshot(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def model(tmp_path: Path, bert: str) -> Path:
    file = table(tmp_path / "examples.csv", {"text": TEXTS, "label": LABELS})
    run("fit", file, "--encoder", bert, "--out", tmp_path / "model")
    return tmp_path / "model"


def test_what_else_is_known_reaches_the_classifier(tmp_path: Path, bert: str) -> None:
    examples = table(tmp_path / "examples.csv", {"text": TEXTS, "label": LABELS})
    more = table(tmp_path / "more.jsonl", {"text": NEW, "label": ["", "x", "y"]})  # labels, if any, are not read
    about = {"label": ["court", "river"], "description": ["kings and queens", "a stream of water"]}
    described = table(tmp_path / "about.tsv", about)
    out = tmp_path / "model"
    given = ("--encoder", bert, "--out", out, "--unlabelled", more, "--descriptions", described, "--refine", "yes")
    with pytest.warns(UserWarning, match=r"about.tsv: described labels without an example: 'river' \(1 of 2\); "):
        run("fit", examples, *given)
    found = load_classifier(out)
    by_hand = FewShotTextClassifier(encoder=bert, refine=True, names=dict(zip(*about.values(), strict=True)))
    by_hand.fit(TEXTS, LABELS, unlabelled=NEW)
    np.testing.assert_allclose(found.predict_proba(NEW), by_hand.predict_proba(NEW), atol=1e-6)
    assert "river" in found.classes_  # by its description alone
    assert found.get_params()["refine"] is True
    lines = tmp_path / "more.txt"
    lines.write_text("\n".join(NEW))
    with pytest.warns(FutureWarning, match='refine="auto" is deprecated and now means refine=False'):
        run("fit", examples, "--encoder", bert, "--out", out, "--unlabelled", lines, "--refine", "auto")
    assert load_classifier(out).get_params()["refine"] == "auto"


@pytest.mark.parametrize(
    ("option", "columns", "message"),
    [
        ("--unlabelled", {"text": ["a", ""]}, "line 3: 'text' is an empty text"),
        ("--unlabelled", {"said": ["a"]}, "no column 'text'"),
        ("--unlabelled", {"text": []}, "holds no items"),
        ("--descriptions", {"label": ["court"]}, "it needs a column 'description', and has 'label'"),
        ("--descriptions", {"label": ["a", "a"], "description": ["b", "c"]}, "'label' is 'a' once more; describe a"),
        ("--descriptions", {"label": ["a"], "description": [""]}, "line 2: 'description' is an empty text"),
        ("--descriptions", {"label": [], "description": []}, "holds no descriptions"),
    ],
)
def test_bad_files_of_what_is_known(tmp_path: Path, bert: str, option: str, columns: Any, message: str) -> None:
    examples = table(tmp_path / "examples.csv", {"text": TEXTS, "label": LABELS})
    bad = table(tmp_path / "bad.csv", columns)
    with pytest.raises(DataError, match=message):
        run("fit", examples, "--encoder", bert, "--out", tmp_path / "model", option, bad)
    assert not (tmp_path / "model").exists()


def test_descriptions_are_for_texts_and_refine_is_a_word(tmp_path: Path) -> None:
    examples = table(tmp_path / "vectors.csv", {"vector": ["1 0", "0 1"], "label": ["a", "b"]})
    fit = ("fit", examples, "--encoder", "identity", "--out", tmp_path / "model")
    with pytest.raises(ConfigError, match="descriptions are for classifiers of texts"):
        run(*fit, "--descriptions", examples)
    result = CliRunner().invoke(app, [str(part) for part in (*fit, "--refine", "perhaps")])
    assert result.exit_code == 2
    assert "'perhaps' is none of yes, no" in " ".join(result.output.replace("│", " ").split())


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl", "parquet"])
def test_fit_reads_every_format(tmp_path: Path, bert: str, form: str) -> None:
    file = table(tmp_path / f"examples.{form}", {"id": list(range(9)), "said": TEXTS, "intent": LABELS})
    printed = run("fit", file, "--text", "said", "--label", "intent", "--encoder", bert, "--out", tmp_path / "model")
    found = load_classifier(tmp_path / "model")
    assert printed == (
        f"{tmp_path / 'model'}: 3 classes, 9 examples, 3 in the smallest class (court)\n"
        f"leave-one-out accuracy {found.expected_.accuracy:.0%}\n"
    )
    expected = FewShotTextClassifier(encoder=bert).fit(TEXTS, LABELS)
    assert found.get_params() == expected.get_params()
    np.testing.assert_allclose(found.predict_proba(NEW), expected.predict_proba(NEW), atol=1e-5)


def test_settings_reach_the_classifier(tmp_path: Path, bert: str) -> None:
    file = table(tmp_path / "examples.csv", {"text": TEXTS, "label": LABELS})
    with pytest.warns(UserWarning, match=r"rejects almost nothing here: .* 2.9 of 3 are plausible"):
        run(
            "fit", file, "--encoder", bert, "--out", tmp_path / "model", "--coverage", "0.8", "--region", "gaussian",
            "--fit-mode", "unbiased", "--feature-transform", "center-unit", "--reject-label", "?",
        )  # fmt: skip
    found = load_classifier(tmp_path / "model")
    assert (found.coverage, found.region, found.fit_mode) == (0.8, "gaussian", "unbiased")
    assert (found.feature_transform, found.reject_label) == ("center-unit", "?")


def expected_answers(model: Path, items: list[str]) -> list[tuple[str, float]]:
    found = load_classifier(model)
    labels = found.predict(items).tolist()
    probability = found.predict_proba(items).max(axis=1)
    return [(label, round(float(p), 4)) for label, p in zip(labels, probability, strict=True)]


@pytest.mark.parametrize("batch", [1, 2, 64])
@pytest.mark.parametrize("form", ["csv", "tsv"])
def test_rows_come_back_with_an_answer(tmp_path: Path, model: Path, form: str, batch: int) -> None:
    source = table(tmp_path / f"new.{form}", {"id": ["7", "8", "9"], "text": ["the king", "bob, anna", "a river"]})
    printed = run("predict", model, source, "--batch", batch)
    found = list(csv.DictReader(io.StringIO(printed), delimiter="\t" if form == "tsv" else ","))
    assert [(row["id"], row["text"]) for row in found] == [("7", "the king"), ("8", "bob, anna"), ("9", "a river")]
    answers = expected_answers(model, ["the king", "bob, anna", "a river"])
    for row, (label, probability) in zip(found, answers, strict=True):
        assert row["predicted"] == label
        assert float(row["probability"]) == pytest.approx(probability, abs=1e-3)


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_json_lines_come_back_as_such(tmp_path: Path, model: Path, form: str) -> None:
    source = table(tmp_path / f"new.{form}", {"text": NEW, "n": [1, 2, 3]})
    found = [json.loads(line) for line in run("predict", model, source).splitlines()]
    assert [(row["text"], row["n"]) for row in found] == list(zip(NEW, [1, 2, 3], strict=True))
    assert [row["predicted"] for row in found] == [label for label, _ in expected_answers(model, NEW)]


def test_lines_of_standard_input(model: Path) -> None:
    found = [line.split("\t") for line in run("predict", model, "-", stdin="\n".join(NEW)).splitlines()]
    assert [row[2] for row in found] == NEW
    assert [row[0] for row in found] == [label for label, _ in expected_answers(model, NEW)]
    csv_in = run("predict", model, "-", "--format", "csv", stdin="text\nthe king\n")
    assert csv_in.splitlines()[0] == "text,predicted,probability,error"


def test_an_answer_does_not_wait_for_the_next_question(tmp_path: Path) -> None:
    HypersphereClassifier().fit(np.eye(2), ["a", "b"]).save(tmp_path / "model")
    code = "from hyperproto.cli import main; main()"
    command = [sys.executable, "-c", code, "predict", str(tmp_path / "model"), "-", "--batch", "1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for question, answer in (("1 0", "a"), ("0 1", "b")):
            process.stdin.write(f"{question}\n")
            process.stdin.flush()
            assert process.stdout.readline().split("\t")[::2] == [answer, f"{question}\n"]
        process.stdin.close()
        assert process.wait() == 0


def test_a_bar_is_for_the_fit_alone(tmp_path: Path, bert: str, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = SimpleNamespace(stderr=SimpleNamespace(isatty=lambda: True), stdout=sys.stdout)
    monkeypatch.setattr("hyperproto.cli.practice.sys", terminal)
    shown: list[str] = []

    def bar(title: str) -> AbstractContextManager[None]:
        shown.append(title)
        return nullcontext()

    monkeypatch.setattr("hyperproto.estimators.items.progress_bar", bar)
    file = table(tmp_path / "examples.csv", {"text": TEXTS, "label": LABELS})
    run("fit", file, "--encoder", bert, "--out", tmp_path / "model")
    assert shown == ["encode"]
    assert load_classifier(tmp_path / "model").progress is False


def test_separators_in_labels_and_texts_do_not_break_lines(tmp_path: Path) -> None:
    HypersphereClassifier().fit(np.eye(2), ["a\tb\nc", "d"]).save(tmp_path / "model")
    lines = run("predict", tmp_path / "model", "-", stdin="1 \u2028 0\n").split("\n")
    assert lines[0].split("\t")[::2] == ["a b c", "1 \u2028 0"]
    (tmp_path / "new.tsv").write_text('id\tvector\n"1\t1 0\n')
    assert run("predict", tmp_path / "model", tmp_path / "new.tsv").split("\n")[1].startswith('"1\t1 0\ta b c\t')
    (tmp_path / "new.csv").write_text('vector\n"1\n0"\n')
    assert run("predict", tmp_path / "model", tmp_path / "new.csv").startswith(
        'vector,predicted,probability,error\n"1\n0","a\tb\nc",'
    )


def test_a_file_for_the_answers_is_written_whole_or_not_at_all(tmp_path: Path, model: Path) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text("old")
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    table(good, {"text": NEW})
    table(bad, {"text": [*NEW, None]})
    with pytest.raises(DataError, match=r"bad.jsonl, line 4: 'text' is missing \(None\)"):
        run("predict", model, bad, "--out", out, "--batch", 1, "--on-error", "stop")
    assert out.read_text() == "old"
    assert run("predict", model, good, "--out", out) == ""
    assert [json.loads(line)["text"] for line in out.read_text().splitlines()] == NEW
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix == ".tmp") == []


def test_none_of_these_has_no_probability(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    rows = np.repeat(np.eye(3), 10, axis=0) + 0.05 * random.normal(size=(30, 3))
    HypersphereClassifier(coverage=0.9).fit(rows, np.repeat(["a", "b", "c"], 10)).save(tmp_path / "model")
    source = table(tmp_path / "new.jsonl", {"vector": [[1, 0, 0], [-1, -1, -1]]})
    found = [json.loads(line) for line in run("predict", tmp_path / "model", source).splitlines()]
    assert (found[0]["predicted"], found[1]["predicted"], found[1]["probability"]) == ("a", "none of these", None)
    source = table(tmp_path / "new.csv", {"vector": ["1 0 0", "-1 -1 -1"]})
    lines = run("predict", tmp_path / "model", source).splitlines()
    assert lines[2] == "-1 -1 -1,none of these,,"


def test_vectors_that_are_ready(tmp_path: Path) -> None:
    vectors = (np.repeat(np.eye(2), 3, axis=0) + 0.1 * np.random.default_rng(0).normal(size=(6, 2))).tolist()
    file = table(tmp_path / "a.jsonl", {"vector": vectors, "label": [1, 1, 1, 2, 2, 2]})
    run("fit", file, "--encoder", "identity", "--out", tmp_path / "model")
    found = load_classifier(tmp_path / "model")
    assert type(found) is HypersphereClassifier
    assert found.classes_.tolist() == [1, 2]
    more = table(tmp_path / "b.jsonl", {"vector": [[0.9, 0.1], [1, 2, 3], [None, 1]], "label": [1, 2, 2]})
    with pytest.raises(DataError, match=r"b.jsonl, line 2: 'vector' has 3 numbers where 2 belong\n.*line 3: 'vector'"):
        run("add", tmp_path / "model", more)


def test_rules_of_rejection_reach_the_classifier(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    x, labels = np.eye(4)[np.repeat([0, 1, 2], 8)] + 0.2 * random.normal(size=(24, 4)), np.repeat(["a", "b", "c"], 8)
    cells = [" ".join(map(str, row)) for row in x.tolist()]
    examples = table(tmp_path / "examples.csv", {"vector": cells, "label": labels.tolist()})
    outside = table(tmp_path / "outside.csv", {"vector": ["0 0 0 1", "0.1 0 0.1 1"]})
    arguments = ("fit", examples, "--encoder", "identity", "--out", tmp_path / "model")
    said = run(*arguments, "--outside", outside)
    assert "; rejects 0% of items of the classes and about 100% of others; 100% of the answers are right" in said
    assert HypersphereClassifier.load(tmp_path / "model").rejection_.rule == "outside"
    run(*arguments, "--reject-rate", "0.1")
    assert HypersphereClassifier.load(tmp_path / "model").reject_rate == 0.1
    run(*arguments, "--precision", "0.8")
    assert HypersphereClassifier.load(tmp_path / "model").precision == 0.8
    rows = table(tmp_path / "rows.csv", {"vector": cells[:1]})
    assert "a" in run("predict", tmp_path / "model", rows)


def test_add_is_a_fit_to_everything(tmp_path: Path, model: Path, bert: str) -> None:
    more = table(tmp_path / "more.jsonl", {"text": NEW, "label": ["court", "people", "place"]})
    assert "3 classes, 12 examples" in run("add", model, more)
    expected = FewShotTextClassifier(encoder=bert).fit([*TEXTS, *NEW], [*LABELS, "court", "people", "place"])
    np.testing.assert_allclose(load_classifier(model).predict_proba(NEW), expected.predict_proba(NEW), atol=1e-5)
    assert load_classifier(model).examples_[10] == NEW[1]


def test_new_classes_only_if_they_are_meant(tmp_path: Path, model: Path) -> None:
    more = table(tmp_path / "more.csv", {"text": NEW, "label": ["court", "poeple", "river"]})
    before = snapshot(model)
    with pytest.raises(DataError) as caught:
        run("add", model, more)
    assert str(caught.value) == (
        f"{more}: 2 labels are unknown: 'poeple' (line 3; did you mean 'people'?), 'river' (line 4). "
        "Known: court, people, place; if they are new classes, add --new-classes"
    )
    assert snapshot(model) == before
    assert "5 classes, 12 examples, 1 in the smallest class (poeple)" in run("add", model, more, "--new-classes")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"texts": ["a"], "label": ["x"]}, r"examples.csv: there is no column 'text'; did you mean 'texts'\?.*--text"),
        ({"text": ["a"], "labels": ["x"]}, r"no column 'label'; did you mean 'labels'\? .*name it with --label"),
        ({"text": ["a", ""], "label": ["court", "court"]}, r"examples.csv, line 3: 'text' is an empty text"),
        ({"text": ["a", "b"], "label": ["court", ""]}, r"examples.csv, line 3: 'label' is empty \(''\)"),
        ({"text": [], "label": []}, r"examples.csv: holds no examples"),
    ],
)
@pytest.mark.parametrize("command", ["fit", "add"])
def test_a_mistake_leaves_the_model_untouched(
    tmp_path: Path, model: Path, bert: str, command: str, columns: dict[str, Any], message: str
) -> None:
    before = snapshot(model)
    file = table(tmp_path / "examples.csv", columns)
    arguments = ["fit", file, "--out", model, "--encoder", bert] if command == "fit" else ["add", model, file]
    with pytest.raises(DataError, match=message):
        run(*arguments)
    assert snapshot(model) == before


def test_many_mistakes_come_at_once_but_not_all(tmp_path: Path, bert: str) -> None:
    file = table(tmp_path / "a.jsonl", {"text": [*range(13)], "label": ["x"] * 13})
    with pytest.raises(DataError) as caught:
        run("fit", file, "--encoder", bert, "--out", tmp_path / "model")
    lines = str(caught.value).splitlines()
    assert len(lines) == 11
    assert lines[9].endswith("a.jsonl, line 10: 'text' is 9 (int); a text is a string")
    assert lines[10] == "and 3 more rows"
    assert not (tmp_path / "model").exists()


def test_the_same_mistake_in_many_rows_is_said_once(tmp_path: Path, model: Path, bert: str) -> None:
    file = table(tmp_path / "a.jsonl", {"text": [None] * 13, "label": ["x"] * 13})
    with pytest.raises(DataError) as caught:
        run("fit", file, "--encoder", bert, "--out", tmp_path / "other")
    assert str(caught.value) == (
        f"{file}, lines 1, 2, 3, 4, 5 and 8 more: 'text' is missing (None); give every row a text"
    )
    labels = ["king", *(f"new{n}" for n in range(12)), "king", "court"]
    more = table(tmp_path / "more.csv", {"text": ["a"] * 15, "label": labels})
    with pytest.raises(DataError) as caught:
        run("add", model, more)
    message = str(caught.value)
    assert message.startswith(f"{more}: 13 labels are unknown: 'king' (lines 2, 15), 'new0' (line 3), ")
    assert "'new8' (line 11), and 3 more. Known: court, people, place; if" in message
    assert message.count("Known") == 1
    table(more, {"text": ["a"] * 3, "label": ["king"] * 3})
    with pytest.raises(DataError, match=r"more.csv, lines 2, 3, 4: there is no class 'king'.* add --new-classes if"):
        run("add", model, more)
    done = CliRunner().invoke(app, ["predict", str(model), "-"], input="\n" * 7)
    assert done.stderr.splitlines()[1].startswith("standard input, lines 1, 2, 3, 4, 5 and 2 more: 'text' is an empty")


def test_what_is_no_file_has_a_sentence_of_its_own(tmp_path: Path, model: Path, bert: str) -> None:
    with pytest.raises(DataError, match=r"no file of this name; to label one text, write: echo 'Where is it\?' \| hy"):
        run("predict", model, "Where is it?")
    for arguments in (["add", model, "A text."], ["fit", "A text.", "--encoder", bert, "--out", tmp_path / "other"]):
        with pytest.raises(DataError, match=r"'A text\.': there is no file of this name; write texts and their"):
            run(*arguments)
    with pytest.raises(DataError, match=r"none/rows: there is no such file; check the path"):
        run("predict", model, tmp_path / "none" / "rows")
    with pytest.raises(DataError, match=r"none.csv: No such file or directory; check the path"):
        run("predict", model, tmp_path / "none.csv")
    with pytest.raises(ConfigError, match=r": a folder is read as images by class, and this model takes texts; name"):
        run("predict", model, tmp_path)


def test_a_row_without_the_column(tmp_path: Path, bert: str) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a", "label": "x"}\n{"txt": "b", "label": "x"}\n')
    with pytest.raises(DataError, match=r"line 2: there is no 'text', only 'txt', 'label'"):
        run("fit", tmp_path / "a.jsonl", "--encoder", bert, "--out", tmp_path / "model")


def test_answers_do_not_replace_what_is_there(tmp_path: Path, model: Path) -> None:
    for source, where in (
        (table(tmp_path / "a.csv", {"text": NEW, "predicted": NEW}), "a.csv"),
        (table(tmp_path / "a.jsonl", {"text": NEW, "probability": NEW}), "a.jsonl, line 1"),
    ):
        with pytest.raises(DataError, match=rf"{where}: there is a '\w+' already, where the answer would go; rename"):
            run("predict", model, source)


def test_the_doctor(tmp_path: Path, model: Path) -> None:
    text = run("diagnose", model, "--figure", tmp_path / "classes.png", "--json", tmp_path / "found.json")
    assert text.splitlines()[0].startswith("class")
    assert "Another example would help most in: " in text
    assert (tmp_path / "classes.png").read_bytes().startswith(b"\x89PNG")
    content = json.loads((tmp_path / "found.json").read_text())
    assert content == json.loads(run("diagnose", model, "--json", "-"))
    assert [report["label"] for report in content["classes"]] == ["court", "people", "place"]
    run("diagnose", model, "--figure", tmp_path / "classes.svg")
    assert b"<svg" in (tmp_path / "classes.svg").read_bytes()
    with pytest.raises(ConfigError, match=r"classes.gif: a figure is a file that ends in .png, .svg, .pdf"):
        run("diagnose", model, "--figure", tmp_path / "classes.gif")


def test_export(tmp_path: Path, model: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    assert run("export", model, "--onnx", tmp_path / "head.onnx") == f"{tmp_path / 'head.onnx'}\n"
    session = runtime.InferenceSession(tmp_path / "head.onnx", providers=["CPUExecutionProvider"])
    assert session.get_inputs()[0].shape == ["n", 32]


def test_folders_of_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_tree(tmp_path / "photos", class_folders(3, 4))
    assert "3 classes, 12 examples" in run("fit", "photos/", "--out", "model")
    found = load_classifier("model")
    assert type(found).__name__ == "FewShotImageClassifier"
    assert found.examples_[0] == "photos/class00/0.png"
    lines = list(csv.DictReader(io.StringIO(run("predict", "model", "photos"))))
    assert len(lines) == 12
    assert all(row["image"].startswith(f"photos/{row['predicted']}/") for row in lines)
    one = run("predict", "model", "photos/class01/2.png").splitlines()
    assert one[1].startswith("photos/class01/2.png,class01,")
    with pytest.raises(DataError, match=r"photos/none.png: there is no such image; check the path"):
        run("predict", "model", "photos/none.png")
    paths = run("predict", "model", "-", stdin="photos/class02/1.png\n")
    assert paths.startswith("class02\t")
    run("fit", "photos/", "--out", "informed", "--unlabelled", "photos/class00")
    informed: Any = load_classifier("informed").region_
    assert informed.evidence.clusters.weight[0] > 0
    write_tree(tmp_path / "more", class_folders(1, 2, prefix="new"))
    with pytest.raises(DataError, match=r"more/new00: there is no class 'new00'.*--new-classes"):
        run("add", "model", "more")
    assert "4 classes, 14 examples" in run("add", "model", "more", "--new-classes")
    listed = table(tmp_path / "listed.csv", {"image": ["photos/class00/1.png", "nowhere.png"], "label": ["a", "b"]})
    with pytest.raises(DataError, match=r"listed.csv, line 3: 'image' is 'nowhere.png', where there is no file"):
        run("fit", listed, "--encoder", "efficientnet-lite0", "--out", "other")
    write_tree(tmp_path / "loose", {"a.png": b""})
    with pytest.raises(DataError, match="loose: 1 images outside of folders; put the images of each class"):
        run("fit", "loose", "--out", "other")


def test_a_model_that_is_none(tmp_path: Path, model: Path) -> None:
    with pytest.raises(DataError, match=r"model.json: no such file; a saved classifier is a folder with a model.json"):
        run("predict", tmp_path, "-", stdin="a")
    [tensors] = model.glob("*.safetensors")
    tensors.write_bytes(tensors.read_bytes()[:-1])
    for command in (["predict", model, "-"], ["add", model, tmp_path / "examples.csv"], ["diagnose", model]):
        with pytest.raises(DataError, match="the file was cut or changed"):
            run(*command, stdin="a")


@pytest.mark.parametrize(
    "arguments",
    [
        ["fit", "a.csv"],
        ["fit", "a.csv", "--out", "model", "--format", "xml"],
        ["fit", "a.csv", "--out", "model", "--coverage", "much"],
        ["predict", "model", "-", "--batch", "0"],
        ["export", "model", "--onnx", "head.onnx", "--int8"],
        ["diagnose", __file__],
    ],
)
def test_wrong_usage_is_exit_code_2(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, arguments).exit_code == 2


def test_a_format_that_nobody_knows_is_named() -> None:
    result = CliRunner().invoke(app, ["fit", "a.csv", "--out", "model", "--format", "xml"])
    assert "'xml' is none of csv, tsv, jsonl, parquet, lines" in " ".join(result.output.replace("│", " ").split())


def test_warnings_and_errors_are_paragraphs(tmp_path: Path) -> None:
    """A real process: what a user sees of a warning and of a mistake."""
    rows = [[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]]
    HypersphereClassifier(coverage=0.95).fit(rows, list("aabb")).save(tmp_path / "model")
    command = [sys.executable, "-c", "from hyperproto.cli import main; main()", "predict", str(tmp_path / "model"), "-"]
    stop = [*command, "--format", "csv", "--on-error", "stop"]
    done = subprocess.run(stop, input="vector\n1 0\n0 1 2\n", capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stdout == "vector,predicted,probability\n"
    assert "error: standard input, line 3: 'vector' has 3 numbers where 2 belong" in done.stderr
    done = subprocess.run([*command, "--format", "csv"], input="vector\n1 0\n", capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stderr.startswith("warning: coverage=0.95 needs 19 examples")
    assert len(done.stderr.splitlines()) == 1
    assert "torch" not in done.stderr
    assert Path(tmp_path / "model" / "model.json").exists()


def test_fit_and_add_say_what_is_to_be_expected_and_warn_where_a_coverage_rejects_nothing(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    near, labels = random.normal(size=(20, 4)), ["a", "b", "c", "d"] * 5
    far = near + 50 * np.eye(4)[[0, 1, 2, 3] * 5]
    for name, x in (("near", near), ("far", far)):
        table(tmp_path / f"{name}.jsonl", {"vector": x.tolist(), "label": labels})
    common = ["--encoder", "identity", "--feature-transform", "none", "--coverage", "0.9"]
    printed = run("fit", tmp_path / "far.jsonl", "--out", tmp_path / "model", *common)
    assert printed.endswith("leave-one-out accuracy 100%, a plausible set of 0.9 classes on average\n")
    with pytest.warns(UserWarning, match="coverage=0.9 rejects almost nothing here: .* or lower the coverage"):
        run("fit", tmp_path / "near.jsonl", "--out", tmp_path / "vague", *common)
    with pytest.warns(UserWarning, match="rejects almost nothing here"):
        assert "leave-one-out accuracy" in run("add", tmp_path / "vague", tmp_path / "near.jsonl")


def test_drift(tmp_path: Path, model: Path) -> None:
    lines = [*TEXTS, "zebra zebra", "zebra zoo", "zebra stripes"]
    (tmp_path / "new.txt").write_text("\n".join(lines * 2) + "\n")
    (tmp_path / "old.txt").write_text("\n".join(TEXTS * 3) + "\n")
    text = run("drift", model, tmp_path / "new.txt", "--reference", tmp_path / "old.txt", "--json", tmp_path / "f.json")
    assert text.startswith(f"{2 * len(lines)} new items against {3 * len(TEXTS)} (given reference): ")
    content = json.loads((tmp_path / "f.json").read_text())
    assert content["against"] == "given reference"
    assert {test["quantity"] for test in content["tests"]} == {"novelty", "confidence", "class shares"}
    same = run("drift", model, tmp_path / "new.txt", "--reference", tmp_path / "old.txt", "--json", "-")
    assert json.loads(same) == content
