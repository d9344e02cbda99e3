"""How little a query belongs to any class: by how far classes reach, or by how unsure a softmax is.

What was measured, as AUROC on frozen sentence vectors of unseen relations and intents (5-way; 1, 5 and unequal shots):
a distance in units of the class's *own* extent is worse than the plain distance, since few examples tell little of how
far their class reaches; with extents shrunk to their common one it is about as good. Better on vectors as they come,
and everywhere better than the softmax of prototypes at its best temperature, is to ask as well how near the query is to
where classes lie at all: a hard query is far from everything, its own class included. That needs to know how class
centres lie, which `fit="bayes"` estimates. The largest cosine, which `cosine` goes by, does about as well as that.
"""

import torch
from torch import Tensor

from hyperproto.methods.task import Task
from hyperproto.regions import Region, Sphere


def doubt(logits: Tensor) -> Tensor:
    """Minus the log odds of the likeliest class (B, Q): as its probability falls they rise, and never round to 1."""
    if logits.shape[-1] == 1:
        return torch.zeros_like(logits[..., 0])  # one class is all that it could be
    falling = logits.sort(dim=-1, descending=True).values
    return falling[..., 1:].logsumexp(-1) - falling[..., 0]


def beyond_extent(region: Region, task: Task) -> Tensor:
    """Distance to the nearest class in units of its extent, (B, Q): at most 1 is inside."""
    novelty: Tensor = region.beyond_extent(task.query, task.counts().to(task.query))
    return novelty


def rather_unseen(sphere: Sphere, task: Task) -> Tensor:
    """How much likelier a query (B, Q) is of a class not seen than of the likeliest one that is; 0 is as likely."""
    novelty: Tensor = sphere.rather_unseen(task.query, task.counts().to(task.query))
    return novelty
