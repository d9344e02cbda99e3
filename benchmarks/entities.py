"""Entity episodes, against a plain implementation that scans all sentences and encodes every episode again.

The plain sampler follows the toolkit's rule as one would write it down: look at every sentence for those that hold none
but the types drawn, then try random ones. The plain evaluation tokenises word by word when an episode is drawn, pads to
a fixed length and encodes support and query, with the same network and weights, so that only the way differs.
"""

import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import count, groupby, pairwise
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from torch import Tensor

from benchmarks.measure import Measurement, Times, in_turns
from benchmarks.memory import peak_bytes
from hyperproto.data import OUTSIDE, IntArray, Pool, open_pool
from hyperproto.encoders import Units
from hyperproto.encoders.identity import Identity
from hyperproto.encoders.token_transformer import TokenTransformer
from hyperproto.episodes import Episode, GreedySampler
from hyperproto.episodes.episode import sentence_offsets
from hyperproto.errors import DataError
from hyperproto.evaluation import EncodedPool, Predictor, tag_alike
from hyperproto.methods import make_method

SENTENCES = 100_000
LENGTH = 100  # word pieces that every sentence is padded to: the toolkit's default
WAY, SHOT = 5, 5
MEMORY_SHOT, MEMORY_LIMIT = 20, 2 << 30
DIMENSION = 384  # of the vectors in the measurement of memory: MiniLM's
TRIES = 20_000  # sentences that the plain way tries before it begins an episode anew

Chosen = tuple[list[int], list[int], list[int]]  # types, support, query


def entities(quick: bool) -> list[Measurement]:
    """Time drawing and evaluation; measure the memory of NNShot at 20 shots."""
    return [*_drawing(quick), _evaluation(quick), _memory(quick)]


class Sample:
    """A sentence with the toolkit's test of whether it may be drawn."""

    def __init__(self, labels: list[int]) -> None:
        self.held = Counter(kind for kind, _ in groupby(labels) if kind != OUTSIDE)

    def valid(self, types: list[int]) -> bool:
        """Return whether the sentence has entities of some of the types and of no others."""
        own = set(self.held.keys())
        return bool(own.intersection(set(types))) and not own.difference(set(types))


class PlainSampler:
    """Sampler that scans all sentences for each episode."""

    def __init__(self, pool: Pool, least_spans: int = 0, seed: int = 0) -> None:
        offsets = sentence_offsets(pool).tolist()
        labels = pool.labels.tolist()
        self.samples = [Sample(labels[start:end]) for start, end in pairwise(offsets)]
        total: Counter[int] = Counter()
        for sample in self.samples:
            total.update(sample.held)
        self.types = [kind for kind in range(pool.n_classes) if total[kind] >= least_spans]
        self.random = random.Random(seed)

    def many(self, number: int, way: int, shot: int, query: int) -> list[Chosen]:
        """Draw a number of episodes."""
        return [self.draw(way, shot, query) for _ in range(number)]

    def draw(self, way: int, shot: int, query: int) -> Chosen:
        """Draw one episode, starting again until it can be completed."""
        while True:
            types = self.random.sample(self.types, way)
            own = [i for i, sample in enumerate(self.samples) if sample.valid(types)]
            used: set[int] = set()
            parts = [self._fill(types, own, need, used) for need in (shot, query)]
            if parts[0] is not None and parts[1] is not None:
                return types, parts[0], parts[1]

    def _fill(self, types: list[int], own: list[int], need: int, used: set[int]) -> list[int] | None:
        total: Counter[int] = Counter()
        found: list[int] = []
        for _ in range(TRIES):
            if all(total[kind] >= need for kind in types):
                return found
            sentence = self.random.choice(own) if own else None
            if sentence is None or sentence in used:
                continue
            held = self.samples[sentence].held
            fits = all(total[kind] + more <= 2 * need for kind, more in held.items())
            if fits and any(total[kind] < need for kind in held):
                used.add(sentence)
                found.append(sentence)
                total.update(held)
        return None


def _next_episodes(sampler: GreedySampler, starts: Iterator[int], number: int) -> list[Episode]:
    return sampler.draw(number, next(starts))


