"""Public calls with hostile arguments: items of text and image classifiers, taggers, pools, samplers, comparisons."""

from contextlib import nullcontext
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import hyperproto
from tests.fuzz.arrays import hostile_array, hostile_labels
from tests.fuzz.inputs import SENTENCES, TAGS, TEXT_LABELS, TEXTS, Samples
from tests.fuzz.judge import Silent, Trial, check_finite, check_probabilities
from tests.fuzz.kinds import kind
from tests.fuzz.mutations import extreme_number, extreme_string, extreme_value, mutate_json
from tests.fuzz.vectors import SKLEARN


def _texts(random: Random) -> Any:
    if random.random() < 0.05:
        return extreme_value(random)
    found: Any = mutate_json(random, TEXTS) if random.random() < 0.4 else list(TEXTS)
    return np.array(found, dtype=object) if isinstance(found, list) and found and random.random() < 0.2 else found


@kind("text-items", "FewShotTextClassifier", "TextEncoder", share=25)
def text_items(random: Random, folder: Path, samples: Samples) -> Trial:
    texts = _texts(random)
    labels = TEXT_LABELS if random.random() < 0.6 else hostile_labels(random, 5)
    queries = _texts(random)
    encoder: Any = str(samples.bert)
    if random.random() < 0.3:
        returned = hostile_array(random, 5, 4)

        def encoder(items: Any) -> Any:
            return returned

    length: Any = random.choice((128, 128, 16, 0, -1, 3, 10**9, "a", None)) if random.random() < 0.2 else 128

    def run() -> None:
        model = hyperproto.FewShotTextClassifier(encoder=encoder, max_length=length).fit(texts, labels)
        check_probabilities(model.predict_proba(queries), "texts")
        model.partial_fit(queries, ["new"] * len(queries))
        check_finite(hyperproto.TextEncoder(encoder, max_length=length).transform(queries), "TextEncoder")

    return Trial(run, SKLEARN, words="texts")


@kind("label-sets", "MultiLabelClassifier", share=15)
def label_sets(random: Random, folder: Path, samples: Samples) -> Trial:
    rows = np.random.default_rng(random.randrange(10**6)).normal(size=(6, 3))
    x: Any = hostile_array(random, 6, 3) if random.random() < 0.3 else rows
    y: Any = [["a"], ["b"], ["a", "b"], [], ["c"], ["b"]]
    if random.random() < 0.5:
        y = mutate_json(random, y) if random.random() < 0.6 else hostile_array(random, 6, 2)
    threshold = extreme_number(random) if random.random() < 0.2 else "auto"

    def run() -> None:
        model = hyperproto.MultiLabelClassifier(threshold=threshold).fit(x, y)
        found = model.predict_proba(rows)
        check_finite(found, "labels")
        if ((found < 0) | (found > 1)).any():
            raise Silent("a probability of a label is not between 0 and 1")
        model.partial_fit(rows[:1], [["new"]]).forget(rows[:1], [["new"]])
        model.save(folder / "labels")
        if not np.array_equal(hyperproto.load_classifier(folder / "labels").predict_proba(rows), found):
            raise Silent("a saved multi-label classifier answers otherwise")

    return Trial(run, SKLEARN, words="label sets")


@kind("image-items", "FewShotImageClassifier", "ImageEncoder", share=8)
def image_items(random: Random, folder: Path, samples: Samples) -> Trial:
    size = random.choice((1, 2, 7, 16, 30))
    images: list[Any] = [np.full((size, size, 3), 40 * n, np.uint8) for n in range(4)]
    images[random.randrange(4)] = random.choice(
        (
            None,
            "",
            "nowhere.png",
            str(folder),
            3,
            np.zeros((4, 4)),
            np.zeros((0, 4, 3), np.uint8),
            np.zeros((4, 4, 4), np.uint8),
            np.zeros((1, 5000), np.uint8),
            np.zeros((3, 3), np.uint8),
            b"bytes",
            "\0",
            extreme_string(random),
        )
    )
    _ = samples.run
    encoder: Any = str(samples.root / "run")
    if random.random() < 0.4:
        returned = hostile_array(random, 4, 3)

        def encoder(items: Any) -> Any:
            return returned

    resolution: Any = random.choice((None, None, None, 0, -1, 2**31, "a"))

    def run() -> None:
        model = hyperproto.FewShotImageClassifier(encoder=encoder, resolution=resolution)
        check_probabilities(model.fit(images, ["a", "a", "b", "b"]).predict_proba(images), "images")
        check_finite(hyperproto.ImageEncoder(encoder, resolution=resolution).transform(images), "ImageEncoder")

    return Trial(run, SKLEARN, words="images")


