"""The built-in images: enough classes, no look-alikes, the same bytes every time, and a cache that heals."""
# ruff: noqa: RUF001 - characters that are easily taken for others are what this is about

import sys
import unicodedata
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import numpy as np
import pytest

from hyperproto.data import glyphs
from hyperproto.data.pool import Pool
from hyperproto.errors import ConfigError
from hyperproto.files import atomic_write, cache_dir

pytest.importorskip("PIL")
matplotlib = pytest.importorskip("matplotlib")

Pools = dict[str, Pool]


@pytest.fixture(scope="session")
def pools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pools]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HYPERPROTO_CACHE", str(tmp_path_factory.mktemp("glyphs")))
        yield {split: glyphs.load(split) for split in glyphs.SPLITS}


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Make the data set small, and its cache empty; returns the cache folder."""
    monkeypatch.setattr(glyphs, "SCRIPTS", {"test": ("hebrew",), "val": ("ogham",), "train": ("coptic",)})
    monkeypatch.setenv("HYPERPROTO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def chars(pool: Pool) -> list[str]:
    return [chr(int(name.rpartition("U+")[2], 16)) for name in pool.class_names]


def scripts(pool: Pool) -> set[str]:
    return {name.partition("/")[0] for name in pool.class_names}


def test_there_are_many_classes_of_forty(pools: Pools) -> None:
    sizes = {split: pool.n_classes for split, pool in pools.items()}
    total = sum(sizes.values())
    assert total >= 600
    assert sizes["val"] >= 100
    assert sizes["test"] >= 100
    assert 0.55 < sizes["train"] / total < 0.7
    for split, pool in pools.items():
        assert (pool.name, pool.split) == ("glyphs", split)
        assert (pool.counts == glyphs.INSTANCES).all()
        assert pool.items.shape == (pool.n_classes * glyphs.INSTANCES, 28, 28)
        assert pool.items.dtype == np.uint8


def test_images_are_white_ink_on_black_and_all_different(pools: Pools) -> None:
    for pool in pools.values():
        means = pool.items.mean((1, 2))
        assert means.min() > 5
        assert means.max() < 128
        assert pool.items.max(axis=(1, 2)).min() > 100
        assert pool.items[:, [0, 0, -1, -1], [0, -1, 0, -1]].mean() < 16  # the corners are paper
        assert len({image.tobytes() for image in pool.items}) == len(pool)


def test_a_split_is_a_set_of_scripts(pools: Pools) -> None:
    found = {split: scripts(pool) for split, pool in pools.items()}
    assert found == {split: set(glyphs.SCRIPTS[split]) for split in glyphs.SPLITS}
    assert not found["train"] & found["val"]
    assert not found["train"] & found["test"]
    assert not found["val"] & found["test"]
    for pool in pools.values():
        for char, name in zip(chars(pool), pool.class_names, strict=True):
            assert unicodedata.name(char).lower().startswith(name.partition("/")[0])
            assert unicodedata.category(char)[0] in "LN"
            assert not unicodedata.combining(char)


def test_names_are_readable_and_unique(pools: Pools) -> None:
    names = [name for pool in pools.values() for name in pool.class_names]
    assert len(set(names)) == len(names)
    assert {"hebrew/alef U+05D0", "greek/capital psi U+03A8", "arabic/indic digit three U+0663"} <= set(names)


@pytest.mark.parametrize("twins", ["AΑАᎪ", "oOοΟоОօՕⵔ", "HΗНн", "CСcсϹ", "XΧХⵝ", "SЅՏ", "TΤТ", "hһհ", "nոռ", "IlΙІӀاו"])
def test_known_twins_do_not_stand_in_two_splits(pools: Pools, twins: str) -> None:
    assert sum(bool(set(chars(pool)) & set(twins)) for pool in pools.values()) <= 1


def filled(char: str) -> np.ndarray:
    """Draw `char` by another path than the library's: its ink stretched to fill a square, centred and of norm 1."""
    from PIL import Image, ImageDraw, ImageFont

    file = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"
    page = Image.new("L", (400, 300))
    ImageDraw.Draw(page).text((120, 60), char, fill=255, font=ImageFont.truetype(str(file), 80))
    square = np.asarray(page.crop(page.getbbox()).resize((20, 20), Image.Resampling.BOX), np.float64).ravel()
    square = square - square.mean()
    return np.asarray(square / np.linalg.norm(square))


