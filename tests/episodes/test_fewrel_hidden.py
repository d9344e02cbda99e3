"""FewRel's hidden test sets: tasks without answers in, predictions out."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hyperproto.data import OUTSIDE, find_dataset
from hyperproto.episodes import Pool, episodes_hash, load_episodes, save_episodes
from hyperproto.episodes.episode_files import predictions_name, read_fewrel_test, write_predictions
from hyperproto.errors import DataError, EpisodeError


def instance(text: str, head: int = 0, tail: int = 1) -> dict[str, Any]:
    return {"tokens": text.split(), "h": ["head", "Q1", [[head]]], "t": ["tail", "Q2", [[tail]]]}


def task(number: int, way: int = 3, shot: int = 2) -> dict[str, Any]:
    support = [[instance(f"Class {n} example {number + k}") for k in range(shot)] for n in range(way)]
    return {"meta_train": support, "meta_test": instance(f"Class 0 example {number}"), "relation": ["P1", "P2", "P3"]}


def write(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content))
    return path


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    return write(tmp_path / "test_wiki_input-3-2.json", [task(number) for number in range(4)])


def words(pool: Pool, items: Any) -> list[str]:
    return [" ".join(pool.items[item]["tokens"]) for item in items]


def test_every_task_is_an_episode_without_answers(tasks: Path) -> None:
    pool, episodes = read_fewrel_test(tasks)
    assert len(episodes) == 4
    for number, episode in enumerate(episodes):
        assert words(pool, episode.support) == [f"Class {n} example {number + k}" for n in range(3) for k in range(2)]
        assert words(pool, episode.query) == [f"Class 0 example {number}"]
        assert episode.support_y.tolist() == [0, 0, 1, 1, 2, 2]
        assert episode.classes.tolist() == [0, 1, 2]
        assert episode.query_y is None
        assert episode.support.dtype == episode.query.dtype == np.int64


def test_an_instance_is_kept_once(tasks: Path) -> None:
    pool, _ = read_fewrel_test(str(tasks))
    texts = words(pool, range(len(pool)))
    assert len(texts) == len(set(texts)) == 15  # 4 tasks hold 28
    assert pool.class_names == ("class 1", "class 2", "class 3")
    assert (pool.labels == OUTSIDE).all()
    assert pool.counts.tolist() == [0, 0, 0]
    assert pool.items[0] == {"tokens": ["Class", "0", "example", "0"], "head": [0], "tail": [1]}


def test_another_head_or_tail_is_another_instance(tmp_path: Path) -> None:
    places = [([0], [1]), ([2], [1]), ([0], [2]), ([1], [0]), ([0, 1], [2]), ([0], [1, 2])]
    all_of_them = [{"tokens": ["a", "b", "c"], "h": ["", "", [head]], "t": ["", "", [tail]]} for head, tail in places]
    content = [{"meta_train": [[item] for item in all_of_them], "meta_test": all_of_them[2]}]
    pool, [episode] = read_fewrel_test(write(tmp_path / "t.json", content))
    assert [(item["head"], item["tail"]) for item in pool.items] == places
    assert episode.query.tolist() == episode.support[2:3].tolist()


def test_uncased(tasks: Path) -> None:
    assert words(read_fewrel_test(tasks, uncased=True)[0], [0]) == ["class 0 example 0"]


def test_such_episodes_are_like_others(tasks: Path, tmp_path: Path) -> None:
    pool, episodes = read_fewrel_test(tasks)
    saved = save_episodes(tmp_path / "episodes.jsonl", pool, episodes)
    again = load_episodes(tmp_path / "episodes.jsonl", read_fewrel_test(tasks)[0])
    assert saved == episodes_hash(pool, again)
    assert again[0].query_y is None
    dataset, argument = find_dataset(pool.name)
    assert dataset.splits(argument) == ("all",)  # whoever looks for a training split there finds none


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ("task", " has no meta_train or no meta_test"),
        ({"meta_train": []}, " has no meta_train or no meta_test"),
        ({**task(0), "meta_train": []}, ", meta_train: not a list of classes, each a list of at least one instance"),
        ({**task(0), "meta_train": [[]]}, ", meta_train: not a list of classes, each a list of at least one instance"),
        ({**task(0), "meta_train": {"P1": []}}, ", meta_train: not a list of classes, each a list of"),
        (
            {**task(0), "meta_train": [[instance("a b")], [instance("a b")] * 2, [instance("a b")]]},
            ", meta_train: classes of 1, 2, 1 instances; give all as many",
        ),
        ({**task(0), "meta_test": 3}, ", meta_test: 3 is no instance"),
        ({**task(0), "meta_test": {"h": []}}, ", meta_test: it has no tokens"),
        (
            {**task(0), "meta_test": [instance("a b")]},
            ", meta_test: [{'head': [0], 'tail': [1], 'tokens': ['a', 'b']}] is",
        ),
        (
            {**task(0), "meta_train": [[instance("a b")], [instance("a b", 2)]]},
            ", meta_train, class 1, index 0: h is at [2]; positions are at least one, rising, from 0 to 1",
        ),
    ],
)
def test_malformed_tasks_are_named(tmp_path: Path, wrong: Any, place: str) -> None:
    path = write(tmp_path / "t.json", [task(0), task(1), wrong])
    with pytest.raises(DataError) as caught:
        read_fewrel_test(path)
    head, *problems = str(caught.value).splitlines()
    assert head.startswith(f"{path}: 1 problem(s); fix or remove what is named here")
    assert len(problems) == 1
    assert problems[0].startswith(f"- task 2{place}")


@pytest.mark.parametrize("content", [[], {}, {"P6": [instance("a b")]}, 3])
def test_other_files(tmp_path: Path, content: Any) -> None:
    path = write(tmp_path / "t.json", content)
    with pytest.raises(DataError, match=r"t.json: not a list of tasks; name a file such as test_wiki_input-5-1.json"):
        read_fewrel_test(path)


@pytest.mark.parametrize(("way", "shot"), [(4, 2), (3, 1)])
def test_all_tasks_of_a_file_are_alike(tmp_path: Path, way: int, shot: int) -> None:
    path = write(tmp_path / "t.json", [task(0), task(1), task(2, way, shot), task(3)])
    words = f"task 2 is {way}-way {shot}-shot, but task 0 is 3-way 2-shot; put tasks of different sizes into different"
    with pytest.raises(DataError, match=words):
        read_fewrel_test(path)


def test_predictions_are_one_list_of_integers(tasks: Path, tmp_path: Path) -> None:
    _, episodes = read_fewrel_test(tasks)
    assert predictions_name(episodes) == "pred-3-2.json"
    path = tmp_path / "new" / predictions_name(episodes)
    write_predictions(path, np.array([2, 0, 1, 2]))
    assert path.read_text() == "[2, 0, 1, 2]"
    write_predictions(str(path), [0, 1])
    assert json.loads(path.read_text()) == [0, 1]
    assert [file.name for file in path.parent.iterdir()] == ["pred-3-2.json"]


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (np.zeros((2, 1), int), r"shape \(2, 1\) and type int64; give one integer a task"),
        ([0.0, 1.0], "type float64; give one integer a task"),
        ([True, False], "type bool; give one"),
        (["0"], "type <U1; give one"),
    ],
)
def test_what_is_no_prediction_replaces_none(tmp_path: Path, labels: Any, words: str) -> None:
    path = write(tmp_path / "pred-5-1.json", [1])
    with pytest.raises(EpisodeError, match=rf"{path}: predictions of .*{words}"):
        write_predictions(path, labels)
    assert path.read_text() == "[1]"


def test_no_episodes_have_no_name() -> None:
    with pytest.raises(EpisodeError, match="no episodes, so no predictions to name; read a file of tasks first"):
        predictions_name([])
