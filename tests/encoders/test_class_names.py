from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from hyperproto.data import Pool
from hyperproto.encoders import make_encoder
from hyperproto.encoders.class_names import NameEncoder
from hyperproto.encoders.identity import Identity
from hyperproto.encoders.parts.transformer import TransformerEncoder
from hyperproto.errors import ConfigError, DataError
from tests.conftest import blobs

TEXTS = ["king of the river", "a city", "paris"]


def pool_of(*classes: str) -> Pool:
    return Pool(np.zeros((len(classes), 2), np.float32), np.arange(len(classes)), classes)


def mean_state(encoder: TransformerEncoder, text: str) -> Tensor:
    pieces = torch.tensor([encoder.tokenizer(text)["input_ids"]])
    states, _ = encoder.hidden({"pieces": pieces, "lengths": torch.tensor([pieces.shape[1]])})
    return states[0].mean(0)


def test_a_frozen_encoder_gives_means_of_length_1(bert: str) -> None:
    reader = NameEncoder("labels", f"sentence-transformer:{bert}")
    found = reader.vectors(TEXTS)
    plain = make_encoder("sentence-transformer", {"model": bert})
    assert isinstance(plain, TransformerEncoder)
    for x, text in zip(found, TEXTS, strict=True):
        mean = mean_state(plain, text)
        assert torch.allclose(x, mean / mean.norm(), atol=1e-5)


def test_a_text_is_read_once(bert: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    encoded = NameEncoder._encoded

    def count(self: NameEncoder, texts: list[str]) -> Tensor:
        read.extend(texts)
        return encoded(self, texts)

    monkeypatch.setattr(NameEncoder, "_encoded", count)
    reader, pool = NameEncoder("labels", f"sentence-transformer:{bert}"), pool_of("a_city", "paris", "a-city")
    names = reader.of(pool, Identity(shape=[2]))
    x, has = names.of(torch.tensor([[2, 0], [1, 1]]))
    assert x.shape == (2, 2, 32)
    assert has.all()
    assert torch.equal(x[0, 0], x[0, 1])
    assert reader.of(pool, Identity(shape=[2])) is names
    names.read(["paris", "london"])
    assert read == ["a city", "paris", "london"]


def test_classes_without_a_name_are_zero_and_masked(bert: str, tmp_path: Path) -> None:
    path = tmp_path / "names.json"
    path.write_text('{"one": "the king"}')
    reader = NameEncoder(str(path), f"sentence-transformer:{bert}")
    x, has = reader.of(pool_of("zero", "one"), Identity(shape=[2])).of(torch.tensor([0, 1]))
    assert has.tolist() == [False, True]
    assert not x[0].any()
    assert x[1].norm() == pytest.approx(1.0)


def test_o_has_no_name(bert: str) -> None:
    items = [["anna", "met"]]
    pool = Pool(items, np.array([0, -1]), ("person",), offsets=np.array([0, 2]))
    names = NameEncoder("labels", f"sentence-transformer:{bert}").of(pool, Identity(shape=[2]))
    assert names.texts == ("person", None)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("token-transformer", {}),
        ("relation-transformer", {"representation": "mean"}),
        ("relation-transformer", {"representation": "pooled"}),
        ("relation-transformer", {"output": "maps"}),
    ],
)
def test_an_encoder_that_learns_reads_names_by_their_mean(bert: str, name: str, options: dict[str, str]) -> None:
    encoder = make_encoder(name, {"model": bert, "frozen": False, **options}).eval()
    assert isinstance(encoder, TransformerEncoder)
    found = encoder.read_texts(TEXTS)
    assert found.shape == (3, 32)
    for x, text in zip(found, TEXTS, strict=True):
        assert torch.allclose(x, mean_state(encoder, text), atol=1e-5)


