"""Few-NERD: its official layouts in small, and the real files where they are at hand."""

from pathlib import Path

import pytest

from hyperproto.data import OUTSIDE, Pool, find_dataset, open_pool
from hyperproto.data.fewnerd import INTRA, coarse_type
from hyperproto.errors import ConfigError, DataError
from tests.helpers.tagged import real

TRAIN = [["Anna/person-actor", "sang/O"], ["Oslo/location-GPE", "Anna/person-actor"], ["Oslo/location-GPE"]]
DEV = [["War/event-war", "in/O", "Rome/location-city"], ["Hut/building-hut"], ["Oslo/location-GPE"]]
TEST = [["NATO/organization-other"], ["Anna/O", "sang/event-concert"], ["Volvo/product-car"]]


def text(sentences: list[list[str]]) -> str:
    return "\n\n".join("\n".join(word.replace("/", "\t") for word in sentence) for sentence in sentences) + "\n"


def put(folder: Path, files: dict[str, list[list[str]]]) -> Path:
    for name, sentences in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text(sentences))
    return folder


def tags(pool: Pool) -> list[str]:
    names = ["O" if label == OUTSIDE else pool.class_names[label] for label in pool.labels.tolist()]
    words = [word for sentence in pool.items for word in sentence]
    return [f"{word}/{name}" for word, name in zip(words, names, strict=True)]


@pytest.mark.parametrize("layout", ["{s}/{f}.txt", "{s}_{f}.txt", "{f}-{s}.txt"])
@pytest.mark.parametrize("setting", ["inter", "intra", "supervised"])
def test_every_layout_and_setting(tmp_path: Path, layout: str, setting: str) -> None:
    files = {
        layout.format(s=setting, f=name): part for name, part in {"train": TRAIN, "dev": DEV, "test": TEST}.items()
    }
    spec = f"fewnerd:{put(tmp_path, files)},setting={setting}"
    assert find_dataset(spec)[0].splits(spec.partition(":")[2]) == ("train", "dev", "val", "test")
    pool = open_pool(spec, "train")
    assert pool.class_names == ("location-GPE", "person-actor")
    assert tags(pool) == [word for sentence in TRAIN for word in sentence]
    assert open_pool(spec, "val").digest == open_pool(spec, "dev").digest
    assert open_pool(spec, "val").split == "dev"


def test_a_part_of_the_training_file_says_so(tmp_path: Path) -> None:
    put(tmp_path, {"inter_train_partial.txt": TRAIN, "inter_dev.txt": DEV})
    spec = f"fewnerd:{tmp_path}"
    assert str(open_pool(spec, "train-partial")).endswith("(train-partial)")
    with pytest.raises(ConfigError, match=r"no split 'train'; did you mean 'train-partial'\?"):
        open_pool(spec, "train")
    put(tmp_path, {"inter_train.txt": TRAIN})
    assert find_dataset(spec)[0].splits(str(tmp_path)) == ("train", "dev", "val")


def test_intra_style_splits_have_coarse_types_and_texts_of_their_own(tmp_path: Path) -> None:
    put(tmp_path, {"inter/train.txt": TRAIN, "inter/dev.txt": DEV, "inter/test.txt": TEST})
    spec = f"fewnerd:{tmp_path},setting=intra-style"
    pools = {split: open_pool(spec, split) for split in INTRA}
    assert tags(pools["train"]) == [
        "Anna/person-actor", "sang/O", "Oslo/O", "Anna/person-actor", "Volvo/product-car",
    ]  # fmt: skip
    assert tags(pools["dev"]) == ["War/event-war", "in/O", "Rome/O", "Hut/building-hut"]  # "Anna sang" is in train
    assert tags(pools["test"]) == ["Oslo/location-GPE", "Oslo/location-GPE", "NATO/organization-other"]
    assert all("intra-style" in pool.name for pool in pools.values())


def test_what_is_missing_or_wrong(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"fewnerd: no intra/train\.txt, .*=intra-style makes a substitute"):
        open_pool(f"fewnerd:{put(tmp_path, {'inter/dev.txt': DEV})},setting=intra", "train")
    with pytest.raises(ConfigError, match=r"no setting 'inner'; did you mean 'inter'\?"):
        open_pool(f"fewnerd:{tmp_path},setting=inner", "train")
    (tmp_path / "inter" / "dev.txt").write_text("On\tO\nJune\n")
    with pytest.raises(DataError, match=r"dev\.txt, line 2: 'June' has no word and label"):
        open_pool(f"fewnerd:{tmp_path}", "dev")


@pytest.mark.data
@real
def test_the_real_files() -> None:
    sizes = {split: open_pool("fewnerd", split) for split in ("train-partial", "dev", "test")}
    assert {s: (len(p), p.n_classes, len(p.labels)) for s, p in sizes.items()} == {
        "train-partial": (5172, 34, 142_260),
        "dev": (18_817, 13, 426_011),
        "test": (14_007, 17, 312_782),
    }
    pool = open_pool("fewnerd:setting=intra-style", "test")
    assert {coarse_type(name) for name in pool.class_names} == set(INTRA["test"])
    assert len(pool) == 7929
