"""`fewrel2`: FewRel 2.0's domain adaptation, over the files of `fewrel` (Gao et al., "FewRel 2.0", EMNLP 2019).

Trained on Wikipedia, validated on SemEval, tested on PubMed. The official PubMed test set is hidden: `test` is its
validation set, val_pubmed.json, and numbers on it must say so.
"""

from pathlib import Path

from hyperproto.data.fewrel import is_yes, official_file
from hyperproto.data.pool import Pool, Progress
from hyperproto.data.relations import read_relations, relation_pool
from hyperproto.data.specs import data_folder, parse_argument

SUMMARY = (
    "the files of fewrel, from Wikipedia (train) to SemEval (val) and PubMed (test): fewrel2[:FOLDER][,uncased=yes]"
)
FILES = {"train": "train_wiki", "val": "val_semeval", "test": "val_pubmed"}
OPTIONS = {"uncased": "no"}


def splits(argument: str = "") -> tuple[str, ...]:
    """Name the splits."""
    return tuple(FILES)


def load(split: str, argument: str = "", progress: Progress | None = None) -> Pool:
    """Read the relations of a domain."""
    given, options = parse_argument("fewrel2", argument, OPTIONS)
    spec = f"fewrel2:{argument}".rstrip(":")
    folder = Path(given).expanduser() if given else data_folder("fewrel")
    path = official_file(spec, folder, FILES[split])
    return relation_pool(spec, split, read_relations(path, uncased=is_yes("fewrel2", "uncased", options["uncased"])))
