"""Tagged sentences from files: `conll:PATH`, one file of words and labels, or a folder with one file a split."""

import re
from pathlib import Path
from warnings import warn

import numpy as np

from hyperproto.data.formats.tagged import OUTSIDE_NAME, Tagged, read_tagged
from hyperproto.data.pool import OUTSIDE, IntArray, Pool, Progress
from hyperproto.data.specs import one_of, parse_argument, whole_number
from hyperproto.errors import ConfigError, DataError

SUMMARY = (
    "your own tagged sentences: conll:FILE or conll:FOLDER[,scheme=auto|io|bio|bioes][,column=last][,word=1]"
    "[,comments=false|true]"
)
OPTIONS = {"scheme": "auto", "column": "last", "word": "1", "comments": "false"}
SUFFIXES = (".txt", ".conll", ".tsv", ".bio", ".iob")
SCHEMES = {"bio": "BI", "bioes": "BIESLU"}  # BILOU writes L and U for E and S
BEGINNINGS = "BSU"

_PREFIXED = re.compile(r"([BIESLU])-(.+)")


def splits(argument: str) -> tuple[str, ...]:
    """Return `all` for a file; for a folder, the names of its files without suffixes."""
    return tuple(_files(argument))


def load(split: str, argument: str, progress: Progress | None = None) -> Pool:
    """Read the sentences of a split and convert labels to the IO scheme, one type a word.

    IO labels cannot separate two adjacent entities of one type: they become a single entity. A warning says how many.
    """
    path, options = _files(argument)[split], parse_argument("conll", argument, OPTIONS)[1]
    column = options["column"]
    tagged = read_tagged(
        path,
        word=whole_number("conll", "word", options["word"], 1) - 1,
        label=-1 if column == "last" else whole_number("conll", "column", column, 1) - 1,
        comments=one_of("conll", "comments", options["comments"], ("false", "true")) == "true",
    )
    scheme = one_of("conll", "scheme", options["scheme"], ("auto", "io", *SCHEMES))
    return io_pool(tagged, scheme, name=f"conll:{argument}", split=split)


def io_pool(tagged: Tagged, scheme: str, *, name: str, split: str) -> Pool:
    """Return a pool whose classes are the entity types, sorted by name."""
    parsed = _parsed(tagged, scheme)
    types = sorted({kind for _, kind in parsed if kind != OUTSIDE_NAME})
    number = {kind: n for n, kind in enumerate(types)} | {OUTSIDE_NAME: OUTSIDE}
    if not types:
        raise DataError(f"{tagged.path}: every word is O; mark at least one entity")
    labels = np.array([number[kind] for _, kind in parsed])[tagged.labels]
    begins = np.array([begin for begin, _ in parsed])[tagged.labels]
    merged = _merged(labels, begins, tagged.offsets)
    if merged:
        warn(
            f"{tagged.path}: {merged:,} entities follow another of their type without a gap; "
            "IO labels make the two one entity",
            stacklevel=4,
        )
    return Pool(tagged.sentences, labels, tuple(types), name=name, split=split, offsets=tagged.offsets)


def _merged(labels: IntArray, begins: IntArray, offsets: IntArray) -> int:
    follows = np.zeros(len(labels), bool)
    follows[1:] = labels[1:] == labels[:-1]
    follows[offsets[:-1]] = False
    return int((follows & begins & (labels != OUTSIDE)).sum())


def _parsed(tagged: Tagged, scheme: str) -> list[tuple[bool, str]]:
    """Return for each label of the file whether it begins an entity, and the entity's type ("O" for none)."""
    matches = {name: _PREFIXED.fullmatch(name) for name in tagged.names if name != OUTSIDE_NAME}
    if scheme == "auto":
        found = {match[1] for match in matches.values() if match}
        scheme = "io" if not found else "bio" if found <= set(SCHEMES["bio"]) else "bioes"
    if scheme == "io":
        return [(False, name) for name in tagged.names]
    parsed = []
    for number, name in enumerate(tagged.names):
        match = matches.get(name)
        if name == OUTSIDE_NAME:
            parsed.append((False, name))
        elif match and match[1] in SCHEMES[scheme]:
            parsed.append((match[1] in BEGINNINGS, match[2]))
        else:
            letters = ", ".join(f"{letter}-" for letter in SCHEMES[scheme])
            raise DataError(
                f"{tagged.place_of(number)}: label {name!r} does not begin with {letters} as those of "
                f"{scheme.upper()} do; fix it, or take labels as they stand: scheme=io"
            )
    return parsed


def _files(argument: str) -> dict[str, Path]:
    path = parse_argument("conll", argument, OPTIONS)[0]
    if not path:
        raise ConfigError("conll: no path named; write conll:FILE or conll:FOLDER")
    place = Path(path).expanduser()
    if not place.exists():
        raise DataError(f"conll:{argument}: there is no file or folder {place}")
    if not place.is_dir():
        return {"all": place}
    files = {file.stem: file for file in sorted(place.iterdir()) if file.suffix in SUFFIXES}
    if not files:
        raise DataError(f"conll:{argument}: no file in {place} ends in {', '.join(SUFFIXES)}; name the file itself")
    return files
