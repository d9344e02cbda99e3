"""The peak memory of an evaluation over a large matrix of vectors, against the matrix itself."""

import json
import resource
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import Measurement
from hyperproto.data import open_pool
from hyperproto.episodes import EpisodeSampler

WAY, SHOT, QUERY = 5, 5, 15
DIMENSION = 768
TARGET = 1.5


def memory(quick: bool) -> list[Measurement]:
    """Evaluate HyperProto on 500 MB of vectors, each time in a fresh process: a whole file, or one split of it."""
    n_rows, n_episodes = (2_000, 20) if quick else (170_000, 2_000)
    with TemporaryDirectory() as folder:
        tiny, whole, parts = (Path(folder) / name for name in ("tiny.npz", "whole.npz", "parts.npz"))
        _write(tiny, 500)
        _write(whole, n_rows)
        _write(parts, n_rows, train_share=0.2)
        return [
            _measured(tiny, whole, "all", "none", n_episodes),
            _measured(tiny, whole, "all", "unit", n_episodes),
            _measured(tiny, parts, "test", "none", n_episodes),
        ]


def _write(path: Path, n_rows: int, train_share: float = 0.0) -> None:
    x = np.random.default_rng(0).standard_normal((n_rows, DIMENSION), np.float32)
    split = np.where(np.random.default_rng(1).random(n_rows) < train_share, "train", "test")
    arrays: dict[str, NDArray[Any]] = {"x": x, "y": np.arange(n_rows) % 20}
    if train_share:
        arrays["split"] = split
    np.savez(path, allow_pickle=False, **arrays)


def _measured(tiny: Path, matrix: Path, split: str, transform: str, n_episodes: int) -> Measurement:
    """Run this module in a process of its own and read its output."""
    command = [sys.executable, "-m", __spec__.name, str(tiny), str(matrix), split, transform, str(n_episodes)]
    output = subprocess.run(command, cwd=Path(__file__).parents[1], check=True, stdout=subprocess.PIPE).stdout
    detail = json.loads(output)
    ratio = (detail["peak_bytes"] - detail["peak_bytes_before"]) / detail["matrix_bytes"]
    return Measurement(
        name=f"memory, split {split}, transform {transform}",
        baseline="the matrix itself, in bytes",
        ours_seconds=detail.pop("seconds"),
        baseline_seconds=None,
        ratio=ratio,
        spread=(ratio, ratio),
        target=TARGET,
        comparison="<=",
        detail=detail,
    )


def evaluate(path: str, split: str, transform: str, n_episodes: int) -> int:
    """Evaluate as the command line does; return the bytes of the matrix of vectors."""
    from hyperproto.comparison.measure import evaluate_candidates, select
    from hyperproto.training.sources import encoder_source

    settings: dict[str, Any] = {"way": WAY, "shot": SHOT, "query": QUERY, "seed": 0}
    pool = open_pool(f"vectors:{path}", split)
    episodes = EpisodeSampler(pool, **settings).draw(n_episodes)
    candidates = select([encoder_source("identity", pool)], ["hyperproto"], ["bayes"], [transform], {})
    evaluate_candidates(candidates, pool, episodes, settings)
    return int(pool.items.nbytes)


def peak_bytes() -> int:
    """Return the peak resident memory of this process.

    Linux starts `ru_maxrss` of a new process at its parent's peak, which would hide all growth below that; the peak in
    /proc belongs to the program itself.
    """
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def main(tiny: str, matrix: str, split: str, transform: str, n_episodes: str) -> None:
    """Warm up on a tiny matrix, then measure a large one."""
    evaluate(tiny, "all", transform, 20)
    before, start = peak_bytes(), perf_counter()
    matrix_bytes = evaluate(matrix, split, transform, int(n_episodes))
    spent = perf_counter() - start
    measured = {"matrix_bytes": matrix_bytes, "peak_bytes": peak_bytes(), "peak_bytes_before": before, "seconds": spent}
    print(json.dumps(measured))


if __name__ == "__main__":
    main(*sys.argv[1:])
