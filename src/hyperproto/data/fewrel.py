"""`fewrel`: relations of two marked entities in a sentence (Han et al., "FewRel", EMNLP 2018; Gao et al., 2019)."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from warnings import warn

from hyperproto.data.formats.relations import Relation, read_relations, relation_pool, sentence_key
from hyperproto.data.pool import Pool, Progress
from hyperproto.data.specs import data_folder, hash_order, one_of, parse_argument, whole_number
from hyperproto.errors import ConfigError, DataError
from hyperproto.files import read_json

SUMMARY = (
    "relations of two marked entities in a sentence: fewrel[:FOLDER] (train_wiki.json, val_wiki.json, ...) or "
    "fewrel:FILE.json[,holdout=N][,uncased=yes][,without=PATH]"
)
FILES = ("train_wiki", "val_wiki", "val_pubmed", "val_semeval")  # the official test sets are hidden
NAMES = "pid2name.json"  # in the same folder; names and descriptions of relations, no sentences
NO_DESCRIPTION = "No description defined"  # Wikidata's placeholder in that file
OPTIONS = {"holdout": "0", "uncased": "no", "without": ""}


@dataclass(frozen=True)
class _Place:
    """A parsed data spec."""

    spec: str
    path: Path
    is_file: bool  # True: one file with every relation; False: a folder of official files
    holdout: int
    uncased: bool
    without: Path | None

    @classmethod
    def of(cls, argument: str) -> "_Place":
        given, options = parse_argument("fewrel", argument, OPTIONS)
        path = Path(given).expanduser() if given else data_folder("fewrel")
        without = data_folder("fewrel") if options["without"] == "fewrel" else Path(options["without"]).expanduser()
        return cls(
            spec=f"fewrel:{argument}".rstrip(":"),
            path=path,
            is_file=path.is_file() or (path.suffix == ".json" and not path.is_dir()),
            holdout=whole_number("fewrel", "holdout", options["holdout"], 0),
            uncased=is_yes("fewrel", "uncased", options["uncased"]),
            without=without if options["without"] else None,
        )


def splits(argument: str = "") -> tuple[str, ...]:
    """Return `train`, `val` and the name of each official file that exists; for a single file, `all`."""
    place = _Place.of(argument)
    if place.is_file:
        return ("all", "train", "val") if place.holdout else ("all",)
    own = tuple(name for name in FILES if (place.path / f"{name}.json").exists())
    return ("train", "val", "test", *own) if place.holdout else ("train", "val", *own)


def load(split: str, argument: str = "", progress: Progress | None = None) -> Pool:
    """Read the relations of a split: `train` is train_wiki.json, `val` is val_wiki.json.

    `holdout=N` uses N training relations, selected by a hash, for model selection: they are `val`, the others are
    `train`, and val_wiki.json is `test`, which then plays no part in selection. It splits a single file as well.
    `uncased=yes` lower-cases words and strips accents, so that differently prepared files agree.
    `without=PATH` removes every sentence that occurs in a file, or in the files below a folder (`without=fewrel`:
    those of this data set). It is meant for corpora to pre-train on.
    """
    place = _Place.of(argument)
    path = place.path
    if not place.is_file:
        names = {"train": "train_wiki", "val": "val_wiki"}
        if place.holdout:
            names = {"train": "train_wiki", "val": "train_wiki", "test": "val_wiki"}
        path = official_file(place.spec, place.path, names.get(split, split))
    relations = read_relations(path, uncased=place.uncased)
    if place.holdout and split in ("train", "val"):
        if place.holdout >= len(relations):
            raise ConfigError(
                f"{place.spec}: holdout={place.holdout} of the {len(relations)} relations in {path} leaves none to "
                "train on; keep fewer"
            )
        kept = hash_order(relations, seed=0)[: place.holdout]
        relations = {name: found for name, found in relations.items() if (name in kept) == (split == "val")}
    if place.without is not None:
        relations = leave_out(f"{place.spec} ({split})", path, relations, place.without)
    return relation_pool(place.spec, split, relations)


def official_file(spec: str, folder: Path, name: str) -> Path:
    """Return the path of a FewRel file; raise a DataError with the download command if it does not exist."""
    path = folder / f"{name}.json"
    if not path.exists():
        raise DataError(f"{spec}: no {path.name} in {folder}; hyperproto data get fewrel fetches it")
    return path


def is_yes(name: str, key: str, text: str) -> bool:
    """Parse an option that is yes or no."""
    return one_of(name, key, text, ("yes", "no")) == "yes"


def relation_names(folder: Path | None = None) -> dict[str, str]:
    """Return the names of relation ids (P6: head of government) from pid2name.json; {} if there is no such file."""
    return {relation: found[0] for relation, found in _named_relations(folder).items()}


def relation_texts(spec: str) -> dict[str, str]:
    """Return "name: description" by relation id, or the name alone if there is no description.

    The texts are read from pid2name.json in the folder of a spec, else in the folder of `fewrel`; {} without the file.
    """
    name, _, argument = spec.partition(":")
    given = parse_argument(name, argument, OPTIONS)[0] if name in ("fewrel", "fewrel2") else ""
    place = Path(given).expanduser() if given else data_folder("fewrel")
    folder = place if place.is_dir() else place.parent
    found = _named_relations(folder if (folder / NAMES).exists() else None)
    return {relation: ": ".join(part for part in parts if part != NO_DESCRIPTION) for relation, parts in found.items()}


def _named_relations(folder: Path | None) -> dict[str, list[str]]:
    """Read pid2name.json: the name of each relation id, followed by its description if it has one."""
    path = (data_folder("fewrel") if folder is None else folder) / NAMES
    if not path.exists():
        return {}
    content = read_json(path)
    found = {
        relation: parts if isinstance(parts, list) else [parts]
        for relation, parts in (content.items() if isinstance(content, dict) else ())
    }
    if not found or not all(parts and all(isinstance(part, str) for part in parts) for parts in found.values()):
        raise DataError(
            f"{path}: not {{id: [name, description]}} or {{id: name}}; hyperproto data get fewrel fetches it"
        )
    return found


def leave_out(spec: str, corpus: Path, relations: dict[str, list[Relation]], place: Path) -> dict[str, list[Relation]]:
    """Remove every instance of a corpus whose sentence occurs in a file, or in another file below a folder.

    Relations without remaining instances are removed. A warning gives the number of removed instances.
    """
    known = sentences_in(place, besides=corpus)
    kept = {
        relation: [instance for instance in instances if sentence_key(instance["tokens"]) not in known]
        for relation, instances in relations.items()
    }
    kept = {relation: instances for relation, instances in kept.items() if instances}
    total, left = (sum(map(len, each.values())) for each in (relations, kept))
    if not left:
        raise DataError(f"{spec}: all {total:,} instances occur in {place}; name another corpus, or another place")
    if left < total:
        gone = len(relations) - len(kept)
        lost = f", and with them {gone} of {len(relations):,} relations" if gone else ""
        warn(f"{spec}: {total - left:,} of {total:,} instances occur in {place} and are left out{lost}", stacklevel=3)
    return kept


def sentences_in(place: Path, besides: Path | None = None) -> set[str]:
    """Return the keys of all sentences in a file, or in the .json files below a folder except `besides`.

    All formats of FewRel are read: by relation, a list without relations, tasks of a hidden test set.
    """
    files = [place]
    if place.is_dir():
        files = [file for file in sorted(place.rglob("*.json")) if file.name != NAMES]
        files = [file for file in files if besides is None or not file.samefile(besides)]
        if not files:
            raise DataError(f"{place}: no .json files to compare with; name a folder, or a file, of FewRel's format")
    keys: set[str] = set()
    for file in files:
        found = {sentence_key(map(str, tokens)) for tokens in _sentences(read_json(file))}
        if not found:
            raise DataError(f"{file}: no sentences (tokens) in it; name a folder without this file, or other files")
        keys |= found
    return keys


def _sentences(content: Any) -> Iterator[list[Any]]:
    """Yield the words of every instance in nested JSON."""
    if isinstance(content, dict) and isinstance(content.get("tokens"), list):
        yield content["tokens"]
    elif isinstance(content, dict | list):
        for part in content.values() if isinstance(content, dict) else content:
            yield from _sentences(part)
