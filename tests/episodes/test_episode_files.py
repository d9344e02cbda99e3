import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hyperproto.data import Pool
from hyperproto.episodes import EpisodeSampler, episodes_hash, load_episodes, save_episodes
from hyperproto.errors import EpisodeError


@pytest.fixture
def saved(tmp_path: Path, make_blobs: Callable[..., Pool]) -> tuple[Path, Pool]:
    pool = make_blobs()
    episodes = EpisodeSampler(pool, way=4, shot=2, query=3).draw(5)
    episodes[2] = replace(episodes[2], query_y=None)
    save_episodes(tmp_path / "list.jsonl", pool, episodes)
    return tmp_path / "list.jsonl", pool


def test_round_trip(saved: tuple[Path, Pool]) -> None:
    path, pool = saved
    episodes = load_episodes(path, pool)
    assert episodes[2].query_y is None
    assert episodes_hash(pool, episodes) == json.loads(path.read_text().splitlines()[0])["episode_hash"]
    assert np.array_equal(episodes[0].support, EpisodeSampler(pool, way=4, shot=2, query=3)[0].support)


def test_another_pool_is_refused(saved: tuple[Path, Pool], make_blobs: Callable[..., Pool]) -> None:
    with pytest.raises(EpisodeError, match=r"drawn from blobs \(all\), digest \w+, but the pool at hand is blobs"):
        load_episodes(saved[0], make_blobs(seed=1))


def change(path: Path, line: int, text: str | None) -> None:
    lines = path.read_text().splitlines()
    lines[line : line + 1] = [] if text is None else [text]
    path.write_text("\n".join(lines) + "\n")


def test_a_changed_or_cut_file_is_refused(saved: tuple[Path, Pool]) -> None:
    path, pool = saved
    whole = path.read_text()
    change(path, 5, None)
    with pytest.raises(EpisodeError, match="but its first line says"):
        load_episodes(path, pool)
    path.write_text(whole)
    change(path, 3, "{}")
    with pytest.raises(EpisodeError, match=r"list\.jsonl, line 4: not an episode"):
        load_episodes(path, pool)
    path.write_text(whole)
    change(path, 0, "hello")
    with pytest.raises(
        EpisodeError, match=r"line 1: not JSON \(.*\); an episode file begins with hyperproto-episodes/1"
    ):
        load_episodes(path, pool)
    change(path, 0, '{"format": "hyperproto-episodes/9"}')
    with pytest.raises(EpisodeError, match="format 'hyperproto-episodes/9'; this version reads"):
        load_episodes(path, pool)
    with pytest.raises(EpisodeError, match="no such file"):
        load_episodes(path.with_name("none"), pool)


@pytest.mark.parametrize(
    ("line", "content", "message"),
    [
        (0, "[" * 100_000, "line 1: lists or objects nested more than 100 deep"),
        (0, "[]", "line 1: not the head of an episode file"),
        (0, '{"format": "hyperproto-episodes/1"}', "line 1: not the head of an episode file"),
        (1, '{"classes": [99999999999999999999]}', "line 2: not an episode"),
        (1, "3", "line 2: not an episode"),
    ],
)
def test_a_file_of_another_shape_is_refused(
    tmp_path: Path, make_blobs: Callable[..., Pool], line: int, content: str, message: str
) -> None:
    pool = make_blobs()
    path = tmp_path / "list.jsonl"
    save_episodes(path, pool, EpisodeSampler(pool, way=3, shot=1, query=2).draw(2))
    change(path, line, content)
    with pytest.raises(EpisodeError, match=message):
        load_episodes(path, pool)