@kind("sentences", "EntityTagger", share=15)
def sentences(random: Random, folder: Path, samples: Samples) -> Trial:
    words: Any = mutate_json(random, SENTENCES) if random.random() < 0.3 else SENTENCES
    tags: Any = mutate_json(random, TAGS) if random.random() < 0.3 else TAGS
    queries: Any = mutate_json(random, SENTENCES) if random.random() < 0.3 else SENTENCES
    options: Any = random.choice(
        (
            None,
            None,
            {"path": True},
            {"tau": extreme_number(random)},
            {"temperature": extreme_number(random)},
            {"x": 1},
            3,
        )
    )
    method: Any = random.choice((None, None, None, "protonet", "hyperproto", "nnshot", "structshot", "x", 3))
    scheme: Any = random.choice(("auto", "auto", "auto", "auto", "io", "bio", "x", None))
    if random.random() < 0.4:  # texts with spans of characters
        words = [" ".join(map(str, sentence)) for sentence in SENTENCES]
        tags = [[[0, len(text.split()[0]), "person"]] for text in words]
        tags = mutate_json(random, tags) if random.random() < 0.4 else tags
        queries = mutate_json(random, words) if random.random() < 0.4 else words
    names: Any = random.choice((None, None, None, "auto", {"person": "a person"}, {"place": "city"}))
    names = random.choice(({3: ""}, "x", 3)) if random.random() < 0.1 else names
    rejection: Any = random.choice(
        ({}, {}, {}, {"threshold": 0.5}, {"reject_rate": 0.5}, {"threshold": extreme_number(random)})
    )

    def run() -> None:
        model = hyperproto.EntityTagger(
            encoder=f"token-transformer:{samples.bert}",
            method=method,
            options=options,
            scheme=scheme,
            names=names,
            **rejection,
        )
        model.fit(words, tags)
        for found in model.predict_proba(queries):
            check_probabilities(found, "EntityTagger")
        model.entities(queries)
        for spans in model.spans(queries):
            if not all(0 <= span.score <= 1 and span.start < span.end for span in spans):
                raise Silent("a span without characters, or with a score that is no probability")
        model.score(words, tags)
        model.save(folder / "tagger")
        hyperproto.EntityTagger.load(folder / "tagger")
        model.partial_fit(queries, [["person"] * len(sentence) for sentence in queries])

    return Trial(run, SKLEARN, may_write=("tagger",), words="sentences")


@kind("pools", "Pool", "OUTSIDE", "EpisodeSampler", "Episode", share=40)
def pools(random: Random, folder: Path, samples: Samples) -> Trial:
    items: Any = (
        samples.vectors if random.random() < 0.6 else random.choice((hostile_array(random, 8, 3), TEXTS, [], 3))
    )
    count = len(items) if hasattr(items, "__len__") else 0
    labels: Any = [n % 3 for n in range(count)]
    if random.random() < 0.3:
        labels = [random.choice((-2, 3, 10**9, 0, -1)) for _ in range(count)]
    offsets = None
    if random.random() < 0.2:
        offsets = random.choice(
            (np.arange(count + 1), np.zeros(count + 1, int), np.arange(count), np.arange(count)[::-1])
        )
    shape: dict[str, Any] = {"way": 2, "shot": 1, "query": 1}
    for name in random.sample(sorted(shape), random.choice((0, 1, 1, 2))):
        numbers = (2, 3, 0, -1, 2**31, 2**63, 10**30)
        shape[name] = random.choice((*numbers, (1, 2), [1], ()) if name == "shot" else numbers)
    seed = random.choice((0, 0, 0, 1, -1, 2**63, 2**64, 2**70))

    def run() -> None:
        pool = hyperproto.Pool(items, np.array(labels, dtype=np.int64), ("a", "b", "c"), offsets=offsets)
        sampler = hyperproto.EpisodeSampler(pool, seed=seed, **shape)
        for episode in sampler.draw(2):
            if len(episode.classes) != shape["way"] or len(set(episode.classes.tolist())) != shape["way"]:
                raise Silent("EpisodeSampler: another way than was asked for")

    return Trial(run, (TypeError,) if not isinstance(items, np.ndarray | list) else (), words=f"{shape} seed {seed}")


