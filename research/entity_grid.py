"""Every method on Few-NERD with three decisions: settings chosen on dev (`choose`), reported on test (`report`).

    python -m research.entity_grid choose --encoder minilm --json CHOICES
    python -m research.entity_grid report --encoder minilm --choices CHOICES --json FILE

A method labels word by word (`words`), by the best path through a sentence (`path`), or by that path with a model of
O from the training data (`path, O`). Transform, temperature and the weight of O are chosen for each by the mean F1 of
two kinds of dev episodes, from equally many temperatures and weights; `CASES` has options of single methods. Nothing is
chosen on the test split.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import groupby, product
from math import log
from pathlib import Path
from typing import Any

import torch

from hyperproto.comparison.measure import select
from hyperproto.data import Pool, open_pool
from hyperproto.episodes import Episode, GreedySampler, episodes_hash
from hyperproto.evaluation import EncodedPool, Predictor, score_episodes, tag_alike
from hyperproto.files import read_json
from hyperproto.problems import Tags, paired_difference, span_errors, tagged_metrics
from hyperproto.reports.tables import write_results
from hyperproto.training.sources import Source, encoder_source, run_source
from research import command_of

DATA = "fewnerd"
CASES: list[tuple[str, str, dict[str, float]]] = [
    ("protonet", "point", {}),
    ("cosine", "point", {}),
    ("nnshot", "point", {}),
    ("logistic", "point", {"C": 1.0}),
    ("logistic", "point", {"C": 10.0}),
    ("hyperproto", "bayes", {}),
    ("hyperproto", "bayes", {"unit_correlation": 0.3}),
    ("hyperproto", "bayes", {"count_prior": 4.0}),
    ("hyperproto", "unbiased", {}),
    ("hyperproto", "paper", {}),
    ("hyperproto-cone", "unbiased", {}),
    ("hyperproto-cone", "paper", {}),
    ("hyperproto-gaussian", "unbiased", {}),
    ("hyperproto-gaussian", "paper", {}),
]
TRANSFORMS = {  # others: all three
    "cosine": ("unit", "center-unit"),
    "hyperproto-cone": ("none", "center-unit"),
    "logistic": ("unit",),  # it takes long
}
SHARES = (0.02, 0.04, 0.07, 0.13, 0.23, 0.4, 0.7, 1.3)  # temperatures, in standard deviations of a word's scores
WEIGHTS = (0.5, 1.0)  # of O
DECISION = ("path", "temperature", "outside_weight")  # options that change no score
CHOICES = {1: 300, 5: 150}  # dev episodes by shots, 5-way
CHOICE_SEED = 11
BASELINES = ("protonet", "cosine")  # which all others are compared with, on the same episodes


@dataclass(frozen=True)
class DecisionRule:
    """A decision by name, with its options."""

    name: str
    options: dict[str, Any]

    def of(self, predictor: Predictor) -> Predictor:
        """Return a copy of a predictor, which has path and O, with this decision."""
        method, decision = deepcopy(predictor.method), deepcopy(predictor.decision)
        if not self.options.get("path"):
            decision.path = None
        weight = self.options.get("outside_weight", 0.0)
        if decision.outside is not None and weight:
            decision.outside.weight = weight
        else:
            decision.outside = None
        if "temperature" in self.options:
            method.log_temperature.data.fill_(log(self.options["temperature"]))
        return Predictor(predictor.features, method, decision, predictor.names)


def choose(source: Source, pool: Pool, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Measure every setting of some methods on the pool, row by row."""
    encoded = EncodedPool.encode(source.encoder, pool, cached=True)
    episodes = {shot: _episodes(pool, 5, shot, number, CHOICE_SEED) for shot, number in CHOICES.items()}
    for name, fit, own in (case for case in CASES if case[0] in names):
        for transform_name in TRANSFORMS.get(name, ("none", "unit", "center-unit")):
            decision = {"path": True, "temperature": 1.0, "outside_weight": WEIGHTS[0]}  # the rules change it
            [candidate] = select([source], [name], [fit], [transform_name], {**own, **decision})
            predictor = candidate.predictor
            scale = _scale(next(iter(score_episodes(predictor, encoded, episodes[1][:20])))[1])
            rules = list(_rules(scale))
            predictors = [rule.of(predictor) for rule in rules]
            tags = {shot: tag_alike(predictors, encoded, drawn) for shot, drawn in episodes.items()}
            for number, rule in enumerate(rules):
                found = {f"{shot} shots": _short(tags[shot][number], pool) for shot in CHOICES}
                row = {"method": name, "fit": fit, "transform": transform_name, "decided": rule.name}
                mean = sum(each["f1"] for each in found.values()) / len(found)
                yield {**row, "options": {**own, **rule.options}, "mean_f1": round(mean, 5), **found}


def _rules(scale: float) -> Iterator[DecisionRule]:
    yield DecisionRule("words", {})
    for share in SHARES:
        path = {"path": True, "temperature": float(f"{share * scale:.2g}")}
        yield DecisionRule("path", path)
        for weight in WEIGHTS:
            yield DecisionRule("path, O", {**path, "outside_weight": weight})


def _scale(scores: torch.Tensor) -> float:
    return float(scores.masked_fill(~scores.isfinite(), float(scores[scores.isfinite()].min())).std(-1).mean())


