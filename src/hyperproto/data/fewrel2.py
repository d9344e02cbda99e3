"""`fewrel2`: domain adaptation of FewRel 2.0 with the files of `fewrel` (Gao et al., "FewRel 2.0", EMNLP 2019).

Training uses Wikipedia, validation SemEval, testing PubMed. The official PubMed test set is hidden: `test` is its
validation set, val_pubmed.json, which must be stated with every result.

`unlabelled` is text of PubMed without relations, for adversarial adaptation. The official file contains every sentence
of val_pubmed.json. These are removed by default; `overlap=official` keeps them, and results become transductive.
"""

from pathlib import Path

import numpy as np

from hyperproto.data.fewrel import is_yes, official_file, sentences_in
from hyperproto.data.formats.relations import read_instances, read_relations, relation_pool, sentence_key
from hyperproto.data.pool import OUTSIDE, Pool, Progress
from hyperproto.data.specs import data_folder, one_of, parse_argument

SUMMARY = (
    "the files of fewrel, from Wikipedia (train) to SemEval (val) and PubMed (test, unlabelled): "
    "fewrel2[:FOLDER][,uncased=yes][,overlap=official]"
)
FILES = {"train": "train_wiki", "val": "val_semeval", "test": "val_pubmed"}
UNLABELLED = "pubmed_unsupervised"
OPTIONS = {"uncased": "no", "overlap": "disjoint"}


def splits(argument: str = "") -> tuple[str, ...]:
    """Return the names of the splits."""
    return (*FILES, "unlabelled")


def load(split: str, argument: str = "", progress: Progress | None = None) -> Pool:
    """Read the relations of one domain, or the unlabelled text."""
    given, options = parse_argument("fewrel2", argument, OPTIONS)
    spec = f"fewrel2:{argument}".rstrip(":")
    folder = Path(given).expanduser() if given else data_folder("fewrel")
    uncased = is_yes("fewrel2", "uncased", options["uncased"])
    overlap = one_of("fewrel2", "overlap", options["overlap"], ("disjoint", "official"))
    if split != "unlabelled":
        return relation_pool(spec, split, read_relations(official_file(spec, folder, FILES[split]), uncased=uncased))
    items = read_instances(official_file(spec, folder, UNLABELLED), uncased=uncased)
    if overlap == "disjoint":
        seen = sentences_in(official_file(spec, folder, FILES["test"]))
        items = [item for item in items if sentence_key(item["tokens"]) not in seen]
    return Pool(items, np.full(len(items), OUTSIDE), (), name=spec, split=split)
