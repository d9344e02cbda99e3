"""Omniglot, miniImageNet and CUB: their official layouts in small, and the real files where they are at hand."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from hyperproto.data import open_pool
from hyperproto.errors import DataError
from tests.helpers.pictures import encoded, picture, write_tree

ALPHABETS = {"background": [f"Back{a}" for a in range(7)], "evaluation": ["Eval0", "Eval1"]}


def omniglot_files(part: str) -> dict[str, bytes]:
    """Three characters in each alphabet, two drawings of each."""
    return {
        f"images_{part}/{alphabet}/character{c:02d}/{a}{c}_{i:02d}.png": encoded(
            picture(100 * a + 10 * c + i, mode="1")
        )
        for a, alphabet in enumerate(ALPHABETS[part])
        for c in range(1, 4)
        for i in range(2)
    }


@pytest.fixture(params=["zips", "folders"])
def omniglot(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("hyperproto.data.omniglot.SIZES", (16, 4, 7))
    for part in ALPHABETS:
        root = tmp_path / (f"images_{part}.zip" if request.param == "zips" else "")
        write_tree(root, omniglot_files(part))
    return tmp_path


def test_omniglot_turns_are_classes_and_ink_is_bright(omniglot: Path) -> None:
    pools = {split: open_pool(f"omniglot:{omniglot},size=12", split) for split in ("train", "val", "test")}
    assert {split: pool.n_classes for split, pool in pools.items()} == {"train": 64, "val": 16, "test": 28}
    assert len({name for pool in pools.values() for name in pool.class_names}) == 108
    pool = pools["train"]
    assert set(pool.counts.tolist()) == {2}
    name = pool.class_names[5].removesuffix("/rot000")
    alphabet, character = name.split("/")
    part = "evaluation" if alphabet.startswith("Eval") else "background"
    a, c = ALPHABETS[part].index(alphabet), int(character[-2:])
    ink = 255 - np.asarray(picture(100 * a + 10 * c, mode="1").convert("L"))
    for turn in range(4):
        label = pool.class_names.index(f"{name}/rot{90 * turn:03d}")
        assert np.array_equal(pool.items[pool.members[label][0]], np.rot90(ink, turn))


def test_omniglot_without_rotations_and_with_another_seed(omniglot: Path) -> None:
    plain = open_pool(f"omniglot:{omniglot},rotations=false", "train")
    assert plain.n_classes == 16
    assert plain.items.shape == (32, 28, 28)
    assert open_pool(f"omniglot:{omniglot},rotations=false,seed=1", "train").class_names != plain.class_names


def test_omniglot_by_alphabet_tests_on_the_evaluation_set(omniglot: Path) -> None:
    alphabets = {
        split: {name.partition("/")[0] for name in open_pool(f"omniglot:{omniglot},split=alphabet", split).class_names}
        for split in ("train", "val", "test")
    }
    assert alphabets["test"] == {"Eval0", "Eval1"}
    assert len(alphabets["val"]) == 5
    assert alphabets["train"] | alphabets["val"] == set(ALPHABETS["background"])


def test_omniglot_takes_the_published_lists(omniglot: Path) -> None:
    with pytest.raises(DataError, match=r"train.txt: no such list; hyperproto data get omniglot .* split=random needs"):
        open_pool(f"omniglot:{omniglot},split=vinyals", "train")
    lists = omniglot / "splits" / "vinyals"
    lists.mkdir(parents=True)
    (lists / "train.txt").write_text("Back0/character01/rot090\nBack0/character01/rot000\nEval1/character03/rot270\n")
    pool = open_pool(f"omniglot:{omniglot},split=vinyals", "train")
    assert pool.class_names == ("Back0/character01/rot000", "Back0/character01/rot090", "Eval1/character03/rot270")
    (lists / "val.txt").write_text("Back0/character01/rot090\nBack0/character01\n")
    with pytest.raises(DataError, match=r"val.txt, line 2: 'Back0/character01' is not ALPHABET/CHARACTER/rot000"):
        open_pool(f"omniglot:{omniglot},split=vinyals", "val")
    (lists / "test.txt").write_text("Klingon/character01/rot090\n")
    with pytest.raises(DataError, match=r"no images of 'Klingon/character01' \(and 0 more\)"):
        open_pool(f"omniglot:{omniglot},split=vinyals", "test")


def test_omniglot_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no images_background or images_evaluation .*; hyperproto data get omniglot"):
        open_pool(f"omniglot:{tmp_path}", "train")


def mini_files(suffix: str, kind: str) -> dict[str, bytes]:
    files = {f"images/n{c}{i:03d}.{suffix}": encoded(picture(10 * c + i), kind) for c in range(3) for i in range(4)}
    for split, classes in {"train": (0, 2), "val": (1,)}.items():
        lines = [f"n{c}{i:03d}.jpg,n{c}" for c in classes for i in (2, 0)]
        files[f"{split}.csv"] = "\n".join(["filename,label", *lines]).encode()
    return files


@pytest.mark.parametrize("where", ["", "mini.zip"])
@pytest.mark.parametrize(("suffix", "kind"), [("png", "PNG"), ("webp", "WEBP")])
def test_miniimagenet_reads_lists_over_any_images(tmp_path: Path, where: str, suffix: str, kind: str) -> None:
    write_tree(tmp_path / where, mini_files(suffix, kind))
    pool = open_pool(f"miniimagenet:{tmp_path / where},size=12", "train")
    assert pool.class_names == ("n0", "n2")
    assert pool.labels.tolist() == [0, 0, 1, 1]
    expected = np.stack([np.asarray(picture(seed), float) for seed in (2, 0, 22, 20)])
    assert np.abs(pool.items - expected).mean() < 6
    assert open_pool(f"miniimagenet:{tmp_path},size=12", "val").class_names == ("n1",)


def test_miniimagenet_mistakes(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no train.csv in .*; put the lists of Ravi & Larochelle"):
        open_pool(f"miniimagenet:{tmp_path}", "train")
    write_tree(tmp_path, mini_files("png", "PNG"))
    (tmp_path / "test.csv").write_text("filename,label\nn0000.jpg,n0\nn9999.jpg,n9\n")
    with pytest.raises(DataError, match=r"test.csv, line 3: there is no image 'n9999.jpg' below"):
        open_pool(f"miniimagenet:{tmp_path}", "test")
    (tmp_path / "test.csv").write_text("filename,label\nn0000.jpg\n")
    with pytest.raises(DataError, match=r"test.csv, line 2: 'n0000.jpg' is not filename,label"):
        open_pool(f"miniimagenet:{tmp_path}", "test")


@pytest.mark.parametrize("where", ["CUB_200_2011/images", "", "some.zip"])
def test_cub_splits_its_classes_by_number(tmp_path: Path, where: str) -> None:
    files = {f"{n:03d}.Bird_{n}/{i}.jpg": encoded(picture(n), "JPEG") for n in range(1, 9) for i in range(2)}
    write_tree(tmp_path / where, files)
    numbers = {
        s: [int(name[:3]) for name in open_pool(f"cub:{tmp_path}", s).class_names] for s in ("train", "val", "test")
    }
    assert numbers == {"train": [1, 3, 5, 7], "val": [2, 6], "test": [4, 8]}
    (tmp_path / "val.json").write_text(json.dumps(["007.Bird_7"]))
    assert open_pool(f"cub:{tmp_path}", "val").class_names == ("007.Bird_7",)
    (tmp_path / "val.json").write_text('{"a": 1}')
    with pytest.raises(DataError, match=r"val.json: it must be a list of class names"):
        open_pool(f"cub:{tmp_path}", "val")


def test_cub_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no images of its test classes in .*; hyperproto data get cub"):
        open_pool(f"cub:{tmp_path}", "test")


@pytest.mark.data
@pytest.mark.parametrize(
    ("spec", "split", "classes", "items", "shape"),
    [
        ("omniglot", "train", 4112, 82240, (28, 28)),
        ("omniglot", "test", 1692, 33840, (28, 28)),
        ("omniglot:,split=alphabet,rotations=false", "test", 659, 13180, (28, 28)),
        ("cub", "test", 50, 2953, (84, 84, 3)),
        ("miniimagenet", "val", 16, 9600, (84, 84, 3)),
    ],
)
def test_the_real_files(spec: str, split: str, classes: int, items: int, shape: tuple[int, ...]) -> None:
    data = os.environ.get("HYPERPROTO_DATA")
    if not data or not (Path(data) / spec.partition(":")[0]).is_dir():
        pytest.skip(f"HYPERPROTO_DATA names no folder with {spec}")
    pool = open_pool(spec, split)
    assert (pool.n_classes, len(pool), pool.items.shape[1:]) == (classes, items, shape)
    assert 5 < pool.items[:: max(1, items // 500)].std() < 128
