"""`intents`: intents of user requests. CLINC150, BANKING77 and HWU64, from the files of their releases.

Larson et al., "An Evaluation Dataset for Intent Classification and Out-of-Scope Prediction", EMNLP-IJCNLP 2019;
Casanueva et al., "Efficient Intent Detection with Dual Sentence Encoders", 2020; Liu et al., "Benchmarking Natural
Language Understanding Services for Building Conversational Agents", 2019.
"""

from collections.abc import Iterable
from pathlib import Path

from hyperproto.data.formats.tables import LabelledTexts, open_table, text_pool
from hyperproto.data.pool import Pool, Progress
from hyperproto.data.specs import data_folder
from hyperproto.errors import ConfigError, DataError, unknown_name
from hyperproto.files import is_utf8, read_json, read_utf8, split_lines

SUMMARY = "what users ask for: intents:hwu64, intents:banking77 or intents:clinc150 (splits train, valid, test)"
FETCH = "hyperproto data get intents fetches it"
SPLITS = {
    "hwu64": ("train", "valid", "test"),
    "banking77": ("train", "test"),
    "clinc150": ("train", "valid", "test"),
}


def splits(argument: str) -> tuple[str, ...]:
    """Return the names of the splits; all have the same classes."""
    if argument not in SPLITS:
        raise ConfigError(f"intents: {unknown_name('data set', argument, SPLITS)}; write intents:hwu64")
    return SPLITS[argument]


def load(split: str, argument: str, progress: Progress | None = None) -> Pool:
    """Read the texts of a split, without the out-of-scope texts of CLINC150."""
    return text_pool(read_intents(argument, split), f"intents:{argument}", split)


def read_intents(name: str, split: str) -> LabelledTexts:
    """Return texts and labels in the order of the files."""
    if split not in splits(name):
        raise ConfigError(f"{name} has no {split} split; use {' or '.join(SPLITS[name])}")
    return _READERS[name](data_folder("intents"), split)


def read_outside(name: str, split: str) -> list[str]:
    """Return the out-of-scope texts of a split; only CLINC150 has any."""
    if name != "clinc150":
        return []
    return [text for text, _ in _clinc(data_folder("intents"), split, "oos_")]


def _clinc(folder: Path, split: str, kind: str = "") -> LabelledTexts:
    path, part = folder / "clinc150.json", kind + {"valid": "val"}.get(split, split)
    content = read_json(path, missing=FETCH, damaged=FETCH)
    rows = content.get(part) if isinstance(content, dict) else None
    if not isinstance(rows, list):
        raise DataError(f"{path}: no list {part!r} of [text, label] in it; {FETCH}")
    pairs = (row if isinstance(row, list) and len(row) == 2 else (None, None) for row in rows)
    return _checked((f"{path}, {part}[{place}]", *pair) for place, pair in enumerate(pairs))


def _banking(folder: Path, split: str) -> LabelledTexts:
    path = folder / "banking77" / f"{split}.csv"
    _check_there(path)
    with open_table(str(path)) as table:
        if {"text", "category"} - {*(table.columns or ())}:
            raise DataError(f"{path}: its columns are {table.columns!r:.100}, not text and category; {FETCH}")
        return _checked((table.where(line), row["text"], row["category"]) for line, row in table.rows)


def _hwu(folder: Path, split: str) -> LabelledTexts:
    paths = [folder / "hwu64" / split / file for file in ("seq.in", "label")]
    texts, labels = (split_lines(read_utf8(path, missing=FETCH)) for path in paths)
    if len(texts) != len(labels):
        raise DataError(f"{paths[0]} has {len(texts)} lines, but {paths[1].name} {len(labels)}; {FETCH}")
    pairs = zip(texts, labels, strict=True)
    return _checked((f"{paths[1]}, line {n}", *pair) for n, pair in enumerate(pairs, start=1) if pair[0].strip())


_READERS = {"clinc150": _clinc, "banking77": _banking, "hwu64": _hwu}


def _check_there(path: Path) -> None:
    if not path.exists():
        raise DataError(f"{path}: no such file; {FETCH}")


def _checked(rows: Iterable[tuple[str, object, object]]) -> LabelledTexts:
    """Check that texts and labels are strings; the first entry of each row names its place in the file."""
    lines: LabelledTexts = []
    for where, text, label in rows:
        if not (isinstance(text, str) and isinstance(label, str) and label.strip() and is_utf8(text + label)):
            raise DataError(f"{where}: {text!r:.60} with label {label!r:.60}, not a text and its label; {FETCH}")
        lines.append((text, label))
    return lines
