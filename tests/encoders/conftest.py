"""Tiny language models and word vectors, made once for all tests of encoders."""

from pathlib import Path

import numpy as np
import pytest

from tests.helpers.tiny_models import WORDS, tiny_bert, tiny_roberta


@pytest.fixture(scope="session")
def bert(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a tiny BERT."""
    return str(tiny_bert(tmp_path_factory.mktemp("bert")))


@pytest.fixture(scope="session")
def roberta(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a tiny RoBERTa."""
    return str(tiny_roberta(tmp_path_factory.mktemp("roberta")))


@pytest.fixture(scope="session")
def word_vectors(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A text file of six numbers for each word that the tiny models know."""
    return str(write_vectors(tmp_path_factory.mktemp("words") / "vectors.txt", WORDS, 6))


def write_vectors(path: Path, words: list[str], size: int) -> Path:
    """Write words and random numbers, a word a line."""
    random = np.random.default_rng(0)
    path.write_text("".join(" ".join([word, *(f"{x:.4f}" for x in random.normal(size=size))]) + "\n" for word in words))
    return path
