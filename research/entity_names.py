"""Names of entity types as one more example, and scores of predicted spans, on Few-NERD with a frozen encoder.

    python -m research.entity_names --split dev --json FILE
    python -m research.entity_names --split test --json FILE

The classifier is the default of `EntityTagger`: cosine prototypes on unit vectors and the best path of labels, with
transitions counted in the support. A name, the words of a type's label, is read as a sentence of its own. It becomes
further words of the type in the support: each of its words (`words`), or the mean of their vectors (`mean N`: N times).
A span is scored by its words' probabilities of its type (mean, smallest, geometric mean) or by the probability of
exactly this span among all labellings (`exact`; `exact per word`: its root of the number of words); `auroc` is the
probability that a right span has a higher score than a wrong one. Variants are chosen on dev.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from hyperproto.data import OUTSIDE, Pool, open_pool
from hyperproto.data.formats.tagged import find_spans
from hyperproto.encoders import Encoder, Units
from hyperproto.episodes import Episode, GreedySampler, episodes_hash
from hyperproto.estimators.tagging import span_probabilities
from hyperproto.estimators.text import label_words
from hyperproto.evaluation import EncodedPool, score_episodes
from hyperproto.problems import paired_difference
from hyperproto.reports.tables import write_results
from hyperproto.training.sources import Source, encoder_source, make_candidate
from research import command_of

VARIANTS = ("none", "words", "mean 1", "mean 2", "mean 4")
EPISODES = {1: 200, 5: 100}  # by shots, 5-way, one query sentence or more a type
SCORES = ("mean", "smallest", "geometric", "exact", "exact per word")
OPTIONS = {"path": True, "temperature": 0.05}
Spans = set[tuple[int, int, int]]


def with_names(pool: Pool, encoded: EncodedPool, encoder: Encoder, variant: str) -> tuple[EncodedPool, list[list[int]]]:
    """Return the pool followed by a sentence for each type, its name, and the items that are names of each type."""
    if variant == "none":
        return encoded, [[] for _ in pool.class_names]
    words = [label_words(name).split() for name in pool.class_names]
    units = encoder.encode_all(encoder.prepare(words))
    if variant != "words":
        means = [units.x[a:b].mean(0) for a, b in pairwise(units.offsets)]
        times = int(variant.split()[1])
        x = torch.stack(means).repeat_interleave(times, 0)
        units = Units(x, np.arange(0, len(x) + 1, times))
        words = [["name"] * times] * len(words)
    lengths = np.array(list(map(len, words)))
    labels = np.concatenate([pool.labels, np.repeat(np.arange(len(words)), lengths)])
    offsets = np.concatenate([pool.unit_offsets, pool.unit_offsets[-1] + np.cumsum(lengths)])
    longer = replace(pool, items=[*pool.items, *words], labels=labels, offsets=offsets)
    both = EncodedPool(longer, encoder, Units.concatenated([encoded.units, units]))
    return both, [[len(pool) + n] for n in range(len(words))]


def named(episode: Episode, pool: Pool, names: list[list[int]]) -> Episode:
    """Return an episode whose support has the names of its types, too."""
    items, labels = [episode.support], [episode.support_y]
    for local, kind in enumerate(episode.classes.tolist()):
        for item in names[kind] if kind < len(names) else []:
            items.append(np.array([item]))
            labels.append(np.full(int(pool.unit_offsets[item + 1] - pool.unit_offsets[item]), local))
    return replace(episode, support=np.concatenate(items), support_y=np.concatenate(labels))


def transitions_of(pool: Pool, episode: Episode) -> Pool:
    """Return the support of an episode as a pool of its own, in which transitions are counted."""
    items = [pool.items[n] for n in episode.support]
    kinds = np.where(episode.support_y == 0, OUTSIDE, episode.support_y - 1)
    names = tuple(map(str, range(episode.way - 1)))
    return Pool(items, kinds, names, name="support", split="all", offsets=np.cumsum([0, *map(len, items)]))


def answers(
    encoded: EncodedPool, episodes: Sequence[Episode], plain: Sequence[Episode], source: Source
) -> Iterator[tuple[Spans, list[tuple[tuple[int, int, int], dict[str, float]]]]]:
    """Yield the true spans of each episode's queries, and the predicted ones with their scores."""
    for episode, without in zip(episodes, plain, strict=True):
        own = replace(source, train_data=transitions_of(encoded.pool, without))
        predictor = make_candidate(own, "cosine", None, "unit", OPTIONS).predictor
        [(task, scores)] = score_episodes(predictor, encoded, [episode])
        found = predictor.decide(scores, task)[0].numpy()
        words = predictor.method.logits(scores).double().log_softmax(-1)[0].numpy()
        assert predictor.decision.path is not None
        moves = [part.numpy() for part in predictor.decision.path.expanded(episode.way - 1)]
        offsets = task.query_offsets[0].numpy()
        scored = [
            (each, scores_of(words[first:last], each, first, moves))
            for first, last in pairwise(offsets.tolist())
            for each in sorted(spans(found, offsets))
            if first <= each[0] < last
        ]
        yield spans(episode.query_y, offsets), scored


