"""`cifar-fs`, `fc100` and `tieredimagenet`: published class splits of images, read from local files.

A split is read from the first of these found in the folder or its zip archives:

- `SPLIT.npz` (train.npz, val.npz, test.npz): `images`, uint8 (n, S, S, 3), and `labels`, whole numbers or strings;
- folders or zips of class folders, `SPLIT/CLASS/*.png` (or `meta-train`, `meta-val`, `valid`, `validation`, ...);
- class folders and lists of their names, `data/CLASS/*.png` and `splits/bertinetto/SPLIT.txt`.

Pickles are never read, because they could run code.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from warnings import warn

from hyperproto.data.formats.images import IMAGE_OPTIONS, Decoding, FileTree, image_names, image_pool, labelled_pool
from hyperproto.data.formats.npz import NpzImages
from hyperproto.data.pool import Pool, Progress
from hyperproto.data.specs import data_folder, parse_argument
from hyperproto.errors import DataError
from hyperproto.files import decode_utf8, is_there, split_lines

SPLITS = ("train", "val", "test")
FOLDERS = {
    "train": ("train", "meta-train"),
    "val": ("val", "meta-val", "valid", "validation"),
    "test": ("test", "meta-test"),
}
PICKLES = (".pkl", ".pickle")
LAYOUTS = (
    "train.npz, val.npz and test.npz (images, labels), or folders train/CLASS, val/CLASS and test/CLASS of images, or "
    "class folders and lists of their names, train.txt, val.txt and test.txt"
)


@dataclass(frozen=True)
class ImageBenchmark:
    """Published class split of an image data set; local files are checked against its numbers."""

    name: str
    SUMMARY: str
    size: int  # side in pixels
    classes: Mapping[str, int]  # by split
    images: Mapping[str, int]

    def splits(self, argument: str = "") -> tuple[str, ...]:
        """Return the names of the splits."""
        return SPLITS

    def load(self, split: str, argument: str = "", progress: Progress | None = None) -> Pool:
        """Read a split. A wrong number of classes raises a DataError, a wrong number of images a warning."""
        path, options = parse_argument(self.name, argument, {**IMAGE_OPTIONS, "size": str(self.size)})
        spec = f"{self.name}:{argument}".rstrip(":")
        how = Decoding.of(self.name, options)
        folder = Path(path).expanduser() if path else data_folder(self.name)
        if is_there(folder / f"{split}.npz"):
            npz = NpzImages(folder / f"{split}.npz")
            self._check_classes(spec, split, len(npz.class_names), npz.root)
            pool = labelled_pool(spec, split, npz, npz.names, npz.labels, npz.class_names, how, progress)
        else:
            tree = FileTree(folder, archives=True)
            classes = self._found(spec, split, tree)
            self._check_classes(spec, split, len(classes), folder)
            pool = image_pool(spec, split, tree, classes, how, progress)
        if len(pool) != self.images[split]:
            warn(
                f"{spec} ({split}): {len(pool):,} images, but {self.images[split]:,} are published; numbers measured "
                "on these are not comparable",
                stacklevel=2,
            )
        return pool

    def _found(self, spec: str, split: str, tree: FileTree) -> dict[str, list[str]]:
        """Return the image files of each class of a split, sorted by name."""
        by_folder: dict[str, list[str]] = {}
        for name in image_names(tree):
            by_folder.setdefault(name.rpartition("/")[0], []).append(name)
        classes: dict[str, list[str]] = {}
        for folder, names in by_folder.items():
            above, _, own = folder.rpartition("/")
            if above.rpartition("/")[2].lower().removesuffix(".zip") in FOLDERS[split]:
                classes.setdefault(own, []).extend(names)
        lists = [name for name in tree.names if name.rpartition("/")[2] == f"{split}.txt"]
        if not classes and lists:
            classes = _listed(tree, lists, by_folder)
        if not classes:
            pickles = [name for name in tree.names if name.lower().endswith(PICKLES)]
            hint = _conversion(tree, pickles, split) if pickles else f"put there {LAYOUTS}"
            raise DataError(f"{spec}: no images of {split} in {tree.root}; {hint}")
        return dict(sorted(classes.items()))

    def _check_classes(self, spec: str, split: str, found: int, where: Path) -> None:
        if found != self.classes[split]:
            published = "/".join(str(self.classes[name]) for name in SPLITS)
            raise DataError(
                f"{spec} ({split}): {found} classes in {where}, but {self.classes[split]} are published "
                f"(train/val/test: {published}); for a selection of your own use folder:PATH"
            )


def _listed(tree: FileTree, lists: list[str], by_folder: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Return the image files of the classes named in a list, one a line."""
    if len(lists) > 1:
        raise DataError(f"{tree.root}: two lists, {lists[0]} and {lists[1]}; keep one of them")
    own: dict[str, list[str]] = {}
    for folder, names in by_folder.items():
        own.setdefault(folder.rpartition("/")[2], []).extend(names)
    where = tree.path(lists[0])
    classes: dict[str, list[str]] = {}
    for number, line in enumerate(split_lines(decode_utf8(tree.read(lists[0]), where)), start=1):
        name = line.strip()
        if not name:
            continue
        if name not in own:
            raise DataError(f"{where}, line {number}: there are no images of a class {name!r} below {tree.root}")
        classes[name] = own[name]
    return classes


