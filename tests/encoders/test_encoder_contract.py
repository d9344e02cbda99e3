"""`check_encoder`: every encoder that can be made here passes it, and each break of the contract is named."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hyperproto.data import IntArray, Pool
from hyperproto.data.formats.relations import Relation
from hyperproto.encoders import ENCODERS, Encoder, Units
from hyperproto.encoders.conv4 import Conv4
from hyperproto.testing import check_encoder

RELATIONS: list[Relation] = [
    {"tokens": ["anna", "was", "born", "in", "paris"], "head": [0], "tail": [4]},
    {"tokens": ["bob"], "head": [0], "tail": [0]},
    {"tokens": ["the", "queen", "met", "bob", "in", "the", "city", "of", "london"], "head": [1], "tail": [3]},
]
TEXTS = ["anna was born in paris", "bob", "the queen met bob in the city of london"]
SENTENCES = [item["tokens"] for item in RELATIONS]


def images(side: int, channels: int = 3) -> Any:
    return np.random.default_rng(0).integers(0, 256, (4, side, side, channels), dtype=np.uint8)


@pytest.mark.parametrize(
    ("name", "side", "output"),
    [
        ("conv4", 28, "vectors"),
        ("conv4", 28, "maps"),
        ("resnet12", 20, "vectors"),
        ("resnet18", 20, "maps"),
        ("wrn28_10", 3, "vectors"),
    ],
)
def test_image_encoders(name: str, side: int, output: str) -> None:
    check_encoder(ENCODERS.get(name), images(side), output=output)


def test_conv4_with_two_poolings() -> None:
    check_encoder(ENCODERS.get("conv4"), images(12), poolings=2, output="maps")


def test_ready_made_encoders() -> None:
    check_encoder(ENCODERS.get("identity"), np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32))
    pytest.importorskip("efficientnet_lite_pytorch")
    check_encoder(ENCODERS.get("efficientnet-lite0"), images(32), resolution=32)


@pytest.mark.parametrize("output", ["vectors", "maps", "embeddings"])
@pytest.mark.parametrize("learn_words", [True, False])
def test_relation_cnn(output: str, learn_words: bool, word_vectors: str) -> None:
    cls = ENCODERS.get("relation-cnn")
    check_encoder(cls, RELATIONS, vectors=word_vectors, filters=5, output=output, learn_words=learn_words, dropout=0.1)


def test_glove(word_vectors: str) -> None:
    check_encoder(ENCODERS.get("glove"), TEXTS, vectors=word_vectors)


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("output", ["vectors", "maps"])
def test_transformers(frozen: bool, output: str, bert: str) -> None:
    options = {"model": bert, "frozen": frozen}
    check_encoder(ENCODERS.get("relation-transformer"), RELATIONS, output=output, **options)
    check_encoder(ENCODERS.get("sentence-transformer"), TEXTS, output=output, **options)
    if output == "vectors":
        offsets = np.cumsum([0, *map(len, SENTENCES)])
        words = Pool(SENTENCES, np.zeros(offsets[-1], int), ("a",), offsets=offsets)
        check_encoder(ENCODERS.get("token-transformer"), words, max_length=8, **options)


class Sums(Encoder):
    """Texts of letters to the sum of their embeddings: right, and short enough to be broken in one line."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(256, 3)
        self.feature_shape = (3,)

    def prepare(self, items: Any) -> list[list[int]]:
        return [list(text.encode()) for text in items]

    def collate(self, prepared: list[list[int]], index: IntArray) -> list[Tensor]:
        return [torch.tensor(prepared[i]) for i in index.tolist()]

    def forward(self, batch: list[Tensor]) -> Units:
        return Units.one_each(torch.stack([self.table(letters).sum(0) for letters in batch]))


class States(Sums):
    """The same, letter by letter."""

    def __init__(self) -> None:
        super().__init__()
        self.feature_shape = (-1, 3)

    def forward(self, batch: list[Tensor]) -> Units:
        blocks = [self.table(letters)[None] for letters in batch]
        return Units.concatenated([Units.one_each(x, torch.ones(x.shape[:2], dtype=torch.bool)) for x in blocks])


Forward = Callable[[Any, list[Tensor]], Units]


def changed(base: type[Encoder], **members: Any) -> Encoder:
    made: type[Encoder] = type("Changed", (base,), members)
    return made()


def after(change: Callable[[Units], Units], base: type[Encoder] = Sums) -> Forward:
    return lambda self, batch: change(base.forward(self, batch))


