import json
from pathlib import Path

import numpy as np
import pytest

from hyperproto.encoders.parts import word_vectors
from hyperproto.encoders.parts.word_vectors import load_word_vectors
from hyperproto.errors import ConfigError, DataError


def test_glove_comes_from_its_package() -> None:
    glove = load_word_vectors("glove")
    assert glove.vectors.shape == (400_000, 50)
    assert glove.vectors.dtype == np.float32
    assert [glove.rows[word] for word in ("the", ",", ".")] == [0, 1, 2]
    np.testing.assert_allclose(glove.vectors[0, :3], [0.418, 0.24968, -0.41242])  # as in glove.6B.50d.txt


def test_glove_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_vectors, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'hyperproto\[glove\]'"):
        load_word_vectors("glove")


@pytest.mark.parametrize("head", ["", "3 2\n"])
def test_text_files_with_and_without_a_head(tmp_path: Path, head: str) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text(f"{head}the 1 2\n, 3 4\nat name 5 6\n", encoding="utf-8")
    found = load_word_vectors(str(path))
    assert found.rows == {"the": 0, ",": 1, "at name": 2}  # GloVe 840B has words with spaces
    np.testing.assert_array_equal(found.vectors, [[1, 2], [3, 4], [5, 6]])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("the 1 2\nof x 2\n", "line 2: 'of x 2\\\\n' is not a word and 2 numbers"),
        ("the 1 2\nof\n", "line 2: 'of\\\\n' is not a word and 2 numbers"),
        ("", "no words in it"),
        ("word\n", "line 1: 'word\\\\n' is not a word and 0 numbers"),
    ],
)
def test_damaged_text_files(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text(text)
    with pytest.raises(DataError, match=words):
        load_word_vectors(str(path))


def test_the_toolkits_folder(tmp_path: Path) -> None:
    np.save(tmp_path / "glove_mat.npy", np.array([[1.0, 2.0], [3.0, 4.0]], np.float32))
    with pytest.raises(DataError, match=r"there is no glove_word2id.json"):
        load_word_vectors(str(tmp_path))
    (tmp_path / "glove_word2id.json").write_text(json.dumps({"of": 1, "the": 0}))
    found = load_word_vectors(str(tmp_path))
    assert found.rows == {"the": 0, "of": 1}
    np.testing.assert_array_equal(found.vectors[found.rows["of"]], [3, 4])
    (tmp_path / "glove_word2id.json").write_text(json.dumps({"of": 1, "the": 0, "a": 7}))
    with pytest.raises(DataError, match=r"a vector for word number 7 of glove_word2id.json is missing"):
        load_word_vectors(str(tmp_path))


def test_no_such_file() -> None:
    with pytest.raises(ConfigError, match=r"word vectors 'nowhere.txt': no such file or folder; name a text file"):
        load_word_vectors("nowhere.txt")


@pytest.mark.parametrize(
    ("matrix", "numbers", "words"),
    [
        (b"\x93NUMPY damaged", b'{"the": 0}', r"glove_mat.npy: not readable as an array of numbers .*; get it again"),
        (None, b"[" * 100_000, r"glove_word2id.json: lists or objects nested more than 100 deep"),
        (None, b'{"the": "0"}', r"glove_word2id.json: no table of words and their numbers"),
        (None, b'["the"]', r"glove_word2id.json: no table of words and their numbers"),
        (None, b'{"the": 1}', r"the vector of 'the' holds NaN or infinity"),
    ],
)
def test_damaged_files_of_the_toolkit(tmp_path: Path, matrix: bytes | None, numbers: bytes, words: str) -> None:
    np.save(tmp_path / "glove_mat.npy", np.array([[1.0, 2.0], [np.nan, 4.0]], np.float32))
    if matrix is not None:
        (tmp_path / "glove_mat.npy").write_bytes(matrix)
    (tmp_path / "glove_word2id.json").write_bytes(numbers)
    with pytest.raises(DataError, match=words):
        load_word_vectors(str(tmp_path))


def test_text_that_is_not_utf_8_is_named_by_its_line(tmp_path: Path) -> None:
    (tmp_path / "vectors.txt").write_bytes(b"the 1 2\ncaf\xe9 3 4\n")
    with pytest.raises(DataError, match=r"vectors.txt, line 2: not UTF-8 text .*; save the file as UTF-8"):
        load_word_vectors(str(tmp_path / "vectors.txt"))
