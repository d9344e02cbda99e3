"""Small valid inputs of every kind, made once and kept as bytes; a case writes them, or what became of them, anew."""

import json
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from tests.fuzz.files import Files, npz
from tests.fuzz.mutations import dump_json
from tests.helpers.pictures import class_folders, encoded, picture, write_tree
from tests.helpers.tiny_models import tiny_bert

DIM = 4
TEXTS = ["the king met the queen", "a king was born", "paris city in a river", "the river of london", "bob met anna"]
TEXT_LABELS = ["court", "court", "place", "place", "people"]
SENTENCES = [["anna", "was", "born", "in", "paris"], ["bob", "met", "the", "king", "of", "london"], ["the", "river"]]
TAGS = [["person", "O", "O", "O", "city"], ["person", "O", "O", "O", "O", "city"], ["O", "O"]]
QUERIES = np.random.default_rng(5).normal(size=(3, DIM))

RECIPE = """description = "four filters on small pictures"
cost = "a second"
transform = "none"
[data]
spec = "folder:{pictures},size=16,channels=1,shares=50/25/25"
split = "train"
[encoder]
name = "conv4"
filters = 4
[method]
name = "hyperproto"
centers = "episode"
learn_temperature = true
[episodes]
way = 2
shot = 1
query = 1
[optim.encoder]
name = "adam"
lr = 0.01
[optim.radius]
name = "adam"
lr = 0.1
[training]
steps = 4
validate_every = 2
checkpoint_every = 2
log_every = 1
schedule = "cosine"
clip_norm = 1.0
[validation]
split = "val"
way = 2
shot = 1
query = 1
episodes = 3
"""