def _drawing(quick: bool) -> list[Measurement]:
    """Draw K~2K episodes from 100,000 sentences, real ones repeated."""
    pool = repeated(_pool("dev"), 2_000 if quick else SENTENCES)
    found, least = [], 40 if quick else 0
    for shot in (1, 5):
        sampler = GreedySampler(pool, way=WAY, shot=shot, query=shot, least_spans=least)
        plain = PlainSampler(pool, least)  # it, too, has counted before the clock starts
        many, few = (20, 1) if quick else (200, 3)
        ours = partial(_next_episodes, sampler, count(step=many), many)
        scan = partial(plain.many, few, WAY, shot, shot)
        times = in_turns(ours, scan, 3 if quick else 9, parts=(many, few))
        label = f"K~2K sampling, {len(pool):,} sentences, {WAY}-way {shot}~{2 * shot}-shot"
        found.append(times.measurement(label, "scanning all sentences for each episode", ">=", 150, data=str(pool)))
    return found


class EachAnew:
    """Plain tagger: tokenise, pad to a fixed length and encode each episode, then take the nearest mean."""

    def __init__(self, encoder: TokenTransformer, pool: Pool) -> None:
        self.encoder, self.pool, self.tokenizer = encoder, pool, encoder.tokenizer

    @torch.inference_mode()
    def __call__(self, episode: Episode) -> Tensor:
        """Label the words of the queries."""
        support, query = (self.vectors(items.tolist()) for items in (episode.support, episode.query))
        labels = torch.from_numpy(episode.support_y)
        means = torch.stack([support[labels == n].mean(0) for n in range(episode.way)])
        return torch.cdist(query, means).argmin(1)

    def vectors(self, items: list[int]) -> Tensor:
        """Encode some sentences: the sum of the last four layers at the first piece of each word."""
        pieces = torch.full((len(items), LENGTH), self.encoder.fill)
        mask = torch.zeros(len(items), LENGTH, dtype=torch.long)
        firsts = []
        for row, item in enumerate(items):
            ids, first = [self.tokenizer.cls_token_id], []
            for word in self.pool.items[item]:
                found = self.tokenizer(word, add_special_tokens=False)["input_ids"]
                first.append(min(len(ids), LENGTH - 2))
                ids += found or [self.tokenizer.unk_token_id]
            ids = [*ids[: LENGTH - 1], self.tokenizer.sep_token_id]
            pieces[row, : len(ids)], mask[row, : len(ids)] = torch.tensor(ids), 1
            firsts.append(torch.tensor(first))
        output = self.encoder.model(input_ids=pieces, attention_mask=mask, output_hidden_states=True)
        states = torch.stack(output.hidden_states[-4:]).sum(0)
        return torch.cat([states[row][first] for row, first in enumerate(firsts)])


def _evaluation(quick: bool) -> Measurement:
    """Time 5,000 episodes, tokenised, encoded and scored; the baseline runs 40 of them, spread over our time."""
    n_episodes, n_anew = (40, 4) if quick else (5000, 40)
    pool = _pool("test")
    pool = repeated(pool, 600) if quick else pool
    sampler = GreedySampler(pool, way=WAY, shot=SHOT, query=SHOT, least_spans=40 if quick else 0)
    episodes = sampler.draw(n_episodes)
    encoder = TokenTransformer(model="minilm").eval()
    method = make_method("protonet", feature_shape=encoder.feature_shape).eval()
    predictor = Predictor.of(method, encoder)
    anew = EachAnew(encoder, pool)
    anew(episodes[0])  # to warm up
    spent: list[float] = []

    def turn(done: int, total: int) -> None:
        """Stop our clock after a batch of the encoder and run the baseline for a while."""
        while len(spent) < n_anew * done // total:
            start = perf_counter()
            anew(episodes[len(spent)])
            spent.append(perf_counter() - start)

    start = perf_counter()
    encoded = EncodedPool(pool, encoder, encoder.encode_all(encoder.prepare(pool.items), turn))
    [tags] = tag_alike([predictor], encoded, episodes)
    ours = perf_counter() - start - sum(spent)
    few = episodes[:4]
    plain = torch.cat([torch.from_numpy(e.classes)[anew(e)] for e in few]).numpy()
    same = np.where(plain == pool.n_classes, OUTSIDE, plain) == tags.predicted[: len(plain)]
    times = Times([ours], [sum(spent) * n_episodes / n_anew])
    return times.measurement(
        f"MiniLM, {n_episodes:,} evaluation episodes, {WAY}-way {SHOT}~{2 * SHOT}-shot",
        f"encoding each episode anew, padded to {LENGTH}",
        ">=",
        25,
        data=str(pool),
        sentences=len(pool),
        baseline_extrapolated_from_episodes=n_anew,
        agreement=float(same.mean()),
    )


