"""Spheres score by one matrix product: minus the measure, up to a term that all classes share."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from hyperproto.methods.task import Task
from hyperproto.regions import Sphere


def linear_scores(task: Task, fit: Callable[[Task], Sphere]) -> Tensor:
    """Fit spheres to a task and score the queries, (B, Q, N).

    The spheres are fitted around the support's middle, so that their weights are small however far away the origin is;
    the queries, most of the data, need not move for that: the bias does.
    """
    middle = task.middle()  # (B, 1, D)
    unlabelled = None if task.unlabelled is None else task.unlabelled - middle
    form = fit(replace(task, support=task.support - middle, unlabelled=unlabelled)).linear().shifted(middle)
    return torch.baddbmm(form.bias[:, None, :], task.query, form.weights)
