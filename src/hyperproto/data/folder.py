"""Images in folders: `folder:PATH`, a folder or zip archive with one folder of images for each class."""

from collections.abc import Mapping
from pathlib import Path

from hyperproto.data.formats.images import IMAGE_OPTIONS, Decoding, FileTree, image_names, image_pool
from hyperproto.data.pool import Pool, Progress
from hyperproto.data.specs import hash_order, parse_argument, whole_number
from hyperproto.errors import ConfigError, DataError

SUMMARY = (
    "your own images, one folder a class: folder:PATH[,size=84][,channels=3][,seed=0][,shares=64/16/20][,damaged=skip]"
)
SPLITS = ("train", "val", "test")
OPTIONS = {**IMAGE_OPTIONS, "seed": "0", "shares": "64/16/20"}


def splits(argument: str) -> tuple[str, ...]:
    """Return `all`, `train`, `val` and `test`."""
    return ("all", *SPLITS)


def load(split: str, argument: str, progress: Progress | None = None) -> Pool:
    """Decode the classes of a split.

    Top-level folders called train, val and test are the splits. Otherwise classes are assigned to splits at random,
    by `seed` and in the given shares; `all` has every class.
    """
    path, options = parse_argument("folder", argument, OPTIONS)
    if not path:
        raise ConfigError("folder: no path named; write folder:PATH")
    tree = FileTree(Path(path).expanduser())
    classes = files_by_class(tree, f"folder:{path}")
    chosen = {name: classes[name] for name in _choose(split, classes, options)}
    if not chosen:
        raise DataError(
            f"folder:{path}: none of its {len(classes)} classes is in {split!r} with shares={options['shares']}; "
            f"give it other shares, such as folder:{path},shares=40/30/30, or another split ('all' has all classes)"
        )
    top = f"{split}/"
    named = {name.removeprefix(top): files for name, files in sorted(chosen.items())}
    return image_pool(f"folder:{argument}", split, tree, named, Decoding.of("folder", options), progress)


def files_by_class(tree: FileTree, name: str) -> dict[str, list[str]]:
    """Return the images of each folder; `name` appears in messages."""
    classes: dict[str, list[str]] = {}
    for file in image_names(tree):
        classes.setdefault(file.rpartition("/")[0], []).append(file)
    without_folder = classes.pop("", [])
    if not classes:
        found = f"{len(without_folder)} images outside of folders" if without_folder else "no images"
        raise DataError(f"{name}: {found}; put the images of each class into a folder of the class's name")
    return classes


def _choose(split: str, classes: Mapping[str, list[str]], options: Mapping[str, str]) -> list[str]:
    if split == "all":
        return list(classes)
    if all(name.partition("/")[0] in SPLITS and "/" in name for name in classes):
        return [name for name in classes if name.startswith(f"{split}/")]
    order = hash_order(classes, whole_number("folder", "seed", options["seed"], 0))
    try:
        shares = [int(share) for share in options["shares"].split("/")]
    except ValueError:
        shares = []
    if len(shares) != len(SPLITS) or min(shares) < 0 or sum(shares) == 0:
        raise ConfigError(f"folder: shares={options['shares']} is invalid; write train/val/test, such as 64/16/20")
    ends = [0, *(round(sum(shares[: i + 1]) * len(order) / sum(shares)) for i in range(len(shares)))]
    place = SPLITS.index(split)
    return order[ends[place] : ends[place + 1]]
