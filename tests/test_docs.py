"""The code in CONTRIBUTING.md runs; what the documents name exists."""

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from hyperproto.cli import app
from hyperproto.data import DATASETS, Pool, open_pool
from hyperproto.encoders import ENCODERS, make_encoder, resolve_encoder
from hyperproto.methods import METHODS, make_method
from tests.helpers.pictures import class_folders, encoded, write_tree
from tests.helpers.random_tasks import make_task
from tests.helpers.tagged import random_sentences
from tests.helpers.tiny_words import write_conll

ROOT = Path(__file__).parents[1]


def blocks(document: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / document).read_text(), flags=re.DOTALL)


def run(code: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "example"}
    exec(code, names)
    return names


def test_the_simplest_possible_method_works(monkeypatch: pytest.MonkeyPatch) -> None:
    medoid = run(blocks("CONTRIBUTING.md", "python")[0])["Medoid"]
    monkeypatch.setattr(METHODS, "_entries", dict(METHODS._entries))
    METHODS.add("medoid", medoid)
    task = make_task(pads=2)
    scores = make_method("medoid", feature_shape=(6,)).scores(task)
    for b in range(2):
        for n in range(3):
            own = task.support[b][task.support_y[b] == n]
            center = own[torch.cdist(own, own).sum(1).argmin()]
            torch.testing.assert_close(scores[b, :, n], -(task.query[b] - center).norm(dim=1), rtol=1e-3, atol=1e-3)


def test_your_own_data_works(monkeypatch: pytest.MonkeyPatch) -> None:
    module = type(
        "Module",
        (),
        {k: staticmethod(v) if callable(v) else v for k, v in run(blocks("CONTRIBUTING.md", "python")[1]).items()},
    )
    monkeypatch.setattr(DATASETS, "_entries", {**DATASETS._entries, "mine": module})
    assert open_pool("mine", "val").n_classes == 10


def test_your_own_encoder_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        ENCODERS,
        "_entries",
        {**ENCODERS._entries, "projection": run(blocks("CONTRIBUTING.md", "python")[2])["Projection"]},
    )
    pool = Pool(np.ones((10, 7), np.float32), np.zeros(10, int), ("a",))
    encoder = make_encoder(*resolve_encoder("projection", {"size": 3}, pool))
    assert encoder.encode_all(pool.items).x.shape == (10, 3)


def test_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    _, classifier, own_vectors, from_python = blocks("README.md", "python")
    run(classifier)
    assert f"# {capsys.readouterr().out.strip()}" in classifier
    run(own_vectors)
    [command] = [
        part for part in (ROOT / "README.md").read_text().split("\n\n") if "compare --encoder identity" in part
    ]
    arguments = shlex.split(command.replace("\\\n", " "))[1:]
    result = CliRunner().invoke(app, [*arguments, "--episodes", "50"], catch_exceptions=False)
    assert result.exit_code == 0
    assert "hyperproto bayes unit" in result.stdout
    names = run(from_python)
    assert (names["predicted"] == names["episode"].query_y).mean() > 0.4
    assert names["inside"].shape == (75, 5)


