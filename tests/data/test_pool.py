from dataclasses import replace

import numpy as np
import pytest

from hyperproto.data import OUTSIDE, Pool, open_pool
from hyperproto.errors import ConfigError, DataError, HyperProtoError


def pool(**changes: object) -> Pool:
    parts = {
        "items": np.arange(6.0).reshape(6, 1),
        "labels": np.array([0, 1, 1, 0, 2, 1]),
        "class_names": ("a", "b", "c"),
    }
    return Pool(**{**parts, **changes})  # type: ignore[arg-type]


def test_members_are_the_items_of_each_class() -> None:
    found = pool(labels=np.array([0, 1, OUTSIDE, 0, 2, 1]))
    assert [members.tolist() for members in found.members] == [[0, 3], [1, 5], [4]]
    assert found.counts.tolist() == [2, 2, 1]


def test_a_class_without_items_has_no_members() -> None:
    assert [members.tolist() for members in pool(labels=np.array([0, 2, 2, 0, 2, 2])).members] == [
        [0, 3],
        [],
        [1, 2, 4, 5],
    ]


def test_the_problem_follows_from_the_offsets_unless_it_is_named() -> None:
    words = pool(items=["x y"] * 3, offsets=np.array([0, 2, 4, 6]))
    assert (pool().problem, words.problem) == ("classification", "tagging")
    named = pool(problem="ranking")
    assert named.problem == "ranking"
    assert named.with_at_least(2).problem == "ranking"
    assert replace(words, problem="ranking").problem == "ranking"


def test_units_items_and_rows_where_an_item_is_one_unit() -> None:
    images = pool()
    assert not images.many_units
    assert images.unit_offsets.tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert images.items_of(np.array([5, 0, 2])).tolist() == [5, 0, 2]
    assert (images.outside_row, images.n_labels) == (None, 3)


def test_units_items_and_rows_where_an_item_has_many_units() -> None:
    words = pool(items=["x y", "", "z", "u v w"], offsets=np.array([0, 2, 2, 3, 6]))
    assert words.many_units
    assert words.unit_offsets.tolist() == [0, 2, 2, 3, 6]
    assert words.items_of(np.arange(6)).tolist() == [0, 0, 2, 3, 3, 3]  # item 1 has no unit
    assert (words.outside_row, words.n_labels) == (3, 4)  # O has the row behind the three classes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": np.array([0, 1])}, r"6 units but labels of shape \(2,\); give one label a unit"),
        ({"labels": np.array([0, 1, 1, 0, 3, 1])}, r"unit 4 has label 3, but there are 3 classes"),
        ({"labels": np.array([0, -2, 1, 0, 1, 1])}, r"unit 1 has label -2"),
        ({"offsets": np.array([0, 1])}, r"offsets must rise from 0, one more than the 6 items"),
        ({"offsets": np.array([0, 1, 2, 1, 3, 4, 5])}, r"offsets must rise from 0"),
        ({"offsets": np.array([0, 2, 3, 4, 5, 6, 8])}, r"8 units but labels"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        pool(**changes)


def test_the_digest_sees_items_labels_names_and_offsets() -> None:
    items = np.arange(6.0).reshape(6, 1)
    changed = items.copy()
    changed[5] += 1e-9
    digests = {
        pool().digest,
        pool(items=changed).digest,
        pool(items=items.astype(np.float32)).digest,
        pool(labels=np.array([0, 1, 1, 0, 2, 2])).digest,
        pool(class_names=("a", "b", "d")).digest,
        pool(items=["a"] * 3, offsets=np.array([0, 2, 4, 6])).digest,
        pool(items=["a"] * 3, offsets=np.array([0, 1, 4, 6])).digest,
    }
    assert len(digests) == 7
    assert pool().digest == pool(items=items.copy()).digest


def test_small_classes_can_be_left_out() -> None:
    kept = pool().with_at_least(2)
    assert kept.class_names == ("a", "b")
    assert kept.labels.tolist() == [0, 1, 1, 0, 1]
    assert kept.items[:, 0].tolist() == [0, 1, 2, 3, 5]
    words = pool(items=[f"text {n}" for n in range(6)]).with_at_least(3)
    assert words.items == ["text 1", "text 2", "text 5"]
    with pytest.raises(DataError, match="classes cannot be selected by size in tagging"):
        pool(items=["x y"] * 3, offsets=np.array([0, 2, 4, 6])).with_at_least(2)


def test_an_unknown_data_set_or_split_is_named_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"no data set 'glyph'; did you mean 'glyphs'\? Known: .*folder, glyphs, "):
        open_pool("glyph", "train")
    with pytest.raises(ConfigError, match=r"glyphs: there is no split 'tset'; did you mean 'test'\?"):
        open_pool("glyphs", "tset")


@pytest.mark.parametrize("name", ["folder", "vectors", "fewrel", "omniglot", "conll"])
def test_what_the_system_refuses_of_a_data_set_is_told(name: str) -> None:
    with pytest.raises(HyperProtoError, match="aaa"):
        open_pool(f"{name}:{'a' * 300}", "train")
