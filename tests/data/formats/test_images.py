"""Decoding into the cache, and `folder:PATH`."""

import os
import pickle
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from PIL import Image

from hyperproto.data import open_pool
from hyperproto.data.formats.images import Decoding, FileTree, image_pool
from hyperproto.data.specs import hash_order
from hyperproto.errors import ConfigError, DataError
from tests.helpers.damage import flipped
from tests.helpers.pictures import class_folders, encoded, picture, write_tree

PLAIN = Decoding(size=12, channels=3, skip_damaged=False)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each test its own cache folder."""
    monkeypatch.setenv("HYPERPROTO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "images"


@pytest.mark.parametrize("root", ["photos", "photos.zip"])
def test_pixels_are_those_that_pillow_decodes_file_by_file(tmp_path: Path, root: str) -> None:
    files = {f"{c}/{i}.png": encoded(picture(10 * c + i)) for c in range(3) for i in range(4)}
    path = write_tree(tmp_path / root, files)
    pool = open_pool(f"folder:{path},size=12", "all")
    assert pool.class_names == ("0", "1", "2")
    assert isinstance(pool.items._images, np.memmap)  # opened, not read
    for row, (c, i) in enumerate((c, i) for c in range(3) for i in range(4)):
        assert pool.labels[row] == c
        assert np.array_equal(pool.items[row], np.asarray(picture(10 * c + i)))


@pytest.mark.parametrize(
    ("kind", "mode"),
    [("PNG", "L"), ("PNG", "RGBA"), ("PNG", "P"), ("PNG", "1"), ("JPEG", "CMYK"), ("WEBP", "RGB"), ("GIF", "P")],
)
def test_every_kind_of_image_becomes_bytes_of_one_shape(tmp_path: Path, kind: str, mode: str) -> None:
    image = picture(1, (40, 20), mode)
    write_tree(tmp_path / "x", {f"a/1.{kind.lower().replace('jpeg', 'jpg')}": encoded(image, kind)})
    colour = open_pool(f"folder:{tmp_path}/x,size=8", "all")
    grey = open_pool(f"folder:{tmp_path}/x,size=8,channels=1", "all")
    assert colour.items.shape == (1, 8, 8, 3)
    assert grey.items.shape == (1, 8, 8)
    middle = np.asarray(image.convert("RGB").resize((40, 20)), float)[:, 10:30].mean((0, 1))  # the centre is kept
    assert np.abs(colour.items[0].mean((0, 1)) - middle).max() < 12


def test_what_is_transparent_is_white(tmp_path: Path) -> None:
    write_tree(tmp_path / "x", {"a/1.png": encoded(Image.new("RGBA", (6, 6), (255, 0, 0, 0)))})
    assert (open_pool(f"folder:{tmp_path}/x,size=6", "all").items == 255).all()


def test_a_photograph_is_turned_upright(tmp_path: Path) -> None:
    pixels = np.zeros((8, 8, 3), np.uint8)
    pixels[:4] = 255  # white above
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was held turned: show it a quarter to the right
    (tmp_path / "x" / "a").mkdir(parents=True)
    Image.fromarray(pixels).save(tmp_path / "x" / "a" / "1.png", exif=exif)
    items = open_pool(f"folder:{tmp_path}/x,size=8", "all").items[0]
    assert items[:, 4:].mean() > 250
    assert items[:, :4].mean() < 5


def test_images_are_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    path = write_tree(tmp_path / "photos", class_folders(2, 3))
    calls: list[tuple[int, int]] = []
    first = open_pool(f"folder:{path},size=12", "all", lambda done, total: calls.append((done, total)))
    assert calls == [(6, 6)]
    monkeypatch.setattr(FileTree, "read", lambda *_: pytest.fail("read again"))
    again = open_pool(f"folder:{path},size=12", "all")
    assert again.digest == first.digest
    assert len(list(cache.glob("*.bytes"))) == 1


def test_a_changed_file_and_other_settings_are_decoded_anew(tmp_path: Path) -> None:
    path = write_tree(tmp_path / "photos", class_folders(2, 3))
    first = open_pool(f"folder:{path},size=12", "all").digest
    (path / "class00" / "1.png").write_bytes(encoded(picture(77, (13, 13))))
    assert open_pool(f"folder:{path},size=12", "all").digest != first
    assert open_pool(f"folder:{path},size=9", "all").items.shape == (6, 9, 9, 3)


@pytest.mark.parametrize("harm", ["cut", "gone", "index"])
def test_a_harmed_cache_is_made_again(tmp_path: Path, cache: Path, harm: str) -> None:
    path = write_tree(tmp_path / "photos", class_folders(2, 3))
    whole = open_pool(f"folder:{path},size=12", "all").digest
    content, index = next(cache.glob("*.bytes")), next(cache.glob("*.json"))
    if harm == "cut":
        content.write_bytes(content.read_bytes()[:-1])
    elif harm == "gone":
        content.unlink()
    else:
        index.write_text("{")
    assert open_pool(f"folder:{path},size=12", "all").digest == whole


def test_a_flipped_bit_of_the_cache_is_noticed_and_mended(tmp_path: Path, cache: Path) -> None:
    path = write_tree(tmp_path / "photos", class_folders(2, 3))
    whole = np.array(open_pool(f"folder:{path},size=12", "all").items, copy=True)
    content = next(cache.glob("*.bytes"))
    good = content.read_bytes()
    for damaged in flipped(good, 173):
        content.write_bytes(damaged)
        with pytest.warns(UserWarning, match=r"\.bytes: image \d of this cache is damaged; all are decoded again"):
            assert np.array_equal(open_pool(f"folder:{path},size=12", "all").items, whole)
        assert content.read_bytes() == good


def test_a_flipped_bit_of_the_index_is_noticed_or_harmless(tmp_path: Path, cache: Path) -> None:
    files = class_folders(2, 3)
    files["class00/0.png"] = b"not an image"
    path = write_tree(tmp_path / "photos", files)
    spec = f"folder:{path},size=12,damaged=skip"
    with pytest.warns(UserWarning, match="1 of 6 images cannot be read and are left out"):
        whole = open_pool(spec, "all").digest
    index = next(cache.glob("*.json"))
    for damaged in [*flipped(index.read_bytes(), 7), b"[" * 100_000, b"[]", b"{}", b"null", b"\xff"]:
        index.write_bytes(damaged)
        with pytest.warns(UserWarning, match=r"1 of 6 images cannot be read and are left out\n.*class00/0\.png: Unid"):
            assert open_pool(spec, "all").digest == whole


def test_opening_reads_nothing_and_an_image_is_checked_once(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_tree(tmp_path / "photos", class_folders(2, 3))
    whole = np.asarray(open_pool(f"folder:{path},size=12", "all").items)
    looked: list[int] = []

    def counted(image: bytes) -> int:
        looked.append(1)
        return crc32(image)

    monkeypatch.setattr("hyperproto.data.formats.cached_images.crc32", counted)
    items = open_pool(f"folder:{path},size=12", "all").items
    assert (len(items), items.shape, items.ndim, items.dtype) == (6, (6, 12, 12, 3), 4, np.uint8)
    assert not looked
    for _ in range(2):
        assert np.array_equal(items[np.array([4, 1, 4])], whole[[4, 1, 4]])
    assert len(looked) == 2
    keys: list[Any] = [2, -1, slice(1, 4), (slice(None), 3), (..., 0), [0, 5], whole[:, 0, 0, 0] > 90, whole > 90, None]
    for key in keys:
        assert np.array_equal(items[key], whole[key])
    assert len(looked) == 6
    with pytest.raises(IndexError):
        items[6]
    assert (items.mean(), (items + 1).sum(), items.tobytes()) == (whole.mean(), (whole + 1).sum(), whole.tobytes())
    assert np.array_equal(list(items), whole)
    assert np.array_equal(pickle.loads(pickle.dumps(items)), whole)
    assert np.array(items, copy=True).flags.writeable
    assert len(looked) == 6


def test_a_damaged_image_is_mended_while_a_pool_is_in_use(tmp_path: Path, cache: Path) -> None:
    path = write_tree(tmp_path / "photos", class_folders(2, 3))
    whole = np.asarray(open_pool(f"folder:{path},size=12", "all").items).copy()
    pool = open_pool(f"folder:{path},size=12", "all")
    assert np.array_equal(pool.items[:2], whole[:2])
    with next(cache.glob("*.bytes")).open("r+b") as file:
        file.seek(-1, 2)
        file.write(bytes([whole[-1, -1, -1, -1] ^ 4]))
    assert np.array_equal(pool.items[2], whole[2])
    with pytest.warns(UserWarning, match="image 5 of this cache is damaged"):
        assert np.array_equal(pool.items[5], whole[5])
    (path / "class00" / "0.png").unlink()
    again = open_pool(f"folder:{path},size=12", "all")
    with sorted(cache.glob("*.bytes"), key=lambda path: path.stat().st_size)[0].open("r+b") as file:
        file.write(bytes([whole[1, 0, 0, 0] ^ 4]))
    (path / "class00" / "1.png").write_bytes(b"no longer an image")
    with (
        pytest.warns(UserWarning, match="image 0 of this cache is damaged"),
        pytest.raises(DataError, match="the source images have changed since it was written; start again"),
    ):
        again.items[0]


def test_a_damaged_image_is_refused_by_path_or_skipped_with_a_warning(tmp_path: Path) -> None:
    files = class_folders(2, 3)
    files["class01/2.png"] = files["class01/2.png"][:60]  # cut off
    files["class00/0.png"] = b"not an image"
    path = write_tree(tmp_path / "photos", files)
    message = (
        r"2 of 6 images cannot be read; fix or remove them, or leave them out with folder:\S+,size=12,damaged=skip"
    )
    for _ in range(2):  # the second time from the cache
        with pytest.raises(DataError, match=message) as caught:
            open_pool(f"folder:{path},size=12", "all")
        for name in ("class01/2.png", "class00/0.png"):
            assert f"{path}/{name}: " in str(caught.value)
        with pytest.warns(UserWarning, match=r"2 of 6 images cannot be read and are left out\n- \S+class00/0.png: "):
            pool = open_pool(f"folder:{path},size=12,damaged=skip", "all")
    assert pool.counts.tolist() == [2, 2]
    assert np.array_equal(pool.items[0], np.asarray(picture(1)))
    assert np.array_equal(pool.items[2], np.asarray(picture(100)))


def test_many_damaged_images_are_counted(tmp_path: Path) -> None:
    files = {f"a/{i:02d}.png": b"" for i in range(13)}
    path = write_tree(tmp_path / "photos", files)
    with pytest.raises(DataError, match=r"13 of 13 images (.|\n)*09.png(.|\n)*- and 3 more"):
        open_pool(f"folder:{path}", "all")
    with pytest.warns(UserWarning, match="13 of 13"):
        assert len(open_pool(f"folder:{path},damaged=skip", "all")) == 0


def test_a_damaged_member_of_an_archive_is_named(tmp_path: Path) -> None:
    path = write_tree(tmp_path / "photos.zip", class_folders(1, 3))
    content = bytearray(path.read_bytes())
    place = content.find(b"IDAT") + 8
    content[place : place + 4] = b"\0\0\0\0"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"1 of 3 images .*\n- \S+photos.zip/class00/0.png: .*CRC"):
        open_pool(f"folder:{path}", "all")


def test_a_cache_that_cannot_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_tree(tmp_path / "photos", class_folders(1, 1))
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HYPERPROTO_CACHE", str(tmp_path / "file"))
    with pytest.raises(DataError, match=r"images cannot be cached in .*; set HYPERPROTO_CACHE to another"):
        open_pool(f"folder:{path}", "all")


def test_a_pool_of_no_files_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"spec \(test\): no images of this split"):
        image_pool("spec", "test", FileTree(tmp_path), {"a": []}, PLAIN, None)


def test_classes_are_dealt_out_by_seed_and_share(tmp_path: Path) -> None:
    path = write_tree(tmp_path / "photos", class_folders(10, 1))
    spec = f"folder:{path},size=4,shares=5/2/3"
    parts = {split: open_pool(spec, split).class_names for split in ("train", "val", "test")}
    assert [len(names) for names in parts.values()] == [5, 2, 3]
    assert sorted(sum(parts.values(), ())) == [f"class{c:02d}" for c in range(10)]
    assert open_pool(f"{spec},seed=1", "train").class_names != parts["train"]
    assert open_pool(spec, "all").n_classes == 10


def test_folders_called_train_val_and_test_are_the_splits(tmp_path: Path) -> None:
    files = {**class_folders(3, 1, "train/a"), **class_folders(2, 1, "val/b"), **class_folders(1, 2, "test/c")}
    path = write_tree(tmp_path / "photos", files)
    assert open_pool(f"folder:{path}", "train").class_names == ("a00", "a01", "a02")
    assert open_pool(f"folder:{path}", "test").class_names == ("c00",)
    assert open_pool(f"folder:{path}", "all").n_classes == 6


def test_what_a_mac_and_an_editor_leave_behind_is_passed_over(tmp_path: Path) -> None:
    files = {
        **class_folders(1, 1),
        "__MACOSX/class00/._0.png": b"x",
        ".DS_Store": b"",
        "class00/.1.png": b"",
        "notes.txt": b"",
    }
    pool = open_pool(f"folder:{write_tree(tmp_path / 'p.zip', files)}", "all")
    assert (len(pool), pool.class_names) == (1, ("class00",))


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("", "no path named; write folder:PATH"),
        ("nowhere", "nowhere: no such folder or zip archive"),
        ("{}/loose", "2 images outside of folders; put the images of each class into a folder"),
        ("{}/empty", "no images; put the images of each class into a folder"),
        ("{}/text.txt", "neither a folder nor a zip archive"),
        ("{}/good,sise=3", "there is no option 'sise'; did you mean 'size'"),
        ("{}/good,size=0", "size=0 is invalid; write a whole number from 1 to 4096"),
        ("{}/good,channels=2", "there is no channels '2'"),
        ("{}/good,damaged=maybe", "there is no damaged 'maybe'"),
        ("{}/good,shares=1/2", "shares=1/2 is invalid; write train/val/test, such as 64/16/20"),
        ("{}/good,shares=a/b/c", "shares=a/b/c is invalid"),
        ("{}/good,seed=x", "seed=x is invalid"),
    ],
)
def test_mistakes_in_a_spec(tmp_path: Path, argument: str, message: str) -> None:
    write_tree(tmp_path / "good", class_folders(3, 1))
    write_tree(tmp_path / "loose", {"a.png": b"", "b.png": b""})
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.txt").write_text("x")
    with pytest.raises((ConfigError, DataError), match=message):
        open_pool(f"folder:{argument.format(tmp_path)}", "train")


def test_a_split_that_gets_no_class_is_an_error(tmp_path: Path) -> None:
    path = write_tree(tmp_path / "good", class_folders(2, 1))
    with pytest.raises(DataError, match="none of its 2 classes is in 'test' with shares=64/16/20; give it other"):
        open_pool(f"folder:{path}", "test")


def test_a_path_may_hold_commas_and_equals_signs(tmp_path: Path) -> None:
    path = write_tree(tmp_path / "photos,a=3", class_folders(1, 1))
    assert open_pool(f"folder:{path}", "all").items.shape == (1, 84, 84, 3)
    assert open_pool(f"folder:{path},size=5", "all").items.shape == (1, 5, 5, 3)


def test_a_damaged_archive_is_an_error(tmp_path: Path) -> None:
    path = write_tree(tmp_path / "d" / "x.zip", class_folders(1, 1))
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(DataError, match=r"x.zip: a damaged zip archive"):
        FileTree(path.parent, archives=True)


def test_the_order_by_hash_is_fixed_and_hardly_changes_with_one_more_name() -> None:
    names = [f"name {i}" for i in range(50)]
    order = hash_order(names, 0)
    assert order[:3] == ["name 1", "name 40", "name 0"]
    more = hash_order([*names, "another"], 0)
    more.remove("another")
    assert more == order
    assert hash_order(names, 1) != order


def test_a_link_to_a_folder_above_is_refused_and_one_beside_is_followed(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "photos", class_folders(2, 2))
    (root / "twin").symlink_to(next(path for path in root.iterdir() if path.is_dir()))
    assert len(open_pool(f"folder:{root},size=12", "all").class_names) == 3
    (root / "twin" / "loop").symlink_to(root)
    with pytest.raises(DataError, match=r"loop: a symbolic link to one of its own parent folders, .*; remove it"):
        open_pool(f"folder:{root},size=12", "all")


def test_a_name_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "photos", class_folders(2, 2))
    (root / os.fsdecode(b"caf\xe9.txt")).write_text("not an image: of no concern")
    open_pool(f"folder:{root},size=12", "all")
    odd = root / os.fsdecode(b"caf\xe9")
    odd.mkdir()
    (odd / "1.png").write_bytes(encoded(picture(1)))
    with pytest.raises(DataError, match=r"caf\\udce9/1\.png': this name is not UTF-8; rename the file or its folder"):
        open_pool(f"folder:{root},size=12", "all")


def test_a_fifo_among_the_images_is_a_damaged_one(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "photos", class_folders(2, 2))
    os.mkfifo(next(path for path in root.iterdir() if path.is_dir()) / "fifo.png")
    with pytest.raises(DataError, match=r"1 of 5 images cannot be read(.|\n)*fifo\.png: a FIFO, not a file"):
        open_pool(f"folder:{root},size=12", "all")


def blank(side: int) -> bytes:
    """A PNG of one colour: a few kB for millions of pixels."""
    content = BytesIO()
    Image.new("1", (side, side)).save(content, "PNG")
    return content.getvalue()


@pytest.mark.filterwarnings("ignore:Image size")
def test_an_image_of_too_many_pixels_is_refused_before_it_is_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Image.Image, "convert", lambda *_: pytest.fail("decoded"))
    content = blank(13_000)
    assert len(content) < 100_000
    write_tree(tmp_path / "a", {"x/1.png": content, "y/1.png": content})
    with pytest.raises(DataError, match=r"1\.png: DataError: 13000 x 13000 pixels take about 2,704,000,000 bytes"):
        open_pool(f"folder:{tmp_path / 'a'}", "all")


def test_a_user_can_allow_more_or_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tree(tmp_path / "a", {f"{name}/{n}.png": blank(100) for name in "xy" for n in range(8)})
    spec = f"folder:{tmp_path / 'a'}"
    monkeypatch.setenv("HYPERPROTO_MAX_BYTES", "159999")
    with pytest.raises(DataError, match=r"16 of 16 images .*\n.*100 x 100 .* set HYPERPROTO_MAX_BYTES=160000"):
        open_pool(spec, "all")
    monkeypatch.setenv("HYPERPROTO_MAX_BYTES", "160000")  # one at a time
    assert len(open_pool(spec, "all")) == 16


def test_a_file_of_an_archive_that_inflates_too_much_is_refused_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x/1.png", bytes(1 << 20))
        archive.writestr("x/stored.png", bytes(1 << 20), zipfile.ZIP_STORED)
    monkeypatch.setenv("HYPERPROTO_MAX_BYTES", "7M")
    tree = FileTree(path)
    words = r"a\.zip/x/1\.png: 1,048,576 bytes out of [\d,]+ in its archive; .* set HYPERPROTO_MAX_BYTES=8388608"
    with pytest.raises(DataError, match=words):
        tree.read("x/1.png")
    assert len(tree.read("x/stored.png")) == 1 << 20
    monkeypatch.setenv("HYPERPROTO_MAX_BYTES", "8388608")
    assert len(tree.read("x/1.png")) == 1 << 20
