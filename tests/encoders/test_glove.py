"""The mean of word vectors: as an encoder of texts, and as what reads the names of classes."""

from pathlib import Path

import numpy as np
import pytest
import torch

from hyperproto.data import Pool
from hyperproto.data.miniimagenet import NAMES
from hyperproto.encoders import make_encoder, resolve_encoder
from hyperproto.encoders.class_names import NameEncoder
from hyperproto.encoders.glove import GloVe
from hyperproto.encoders.identity import Identity
from hyperproto.errors import ConfigError, DataError

VECTORS = {"three": [1, 2], "toed": [3, 0], "sloth": [-1, 4], "o'neill": [5, 5], "7": [2, 2]}


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "vectors.txt"
    file.write_text("".join(f"{word} {x} {y}\n" for word, (x, y) in VECTORS.items()))
    return str(file)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("three-toed sloth", ["three", "toed", "sloth"]),
        ("Three_TOED/sloth", ["three", "toed", "sloth"]),
        ("sloth, sloth and O'Neill", ["sloth", "sloth", "o'neill"]),
        ("7 komondor", ["7"]),
        ("komondor", []),
        ("", []),
    ],
)
def test_a_text_is_the_mean_of_its_known_words(path: str, text: str, words: list[str]) -> None:
    expected = np.mean([VECTORS[word] for word in words], 0) if words else np.zeros(2)
    encoder = GloVe(vectors=path)
    for found in (encoder.read_texts([text]), encoder.encode_all(encoder.prepare([text])).x):
        assert torch.allclose(found, torch.tensor(expected[None], dtype=torch.float32))


def test_names_are_unit_vectors_or_zero(path: str) -> None:
    classes = ("n02457408", "n02105505", "002.Sloth_sloth", "n99999999")
    pool = Pool(np.zeros((4, 2), np.float32), np.arange(4), classes)
    x, has = NameEncoder("labels", f"glove:{path}").of(pool, Identity(shape=[2])).of(torch.arange(4))
    expected = torch.tensor([[3.0, 6.0], [-1.0, 4.0]])
    assert torch.allclose(x[[0, 2]], expected / expected.norm(dim=1, keepdim=True))
    assert not x[[1, 3]].any()  # a komondor, which no vector knows, and an unknown class
    assert has.tolist() == [True, True, True, False]


def test_other_items_than_texts_are_refused() -> None:
    pool = Pool(np.zeros((2, 3), np.float32), np.arange(2), ("a", "b"))
    with pytest.raises(DataError, match=r"glove reads texts, each a string, but the items are ndarray of shape \(3,\)"):
        resolve_encoder("glove", {}, pool)
    with pytest.raises(ConfigError, match=r"word vectors 'nowhere.txt': no such file or folder"):
        make_encoder("glove", {"vectors": "nowhere.txt"})


def test_glove_knows_miniimagenets_names() -> None:
    vectors = NameEncoder("labels", "glove").vectors(list(NAMES.values()))
    assert vectors.shape == (100, 50)
    unknown = [name for name, x in zip(NAMES.values(), vectors, strict=True) if not x.any()]
    assert unknown == ["komondor"]
    train = vectors[:64]
    between = (train @ train.T)[~torch.eye(64, dtype=torch.bool)]
    found = [round(float(value), 2) for value in (between.mean(), between.min(), between.max())]
    assert found == pytest.approx([0.14, -0.46, 0.73], abs=0.011)
