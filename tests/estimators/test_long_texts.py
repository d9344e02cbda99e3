"""Texts longer than the encoder reads: cut by default, or read as overlapping windows whose vectors are pooled."""

import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from typer.testing import CliRunner

import hyperproto
from hyperproto import FewShotTextClassifier, TextEncoder, load_classifier
from hyperproto.cli import app
from hyperproto.encoders import make_encoder
from hyperproto.encoders.sentence_transformer import SentenceTransformer
from hyperproto.errors import ConfigError, DataError
from hyperproto.windows import pooled_windows, text_windows
from tests.helpers.tiny_models import WORDS, tiny_bert

SHORT = "anna met bob"
LONG = "the king was born in paris. the queen of london met anna in a city of the river, and bob was in paris"


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_bert(tmp_path_factory.mktemp("bert")))


def reader(bert: str, **options: Any) -> SentenceTransformer:
    encoder = make_encoder("sentence-transformer", {"model": bert, "max_length": 12, **options})
    assert isinstance(encoder, SentenceTransformer)
    return encoder


def windows_of(encoder: SentenceTransformer, texts: list[str]) -> list[list[str]]:
    tokenizer = encoder.tokenizer.backend_tokenizer
    return text_windows(tokenizer, texts, encoder.room, encoder.prompt, encoder.lower_case)


def pieces(encoder: SentenceTransformer, text: str) -> list[int]:
    found: list[int] = encoder.tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).ids
    return found


def test_the_default_cuts_and_names_the_option(bert: str) -> None:
    with pytest.warns(UserWarning, match=r"1 of 2 .* the beginnings were kept; long='windows' reads whole texts"):
        cut = TextEncoder(bert, max_length=12, cache=False).transform([SHORT, LONG])
    encoder = TextEncoder(bert, max_length=12)
    assert encoder.get_params()["long"] == "truncate"
    assert "long" not in encoder.identity["options"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        whole = TextEncoder(bert, max_length=12, long="windows").transform([SHORT, LONG])
    np.testing.assert_allclose(whole[0], cut[0], atol=1e-6)
    assert np.abs(whole[1] - cut[1]).max() > 1e-3


def test_windows_are_encoded_as_texts_and_their_vectors_averaged(bert: str) -> None:
    windows = windows_of(reader(bert), [LONG, SHORT])
    assert windows[1] == [SHORT]
    assert len(windows[0]) > 3
    each = TextEncoder(bert, max_length=12).transform(windows[0]).astype(np.float64)
    mean = TextEncoder(bert, max_length=12, long="windows").transform([SHORT, LONG])[1]
    np.testing.assert_allclose(mean, each.mean(0), atol=1e-6)
    closest = max(each, key=lambda x: x @ each.mean(0) / np.linalg.norm(x))
    typical = TextEncoder(bert, max_length=12, long="typical").transform([LONG])[0]
    np.testing.assert_allclose(typical, closest, atol=1e-6)


def test_a_mean_of_vectors_of_length_1_has_length_1() -> None:
    x = np.array([[1, 0], [0, 1], [0.6, 0.8]], np.float32)
    np.testing.assert_allclose(np.linalg.norm(pooled_windows(x, "windows")), 1, rtol=1e-6)
    np.testing.assert_allclose(pooled_windows(2 * x, "windows"), 2 * x.mean(0))
    np.testing.assert_array_equal(pooled_windows(x, "typical"), x[2])


@given(st.lists(st.sampled_from([*WORDS, "xylophone", "zx,", "b.c", "\n", "é"]), min_size=1, max_size=80))
@settings(max_examples=40, deadline=None)
def test_windows_hold_every_word_and_are_never_cut(bert: str, words: list[str]) -> None:
    encoder, text = reader(bert), " ".join(words)
    [windows] = windows_of(encoder, [text])
    if len(pieces(encoder, text)) <= encoder.room:
        assert windows == [text]
        return
    assert all(len(pieces(encoder, window)) <= encoder.room for window in windows)
    covered, begin = 0, 0
    for window in windows:  # in order, each begins inside or right after the one before
        begin = text.index(window, begin)
        assert not text[covered:begin].strip()
        covered = max(covered, begin + len(window))
    assert not text[covered:].strip()


def test_each_window_has_the_prompt(bert: str) -> None:
    encoder = reader(bert, prompt="a city: ")
    [windows] = windows_of(encoder, [LONG])
    assert all(len(pieces(encoder, encoder.prompt + window)) <= encoder.room for window in windows)
    assert not any(window.startswith("a city:") for window in windows)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TextEncoder(bert, max_length=12, prompt="a city: ", long="windows").transform([LONG])


def test_progress_counts_texts(bert: str) -> None:
    seen: list[tuple[int, int]] = []
    network = TextEncoder(bert, max_length=12, long="windows", cache=False).network()
    network.vectors([SHORT, LONG], False, lambda done, total: seen.append((done, total)))
    assert seen[-1] == (2, 2)


def test_what_cannot_be_read_in_windows_is_said(bert: str) -> None:
    with pytest.raises(ConfigError, match="no reading of long texts called 'window'; did you mean 'windows'"):
        TextEncoder(bert, long="window").transform([SHORT])
    with pytest.raises(ConfigError, match=r"long='windows' needs the number of tokens .* callable .*; give a language"):
        TextEncoder(lambda texts: np.ones((len(texts), 2)), long="windows").transform([SHORT])


def test_a_classifier_keeps_its_reading(bert: str, tmp_path: Path) -> None:
    model = FewShotTextClassifier(encoder=bert, max_length=12, long="windows", names=None)
    model.fit([f"{LONG} queen", f"{LONG} river"], ["one", "two"])
    assert model.encoder_["options"]["long"] == "windows"
    assert clone(model).get_params()["long"] == "windows"
    model.save(tmp_path)
    for again in (load_classifier(tmp_path), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(again.measure([LONG]), model.measure([LONG]))
    again.set_params(long="typical")
    with pytest.raises(DataError, match=r"fitted to vectors of sentence-transformer \(.*long='windows'"):
        again.predict([LONG])


def test_a_model_saved_without_the_option_cuts(bert: str, tmp_path: Path) -> None:
    model = FewShotTextClassifier(encoder=bert, names=None).fit([SHORT, "the river"], ["one", "two"])
    state: Any = model.__getstate__()
    del state["long"]
    old = FewShotTextClassifier.__new__(FewShotTextClassifier)
    old.__setstate__(state)
    np.testing.assert_array_equal(old.measure([LONG]), model.measure([LONG]))
    assert old.get_params()["long"] == "truncate"


def test_the_command_line_reads_whole_texts(bert: str, tmp_path: Path) -> None:
    table = tmp_path / "examples.csv"
    table.write_text(f'text,label\n"{LONG} queen",one\n"{LONG} river",two\n')
    command = ["fit", str(table), "--out", str(tmp_path / "model"), "--encoder", bert, "--long", "windows"]
    assert CliRunner().invoke(app, command, catch_exceptions=False).exit_code == 0
    assert load_classifier(tmp_path / "model").long == "windows"
    wrong = CliRunner().invoke(app, [*command[:-1], "some"])
    assert "'some' is none of truncate, windows, typical" in wrong.output
    with pytest.raises(ConfigError, match="long='windows' is for classifiers of texts; leave it out"):
        hyperproto.fit(table, encoder="identity", long="windows")
