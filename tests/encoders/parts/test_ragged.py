import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from hyperproto.encoders.parts.word_pieces import Ragged

ROWS = st.lists(st.lists(st.integers(0, 2**31 - 1), max_size=6), min_size=1, max_size=8)


def naive_padded(rows: list[list[int]], fill: int) -> list[list[int]]:
    longest = max(map(len, rows), default=0)
    return [row + [fill] * (longest - len(row)) for row in rows]


@given(ROWS, st.data())
def test_padded_is_the_loop(rows: list[list[int]], data: st.DataObject) -> None:
    ragged = Ragged.of(rows)
    index = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=8))
    found = ragged.padded(np.array(index), -7)
    assert found.dtype == torch.int64
    assert found.tolist() == naive_padded([rows[i] for i in index], -7)


@given(ROWS)
def test_rows_and_lengths(rows: list[list[int]]) -> None:
    ragged = Ragged.of(np.array(row, np.int32) for row in rows)
    assert len(ragged) == len(rows)
    assert ragged.flat.dtype == np.int32
    assert ragged.lengths.tolist() == [len(row) for row in rows]
    assert [ragged.row(i).tolist() for i in range(len(rows))] == rows


def test_nothing() -> None:
    nothing = np.array([], np.int64)
    assert Ragged.of([[1, 2], []]).padded(nothing, 0).shape == (0, 0)
    assert Ragged.of([[1, 2], []]).padded(np.array([1]), 0).shape == (1, 0)
    assert len(Ragged.of([])) == 0
    assert Ragged.of([]).padded(nothing, 0).shape == (0, 0)


def test_rows_may_lie_in_a_file(tmp_path: object) -> None:
    np.save(f"{tmp_path}/flat.npy", np.arange(5, dtype=np.int32))
    ragged = Ragged(np.load(f"{tmp_path}/flat.npy", mmap_mode="r"), np.array([0, 2, 5]))
    found = ragged.padded(np.array([1, 0]), 9)
    found += 1  # its own memory
    assert found.tolist() == [[3, 4, 5], [1, 2, 10]]