def test_no_two_splits_share_a_shape(pools: Pools) -> None:
    drawn = {split: np.stack([filled(char) for char in chars(pool)]) for split, pool in pools.items()}
    for one, other in (("train", "val"), ("train", "test"), ("val", "test")):
        likeness = drawn[one] @ drawn[other].T
        i, j = np.unravel_index(likeness.argmax(), likeness.shape)
        pair = pools[one].class_names[i], pools[other].class_names[j]
        assert likeness[i, j] < 0.9, pair
    assert filled("A") @ filled("А") > 0.99  # the measure sees twins


def test_no_class_is_a_placeholder(pools: Pools) -> None:
    box = filled("\u0378")
    for pool in pools.values():
        assert max(filled(char) @ box for char in chars(pool)) < 0.9


def test_empty_and_missing_glyphs_are_not_drawn() -> None:
    file = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"
    space, unassigned, letter = glyphs._draw(file, [" ", "\u0379", "g"])
    assert space is None
    assert unassigned is None
    assert letter is not None
    rows, cols = np.nonzero(letter.any(1))[0], np.nonzero(letter.any(0))[0]
    assert max(np.ptp(rows), np.ptp(cols)) + 1 == glyphs.BOX
    assert abs(rows[0] + rows[-1] - (glyphs.SIDE - 1)) <= 1
    assert abs(cols[0] + cols[-1] - (glyphs.SIDE - 1)) <= 1


def test_dots_and_bars_are_not_drawn() -> None:
    drawn = {glyph.char for glyph in glyphs.draw_glyphs(["latin", "arabic"])}
    assert {"A", "ب"} <= drawn
    assert not drawn & set("Il٠ا")


def test_raw_pixels_are_well_above_chance_and_far_from_perfect(pools: Pools) -> None:
    pool = pools["test"]
    vectors = pool.items.reshape(pool.n_classes, glyphs.INSTANCES, -1) / 255.0
    random = np.random.default_rng(0)
    right = []
    for _ in range(400):
        classes = random.choice(pool.n_classes, 5, replace=False)
        shot, query = vectors[classes, 0], vectors[classes, random.integers(1, glyphs.INSTANCES)]
        nearest = ((query[:, None] - shot) ** 2).sum(-1).argmin(-1)
        right.append(nearest == np.arange(5))
    assert 0.4 < np.mean(right) < 0.65


