"""Frames, columns and arrays of other libraries: converted without loss, or refused with what to give instead."""

import datetime
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array, csr_matrix

from hyperproto import FewShotImageClassifier, FewShotTextClassifier, HypersphereClassifier, TextEncoder
from hyperproto.data.formats.items import is_missing
from hyperproto.errors import DataError
from hyperproto.estimators.inputs import item_list
from hyperproto.estimators.labels import plain_labels

X = np.array([[1.0, 0.1], [0.9, 0.2], [0.1, 1.0], [0.0, 1.0]])
Y = ["a", "a", "b", "b"]
TEXTS = ["aaa", "aab", "eeb", "eee"]


def letters(texts: list[str]) -> list[list[float]]:
    return [[text.count(letter) + 0.1 for letter in "abe"] for text in texts]


def text_model(**settings: Any) -> FewShotTextClassifier:
    return FewShotTextClassifier(encoder=letters, names=None, **settings)


class NAType:
    """Stands in for pandas.NA: a comparison with it is neither true nor false."""

    def __eq__(self, other: object) -> Any:
        return self

    def __ne__(self, other: object) -> Any:
        return self

    def __bool__(self) -> bool:
        raise TypeError("boolean value of NA is ambiguous")

    __hash__ = object.__hash__


class Series:
    """Stands in for a pandas Series; one of a nullable type has no NumPy dtype, and becomes floats in NumPy."""

    ndim = 1

    def __init__(self, values: Any, dtype: Any = "Int64") -> None:
        self.values, self.dtype, self.shape = list(values), dtype, (len(values),)

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Any:
        return iter(self.values)

    def to_list(self) -> list[Any]:
        return list(self.values)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        if self.dtype == "Int64":
            return np.array([np.nan if isinstance(value, NAType) else value for value in self.values], dtype=float)
        array = np.empty(len(self.values), dtype=object)
        array[:] = self.values
        return array


class Frame:
    """Stands in for a pandas DataFrame."""

    def __init__(self, **columns: Series) -> None:
        self._columns, self.columns = list(columns.values()), list(columns)
        self.shape = (len(self._columns[0]), len(columns))
        self.dtypes = [column.dtype for column in self._columns]

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Any:
        return iter(self.columns)

    @property
    def iloc(self) -> "Frame":
        return self

    def __getitem__(self, place: tuple[slice, int]) -> Series:
        return self._columns[place[1]]


def arrow(values: Any) -> Any:
    return pytest.importorskip("pyarrow").array(values)


@pytest.mark.parametrize("kind", [csr_matrix, csr_array])
def test_sparse_matrices_are_refused_with_the_way_out(kind: Any) -> None:
    sparse, model = kind(X), HypersphereClassifier().fit(X, Y)
    calls: tuple[Callable[[], Any], ...] = (
        lambda: HypersphereClassifier().fit(sparse, Y),
        lambda: model.partial_fit(sparse, Y),
        lambda: model.predict(sparse),
    )
    for call in calls:
        with pytest.raises(TypeError, match=r"X is a sparse matrix of shape \(4, 2\).*give X.toarray\(\)"):
            call()
    with pytest.raises(TypeError, match=r"unlabelled is a sparse matrix.*give unlabelled.toarray\(\)"):
        model.partial_fit(None, None, unlabelled=sparse)
    with pytest.raises(DataError, match=r"X has shape \(4, 2\); give one text a row: a list of texts, or one column"):
        text_model().fit(sparse, Y)


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (lambda: Series([3, 3, 7, 7]), [3, 7]),
        (lambda: Frame(label=Series([3, 3, 7, 7])), [3, 7]),
        (lambda: Series([True, True, False, False], "boolean"), [False, True]),
        (lambda: Series(Y, "string"), ["a", "b"]),
        (lambda: arrow([3, 3, 7, 7]), [3, 7]),
        (lambda: arrow(Y), ["a", "b"]),
        (lambda: arrow(Y).dictionary_encode(), ["a", "b"]),
        (lambda: pytest.importorskip("pyarrow").chunked_array([Y[:2], Y[2:]]), ["a", "b"]),
        (lambda: pytest.importorskip("pyarrow").table({"label": [3, 3, 7, 7]}), [3, 7]),
    ],
)
def test_labels_of_columns_keep_their_type(labels: Callable[[], Any], classes: list[Any]) -> None:
    model = HypersphereClassifier().fit(X, labels())
    assert model.classes_.tolist() == classes
    assert type(model.classes_.tolist()[0]) is type(classes[0])
    assert model.score(X, labels()) == 1
    assert model.partial_fit(X, labels()).counts_.tolist() == [4, 4]


