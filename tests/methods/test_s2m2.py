"""S2M2: quarter turns and mixtures by hand, the losses as loops, what is encoded how often, and what is refused."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hyperproto.data import IntArray, Pool
from hyperproto.decisions import make_decision
from hyperproto.encoders import Encoder, Features, FeatureTransform, Units
from hyperproto.encoders.conv4 import Conv4
from hyperproto.encoders.identity import Identity
from hyperproto.episodes import BatchSampler, Episode, EpisodeSampler
from hyperproto.episodes.random import TRAINING, raw_words
from hyperproto.errors import ConfigError
from hyperproto.evaluation import EncodedPool, Predictor, score_episodes
from hyperproto.methods import TaskItems, gather_task, make_method, s2m2
from hyperproto.methods.s2m2 import S2M2, Mixing, mixed_vectors, turned
from hyperproto.recipes import Augmentation
from hyperproto.testing import PictureEncoder, check_method
from hyperproto.training import Learner, load_recipe
from tests.conftest import blobs
from tests.helpers.predicting import features_of

CLASSES = 5
PIXELS = np.random.default_rng(0).integers(0, 256, (40, 16, 16, 3), dtype=np.uint8)
POOL = Pool(PIXELS, np.arange(40) % CLASSES, tuple("abcde"))


def small(filters: int = 6, **options: Any) -> Features:
    torch.manual_seed(0)
    return Features(Conv4(channels=3, size=16, filters=filters), FeatureTransform("none", (filters,)), **options)


def build(n_classes: int = CLASSES, dim: int = 6, **options: Any) -> S2M2:
    torch.manual_seed(1)
    method = make_method("s2m2", feature_shape=(dim,), n_classes=n_classes, **options)
    assert isinstance(method, S2M2)
    method.setup(POOL, features_of(Identity(shape=[dim])))
    return method


def learner(features: Features, **options: Any) -> Learner:
    method = build(dim=features.feature_shape[0], **options)
    return Learner(features, method, make_decision(method, {})).train()


def losses(learner: Learner, episodes: list[Episode], pool: Pool = POOL) -> dict[str, Tensor]:
    """One step, as a data-parallel wrapper would call it."""
    parts: dict[str, Tensor] = learner(*learner.collate(pool, episodes))
    return parts


def batch_of(size: int) -> tuple[Tensor, Tensor]:
    """Images (n, C, S, S) and their labels."""
    return torch.from_numpy(PIXELS[:size]).permute(0, 3, 1, 2), torch.arange(size) % CLASSES


def mixing(share: float, layer: int, size: int) -> Mixing:
    return Mixing(share, layer, torch.randperm(size, generator=torch.Generator().manual_seed(3)))


def naive_cross_entropy(logits: Tensor, label: int) -> float:
    values: list[float] = logits.detach().tolist()
    top = max(values)
    return top + math.log(sum(math.exp(value - top) for value in values)) - values[label]


def test_quarter_turns_are_counter_clockwise_and_those_of_an_image_stand_together() -> None:
    image = torch.tensor([[1, 2], [3, 4]])[None, None]
    assert turned(image)[1, 0].tolist() == [[2, 4], [1, 3]]
    again = image
    for _ in range(4):
        again = turned(again)[1:2]
    assert torch.equal(again, image)
    images, _ = batch_of(3)
    found = turned(images)
    assert found.shape == (12, 3, 16, 16)
    for n in range(3):
        for turn in range(4):
            expected = np.rot90(images[n].numpy(), turn, (1, 2))
            assert np.array_equal(found[4 * n + turn].numpy(), expected)


@pytest.mark.parametrize("options", [{}, {"class_norm": True, "temperature": 0.5}, {"head": "linear"}])
def test_the_first_stage_as_a_loop(options: dict[str, Any]) -> None:
    """Each image in each turn, one by one: half the mean cross entropy over classes, and half that over turns."""
    features, method = small().eval(), build(**options)
    learned = learner(features, **options).eval()
    learned.method.load_state_dict(method.state_dict())
    [episode] = BatchSampler(POOL, size=6).draw(1)
    found = losses(learned, [episode])
    cls, turn = [], []
    scale = method.log_temperature.exp()
    assert method.turn_head is not None
    for item in episode.query:
        for k in range(4):
            image = np.rot90(PIXELS[item], k).copy()
            x = features(torch.from_numpy(image).permute(2, 0, 1)[None]).x[0]
            if method.head == "linear":
                scores = torch.stack([x @ w + b for w, b in zip(method.weight, method.bias, strict=True)])
            else:
                scores = torch.stack([x @ w / (x.norm() * w.norm()) for w in method.weight])
            if method.class_norm:
                scores = scores * method.norm
            cls.append(naive_cross_entropy(scores / scale, int(POOL.labels[item])))
            turn.append(naive_cross_entropy(method.turn_head(x), k))
    assert found.keys() == {"cls", "turn"}
    assert float(found["cls"].detach()) == pytest.approx(np.mean(cls) / 2, rel=1e-4)
    assert float(found["turn"].detach()) == pytest.approx(np.mean(turn) / 2, rel=1e-4)


def test_the_second_stage_as_a_loop() -> None:
    """What is drawn, in this order: the share, the layer, partners, and a quarter of the images to turn."""
    features = small().eval()
    learned = learner(features, mix=True).eval()
    method = learned.method
    assert isinstance(method, S2M2)
    [episode] = BatchSampler(POOL, size=9).draw(1)
    torch.manual_seed(5)
    found = losses(learned, [episode])
    torch.manual_seed(5)
    share = float(torch.distributions.Beta(2.0, 2.0).sample())
    layer, partner, some = int(torch.randint(5, ())), torch.randperm(9), torch.randperm(9)[:2]
    assert 0 < layer < 4  # within the network, where mixing is not the same as at either end
    images = features.encoder.centred(features.collate(PIXELS, episode.query))
    labels = POOL.labels[episode.query]
    blocks = features.encoder.stages()
    mixed = []
    for one, other in enumerate(partner.tolist()):
        own, others = images[one : one + 1], images[other : other + 1]
        for block in blocks[:layer]:
            own, others = block(own), block(others)
        x = share * own + (1 - share) * others
        for block in blocks[layer:]:
            x = block(x)
        logits = method.class_logits(x)[0]
        mixed.append(share * naive_cross_entropy(logits, labels[one]))
        mixed[-1] += (1 - share) * naive_cross_entropy(logits, labels[other])
    assert float(found["mix"].detach()) == pytest.approx(np.mean(mixed), rel=1e-4)
    batch = features.collate(PIXELS, episode.query[some.numpy()])
    expected = method.turn_losses(features, batch, torch.from_numpy(labels)[some])
    assert found.keys() == {"mix", "cls", "turn"}
    for key, part in expected.items():
        torch.testing.assert_close(found[key], part)


@pytest.mark.parametrize("layer", range(5))
def test_a_share_of_one_or_none_mixes_nothing(layer: int) -> None:
    features, method = small().train(), build(mix=True)
    batch, labels = batch_of(8)
    whole = mixing(1.0, layer, 8)

    def plain(batch: Tensor, labels: Tensor) -> Tensor:
        return nn.functional.cross_entropy(method.class_logits(features(batch).x), labels)

    torch.testing.assert_close(method.mix_loss(features, batch, labels, whole), plain(batch, labels))
    none = method.mix_loss(features, batch, labels, replace(whole, share=0.0))
    torch.testing.assert_close(none, plain(batch[whole.partner], labels[whole.partner]))


def test_a_linear_encoder_cannot_tell_mixed_inputs_from_mixed_outputs() -> None:
    features = features_of(PictureEncoder((24,)))
    batch = torch.randn(6, 6, 2, 2, generator=torch.Generator().manual_seed(0))
    drawn = mixing(0.3, 0, 6)
    outputs = features(batch).x
    expected = 0.3 * outputs + 0.7 * outputs[drawn.partner]
    torch.testing.assert_close(mixed_vectors(features, batch, drawn), expected)
    torch.testing.assert_close(mixed_vectors(features, batch, replace(drawn, layer=1)), expected)


def test_layers_are_drawn_alike_and_shares_from_beta() -> None:
    """As training seeds 4,000 steps: Pearson's statistic of 4 degrees of freedom is below 23.5 in 9,999 of 10,000."""
    drawn = []
    for step in range(4000):
        torch.default_generator.manual_seed(int(raw_words(0, TRAINING, step, 1, 1)[0, 0] >> 1))
        drawn.append(Mixing.draw(2.0, 5, 4))
    layers = np.bincount([each.layer for each in drawn], minlength=5)
    assert len(layers) == 5
    assert ((layers - 800) ** 2 / 800).sum() < 23.5
    shares = np.array([each.share for each in drawn])
    assert shares.mean() == pytest.approx(0.5, abs=0.015)
    assert shares.var() == pytest.approx(0.05, abs=0.004)  # of Beta(a, a): 1 / (4 (2 a + 1))
    firsts = np.bincount([int(each.partner[0]) for each in drawn], minlength=4)
    assert ((firsts - 1000) ** 2 / 1000).sum() < 21.1  # 3 degrees of freedom
    assert all(sorted(each.partner.tolist()) == [0, 1, 2, 3] for each in drawn)
    torch.manual_seed(0)
    wide = np.var([Mixing.draw(0.2, 5, 4).share for _ in range(2000)])
    assert wide == pytest.approx(1 / (4 * 1.4), abs=0.02)


