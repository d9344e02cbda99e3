"""What is killed: commands and caches, each with what must hold afterwards."""

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

import numpy as np

import hyperproto
from tests.fuzz.caches import arrays_in, text_encoder
from tests.fuzz.inputs import QUERIES, TEXTS, Samples
from tests.fuzz.judge import same
from tests.fuzz.kinds import write_files
from tests.fuzz.processes import run_command_line


class Lost(Exception):  # noqa: N818 - a verdict
    """What a process reported as done is not there."""


class Unloadable(Exception):  # noqa: N818 - a verdict
    """What is there cannot be read."""


class Different(Exception):  # noqa: N818 - a verdict
    """An answer is neither the old nor the new one."""


Codes = tuple[int, int]  # exit codes of two processes; -9 of one that was killed


@dataclass
class Victim:
    """Work that two processes do at once in one folder, after `prepare`; `check` looks at what they left."""

    name: ClassVar[str]
    samples: Samples
    expected: Any = field(default=None)  # what undisturbed work leaves

    def prepare(self, folder: Path) -> None:
        """Make the folder as it is before."""

    def work(self, folder: Path, which: int) -> int:
        """Do the work of process `which` (0 or 1), in that process; return an exit code."""
        raise NotImplementedError

    def observe(self, folder: Path) -> Any:
        """Return the result of an undisturbed process 0, for comparison."""

    def check(self, folder: Path, codes: Codes) -> None:
        """Raise `Lost`, `Unloadable` or `Different`; called after both processes ended, killed or not."""
        raise NotImplementedError


@contextmanager
def readable(what: str) -> Iterator[None]:
    """Any error while something is read is `Unloadable`."""
    try:
        yield
    except (Lost, Different):
        raise
    except Exception as error:
        raise Unloadable(f"{what}: {type(error).__name__}: {error}") from error


def _answers(folder: Path) -> dict[str, Any]:
    with readable("the model"):
        model = hyperproto.load_classifier(folder)
        return {"classes": model.classes_.tolist(), "probabilities": model.predict_proba(QUERIES)}


def write_table(path: Path, rows: Any, labels: list[str]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["vector", "label"])
        writer.writerows([" ".join(map(str, row)), label] for row, label in zip(rows, labels, strict=True))
    return path


class Fit(Victim):
    """`fit` over a model that is there: the old model, or one of the two new ones."""

    name = "fit"

    def prepare(self, folder: Path) -> None:
        for which in (0, 1):
            write_table(folder / f"new{which}.csv", self.samples.vectors + which + 1, self.samples.labels)
        hyperproto.HypersphereClassifier().fit(self.samples.vectors, self.samples.labels).save(folder / "model")

    def work(self, folder: Path, which: int) -> int:
        return run_command_line(["fit", f"new{which}.csv", "--out", "model", "--encoder", "identity"])

    def observe(self, folder: Path) -> Any:
        made = []
        for which in (None, 0, 1):
            x = self.samples.vectors + (0 if which is None else which + 1)
            model = hyperproto.HypersphereClassifier().fit(x, self.samples.labels)
            made.append({"classes": model.classes_.tolist(), "probabilities": model.predict_proba(QUERIES)})
        return made

    def check(self, folder: Path, codes: Codes) -> None:
        found = _answers(folder / "model")
        if not any(same(found, each) for each in self.expected):
            raise Different("the model is neither the old one nor a new one")
        if 0 in codes and same(found, self.expected[0]):
            raise Lost("fit reported success, and the old model is there")


class Add(Victim):
    """`add` of a new class by each process: what was reported is there, what was killed is there whole or not."""

    name = "add"

    def prepare(self, folder: Path) -> None:
        for which in (0, 1):
            write_table(folder / f"new{which}.csv", self.samples.vectors[:4] + which, [f"new {which}"] * 4)
        write_files(folder / "model", self.samples.models["bayes"])

    def work(self, folder: Path, which: int) -> int:
        return run_command_line(["add", "model", f"new{which}.csv", "--new-classes"])

    def check(self, folder: Path, codes: Codes) -> None:
        with readable("the model"):
            model = hyperproto.load_classifier(folder / "model")
            counts = dict(zip(model.classes_.tolist(), model.counts_.tolist(), strict=True))
            model.predict_proba(QUERIES)
        old = {label: self.samples.labels.count(label) for label in set(self.samples.labels)}
        if any(counts.get(label) != count for label, count in old.items()):
            raise Lost(f"examples that were there before: {counts}")
        for which, code in enumerate(codes):
            found = counts.get(f"new {which}", 0)
            if code == 0 and found != 4:
                raise Lost(f"add reported success, and {found} of its 4 examples are there")
            if found not in (0, 4):
                raise Different(f"{found} of 4 examples of a command that was killed")


