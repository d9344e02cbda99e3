"""Lists of episodes on disk: JSON lines, a head line first, so that others can score the very same tasks."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hyperproto.data import Pool
from hyperproto.episodes.episode import Episode, episodes_hash
from hyperproto.errors import EpisodeError
from hyperproto.files import atomic_write, parse_json, read_utf8, split_lines

FORMAT = "hyperproto-episodes/1"
_HEAD = {"format", "data", "split", "pool_digest", "episode_hash"}
_PARTS = ("classes", "support", "support_y", "query", "query_y")


def save_episodes(path: str | Path, pool: Pool, episodes: Sequence[Episode]) -> str:
    """Write a list of episodes and return its hash."""
    head = {
        "format": FORMAT,
        "data": pool.name,
        "split": pool.split,
        "pool_digest": pool.digest,
        "episode_hash": episodes_hash(pool, episodes),
        "episodes": len(episodes),
    }
    with atomic_write(Path(path)) as file:
        file.write(json.dumps(head).encode() + b"\n")
        for episode in episodes:
            parts = {name: getattr(episode, name) for name in _PARTS}
            row = {name: None if part is None else part.tolist() for name, part in parts.items()}
            file.write(json.dumps(row, separators=(",", ":")).encode() + b"\n")
    return str(head["episode_hash"])


def load_episodes(path: str | Path, pool: Pool) -> list[Episode]:
    """Read a list of episodes; refuse one that was drawn from another pool or does not have its own hash."""
    path = Path(path)
    text = read_utf8(path, missing="check its name and folder", error=EpisodeError)
    head_line, *lines = split_lines(text) or [""]
    head = parse_json(head_line, f"{path}, line 1", damaged=f"an episode file begins with {FORMAT}", error=EpisodeError)
    if isinstance(head, dict) and head.get("format", FORMAT) != FORMAT:
        raise EpisodeError(f"{path}: format {head['format']!r}; this version reads {FORMAT!r}")
    if not isinstance(head, dict) or _HEAD - head.keys():
        raise EpisodeError(f"{path}, line 1: not the head of an episode file ({FORMAT})")
    if head["pool_digest"] != pool.digest:
        raise EpisodeError(
            f"{path}: drawn from {head['data']} ({head['split']}), digest {head['pool_digest']}, but the pool at hand "
            f"is {pool}, digest {pool.digest}; open the same data and split"
        )
    episodes = [_episode(path, number, line) for number, line in enumerate(lines, start=2)]
    found = episodes_hash(pool, episodes)
    if found != head["episode_hash"]:
        raise EpisodeError(f"{path}: hash {found}, but its head says {head['episode_hash']}; it was cut or changed")
    return episodes


def _episode(path: Path, number: int, line: str) -> Episode:
    where = f"{path}, line {number}"
    row = parse_json(line, where, damaged="the file was cut or changed", error=EpisodeError)
    try:
        parts: dict[str, Any] = {name: np.array(row[name], np.int64) for name in _PARTS if row[name] is not None}
        return Episode(**{"query_y": None, **parts})
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise EpisodeError(f"{where}: not an episode ({error})") from None
