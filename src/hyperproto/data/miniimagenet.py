"""`miniimagenet`: 100 classes of ImageNet, 600 images each, 84 x 84, in the split of Ravi & Larochelle (2017)."""

import csv
from pathlib import Path

from hyperproto.data.filetree import FileTree
from hyperproto.data.image_files import IMAGE_OPTIONS, Decoding, image_names, image_pool
from hyperproto.data.pool import Pool, Progress
from hyperproto.data.specs import data_folder, parse_argument
from hyperproto.errors import DataError
from hyperproto.files import decode_utf8

SUMMARY = "100 classes of ImageNet, 84 x 84, split 64/16/20: miniimagenet[:PATH] (train.csv, val.csv, test.csv, images)"
SPLITS = ("train", "val", "test")


def splits(argument: str = "") -> tuple[str, ...]:
    """Name the splits."""
    return SPLITS


def load(split: str, argument: str = "", progress: Progress | None = None) -> Pool:
    """Read the images that `SPLIT.csv` (columns filename, label) names, from a folder or a zip, whatever their format.

    An image is known by its name without the suffix: lists that say .jpg also fit images kept as .png or .webp.
    """
    path, options = parse_argument("miniimagenet", argument, IMAGE_OPTIONS)
    spec = f"miniimagenet:{argument}".rstrip(":")
    folder = Path(path).expanduser() if path else data_folder("miniimagenet")
    tree = FileTree(folder, archives=True)
    lists = [name for name in tree.names if name.rpartition("/")[2] == f"{split}.csv"]
    if not lists:
        raise DataError(
            f"{spec}: no {split}.csv in {folder}; put the lists of Ravi & Larochelle (train.csv, val.csv, test.csv: "
            "filename,label) there, and the images beside them, in a folder or a zip"
        )
    rows = list(csv.reader(decode_utf8(tree.read(lists[0]), tree.path(lists[0])).splitlines()))
    stored = {_stem(name): name for name in image_names(tree)}
    classes: dict[str, list[str]] = {}
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != 2:
            raise DataError(f"{tree.path(lists[0])}, line {number}: {','.join(row)!r} is not filename,label")
        if _stem(row[0]) not in stored:
            raise DataError(f"{tree.path(lists[0])}, line {number}: there is no image {row[0]!r} below {folder}")
        classes.setdefault(row[1], []).append(stored[_stem(row[0])])
    return image_pool(spec, split, tree, classes, Decoding.of("miniimagenet", options), progress)


def _stem(name: str) -> str:
    return name.rpartition("/")[2].rpartition(".")[0]