def _short(tags: Tags, pool: Pool) -> dict[str, float]:
    counts, rates = tags.counts("sentence"), span_errors(tags, pool.class_names).rates
    values = {"f1": counts.f1, "precision": counts.precision, "recall": counts.recall}
    return {name: round(value, 5) for name, value in {**values, "called_o": rates["outside_predicted"]}.items()}


def best(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the best row of each method, fit and decision."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in rows:
        key = row["method"], row["fit"], row["decided"]
        if key not in found or row["mean_f1"] > found[key]["mean_f1"]:
            found[key] = row
    return list(found.values())


def report(
    source: Source, pool: Pool, chosen: Sequence[dict[str, Any]], settings: Iterable[tuple[int, int]], **drawn: int
) -> Iterator[dict[str, Any]]:
    """Measure the chosen rows on the pool, in settings given as (way, shot)."""
    encoded = EncodedPool.encode(source.encoder, pool, cached=True)
    for way, shot in settings:
        episodes = _episodes(pool, way, shot, seed=0, **drawn)
        setting = {"setting": f"{way}-way {shot}~{2 * shot}", "episode_hash": episodes_hash(pool, episodes)}
        values: dict[tuple[str, str, str], Any] = {}
        for row, tags in zip(chosen, _tags(source, encoded, chosen, episodes), strict=True):
            found, metrics = tagged_metrics(tags, pool.class_names)
            values[row["method"], row["fit"], row["decided"]] = found["sentence"]
            rates = metrics.pop("errors")["rates"]
            differences = {}
            for name in BASELINES:
                other = values.get((name, "point", row["decided"]))
                if other is not None and name != row["method"]:
                    differences[f"less_{name}"] = [round(x, 5) for x in paired_difference(found["sentence"], other)]
            kept = {name: row[name] for name in ("method", "fit", "transform", "decided", "options")}
            rounded = {name: round(rate, 5) for name, rate in rates.items()}
            yield {**setting, **kept, **{name: _rounded(m) for name, m in metrics.items()}, **rounded, **differences}


def _tags(
    source: Source, encoded: EncodedPool, chosen: Sequence[dict[str, Any]], episodes: Sequence[Episode]
) -> Iterator[Tags]:
    """Yield the tags of each row; consecutive rows that differ in their decision only are scored once."""
    for _, alike in groupby(chosen, _scored_by):
        rows = list(alike)
        candidates = [
            select([source], [row["method"]], [row["fit"]], [row["transform"]], row["options"])[0] for row in rows
        ]
        yield from tag_alike([candidate.predictor for candidate in candidates], encoded, episodes)


def _scored_by(row: dict[str, Any]) -> tuple[Any, ...]:
    own = {name: value for name, value in row["options"].items() if name not in DECISION}
    return row["method"], row["fit"], row["transform"], own


def _rounded(metrics: dict[str, Any]) -> dict[str, Any]:
    return {name: round(value, 5) if isinstance(value, float) else value for name, value in metrics.items()}


def _episodes(pool: Pool, way: int, shot: int, number: int, seed: int, least_spans: int = 0) -> list[Episode]:
    return GreedySampler(pool, way=way, shot=shot, query=shot, seed=seed, least_spans=least_spans).draw(number)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, print every row to standard error, and write JSON."""
    parser = argparse.ArgumentParser(prog="python -m research.entity_grid", description="Methods that label words.")
    parser.add_argument("step", choices=("choose", "report"))
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--encoder", help="a ready encoder, such as minilm")
    where.add_argument("--run", help="the folder of a trained run")
    parser.add_argument("--split", default=None, help="default: dev to choose, test to report")
    parser.add_argument("--choices", type=Path, metavar="FILE", help="what `choose` wrote")
    parser.add_argument("--ways", type=int, nargs="+", default=[5, 10], help="to report")
    parser.add_argument("--shots", type=int, nargs="+", default=[1, 5], help="to report: K of K~2K")
    parser.add_argument("--least-spans", type=int, default=0, help="to report: leave out types with fewer entities")
    parser.add_argument("--episodes", type=int, default=1000, help="of each setting, to report")
    parser.add_argument("--json", type=Path, required=True, metavar="FILE")
    known = list(dict.fromkeys(name for name, *_ in CASES))
    parser.add_argument(
        "--methods", nargs="+", choices=known, default=known, metavar="METHOD", help="those to choose or report"
    )
    options = parser.parse_args(arguments)
    if options.step == "report" and options.choices is None:
        parser.error("report needs --choices: the file that choose wrote")
    split = options.split or {"choose": "dev", "report": "test"}[options.step]
    pool = open_pool(DATA, split)
    source = run_source(options.run, pool) if options.run else encoder_source(options.encoder, pool)
    if options.step == "choose":
        found = choose(source, pool, options.methods)
    else:
        rows = read_json(options.choices)["results"]
        chosen = [row for row in best(rows) if row["method"] in options.methods]
        drawn = {"number": options.episodes, "least_spans": options.least_spans}
        found = report(source, pool, chosen, product(options.ways, options.shots), **drawn)
    rows = []
    for row in found:
        sys.stderr.write(f"{json.dumps(row)}\n")
        rows.append(row)
    content = {
        "command": command_of("entity_grid", arguments),
        "data": DATA,
        "split": split,
        "encoder": source.label,
        "results": rows,
    }
    write_results(options.json, content)


if __name__ == "__main__":
    main()
