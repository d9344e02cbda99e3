"""Scores of a leaderboard's runs on the same episodes, cached on disk."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from hyperproto.comparison.measure import select
from hyperproto.data import Pool, open_pool
from hyperproto.episodes import Episode, episodes_hash
from hyperproto.evaluation import EncodedPool, measure_episodes
from hyperproto.files import atomic_write, read_json
from hyperproto.methods import Method
from hyperproto.problems import make_sampler, mean_interval, paired_difference
from hyperproto.problems.base import or_none
from hyperproto.recipes import Recipe, parse
from hyperproto.training import Run
from hyperproto.training.sources import Candidate, run_source
from research.equal_time import TIMING, is_finished

Shot = int | list[int]
Column = tuple[str, int, Shot]  # split, way, shots
Shapes = Sequence[tuple[int, Shot]]  # way, shots
UNEQUAL = [1, 1, 2, 5, 20]
UNEQUAL_OF_TWENTY = [1, 1, 2, 5, 10]  # for classes of twenty items
QUERY, SEED = 5, 0
BASE = "protonet"  # what rows are compared with
BASELINES = ("cosine", "simpleshot", "nearest", "logistic")  # scored on ProtoNet's encoder, too
FITS = ("paper", "unbiased", "bayes")  # closed forms of a method that has them


def columns_of(splits: Sequence[str], shapes: Shapes) -> list[Column]:
    """Return a column for every shape in every split."""
    return [(split, way, shot) for split in splits for way, shot in shapes]


@dataclass(frozen=True)
class Entry:
    """A finished run of a leaderboard, by its folder `TRACK-ROW-seed-SEED`."""

    folder: Path
    track: str
    row: str
    seed: int

    @cached_property
    def digest(self) -> str:
        """Digest of the weights; scores of other weights are not reused."""
        return sha256(Run(self.folder).model.read_bytes()).hexdigest()[:16]

    @cached_property
    def recipe(self) -> Recipe:
        """Recipe of the run."""
        return _recipe_of(Run(self.folder))

    @cached_property
    def timing(self) -> dict[str, Any]:
        """Number of steps and seconds a step."""
        return {"steps": self.recipe.training.steps, **_timing(self.folder)}

    def facts(self) -> dict[str, Any]:
        """Return the cost of training, first stages included, and the other training data."""
        seconds, first = _seconds(self.timing), list(_first_stages(self.recipe))
        total = sum(stage.get("steps", 0) * _seconds(stage) for stage in (self.timing, *first))
        return {
            "steps": self.timing["steps"],
            "first_stage_steps": sum(stage.get("steps", 0) for stage in first),
            "ms_a_step": round(1000 * seconds, 2) if seconds else None,
            "cpu_minutes": round(total / 60, 2) if seconds else None,
            "rate": self.timing.get("rate", 1.0),
            "temperature": self.timing.get("temperature", 1.0),
            "chosen_on": self.timing.get("chosen_on"),
            "saw": saw(self.recipe),
        }


def _recipe_of(run: Run) -> Recipe:
    return parse(run.read_config()["recipe"], str(run.config))


def _first_stages(recipe: Recipe) -> Iterator[dict[str, Any]]:
    """Yield steps and seconds of the runs that a run started from, the latest first."""
    while recipe.stage_before is not None and Run(recipe.stage_before.recipe).config.exists():
        run = Run(recipe.stage_before.recipe)
        yield _timing(run.folder)
        recipe = _recipe_of(run)


def _timing(folder: Path) -> dict[str, Any]:
    path = folder / TIMING
    found: dict[str, Any] = read_json(path) if path.exists() else {}
    return found


def _seconds(timing: dict[str, Any]) -> float:
    """Return the CPU seconds of a step, from the training itself if recorded; 0 if unknown."""
    return float(timing.get("training_seconds_a_step") or timing.get("seconds_a_step") or 0.0)


def entries(runs: Path, tracks: Sequence[str]) -> list[Entry]:
    """Find the finished runs: ProtoNet's first, which others are compared with."""
    pattern = re.compile(rf"({'|'.join(tracks)})-(.+)-seed-(\d+)")
    found = []
    for folder in sorted(runs.glob("*-seed-*")):
        match = pattern.fullmatch(folder.name)
        if match and is_finished(Run(folder)):
            found.append(Entry(folder, match[1], match[2], int(match[3])))
    order = {track: number for number, track in enumerate(tracks)}
    return sorted(found, key=lambda entry: (order[entry.track], entry.row != BASE, entry.row, entry.seed))


