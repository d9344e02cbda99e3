import json
import os
from pathlib import Path
from typing import Any

import pytest

from hyperproto.data import Pool, open_pool
from hyperproto.episodes import GreedySampler, episodes_hash, load_fewnerd_episodes, save_fewnerd_episodes
from hyperproto.errors import EpisodeError
from tests.helpers.tagged import random_sentences, real

ROW: dict[str, Any] = {
    "support": {"word": [["Anna", "sang"], ["Rome"]], "label": [["person", "O"], ["city"]]},
    "query": {"word": [["Bern", "Rome", "Ann"]], "label": [["city", "city", "person"]]},
    "types": ["person", "city"],
}


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_line_becomes_an_episode(tmp_path: Path) -> None:
    again = {
        **ROW,
        "query": {"word": [["Rome"], ["Ann"]], "label": [["city"], ["person"]]},
        "types": ["city", "person"],
    }
    pool, [first, second] = load_fewnerd_episodes(write(tmp_path / "dev_2_1.jsonl", ROW, again))
    assert pool.items == [["Anna", "sang"], ["Rome"], ["Bern", "Rome", "Ann"], ["Ann"]]  # each sentence once
    assert pool.class_names == ("city", "person")
    assert pool.split == "dev"
    assert first.classes.tolist() == [2, 1, 0]  # O comes first
    assert first.support.tolist() == [0, 1]
    assert first.support_y.tolist() == [1, 0, 2]
    assert second.query.tolist() == [1, 3]
    assert second.query_y is not None
    assert second.query_y.tolist() == [1, 2]


def texts(pool: Pool, path: Path, name: str, episodes: Any) -> list[Any]:
    save_fewnerd_episodes(path / name, pool, episodes)
    return [json.loads(line) for line in (path / name).read_text().splitlines()]


def test_round_trip(tmp_path: Path) -> None:
    pool = random_sentences(200, 6)
    episodes = GreedySampler(pool, way=4, shot=2, query=1, seed=3).draw(12)
    rows = texts(pool, tmp_path, "test_4_2.jsonl", episodes)
    assert save_fewnerd_episodes(tmp_path / "test_4_2.jsonl", pool, episodes) == episodes_hash(pool, episodes)
    loaded, again = load_fewnerd_episodes(tmp_path / "test_4_2.jsonl")
    assert texts(loaded, tmp_path, "again.jsonl", again) == rows
    assert [e.support_y.tolist() for e in again] == [e.support_y.tolist() for e in episodes]
    assert [pool.class_names[k] for k in episodes[5].classes[1:]] == [
        loaded.class_names[k] for k in again[5].classes[1:]
    ]
    assert rows[5]["support"]["word"][0] == pool.items[episodes[5].support[0]]


def changed(**changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = json.loads(json.dumps(ROW))
    for path, value in changes.items():
        part, _, key = path.partition("_")
        if key:
            row[part][key] = value
        else:
            row[part] = value
    return row


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (changed(support_label=[["O", "O"], ["city"]]), "0 entities of 'person' in the support; there must be 1 to 2"),
        (
            changed(support_word=[["a"] * 5, ["Rome"]], support_label=[["person", "O"] * 2 + ["person"], ["city"]]),
            "3 entities of 'person' in the support; there must be 1 to 2",
        ),
        (changed(query_label=[["city", "city", "O"]]), "0 entities of 'person' in the query; there must be at least 1"),
        (changed(query_label=[["city", "food", "person"]]), "label 'food' in the query is none of the episode's types"),
        (changed(types=["person", "person"]), "types .* the file's name asks for 2 different ones, none of them O"),
        (changed(types=["person"]), "the file's name asks for 2 different ones"),
        (changed(types=["person", "O"]), "none of them O"),
        (changed(support_label=[["person"], ["city"]]), "a sentence of the support has 2 words, 1 labels"),
        (changed(support_label=[["person", "O"]]), "not an episode of Few-NERD .*; a line holds support and query"),
        ({"support": ROW["support"], "types": []}, "not an episode of Few-NERD"),
        ([1, 2], "not an episode of Few-NERD"),
    ],
)
def test_what_breaks_the_rules_is_named_by_line(tmp_path: Path, row: Any, message: str) -> None:
    with pytest.raises(EpisodeError, match=rf"dev_2_1\.jsonl, line 2: .*{message}"):
        load_fewnerd_episodes(write(tmp_path / "dev_2_1.jsonl", ROW, row))


