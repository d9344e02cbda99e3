"""`omniglot`: 1,623 handwritten characters of 50 alphabets, each drawn by 20 people (Lake et al., Science 2015)."""

import re
from pathlib import Path

import numpy as np

from hyperproto.data.formats.images import IMAGE_OPTIONS, Decoding, FileTree, image_pool, is_image
from hyperproto.data.pool import Pool, Progress
from hyperproto.data.specs import data_folder, hash_order, one_of, parse_argument, whole_number
from hyperproto.errors import DataError
from hyperproto.files import read_utf8

SUMMARY = (
    "handwritten characters, 28 x 28: omniglot[:PATH][,split=random|vinyals|alphabet][,rotations=true|false]"
    "[,size=28][,seed=0]"
)
SPLITS = ("train", "val", "test")
OPTIONS = {
    **IMAGE_OPTIONS, "size": "28", "channels": "1", "split": "random", "rotations": "true", "seed": "0",
}  # fmt: skip
SIZES = (
    1028,
    172,
    423,
)  # number of characters by split (Vinyals et al., "Matching Networks", 2016, in the version of Snell et al.)
VAL_ALPHABETS = 5  # of the 30 in images_background
TURNS = 4

_NAME = re.compile(r"(?:.*/)?images_(background|evaluation)/([^/]+)/(character\d+)/[^/]+$")


def splits(argument: str = "") -> tuple[str, ...]:
    """Return the names of the splits."""
    return SPLITS


def load(split: str, argument: str = "", progress: Progress | None = None) -> Pool:
    """Read the official zip archives, or the unpacked folders.

    `split=random` assigns characters by a hash, with the class counts of Vinyals et al.; `split=vinyals` uses the
    published lists (`splits/vinyals/train.txt`, ...); `split=alphabet` tests on the 20 alphabets of images_evaluation.
    Each character rotated by 90, 180 and 270 degrees is a class of its own unless `rotations=false`.
    """
    path, options = parse_argument("omniglot", argument, OPTIONS)
    spec = f"omniglot:{argument}".rstrip(":")
    folder = Path(path).expanduser() if path else data_folder("omniglot")
    tree = FileTree(folder, archives=True)
    characters: dict[str, list[str]] = {}
    evaluation: set[str] = set()  # alphabets
    for name in filter(is_image, tree.names):
        if match := _NAME.match(name):
            part, alphabet, character = match.groups()
            characters.setdefault(f"{alphabet}/{character}", []).append(name)
            evaluation |= {alphabet} if part == "evaluation" else set()
    if not characters:
        raise DataError(
            f"{spec}: no images_background or images_evaluation (.zip or folder) in {folder}; "
            "hyperproto data get omniglot fetches them"
        )
    seed = whole_number("omniglot", "seed", options["seed"], 0)
    way = one_of("omniglot", "split", options["split"], ("random", "vinyals", "alphabet"))
    turns: dict[str, list[int]]
    if way == "vinyals":
        turns = _published(folder, split)
    else:
        chosen = (
            _by_alphabet(characters, evaluation, split, seed) if way == "alphabet" else _dealt(characters, split, seed)
        )
        turns = {name: list(range(TURNS)) for name in chosen}
    if one_of("omniglot", "rotations", options["rotations"], ("true", "false")) == "false":
        turns = {name: [0] for name in turns}
    missing = sorted(turns.keys() - characters.keys())
    if missing:
        raise DataError(f"{spec}: no images of {missing[0]!r} (and {len(missing) - 1} more) in {folder}")
    files = {name: characters[name] for name in sorted(turns)}
    upright = image_pool(spec, split, tree, files, Decoding.of("omniglot", options), progress)
    return _turned(upright, turns)


def _dealt(characters: dict[str, list[str]], split: str, seed: int) -> list[str]:
    order = hash_order(characters, seed)
    train, val, _ = SIZES
    bounds = {"train": (0, train), "val": (train, train + val), "test": (train + val, len(order))}
    return order[slice(*bounds[split])]


def _by_alphabet(characters: dict[str, list[str]], evaluation: set[str], split: str, seed: int) -> list[str]:
    background = hash_order({name.partition("/")[0] for name in characters} - evaluation, seed)
    wanted = {"train": background[VAL_ALPHABETS:], "val": background[:VAL_ALPHABETS], "test": sorted(evaluation)}[split]
    return [name for name in characters if name.partition("/")[0] in wanted]


def _published(folder: Path, split: str) -> dict[str, list[int]]:
    """Read a list of Snell et al.: lines such as `Angelic/character01/rot090`."""
    path = folder / "splits" / "vinyals" / f"{split}.txt"
    if not path.exists():
        raise DataError(
            f"{path}: no such list; hyperproto data get omniglot fetches the published ones, "
            "and split=random needs none (as many characters, chosen by a hash)"
        )
    turns: dict[str, list[int]] = {}
    for number, line in enumerate(read_utf8(path).split(), start=1):
        name, _, angle = line.rpartition("/rot")
        if not name or angle not in ("000", "090", "180", "270"):
            raise DataError(f"{path}, line {number}: {line!r} is not ALPHABET/CHARACTER/rot000 (or 090, 180, 270)")
        turns.setdefault(name, []).append(int(angle) // 90)
    return turns


def _turned(upright: Pool, turns: dict[str, list[int]]) -> Pool:
    """Return a pool with classes of rotated characters. Ink is 255 and paper 0, so that zero padding is paper."""
    ink = 255 - np.asarray(upright.items)
    names: list[str] = []
    images, labels = [], []
    for turn in range(TURNS):
        here = [n for n, name in enumerate(upright.class_names) if turn in turns[name]]
        rows = np.flatnonzero(np.isin(upright.labels, here))
        images.append(np.rot90(ink[rows], turn, axes=(1, 2)))
        labels.append(len(names) + np.searchsorted(here, upright.labels[rows]))
        names += [f"{upright.class_names[n]}/rot{90 * turn:03d}" for n in here]
    return Pool(np.concatenate(images), np.concatenate(labels), tuple(names), name=upright.name, split=upright.split)