def saw(recipe: Recipe) -> str:
    """Describe a run's data besides the labelled training classes: unlabelled texts, names, a first stage."""
    content = recipe.model_dump(mode="json")
    words = []
    for section in ("unlabelled", "names"):
        own = content.get(section)
        if own:
            said = ", ".join(f"{key} {own[key]}" for key in ("data", "split", "source", "encoder") if own.get(key))
            words.append(f"{section} ({said})")
    if recipe.stage_before is not None:
        words.append(f"a first stage ({Path(recipe.stage_before.recipe).name})")
    return "; ".join(words) or "nothing else"


def serves(method: Method, way: int, shot: Shot) -> bool:
    """Return whether a method's traits and training episodes allow episodes of this way and shot."""
    own_way = "any-way" in method.traits or method.way in (None, way)
    own_shot = "any-shot" in method.traits or method.shot in (None, shot)
    equal = not isinstance(shot, list) or len(set(shot)) == 1 or "unequal-shots" in method.traits
    return own_way and own_shot and equal


@dataclass(frozen=True)
class Scorer:
    """Scorer of runs on `episodes` of each column.

    `few` maps a row or method (`gnn`), perhaps in one column (`gnn@5-way 1-shot`), to a smaller number; 0 skips it.
    """

    data: str
    kept: Path  # where accuracies lie
    episodes: int
    few: Mapping[str, int]
    columns: Sequence[Column]

    def score(self, entry: Entry, note: Callable[[str], None]) -> list[dict[str, Any]]:
        """Return scores of every candidate of a run in every column that it supports, from the cache if possible."""
        rows: list[dict[str, Any]] = []
        for split in dict.fromkeys(column[0] for column in self.columns):
            rows += self._split(entry, split, note)
        return rows

    def _split(self, entry: Entry, split: str, note: Callable[[str], None]) -> Iterator[dict[str, Any]]:
        path = self.kept / entry.folder.name / f"{split}.json"
        kept = _kept(path, entry.digest)
        columns = [column for column in self.columns if column[0] == split]
        counts = {column_title(column): self._count(entry, column_title(column)) for column in columns}
        if kept.get("complete") != counts:
            pool = self._pool(split)
            drawn = {
                title: (column, self._drawn(column)[:count])
                for column, (title, count) in zip(columns, counts.items(), strict=True)
                if count
            }
            hashes = {title: episodes_hash(pool, episodes) for title, (_, episodes) in drawn.items()}
            encoded: list[tuple[EncodedPool, float]] = []
            own = list(candidates(entry, pool))
            for name, candidate in own:
                for title, (column, episodes) in drawn.items():
                    key = f"{name}, {title}"
                    if kept["scores"].get(key, {}).get("episode_hash") == hashes[title]:
                        continue
                    if not serves(candidate.method, *column[1:]):
                        continue
                    note(f"{entry.folder.name} {name}, {split} {title}")
                    found = _measured(candidate, pool, column, episodes, encoded)
                    kept["scores"][key] = {**found, "scored_by": name, "episode_hash": hashes[title]}
                    _keep(path, kept)
            names = {f"{name}, {title}" for name, _ in own for title in drawn}
            kept["scores"] = {key: row for key, row in kept["scores"].items() if key in names}
            kept["complete"] = counts
            kept["parameters"] = parameters(own[0][1])
            _keep(path, kept)
        for row in kept["scores"].values():
            who = {"track": entry.track, "row": entry.row, "seed": entry.seed, **kept["parameters"]}
            yield {**who, **entry.facts(), **row}

    def _count(self, entry: Entry, title: str) -> int:
        names = [entry.row, entry.recipe.method.name]
        asked = [f"{name}@{title}" for name in names] + names
        return next((self.few[name] for name in asked if name in self.few), self.episodes)

    def _pool(self, split: str) -> Pool:
        return _opened(self.data, split)

    def _drawn(self, column: Column) -> list[Episode]:
        split, way, shot = column
        return make_sampler(self._pool(split), way=way, shot=shot, query=QUERY, seed=SEED).draw(self.episodes)


_pools: dict[tuple[str, str], Pool] = {}


def _opened(data: str, split: str) -> Pool:
    if (data, split) not in _pools:
        _pools[data, split] = open_pool(data, split)
    return _pools[data, split]


