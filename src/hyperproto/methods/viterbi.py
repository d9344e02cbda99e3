"""The best path of labels through each sentence, all sentences of a task at once."""

import torch
from torch import Tensor

from hyperproto.methods.task import PAD


def best_paths(scores: Tensor, offsets: Tensor, start: Tensor, moves: Tensor) -> Tensor:
    """Find, in each sentence, the labels whose scores and moves add up to most: (B, Q), PAD beyond the sentences.

    `scores` (B, Q, N) of each word and label; `offsets` (B, sentences + 1) the words of each sentence; `start` (N,) the
    score of a first label; `moves` (N, N) of a label (row) and the next one (column).
    """
    batch, words, way = scores.shape
    offsets = offsets.to(scores.device)
    first = (offsets[:, :-1] + words * torch.arange(batch, device=scores.device)[:, None]).flatten()
    lengths = offsets.diff(dim=1).flatten()
    first, lengths = first[lengths > 0], lengths[lengths > 0]
    labels = torch.full((batch * words,), PAD, device=scores.device)
    if not len(first):
        return labels.view(batch, words)
    order = lengths.argsort(descending=True, stable=True)  # long ones first: those that go on are the first few
    first, lengths = first[order], lengths[order]
    going = (lengths > torch.arange(int(lengths[0]), device=scores.device)[:, None]).sum(1).tolist()  # at each step
    flat = scores.reshape(-1, way)

    best = start + flat[first]  # (sentences, N) the best path that ends in each label
    came_from = []
    for step, count in enumerate(going[1:], start=1):
        reached, previous = (best[:count, :, None] + moves).max(1)
        came_from.append(previous)
        best = torch.cat([reached + flat[first[:count] + step], best[count:]])
    label = best.argmax(-1)  # of each sentence's last word
    for step in reversed(range(1, len(going))):
        count = going[step]
        labels[first[:count] + step] = label[:count]
        label = torch.cat([came_from[step - 1].gather(1, label[:count, None])[:, 0], label[count:]])
    labels[first] = label
    return labels.view(batch, words)
