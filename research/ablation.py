"""Ablation of HyperProto against ProtoNet: one change in training at a time, every encoder scored by every closed form.

    python -m research.ablation fewrel --seeds 0 1 2 --json results/relations/fewrel-cnn-ablation.json

trains the runs that are missing (each variant and seed has a folder below runs/; a killed run is resumed) and scores
all on the same episodes. `fewrel-held-out` scores on 16 held-out training relations; settings are chosen there.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from hyperproto.comparison.measure import evaluate_candidates, select
from hyperproto.data import open_pool
from hyperproto.encoders import Encoder
from hyperproto.evaluation import EncodedPool, Result
from hyperproto.files import atomic_write
from hyperproto.problems import make_sampler, mean_interval, paired_difference
from hyperproto.progress import progress_bar
from hyperproto.reports.tables import write_results
from hyperproto.training import load_recipe, train
from hyperproto.training.sources import Candidate, run_source
from research import command_of

STORED = ["method.centers=stored", "episodes.shot=0", "episodes.query=10"]  # a step reads as many items as the others
PLAIN = ["method.radius_distance=plain"]
BIAS = ["method.start_radius=zero"]
ZERO = [*BIAS, "optim.radius.lr=1e-9"]
TRAINED: dict[str, tuple[str, list[str]]] = {  # the row of the recipe, and what is changed
    "episode centres, radii 0 (ProtoNet)": ("protonet", []),
    "episode centres, learned radii": ("hyperproto", []),
    "episode centres, learned radii, plain start": ("hyperproto", PLAIN),
    "episode centres, a free bias from 0": ("hyperproto", BIAS),
    "stored centres, radii 0": ("hyperproto", [*STORED, *ZERO]),
    "stored centres, learned radii": ("hyperproto", STORED),
    "stored centres, learned radii, plain start": ("hyperproto", [*STORED, *PLAIN]),
}
TEMPERATURES = {"learned": [], "1": ["method.temperature=1.0", "method.learn_temperature=false"]}
ONLY_LEARNED = (2, 3)  # rows of TRAINED that are not trained at temperature 1
BASELINE = ("episode centres, radii 0 (ProtoNet)", "learned", "point")
ClosedForm = tuple[str, str, dict[str, Any]]  # how a row is called, its fit and its option
CLOSED_FORMS: list[ClosedForm] = [
    ("point", "point", {}),
    ("eq. 3, squared", "paper", {"radius_distance": "squared"}),
    ("eq. 3, plain", "paper", {"radius_distance": "plain"}),
    ("eq. 3, neither squared", "paper", {"radius_distance": "squared", "squared": False}),
    ("unbiased", "unbiased", {}),
    ("bayes", "bayes", {"prior_ratio": 4.0}),
]
UNEQUAL = [1, 1, 2, 5, 20]
Shot = int | list[int]


@dataclass(frozen=True)
class Study:
    """A recipe file, the data it trains on, and the columns that are scored: data, split, way, shots."""

    recipe: str
    columns: list[tuple[str, str, int, Shot]]
    query: int
    spec: str | None = None  # other training data than the recipe's


WIKI = [("fewrel", "val", way, shot) for way, shot in ((5, 1), (5, 5), (10, 1), (10, 5), (5, UNEQUAL))]
PUBMED = [("fewrel", "val_pubmed", *column[2:]) for column in WIKI]
HELD_OUT = "fewrel:,holdout=16"
SCRIPTS = [("glyphs", "test", way, shot) for way in (5, 20) for shot in (1, 5)]
STUDIES = {
    "fewrel": Study("fewrel-cnn", [*WIKI, *PUBMED], query=5),
    "fewrel-held-out": Study("fewrel-cnn", [(HELD_OUT, *column[1:]) for column in WIKI], query=5, spec=HELD_OUT),
    "glyphs": Study("glyphs", [*SCRIPTS, ("glyphs", "test", 5, [1, 1, 2, 5, 10])], query=15),
}
Key = tuple[str, str, str]  # trained how, with which temperature, scored how


def trained(
    name: str, variants: Sequence[int], temperatures: Sequence[str], seeds: Sequence[int]
) -> dict[tuple[str, str, int], str]:
    """Train what is missing; return the folder of every variant, temperature and seed."""
    folders = {}
    study = STUDIES[name]
    wanted = [
        (number, how, temperature, seed)
        for seed in seeds
        for number, how in enumerate(TRAINED)
        if number in variants
        for temperature in temperatures
        if temperature == "learned" or number not in ONLY_LEARNED
    ]
    for number, how, temperature, seed in wanted:
        row, changes = TRAINED[how]
        overrides = [*changes, *TEMPERATURES[temperature], f"training.seed={seed}"]
        overrides += [f"data.spec={study.spec}"] if study.spec else []
        folder = f"runs/ablation-{name}-{number}-temperature-{temperature}-seed-{seed}"
        train_shown(f"{study.recipe}:{row}", overrides, folder, f"{how}, temperature {temperature}, seed {seed}")
        folders[how, temperature, seed] = folder
    return folders


def train_shown(recipe: str, overrides: list[str], folder: str, title: str) -> None:
    """Train or resume a run under a progress bar."""
    with progress_bar(title) as show:
        train(load_recipe(recipe, overrides), folder, lambda report: show(report.step, report.steps))


def candidates(folder: str, pool: Any, forms: Sequence[ClosedForm]) -> Iterator[Candidate]:
    """Yield a run's encoder with every closed form."""
    source = run_source(folder, pool)
    for _, fit, options in forms:
        yield from select([source], ["hyperproto"], [fit], [], options)


