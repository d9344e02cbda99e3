"""Feature maps and token states: what the vectors are made from, padded and masked; and encoders run stage by stage."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from hyperproto.data import Pool
from hyperproto.data.formats.relations import Relation
from hyperproto.encoders import Encoder, Features, FeatureTransform, Units, base, make_encoder, resolve_encoder
from hyperproto.encoders.parts import cache
from hyperproto.encoders.parts.image_networks import ImageNetwork
from hyperproto.encoders.relation_cnn import RelationCNN
from hyperproto.encoders.relation_transformer import RelationTransformer
from hyperproto.encoders.sentence_transformer import SentenceTransformer
from hyperproto.errors import ConfigError
from hyperproto.evaluation import EncodedPool

RELATIONS: list[Relation] = [
    {"tokens": ["anna", "was", "born", "in", "paris", ",", "the", "city", "of", "kings"], "head": [0], "tail": [4]},
    {"tokens": ["bob"], "head": [0], "tail": [0]},
    {"tokens": ["the", "queen", "met", "bob", "in", "london"], "head": [1], "tail": [3]},
    {"tokens": ["a", "king"], "head": [1], "tail": [0]},
    {"tokens": ["in", "the", "city", "anna", "met", "the", "queen", "of", "the", "river"], "head": [3], "tail": [6]},
]


def image_pair(name: str, size: int, **options: Any) -> tuple[ImageNetwork, ImageNetwork, Tensor]:
    """The same network with vectors and with maps, in eval mode, and a batch."""
    made = []
    for output in ("vectors", "maps"):
        torch.manual_seed(0)
        encoder = make_encoder(name, {"channels": 3, "size": size, "output": output, **options}).eval()
        assert isinstance(encoder, ImageNetwork)
        made.append(encoder)
    images = np.random.default_rng(0).integers(0, 256, (3, size, size, 3), dtype=np.uint8)
    return made[0], made[1], made[0].collate(images, np.arange(3))


@torch.no_grad()
@pytest.mark.parametrize(("size", "poolings", "side"), [(28, 4, 1), (84, 4, 5), (28, 2, 7), (84, 2, 21), (5, 2, 1)])
def test_conv4s_vectors_are_its_maps_in_a_row(size: int, poolings: int, side: int) -> None:
    vectors, maps, batch = image_pair("conv4", size, poolings=poolings, filters=8)
    assert maps.feature_shape == (8, side, side)
    assert vectors.feature_shape == (8 * side * side,)
    found = maps(batch)
    assert found.mask is None
    assert found.x.shape == (3, 8, side, side)
    assert torch.equal(found.x.flatten(1), vectors(batch).x)


@torch.no_grad()
def test_conv4_without_its_last_relu_keeps_the_signs() -> None:
    plain, _, batch = image_pair("conv4", 28, filters=8)
    signed, _, _ = image_pair("conv4", 28, filters=8, last_relu=False)
    vectors = signed(batch).x
    assert (vectors < 0).any()
    torch.testing.assert_close(plain(batch).x, vectors.clamp(min=0))


def test_conv4_with_two_poolings_is_relationnets_encoder() -> None:
    """Four blocks of convolution, norm and ReLU, of which the first two pool; weights keep their names."""
    _, maps, batch = image_pair("conv4", 28, poolings=2)
    assert maps.state_dict().keys() == make_encoder("conv4", {"channels": 3, "size": 28}).state_dict().keys()
    x = batch.float() / 127.5 - 1
    for n, block in enumerate(maps.blocks):  # type: ignore[arg-type] # a Sequential
        x = torch.relu(block[1](block[0](x)))
        x = torch.max_pool2d(x, 2) if n < 2 else x
    torch.testing.assert_close(maps(batch).x, x)


def test_sizes_that_vanish_are_refused_by_the_number_of_poolings() -> None:
    with pytest.raises(ConfigError, match="conv4: images of 3 px vanish in 2 poolings; use at least 4 px"):
        make_encoder("conv4", {"size": 3, "poolings": 2})
    pool = Pool(np.zeros((2, 28, 28), np.uint8), np.zeros(2, int), ("a",))
    with pytest.raises(ConfigError, match="encoder 'conv4', option 'poolings': 3 is not valid"):
        resolve_encoder("conv4", {"poolings": 3}, pool)
    with pytest.raises(ConfigError, match="encoder 'resnet12', option 'output': 'map' is not valid"):
        resolve_encoder("resnet12", {"output": "map"}, pool)


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "size", "shape"),
    [
        ("resnet12", 33, (512, 2, 2)),
        ("resnet18", 65, (512, 3, 3)),
        ("wrn28_10", 9, (640, 3, 3)),
    ],
)
def test_a_residual_networks_vectors_are_the_means_of_its_maps(
    name: str, size: int, shape: tuple[int, int, int]
) -> None:
    vectors, maps, batch = image_pair(name, size)
    assert maps.feature_shape == shape
    assert maps.state_dict().keys() == vectors.state_dict().keys()
    found = maps(batch)
    assert found.mask is None
    assert found.x.shape == (3, *shape)
    assert found.x.is_contiguous()
    torch.testing.assert_close(found.x.mean((2, 3)), vectors(batch).x)


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "size", "sides"),
    [
        ("conv4", 20, [10, 5, 2, 1]),
        ("resnet12", 20, [10, 5, 2, 1]),
        ("resnet18", 20, [5, 3, 2, 1]),
        ("wrn28_10", 8, [8, 4, 2]),
    ],
)
def test_stages_one_after_another_are_the_network(name: str, size: int, sides: list[int]) -> None:
    encoder, maps, batch = image_pair(name, size)
    x, found = encoder.centred(batch), []
    *stages, last = encoder.stages()
    for stage in stages:
        x = stage(x)
        found.append(x.shape[-1])
    assert found == sides
    torch.testing.assert_close(last(x), encoder(batch).x)
    torch.testing.assert_close(maps.stages()[-1](x), maps(batch).x)
    own = {id(p) for p in encoder.parameters()}
    assert {id(p) for stage in (*stages, last) for p in stage.parameters()} == own  # the encoder's own, all of them


def cnn(word_vectors: str, output: str, **options: Any) -> RelationCNN:
    torch.manual_seed(0)
    encoder = make_encoder("relation-cnn", {"vectors": word_vectors, "filters": 7, "output": output, **options})
    assert isinstance(encoder, RelationCNN)
    return encoder.eval()


@torch.no_grad()
def test_the_cnns_vector_is_the_maximum_of_its_map_and_that_convolves_its_embeddings(
    word_vectors: str,
) -> None:
    encoders = {output: cnn(word_vectors, output) for output in ("vectors", "maps", "embeddings")}
    assert [encoder.feature_shape for encoder in encoders.values()] == [(7,), (-1, 7), (-1, 16)]
    prepared = encoders["maps"].prepare(RELATIONS)
    units = {output: encoder.encode_all(prepared) for output, encoder in encoders.items()}
    for n, item in enumerate(RELATIONS):
        length = len(item["tokens"])
        states, embedded = (_real(units[output], n) for output in ("maps", "embeddings"))
        assert states.shape == (length, 7)
        assert embedded.shape == (length, 16)
        torch.testing.assert_close(states.max(0).values.relu(), units["vectors"].x[n])
        torch.testing.assert_close(encoders["maps"].convolution(embedded.T).T, states)
    assert (units["maps"].x < 0).any()  # no ReLU


def text_pair(bert: str, name: str, **options: Any) -> tuple[Encoder, Encoder]:
    made = []
    for extra in ({"representation": "mean"} if name == "relation-transformer" else {}, {"output": "maps"}):
        torch.manual_seed(0)
        made.append(make_encoder(name, {"model": bert, **extra, **options}).eval())
    return made[0], made[1]


@torch.no_grad()
@pytest.mark.parametrize("name", ["relation-transformer", "sentence-transformer"])
def test_a_texts_mean_vector_is_the_mean_of_its_real_states(name: str, bert: str) -> None:
    vectors, maps = text_pair(bert, name)
    items: list[Any] = [" ".join(item["tokens"]) for item in RELATIONS] if "sentence" in name else list(RELATIONS)
    assert maps.feature_shape == (-1, *vectors.feature_shape) == (-1, 32)
    prepared = maps.prepare(items)
    states, x = maps.encode_all(prepared), vectors.encode_all(prepared).x
    lengths = maps.lengths(prepared)
    assert lengths is not None
    for n, length in enumerate(lengths.tolist()):
        assert _real(states, n).shape == (length, 32)
        torch.testing.assert_close(_real(states, n).mean(0), x[n], rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_the_states_at_the_markers_are_the_markers_vector(bert: str) -> None:
    vectors, maps = (
        make_encoder("relation-transformer", {"model": bert, "frozen": False, **options}).eval()
        for options in ({"representation": "markers"}, {"output": "maps"})
    )
    maps.load_state_dict(vectors.state_dict())
    prepared = maps.prepare(RELATIONS)
    states, x = maps.encode_all(prepared), vectors.encode_all(prepared).x
    for n, starts in enumerate(prepared.starts.tolist()):
        torch.testing.assert_close(_real(states, n)[starts].flatten(), x[n], rtol=1e-4, atol=1e-5)


def test_a_representation_has_no_part_in_maps(bert: str) -> None:
    with pytest.raises(ConfigError, match=r"output 'maps' returns the state at every piece, .* 'pooler' has no effect"):
        RelationTransformer(model=bert, output="maps", representation="pooler")


def test_dropout_falls_on_maps_in_training_only(bert: str, word_vectors: str) -> None:
    learning = RelationTransformer(model=bert, output="maps", frozen=False, dropout=0.5)
    encoders: tuple[Encoder, ...] = (
        learning,
        cnn(word_vectors, "maps", dropout=0.5),
        cnn(word_vectors, "embeddings", dropout=0.5),
    )
    for encoder in encoders:
        batch = encoder.collate(encoder.prepare(RELATIONS), np.arange(5))
        units: Units = encoder.train()(batch)
        assert units.mask is not None
        assert 0.3 < float((units.x[units.mask] == 0).double().mean()) < 0.7
        assert units.x.requires_grad
        assert not bool((encoder.eval()(batch).x[units.mask] == 0).any())


def test_input_dropout_falls_on_what_the_filters_read_in_training_only(word_vectors: str) -> None:
    encoder, plain = cnn(word_vectors, "maps", input_dropout=0.9), cnn(word_vectors, "maps")
    batch = encoder.collate(encoder.prepare(RELATIONS), np.arange(5))
    assert torch.equal(encoder(batch).x, plain(batch).x)
    units: Units = encoder.train()(batch)
    assert units.mask is not None
    assert not bool((units.x[units.mask] == 0).any())  # nothing falls behind the filters
    assert not torch.equal(units.x, plain.train()(batch).x)


@torch.no_grad()
@pytest.mark.parametrize("batch", [1, 2, 64])
def test_batches_of_different_lengths_are_encoded_alike_and_padding_never_leaks(
    batch: int, bert: str, word_vectors: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "BATCH", batch)
    encoders: list[tuple[Encoder, list[Any]]] = [
        (cnn(word_vectors, "maps"), list(RELATIONS)),
        (cnn(word_vectors, "embeddings"), list(RELATIONS)),
        (RelationTransformer(model=bert, output="maps"), list(RELATIONS)),
        (SentenceTransformer(model=bert, output="maps"), [" ".join(item["tokens"]) for item in RELATIONS]),
    ]
    for encoder, items in encoders:
        prepared = encoder.prepare(items)
        lengths = encoder.lengths(prepared)
        assert lengths is not None
        units = encoder.encode_all(prepared)
        assert units.mask is not None
        assert units.x.shape[:2] == units.mask.shape == (5, lengths.max())
        assert units.mask.sum(1).tolist() == lengths.tolist()
        assert not units.x[~units.mask].any()
        for n in range(5):
            alone: Units = encoder.eval()(encoder.collate(prepared, np.array([n])))
            torch.testing.assert_close(_real(units, n), alone.x[0], rtol=1e-4, atol=1e-5)


def test_masks_pass_through_features_and_are_kept_on_disk(
    word_vectors: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    encoder = cnn(word_vectors, "maps")
    features = Features(encoder, FeatureTransform("none", encoder.feature_shape))
    pool = Pool(RELATIONS, np.zeros(5, int), ("a",))
    units: Units = features(features.collate(features.prepared(pool), np.arange(5)))
    assert units.mask is not None
    assert units.mask.sum(1).tolist() == [10, 1, 6, 2, 10]
    monkeypatch.setenv("HYPERPROTO_CACHE", str(tmp_path))
    monkeypatch.setattr(cache, "MIN_SECONDS", 0.0)
    first = EncodedPool.encode(encoder, pool, cached=True).units
    monkeypatch.setattr(RelationCNN, "forward", lambda *_: pytest.fail("again"))
    again = EncodedPool.encode(encoder, pool, cached=True).units
    assert first.mask is not None
    assert again.mask is not None
    assert again.mask.dtype == torch.bool
    assert torch.equal(again.mask, first.mask)
    assert torch.equal(again.x, first.x)


def _real(units: Units, row: int) -> Tensor:
    """One unit without its padding."""
    assert units.mask is not None
    return units.x[row][units.mask[row]]