def _arguments(random: Random) -> dict[str, Any]:
    """Arguments of `evaluate` and `compare`: most are good, one or two are not."""
    numbers = (0, -1, 2**31, 2**63, 10**30, 3)
    wrong: dict[str, tuple[Any, ...]] = {
        "way": numbers,
        "shot": (*numbers, (1, 2), (1, 2, 3), (), (0, 1)),
        "query": numbers,
        "episodes": (0, -1, 1),
        "seed": (-1, 2**63, 2**64, 2**70),
        "nota_share": (0.5, -1.0, 1.0, 2.0, float("nan"), 1e308, 1e-320),
        "na_rate": (1, -1, 2**31, 2**63),
        "threshold_data": ("nothing", "", "vectors:x"),
        "threshold_split": ("val", "x", ""),
        "rule": ("toolkit", "x", ""),
        "least_spans": (0, -1, 2),
        "split": ("val", "all", "x", "", "\ud800", "\0"),
        "transform": ("unit", "center-unit", "x", ""),
        "fit": ("bayes", "paper", "point", "x"),
        "method": (
            "hyperproto",
            "protonet",
            "x",
            "",
            "x.py:Y",
            "logistic",
            "nnshot",
            "hyperproto-gaussian",
            "hyperproto-cone",
            "classifier",
        ),
        "options": (
            {"prior_ratio": 1e308},
            {"prior_ratio": -1.0},
            {"prior_ratio": float("nan")},
            {"temperature": 0.0},
            {"x": 1},
            {"prior_ratio": 10**400},
            {"temperature": 1e-320},
            {"fit": []},
        ),
    }
    chosen = random.sample(sorted(wrong), random.choice((1, 1, 2, 3)))
    return {name: random.choice(wrong[name]) for name in chosen}


@kind("evaluate", "evaluate", "Result", share=25)
def evaluate(random: Random, folder: Path, samples: Samples) -> Trial:
    (folder / "vectors.npz").write_bytes(samples.vectors_file)
    given = {"way": 2, "shot": 1, "query": 2, "episodes": 2, "method": "protonet", **_arguments(random)}
    encoder = random.choice(("identity",) * 8 + ("x", "", "conv4:random", "relation-cnn", "identity:3"))

    def run() -> None:
        found = hyperproto.evaluate(f"vectors:{folder / 'vectors.npz'}", encoder=encoder, **given)
        check_finite(found.values, "evaluate")

    return Trial(run, words=f"evaluate {encoder} {given}"[:300])


@kind("compare", "compare", "Comparison", share=15)
def compare(random: Random, folder: Path, samples: Samples) -> Trial:
    (folder / "vectors.npz").write_bytes(samples.vectors_file)
    given = _arguments(random)
    several = {"method": "methods", "fit": "fits", "transform": "transforms", "shot": "shots"}
    named = {
        several.get(name, name): value
        for name, value in {
            "way": 2,
            "shot": [1, 2],
            "query": 2,
            "episodes": 3,
            "method": ["protonet", "cosine"],
            **given,
        }.items()
    }

    def run() -> None:
        found = hyperproto.compare(f"vectors:{folder / 'vectors.npz'}", encoder="identity", **named)
        found.to_json()
        for result in found.results:
            check_finite(result.values, "compare")

    return Trial(run, words=f"compare {named}"[:300])


