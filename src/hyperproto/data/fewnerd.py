"""`fewnerd`: Few-NERD, 66 fine types of entities in 8 coarse ones (Ding et al., "Few-NERD", ACL 2021)."""

from pathlib import Path

from hyperproto.data.conll import io_pool
from hyperproto.data.fewnerd_intra import INTRA, intra_style
from hyperproto.data.places import data_folder, one_of, parse_argument
from hyperproto.data.pool import Pool, Progress
from hyperproto.data.tagged import read_tagged
from hyperproto.errors import DataError

SUMMARY = "named entities of 66 fine types: fewnerd[:PATH][,setting=inter|intra|supervised|intra-style]"
OPTIONS = {"setting": "inter"}
SETTINGS = ("inter", "intra", "supervised", "intra-style")
PARTIAL = "train-partial"  # a training file that is a part of the official one says so in every result
ALIASES = {"val": "dev"}


def splits(argument: str = "") -> tuple[str, ...]:
    """Name the splits whose files are there; `val` is another name of `dev`."""
    folder, setting = _place(argument)
    found = list(INTRA) if setting == "intra-style" else list(_files(folder, setting))
    return tuple(name for split in found for name in (split, *(a for a, b in ALIASES.items() if b == split)))


def load(split: str, argument: str = "", progress: Progress | None = None) -> Pool:
    """Read the official text files: word, tab, fine type (`person-actor`) or O; blank lines between sentences.

    `setting=intra-style` stands in for INTRA where only the INTER files are at hand; it is not INTRA, and numbers on it
    compare with no published ones.
    """
    folder, setting = _place(argument)
    split = ALIASES.get(split, split)
    name = f"fewnerd:{argument}".rstrip(":")
    if setting == "intra-style":
        pools = [_read(path, name, part) for part, path in _files(folder, "inter").items()]
        return intra_style(pools, name=name, split=split)
    return _read(_files(folder, setting)[split], name, split)


def _read(path: Path, name: str, split: str) -> Pool:
    return io_pool(read_tagged(path), "io", name=name, split=split)


def _place(argument: str) -> tuple[Path, str]:
    path, options = parse_argument("fewnerd", argument, OPTIONS)
    folder = Path(path).expanduser() if path else data_folder("fewnerd")
    return folder, one_of("fewnerd", "setting", options["setting"], SETTINGS)


def _files(folder: Path, setting: str) -> dict[str, Path]:
    """Find the files in any of the layouts in which they are handed around."""
    wanted = {"train": ("train",), PARTIAL: ("train_partial",), "dev": ("dev", "val"), "test": ("test",)}
    files: dict[str, Path] = {}
    for split, stems in wanted.items():
        for stem in stems:
            layouts = (f"{setting}/{stem}", f"{setting}_{stem}", f"{setting}-{stem}", f"{stem}-{setting}")
            for path in (folder / f"{layout}.txt" for layout in layouts):
                if path.is_file():
                    files.setdefault(split, path)
    if not files:
        other = "; setting=intra-style makes a stand-in from the INTER files" if setting == "intra" else ""
        raise DataError(
            f"fewnerd: no {setting}/train.txt, {setting}/dev.txt or {setting}/test.txt (or {setting}_train.txt, ...) "
            f"in {folder}; put the official files there, or name their folder: fewnerd:PATH{other}"
        )
    if "train" in files:
        files.pop(PARTIAL, None)
    return files