@pytest.mark.parametrize("labels", [lambda: Series([3, 3, 7, NAType()]), lambda: arrow([3, 3, 7, None])])
def test_a_missing_label_of_a_column_marks_an_unlabelled_row(labels: Callable[[], Any]) -> None:
    model = HypersphereClassifier().fit(X, labels())
    assert model.classes_.tolist() == [3, 7]
    assert type(model.classes_.tolist()[0]) is int
    assert model.counts_.tolist() == [2, 1]


def rows_as_objects() -> Any:
    array = np.empty(4, dtype=object)
    array[:] = list(X)
    return array


@pytest.mark.parametrize(
    "vectors",
    [
        rows_as_objects,
        lambda: rows_as_objects()[:, None],
        lambda: Series(list(X), np.dtype(object)),
        lambda: Frame(vector=Series(X.tolist(), np.dtype(object))),
        lambda: arrow(X.tolist()),
        lambda: pytest.importorskip("pyarrow").table({"vector": X.tolist()}),
    ],
)
def test_a_column_of_vectors_is_a_matrix(vectors: Callable[[], Any]) -> None:
    expected = HypersphereClassifier().fit(X, Y)
    model = HypersphereClassifier().fit(vectors(), Y, unlabelled=vectors())
    assert model.n_features_in_ == 2
    np.testing.assert_array_equal(expected.predict_proba(vectors()), expected.predict_proba(X))


def test_vectors_of_a_column_are_of_one_length() -> None:
    with pytest.raises(DataError, match=r"X\[1\] has 1 numbers where others have 2; give vectors of one encoder"):
        HypersphereClassifier().fit(Series([[1.0, 2.0], [1.0]], np.dtype(object)), ["a", "b"])
    with pytest.raises(DataError, match=r"X\[1\] is None; give every row a vector of 2 numbers"):
        HypersphereClassifier().fit(Series([[1.0, 2.0], None], np.dtype(object)), ["a", "b"])


@pytest.mark.parametrize(
    "texts",
    [
        lambda: np.array(TEXTS),
        lambda: np.array(TEXTS)[:, None],
        lambda: Series(TEXTS, "string"),
        lambda: Frame(text=Series(TEXTS, "string")),
        lambda: arrow(TEXTS),
        lambda: pytest.importorskip("pyarrow").chunked_array([TEXTS]),
        lambda: pytest.importorskip("pyarrow").table({"text": TEXTS}),
    ],
)
def test_texts_of_columns_are_texts(texts: Callable[[], Any]) -> None:
    model = text_model().fit(texts(), Y)
    assert model.examples_ == dict(enumerate(TEXTS))
    assert model.predict(texts()).tolist() == Y
    assert model.partial_fit(texts(), Y).forget(texts(), Y).counts_.tolist() == [2, 2]
    np.testing.assert_array_equal(TextEncoder(letters).transform(texts()), TextEncoder(letters).transform(TEXTS))


def test_a_table_of_several_columns_is_refused() -> None:
    table = Frame(id=Series(range(4)), text=Series(TEXTS, "string"))
    with pytest.raises(DataError, match=r"X is a table of 2 columns \(id, text\); give the one .*X\['text'\]"):
        text_model().fit(table, Y)
    with pytest.raises(DataError, match=r"unlabelled is a table of 2 columns"):
        text_model().fit(TEXTS, Y, unlabelled=table)
    with pytest.raises(DataError, match=r"give the one that holds the images, such as X\['id'\]"):
        FewShotImageClassifier(encoder=letters).fit(table, Y)


