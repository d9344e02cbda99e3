"""A training step of MAML, against the bare passes of its encoder over the same images.

The bare passes are a forward and a backward of the support for each inner step, and one of support and queries: no
head, no loss, no weights that move.
"""

import numpy as np
import torch

from benchmarks.measure import Measurement, in_turns
from hyperproto.data import Pool
from hyperproto.encoders import Features, FeatureTransform
from hyperproto.encoders.conv4 import Conv4
from hyperproto.episodes import EpisodeSampler
from hyperproto.methods import TaskItems, gather_task, make_method

WAY, QUERY, STEPS = 5, 15, 5
TARGETS = {1: 1.3, 2: 4.0}  # by order


def maml(quick: bool) -> list[Measurement]:
    """Time steps of both orders on 84 px colour images, with the published encoder, at 1 and at 5 shots."""
    size, filters = (28, 4) if quick else (84, 32)
    torch.manual_seed(0)
    labels = np.repeat(np.arange(WAY), 2 * QUERY)
    pixels = np.random.default_rng(0).integers(0, 256, (len(labels), size, size, 3), dtype=np.uint8)
    pool = Pool(pixels, labels, tuple("abcde"))
    encoder = Conv4(channels=3, size=size, filters=filters)
    return [_step(encoder, pool, shot, order, 2 if quick else 8) for shot in (1, 5) for order in TARGETS]


def _step(encoder: Conv4, pool: Pool, shot: int, order: int, repeats: int) -> Measurement:
    features = Features(encoder, FeatureTransform("none", encoder.feature_shape)).train()
    [episode] = EpisodeSampler(pool, way=WAY, shot=shot, query=QUERY).draw(1)
    items = TaskItems.of(features, pool, [episode])
    task = gather_task(items.units, [episode], items)
    method = make_method("maml", feature_shape=encoder.feature_shape, way=WAY, order=order, steps=STEPS).train()
    support = items.batch(episode.support)
    every = items.batch(np.concatenate([episode.support, episode.query]))

    def ours() -> None:
        features.zero_grad()
        method.zero_grad()
        torch.autograd.backward(method.loss(task)["cls"])

    def bare() -> None:
        features.zero_grad()
        for images in (*[support] * STEPS, every):
            torch.autograd.backward(features(images).x.sum())

    name = f"MAML step, order {order}, {pool.items.shape[1]} px, {WAY}-way {shot}-shot"
    baseline = f"{STEPS} + 1 forwards and backwards of the encoder"
    detail = {"images": len(every), "inner_steps": STEPS}
    return in_turns(ours, bare, repeats).measurement(name, baseline, "<=", TARGETS[order], **detail)
