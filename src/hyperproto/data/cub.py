"""`cub`: Caltech-UCSD Birds 200-2011, 200 species, split 100/50/50 as in few-shot papers."""

import re
from pathlib import Path

from hyperproto.data.formats.images import IMAGE_OPTIONS, Decoding, FileTree, image_names, image_pool
from hyperproto.data.pool import Pool, Progress
from hyperproto.data.specs import data_folder, parse_argument
from hyperproto.errors import DataError
from hyperproto.files import decode_utf8, parse_json

SUMMARY = "200 species of birds, 84 x 84, split 100/50/50 by class: cub[:PATH] (the official layout, or class folders)"
SPLITS = ("train", "val", "test")
_CLASS = re.compile(r"\d{3}\.\w+")  # 004.Groove_billed_Ani
_OF_FOUR = ("train", "val", "train", "test")  # Chen et al., "A Closer Look at Few-shot Classification", 2019


def splits(argument: str = "") -> tuple[str, ...]:
    """Return the names of the splits."""
    return SPLITS


def load(split: str, argument: str = "", progress: Progress | None = None) -> Pool:
    """Read the images in folders such as `004.Groove_billed_Ani`, at any depth and inside zip archives.

    `SPLIT.json`, if present, lists the class names of a split. Otherwise every second class is for training, and the
    others alternate between validation and test.
    """
    path, options = parse_argument("cub", argument, IMAGE_OPTIONS)
    spec = f"cub:{argument}".rstrip(":")
    folder = Path(path).expanduser() if path else data_folder("cub")
    tree = FileTree(folder, archives=True)
    classes: dict[str, list[str]] = {}
    for name in image_names(tree):
        parent = name.rpartition("/")[0].rpartition("/")[2]
        if _CLASS.fullmatch(parent):
            classes.setdefault(parent, []).append(name)
    wanted = _wanted(tree, split, classes)
    found = {name: classes[name] for name in sorted(classes) if name in wanted}
    if not found:
        raise DataError(
            f"{spec}: no images of its {split} classes in {folder}; hyperproto data get cub fetches all 200 classes"
        )
    return image_pool(spec, split, tree, found, Decoding.of("cub", options), progress)


def _wanted(tree: FileTree, split: str, classes: dict[str, list[str]]) -> set[str]:
    if f"{split}.json" not in tree.names:
        return {name for name in classes if _OF_FOUR[(int(name[:3]) - 1) % 4] == split}
    path = tree.path(f"{split}.json")
    listed = parse_json(decode_utf8(tree.read(f"{split}.json"), path), path)
    if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
        raise DataError(f"{path}: it must be a list of class names")
    return set(listed)
