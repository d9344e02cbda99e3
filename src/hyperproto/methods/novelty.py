"""How little a query belongs to any class: by how far classes reach, or by how unsure a softmax is.

What was measured, as AUROC on frozen sentence vectors of unseen relations and intents (5-way; 1, 5 and unequal shots):
a distance in units of the class's *own* extent is worse than the plain distance, since few examples tell little of how
far their class reaches; with extents shrunk to their common one it is about as good. Better on vectors as they come,
and everywhere better than the softmax of prototypes at its best temperature, is to ask as well how near the query is to
where classes lie at all: a hard query is far from everything, its own class included. That needs to know how class
centres lie, which `fit="bayes"` estimates. The largest cosine, which `cosine` goes by, does about as well as that.
"""

from typing import Any

import torch
from torch import Tensor

from hyperproto.methods.task import Task
from hyperproto.regions import Sphere

PRIOR_EXAMPLES = 16.0  # how many examples' worth of evidence the common scatter counts for in a class's own


def doubt(logits: Tensor) -> Tensor:
    """Minus the log odds of the likeliest class (B, Q): as its probability falls they rise, and never round to 1."""
    if logits.shape[-1] == 1:
        return torch.zeros_like(logits[..., 0])  # one class is all that it could be
    falling = logits.sort(dim=-1, descending=True).values
    return falling[..., 1:].logsumexp(-1) - falling[..., 0]


def beyond_extent(region: Any, task: Task) -> Tensor:
    """Distance to the nearest class in units of its extent, (B, Q): at most 1 is inside.

    Extents are shrunk to the episode's common one, the more so the fewer examples a class has. Where nothing is known
    of extents, as with one example a class, it is the plain distance.
    """
    count = task.counts().to(task.query)
    grow = 1 + 1 / count.clamp(min=1)  # a new example misses the centre by more than the class scatters
    own = region.extent_radius**2 / grow
    spare = (count - 1).clamp(min=0)
    common = ((spare * own).sum(-1) / spare.sum(-1).clamp(min=1))[:, None]
    reach = _shrunk(own, common, count) * grow
    distance: Tensor = region.distance(task.query)  # (B, Q, N)
    return (distance / torch.where(common > 0, reach, 1.0).sqrt()[:, None]).amin(-1)


def rather_unseen(sphere: Sphere, task: Task) -> Tensor:
    """How much likelier a query (B, Q) is of a class not seen than of the likeliest one that is; 0 is as likely.

    `sphere` is of mode "bayes": scatter v, class centres of variance v / k about a middle m. An example of class n lies
    about its centre z_n with variance r_n = v_n (1 + 1 / (K_n + k)), one of another class about m with r = v (1 + 1/k);
    both are wider by what is not known of m. Minus the log likelihood ratio, but for a factor D / 2, is the least

        ||x - z_n||^2 / r_n + log r_n  -  ||x - m||^2 / r - log r

    With one example a class v is not known, but k is taken for its prior: the spread of the centres gives v.
    """
    count, k = task.counts().to(task.query), sphere.ratio[:, None]
    weight = count / (count + k)  # (B, N) how far a centre has come from the middle to its class's mean
    middle = sphere.center.mean(-2, keepdim=True)  # (B, 1, D): centres are shrunk to their own mean
    away = ((sphere.center - middle) ** 2).sum(-1) / weight.clamp(min=1e-6)  # a class without examples is at the middle
    spread = away.sum(-1, keepdim=True)
    guess = k * spread / max(1, task.way - 1)
    v = torch.where(sphere.scatter[:, None] > 0, sphere.scatter[:, None], torch.where(guess > 0, guess, 1.0))  # (B, 1)
    grow = 1 + 1 / (count + k)
    own = torch.where(sphere.scatter[:, None] > 0, sphere.extent_radius**2 / grow, v)
    unsure = v / k / weight.sum(-1, keepdim=True)  # variance of the middle
    reach = _shrunk(own, v, count) * grow + (1 - weight) ** 2 * unsure  # (B, N)
    anywhere = v + v / k + unsure  # (B, 1)
    near: Tensor = sphere.distance(task.query) ** 2 / reach[:, None] + reach.log()[:, None]  # (B, Q, N)
    far: Tensor = Sphere(middle, whiten=sphere.whiten).distance(task.query)[..., 0] ** 2 / anywhere + anywhere.log()
    return near.amin(-1) - far


def _shrunk(own: Tensor, common: Tensor, count: Tensor) -> Tensor:
    """Scatter of each class as far as its examples can tell, and the common one for the rest."""
    trust = (count - 1).clamp(min=0) / ((count - 1).clamp(min=0) + PRIOR_EXAMPLES)
    return trust * own + (1 - trust) * common
