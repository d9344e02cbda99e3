"""Reading of long documents by a frozen sentence encoder: first tokens, mean of windows, most typical window.

    python -m research.long_documents agnews --part train --json FILE
    python -m research.long_documents fewnerd --part test --json FILE

A document joins sentences in random order. OWN of them are of its class: news texts of a topic, or sentences of
Few-NERD whose only type of entity is that class. The others are drawn from all sentences of other classes. No sentence
is in two documents of one class. The reading is chosen on `--part train` (news texts for training; Few-NERD's
validation types) and reported on `--part test`.
"""

import argparse
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hyperproto import HypersphereClassifier, TextEncoder
from hyperproto.data import OUTSIDE, open_pool
from hyperproto.estimators.text import LONG
from hyperproto.reports.tables import write_results
from research import command_of
from research.intents.over_draws import OverDraws
from research.intents.supports import Supports
from research.intents.texts import read_topics

SHOTS = ("1", "5", "20")
WAY = 4
LENGTHS = {"agnews": 14, "fewnerd": 20}  # sentences of a document: about 650 tokens
OWN = 0.4  # share of them that are of the class of the document
NAMES = ("agnews", "fewnerd")
Labels = NDArray[np.int64]


def sentences_of(name: str, part: str) -> tuple[list[str], list[str]]:
    """Return sentences and their classes; those of Few-NERD have a single type, one of the WAY most frequent."""
    if name == "agnews":
        rows = read_topics(name, part)
        return [text for text, _ in rows], [label for _, label in rows]
    pool = open_pool("fewnerd", {"train": "dev", "test": "test"}[part])
    offsets: Any = pool.offsets
    kinds = [set(pool.labels[a:b].tolist()) - {OUTSIDE} for a, b in pairwise(offsets)]
    single = [(n, pool.class_names[min(each)]) for n, each in enumerate(kinds) if len(each) == 1]
    names, counts = np.unique([label for _, label in single], return_counts=True)
    frequent = set(names[np.argsort(-counts, kind="stable")[:WAY]].tolist())
    chosen = [(" ".join(pool.items[n]), label) for n, label in single if label in frequent]
    return [text for text, _ in chosen], [label for _, label in chosen]


def documents(name: str, part: str, each: int, seed: int = 0) -> tuple[list[str], Labels, list[str]]:
    """Return `each` documents of every class, their labels, and the names of the classes."""
    texts, labels = sentences_of(name, part)
    random = np.random.default_rng(seed)
    classes = sorted(set(labels))
    of_class = [np.flatnonzero(np.array(labels) == label) for label in classes]
    own = round(OWN * LENGTHS[name])
    found, truth = [], []
    for number, rows in enumerate(of_class):
        others = np.concatenate([rows_of for n, rows_of in enumerate(of_class) if n != number])
        mine = random.permutation(rows)[: own * each].reshape(each, own)
        fill = random.permutation(others)[: (LENGTHS[name] - own) * each].reshape(each, -1)
        for group in np.concatenate([mine, fill], axis=1):
            found.append(" ".join(texts[row] for row in random.permutation(group)))
            truth.append(number)
    return found, np.array(truth), classes


def measure(vectors: dict[str, Any], y: Labels, shots: Sequence[str], draws: int) -> dict[str, Any]:
    """Return the accuracy of every reading at every number of shots, and paired differences to the first tokens."""
    values = OverDraws("shots", "long")
    supports = Supports(y, shots, draws)
    for shot, rows in supports:
        rest = np.setdiff1d(np.arange(len(y)), rows)
        for how, x in vectors.items():
            model = HypersphereClassifier(feature_transform="unit").fit(x[rows], y[rows])
            values.add((shot, how), accuracy=float(np.mean(model.predict(x[rest]) == y[rest])))
    against = values.against((LONG[1],), ("accuracy",))
    return {"supports": supports.hashes, "results": values.rows(), "comparisons": against}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the study and write its results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--part", choices=("train", "test"), default="test")
    parser.add_argument("--each", type=int, default=40, help="documents of each class")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args(arguments)
    texts, y, classes = documents(options.name, options.part, options.each)
    vectors = {how: TextEncoder(options.encoder, long=how, progress=True).transform(texts) for how in LONG}
    found = measure(vectors, y, SHOTS, options.draws)
    words = float(np.mean([len(text.split()) for text in texts]))
    facts = {"data": options.name, "part": options.part, "classes": classes, "each": options.each, "words": words}
    write_results(options.json, {"command": command_of("long_documents", arguments), **facts, **found})


if __name__ == "__main__":
    main()
