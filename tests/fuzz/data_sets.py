"""Data sets in damaged files: every reader of `hyperproto.data`, episode files and recipes."""

import json
import os
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np

import hyperproto
from tests.fuzz.files import Files, make_zip, mutate_file, mutate_files
from tests.fuzz.inputs import Samples
from tests.fuzz.judge import Enough, Silent, Trial, same
from tests.fuzz.kinds import kind, write_files
from tests.fuzz.mutations import dump_json, extreme_string, mutate_bytes


@kind("npz", "data vectors", "open_pool", "check_data", "Pool", share=80)
def vectors(random: Random, folder: Path, samples: Samples) -> Trial:
    path = folder / "vectors.npz"
    path.write_bytes(mutate_file(random, path.name, samples.vectors_file))
    return Trial(lambda: hyperproto.check_data(f"vectors:{path}"), words="check_data vectors")


@kind("npz-evaluate", "data vectors", "evaluate", "Result", share=20)
def evaluated_vectors(random: Random, folder: Path, samples: Samples) -> Trial:
    path = folder / "vectors.npz"
    path.write_bytes(mutate_file(random, path.name, samples.vectors_file))
    method = random.choice(("hyperproto", "protonet", "cosine", "simpleshot", "nearest"))
    transform = random.choice((None, "unit", "center-unit"))

    def run() -> None:
        found = hyperproto.evaluate(
            f"vectors:{path}",
            encoder="identity",
            method=method,
            transform=transform,
            way=2,
            shot=1,
            query=2,
            episodes=2,
        )
        if not np.isfinite(found.values).all():
            raise Silent("evaluate vectors: a metric is not finite")

    return Trial(run, words="evaluate vectors")


@kind("conll", "data conll", "check_data", share=60)
def conll(random: Random, folder: Path, samples: Samples) -> Trial:
    path = folder / "few.conll"
    path.write_bytes(mutate_file(random, path.name, samples.conll))
    options = random.choice(
        (
            "",
            "",
            ",scheme=bio",
            ",scheme=io",
            ",column=1",
            ",word=2",
            ",comments=true",
            ",column=9",
            ",word=0",
            ",scheme=x",
        )
    )
    return Trial(lambda: hyperproto.check_data(f"conll:{path}{options}"), words="check_data conll")


@kind("tag", "tag", "data conll", share=10)
def tag(random: Random, folder: Path, samples: Samples) -> Trial:
    support, text = folder / "few.conll", folder / "text.txt"
    support.write_bytes(samples.conll)
    text.write_bytes(samples.texts["lines.txt"])
    damaged = random.choice((support, text))
    damaged.write_bytes(mutate_file(random, damaged.name, damaged.read_bytes()))

    def run() -> None:
        for line in hyperproto.tag(text, support, encoder=f"token-transformer:{samples.bert}"):
            json.loads(line.to_json())
            line.to_conll().encode()

    return Trial(run, words="tag")


@kind("fewrel", "data fewrel", "data fewrel2", "check_data", share=60)
def fewrel(random: Random, folder: Path, samples: Samples) -> Trial:
    write_files(folder / "data", mutate_files(random, samples.fewrel))
    spec = random.choice(
        (
            "fewrel:{}",
            "fewrel2:{}",
            "fewrel:{}/train_wiki.json",
            "fewrel:{}/train_wiki.json,holdout=1",
            "fewrel:{},uncased=yes",
            "fewrel:{},holdout=1",
            "fewrel:{}/train_wiki.json,without={}/val_wiki.json",
        )
    )
    spec = spec.replace("{}", str(folder / "data"))

    def run() -> None:
        from hyperproto.data.fewrel import relation_names

        hyperproto.check_data(spec)
        relation_names(folder / "data")

    return Trial(run, words="check_data fewrel")


@kind("distant", "distant_data", share=40)
def distant(random: Random, folder: Path, samples: Samples) -> Trial:
    """Label a corpus by triples: the result must open as FewRel's format, with the reported counts."""
    files = mutate_files(random, samples.linked) if random.random() < 0.9 else samples.linked
    write_files(folder, {"sentences.jsonl": b"", "triples.tsv": b"", **files})
    evaluation = samples.fewrel["val_wiki.json"]
    (folder / "val.json").write_bytes(
        mutate_file(random, "val.json", evaluation) if random.random() < 0.2 else evaluation
    )
    (folder / "corpus.json").write_text("old")
    given: dict[str, Any] = {
        "without": random.choice((None, folder / "val.json")),
        "without_relations": random.choice((None, None, folder / "val.json")),
        "most": random.choice((None, 1, 2, 2**70)),
        "ambiguous": random.choice(("drop", "keep")),
        "seed": random.choice((0, 1, -1, 2**70)),
    }
    if random.random() < 0.3:
        given |= random.choice(
            ({"without": "nowhere"}, {"without": "\0"}, {"without_relations": ""}, {"most": 0}, {"most": "a"},
             {"least": 2}, {"least": 0}, {"least": 1.5}, {"least": 2**70}, {"ambiguous": "x"})
        )  # fmt: skip

    def run() -> None:
        found = hyperproto.distant_data(
            folder / "sentences.jsonl", folder / "triples.tsv", folder / "corpus.json", **given
        )
        pool = hyperproto.open_pool(f"fewrel:{folder / 'corpus.json'}", "all")
        if dict(zip(pool.class_names, pool.counts.tolist(), strict=True)) != found.kept:
            raise Silent("distant_data: the counts are not those of the file")

    return Trial(run, words=f"distant {given}"[:300])