@pytest.mark.parametrize("mix", [False, True])
def test_heads_at_zero_know_nothing(mix: bool) -> None:
    learned = learner(small(), n_classes=7, mix=mix, head="linear")
    with torch.no_grad():
        for parameter in learned.method.parameters():
            parameter.zero_()
    found = losses(learned, BatchSampler(POOL, size=8).draw(1))
    expected = {"mix": math.log(7), "cls": math.log(7) / 2, "turn": 0.693147}
    assert found.keys() == expected.keys() - (set() if mix else {"mix"})
    for key, part in found.items():
        assert float(part.detach()) == pytest.approx(expected[key], rel=1e-5)


def test_without_rotations() -> None:
    """Classification alone, or manifold mix-up alone; there is no turn head."""
    features = small()
    plain = learner(features, rotations=False)
    assert not any("turn" in name for name in plain.method.state_dict())
    [episode] = BatchSampler(POOL, size=8).draw(1)
    other = make_method("classifier", feature_shape=(6,), n_classes=CLASSES)
    state = plain.method.state_dict()
    other.load_state_dict({"log_temperature": state["log_temperature"], "weight": state["weight"]})
    same = Learner(features, other, make_decision(other, {})).train()
    found = losses(plain, [episode])
    assert found.keys() == {"cls"}
    torch.testing.assert_close(found["cls"], losses(same, [episode])["cls"])
    assert losses(learner(features, rotations=False, mix=True), [episode]).keys() == {"mix"}


