"""BERT+Pretrain's chain in small: sentences and triples, a corpus, its classification, then episodes from there."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import hyperproto
from hyperproto.data import open_pool
from hyperproto.errors import DataError
from hyperproto.files import read_json
from hyperproto.training import Run, load_recipe, train
from hyperproto.training.checkpoint import load_tensors
from tests.helpers.linked import write_linked

RECIPE = """
encoder = {{ name = "relation-cnn:{vectors}", filters = 16, learn_words = false }}
optim.encoder = {{ name = "adam", lr = 0.01 }}
training = {{ steps = 80, validate_every = 40, log_every = 10 }}
validation = {{ way = 3, shot = 2, query = 3, episodes = 30 }}
[[row]]
name = "classifier"
data = {{ spec = "fewrel:{corpus},holdout=3,without={unseen}" }}
method = {{ name = "classifier", head = "linear" }}
batches = {{ size = 16 }}
[[row]]
name = "protonet"
data = {{ spec = "fewrel:{fewrel}" }}
start = "{recipe}:classifier"
method = {{ name = "protonet" }}
episodes = {{ way = 3, shot = 2, query = 3 }}
training = {{ steps = 2, validate_every = 1 }}
"""

Relations = dict[str, list[dict[str, Any]]]


def small_relations(first: int, count: int, each: int = 12) -> Relations:
    """Relations that one word of the sentence gives away."""

    def instance(relation: int, n: int) -> dict[str, Any]:
        words = f"h{relation}x{n} the verb{relation} of t{relation}x{n} w{n % 5}".split()
        return {"tokens": words, "h": [words[0], "", [[0]]], "t": [words[4], "", [[4]]]}

    return {f"P{r}": [instance(r, n) for n in range(each)] for r in range(first, first + count)}


def chain(folder: Path, corpus_of: Relations, train_wiki: Relations, val_wiki: Relations) -> tuple[Any, Run, Run]:
    """Label a corpus, classify its relations, go on with episodes; `folder` holds everything."""
    fewrel = folder / "fewrel"
    fewrel.mkdir()
    for name, relations in (("train_wiki", train_wiki), ("val_wiki", val_wiki)):
        (fewrel / f"{name}.json").write_text(json.dumps(relations))
    sentences, triples = write_linked({**corpus_of, **val_wiki}, folder)
    corpus = hyperproto.distant_data(
        sentences,
        triples,
        folder / "corpus.json",
        without=fewrel,
        without_relations=fewrel / "val_wiki.json",
        least=5,
    )
    words = {word for found in (*corpus_of.values(), *train_wiki.values()) for one in found for word in one["tokens"]}
    rows = np.random.default_rng(0).normal(size=(len(words), 8))
    vectors = folder / "vectors.txt"
    lines = (" ".join([word, *(f"{x:.3f}" for x in row)]) for word, row in zip(sorted(words), rows, strict=True))
    vectors.write_text("\n".join(lines) + "\n", encoding="utf-8")
    recipe = folder / "chain.toml"
    recipe.write_text(RECIPE.format(vectors=vectors, corpus=corpus.path, unseen=fewrel, fewrel=fewrel, recipe=recipe))
    second = train(load_recipe(f"{recipe}:protonet", ["optim.encoder.lr=1e-12"]), folder / "runs" / "second")
    return corpus, Run(folder / "runs" / "chain-classifier"), second


def check(corpus: Any, first: Run, second: Run) -> None:
    rows = first.read_metrics()
    assert rows[-1]["cls"] < 0.9 * rows[0]["cls"]
    before, after = (load_tensors(run.model)[0] for run in (first, second))
    encoder = {key for key in before if key.startswith("encoder.") or ".encoder." in key}
    assert encoder
    for key in encoder:  # at a rate of 1e-12 two steps change nothing that shows
        torch.testing.assert_close(after[key], before[key], msg=key)
    assert len(before["method.weight"]) == len(corpus.kept) - 3
    assert second.read_metrics()[-1]["step"] == 2


def test_corpus_classification_episodes(tmp_path: Path) -> None:
    corpus, first, second = chain(tmp_path, small_relations(0, 9), small_relations(20, 5), small_relations(40, 4))
    assert set(corpus.kept) == {f"P{r}" for r in range(9)}
    assert corpus.overlapping == 4 * 12  # val_wiki's sentences are in the corpus, and were found
    check(corpus, first, second)


real = pytest.mark.skipif(
    not (Path(os.environ.get("HYPERPROTO_DATA", "")) / "fewrel").is_dir(),
    reason="HYPERPROTO_DATA names no folder with fewrel",
)


@real
@pytest.mark.data
def test_corpus_classification_episodes_of_the_real_file(tmp_path: Path) -> None:
    """A part of train_wiki is the corpus, other relations of it are the training data."""
    folder = Path(os.environ["HYPERPROTO_DATA"]) / "fewrel"
    every = {name: read_json(folder / f"{name}.json") for name in ("train_wiki", "val_wiki")}
    names = sorted(every["train_wiki"])
    corpus_of = {name: every["train_wiki"][name][:60] for name in names[:12]}
    train_wiki = {name: every["train_wiki"][name][:40] for name in names[12:20]}
    val_wiki = {name: found[:40] for name, found in sorted(every["val_wiki"].items())[:5]}
    corpus, first, second = chain(tmp_path, corpus_of, train_wiki, val_wiki)
    assert set(corpus.kept) == {*names[:12]}
    assert 40 <= min(corpus.kept.values()) <= max(corpus.kept.values()) <= 62  # a triple may label other sentences too
    assert corpus.overlapping >= 200
    check(corpus, first, second)
    pool = open_pool(f"fewrel:{corpus.path}", "all")
    assert len(pool) == sum(corpus.kept.values())


@real
@pytest.mark.data
def test_fewrel_itself_is_no_corpus(tmp_path: Path) -> None:
    """With the defaults every sentence of train_wiki is recognised, and nothing is left."""
    folder = Path(os.environ["HYPERPROTO_DATA"]) / "fewrel"
    relations = read_json(folder / "train_wiki.json")
    given = write_linked({name: found[:50] for name, found in relations.items()}, tmp_path)
    words = r"\(sentences read: 3,200; without a triple: 2; in the evaluation files: 3,198\)"  # 2: one name
    with pytest.raises(DataError, match=words):
        hyperproto.distant_data(*given, tmp_path / "corpus.json")