def _conversion(tree: FileTree, pickles: list[str], split: str) -> str:
    """Return a command that converts the common pickle files to `SPLIT.npz`.

    A split is one pickle, or one for images and one for labels.
    """
    own = [name for name in pickles if split in name.rpartition("/")[2].lower()] or pickles
    images, labels = ([name for name in own if name.lower().endswith(end)] for end in ("images_png.pkl", "labels.pkl"))
    file = own[0]
    command = f"d = {_load(tree, file)}; x, y = d['data'], d['labels']"
    if images and labels:
        file = images[0]
        decoded = "numpy.stack([numpy.asarray(Image.open(io.BytesIO(bytes(i))).convert('RGB')) for i in x])"
        command = (
            f"import io; from PIL import Image; x = {_load(tree, file)}; x = {decoded}; "
            f"y = {_load(tree, labels[0])}['label_specific']"
        )
    save = f"numpy.savez('{tree.root}/{split}.npz', images=x, labels=y)"
    return (
        f"{tree.path(file)} is a pickle, which could run code and is not read. If you trust it, convert it:\n"
        f'python -c "import pickle, numpy; {command}; {save}"'
    )


def _load(tree: FileTree, pickle: str) -> str:
    return f"pickle.load(open('{tree.path(pickle)}', 'rb'), encoding='latin1')"


def _same(number: int, classes: Mapping[str, int]) -> dict[str, int]:
    return {split: number * count for split, count in classes.items()}


_CIFAR_FS = {"train": 64, "val": 16, "test": 20}
CIFAR_FS = ImageBenchmark(
    name="cifar-fs",
    SUMMARY="100 classes of CIFAR-100, 32 x 32, split 64/16/20 (Bertinetto et al., 2019): cifar-fs[:PATH]",
    size=32,
    classes=_CIFAR_FS,
    images=_same(600, _CIFAR_FS),
)

_FC100 = {"train": 60, "val": 20, "test": 20}
FC100 = ImageBenchmark(
    name="fc100",
    SUMMARY="100 classes of CIFAR-100, 32 x 32, split 60/20/20 (Oreshkin et al., 2018): fc100[:PATH]",
    size=32,
    classes=_FC100,
    images=_same(600, _FC100),
)

TIERED_IMAGENET = ImageBenchmark(
    name="tieredimagenet",
    SUMMARY="608 classes of ImageNet, 84 x 84, split 351/97/160 (Ren et al., 2018): tieredimagenet[:PATH]",
    size=84,
    classes={"train": 351, "val": 97, "test": 160},
    images={"train": 448_695, "val": 124_261, "test": 206_209},
)
