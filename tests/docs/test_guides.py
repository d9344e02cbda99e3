"""The code and the commands of the README and of docs/ run; numbers are those of results/; what is named exists."""

import json
import pickle
import re
import shlex
import shutil
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from hyperproto.data import open_pool
from hyperproto.estimators import load_classifier
from hyperproto.training import load_recipe
from tests.docs.markdown import DOCUMENTS, ROOT, blocks, commands, done, read, result, run, run_saying, section, tables
from tests.helpers.pictures import class_folders, encoded, write_tree
from tests.helpers.tagged import random_sentences
from tests.helpers.tiny_words import write_conll


def test_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    first, vectors, tagger, own_vectors = blocks(read("README.md"), "python")
    run(first)
    assert capsys.readouterr().out == blocks(read("README.md"), "text")[0]
    run_saying(vectors, capsys)
    run_saying(tagger, capsys)
    found = run(own_vectors)["found"]
    assert len(found.results) == 4
    assert "hyperproto bayes none" in capsys.readouterr().out
    (tmp_path / "examples.csv").write_text("text,label\nWhere is my card?,card\nYen to pounds,rate\nEuros?,rate\n")
    (tmp_path / "new.csv").write_text("text\nHas my card been posted?\n")
    fit, predict = commands(section("README.md", "How to"))[:2]
    done(fit)
    assert done(predict[: predict.index(">")]).splitlines()[1].startswith("Has my card been posted?,card,")


def test_training_as_the_readme_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    text = read("README.md").partition("### Train and compare methods")[2].partition("###")[0]
    listing, train, evaluate, compare, texts = commands(text)
    assert "glyphs:hyperproto" in done(listing)
    small = ["training.steps=2", "encoder.filters=8", "validation.episodes=2"]
    done(train, *(part for setting in small for part in ("-o", setting)))
    assert "20-way, shots 1" in done(evaluate, "--episodes", "5")
    assert "hyperproto paper none" in done(compare, "--episodes", "5")
    rows = [f"{word} number {n},{word}" for word in ("river", "king", "queen", "card", "music") for n in range(8)]
    (tmp_path / "mine.csv").write_text("\n".join(["text,label", *rows]))
    assert "hyperproto bayes unit + names" in done(texts, "--episodes", "5", "--query", "2")
    show, _, report, reproduce, figures = commands(read("README.md").partition("### Reproduce a table")[2])
    assert "stored" in done(show)
    assert "Table 2" in done(report)  # nothing was run yet
    assert "fewrel-cnn:hyperproto-published" in done(reproduce, "--dry-run")
    assert "fig3" in done(figures)


def test_the_speed_of_the_readme_is_that_of_the_files() -> None:
    [table] = tables(section("README.md", "Speed"))
    assert len(table) == 6
    files = ["benchmarks", "benchmarks-relations", "benchmarks-entities", "benchmarks-estimators"]
    ratios = [m["ratio"] for file in files for m in json.loads(result(f"{file}.json"))["measurements"]]
    for what, _, times in table[1:]:
        digits = len(times.partition(".")[2])
        assert times in {f"{ratio:.{digits}f}" for ratio in ratios}, what


def test_out_of_class_texts_rejected_in_the_guide_are_those_of_the_files() -> None:
    [table] = [each for each in tables(section("docs/estimators.md", "None of these")) if "warned" in each[0][1]]
    assert len(table) == 5
    for what, *cells in table[1:]:
        data, _, others = what.partition(", ")
        groups = json.loads(result(f"intents-{data.lower()}-vacuous.json"))["warnings"]
        expected = []
        for warning in ("vacuous", "none"):
            found = groups[warning]["outside_rejected" if others == "out of scope" else "left_out_rejected"]
            shares = [f"{100 * found[name]:.1f}" for name in ("least", "most", "from_expected")]
            expected += [f"{found['at_most_0.05']} of {found['models']}", " to ".join(shares[:2]), shares[2]]
        assert cells == expected, what