def scores_of(words: Any, span: tuple[int, int, int], shift: int, moves: Sequence[Any]) -> dict[str, float]:
    """Return every score of a span of a sentence whose first word has the number `shift`."""
    first, last, kind = span[0] - shift, span[1] - shift, span[2] + 1
    own = words[first:last, kind]
    [exact] = span_probabilities(words, moves[0], moves[1], [(first, last, kind)])
    plain = np.exp(own).mean(), np.exp(own.min()), np.exp(own.mean())
    return dict(zip(SCORES, (*map(float, plain), exact, exact ** (1 / (last - first))), strict=True))


def spans(labels: Any, offsets: Any) -> Spans:
    """Return (first, past last, type) of every run of one type."""
    found = find_spans(np.where(labels == 0, OUTSIDE, labels - 1), offsets)
    return set(zip(found.start.tolist(), found.end.tolist(), found.label.tolist(), strict=True))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the study and write its results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--split", choices=("dev", "test"), default="test")
    parser.add_argument("--encoder", default="token-transformer:minilm")
    parser.add_argument("--episodes", type=float, default=1.0, help="share of the usual number of episodes")
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args(arguments)
    pool = open_pool("fewnerd", options.split)
    source = encoder_source(options.encoder, pool, pool)
    rows, hashes = [], {}
    for shot, count in EPISODES.items():
        plain = GreedySampler(pool, way=5, shot=shot, query=1).draw(max(2, round(count * options.episodes)))
        hashes[str(shot)] = episodes_hash(pool, plain)
        items = np.unique(np.concatenate([part for each in plain for part in (each.support, each.query)]))
        encoded = EncodedPool.of_items(source.encoder, pool, items)
        first: NDArray[Any] | None = None
        for variant in VARIANTS:
            row, values = measure(pool, encoded, source, plain, variant)
            first = values if first is None else first
            difference, half = paired_difference(values, first)
            rows.append({"shot": shot, "names": variant, **row, "over_none": difference, "over_none_ci95": half})
    facts = {"split": options.split, "way": 5, "query": 1, "episodes": hashes}
    write_results(options.json, {"command": command_of("entity_names", arguments), **facts, "results": rows})


def measure(
    pool: Pool, encoded: EncodedPool, source: Source, plain: Sequence[Episode], variant: str
) -> tuple[dict[str, Any], NDArray[Any]]:
    """Return micro precision, recall, F1 and the AUROC of every score; and jackknife values of F1 by episode."""
    both, names = with_names(pool, encoded, source.encoder, variant)
    given = [named(each, both.pool, names) for each in plain]
    counts, right = [], []
    scores: dict[str, list[float]] = {name: [] for name in SCORES}
    for truth, found in answers(both, given, plain, source):
        counts.append((sum(each in truth for each, _ in found), len(found), len(truth)))
        for each, its in found:
            right.append(each in truth)
            for name, score in its.items():
                scores[name].append(score)
    correct, predicted, gold = np.array(counts, float).T
    f1 = 2 * correct.sum() / max(1.0, (predicted + gold).sum())
    rest = 2 * (correct.sum() - correct) / np.maximum(1.0, (predicted + gold).sum() - predicted - gold)
    values = len(counts) * f1 - (len(counts) - 1) * rest
    auroc = {name: round(float(roc_auc_score(right, each)), 4) for name, each in scores.items()}
    row = {"f1": f1, "precision": correct.sum() / max(1.0, predicted.sum()), "recall": correct.sum() / gold.sum()}
    return {**{name: round(float(value), 5) for name, value in row.items()}, "auroc": auroc}, values


if __name__ == "__main__":
    main()