@kind("lists", "list_recipes", "list_methods", "list_data", share=2)
def lists(random: Random, folder: Path, samples: Samples) -> Trial:
    def one() -> str | None:
        return random.choice(
            (
                None,
                None,
                "glyphs",
                "protonet",
                "cpu",
                "gpu",
                "30",
                "9" * 400,
                "-1",
                "\uff11\uff12",
                extreme_string(random),
            )
        )

    def run() -> None:
        hyperproto.list_methods()
        hyperproto.list_data()
        hyperproto.list_recipes(data=one(), method=one(), cost=one())

    return Trial(run, words="lists")


@kind("grids", "grid", "reproduce", share=5)
def grids(random: Random, folder: Path, samples: Samples) -> Trial:
    """Give a grid settings that no recipe has: each must be reported before anything runs."""
    key = random.choice(("training.seed", "validation.shot", extreme_string(random), "", "a.b.c.d", "method"))
    values = [random.choice((0, -1, 2.5, None, "", "x", [], [1, 2], extreme_string(random))) for _ in range(2)]
    text = f"{key}={','.join(map(str, values))}"
    settings: Any = random.choice(([text], {key: values}, {key: values[0]}, text, [], {}, ["training.steps=0", text]))

    strange = random.choice((0, -1, 10**400, "x", "", extreme_string(random)))
    options: dict[str, Any] = {random.choice(("seeds", "episodes", "workers", "budget", "rows")): strange}

    def run() -> None:
        if random.random() < 0.3:
            hyperproto.reproduce("table4", out=folder / "grid", dry_run=True, **{"seeds": 1, **options})
        else:
            hyperproto.grid("glyphs:protonet", settings, folder / "grid" / "\0", workers=1)

    return Trial(run, words=f"grid over {settings!r:.60}", may_write=("grid",))


@kind(
    "reports",
    "report",
    "figure",
    "submit",
    "tag",
    "fit_tagger",
    "fit",
    "fix",
    "add",
    "predict",
    "export",
    "suggest",
    "load_classifier",
    "model_lock",
    share=15,
)
def reports(random: Random, folder: Path, samples: Samples) -> Trial:
    """Functions that take paths: what is not there, is a folder, or has an odd name."""
    (folder / "file").write_bytes(b"x")
    (folder / "sub").mkdir()
    where = random.choice(("", "file", "sub", "nowhere", "file/below", "\0", "a" * 300, ".", extreme_string(random)))
    path: Any = random.choice((str(folder / "x"), f"{folder}/{where}", where, Path(where.replace("\0", ""))))
    other = random.choice((f"{folder}/nowhere.csv", str(folder), f"{folder}/file"))
    encoder = random.choice(("identity", str(folder), "nowhere/at/all/\0", "x" * 300, ""))
    call = random.randrange(12)

    def run() -> None:
        if call == 0:
            hyperproto.report(path, folder / "sub", episodes=2)
        elif call == 8:
            hyperproto.figure(random.choice(("fig4", "fig8", where)), folder / "x", run=other, results=path)
        elif call == 1:
            hyperproto.submit(path, folder / "out.json", encoder=f"relation-transformer:{samples.bert}")
        elif call == 2:
            hyperproto.tag(path, other, encoder=f"token-transformer:{samples.bert}")
            hyperproto.fit_tagger(other, folder / "new", encoder=f"token-transformer:{samples.bert}")
        elif call == 3:
            hyperproto.fit(
                path,
                folder / "model",
                encoder="identity" if encoder in ("", "x" * 300) else encoder,
                format=random.choice((None, "csv", "jsonl", "parquet", "x")),
            )
        elif call == 4:
            hyperproto.add(path, other)
        elif call == 5:
            hyperproto.predict(path, other, folder / "out.csv")
        elif call == 9:
            hyperproto.export(path, folder / "exported", int8=random.random() < 0.2)
        elif call == 10:
            hyperproto.suggest(path, other, folder / "next.csv", n=random.choice((1, 0, -3)))
        elif call == 11:
            hyperproto.fix(path, random.choice((other, folder / "out.csv", folder / "out.parquet")))
        elif call == 6:
            with getattr(hyperproto, "model_lock", nullcontext)(path):
                hyperproto.load_classifier(path)
        else:
            hyperproto.load_classifier(path)

    return Trial(run, (OSError,), words=f"call {call} with {where[:30]!r}", may_write=("x", "nowhere", "exported"))