def test_rules_of_rejection_in_the_guide_do_what_the_files_say() -> None:
    [table] = [t for t in tables(section("docs/estimators.md", "None of these")) if t[0][0].startswith("in %")]
    assert len(table) == 13
    measures = {
        "genuine rejected": "genuine_rejected",
        "genuine answered": "genuine_answered",
        "out-of-class rejected": "outside_rejected",
        "right among genuine answered": "precision",
    }

    def means(rows: list[dict[str, Any]], measure: str) -> str:
        return " / ".join(f"{100 * row[measure]['mean']:.0f}" if measure in row else "-" for row in rows)

    for head, *cells in table[1:]:
        rule, _, what = head.partition("`: ")
        for name, cell in zip(table[0][1:], cells, strict=True):
            content = json.loads(result(f"intents-{name.lower()}-rejection.json"))
            rows = [row for row in content["results"] if row["rule"] == rule.strip("`")]
            assert [row["shots"] for row in rows] == ["5", "20"]
            assert all(len(row["genuine_rejected"]["draws"]) == 5 for row in rows)
            promised = f" ({means(rows, 'expected_outside_rejected')})" if what == "out-of-class rejected" else ""
            assert cell == means(rows, measures[what]) + promised, (head, name)


def test_scores_of_left_out_classes_are_those_of_the_files() -> None:
    found = tables(section("results/intents/estimators.md", "None of these"))
    [table] = [t for t in found if t[0][0].startswith("AUROC")]
    assert len(table) == 17
    for head, *cells in table[1:]:
        for name, cell in zip(table[0][1:], cells, strict=True):
            data, _, others = name.partition(", ")
            rows = json.loads(result(f"intents-{data.lower()}-left-out.json"))["results"]
            own = [row for row in rows if row["score"].removesuffix(" (1,000 of the texts)") == head]
            measure = "auroc_out_of_scope" if others else "auroc"
            means = [f"{100 * row[measure]['mean']:.1f}" for row in own if measure in row]
            assert cell.replace("**", "") == (" / ".join(means) or "-"), (head, name)


def test_lines_of_the_readme_are_short() -> None:
    assert [line for line in read("README.md").splitlines() if len(line) > 120] == []