@pytest.mark.parametrize(("representation", "frozen"), [("markers", False), ("entities", True)])
def test_names_of_relations_have_as_many_numbers_as_the_items(bert: str, representation: str, frozen: bool) -> None:
    options = {"model": bert, "frozen": frozen, "representation": representation}
    encoder = make_encoder("relation-transformer", options).eval()
    assert isinstance(encoder, TransformerEncoder)
    found = encoder.read_texts(TEXTS)
    assert found.shape == (3, *encoder.feature_shape)
    for x, text in zip(found, TEXTS, strict=True):
        mean = mean_state(encoder, text)
        pieces = torch.tensor([encoder.tokenizer(text)["input_ids"]])
        states, _ = encoder.hidden({"pieces": pieces, "lengths": torch.tensor([pieces.shape[1]])})
        expected = [states[0, 0], mean] if representation == "markers" else [mean] * 3
        assert torch.allclose(x, torch.cat(expected), atol=1e-5)


def test_many_texts_come_back_in_their_order_and_long_ones_are_cut(bert: str) -> None:
    encoder = make_encoder("relation-transformer", {"model": bert, "max_length": 12}).eval()
    texts = [" ".join(["king"] * (1 + n * 7 % 20)) for n in range(40)]
    alone = torch.cat([encoder.read_texts([text]) for text in texts])
    assert torch.allclose(encoder.read_texts(texts), alone, atol=1e-5)
    short, long = encoder.read_texts([" ".join(["king"] * n) for n in (10, 50)])
    assert torch.allclose(short, long, atol=1e-5)


def test_a_sentence_encoder_reads_names_as_it_reads_items(bert: str) -> None:
    encoder = make_encoder("sentence-transformer", {"model": bert, "prompt": "the ", "pooling": "max"}).eval()
    assert torch.allclose(encoder.read_texts(TEXTS), encoder.encode_all(encoder.prepare(TEXTS)).x, atol=1e-6)
    states = make_encoder("sentence-transformer", {"model": bert, "output": "maps"}).eval()
    assert states.read_texts(TEXTS).shape == (3, 32)


class CountingEncoder(Identity):
    """Reads texts by a weight that learns, and remembers which."""

    def __init__(self) -> None:
        super().__init__(shape=[2])
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.read: list[str] = []

    def read_texts(self, texts: Sequence[str]) -> Tensor:
        self.read += texts
        return self.weight * torch.tensor([[float(len(text)), 1.0] for text in texts])


def test_the_same_encoder_reads_drawn_names_with_gradients_and_all_of_them_once_without() -> None:
    encoder, pool = CountingEncoder(), pool_of("a", "bb", "ccc", "dddd")
    reader = NameEncoder("labels", "same")
    x, has = reader.of(pool, encoder).of(torch.tensor([[3, 1], [1, 3]]))
    assert encoder.read == ["bb", "dddd"]
    assert x[..., 0].tolist() == [[4, 2], [2, 4]]
    assert has.all()
    x.sum().backward()  # type: ignore[no-untyped-call]
    assert encoder.weight.grad is not None
    assert encoder.weight.grad.item() == 16

    names = reader.of(pool, encoder)
    encoder.read.clear()
    with torch.no_grad():
        names.of(torch.tensor([0]))
        names.of(torch.tensor([2, 3]))
        assert encoder.read == ["a", "bb", "ccc", "dddd"]
        encoder.weight.add_(1)
        assert names.of(torch.tensor([1]))[0][0, 0] == 2
        assert reader.of(pool, encoder).of(torch.tensor([1]))[0][0, 0] == 4  # read again: the encoder has learned


def test_what_cannot_read_a_text_is_refused() -> None:
    pool = blobs(2)
    with pytest.raises(
        ConfigError, match='Identity does not read plain texts; name a sentence encoder: encoder = "minilm" or "glove"'
    ):
        NameEncoder("labels").of(pool, Identity(shape=[6])).of(torch.tensor([0]))
    with pytest.raises(DataError, match=r"names of classes .*but the items are texts"):
        NameEncoder("labels", "conv4").of(pool, Identity(shape=[6])).of(torch.tensor([0]))


def test_token_states_are_no_vector_of_a_name(bert: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = NameEncoder("labels", f"sentence-transformer:{bert}")
    reader._reader = make_encoder("sentence-transformer", {"model": bert, "output": "maps"})
    with pytest.raises(ConfigError, match=r"gives a text units of shape \(\d+, 32\); choose an encoder of one vector"):
        reader.vectors(["paris"])
