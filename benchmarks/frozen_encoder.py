"""Training a head on stored vectors of a frozen encoder, against the same training with the encoder in the loop."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from benchmarks.image_input import write_pictures
from benchmarks.measure import Measurement, in_turns
from hyperproto.data import Pool, open_pool
from hyperproto.episodes import EpisodeSampler
from hyperproto.recipes import Recipe
from hyperproto.training import Learner, load_recipe
from hyperproto.training.resolve import resolve

HEADS = ("leo", "awgim")
TARGET = 20.0


def frozen_encoder(quick: bool) -> list[Measurement]:
    """Time steps of twelve 5-way 5-shot episodes with Conv4 on 84 px colour pictures."""
    with TemporaryDirectory() as folder:
        write_pictures(Path(folder), classes=10, each=25)
        data = f"data.spec=folder:{folder},shares=2/1/0"
        return [_head(head, data, quick) for head in HEADS]


def _head(head: str, data: str, quick: bool) -> Measurement:
    batch = 2 if quick else 12
    recipe = load_recipe(f"glyphs:{head}", [data, f"episodes.batch={batch}", "episodes.query=15"])
    pool = open_pool(recipe.data.spec, "train")
    task = recipe.episodes
    assert task is not None
    recipe = resolve(recipe, pool)
    ours, baseline = (_step(recipe, pool, stored) for stored in (True, False))
    times = in_turns(ours, baseline, 2 if quick else 3)
    images = batch * int(task.way) * (5 + task.query)
    measured = times.measurement(
        f"training {head} on stored vectors", "the same with the encoder in the loop", ">=", TARGET, images=images
    )
    measured.detail["episodes_a_second"] = round(batch / measured.ours_seconds, 1)
    return measured


def _step(recipe: Recipe, pool: Pool, stored: bool) -> Callable[[], None]:
    """Return a function that runs the next training step."""
    learner = Learner.build(recipe, pool.n_labels)
    task = recipe.episodes
    assert task is not None
    sampler = EpisodeSampler(pool, way=int(task.way), shot=task.shot, query=task.query)
    learner.setup(pool)
    if stored:
        learner.store(pool)
    learner.train()
    optimiser = torch.optim.Adam([p for p in learner.parameters() if p.requires_grad], 1e-3)
    done = 0

    def step() -> None:
        nonlocal done
        episodes = sampler.draw(task.batch, start=done)
        loss = torch.stack(list(learner(*learner.collate(pool, episodes)).values())).sum()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        done += task.batch

    return step
