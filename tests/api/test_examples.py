"""What a cell may hold."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hyperproto.api.examples import VectorReader, read_image, read_label, read_text


@pytest.mark.parametrize("cell", ["1 2.5 -3e0", "1, 2.5, -3", "[1,2.5,-3]", [1, 2.5, -3], np.array([1, 2.5, -3])])
def test_vectors(cell: Any) -> None:
    assert VectorReader(3)(cell) == [1.0, 2.5, -3.0]


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("1 b", "is '1 b'; a vector is a list of numbers"),
        (None, "is None; a vector is a list of numbers"),
        (7, "is 7; a vector is a list of numbers"),
        ([1, None], r"is \[1, None\]; a vector is a list of numbers"),
        ("[]", r"is an empty vector \('\[\]'\)"),
        ([1, 2, float("nan")], "holds nan at position 2; every number must be finite"),
        ("1 inf", "holds inf at position 1"),
        ([1, 2], "has 2 numbers where 3 belong"),
    ],
)
def test_what_is_no_vector(cell: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        VectorReader(3)(cell)


def test_the_first_vector_says_how_long_the_others_are() -> None:
    read = VectorReader()
    assert read("1 2") == [1.0, 2.0]
    with pytest.raises(ValueError, match="has 3 numbers where 2 belong"):
        read("1 2 3")


@pytest.mark.parametrize(("cell", "label"), [("a", "a"), (3, 3), (np.int64(3), 3), ("3", "3")])
def test_labels(cell: Any, label: Any) -> None:
    assert read_label(cell) == label
    assert type(read_label(cell)) is type(label)


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (None, r"is missing \(None\)"),
        (float("nan"), r"is missing \(nan\)"),
        (" ", r"is empty \(' '\)"),
        (1.5, r"is 1.5 \(float\); a label is a string or a whole number"),
        (True, r"is True \(bool\); a label is"),
        (["a"], r"is \['a'\] \(list\); a label is"),
    ],
)
def test_what_is_no_label(cell: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_label(cell)


def test_texts_and_paths(tmp_path: Path) -> None:
    assert read_text("a") == "a"
    with pytest.raises(ValueError, match="is an empty text"):
        read_text("")
    (tmp_path / "a.png").write_bytes(b"")
    assert read_image(str(tmp_path / "a.png")) == str(tmp_path / "a.png")
    with pytest.raises(ValueError, match=r"is '.*b.png', where there is no file"):
        read_image(str(tmp_path / "b.png"))