def read_tree(folder: Path) -> Files:
    """Every file below a folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


class Samples:
    """The inputs, below a folder of their own; each is made when it is first asked for."""

    def __init__(self, root: Path) -> None:
        self.root = root

    # Tables

    @cached_property
    def rows(self) -> list[tuple[list[float], str]]:
        """Vectors of three classes."""
        random = np.random.default_rng(0)
        labels = np.repeat(np.arange(3), [4, 3, 1])
        x = np.round(2 * random.normal(size=(3, DIM))[labels] + random.normal(size=(8, DIM)), 3)
        return [(row, f"class {n}") for row, n in zip(x.tolist(), labels.tolist(), strict=True)]

    @property
    def vectors(self) -> Any:
        return np.array([row for row, _ in self.rows])

    @property
    def labels(self) -> list[str]:
        return [label for _, label in self.rows]

    @cached_property
    def tables(self) -> Files:
        """The rows in every format."""
        import pyarrow
        import pyarrow.parquet

        plain = [(" ".join(map(str, row)), label) for row, label in self.rows]
        buffer = BytesIO()
        columns = {"vector": [row for row, _ in self.rows], "label": self.labels}
        pyarrow.parquet.write_table(pyarrow.table(columns), buffer)
        return {
            "rows.csv": ("vector,label\n" + "".join(f"{row},{label}\n" for row, label in plain)).encode(),
            "rows.tsv": ("vector\tlabel\n" + "".join(f"{row}\t{label}\n" for row, label in plain)).encode(),
            "rows.jsonl": b"".join(dump_json({"vector": row, "label": label}) + b"\n" for row, label in self.rows),
            "rows.parquet": buffer.getvalue(),
        }

    @cached_property
    def texts(self) -> Files:
        pairs = list(zip(TEXTS, TEXT_LABELS, strict=True))
        return {
            "texts.csv": ("text,label\n" + "".join(f"{text},{label}\n" for text, label in pairs)).encode(),
            "texts.jsonl": b"".join(dump_json({"text": text, "label": label}) + b"\n" for text, label in pairs),
            "lines.txt": "".join(f"{text}\n" for text in TEXTS).encode(),
        }

    # Data sets

    @cached_property
    def vectors_file(self) -> bytes:
        """Nine classes of six vectors in three splits."""
        random = np.random.default_rng(1)
        labels = np.repeat(np.arange(9), 6)
        x = (3 * random.normal(size=(9, DIM))[labels] + random.normal(size=(54, DIM))).astype(np.float32)
        return npz(
            {"x": x, "y": np.array([f"c{n}" for n in labels]), "split": np.array(["train", "val", "test"])[labels // 3]}
        )

    @cached_property
    def conll(self) -> bytes:
        lines = [
            "".join(f"{word}\t{tag}\n" for word, tag in zip(words, tags, strict=True)) + "\n"
            for words, tags in zip(SENTENCES, TAGS, strict=True)
        ]
        return "".join(lines).encode()

    @cached_property
    def fewrel(self) -> Files:
        def instance(n: int) -> dict[str, Any]:
            words = ["anna", "met", "bob", "in", "paris", str(n)]
            return {"tokens": words, "h": ["anna", "Q1", [[0]]], "t": ["bob", "Q2", [[2], [5]]]}

        relations = {f"P{r}": [instance(10 * r + n) for n in range(3)] for r in range(3)}
        names = {f"P{r}": [f"relation {r}", "what it is"] for r in range(3)}
        parts = {
            f"{name}.json": dump_json(relations) for name in ("train_wiki", "val_wiki", "val_pubmed", "val_semeval")
        }
        return {**parts, "pid2name.json": dump_json(names)}

    @cached_property
    def linked(self) -> Files:
        """Sentences with linked entities, and triples that name three of their pairs."""
        entities = [{"id": "Q1", "start": 0, "end": 1}, {"id": 2, "positions": [[2], [5]]}]
        entities += [{"id": "Q3", "positions": [4]}]
        words = ["anna", "met", "bob", "in", "paris"]
        lines = [dump_json({"tokens": [*words, str(n)], "entities": entities}) for n in range(4)]
        triples = b"Q1\tP1\t2\nQ1\tP2\tQ3\n2\tP1\tQ3\n2\tP3\tQ3\n"
        return {"sentences.jsonl": b"\n".join(lines) + b"\n", "triples.tsv": triples}

    @cached_property
    def hidden(self) -> bytes:
        """A hidden test of FewRel: two tasks, 2-way 1-shot."""
        relations = json.loads(self.fewrel["train_wiki.json"])
        task = {"meta_train": [[relations["P0"][0]], [relations["P1"][0]]], "meta_test": relations["P2"][0]}
        return dump_json([task, {**task, "meta_test": relations["P1"][1]}])

    @cached_property
    def fewnerd(self) -> Files:
        text = "".join(
            f"anna{n}\tperson-actor\nmet\tO\nparis{n}\tlocation-city\n\nthe{n}\tO\nking\tart-film\n\n" for n in range(4)
        )
        return {f"inter/{name}.txt": text.encode() for name in ("train", "dev", "test")}

    @cached_property
    def fewnerd_episodes(self) -> bytes:
        """Two 2-way 1-shot episodes."""
        words = [["anna", "met"], ["in", "paris"]]
        labels = [["person", "O"], ["O", "city"]]
        part = {"word": words, "label": labels}
        query = {"word": [["bob", "in", "london"]], "label": [["person", "O", "city"]]}
        row = {"support": part, "query": query, "types": ["person", "city"]}
        return dump_json(row) + b"\n" + dump_json(row) + b"\n"

    @cached_property
    def episodes(self) -> Files:
        """An episode file of ours, beside the vectors that it was drawn from."""
        from hyperproto.data import open_pool
        from hyperproto.episodes import EpisodeSampler
        from hyperproto.episodes.episode_files import save_episodes

        path = self._folder("episodes") / "vectors.npz"
        path.write_bytes(self.vectors_file)
        pool = open_pool(f"vectors:{path}", "test")
        save_episodes(
            path.with_name("episodes.jsonl"), pool, EpisodeSampler(pool, way=2, shot=1, query=1, seed=0).draw(3)
        )
        return read_tree(path.parent)

    # Images

    @cached_property
    def pictures(self) -> Files:
        """Eight classes of three pictures."""
        return class_folders(8, 3)

    @cached_property
    def pictures_folder(self) -> Path:
        return write_tree(self._folder("pictures"), self.pictures)

    @cached_property
    def omniglot(self) -> Files:
        return {
            f"images_{part}/{alphabet}/character{c:02d}/{a}{c}_{i:02d}.png": encoded(picture(a + 10 * c + i, mode="1"))
            for part, alphabet, a in (("background", "Back", 0), ("evaluation", "Eval", 1))
            for c in range(1, 3)
            for i in range(2)
        } | {
            f"splits/vinyals/{split}.txt": b"Back/character01/rot090\nEval/character02/rot000\n"
            for split in ("train", "val", "test")
        }

    @cached_property
    def miniimagenet(self) -> Files:
        files = {f"images/n{c}{i}.png": encoded(picture(10 * c + i)) for c in range(2) for i in range(2)}
        lists = "filename,label\n" + "".join(f"n{c}{i}.jpg,n{c}\n" for c in range(2) for i in range(2))
        return {**files, **{f"{split}.csv": lists.encode() for split in ("train", "val", "test")}}

    @cached_property
    def cub(self) -> Files:
        files = {
            f"images/{n:03d}.Bird_{n}/{i}.jpg": encoded(picture(n + i), "JPEG") for n in range(1, 5) for i in range(2)
        }
        return {**files, "train.json": dump_json(["001.Bird_1", "003.Bird_3"])}

    @cached_property
    def cifar_fs(self) -> Files:
        """Class folders of one dot each, and lists of their names."""
        dot = encoded(picture(0, (2, 2)))
        files = {f"data/c{n}/0.png": dot for n in range(100)}
        parts = {"train": range(64), "val": range(64, 80), "test": range(80, 100)}
        lists = {split: "\n".join(f"c{n}" for n in numbers) for split, numbers in parts.items()}
        return {**files, **{f"splits/bertinetto/{split}.txt": text.encode() for split, text in lists.items()}}

    @cached_property
    def fc100(self) -> Files:
        """Folders of class folders, and a pickle."""
        dot = encoded(picture(0, (2, 2)))
        parts = {"train": 60, "meta-val": 20, "test": 20}
        files = {f"{split}/c{n}/0.png": dot for split, number in parts.items() for n in range(number)}
        return {**files, "FC100_val.pickle": b"\x80\x04}."}

    @cached_property
    def tieredimagenet(self) -> Files:
        """Arrays of one dot a class."""
        parts = {"train": 351, "val": 97, "test": 160}
        return {
            f"{split}.npz": npz({"images": np.zeros((n, 2, 2, 3), np.uint8), "labels": np.arange(n)})
            for split, n in parts.items()
        }

    # Trained and fitted

    @cached_property
    def bert(self) -> Path:
        """The folder of a language model."""
        import torch

        with torch.random.fork_rng(devices=[]):
            return tiny_bert(self._folder("bert"))

    @cached_property
    def recipe(self) -> bytes:
        return RECIPE.format(pictures=self.pictures_folder).encode()

    @cached_property
    def run(self) -> Files:
        """A finished run of four steps."""
        from hyperproto.training import load_recipe, train

        recipe = self._folder("recipe") / "small.toml"
        recipe.write_bytes(self.recipe)
        train(load_recipe(str(recipe)), self.root / "run")
        return read_tree(self.root / "run")

    @cached_property
    def models(self) -> dict[str, Files]:
        """Saved classifiers of vectors."""
        from hyperproto import HypersphereClassifier

        settings: dict[str, dict[str, Any]] = {
            "bayes": {"coverage": 0.5},
            "statistics": {"fit_mode": "unbiased", "store_support": False, "temperature": 0.5},
            "gaussian": {"region": "gaussian", "fit_mode": "paper", "feature_transform": "none"},
        }
        for name, given in settings.items():
            HypersphereClassifier(**given).fit(self.vectors, self.labels).save(self.root / "models" / name)
        return {name: read_tree(self.root / "models" / name) for name in settings}

    @cached_property
    def exported(self) -> Files:
        """A classifier of vectors for onnxruntime."""
        from hyperproto import HypersphereClassifier

        HypersphereClassifier(coverage=0.5).fit(self.vectors, self.labels).export(self.root / "exported")
        return read_tree(self.root / "exported")

    @cached_property
    def text_model(self) -> Files:
        from hyperproto import FewShotTextClassifier

        FewShotTextClassifier(encoder=str(self.bert)).fit(TEXTS, TEXT_LABELS).save(self.root / "text-model")
        return read_tree(self.root / "text-model")

    @cached_property
    def tagger(self) -> Files:
        from hyperproto import EntityTagger

        EntityTagger(encoder=f"token-transformer:{self.bert}").fit(SENTENCES, TAGS).save(self.root / "tagger")
        return read_tree(self.root / "tagger")

    @cached_property
    def checkpoint(self) -> Files:
        return read_tree(self.bert)

    def _folder(self, name: str) -> Path:
        folder = self.root / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder
