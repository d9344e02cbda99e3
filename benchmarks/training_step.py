"""A whole training step of HyperProto, against the bare forward and backward of its encoder on the same images."""

from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np
from torch import Tensor

from benchmarks.image_input import write_pictures
from benchmarks.measure import Measurement, Times, seconds
from hyperproto.data import open_pool
from hyperproto.encoders import Encoder, make_encoder, resolve_encoder
from hyperproto.episodes import EpisodeSampler
from hyperproto.training import Report, load_recipe, train

NEVER = 1_000_000  # steps between two validations or checkpoints: neither is part of a step


def training_step(quick: bool) -> list[Measurement]:
    """Time steps on 28 px glyphs, and on 84 px colour pictures with augmentation."""
    small = ["episodes.way=5"] if quick else []
    with TemporaryDirectory() as folder:
        write_pictures(Path(folder), classes=15 if quick else 30, each=25)
        pictures = [f"data.spec=folder:{folder},shares=2/1/0"]
        return [
            _step("glyphs:hyperproto", small, 3 if quick else 60, target=1.15),
            _step("miniimagenet-conv4:hyperproto", pictures + small, 3 if quick else 12, target=1 / 0.9),
        ]


def _step(name: str, overrides: list[str], repeats: int, target: float) -> Measurement:
    """Time the training loop between two calls of `on_step`; the baseline runs within these calls."""
    recipe = load_recipe(
        name,
        [
            f"training.steps={repeats + 2}",
            f"training.validate_every={NEVER}",
            f"training.checkpoint_every={NEVER}",
            "validation.episodes=2",
            *overrides,
        ],
    )
    recipe = recipe.model_copy(update={"start": None})
    task = recipe.episodes
    assert task is not None
    pool = open_pool(recipe.data.spec, recipe.data.split)
    sampler = EpisodeSampler(pool, way=int(task.way), shot=task.shot, query=task.query, seed=recipe.training.seed)
    encoder = make_encoder(*resolve_encoder(recipe.encoder.name, recipe.encoder.options, pool)).train()
    ours: list[float] = []
    baseline: list[float] = []
    resumed = perf_counter()

    def on_step(report: Report) -> None:
        nonlocal resumed
        ours.append(perf_counter() - resumed)
        episode = sampler[report.step - 1]  # the one that this step learned from
        images = encoder.collate(pool.items, np.concatenate([episode.support, episode.query]))
        encoder.zero_grad()
        baseline.append(seconds(lambda: _forward_backward(encoder, images)))
        resumed = perf_counter()

    with TemporaryDirectory() as folder:
        train(recipe, Path(folder) / "run", on_step)
    # The first step holds the initialisation, the last one the validation and the checkpoint that end a run.
    times = Times(ours[1:-1], baseline[1:-1])
    images_per_step = len(sampler[0].support) + len(sampler[0].query)
    side = pool.items.shape[1]
    name = f"training step, {side} px, {task.way}-way {task.shot}-shot"
    detail = {"recipe": recipe.name, "images": images_per_step, "query": task.query}
    return times.measurement(name, "forward and backward of the encoder", "<=", target, **detail)


def _forward_backward(encoder: Encoder, images: Tensor) -> None:
    encoder(images).x.sum().backward()
