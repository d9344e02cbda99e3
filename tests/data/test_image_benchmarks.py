"""CIFAR-FS, FC100 and tieredImageNet in the layouts that users have, in small."""

import io
import os
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hyperproto.data import DATASETS, get, open_pool
from hyperproto.data.formats.images import _WINDOW
from hyperproto.data.image_benchmarks import ImageBenchmark
from hyperproto.errors import ConfigError, DataError
from tests.helpers.pictures import encoded, picture, write_tree

SETS = {"cifar-fs": (64, 16, 20), "fc100": (60, 20, 20), "tieredimagenet": (351, 97, 160)}
SPLITS = ("train", "val", "test")
SMALL = {"train": 3, "val": 2, "test": 2}  # classes, of two images each


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYPERPROTO_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each data set has few classes, as if so many were published."""
    for name in SETS:
        few = replace(DATASETS.get(name), size=12, classes=SMALL, images={s: 2 * n for s, n in SMALL.items()})
        monkeypatch.setitem(DATASETS._entries, name, few)


def names_of(split: str) -> list[str]:
    return [f"{split}_{c}" for c in range(SMALL[split])]


def pixels(split: str) -> Any:
    """Two images of each class of a split, class by class."""
    images = [picture(100 * SPLITS.index(split) + 10 * c + i) for c in range(SMALL[split]) for i in range(2)]
    return np.stack([np.asarray(image) for image in images])


def files_of(split: str, folder: str) -> dict[str, bytes]:
    return {
        f"{folder}/{name}/{i}.png": encoded(picture(100 * SPLITS.index(split) + 10 * c + i))
        for c, name in enumerate(names_of(split))
        for i in range(2)
    }


def npz_of(path: Path, split: str, **changes: Any) -> Path:
    labels = np.repeat(names_of(split), 2)
    np.savez(path / f"{split}.npz", **{"images": pixels(split), "labels": labels, **changes})
    return path


def check_pools(spec: str, names: Mapping[str, list[str]] | None = None) -> None:
    for split in SPLITS:
        pool = open_pool(spec, split)
        assert list(pool.class_names) == (names[split] if names else names_of(split))
        assert pool.labels.tolist() == np.repeat(np.arange(SMALL[split]), 2).tolist()
        assert np.array_equal(pool.items, pixels(split))
        assert (pool.name, pool.split) == (spec, split)


@pytest.mark.parametrize("name", SETS)
@pytest.mark.usefixtures("small")
def test_folders_of_class_folders(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYPERPROTO_DATA", str(tmp_path))
    for split in SPLITS:
        write_tree(tmp_path / name, files_of(split, split))
    check_pools(name)


@pytest.mark.parametrize("where", ["", "all.zip", "splits.zip"])
@pytest.mark.parametrize(
    "folders",
    [("meta-train", "meta-val", "meta-test"), ("a/Train", "a/valid", "a/test"), ("train", "validation", "test")],
)
@pytest.mark.usefixtures("small")
def test_other_names_of_the_folders_and_zips(where: str, folders: tuple[str, ...], tmp_path: Path) -> None:
    files: dict[str, bytes] = {}
    for split, folder in zip(SPLITS, folders, strict=True):
        files |= files_of(split, folder)
    root = write_tree(tmp_path / "data" / where, files)
    check_pools(f"fc100:{root if where == 'all.zip' else root.parent if where else root}")


@pytest.mark.usefixtures("small")
def test_a_zip_for_each_split(tmp_path: Path) -> None:
    for split in SPLITS:
        files = files_of(split, split)
        write_tree(tmp_path / f"{split}.zip", {name.removeprefix(f"{split}/"): files[name] for name in files})
    check_pools(f"cifar-fs:{tmp_path}")


@pytest.mark.usefixtures("small")
def test_folders_of_a_split_come_before_lists(tmp_path: Path) -> None:
    for split in SPLITS:
        files = files_of(split, split)
        write_tree(tmp_path, {**files, f"lists/{split}.txt": "\n".join(files).encode()})
    check_pools(f"cifar-fs:{tmp_path}")


@pytest.mark.usefixtures("small")
def test_class_folders_and_lists(tmp_path: Path) -> None:
    for split in SPLITS:
        write_tree(tmp_path, files_of(split, "cifar100/data"))
        lines = "\r\n".join([*reversed(names_of(split)), "", ""])
        write_tree(tmp_path, {f"cifar100/splits/bertinetto/{split}.txt": lines.encode()})
    check_pools(f"cifar-fs:{tmp_path}")
    list_of = tmp_path / "cifar100" / "splits" / "bertinetto" / "val.txt"
    list_of.write_text("val_0\n\nval_7\n")
    with pytest.raises(DataError, match=r"bertinetto/val.txt, line 3: there are no images of a class 'val_7' below"):
        open_pool(f"cifar-fs:{tmp_path}", "val")
    write_tree(tmp_path, {"val.txt": b"val_0\n"})
    with pytest.raises(DataError, match=r"two lists, cifar100/splits/bertinetto/val.txt and val.txt; keep one of them"):
        open_pool(f"cifar-fs:{tmp_path}", "val")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("labels", ["strings", "bytes", "numbers"])
@pytest.mark.usefixtures("small")
def test_npz_files(labels: str, save: Any, tmp_path: Path) -> None:
    """Rows stay in their order, whatever that of the classes is."""
    names = {}
    for split in SPLITS:
        own: Any = np.repeat(names_of(split), 2)
        if labels == "numbers":
            own = np.repeat([4, 11, 70][: SMALL[split]], 2)
            names[split] = ["4", "11", "70"][: SMALL[split]]
        save(tmp_path / f"{split}.npz", images=pixels(split), labels=own.astype("S") if labels == "bytes" else own)
    check_pools(f"tieredimagenet:{tmp_path}", names)
    turned = np.array(["b", "a", "b", "a"])
    save(tmp_path / "val.npz", images=pixels("val"), labels=turned)
    pool = open_pool(f"tieredimagenet:{tmp_path}", "val")
    assert pool.labels.tolist() == [1, 0, 1, 0]
    assert np.array_equal(pool.items, pixels("val"))


@pytest.mark.usefixtures("small")
def test_npz_files_are_copied_to_the_cache_a_window_at_a_time_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = 2 * _WINDOW + 3
    images = np.arange(many * 4 * 4 * 3, dtype=np.uint32).astype(np.uint8).reshape(many, 4, 4, 3)
    npz_of(tmp_path, "val", images=images, labels=np.arange(many) % 2)
    calls = []
    with pytest.warns(UserWarning, match=r"fc100:.* \(val\): 2,051 images, but 4 are published; numbers .* comparable"):
        pool = open_pool(f"fc100:{tmp_path},size=4", "val", lambda done, total: calls.append((done, total)))
    assert calls == [(_WINDOW, many), (2 * _WINDOW, many), (many, many)]
    assert isinstance(pool.items._images, np.memmap)
    assert np.array_equal(pool.items, images)
    monkeypatch.setattr("hyperproto.data.formats.npz._blocks", lambda *_: pytest.fail("read again"))
    with pytest.warns(UserWarning, match="are published"):
        assert np.array_equal(open_pool(f"fc100:{tmp_path},size=4", "val").items, images)


@pytest.mark.usefixtures("small")
def test_an_npz_file_that_has_changed_is_read_anew(tmp_path: Path) -> None:
    npz_of(tmp_path, "val")
    before = open_pool(f"fc100:{tmp_path}", "val")
    npz_of(tmp_path, "val", images=255 - pixels("val"))
    os.utime(tmp_path / "val.npz", ns=(1, 1))
    assert np.array_equal(open_pool(f"fc100:{tmp_path}", "val").items, 255 - np.asarray(before.items))


@pytest.mark.usefixtures("small")
def test_npz_images_of_another_size_are_scaled(tmp_path: Path) -> None:
    npz_of(tmp_path, "val")
    half = open_pool(f"cifar-fs:{tmp_path},size=6,channels=1", "val")
    assert half.items.shape == (4, 6, 6)
    grey = pixels("val") @ [0.299, 0.587, 0.114]  # as Pillow weighs colours
    assert np.abs(half.items.mean((1, 2)) - grey.mean((1, 2))).max() < 3


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("kind", ["npz", "folders"])
def test_the_published_numbers_of_classes(name: str, kind: str, tmp_path: Path) -> None:
    known: ImageBenchmark = DATASETS.get(name)
    assert tuple(known.classes[split] for split in SPLITS) == SETS[name]
    assert known.images == (
        {"train": 448_695, "val": 124_261, "test": 206_209}
        if name == "tieredimagenet"
        else {split: 600 * count for split, count in known.classes.items()}
    )
    count = known.classes["val"]
    dot = encoded(picture(0, (2, 2)))
    for found in (count, count - 1, count + 1):
        folder = tmp_path / str(found)
        folder.mkdir()
        if kind == "npz":
            np.savez(folder / "val.npz", images=np.zeros((found, 2, 2, 3), np.uint8), labels=np.arange(found))
        else:
            write_tree(folder, {f"val/{c}/0.png": dot for c in range(found)})
    with pytest.warns(UserWarning, match=rf"{count} images, but {known.images['val']:,} are published"):
        assert open_pool(f"{name}:{tmp_path / str(count)}", "val").items.shape == (count, known.size, known.size, 3)
    published = "/".join(map(str, SETS[name]))
    for found in (count - 1, count + 1):
        words = rf"\(val\): {found} classes in .*, but {count} are published \(train/val/test: {published}\); .*folder:"
        with pytest.raises(DataError, match=words):
            open_pool(f"{name}:{tmp_path / str(found)}", "val")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"images": np.zeros((4, 3, 12, 12), np.uint8)},
            r"images .*shape \(4, 3, 12, 12\) and type uint8; .*\(n, S, S, 3\)",
        ),
        ({"images": np.zeros((4, 12, 10, 3), np.uint8)}, r"images have shape \(4, 12, 10, 3\)"),
        ({"images": np.zeros((4, 12, 12), np.uint8)}, r"images have shape \(4, 12, 12\)"),
        (
            {"images": np.zeros((4, 12, 12, 3), np.float32)},
            r"images .*type float32; they must be \(n, S, S, 3\) of uint8",
        ),
        (
            {"images": np.zeros((0, 12, 12, 3), np.uint8), "labels": np.zeros(0, int)},
            r"images .*shape \(0, .*at least one",
        ),
        (
            {"images": np.asfortranarray(pixels("val"))},
            r"images are stored by columns; save numpy.ascontiguousarray\(images\)",
        ),
        ({"images": np.array([None] * 4)}, r"not a readable .npz .*images holds Python objects, which are not read"),
        (
            {"labels": np.arange(3)},
            r"labels have shape \(3,\) and type int64; give each of the 4 images a whole number",
        ),
        ({"labels": np.arange(4.0)}, r"labels have shape \(4,\) and type float64"),
        (
            {"labels": np.array([{}] * 4)},
            r"not a readable .*labels holds Python objects, which are not read: they could run code",
        ),
        ({"labels": np.array([b"\xff", b"a", b"b", b"c"])}, r"not a readable .npz file .*utf-8.*images=pixels, labels"),
    ],
)
@pytest.mark.usefixtures("small")
def test_wrong_arrays_are_refused(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    npz_of(tmp_path, "val", **changes)
    with pytest.raises(DataError, match=rf"^{tmp_path}/val.npz: {words}"):
        open_pool(f"cifar-fs:{tmp_path}", "val")


@pytest.mark.usefixtures("small")
def test_missing_arrays_and_damaged_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "val.npz"
    np.savez(path, data=pixels("val"), labels=np.arange(4))
    with pytest.raises(DataError, match=r"no array 'images' \(found: data, labels\); save images and labels"):
        open_pool(f"fc100:{tmp_path}", "val")
    with path.open("wb") as file:
        np.save(file, pixels("val"))
    with pytest.raises(DataError, match=r"one bare array; save images and labels together with numpy.savez"):
        open_pool(f"fc100:{tmp_path}", "val")
    path.write_bytes(b"PK\x03\x04 not a zip")
    with pytest.raises(DataError, match=r"not a readable \.npz file .*numpy.savez\('val.npz', images=pixels, labels="):
        open_pool(f"fc100:{tmp_path}", "val")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.usefixtures("small")
def test_damaged_pixels_are_noticed(save: Any, tmp_path: Path) -> None:
    save(tmp_path / "val.npz", images=pixels("val"), labels=np.arange(4) // 2)
    with zipfile.ZipFile(tmp_path / "val.npz") as archive:
        start = archive.getinfo("images.npy").header_offset
    content = bytearray((tmp_path / "val.npz").read_bytes())
    content[start + 400] ^= 4
    (tmp_path / "val.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"val.npz: not a readable .npz file"):
        open_pool(f"fc100:{tmp_path}", "val")
    assert not list((tmp_path / "cache").rglob("*.bytes"))


@pytest.mark.parametrize("name", SETS)
def test_nothing_to_read_says_what_to_put_there(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = (
        r"train.npz, val.npz and test.npz \(images, labels\), or folders train/CLASS, .*, or class folders and lists"
    )
    with pytest.raises(DataError, match=rf"{name}:.*: no images of train in .*; put there {words}"):
        open_pool(f"{name}:{tmp_path}", "train")
    monkeypatch.setenv("HYPERPROTO_DATA", str(tmp_path))
    with pytest.raises(DataError, match=rf"{name}: it is not fetched here: .* put into {tmp_path}/{name} {words}"):
        get.get(name)
    with pytest.raises(DataError, match=rf"{tmp_path}/{name}: no such folder or zip archive"):
        open_pool(name, "test")
    with pytest.raises(ConfigError, match=rf"{name}: size=0 is invalid"):
        open_pool(f"{name}:{tmp_path},size=0", "test")


def commands_in(error: object) -> Iterator[list[str]]:
    for line in str(error).splitlines():
        if line.startswith("python -c "):
            yield [sys.executable, "-c", line.removeprefix('python -c "').removesuffix('"')]


@pytest.mark.usefixtures("small")
def test_pickles_are_refused_and_converted_by_the_command_that_is_shown(tmp_path: Path) -> None:
    for split in ("train", "val"):
        content = {"data": pixels(split), "labels": np.repeat(names_of(split), 2).tolist()}
        (tmp_path / f"FC100_{split}.pickle").write_bytes(pickle.dumps(content))
    with pytest.raises(DataError, match=r"FC100_val.pickle is a pickle, which could run code and is not read") as told:
        open_pool(f"fc100:{tmp_path}", "val")
    [command] = commands_in(told.value)
    subprocess.run(command, check=True)
    pool = open_pool(f"fc100:{tmp_path}", "val")
    assert list(pool.class_names) == names_of("val")
    assert np.array_equal(pool.items, pixels("val"))
    (tmp_path / "FC100_train.pickle").rename(tmp_path / "all.pkl")
    with pytest.raises(DataError, match=r"FC100_val.pickle is a pickle"):  # the first, where none is of the split
        open_pool(f"fc100:{tmp_path}", "test")


@pytest.mark.usefixtures("small")
def test_pickles_of_compressed_images_are_converted_too(tmp_path: Path) -> None:
    images = [np.frombuffer(encoded(picture(100 + s)), np.uint8)[:, None] for s in (0, 1, 10, 11)]
    (tmp_path / "val_images_png.pkl").write_bytes(pickle.dumps(images))
    labels = {"label_specific": np.array([5, 5, 9, 9]), "label_general": np.zeros(4, int)}
    (tmp_path / "val_labels.pkl").write_bytes(pickle.dumps(labels))
    with pytest.raises(DataError, match=r"val_images_png.pkl is a pickle, which could run code") as told:
        open_pool(f"tieredimagenet:{tmp_path}", "val")
    [command] = commands_in(told.value)
    subprocess.run(command, check=True)
    pool = open_pool(f"tieredimagenet:{tmp_path}", "val")
    assert pool.class_names == ("5", "9")
    assert np.array_equal(pool.items, pixels("val"))


@pytest.mark.usefixtures("small")
def test_damaged_image_files_are_told_or_skipped(tmp_path: Path) -> None:
    write_tree(tmp_path, {**files_of("val", "val"), "val/val_0/0.png": b"no image"})
    with pytest.raises(DataError, match=r"1 of 4 images cannot be read; .*damaged=skip"):
        open_pool(f"cifar-fs:{tmp_path}", "val")
    with pytest.warns(UserWarning, match="images") as told:
        assert len(open_pool(f"cifar-fs:{tmp_path},damaged=skip", "val")) == 3
    assert [str(one.message).partition(": ")[2].partition(" images")[0] for one in told] == ["1 of 4", "3"]


def test_a_zip_is_no_npz(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, images=pixels("val"), labels=np.arange(4))
    (tmp_path / "val.npz").write_bytes(buffer.getvalue())
    with pytest.raises(DataError, match=r"no images of val in .*val.npz; put there train.npz"):
        open_pool(f"cifar-fs:{tmp_path / 'val.npz'}", "val")