@pytest.mark.parametrize("made", [text_model, HypersphereClassifier, lambda: FewShotImageClassifier(encoder=letters)])
def test_a_mapping_from_labels_to_items_is_refused_with_the_way_out(made: Callable[[], Any]) -> None:
    given = {"a": TEXTS[:2], "b": TEXTS[2:]}
    calls: tuple[Callable[[], Any], ...] = (
        lambda: made().fit(given),
        lambda: made().fit(given, Y),
        lambda: made().partial_fit(given),
    )
    for call in calls:
        with pytest.raises(DataError, match=r"X is a dict with 2 keys; give a list of items.*y = \[label for label"):
            call()
    with pytest.raises(DataError, match="X is a dict with 2 keys"):
        text_model().fit(TEXTS, Y).predict(given)
    items = [item for items in given.values() for item in items]
    labels = [label for label, items in given.items() for _ in items]
    assert text_model().fit(items, labels).classes_.tolist() == ["a", "b"]


def test_masked_values_are_refused() -> None:
    rows: Any = np.ma.masked_array(X, X > 0.95)
    model = HypersphereClassifier().fit(X, Y)
    for call in (lambda: model.fit(rows, Y), lambda: model.predict(rows), lambda: model.partial_fit(rows, Y)):
        with pytest.raises(DataError, match=r"X is a masked array with 3 of 8 values masked.*leave those rows out"):
            call()
    with pytest.raises(DataError, match="unlabelled is a masked array with 3 of 8"):
        model.fit(X, Y, unlabelled=rows)
    with pytest.raises(DataError, match="y is a masked array with 1 of 4"):
        model.fit(X, np.ma.masked_array([1, 1, 2, 2], [False, False, False, True]))
    with pytest.raises(DataError, match="sample_weight is a masked array with 1 of 4"):
        model.fit(X, Y, np.ma.masked_array([1, 1, 2, 2], [False, False, False, True]))
    assert model.fit(np.ma.masked_array(X), np.ma.masked_array([1, 1, 2, 2])).classes_.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (lambda: (1000 * X).astype("datetime64[s]"), "X holds datetimes; a vector is a list of numbers"),
        (lambda: list((1000 * X).astype("datetime64[s]")), "X holds datetimes"),
        (lambda: (1000 * X).astype("timedelta64[s]"), "X holds durations"),
        (lambda: Frame(when=Series(range(4), np.dtype("M8[s]"))), "X holds datetimes"),
        (
            lambda: pytest.importorskip("pyarrow").table({"when": [datetime.datetime(2020, 1, 1)] * 4}),
            "X holds datetimes",
        ),
    ],
)
def test_datetimes_are_no_numbers(rows: Callable[[], Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        HypersphereClassifier().fit(rows(), Y)


def test_datetimes_are_no_labels() -> None:
    days = np.array(["2020-01-01", "2020-01-02"] * 2, dtype="datetime64[D]")
    with pytest.raises(DataError, match=r"y holds dates or durations \(datetime64\[D\]\).*give y.astype\(str\)"):
        HypersphereClassifier().fit(X, days)
    assert HypersphereClassifier().fit(X, days.astype(str)).classes_.tolist() == ["2020-01-01", "2020-01-02"]


def test_bad_unlabelled_items_are_named_by_their_argument(tmp_path: Any) -> None:
    with pytest.raises(DataError, match=r"^unlabelled\[1\] is missing \(None\); give every row a text"):
        text_model().fit(TEXTS, Y, unlabelled=["a", None])
    with pytest.raises(DataError, match=r"^unlabelled is a single text"):
        text_model().fit(TEXTS, Y).partial_fit(None, None, unlabelled="a")
    images = FewShotImageClassifier(encoder=lambda items: np.eye(len(items), 2))
    with pytest.raises(DataError, match=r"^unlabelled\[0\] is 3 \(int\); an image is a path"):
        images.fit(["a", "b"], ["a", "b"], unlabelled=[3])
    with pytest.raises(DataError, match=r"^unlabelled\[1\] holds 1e\+300"):
        HypersphereClassifier(feature_transform="none").fit(X, Y, unlabelled=[[1.0, 2.0], [1e300, 0.0]])


@pytest.mark.parametrize("value", [None, float("nan"), np.float32("nan"), NAType()])
def test_missing_values(value: Any) -> None:
    assert is_missing(value)
    with pytest.raises(DataError, match=r"X\[1\] is missing"):
        text_model().fit(["a", value], ["a", "b"])


def test_what_is_a_list_already_stays_as_it_is() -> None:
    assert item_list(TEXTS, "X", "text") == TEXTS
    assert plain_labels(Y) is Y
    assert not any(is_missing(value) for value in ("", 0, np.ones(2), "nan"))