class Predict(Victim):
    """`predict --out`: the old file, or a whole new one."""

    name = "predict"
    rows: ClassVar[int] = 300

    def prepare(self, folder: Path) -> None:
        write_files(folder / "model", self.samples.models["bayes"])
        rows = np.tile(self.samples.vectors, (self.rows // 8 + 1, 1))[: self.rows]
        write_table(folder / "rows.csv", rows, ["x"] * self.rows)
        (folder / "answers.csv").write_text("old")

    def work(self, folder: Path, which: int) -> int:
        return run_command_line(["predict", "model", "rows.csv", "--out", "answers.csv", "--batch", "8"])

    def observe(self, folder: Path) -> Any:
        return (folder / "answers.csv").read_bytes()

    def check(self, folder: Path, codes: Codes) -> None:
        found = (folder / "answers.csv").read_bytes()
        if found not in (b"old", self.expected):
            raise Different(f"{len(found)} bytes of answers where {len(self.expected)} belong")
        if 0 in codes and found == b"old":
            raise Lost("predict reported success, and the old file is there")


class Train(Victim):
    """`train` by two processes: one is refused while the other trains; what is resumed ends with the same bytes."""

    name = "train"

    def prepare(self, folder: Path) -> None:
        (folder / "small.toml").write_bytes(self.samples.recipe)

    def words(self) -> list[str]:
        often = [
            "training.steps=12",
            "training.validate_every=3",
            "training.checkpoint_every=1",
            "validation.episodes=4",
        ]
        return ["train", "small.toml", "--out", "run", *(word for each in often for word in ("-o", each))]

    def work(self, folder: Path, which: int) -> int:
        return run_command_line(self.words())

    def observe(self, folder: Path) -> Any:
        return {
            name: sha256((folder / "run" / name).read_bytes()).hexdigest()
            for name in ("model.safetensors", "metrics.jsonl", "prior_ratio.json")
        }

    def check(self, folder: Path, codes: Codes) -> None:
        from hyperproto.training import Run, load_recipe, train

        overrides = [word for word in self.words()[4:] if word != "-o"]
        with readable("the run"):
            if (folder / "run" / "model.safetensors").exists():
                Run(folder / "run").load()
            train(load_recipe(str(folder / "small.toml"), overrides), folder / "run")
            Run(folder / "run").load()
        found = self.observe(folder)
        if found != self.expected:
            raise Different(
                f"{', '.join(name for name in found if found[name] != self.expected[name])} of a resumed run"
            )


class Cache(Victim):
    """Data that are made once and kept: whatever a kill leaves, the next process gets the right ones."""

    def work(self, folder: Path, which: int) -> int:
        with patch.dict("os.environ", {"HYPERPROTO_CACHE": str(folder / "cache")}):
            self.read(folder)
        return 0

    def read(self, folder: Path) -> Any:
        """Make the data, or take them from the cache."""
        raise NotImplementedError

    def observe(self, folder: Path) -> Any:
        with patch.dict("os.environ", {"HYPERPROTO_CACHE": str(folder / "cache")}):
            return self.read(folder)

    def check(self, folder: Path, codes: Codes) -> None:
        with readable("the cache"):
            found = self.observe(folder)
        if not same(found, self.expected):
            raise Different("a cache that a kill left was used")


class ImageCache(Cache):
    name = "image cache"

    def read(self, folder: Path) -> Any:
        spec = f"folder:{self.samples.pictures_folder},size=64"
        return hyperproto.open_pool(spec, "all").digest


class GlyphCache(Cache):
    name = "glyphs"

    def read(self, folder: Path) -> Any:
        from hyperproto.data import glyphs

        with patch.object(glyphs, "SCRIPTS", {"test": ("ogham",), "val": ("nko",), "train": ("digit",)}):
            return hyperproto.open_pool("glyphs", "val").digest


class VectorCache(Cache):
    name = "vector cache"

    def read(self, folder: Path) -> Any:
        from hyperproto.encoders.parts import cache

        encoder = text_encoder(self.samples)
        pool = hyperproto.Pool([f"{text} {n}" for n in range(20) for text in TEXTS], np.zeros(100, np.int64), ("",))

        def encode() -> Any:
            return encoder.encode_all(encoder.prepare(pool.items))

        with patch.object(cache, "MIN_SECONDS", -1.0):
            return cache.cached_units(encoder, pool, None, encode).x.numpy()


class TokenCache(Cache):
    name = "token cache"

    def read(self, folder: Path) -> Any:
        from hyperproto.encoders.parts import word_pieces

        encoder = text_encoder(self.samples)
        with patch.object(word_pieces, "FEW", 0):
            prepared = encoder.prepare([f"{text} {n}" for n in range(200) for text in TEXTS])
        return arrays_in(prepared)


VICTIMS: tuple[type[Victim], ...] = (
    Fit, Add, Predict, Train, ImageCache, GlyphCache, VectorCache, TokenCache,
)  # fmt: skip