def test_two_short_encoders_pass() -> None:
    check_encoder(Sums, TEXTS)
    check_encoder(States(), TEXTS)


def vectors_of_the_batch(units: Units) -> Units:
    return Units.one_each(units.x - units.x.mean(0))


def vectors_of_places(units: Units) -> Units:
    return Units.one_each(units.x + torch.arange(len(units.x))[:, None])


def unmasked(units: Units) -> Units:
    return Units.one_each(units.x)


def noise_in_padding(units: Units) -> Units:
    assert units.mask is not None
    return Units.one_each(units.x.masked_fill(~units.mask[..., None], 1.0), units.mask)


def real_positions_last(units: Units) -> Units:
    assert units.mask is not None
    return Units.one_each(units.x.flip(1), units.mask.flip(1))


@pytest.mark.parametrize(
    ("encoder", "problem"),
    [
        (lambda: changed(Sums, forward=after(vectors_of_places)), "depend on its position in the batch"),
        (
            lambda: changed(Sums, forward=after(vectors_of_the_batch)),
            "item 0 has other vectors alone than",
        ),
        (lambda: changed(Sums, forward=after(lambda u: Units.one_each(u.x + torch.rand(())))), "the same batch"),
        (lambda: changed(Sums, forward=after(lambda u: Units.one_each(u.x[:, :2]))), r"shape \(2,\), but .* is \(3,\)"),
        (lambda: changed(Sums, forward=after(lambda u: Units.one_each(u.x.long()))), "must be of floats"),
        (lambda: changed(Sums, forward=after(lambda u: Units.one_each(u.x / 0 * 0))), "holds NaN or infinity"),
        (lambda: changed(Sums, forward=after(lambda u: Units(u.x, u.offsets + 1))), "offsets .* do not rise from 0"),
        (lambda: changed(Sums, forward=after(lambda u: Units.one_each(u.x.detach()))), "no gradient reaches"),
        (lambda: changed(Sums, forward=lambda self, batch: Sums.forward(self, batch).x), "it must return Units"),
        (lambda: changed(Sums, prepare=lambda self, items: Sums.prepare(self, items)[:2]), "made 2 items of 3"),
        (
            lambda: changed(Sums, encode_all=lambda self, p: self.encode(p, np.array([1, 0, 2]))),
            "encode_all gives",
        ),
        (
            lambda: changed(Sums, options_for=classmethod(lambda cls, pool: {"size": 3})),
            r"options_for returns \['size'\]",
        ),
        (lambda: changed(Sums, lengths=lambda self, prepared: np.arange(2)), "lengths must be None or one number"),
        (lambda: changed(Conv4, stages=lambda self: Conv4.stages(self)[:-1]), "stages, one after another"),
        (lambda: changed(Sums, param_groups=lambda self: {"words": []}), "param_groups are"),
        (lambda: changed(States, forward=after(unmasked, States)), "a mask goes with feature_shape"),
        (lambda: changed(States, forward=after(noise_in_padding, States)), "padded positions of x must hold 0"),
        (lambda: changed(States, forward=after(real_positions_last, States)), "real positions must come first"),
    ],
)
def test_each_break_of_the_contract_is_named(encoder: Callable[[], Encoder], problem: str) -> None:
    broken = encoder()
    with pytest.raises(AssertionError, match=problem):
        check_encoder(broken, images(28, 1)[..., 0] if isinstance(broken, Conv4) else TEXTS)


class Loose(Sums):
    """Holds weights that `state_dict` does not know."""

    def __init__(self) -> None:
        super().__init__()
        self.loose = torch.rand(3)

    def forward(self, batch: list[Tensor]) -> Units:
        return Units.one_each(super().forward(batch).x + self.loose)


def test_weights_that_are_not_saved_are_found() -> None:
    with pytest.raises(AssertionError, match="weights that were saved and loaded give other vectors: state_dict lacks"):
        check_encoder(Loose, TEXTS)


def test_two_items_are_too_few() -> None:
    with pytest.raises(AssertionError, match="2 items; give at least three that differ"):
        check_encoder(Sums(), TEXTS[:2])


def test_the_mode_and_the_weights_are_as_before() -> None:
    encoder = ENCODERS.get("conv4")(channels=3, size=28).train()
    before = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    check_encoder(encoder, images(28))
    assert encoder.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in encoder.state_dict().items())