def test_everything_from_python_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "example"}
    for code in blocks("docs/python.md", "python"):
        exec(code.replace("episodes=100", "episodes=20"), names)
    assert len(names["found"].results) == 18
    assert (tmp_path / "comparison.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "answers.csv").read_text().startswith("vector,label,predicted,probability\n1 0,yes,yes,")
    printed = capsys.readouterr().out
    for words in ("shots 1,1,2,5,20", "{'step': 2, 'accuracy': ", "on 20 episodes", "20/20 episodes scored"):
        assert words in printed


def test_the_page_names_every_function_of_the_api() -> None:
    import hyperproto

    page = (ROOT / "docs" / "python.md").read_text()
    functions = [name for name, home in hyperproto._HOME.items() if home in ("api", "estimators.examples")]
    assert len(functions) >= 13
    assert [name for name in functions if f"{name}(" not in page] == []


def test_the_first_example_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    run(blocks("README.md", "python")[0])
    assert capsys.readouterr().out == blocks("README.md", "text")[0]


def printing_what_it_says(document: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Run the Python of a document, block by block, and compare what it prints with its comments."""
    names: dict[str, Any] = {"__name__": "example"}
    for code in blocks(document, "python"):
        exec(code, names)
        printed = capsys.readouterr().out
        assert printed == "".join(f"{said}\n" for said in re.findall(r"print\(.*\)  # (.*)", code))
    return names


def test_the_guide_to_entities_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names = printing_what_it_says("docs/entities.md", capsys)
    assert names["again"].classes_ == names["tagger"].classes_


def test_the_practitioners_guide_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    animals = {"cats/1": (200, 40, 40), "dogs/1": (30, 60, 180), "dogs/2": (40, 50, 190)}
    write_tree(
        tmp_path / "photos", {f"{name}.png": encoded(Image.new("RGB", (32, 32), rgb)) for name, rgb in animals.items()}
    )
    shutil.copytree(ROOT / "tests" / "fixtures" / "0.1" / "run-finished", tmp_path / "runs" / "photos")
    names = printing_what_it_says("docs/estimators.md", capsys)
    examples = [f"{text},{label}" for text, label in zip(names["texts"], ["card"] * 4 + ["rate"] * 4, strict=True)]
    (tmp_path / "examples.csv").write_text("\n".join(["text,label", *examples, "Yen?,rate", "Card?,card"]) + "\n")
    (tmp_path / "new.csv").write_text("text\nHas my card been posted?\n")
    (tmp_path / "more.jsonl").write_text('{"text": "I cannot log in", "label": "login"}\n')
    joined = (ROOT / "docs" / "estimators.md").read_text()
    lines = re.findall(r"^    (?:echo \"(.*)\" \| )?hyperproto (.*?)(?: > .*)?$", joined, flags=re.MULTILINE)
    assert len(lines) == 7
    answers = []
    for said, arguments in lines:
        result = CliRunner().invoke(app, shlex.split(arguments), input=said, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        answers.append(result.stdout)
    assert answers[1].splitlines()[1].startswith("Has my card been posted?,card,")
    assert answers[2].startswith("card\t")
    assert {"classes.png", "head.onnx", "images"} <= {path.name for path in tmp_path.iterdir()}


def commands(document: str, start: str) -> list[list[str]]:
    """Shell commands in indented blocks that begin with `start`, as arguments."""
    joined = (ROOT / document).read_text().replace("\\\n", " ")
    lines = [line.strip().partition("  #")[0] for line in joined.splitlines() if line.startswith("    ")]
    return [shlex.split(line)[1:] for line in lines if line.startswith(start)]


def test_a_stranger_may_use_images_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_tree(tmp_path / "photos", class_folders(10, 20))

    def done(arguments: list[str], *more: str) -> str:
        result = CliRunner().invoke(app, [*arguments, *more], catch_exceptions=False)
        assert result.exit_code == 0
        return result.stdout

    for document in ("README.md", "docs/images.md"):
        [check] = commands(document, "hyperproto data check folder:photos")
        assert "photos" in done(check)
    [compare] = commands("README.md", "hyperproto compare --data folder:photos")
    assert "hyperproto bayes unit" in done(compare, "--episodes", "5")
    [evaluate] = commands("docs/images.md", "hyperproto evaluate --data folder:photos")
    assert "hyperproto bayes unit" in done(evaluate, "--episodes", "5")
    [train] = commands("docs/images.md", "hyperproto train miniimagenet-conv4:protonet -o")
    small = ["data.spec=folder:photos,size=16,shares=5/5/0", "training.steps=2", "validation.episodes=2",
             "episodes.way=5"]  # fmt: skip
    done(train, *(part for setting in small for part in ("-o", setting)))
    assert (tmp_path / "runs" / "photos" / "model.safetensors").exists()


def test_a_user_of_the_fewrel_toolkit_moves_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HYPERPROTO_DATA", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    random = np.random.default_rng(0)

    def instance() -> dict[str, Any]:
        words = random.choice(["the", "king", "of", "Spain", "was", "born", "in", "a", "town"], 8).tolist()
        return {"tokens": words, "h": ["king", "Q1", [[1]]], "t": ["Spain", "Q2", [[3, 4]]]}

    (tmp_path / "fewrel").mkdir()
    for name, relations in (("train_wiki", 24), ("val_wiki", 8)):
        content = {f"P{n}": [instance() for _ in range(12)] for n in range(relations)}
        (tmp_path / "fewrel" / f"{name}.json").write_text(json.dumps(content))

    def done(arguments: list[str], *more: str) -> str:
        result = CliRunner().invoke(app, [*arguments, *more], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.stdout

    few = ["--episodes", "5"]
    [check] = commands("docs/relations.md", "hyperproto data check fewrel")
    assert "train_wiki" in done(check)
    [train] = commands("docs/relations.md", "hyperproto train fewrel-cnn:protonet")
    done(train, "-o", "training.steps=2", "-o", "validation.episodes=2")
    [compare] = commands("docs/relations.md", "hyperproto compare --run runs/fewrel-cnn-protonet")
    assert "hyperproto bayes none" in done(compare, *few)
    [nota] = commands("docs/relations.md", "hyperproto compare --data fewrel")
    assert "AUROC" in done(nota, *few)
    [evaluate] = commands("README.md", "hyperproto evaluate --data fewrel")
    assert "hyperproto bayes unit" in done(evaluate, *few)
    hidden = [{"meta_train": [[instance()] for _ in range(5)], "meta_test": instance()} for _ in range(3)]
    (tmp_path / "test_wiki_input-5-1.json").write_text(json.dumps(hidden))
    done(["submit", "test_wiki_input-5-1.json", "--run", "runs/fewrel-cnn-protonet"])
    assert len(json.loads((tmp_path / "pred-5-1.json").read_text())) == 3


def test_a_user_of_the_few_nerd_toolkit_moves_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HYPERPROTO_DATA", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "250")
    for seed, split in enumerate(("train", "dev", "test")):
        sentences = random_sentences(250, 6, seed=seed, most_runs=3)
        write_conll(tmp_path / "fewnerd" / "inter" / f"{split}.txt", sentences)

    def done(arguments: list[str], *more: str) -> str:
        result = CliRunner().invoke(app, [*arguments, *more], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.stdout

    def only(start: str) -> list[str]:
        [arguments] = commands("docs/entities.md", start)
        return arguments

    assert "dev" in done(only("hyperproto data check fewnerd"))
    assert "Table 1" in done(only("hyperproto report table1"))  # nothing was run yet
    text = done(only("hyperproto compare --data fewnerd"), "--episodes", "5")
    assert "structshot point none" in text
    assert "5~10 shots" in text
    small = ["training.steps=2", "training.validate_every=2", "validation.episodes=2"]
    train = only("hyperproto train fewnerd-minilm:hyperproto -o")
    done(train, *(part for setting in small for part in ("-o", setting)))
    assert "F1 %, toolkit" in done(only("hyperproto evaluate --run runs/mine"), "--episodes", "5")
    (tmp_path / "few.conll").write_text("Marie B-person\nlives O\nin O\nRome B-city\n")
    (tmp_path / "text.txt").write_text("Anna lives in Paris.\n")
    assert json.loads(done(only("hyperproto tag")))["words"][0]["text"] == "Anna"


@pytest.mark.parametrize(
    "document",
    [
        "CONTRIBUTING.md",
        "README.md",
        "docs/entities.md",
        "docs/estimators.md",
        "docs/fidelity.md",
        "docs/images.md",
        "docs/python.md",
        "docs/relations.md",
        "CHANGELOG.md",
    ],
)
def test_every_path_that_a_document_names_exists(document: str) -> None:
    text = (ROOT / document).read_text()
    for path in re.findall(
        r"`((?:src|tests|docs|regions|methods|training|encoders|evaluation|results|benchmarks)/[\w./-]*)`", text
    ):
        places = (ROOT / path, ROOT / "src" / "hyperproto" / path)
        assert any(place.exists() for place in places), path
