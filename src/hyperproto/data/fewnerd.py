"""`fewnerd`: Few-NERD, 66 fine types of entities in 8 coarse ones (Ding et al., "Few-NERD", ACL 2021)."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hyperproto.data.conll import io_pool
from hyperproto.data.formats.tagged import read_tagged
from hyperproto.data.pool import OUTSIDE, IntArray, Pool, Progress
from hyperproto.data.specs import data_folder, one_of, parse_argument
from hyperproto.errors import DataError

SUMMARY = "named entities of 66 fine types: fewnerd[:PATH][,setting=inter|intra|supervised|intra-style]"
OPTIONS = {"setting": "inter"}
SETTINGS = ("inter", "intra", "supervised", "intra-style")
PARTIAL = "train-partial"  # split name of an incomplete training file, so that results show that it is incomplete
ALIASES = {"val": "dev"}


def splits(argument: str = "") -> tuple[str, ...]:
    """Return the splits whose files exist; `val` is an alias of `dev`."""
    folder, setting = _place(argument)
    found = list(INTRA) if setting == "intra-style" else list(_files(folder, setting))
    return tuple(name for split in found for name in (split, *(a for a, b in ALIASES.items() if b == split)))


def load(split: str, argument: str = "", progress: Progress | None = None) -> Pool:
    """Read the official text files: word, tab, fine type (`person-actor`) or O; blank lines between sentences.

    `setting=intra-style` builds a substitute for INTRA from the INTER files. It is not INTRA: results on it are not
    comparable with published ones.
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
    """Return the file of each split, in any of the common folder layouts."""
    wanted = {"train": ("train",), PARTIAL: ("train_partial",), "dev": ("dev", "val"), "test": ("test",)}
    files: dict[str, Path] = {}
    for split, stems in wanted.items():
        for stem in stems:
            layouts = (f"{setting}/{stem}", f"{setting}_{stem}", f"{setting}-{stem}", f"{stem}-{setting}")
            for path in (folder / f"{layout}.txt" for layout in layouts):
                if path.is_file():
                    files.setdefault(split, path)
    if not files:
        other = "; setting=intra-style makes a substitute from the INTER files" if setting == "intra" else ""
        raise DataError(
            f"fewnerd: no {setting}/train.txt, {setting}/dev.txt or {setting}/test.txt (or {setting}_train.txt, ...) "
            f"in {folder}; put the official files there, or name their folder: fewnerd:PATH{other}"
        )
    if "train" in files:
        files.pop(PARTIAL, None)
    return files


INTRA = {  # the coarse types of each split in Few-NERD (INTRA)
    "train": ("art", "other", "person", "product"),
    "dev": ("building", "event"),
    "test": ("location", "organization"),
}
_NOWHERE = len(INTRA)


def coarse_type(name: str) -> str:
    """Return the coarse part of a fine type: `person` for `person-actor`."""
    return name.partition("-")[0]


def intra_style(pools: Sequence[Pool], *, name: str, split: str) -> Pool:
    """Select the sentences of one split by coarse type, following the rule of Few-NERD's INTRA.

    A sentence with an entity of a training type belongs to train; otherwise one with a dev type belongs to dev; all
    others to test. Within a split, entities of other types become O. Copies of a sentence are in the same split.
    """
    wanted = list(INTRA).index(split)
    ranks = [_word_ranks(pool) for pool in pools]
    own = [np.minimum.reduceat(rank, pool.unit_offsets[:-1]) for pool, rank in zip(pools, ranks, strict=True)]
    first: dict[tuple[str, ...], int] = {}  # rank of the split of each text
    for pool, sentence_ranks in zip(pools, own, strict=True):
        for words, rank in zip(pool.items, sentence_ranks.tolist(), strict=True):
            first[tuple(words)] = min(rank, first.get(tuple(words), _NOWHERE))
    types = sorted({kind for pool in pools for kind in pool.class_names if coarse_type(kind) in INTRA[split]})
    number = {kind: n for n, kind in enumerate(types)}
    sentences: list[list[str]] = []
    labels = []
    for pool, sentence_ranks in zip(pools, own, strict=True):
        kept = (sentence_ranks == wanted) & [first[tuple(words)] == wanted for words in pool.items]
        sentences += [pool.items[i] for i in np.flatnonzero(kept).tolist()]
        table = np.array([*(number.get(kind, OUTSIDE) for kind in pool.class_names), OUTSIDE])  # the last: OUTSIDE = -1
        labels.append(table[pool.labels[np.repeat(kept, np.diff(pool.unit_offsets))]])
    if not sentences:
        raise DataError(f"{name}: no sentence has an entity of a type for {split} ({', '.join(INTRA[split])})")
    offsets = np.cumsum([0, *map(len, sentences)])
    return Pool(sentences, np.concatenate(labels), tuple(types), name=name, split=split, offsets=offsets)


def _word_ranks(pool: Pool) -> IntArray:
    """Return for each word the rank of the split of its type: 0 train, 1 dev, 2 test, 3 none."""
    order = {kind: rank for rank, kinds in enumerate(INTRA.values()) for kind in kinds}
    ranks = [order.get(coarse_type(kind), _NOWHERE) for kind in pool.class_names]
    return np.array([*ranks, _NOWHERE])[pool.labels]