def test_other_names_and_files(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.jsonl", ROW)
    with pytest.raises(EpisodeError, match=r"the name gives no number of shots; call it test_5_1\.jsonl, or give"):
        load_fewnerd_episodes(path)
    assert len(load_fewnerd_episodes(path, shot=1)[1]) == 1
    with pytest.raises(EpisodeError, match=r"line 1: 1 entities of 'person' in the support; there must be 3 to 6"):
        load_fewnerd_episodes(path, shot=3)
    with pytest.raises(EpisodeError, match="No such file or directory; check the path"):
        load_fewnerd_episodes(tmp_path / "test_2_1.jsonl")
    with pytest.raises(EpisodeError, match="no episodes in it"):
        load_fewnerd_episodes(write(tmp_path / "test_2_1.jsonl"))
    (tmp_path / "test_2_1.jsonl").write_text("{")
    with pytest.raises(EpisodeError, match=r"line 1: not JSON .*; write one episode on each line"):
        load_fewnerd_episodes(tmp_path / "test_2_1.jsonl")


@pytest.mark.data
@real
def test_few_nerd_there_and_back(tmp_path: Path) -> None:
    pool = open_pool("fewnerd", "test")
    episodes = GreedySampler(pool, way=5, shot=5, query=5).draw(30)
    save_fewnerd_episodes(tmp_path / "test_5_5.jsonl", pool, episodes)
    loaded, again = load_fewnerd_episodes(tmp_path / "test_5_5.jsonl")
    assert len(loaded) <= len({i for e in episodes for i in [*e.support.tolist(), *e.query.tolist()]})
    assert all((a.support_y == b.support_y).all() for a, b in zip(episodes, again, strict=True))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff", r"dev_2_1\.jsonl, line 1: not UTF-8 text"),
        (b"[" * 100_000, "line 1: lists or objects nested more than 100 deep"),
        (b"3", "line 1: not an episode of Few-NERD"),
        (b'{"types": "ab", "support": 1, "query": 2}', "'ab' is not a list of strings"),
        (b'{"types": [[1], {}], "support": 1, "query": 2}', r"\[\[1\], \{\}\] is not a list of strings"),
        (b'{"types": ["a"], "support": {"word": ["ab"], "label": [["a", "a"]]}}', "'ab' is not a list of strings"),
        (b'{"types": ["a"], "support": {"word": [["\\ud800"]], "label": [["a"]]}}', "holds half a character"),
    ],
)
def test_files_of_another_shape(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "dev_2_1.jsonl").write_bytes(content)
    with pytest.raises(EpisodeError, match=message):
        load_fewnerd_episodes(tmp_path / "dev_2_1.jsonl")


def test_a_fifo_is_no_file_of_episodes(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "dev_2_1.jsonl")
    with pytest.raises(EpisodeError, match="a FIFO, not a file"):
        load_fewnerd_episodes(tmp_path / "dev_2_1.jsonl")


@pytest.mark.parametrize("setting", ["way", "shot", "query"])
@pytest.mark.parametrize("value", [2**31, 2**63, 2**64])
def test_episodes_beyond_counting_are_refused(setting: str, value: int) -> None:
    pool = random_sentences(40, 3)
    settings: dict[str, Any] = {"way": 2, "shot": 1, "query": 1, setting: value}
    with pytest.raises(EpisodeError, match=r"all of them below 2\^31|lower the way"):
        GreedySampler(pool, **settings)