@kind("text-tables", "data texts", "check_data", share=30)
def texts(random: Random, folder: Path, samples: Samples) -> Trial:
    """Read a table of texts: an error, or a pool with a class for each label."""
    rows = [("hello, you", "greet", "train"), ("bye", "leave", "train"), ("my card", "", "test")]
    lines = b"\n".join(dump_json(dict(zip(("text", "label", "split"), row, strict=True))) for row in rows)
    table = "\n".join(",".join(f'"{cell}"' for cell in row) for row in [("text", "label", "split"), *rows]).encode()
    name, content = random.choice((("a.csv", table), ("a.jsonl", lines), ("a.tsv", table.replace(b",", b"\t"))))
    path = folder / name
    path.write_bytes(mutate_file(random, name, content) if random.random() < 0.9 else content)
    spec = f"texts:{path}" + random.choice(("", "", ",split=label", ",label=split", ",text=x", ",a=b"))
    return Trial(lambda: hyperproto.check_data(spec), words="check_data texts")


@kind("intents", "data intents", "check_data", share=20)
def intents(random: Random, folder: Path, samples: Samples) -> Trial:
    """Damage the released files."""
    parts = {"train": [["a", "x"]], "val": [["b", "x"]], "test": [["c", "x"]], "oos_test": [["d", "oos"]]}
    files = {"clinc150.json": dump_json(parts)}
    files |= {f"banking77/{split}.csv": b'text,category\n"a, b",x\n' for split in ("train", "test")}
    files |= {f"hwu64/{split}/seq.in": b"a\nb\n" for split in ("train", "valid", "test")}
    files |= {f"hwu64/{split}/label": b"x\ny\n" for split in ("train", "valid", "test")}
    write_files(folder / "intents", mutate_files(random, files))
    name = random.choice(("clinc150", "banking77", "hwu64", "", "x"))

    def run() -> None:
        with patch.dict(os.environ, HYPERPROTO_DATA=str(folder)):
            hyperproto.check_data(f"intents:{name}")

    return Trial(run, words="check_data intents")