def _memory(quick: bool) -> Measurement:
    """Run this module in a process of its own and read its output."""
    command = [sys.executable, "-m", __spec__.name, *(["quick"] if quick else [])]
    output = subprocess.run(command, cwd=Path(__file__).parents[1], check=True, stdout=subprocess.PIPE).stdout
    detail = json.loads(output)
    ratio = detail["peak_bytes"] / MEMORY_LIMIT
    return Measurement(
        name=f"peak memory of NNShot, {WAY}-way {MEMORY_SHOT}~{2 * MEMORY_SHOT}-shot, all vectors in memory",
        baseline="2 GB",
        ours_seconds=detail.pop("seconds"),
        baseline_seconds=None,
        ratio=ratio,
        spread=(ratio, ratio),
        target=1.0,
        comparison="<=",
        detail=detail,
    )


def main(quick: bool) -> None:
    """Tag episodes of 20~40 shots by NNShot: the whole process, with a vector for every word of the test split."""
    pool = _pool("test")
    few = np.random.default_rng(0).standard_normal((len(pool.labels), DIMENSION), np.float32)
    encoded = EncodedPool(pool, Identity(shape=[DIMENSION]), Units(torch.from_numpy(few), sentence_offsets(pool)))
    sampler = GreedySampler(pool, way=WAY, shot=MEMORY_SHOT, query=MEMORY_SHOT, least_spans=1000)
    episodes = sampler.draw(1 if quick else 20)
    start = perf_counter()
    method = make_method("nnshot", feature_shape=(DIMENSION,))
    tag_alike([Predictor.of(method, encoded.encoder)], encoded, episodes)
    spent = perf_counter() - start
    words = float(np.mean([len(episode.support_y) for episode in episodes]))
    measured = {"peak_bytes": peak_bytes(), "vectors_bytes": few.nbytes, "support_words": words, "seconds": spent}
    print(json.dumps({**measured, "episodes": len(episodes), "data": str(pool)}))


def repeated(pool: Pool, size: int) -> Pool:
    """Repeat the sentences of a pool up to a given number."""
    return sentences_of(pool, np.arange(size) % len(pool))


def sentences_of(pool: Pool, index: IntArray) -> Pool:
    """Build a pool of the sentences at `index`."""
    offsets = sentence_offsets(pool)
    labels = np.concatenate([pool.labels[offsets[i] : offsets[i + 1]] for i in index.tolist()])
    lengths = np.diff(offsets)[index]
    items = [pool.items[i] for i in index.tolist()]
    ends = np.concatenate([[0], np.cumsum(lengths)])
    return Pool(items, labels, pool.class_names, name=pool.name, split=pool.split, offsets=ends)


def _pool(split: str) -> Pool:
    """Open Few-NERD INTER if it is available, else build random sentences of similar lengths."""
    try:
        return open_pool("fewnerd", split)
    except DataError:
        return made_up()


def made_up(size: int = 14_000, types: int = 15) -> Pool:
    """Draw sentences of about 24 random words with one to four entities, as long as Few-NERD's."""
    rng = np.random.default_rng(0)
    vocabulary = ["the", "of", "and", "in", "to", "a", "was", "is", "for", "on", "as", "by", "with", "he", "that", "at"]
    items, labels = [], []
    for _ in range(size):
        row = [OUTSIDE] * int(rng.integers(2, 8))
        for kind in rng.integers(0, types, size=int(rng.integers(1, 4))).tolist():
            row += [kind] * int(rng.integers(1, 4)) + [OUTSIDE] * int(rng.integers(2, 12))
        items.append(rng.choice(vocabulary, len(row)).tolist())
        labels.append(row)
    offsets = np.cumsum([0, *map(len, labels)])
    names = tuple(f"type-{n}" for n in range(types))
    return Pool(items, np.concatenate(labels), names, name="made-up entities", offsets=offsets)


if __name__ == "__main__":
    main(quick="quick" in sys.argv[1:])
