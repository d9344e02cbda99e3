"""Accuracy by `prior_ratio`: measured on a run's validation classes, tuned on them, or the default 4.

    python -m research.prior_ratio_choice RUN --split test --json FILE

The validation classes of the run give the measured ratios (without and with whitening) and the tuned one (the best of
GRID by the mean accuracy of five kinds of episodes). Then all are scored on another split.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from hyperproto.comparison.measure import evaluate_candidates, select
from hyperproto.data import Pool, open_pool
from hyperproto.encoders import FeatureTransform
from hyperproto.evaluation import EncodedPool, Result
from hyperproto.problems import make_sampler, mean_interval, paired_difference
from hyperproto.regions import PRIOR_RATIO, ClassStatistics
from hyperproto.regions.bayes import left_out_scatter, measured_ratio, moment_ratio
from hyperproto.regions.statistics import ExampleStatistics
from hyperproto.regions.whitening import within_class_whitening
from hyperproto.reports.tables import write_results
from hyperproto.training import Run
from hyperproto.training.sources import run_source
from research import command_of

GRID = (0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
UNEQUAL = [1, 1, 2, 5, 20]
CHOICE_SEED, SEED = 5, 0  # of the episodes that choose, and of those that are reported


def columns(large: int) -> list[tuple[int, Any]]:
    """Return way and shots of each kind of episode; `large` is the larger way."""
    return [(5, 1), (5, 5), (large, 1), (large, 5), (5, UNEQUAL)]


def scored(
    run: str, pool: Pool, transform: str, ratios: Sequence[float], large: int, episodes: int, seed: int
) -> list[tuple[dict[str, Any], list[Result]]]:
    """Score every ratio on the same episodes, for each kind of episode."""
    source = run_source(run, pool)
    candidates = [select([source], ["hyperproto"], ["bayes"], [transform], {"prior_ratio": k})[0] for k in ratios]
    encoded = {source.encoder: EncodedPool.encode(source.encoder, pool, cached=True)}
    found = []
    for way, shot in columns(large):
        shape: dict[str, Any] = {"way": way, "shot": shot, "query": 5, "seed": seed}
        drawn = make_sampler(pool, **shape).draw(episodes)
        found.append((shape, evaluate_candidates(candidates, pool, drawn, shape, encoded)))
    return found


def measured(run: str, pool: Pool, transform: str) -> dict[str, float]:
    """Measure the ratio of a pool's classes, without whitening and whitened by all examples."""
    encoder = run_source(run, pool).encoder
    x = EncodedPool.encode(encoder, pool, cached=True).units.x.double()
    x = FeatureTransform(transform, encoder.feature_shape).eval()(x)
    stats = ClassStatistics.of(x - x.mean(0), torch.from_numpy(pool.labels), pool.n_classes)
    ratios = {"measured": measured_ratio(stats), "measured, whitened": whitened_ratio(stats)}
    return {name: round(float(ratio), 4) for name, ratio in ratios.items()}


def whitened_ratio(stats: ExampleStatistics) -> torch.Tensor:
    """Estimate within / between variance as `measured_ratio`, after whitening, the scatter by leave-one-out."""
    dof = (stats.count - 1).clamp(min=0).sum(-1).clamp(min=1)
    whiten, gain = within_class_whitening(stats.weighted_residual, stats.squares.sum(-1) / dof, dof, stats.scattered)
    several = torch.where(stats.count > 1, stats.count, 0.0).sum(-1).clamp(min=1)
    scatter = stats.sum(left_out_scatter(stats, whiten, gain)) / several
    filled, start = (stats.count > 0).sum(-1), torch.full_like(scatter, PRIOR_RATIO)
    found: torch.Tensor = moment_ratio(whiten(stats.mean), stats.count, scatter, filled, start, least=1e-6, most=1e6)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, tune, report, and write JSON if asked to."""
    parser = argparse.ArgumentParser(prog="python -m research.prior_ratio_choice", description=__doc__)
    parser.add_argument("run")
    parser.add_argument("--data", help="default: what the run was trained on")
    parser.add_argument("--split", required=True, help="what is reported")
    parser.add_argument("--transform", default="none")
    parser.add_argument("--large", type=int, default=10, help="the larger way")
    parser.add_argument("--episodes", type=int, default=2000)
    parser.add_argument("--choice-episodes", type=int, default=600)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    recipe = Run(options.run).read_config()["recipe"]
    chosen_on = open_pool(recipe["data"]["spec"], recipe["validation"]["split"])
    pool = open_pool(options.data or recipe["data"]["spec"], options.split)

    found = measured(options.run, chosen_on, options.transform)
    tried = [*found.values(), *GRID]  # the measured ones only beside the grid: they are not tuned
    choice = scored(
        options.run, chosen_on, options.transform, tried, options.large, options.choice_episodes, CHOICE_SEED
    )
    means = [sum(results[n].values.mean() for _, results in choice) / len(choice) for n in range(len(tried))]
    on_grid = means[len(found) :]
    ratios = {**found, "tuned": GRID[on_grid.index(max(on_grid))], "default": PRIOR_RATIO}
    rows = []
    reported = scored(
        options.run, pool, options.transform, list(ratios.values()), options.large, options.episodes, SEED
    )
    for shape, results in reported:
        for (name, ratio), result in zip(ratios.items(), results, strict=True):
            mean, ci95 = mean_interval(result.values)
            difference, half = paired_difference(result.values, results[-1].values)
            row = {"prior_ratio": name, "value": ratio, **shape, "accuracy": round(mean, 5), "ci95": round(ci95, 5)}
            row |= {"over_default": round(difference, 5), "over_default_ci95": round(half, 5)}
            rows.append({**row, "episode_hash": result.settings["episode_hash"]})
            words = f"{name:20}{ratio:8.3f}  {shape['way']}-way {shape['shot']}"
            sys.stdout.write(f"{words}: {100 * mean:.2f} ({100 * difference:+.2f})\n")
    if options.json:
        command = command_of("prior_ratio_choice", arguments)
        facts = {
            "data": pool.name,
            "split": pool.split,
            "chosen_on": str(chosen_on),
            "transform": options.transform,
            "episodes": options.episodes,
            "validation_accuracy": {str(k): round(float(m), 5) for k, m in zip([*found, *GRID], means, strict=True)},
        }
        write_results(options.json, {"command": command, **facts, "results": rows})


if __name__ == "__main__":
    main()