def test_everything_from_python_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "example"}
    for code in blocks(read("docs/python.md"), "python"):
        exec(code.replace("episodes=100", "episodes=20"), names)
    assert len(names["found"].results) == 18
    assert (tmp_path / "comparison.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "answers.csv").read_text().startswith("vector,label,predicted,probability,error\n1 0,yes,yes,")
    printed = capsys.readouterr().out
    for words in ("shots 1,1,2,5,20", "{'step': 2, 'accuracy': ", "on 20 episodes", "20/20 episodes scored"):
        assert words in printed


def test_the_page_names_every_function_of_the_api() -> None:
    import hyperproto

    page = read("docs/python.md")
    functions = [name for name, home in hyperproto._HOME.items() if home in ("api", "api.files")]
    assert len(functions) >= 13
    assert [name for name in functions if f"{name}(" not in page] == []


def test_the_guide_to_figures_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from hyperproto.paper.figures import FIGURES

    monkeypatch.chdir(tmp_path)
    page = read("docs/figures.md")
    [code] = blocks(page, "python")
    run(code)
    assert capsys.readouterr().out == "{'percent': 52.09, 'half': 2.49}\n"
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == ["fig3.json", "fig3.png", "fig3.svg"]
    assert {row[0].strip("`") for row in tables(page)[0][1:]} == {*FIGURES}


def printing_what_it_says(document: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Run the Python of a document, block by block, and compare what it prints with its comments."""
    names: dict[str, Any] = {"__name__": "example"}
    for code in blocks(read(document), "python"):
        run_saying(code, capsys, names)
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
    (tmp_path / "new.csv").write_text("text\nHas my card been posted?\n" + "Where is it?\nEuros?\n" * 5)
    (tmp_path / "old.csv").write_text("text\n" + "Where is my card?\nYen to pounds\n" * 5)
    (tmp_path / "more.jsonl").write_text('{"text": "I cannot log in", "label": "login"}\n')
    (tmp_path / "about.csv").write_text("label,description\ncard,a bank card\nlogin,passwords\n")
    joined = read("docs/estimators.md")
    lines = re.findall(r"^    (?:echo \"(.*)\" \| )?hyperproto (.*?)(?: > .*)?$", joined, flags=re.MULTILINE)
    (tmp_path / "notes.csv").write_text("text,label\nsun and wind,sun|wind\nrain,rain\nwind,wind\nsunny,sun\n")
    (tmp_path / "more.csv").write_text("text,label\nheavy rain,rain\n")
    assert len(lines) == 14
    with pytest.warns(UserWarning, match=r"about.csv: described labels without an example: 'login' \(1 of 2\)"):
        answers = [done(shlex.split(arguments), said=said) for said, arguments in lines]
    assert answers[1].splitlines()[1].startswith("Has my card been posted?,card,")
    assert answers[3].startswith("card\t")
    assert "login" in load_classifier("model").classes_  # by its description
    assert {"answers.parquet", "classes.png", "head.onnx", "images"} <= {path.name for path in tmp_path.iterdir()}


def test_a_stranger_may_use_images_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_tree(tmp_path / "photos", class_folders(10, 20))

    for document in ("README.md", "docs/images.md"):
        [check] = commands(read(document), "hyperproto data check folder:photos")
        assert "photos" in done(check)
    [compare] = commands(read("README.md"), "hyperproto compare --data folder:photos")
    assert "hyperproto bayes unit" in done(compare, "--episodes", "5")
    [evaluate] = commands(read("docs/images.md"), "hyperproto evaluate --data folder:photos")
    assert "hyperproto bayes unit" in done(evaluate, "--episodes", "5")
    [train] = commands(read("docs/images.md"), "hyperproto train miniimagenet-conv4:protonet -o")
    small = ["data.spec=folder:photos,size=16,shares=5/5/0", "training.steps=2", "validation.episodes=2",
             "episodes.way=5"]  # fmt: skip
    done(train, *(part for setting in small for part in ("-o", setting)))
    assert (tmp_path / "runs" / "photos" / "model.safetensors").exists()


def test_the_conversion_of_tieredimagenet_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for split, count in (("train", 351), ("val", 97), ("test", 160)):
        np.savez(f"{split}_images.npz", images=np.full((count, 4, 4, 3), 7, np.uint8))
        Path(f"{split}_labels.pkl").write_bytes(pickle.dumps({"label_specific": np.arange(count)}))
    [code] = blocks(read("docs/images.md"), "python")
    exec(code, {"__name__": "example"})
    with pytest.warns(UserWarning, match=r"97 images, but 124,261 are published"):
        pool = open_pool(f"tieredimagenet:{tmp_path},size=4", "val")
    assert pool.n_classes == 97
    assert (pool.items == 7).all()


def test_the_guide_to_experiments_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HYPERPROTO_DATA", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr("hyperproto.reports.run_page.write_run_page", lambda *_: None)
    [grid] = commands(section("docs/experiments.md", "A grid of settings"))
    small = ["training.steps=1", "encoder.filters=2", "validation.episodes=2"]
    done([*grid, *(part for setting in small for part in ("-o", setting)), "--workers", "1"])
    assert (tmp_path / "runs/rates/optim.encoder.lr=0.001__training.seed=0/model.safetensors").exists()
    assert len(json.loads((tmp_path / "runs/rates/grid.json").read_text())["runs"]) == 6
    [code] = blocks(section("docs/experiments.md", "A grid of settings"), "python")
    run_saying(code, capsys)
    dry, whole = commands(section("docs/experiments.md", "A table of the paper"))
    told = done(dry)
    assert "fewrel-cnn:hyperproto-published" in told
    assert "missing: fewrel-cnn-protonet-seed-0 needs fewrel (train)" in told
    assert whole == ["reproduce", "table2", "--budget", "small", "--seeds", "3"]
    latex, html = commands(section("docs/experiments.md", "Tables as Markdown, LaTeX, CSV and HTML"))
    assert done(latex).startswith(r"% \usepackage{booktabs}")
    done(html)
    assert (tmp_path / "table2.html").read_text().startswith("<!doctype html>")


def test_the_recipe_with_names_of_classes_is_one() -> None:
    [block] = [block for block in blocks(read("docs/images.md"), "toml") if "traml" in block]
    sections = tomllib.loads(block)
    lines = [f"{key}.{option}={value!r}" for key, own in sections.items() for option, value in own.items()]
    recipe = load_recipe("miniimagenet-conv4:protonet", lines)
    assert recipe.method.options["margin"] == "task"
    assert recipe.names is not None
    assert recipe.names.encoder == "glove"


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

    few = ["--episodes", "5"]
    [check] = commands(read("docs/relations.md"), "hyperproto data check fewrel")
    assert "train_wiki" in done(check)
    [train] = commands(read("docs/relations.md"), "hyperproto train fewrel-cnn:protonet")
    done(train, "-o", "training.steps=2", "-o", "validation.episodes=2")
    [compare] = commands(read("docs/relations.md"), "hyperproto compare --run runs/fewrel-cnn-protonet")
    assert "hyperproto bayes none" in done(compare, *few)
    told, nota = commands(read("docs/relations.md"), "hyperproto compare --data fewrel")
    (tmp_path / "fewrel/pid2name.json").write_text(json.dumps({f"P{n}": [f"king {n}", "of a town"] for n in range(8)}))
    assert "cosine point unit + example" in done(told, *few, "--unlabelled", "2", "--query", "3")
    assert "AUROC" in done(nota, *few)
    [evaluate] = commands(read("docs/relations.md"), "hyperproto evaluate --data fewrel")
    assert "hyperproto bayes unit" in done(evaluate, *few)
    hidden = [{"meta_train": [[instance()] for _ in range(5)], "meta_test": instance()} for _ in range(3)]
    (tmp_path / "test_wiki_input-5-1.json").write_text(json.dumps(hidden))
    done(["submit", "test_wiki_input-5-1.json", "--run", "runs/fewrel-cnn-protonet"])
    assert len(json.loads((tmp_path / "pred-5-1.json").read_text())) == 3
    [forms, _] = tables(section("docs/relations.md", "Pre-training on a corpus"))
    line, triple = (row[1].split("`")[1] for row in forms[1:])
    lines = [line.replace('"Babbage"', f'"Babbage", "{n}"') for n in range(30)]
    (tmp_path / "sentences.jsonl").write_text("\n".join(lines))
    (tmp_path / "triples.tsv").write_text(triple)
    [distant] = commands(read("docs/relations.md"), "hyperproto data distant")
    assert "instances kept, of 1 relations" in done(distant)
    done(["data", "check", "fewrel:corpus.json,without=fewrel"])


def test_a_user_of_the_few_nerd_toolkit_moves_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HYPERPROTO_DATA", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "250")
    for seed, split in enumerate(("train", "dev", "test")):
        sentences = random_sentences(250, 6, seed=seed, most_runs=3)
        write_conll(tmp_path / "fewnerd" / "inter" / f"{split}.txt", sentences)

    def only(start: str) -> list[str]:
        [arguments] = commands(read("docs/entities.md"), start)
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
    assert json.loads(done(only("hyperproto tag --encoder")))["words"][0]["text"] == "Anna"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_path_that_a_document_names_exists(document: str) -> None:
    text = read(document)
    for path in re.findall(
        r"`((?:src|tests|docs|regions|methods|decisions|problems|training|encoders|evaluation|estimators|comparison"
        r"|paper|research|results|benchmarks)/[\w./-]*)`",
        text,
    ):
        places = (ROOT / path, ROOT / "src" / "hyperproto" / path)
        assert any(place.exists() for place in places), path
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert link.startswith("https://") or (ROOT / document).parent.joinpath(link).exists(), link