def candidates(entry: Entry, pool: Pool) -> Iterator[tuple[str, Candidate]]:
    """Yield a run's own method in all its closed forms, and the baselines on ProtoNet's encoder.

    The prior_ratio measured on validation classes is not used, since some of them are reported.
    """
    source = replace(run_source(str(entry.folder), pool), prior_ratio={})
    assert source.method is not None  # a run has one
    assert source.method_name is not None
    fits = [fit for fit in FITS if fit in source.method.fits]
    for candidate in select([source], [source.method_name], fits, [], {}):
        yield candidate.method.fit if fits else source.method_name, candidate
    if source.method_name == BASE:
        for candidate in select([source], BASELINES, [], [], {}):
            yield candidate.method_name, candidate


def parameters(candidate: Candidate) -> dict[str, int]:
    """Return the numbers of trainable parameters of the encoder and of the method."""
    counts = {}
    for name, module in (("encoder_parameters", candidate.encoder), ("head_parameters", candidate.method)):
        counts[name] = sum(p.numel() for p in module.parameters() if p.requires_grad)
    return counts


def _measured(
    candidate: Candidate,
    pool: Pool,
    column: Column,
    episodes: Sequence[Episode],
    encoded: list[tuple[EncodedPool, float]],
) -> dict[str, Any]:
    """Return the accuracy of each episode and the CPU seconds of scoring; `encoded` caches the encoded pool."""
    split, way, shot = column
    reads_items = candidate.method.reads == "items"
    if not encoded and not reads_items:
        start = process_time()
        vectors = EncodedPool.encode(candidate.encoder, pool)
        encoded.append((vectors, process_time() - start))
    vectors, encoding = (EncodedPool.unread(candidate.encoder, pool), 0.0) if reads_items else encoded[0]
    measure_episodes(candidate.predictor, vectors, episodes[:1])  # to warm up: a graph, names, a center are read once
    start = process_time()
    values = measure_episodes(candidate.predictor, vectors, episodes, shots=shot).values
    seconds = process_time() - start
    return {
        "split": split,
        "way": way,
        "shot": shot,
        "episodes": len(values),
        "encoding_seconds": round(encoding, 3),  # of the whole pool, once
        "ms_an_episode": round(1000 * seconds / len(values), 4),
        "head_share": round(seconds / (seconds + encoding), 4),
        "values": [round(float(value), 6) for value in values],
    }


def _kept(path: Path, digest: str) -> dict[str, Any]:
    """Return the cached scores of these weights."""
    content: dict[str, Any] = read_json(path) if path.exists() else {}
    return content if content.get("weights") == digest else {"weights": digest, "scores": {}}


def _keep(path: Path, content: dict[str, Any]) -> None:
    with atomic_write(path) as file:
        file.write(json.dumps(content).encode())


def column_title(column: Column) -> str:
    """Name the episodes of a column."""
    _, way, shot = column
    shots = ",".join(map(str, shot)) if isinstance(shot, list) else shot
    return f"{way}-way {shots}-shot"


def board(scored: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each method, closed form and column: mean over seeds, and paired difference to ProtoNet."""
    groups: dict[tuple[str, ...], dict[int, dict[str, Any]]] = {}
    for row in scored:
        title = column_title((row["split"], row["way"], row["shot"]))
        key = row["track"], row["row"], row["scored_by"], row["split"], title
        groups.setdefault(key, {})[row["seed"]] = row
    found = []
    for (track, _, _, split, title), by_seed in groups.items():
        first = next(iter(by_seed.values()))
        values = np.stack([row["values"] for row in by_seed.values()])  # (seeds, episodes)
        mean, ci95 = mean_interval(values.mean(0))
        new = {key: value for key, value in first.items() if key not in ("values", "seed")}
        new |= {"column": f"{split} {title}", "accuracy": round(mean, 5), "ci95": _rounded(ci95)}
        new["seeds"] = {str(seed): round(float(np.mean(row["values"])), 5) for seed, row in by_seed.items()}
        base = groups.get((track, BASE, BASE, split, title), {})
        count = values.shape[1]
        if all(seed in base and len(base[seed]["values"]) >= count for seed in by_seed):
            same = np.stack([base[seed]["values"][:count] for seed in by_seed])
            difference, half = paired_difference(values.mean(0), same.mean(0))
            new |= {"difference": round(difference, 5), "difference_ci95": _rounded(half)}
        found.append(new)
    return found


def _rounded(ci95: float) -> float | None:
    known = or_none(ci95)
    return None if known is None else round(known, 5)