@pytest.mark.parametrize(("mix", "sizes"), [(False, [36]), (True, [9, 8])])
def test_a_step_encodes_no_more_than_it_must(mix: bool, sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """One forward of 4 b images, or two of about b; images are augmented once each, before they are turned or mixed."""
    features = small(augmentation=Augmentation(crop=2, flip=True))
    learned = learner(features, mix=mix)
    forwards, augmented = [], []
    assert isinstance(features.encoder, Conv4)
    features.encoder.blocks[0].register_forward_hook(lambda module, given, x: forwards.append(len(x)))
    batch = Features.batch

    def watched(self: Features, prepared: Any, index: IntArray) -> Any:
        augmented.append(len(index))
        return batch(self, prepared, index)

    monkeypatch.setattr(Features, "batch", watched)
    learned.train()
    torch.autograd.backward(list(losses(learned, BatchSampler(POOL, size=9).draw(1)).values()))
    assert (forwards, augmented) == (sizes, [9])
    assert all(p.grad is not None and p.grad.isfinite().all() for p in learned.parameters() if p.requires_grad)


def test_episodes_of_unequal_length_are_one_batch() -> None:
    """Padding takes part in nothing, not even in batch norm; a query of no class has turns, but no class to learn."""
    features = small()
    rows, empty = np.array([3, 8, 9, 12, 20, 21]), np.zeros(0, np.int64)
    classes = np.arange(CLASSES)
    long = Episode(classes, empty, empty, rows[:4], POOL.labels[rows[:4]])
    short = Episode(classes[::-1].copy(), empty, empty, rows[4:], CLASSES - 1 - POOL.labels[rows[4:]])
    whole = Episode(classes, empty, empty, rows, POOL.labels[rows])
    learned = learner(features)
    for key, part in losses(learned, [long, short]).items():
        torch.testing.assert_close(part, losses(learned, [whole])[key])
    outside = replace(whole, query_y=np.where(np.arange(6) == 5, -1, POOL.labels[rows]))
    learned.eval()  # else batch norm sees it
    some = losses(learned, [replace(whole, query=rows[:5], query_y=POOL.labels[rows[:5]])])
    torch.testing.assert_close(losses(learned, [outside])["cls"], some["cls"])
    torch.testing.assert_close(losses(learned, [outside])["turn"], losses(learned, [whole])["turn"])


@pytest.mark.parametrize("mix", [False, True])
def test_evaluation_neither_turns_nor_mixes(mix: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores are those of cosine prototypes, of a pool that is encoded once."""
    for name in ("turned", "mixed_vectors"):
        monkeypatch.setattr(s2m2, name, None)
    encoder = small().encoder
    encoded = EncodedPool.encode(encoder, POOL)
    episodes = EpisodeSampler(POOL, way=3, shot=2, query=3).draw(4)
    found, expected = (
        [scores for _, scores in score_episodes(Predictor.of(method, encoder), encoded, episodes)]
        for method in (build(mix=mix), make_method("cosine", feature_shape=(6,)))
    )
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize(("mix", "steps"), [(False, 30), (True, 60)])
def test_it_learns_classes_and_turns(mix: bool, steps: int) -> None:
    """A square in a corner: its colour is the class, the corner tells the turn."""
    random = np.random.default_rng(0)
    labels = np.arange(40) % CLASSES
    colours = np.array([[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 0], [255, 255, 255]])
    pixels = random.integers(0, 40, (40, 16, 16, 3)).astype(np.uint8)
    pixels[:, :8, :8] = colours[labels][:, None, None]
    pool = Pool(pixels, labels, POOL.class_names)
    learned = learner(small(filters=24), mix=mix, learn_temperature=True)
    optimiser = torch.optim.Adam(learned.parameters(), lr=0.01)
    for step in range(steps):
        torch.default_generator.manual_seed(step)
        parts = losses(learned, BatchSampler(pool, size=16).draw(1, start=step), pool)
        optimiser.zero_grad()
        torch.autograd.backward(list(parts.values()))
        optimiser.step()
    assert float(parts["turn"].detach()) < 0.2  # 0.69 at chance
    assert float(parts["cls"].detach()) < 0.25  # 0.80 at chance


@pytest.mark.parametrize(
    "options",
    [
        {"mix": True},
        {"rotations": False},
        {"mix": True, "rotations": False, "head": "linear"},
        {"class_norm": True, "temperature": 0.5},
    ],
)
def test_it_keeps_the_contract_with_its_options(options: dict[str, Any]) -> None:
    check_method(S2M2, **options)


def test_a_mixed_step_stays_on_its_device() -> None:
    learned = learner(small(augmentation=Augmentation(crop=2)), mix=True).to("meta")
    parts = losses(learned, BatchSampler(POOL, size=8).draw(1))
    assert {part.device.type for part in parts.values()} == {"meta"}


def test_what_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"alpha 0\.0 must be a number above 0, such as 2\.0"):
        build(alpha=0.0)
    with pytest.raises(ConfigError, match="S2M2 reads vectors, but the encoder gives units of shape"):
        make_method("s2m2", feature_shape=(6, 2, 2), n_classes=3)
    three = BatchSampler(POOL, size=3).draw(1)
    with pytest.raises(ConfigError, match=r"of 3 images that is none; draw at least 4 .*, or set rotations = false"):
        losses(learner(small(), mix=True), three)
    losses(learner(small(), mix=True, rotations=False), three)
    losses(learner(small()), three)
    with pytest.raises(ConfigError, match="rotates and mixes the images themselves: the task has no items"):
        build().loss(gather_task(Units.one_each(torch.zeros(40, 6)), three))


def test_items_that_are_no_images_are_refused() -> None:
    def loss(encoder: Encoder, **options: Any) -> None:
        pool = blobs(n_classes=CLASSES)
        episodes = BatchSampler(pool, size=8).draw(1)
        losses(learner(features_of(encoder), **options), episodes, pool)

    with pytest.raises(ConfigError, match="rotates square images, but these items are others; set rotations = false"):
        loss(Identity(shape=[6]))
    with pytest.raises(
        ConfigError, match="Identity cannot be run stage by stage; choose an image encoder such as conv4"
    ):
        loss(Identity(shape=[6]), mix=True)
    loss(Identity(shape=[6]), rotations=False)
    items = TaskItems.of(features_of(Identity(shape=[6])), blobs(), BatchSampler(blobs(), size=8).draw(1))
    words = replace(items, offsets=2 * items.offsets)
    task = gather_task(items.units, BatchSampler(blobs(), size=8).draw(1), words)
    with pytest.raises(ConfigError, match="S2M2 classifies whole items; these have a label for each word"):
        build().loss(task)


def test_small_batches_are_refused_with_the_recipe() -> None:
    changes = ["method={name='s2m2', mix=true}", "batches.size=3"]
    with pytest.raises(ConfigError, match=r"batches\.size = 3: s2m2 needs batches of at least 4 with these options"):
        load_recipe("miniimagenet-conv4:classifier", changes)
    load_recipe("miniimagenet-conv4:classifier", ["method={name='s2m2', mix=true}", "batches.size=4"])
    load_recipe("miniimagenet-conv4:classifier", ["method={name='s2m2'}", "batches.size=3"])
