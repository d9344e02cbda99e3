"""Viterbi decoding of the labels of a sentence with abstract transition probabilities."""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hyperproto.data import OUTSIDE, Pool
from hyperproto.errors import ConfigError
from hyperproto.methods import PAD

MOVES = ("start-O", "start-I", "O-O", "O-I", "I-O", "I-same", "I-other")
SOURCES = (slice(0, 2), slice(2, 4), slice(4, 7))  # the moves from start, O and I; probabilities of each add up to 1
STEEPEST = 1000.0  # the largest tau: 0.9 to this power is 1e-46
LEAST = 1e-6  # the probability of a move that the training data never make


class Path(nn.Module):
    """Abstract transitions between labels, and Viterbi decoding with them.

    Yang & Katiyar, "Simple and Effective Few-Shot Named Entity Recognition with Structured Nearest Neighbor Learning",
    EMNLP 2020. Transitions distinguish O, the same type and another type, so that those counted on training data apply
    to unseen types. Class 0 of an episode is O. `transitions` gives the seven probabilities instead of counting them,
    in the order start-O, start-I, O-O, O-I, I-O, I-same, I-other. They are raised to the power `tau`.
    """

    transitions: Tensor

    def __init__(self, tau: float, transitions: list[float] | None) -> None:
        super().__init__()
        if not 0 <= tau <= STEEPEST:
            raise ConfigError(f"tau {tau} must be from 0, which makes every transition equally likely, to {STEEPEST:g}")
        self.tau = tau
        self.given = transitions is not None
        values = [float("nan")] * len(MOVES) if transitions is None else _checked(transitions)
        self.register_buffer("transitions", torch.tensor(values, dtype=torch.float64))

    @property
    def fitted(self) -> bool:
        """True if the transitions were given or counted."""
        return not bool(self.transitions.isnan().any())

    def count(self, pool: Pool) -> None:
        """Count the transitions of a pool, unless they were given; items of one unit have none."""
        if not self.given and pool.outside_row is not None:
            self.transitions.copy_(abstract_transitions(pool))

    def best(self, logits: Tensor, offsets: Tensor) -> Tensor:
        """Find the best labels (B, Q) by the softmax of `logits` (B, Q, N) and the moves within each sentence."""
        start, moves = self.expanded(logits.shape[-1] - 1)
        return best_paths(F.log_softmax(logits.double(), -1), offsets, start, moves)

    def expanded(self, types: int) -> tuple[Tensor, Tensor]:
        """Return log probabilities of first labels (N + 1,) and of moves (N + 1, N + 1), equal for all types."""
        start_o, start_i, o_o, o_i, i_o, same, other = self.transitions.tolist()
        rows = torch.full(
            (types + 2, types + 1), other / max(1, types - 1), dtype=torch.float64
        )  # from: start, O, types
        rows[0], rows[1], rows[2:, 0] = start_i / types, o_i / types, i_o
        rows[0, 0], rows[1, 0] = start_o, o_o
        rows[2:, 1:].fill_diagonal_(same)
        rows = F.normalize(rows.to(self.transitions.device) ** self.tau, p=1, dim=1).clamp(min=LEAST).log()
        return rows[0], rows[1:]


def abstract_transitions(pool: Pool) -> Tensor:
    """Estimate the probabilities of MOVES, in that order, from the labels of all sentences."""
    starts, ends = pool.unit_offsets[:-1], pool.unit_offsets[1:]
    first = pool.labels[starts[ends > starts]]
    inner = np.ones(len(pool.labels), bool)
    inner[starts[ends > starts]] = False  # the first word of a sentence follows none
    after = np.flatnonzero(inner)
    before, here = pool.labels[after - 1], pool.labels[after]
    from_o, to_o, same = before == OUTSIDE, here == OUTSIDE, before == here
    counts = [
        (first == OUTSIDE).sum(),
        (first != OUTSIDE).sum(),
        (from_o & to_o).sum(),
        (from_o & ~to_o).sum(),
        (~from_o & to_o).sum(),
        (~from_o & same).sum(),
        (~from_o & ~to_o & ~same).sum(),
    ]
    return torch.tensor(_normalised([float(count) for count in counts]), dtype=torch.float64)


def _checked(values: list[float]) -> list[float]:
    if len(values) != len(MOVES) or min(values) < 0 or not all(sum(values[source]) for source in SOURCES):
        raise ConfigError(
            f"transitions {values}: give seven numbers of at least 0, not all 0 from the same label: {', '.join(MOVES)}"
        )
    return _normalised(values)


def _normalised(values: list[float]) -> list[float]:
    """Normalise the moves from each label to a sum of 1; a label that never occurs gets equal probabilities."""
    shares: list[float] = []
    for part in (values[source] for source in SOURCES):
        shares += [value / sum(part) if sum(part) else 1 / len(part) for value in part]
    return shares


def best_paths(scores: Tensor, offsets: Tensor, start: Tensor, moves: Tensor) -> Tensor:
    """Return the labels (B, Q) with the largest sum of scores and moves in each sentence; PAD after the last one.

    `scores` (B, Q, N) rate each word and label, `start` (N,) first labels, `moves` (N, N) a label (row) followed by
    another (column). `offsets` (B, sentences + 1) are the borders of sentences.
    """
    batch, words, way = scores.shape
    offsets = offsets.to(scores.device)
    first = (offsets[:, :-1] + words * torch.arange(batch, device=scores.device)[:, None]).flatten()
    lengths = offsets.diff(dim=1).flatten()
    first, lengths = first[lengths > 0], lengths[lengths > 0]
    labels = torch.full((batch * words,), PAD, device=scores.device)
    if not len(first):
        return labels.view(batch, words)
    order = lengths.argsort(descending=True, stable=True)  # longest first: unfinished sentences are in front
    first, lengths = first[order], lengths[order]
    going = (lengths > torch.arange(int(lengths[0]), device=scores.device)[:, None]).sum(1).tolist()  # unfinished
    flat = scores.reshape(-1, way)

    best = start + flat[first]  # (sentences, N) the best path that ends in each label
    came_from = []
    for step, count in enumerate(going[1:], start=1):
        reached, previous = (best[:count, :, None] + moves).max(1)
        came_from.append(previous)
        best = torch.cat([reached + flat[first[:count] + step], best[count:]])
    label = best.argmax(-1)  # label of each sentence's last word
    for step in reversed(range(1, len(going))):
        count = going[step]
        labels[first[:count] + step] = label[:count]
        label = torch.cat([came_from[step - 1].gather(1, label[:count, None])[:, 0], label[count:]])
    labels[first] = label
    return labels.view(batch, words)
