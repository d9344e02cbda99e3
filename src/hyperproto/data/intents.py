"""`intents`: what users ask a machine for. CLINC150, BANKING77 and HWU64, from the files of their releases.

Larson et al., "An Evaluation Dataset for Intent Classification and Out-of-Scope Prediction", EMNLP-IJCNLP 2019;
Casanueva et al., "Efficient Intent Detection with Dual Sentence Encoders", 2020; Liu et al., "Benchmarking Natural
Language Understanding Services for Building Conversational Agents", 2019.
"""

import csv
import json
from pathlib import Path

from hyperproto.data.pool import Pool, Progress
from hyperproto.data.specs import data_folder
from hyperproto.data.texts import Lines, text_pool
from hyperproto.errors import ConfigError, DataError, unknown_name
from hyperproto.files import os_problem

SUMMARY = "what users ask for: intents:hwu64, intents:banking77 or intents:clinc150 (splits train, valid, test)"
SPLITS = {
    "hwu64": ("train", "valid", "test"),
    "banking77": ("train", "test"),
    "clinc150": ("train", "valid", "test"),
}


def splits(argument: str) -> tuple[str, ...]:
    """Name the splits; the classes of all are the same."""
    if argument not in SPLITS:
        raise ConfigError(f"intents: {unknown_name('data set', argument, SPLITS)}; write intents:hwu64")
    return SPLITS[argument]


def load(split: str, argument: str, progress: Progress | None = None) -> Pool:
    """Read the texts of a split; CLINC150's texts out of scope are left out."""
    return text_pool(read_intents(argument, split), f"intents:{argument}", split)


def read_intents(name: str, split: str) -> Lines:
    """Texts and labels, in the order of the files."""
    if split not in splits(name):
        raise ConfigError(f"{name} has no {split} split; use {' or '.join(SPLITS[name])}")
    folder = data_folder("intents")
    try:
        return {"clinc150": _clinc, "banking77": _banking, "hwu64": _hwu}[name](folder, split)
    except OSError as error:
        raise _missing(name, error) from None
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{name}: the files of split {split} in {folder} are damaged ({error}); get them again"
        ) from None


def read_outside(name: str, split: str) -> list[str]:
    """Texts of a split that belong to no class; only CLINC150 has any."""
    if name != "clinc150":
        return []
    try:
        return [text for text, _ in _clinc(data_folder("intents"), split, "oos_")]
    except OSError as error:
        raise _missing(name, error) from None


def _missing(name: str, error: OSError) -> DataError:
    return DataError(f"{name}: {os_problem(error)}; hyperproto data get intents fetches it")


def _clinc(folder: Path, split: str, kind: str = "") -> Lines:
    content = json.loads((folder / "clinc150.json").read_text("utf-8"))
    return [(text, label) for text, label in content[kind + {"valid": "val"}.get(split, split)]]


def _banking(folder: Path, split: str) -> Lines:
    with (folder / "banking77" / f"{split}.csv").open(encoding="utf-8", newline="") as file:
        return [(row["text"], row["category"]) for row in csv.DictReader(file)]


def _hwu(folder: Path, split: str) -> Lines:
    texts, labels = ((folder / "hwu64" / split / file).read_text("utf-8").splitlines() for file in ("seq.in", "label"))
    return [(text, label) for text, label in zip(texts, labels, strict=True) if text.strip()]
