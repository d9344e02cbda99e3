"""Texts to vectors, as scikit-learn wants it: the encoder's vectors, once each, and clear words where it goes wrong."""

import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.validation import check_is_fitted

from hyperproto import HypersphereClassifier, TextEncoder
from hyperproto.encoders import make_encoder
from hyperproto.encoders.parts import cache as vector_cache
from hyperproto.encoders.sentence_transformer import SentenceTransformer
from hyperproto.errors import ConfigError, DataError
from hyperproto.estimators import networks
from tests.helpers.items import LABELS, TEXTS


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every text that goes through the network, in turn."""
    seen: list[str] = []
    prepare = SentenceTransformer.prepare

    def noted(self: SentenceTransformer, items: Any) -> Any:
        seen.extend(items)
        return prepare(self, items)

    monkeypatch.setattr(SentenceTransformer, "prepare", noted)
    return seen


def test_vectors_are_those_of_the_encoder(bert: str) -> None:
    encoder = make_encoder("sentence-transformer", {"model": bert, "max_length": 128})
    expected = encoder.encode_all(encoder.prepare(TEXTS)).x.numpy()
    for cache in (True, False):
        found = TextEncoder(bert, cache=cache).fit_transform(TEXTS)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, atol=1e-5)
    with pytest.warns(UserWarning, match="5 of 9 sentences are longer than 6 word pieces"):
        assert np.abs(TextEncoder(bert, max_length=6).transform(TEXTS) - expected).max() > 0.01


@pytest.mark.parametrize("kind", [list, tuple, np.array, lambda texts: np.array(texts, dtype=object)])
def test_any_list_of_texts_will_do(bert: str, kind: Any) -> None:
    assert TextEncoder(bert).transform(kind(TEXTS)).shape == (9, 32)


def test_no_texts_are_no_vectors(bert: str) -> None:
    assert TextEncoder(bert).transform([]).shape == (0, 32)


def test_a_text_is_encoded_once(bert: str, read: list[str]) -> None:
    encoder = TextEncoder(bert)
    vectors = encoder.transform([*TEXTS, *TEXTS])
    assert read == TEXTS
    np.testing.assert_array_equal(vectors[:9], vectors[9:])
    again = clone(encoder).transform([TEXTS[3], "new", TEXTS[0]])
    assert read == [*TEXTS, "new"]
    np.testing.assert_array_equal(again[[0, 2]], vectors[[3, 0]])
    encoder.set_params(cache=False).transform(TEXTS[:2])
    assert read[-2:] == TEXTS[:2]


def test_vectors_that_are_kept_are_not_those_that_are_given_away(bert: str) -> None:
    encoder = TextEncoder(bert)
    encoder.transform(TEXTS)[...] = 7
    assert (encoder.transform(TEXTS) != 7).all()


def test_memory_is_bounded_and_what_was_used_last_stays(
    bert: str, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(networks, "RECENT", 3 * 32 * 4)
    encoder = TextEncoder(bert)
    encoder.transform(["one", "two", "three"])
    encoder.transform(["one"])
    encoder.transform(["four"])
    encoder.transform(["one", "three", "four"])
    assert read == ["one", "two", "three", "four"]
    encoder.transform(["two"])
    assert read[-1] == "two"
    network: Any = encoder.network()
    assert all(vector.base is None for vector in network._recent.values())  # not a row of a large array


def test_many_texts_are_kept_on_disk(
    bert: str, read: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HYPERPROTO_CACHE", str(tmp_path))
    monkeypatch.setattr(vector_cache, "MIN_SECONDS", 0.0)
    monkeypatch.setattr(networks, "MANY", 5)
    first = TextEncoder(bert).transform(TEXTS)
    TextEncoder(bert).transform(["a", "b"])
    assert len(list(tmp_path.glob("vectors/*.npz"))) == 1
    networks.forget_networks()
    np.testing.assert_array_equal(TextEncoder(bert).transform(TEXTS), first)
    assert read == [*TEXTS, "a", "b"]


def test_texts_are_read_in_chunks_with_progress(
    bert: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = TextEncoder(bert).transform(TEXTS)
    networks.forget_networks()
    monkeypatch.setattr(TextEncoder, "chunk", 4)
    shown: list[tuple[int, int]] = []

    class Bar:
        def __enter__(self) -> Callable[[int, int], None]:
            return lambda done, total: shown.append((done, total))

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr("hyperproto.estimators.items.progress_bar", lambda title: Bar())
    np.testing.assert_allclose(TextEncoder(bert, progress=True).transform(TEXTS), whole, atol=1e-5)
    assert shown == [(4, 9), (8, 9), (9, 9)]


def test_no_bar_unless_asked_for(bert: str, capfd: pytest.CaptureFixture[str]) -> None:
    TextEncoder(bert).transform(TEXTS)
    assert capfd.readouterr() == ("", "")


def test_it_is_a_transformer(bert: str) -> None:
    encoder = TextEncoder(bert, max_length=64)
    own = {"max_length": 64, "pooling": "auto", "prompt": None, "prompt_name": None, "long": "truncate"}
    assert encoder.get_params() == {"model": bert, **own, "progress": False, "cache": True}
    check_is_fitted(encoder)
    assert encoder.get_feature_names_out()[[0, -1]].tolist() == ["textencoder0", "textencoder31"]
    encoder.transform(TEXTS)
    content = pickle.dumps(encoder)
    assert len(content) < 1000  # settings, not weights
    np.testing.assert_array_equal(pickle.loads(content).transform(TEXTS), encoder.transform(TEXTS))


def test_a_pipeline_may_be_searched(bert: str, read: list[str]) -> None:
    pipeline = make_pipeline(TextEncoder(bert), HypersphereClassifier())
    assert pipeline.fit(TEXTS, LABELS).score(TEXTS, LABELS) > 0.8
    grid = {"hypersphereclassifier__fit_mode": ["bayes", "point"], "textencoder__max_length": [8, "auto"]}
    search = GridSearchCV(pipeline, grid, cv=3, error_score="raise").fit(TEXTS, LABELS)
    assert search.best_estimator_.predict(TEXTS[:1]).shape == (1,)
    assert len(read) == 2 * 9  # whatever the folds: once for each length
    assert pickle.loads(pickle.dumps(pipeline)).predict(TEXTS).tolist() == pipeline.predict(TEXTS).tolist()


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("one text", "X is a single text; give a list of texts, even if it holds only one"),
        (np.array([["a", "b"]]), r"X has shape \(1, 2\); give one text a row: a list of texts, or one column"),
        (["a", None], r"X\[1\] is missing \(None\); give every row a text"),
        (["a", "b", float("nan")], r"X\[2\] is missing \(nan\)"),
        (np.array(["a", np.nan], dtype=object), r"X\[1\] is missing \(nan\)"),
        (["a", 7], r"X\[1\] is 7 \(int\); a text is a string"),
        ([b"bytes"], r"X\[0\] is b'bytes' \(bytes\); a text is a string"),
        (["a", "", "c"], r"X\[1\] is an empty text \(''\); leave it out"),
        (["a", " \n\t"], r"X\[1\] is an empty text \(' \\n\\t'\)"),
        (["a", "\ud800"], r"X\[1\] is no valid Unicode \(.*surrogates not allowed\); decode it with"),
    ],
)
def test_what_is_no_text_is_named_by_its_position(bert: str, texts: Any, message: str) -> None:
    for call in (TextEncoder(bert).fit, TextEncoder(bert).transform):
        with pytest.raises(DataError, match=message):
            call(texts)


def test_without_torch_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hyperproto.estimators.networks", None)
    with pytest.raises(ConfigError, match=r"encoders run on torch \(.*\); pip install 'hyperproto\[text\]'"):
        TextEncoder().transform(["a"])


def test_a_model_that_is_nowhere_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="model 'no/such/model/here' cannot be found"):
        TextEncoder("no/such/model/here").transform(["a"])


def test_importing_the_fronts_needs_no_torch() -> None:
    import subprocess

    code = (
        "import sys; from hyperproto import FewShotTextClassifier, TextEncoder, ImageEncoder;"
        "FewShotTextClassifier(); TextEncoder().fit(['a']); print('torch' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "False"