@kind("statements", "data statements", "check_data", share=30)
def statements(random: Random, folder: Path, samples: Samples) -> Trial:
    """Statements in a list, on lines, or by relation; all that can be read makes pairs, or says why not."""
    listed = [
        {
            "tokens": ["anna", "met", "bob", str(n)],
            "h": ["anna", f"Q{n % 3}", [[0]]],
            "t": ["bob", None, [[2 + n // 5]]],
        }
        for n in range(10)
    ]
    lines = b"\n".join(dump_json(one) for one in listed)
    name, content = random.choice(
        (("a.json", dump_json({"P1": listed[:4], "P2": listed[4:]})), ("a.json", dump_json(listed)), ("a.jsonl", lines))
    )
    path, known = folder / name, folder / "known.json"
    path.write_bytes(mutate_file(random, name, content) if random.random() < 0.9 else content)
    known.write_bytes(samples.fewrel["val_wiki.json"])
    spec = f"statements:{path}" + random.choice(("", "", ",uncased=yes", f",without={known}", ",without=x", ",a=b"))

    def run() -> None:
        from hyperproto.data.formats.relations import with_blanks
        from hyperproto.episodes import PairSampler

        hyperproto.check_data(spec)
        PairSampler(with_blanks(hyperproto.open_pool(spec, "train")), source="identities").draw(4)

    return Trial(run, words="check_data statements")


@kind("submit", "submit", share=25)
def submit(random: Random, folder: Path, samples: Samples) -> Trial:
    path = folder / "test_wiki_input-2-1.json"
    path.write_bytes(mutate_file(random, path.name, samples.hidden) if random.random() < 0.9 else samples.hidden)
    (folder / "pred.json").write_text("old")

    def run() -> None:
        done = hyperproto.submit(
            path, folder / "pred.json", encoder=f"relation-transformer:{samples.bert}", method="protonet"
        )
        if json.loads((folder / "pred.json").read_text()) != done.labels:
            raise Silent("submit: the file holds other answers")

    return Trial(run, words="submit")


@kind("fewnerd", "data fewnerd", "check_data", share=40)
def fewnerd(random: Random, folder: Path, samples: Samples) -> Trial:
    write_files(folder / "data", mutate_files(random, samples.fewnerd))
    setting = random.choice(("", "", ",setting=intra-style", ",setting=intra"))
    return Trial(lambda: hyperproto.check_data(f"fewnerd:{folder / 'data'}{setting}"), words="check_data fewnerd")


@kind("fewnerd-episodes", "evaluate", share=30)
def fewnerd_episodes(random: Random, folder: Path, samples: Samples) -> Trial:
    path = folder / "test_2_1.jsonl"
    path.write_bytes(mutate_file(random, path.name, samples.fewnerd_episodes))

    def run() -> None:
        from hyperproto.episodes import load_fewnerd_episodes

        load_fewnerd_episodes(path)

    return Trial(run, words="load_fewnerd_episodes")


@kind("episodes", "Episode", "EpisodeSampler", share=40)
def episodes(random: Random, folder: Path, samples: Samples) -> Trial:
    """Damage a file of episodes, which has a hash: it must be refused, or read unchanged."""
    write_files(folder, samples.episodes)
    path = folder / "episodes.jsonl"
    damaged = mutate_file(random, path.name, path.read_bytes())

    def run() -> None:
        from hyperproto.episodes.episode_files import load_episodes

        pool = hyperproto.open_pool(f"vectors:{folder / 'vectors.npz'}", "test")
        expected = [vars_of(episode) for episode in load_episodes(path, pool)]
        path.write_bytes(damaged)
        if not same([vars_of(episode) for episode in load_episodes(path, pool)], expected):
            raise Silent("load_episodes: a changed file was read without a word")

    return Trial(run, words="load_episodes", may_write=("episodes.jsonl",))


def vars_of(episode: Any) -> dict[str, Any]:
    return {name: getattr(episode, name) for name in ("classes", "support", "support_y", "query", "query_y")}


def _image_set(name: str, sample: str, specs: tuple[str, ...], share: int) -> None:
    @kind(name, f"data {name}", "check_data", share=share)
    def check(random: Random, folder: Path, samples: Samples) -> Trial:
        files: Files = mutate_files(random, getattr(samples, sample))
        if name == "folder":
            files = {key: content for key, content in files.items() if key < "class03"}
        place = folder / "data"
        if random.random() < 0.3:
            place = folder / ("data.zip" if name in ("folder", "miniimagenet") else "zips/all.zip")
            content = make_zip(list(files.items()))
            write_files(
                folder,
                {
                    place.relative_to(folder).as_posix(): mutate_bytes(random, content)
                    if random.random() < 0.5
                    else content
                },
            )
            place = place if place.name == "data.zip" else place.parent
        else:
            write_files(place, files)
            odd_entries(random, place)
        spec = f"{name}:{place}{random.choice(specs)}"
        return Trial(lambda: hyperproto.check_data(spec), words=f"check_data {name}")


def odd_entries(random: Random, place: Path) -> None:
    """Sometimes a loop of links, a link to nowhere, a pipe, a name in another encoding, an unreadable suffix."""
    odd = random.randrange(12)
    place.mkdir(exist_ok=True)
    if odd == 0:
        (place / "loop").symlink_to(place, target_is_directory=True)
    elif odd == 1:
        (place / "gone.png").symlink_to(place / "nowhere.png")
    elif odd == 2:
        os.mkfifo(place / "pipe.png")
    elif odd == 3:
        folder = os.fsencode(place) + b"/caf\xe9"
        os.makedirs(folder, exist_ok=True)  # noqa: PTH103 - a name of bytes
        with open(folder + b"/1.png", "wb") as file:  # noqa: PTH123
            file.write(b"no image")
    elif odd == 4:
        (place / "class99.png").mkdir()
    elif odd == 5:
        (place / "empty").mkdir()


_SIZES = (
    ",size=12",
    ",size=12,damaged=skip",
    ",size=12,channels=1",
    ",size=0",
    ",size=99999999999",
    ",channels=2",
    ",size=-1",
    ",damaged=skip,size=8",
)
_image_set("folder", "pictures", (*_SIZES, ",size=12,shares=0/0/1", ",size=12,seed=-1", ",size=12,shares=a"), 8)
_image_set(
    "omniglot",
    "omniglot",
    (*_SIZES, ",size=12,split=vinyals", ",size=12,split=alphabet", ",size=12,rotations=false"),
    8,
)
_image_set("miniimagenet", "miniimagenet", _SIZES, 8)
_image_set("cub", "cub", _SIZES, 8)
_image_set("cifar-fs", "cifar_fs", (*_SIZES, ",size=2"), 8)
_image_set("fc100", "fc100", (*_SIZES, ",size=2"), 8)
_image_set("tieredimagenet", "tieredimagenet", (*_SIZES, ",size=2"), 20)


@kind("recipe", "list_recipes", "train", share=60)
def recipe(random: Random, folder: Path, samples: Samples) -> Trial:
    """Read and check a recipe; train it for a step if it is small."""
    path = folder / "mine.toml"
    path.write_bytes(mutate_file(random, path.name, samples.recipe))

    def run() -> None:
        from hyperproto.training import load_recipe

        load_recipe(str(path))

    return Trial(run, words="load_recipe")


@kind("train", "train", "Run", share=8)
def train(random: Random, folder: Path, samples: Samples) -> Trial:
    path = folder / "mine.toml"
    path.write_bytes(mutate_file(random, path.name, samples.recipe) if random.random() < 0.4 else samples.recipe)
    keys = {
        "training.steps": ("0", "-1", "2147483648", "1e3"),
        "encoder.filters": ("0", "-1", "2147483648", "nan", "1"),
        "episodes.way": ("0", "2147483648", "9223372036854775808", "3"),
        "episodes.query": ("0", "2147483648", "2"),
        "optim.encoder.lr": ("1e38", "-1", "nan", "inf", "0", "1e-320", "1e308"),
        "transform": ("unit", "center-unit", "x"),
        "training.seed": ("-1", "9223372036854775808", "9223372036854775807", "1" + "0" * 400),
        "training.clip_norm": ("0", "-1", "nan", "1e-320"),
        "method.name": ("protonet", "x", "cosine", "hyperproto-gaussian"),
        "encoder.name": ("identity", "x", "resnet12", "relation-cnn", "minilm"),
        "validation.episodes": ("0", "-1", "[]"),
        "data.spec": ("glyph", "x", "[]", "vectors:nowhere.npz"),
        "episodes.batch": ("0", "2", "2147483648"),
        "method.temperature": ("0", "1e38", "1e-320", "nan", "-1"),
        "extra": ("1",),
        "a.b.c": ("1",),
        "": ("x",),
        "=": ("[[[",),
        "optim.radius.lr": ("1e38", "nan", "1e308"),
        "training.validate_every": ("0", "-1", "1", "2147483648"),
    }
    chosen = random.sample(sorted(keys), random.choice((0, 1, 1, 2)))
    overrides = [f"{key}={random.choice(keys[key])}" for key in chosen]

    def two_steps(done: int, total: int, note: str = "") -> None:
        if "steps of" in note and done >= 2:
            raise Enough

    def run() -> None:
        small = ["training.steps=2", "validation.episodes=2"]
        hyperproto.train(path, folder / "run", overrides=[*small, *overrides], progress=two_steps)

    return Trial(run, words=f"train -o {overrides}", may_write=("run",))


@kind("paper-table", "report", share=4)
def paper_table(random: Random, folder: Path, samples: Samples) -> Trial:
    text = b'[table]\ncaption = "small"\nnumber = 9\n' + samples.recipe
    path = folder / "table.toml"
    path.write_bytes(mutate_file(random, path.name, text))
    (folder / "runs").mkdir()
    return Trial(lambda: hyperproto.report(path, folder / "runs", episodes=2), words="report")


@kind("spec", "open_pool", "check_data", share=30)
def spec(random: Random, folder: Path, samples: Samples) -> Trial:
    """Open data specs with unknown or unusual names."""
    (folder / "file").write_bytes(b"x")
    os.mkfifo(folder / "pipe")
    (folder / "loop").symlink_to(folder / "loop")
    name = random.choice(
        (
            "vectors",
            "conll",
            "folder",
            "fewrel",
            "fewrel2",
            "statements",
            "texts",
            "intents",
            "fewnerd",
            "omniglot",
            "cub",
            "miniimagenet",
            "cifar-fs",
            "",
            "glyph",
            "\ud800",
        )
    )
    place = random.choice(
        (
            "",
            "file",
            "pipe",
            "loop",
            "nowhere",
            ".",
            "file/below",
            "\0",
            "a" * 5000,
            "~nobody/x",
            extreme_string(random),
        )
    )
    options = random.choice(("", ",a=b", ",size=", ",=", ",,", ",seed=99999999999999999999", ",size=\uff11"))
    where = place if not place or random.random() < 0.1 else f"{folder}/{place}"
    split = random.choice(("all", "train", "test", "", "\0", extreme_string(random)))

    def run() -> None:
        hyperproto.check_data(f"{name}:{where}{options}")
        hyperproto.open_pool(f"{name}:{where}{options}", split)

    return Trial(run, words=f"check_data {name}:{place[:30]!r}{options}")