def test_the_same_seed_gives_the_same_bytes(few: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first = {split: glyphs.load(split).digest for split in glyphs.SPLITS}
    monkeypatch.setenv("HYPERPROTO_CACHE", str(tmp_path / "elsewhere"))
    assert {split: glyphs.load(split).digest for split in glyphs.SPLITS} == first
    other = glyphs.load("test", "1")
    assert other.digest != first["test"]
    assert other.class_names == glyphs.load("test").class_names
    assert len(list((tmp_path / "elsewhere").iterdir())) == 2


def test_a_class_does_not_depend_on_the_others(pools: Pools) -> None:
    alef = next(glyph for glyph in glyphs.draw_glyphs(["hebrew"]) if glyph.char == "א")
    place = pools["test"].class_names.index(str(alef))
    np.testing.assert_array_equal(pools["test"].items[pools["test"].members[place]], glyphs.distort(alef, seed=0))


def test_random_numbers_are_fixed_for_ever() -> None:
    assert glyphs.uniforms(0, 65, (3,)).tolist() == [0.6857890170562524, 0.40126043665594735, 0.48364066982081066]
    draws = glyphs.uniforms(7, 7, (100, 100))
    assert 0 <= draws.min() < 0.001
    assert 0.999 < draws.max() < 1
    assert abs(draws.mean() - 0.5) < 0.01


def test_sampling_is_bilinear() -> None:
    ramp = np.stack([np.add.outer(10.0 * np.arange(8), np.arange(8.0)), np.zeros((8, 8))])
    rows, cols = np.array([[2.25, 3.0]]), np.array([[4.5, -9.0]])  # outside: the nearest pixel
    np.testing.assert_allclose(glyphs.sample(ramp, np.array([0, 1, 0]), rows, cols), [[[27, 30]], [[0, 0]], [[27, 30]]])


def test_distances_are_positive_in_the_ink() -> None:
    inked = np.zeros((9, 9), np.bool_)
    inked[:, 3:6] = True
    np.testing.assert_array_equal(glyphs._distances(inked)[4], [-2.5, -1.5, -0.5, 0.5, 1.5, 0.5, -0.5, -1.5, -2.5])


def test_the_cache_is_used_again(few: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = glyphs.load("test")
    (file,) = few.iterdir()
    assert file.name.startswith(f"glyphs-v{glyphs.GLYPHS_VERSION}-pillow")
    assert f"-matplotlib{matplotlib.__version__}-seed0" in file.name
    with monkeypatch.context() as patch:
        patch.setattr(glyphs, "generate", lambda *_: pytest.fail("made again"))
        assert glyphs.load("test").digest == made.digest
        patch.setattr(glyphs, "version", lambda package: "0.0")
        with pytest.raises(pytest.fail.Exception, match="made again"):  # another font version: another file
            glyphs.load("test")


def test_a_damaged_cache_is_made_again(few: Path) -> None:
    made = glyphs.load("test").digest
    (file,) = few.iterdir()
    good = file.read_bytes()
    middle = len(good) // 3
    flipped = good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1 :]
    for damaged in (b"", b"not an archive", good[:middle], good[:-1], flipped):
        file.write_bytes(damaged)
        with pytest.warns(UserWarning, match=r"seed0\.npz: a damaged file of the cache \(.*\); it is made again"):
            assert glyphs.load("test").digest == made
        assert file.read_bytes() == good


def test_without_a_writable_cache_the_data_still_comes(few: Path) -> None:
    few.write_text("a file where the folder should be")
    with pytest.warns(UserWarning, match="set HYPERPROTO_CACHE to another folder"):
        assert glyphs.load("test").n_classes > 10


def test_progress_counts_the_classes(few: Path) -> None:
    seen: list[tuple[int, int]] = []
    pool = glyphs.load("test", progress=lambda done, total: seen.append((done, total)))
    total = seen[0][1]
    assert total > pool.n_classes
    assert seen == [(done, total) for done in range(total + 1)]


def test_an_unknown_split_is_named() -> None:
    with pytest.raises(ConfigError, match=r"there is no split 'tests'; did you mean 'test'\? Known: test, train, val"):
        glyphs.load("tests")


@pytest.mark.parametrize("seed", ["-1", str(2**64), "one"])
def test_a_seed_out_of_range_is_named(seed: str) -> None:
    with pytest.raises(ConfigError, match=rf"glyphs:{seed}: the seed must be from 0 to 2\*\*64 - 1"):
        glyphs.load("test", seed)


@pytest.mark.parametrize("module", ["PIL", "matplotlib.ft2font"])
def test_a_package_that_cannot_be_imported_is_named(few: Path, monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=rf"{module}.*pip install 'hyperproto\[images,plots\]'"):
        glyphs.load("test")


def test_a_package_that_is_not_installed_is_named(few: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(package: str) -> str:
        raise PackageNotFoundError(package)

    monkeypatch.setattr(glyphs, "version", missing)
    with pytest.raises(ConfigError, match=r"pillow.*pip install 'hyperproto\[images,plots\]'"):
        glyphs.load("test")


def test_the_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.delenv("HYPERPROTO_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_dir() == Path("/home/someone/.cache/hyperproto")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert cache_dir() == Path("/caches/hyperproto")
    monkeypatch.setenv("HYPERPROTO_CACHE", "~/mine")
    assert cache_dir() == Path("/home/someone/mine")


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "file"
    with atomic_write(path) as file:
        file.write(b"old")
    with pytest.raises(TypeError, match="bytes-like"), atomic_write(path) as file:
        file.writelines([b"new", "and wrong"])  # type: ignore[list-item] # wrong on purpose
    assert path.read_bytes() == b"old"
    assert list(path.parent.iterdir()) == [path]


def test_writers_at_once_leave_one_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "file"

    def write(letter: bytes) -> None:
        with atomic_write(path) as file:
            for _ in range(100):
                file.write(letter * 1000)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, (bytes([65 + k]) for k in range(16))))
    content = path.read_bytes()
    assert content == content[:1] * 100_000
    assert list(tmp_path.iterdir()) == [path]
