"""A report on a table of entities: F1 as the toolkit counts it, precision and recall beside it."""

from pathlib import Path

import pytest

from hyperproto.data import open_pool
from hyperproto.episodes import GreedySampler, episodes_hash
from hyperproto.errors import ConfigError
from hyperproto.evaluation import EncodedPool
from hyperproto.paper.report import make_report
from hyperproto.paper.table import caption, lines, markdown
from hyperproto.problems import f1_interval
from hyperproto.recipes import read_table
from hyperproto.training import load_recipe, train
from tests.helpers.predicting import tags_by
from tests.helpers.tagged import random_sentences
from tests.helpers.tiny_words import register, write_conll

TABLE = """
encoder = {{ name = "tiny-words" }}
episodes = {{ way = 3, shot = 2, query = 2 }}
optim.encoder = {{ name = "adam", lr = 0.01 }}
training = {{ steps = 2, validate_every = 2, checkpoint_every = 2 }}
validation = {{ way = 3, shot = 2, query = 2, episodes = 4 }}
[data]
spec = "conll:{data}"

[table]
title = "Entities"
metric = "f1"
episodes = 6
query = 2
columns = [
  {{ name = "2~4-shot", data = "conll:{data}", way = 3, shot = 2 }},
  {{ name = "1~2-shot", data = "conll:{data}", way = 3, shot = 1, query = 1 }},
]
[[published]]
method = "ProtoNet"
backbone = "Tiny"
numbers = {{ "2~4-shot" = [40.0, 1.5] }}
precision = {{ "2~4-shot" = [30.0, 1.0] }}
recall = {{ "2~4-shot" = [60.0, 2.0] }}
"""
ROWS = "".join(
    f"""
[[row]]
name = "row{n}"
method = {{{{ name = "protonet" }}}}
episodes = {{{{ query = {n} }}}}
paper = {{{{ table = "mine", method = "ProtoNet", backbone = "Tiny" }}}}
"""
    for n in range(1, 7)
)


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    register()
    monkeypatch.setenv("HYPERPROTO_CACHE", str(tmp_path / "cache"))
    for seed, split in enumerate(("train", "val", "test")):
        write_conll(tmp_path / "data" / f"{split}.txt", random_sentences(150, 5, seed=seed, most_runs=3))
    path = tmp_path / "mine.toml"
    path.write_text((TABLE + ROWS).format(data=tmp_path / "data"))
    return str(path)


def nothing(done: int, total: int, note: str = "") -> None:
    pass


def test_runs_are_measured_as_the_toolkit_counts(table: str, tmp_path: Path) -> None:
    run = train(load_recipe(f"{table}:row2"), tmp_path / "runs" / "one")
    report = make_report(table, tmp_path / "runs", None, nothing)
    [group] = report.groups
    methods = [label.rpartition(": ")[2].split()[0] for label in group.variants]
    assert methods == ["protonet", "hyperproto", "cosine", "nnshot", "structshot"]
    learner, _ = run.load()
    pool = open_pool(f"conll:{tmp_path / 'data'}", "test")
    encoded = EncodedPool.encode(learner.features.encoder, pool)
    for column, shot, query in (("2~4-shot", 2, 2), ("1~2-shot", 1, 1)):
        episodes = GreedySampler(pool, way=3, shot=shot, query=query).draw(6)
        assert report.hashes[column] == episodes_hash(pool, episodes)
        counts = tags_by(learner.method, encoded, episodes).counts("toolkit")
        value = group.own.value(column)
        assert value is not None
        assert value[:2] == pytest.approx(f1_interval(counts))
        assert group.own.precision_recall(column) == pytest.approx((counts.precision, counts.recall))
    content = report.to_json()
    [row] = content["rows"]
    assert content["metric"] == "f1"
    assert row["published"]["precision"] == {"2~4-shot": [30.0, 1.0]}
    assert "f1" in row["ours"][0]["results"][0]["columns"]["2~4-shot"]
    text = markdown(report)
    percents = [f"{100 * part:.2f}" for part in group.own.precision_recall("2~4-shot") or ()]
    assert f"({' / '.join(percents)})" in text
    assert "30.00 ± 1.00 / 60.00 ± 2.00" in text
    assert any("3-way, 1~2 shots, 1~2 queries a type, 6 episodes, seed 0" in words for words in caption(report))


def test_many_recipes_to_run_are_listed_below(table: str, tmp_path: Path) -> None:
    report = make_report(table, None, None, nothing)
    below = "ProtoNet, Tiny, to run: " + ", ".join(f"{table}:row{n}" for n in range(1, 7))
    assert below in caption(report)
    assert not any("to run" in line.label for line in lines(report))
    few = Path(table).read_text().partition('[[row]]\nname = "row4"')[0]
    Path(table).write_text(few)
    report = make_report(table, None, None, nothing)
    assert [line.label for line in lines(report) if "to run" in line.label] == [
        f"to run: {table}:row{n}" for n in range(1, 4)
    ]
    assert not any("to run" in words for words in caption(report))


def test_columns_of_precision_must_exist(table: str) -> None:
    Path(table).write_text(Path(table).read_text().replace('precision = { "2~4-shot"', 'precision = { "2~3-shot"'))
    with pytest.raises(ConfigError, match=r"published ProtoNet, Tiny: there is no column '2~3-shot'; did you mean"):
        read_table(table)