def scored(
    study: Study,
    folders: dict[tuple[str, str, int], str],
    episodes: int,
    forms: Sequence[ClosedForm] = CLOSED_FORMS,
) -> Iterator[tuple[dict[str, Any], dict[Key, dict[int, Result]]]]:
    """Yield each column with the results of every training and closed form, by seed."""
    encoded: dict[tuple[str, str], dict[Encoder, EncodedPool]] = {}
    found: dict[tuple[str, str], dict[tuple[str, str, int], list[Candidate]]] = {}
    for data, split, way, shot in study.columns:
        pool = open_pool(data, split)
        if (data, split) not in found:
            found[data, split] = {key: list(candidates(folder, pool, forms)) for key, folder in folders.items()}
        shape: dict[str, Any] = {"way": way, "shot": shot, "query": study.query, "seed": 0}
        drawn = make_sampler(pool, **shape).draw(episodes)
        results: dict[Key, dict[int, Result]] = {}
        vectors = encoded.setdefault((data, split), {})
        for (how, temperature, seed), own in found[data, split].items():
            scores = evaluate_candidates(own, pool, drawn, shape, vectors)
            for (form, *_), result in zip(forms, scores, strict=True):
                results.setdefault((how, temperature, form), {})[seed] = result
        yield {"data": data, "split": split, "way": way, "shot": shot}, results


def rows(
    column: dict[str, Any], results: dict[Key, dict[int, Result]], baseline: Key = BASELINE
) -> Iterator[dict[str, Any]]:
    """Yield a row for each training and closed form: means over seeds and episodes, paired difference to `baseline`."""
    base = results.get(baseline)
    for key, by_seed in results.items():
        values = np.stack([result.values for result in by_seed.values()])  # (seeds, episodes)
        mean, ci95 = mean_interval(values.mean(0))
        seeds = values.mean(1)
        row = {
            **dict(zip(("trained", "temperature", "closed_form"), key, strict=True)),
            **column,
            "accuracy": round(mean, 5),
            "ci95": round(ci95, 5),
            "seeds": {str(seed): round(float(value), 5) for seed, value in zip(by_seed, seeds, strict=True)},
            "seed_std": round(float(seeds.std(ddof=1)), 5) if len(seeds) > 1 else None,
            "episode_hash": next(iter(by_seed.values())).settings["episode_hash"],
        }
        if base is not None and by_seed.keys() <= base.keys():
            same = np.stack([base[seed].values for seed in by_seed])
            difference, half = paired_difference(values.mean(0), same.mean(0))
            row |= {"difference": round(difference, 5), "difference_ci95": round(half, 5)}
        yield row


def cells(found: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Return the table, its head first: a row for each training and closed form, a column for each kind of episode."""
    columns = list(dict.fromkeys(_title(row) for row in found))
    by_key: dict[Key, dict[str, str]] = {}
    for row in found:
        spread = "" if row["seed_std"] is None else f" ({100 * row['seed_std']:.1f})"
        key = row["trained"], row["temperature"], row["closed_form"]
        by_key.setdefault(key, {})[_title(row)] = f"{100 * row['accuracy']:.1f}{spread}"
    head = ["trained with", "temperature", "scored by", *columns]
    return [head, *([*key, *(own.get(column, "") for column in columns)] for key, own in by_key.items())]


def markdown(found: Sequence[dict[str, Any]], command: str, episodes: int, title: str = "Ablation") -> str:
    """Return the table as a page."""
    head, *body = ("| " + " | ".join(row) + " |" for row in cells(found))
    rule = "| --- " * len(cells(found)[0]) + "|"
    words = f"Accuracy in %, {episodes} paired episodes; in brackets the standard deviation over training seeds."
    return "\n".join([f"# {title}", "", f"`{command}`", "", words, "", head, rule, *body, ""])


def show(found: Sequence[dict[str, Any]]) -> None:
    """Print the table."""
    head, *body = cells(found)
    table = Table(*head)
    for row in body:
        table.add_row(*row)
    Console(width=200).print(table)


def write_page(beside: Path, page: str) -> None:
    """Write the page beside the file of its numbers."""
    with atomic_write(beside.with_suffix(".md")) as file:
        file.write(page.encode())


def _title(row: dict[str, Any]) -> str:
    shot = row["shot"]
    return f"{row['split']} {row['way']}-way {','.join(map(str, shot)) if isinstance(shot, list) else shot}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, score, show, and write JSON if asked to."""
    parser = argparse.ArgumentParser(prog="python -m research.ablation", description=__doc__)
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--variants", type=int, nargs="+", default=list(range(len(TRAINED))), help="rows of TRAINED")
    parser.add_argument("--temperatures", nargs="+", choices=TEMPERATURES, default=list(TEMPERATURES))
    parser.add_argument("--episodes", type=int, default=2000)
    parser.add_argument("--train-only", action="store_true")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every number there, and a page beside it")
    options = parser.parse_args(arguments)
    folders = trained(options.study, options.variants, options.temperatures, options.seeds)
    if options.train_only:
        return
    study = STUDIES[options.study]
    found = [row for column, results in scored(study, folders, options.episodes) for row in rows(column, results)]
    show(found)
    if options.json:
        command = command_of("ablation", arguments)
        facts = {"recipe": study.recipe, "query": study.query, "episodes": options.episodes, "seeds": options.seeds}
        write_results(options.json, {"command": command, **facts, "results": found})
        write_page(options.json, markdown(found, command, options.episodes))


if __name__ == "__main__":
    main()
