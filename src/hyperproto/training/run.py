"""A run on disk: config.json, metrics.jsonl, model.safetensors, prior_ratio.json, checkpoint/.

Each file has checksums of its content; an error names a file that was damaged or edited.
"""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import Any, Literal, Self
from zlib import crc32

from hyperproto import __version__
from hyperproto.data import Pool
from hyperproto.decisions import DECISION_OPTIONS
from hyperproto.errors import ConfigError, DataError
from hyperproto.files import atomic_write, errors_name, json_checksum, lock, read_bytes, read_json
from hyperproto.methods import METHODS
from hyperproto.problems import PROBLEMS
from hyperproto.recipes import WORDS, Recipe, parse
from hyperproto.registry import Trust, TrustError, keywords
from hyperproto.registry import trust as trust_files
from hyperproto.training.checkpoint import WAY_OUT, fill, load_model, load_state, load_tensors, model_tensors
from hyperproto.training.learner import Learner

# Formats of config.json: version 0.1 wrote none; 2 had the decision's options in the method's section; 3 had no
# checksums, and its sentence-transformers ignored the checkpoint's own files; 4 had the mean for a frozen
# relation-transformer.
FORMAT = 5
CHECKSUMS = 4  # the first format with checksums
MEASURE_AGAIN = "remove it: hyperproto train, with the same recipe and folder, measures it again"
LINE_CHECKSUM = "crc32"  # key in a line of metrics.jsonl


class Run:
    """The folder of one training run."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.config = self.folder / "config.json"
        self.metrics = self.folder / "metrics.jsonl"
        self.model = self.folder / "model.safetensors"
        self.checkpoint = self.folder / "checkpoint" / "last.safetensors"
        self.prior_ratio = self.folder / "prior_ratio.json"

    def lock(self) -> AbstractContextManager[None]:
        """Lock the folder against training by another process; evaluating a run needs no lock."""
        return lock(
            self.folder,
            "another process is training in this folder; wait until it ends, or name another folder with --out",
        )

    def claim(self, recipe: Recipe, pool: Pool) -> None:
        """Write the resolved configuration, or check that the existing run has the same recipe and data."""
        data = {"n_classes": pool.n_labels, "data_digest": pool.digest}
        config = {"version": __version__, "format": FORMAT, **data, "recipe": recipe.model_dump(mode="json")}
        if not self.config.exists():
            with atomic_write(self.config) as file:
                file.write(json.dumps({**config, "checksum": json_checksum(config)}, indent=2).encode() + b"\n")
            return
        found = self.read_config()
        began = parse(found["recipe"], str(self.config)).model_dump(mode="json")  # with the defaults of newer settings
        different = sorted(differences(_settings(began), _settings(recipe.model_dump(mode="json"))))
        different += [name for name in data if found.get(name) != data[name]]
        if different:
            raise ConfigError(
                f"{self.folder} holds a run with other settings ({', '.join(different)}); "
                "name another folder with --out, or remove this one"
            )

    def load(self, weights: Literal["best", "last"] = "best", *, trust: Trust = None) -> tuple[Learner, Recipe]:
        """Build the learner with its best weights, or with the weights of its last checkpoint.

        A method `FILE.py:CLASS` is imported only if `trust`, or an earlier consent, names the file.
        """
        trust_files(trust)
        config = self.read_config()
        recipe = parse(config["recipe"], str(self.config))
        try:
            learner = Learner.build(recipe, config["n_classes"])
        except (ConfigError, DataError) as error:
            raise type(error)(f"{self.config}: {error}") from None
        except (TypeError, ValueError, RuntimeError, MemoryError) as error:  # sizes that cannot be built
            raise DataError(f"{self.config}: no such model can be built ({error}); {WAY_OUT}") from None
        if weights == "best":
            load_model(self.model, learner)
        else:
            fill(learner, model_tensors(load_tensors(self.checkpoint)[0]), self.checkpoint)
        return learner.eval(), recipe

    def append_metrics(self, rows: list[dict[str, Any]]) -> int:
        """Append rows to the log, flush them to disk, and return the length of the file in bytes."""
        with errors_name(self.metrics), self.metrics.open("ab") as file:
            file.writelines(map(_line, rows))
            file.flush()
            os.fsync(file.fileno())
            return file.tell()

    def cut_metrics(self, length: int) -> list[dict[str, Any]]:
        """Truncate the log to its `length` in bytes at the checkpoint; return the rows that stay."""
        self.metrics.touch()
        rows = self._rows(read_bytes(self.metrics)[:length], length)
        os.truncate(self.metrics, length)
        return rows

    def read_metrics(self) -> list[dict[str, Any]]:
        """Return all rows of the log; an incomplete last line, as a killed training leaves it, is skipped."""
        length = 0
        with suppress(DataError):  # no checkpoint yet, or a damaged one
            length = load_state(self.checkpoint).get("metrics_length", 0)
        return self._rows(read_bytes(self.metrics, missing="has this run been trained?"), length)

    def _rows(self, content: bytes, length: int) -> list[dict[str, Any]]:
        """Parse the log; its first `length` bytes, written before the checkpoint, must be complete lines."""
        rows = _read_lines(content, self.metrics, checksums=self.read_config()["format"] >= CHECKSUMS)
        if content[:length].rpartition(b"\n")[2] or len(content) < length:
            raise DataError(f"{self.metrics}: shorter than its checkpoint says, or lines were changed; {WAY_OUT}")
        return rows

    def best_validation(self) -> dict[str, Any]:
        """Return the best validation: `step`, the metric (`accuracy` or `f1`, as a fraction) and its `ci95`."""
        metric, validations = validated(self.read_metrics())
        if not validations:
            raise DataError(f"{self.metrics}: no validation in it; train on: {self.folder} has no best weights yet")
        best = max(validations, key=lambda row: float(row[metric]))
        return {key: best[key] for key in ("step", metric, "ci95")}

    def read_config(self) -> dict[str, Any]:
        """Return config.json, converted to the current format if an older version wrote it."""
        content = read_json(self.config, missing="is this the folder of a run?", damaged=WAY_OUT)
        try:
            return _migrated(_checked(content))
        except TrustError as error:
            raise TrustError(f"{self.config}: {error}") from None
        except (ValueError, LookupError, TypeError, AttributeError, ConfigError) as error:
            raise DataError(f"{self.config}: not the configuration of a run ({error}); {WAY_OUT}") from None


def _line(row: Mapping[str, Any]) -> bytes:
    """Return a row of the log as a line of metrics.jsonl: JSON with a checksum as its last key."""
    return json.dumps({**row, LINE_CHECKSUM: _checksum(row)}).encode() + b"\n"


def _read_lines(content: bytes, path: Path, checksums: bool) -> list[dict[str, Any]]:
    """Return the rows of all complete lines; a killed run may leave an incomplete last one.

    Every line must have a checksum, unless an older version began the run (`checksums` is false).
    """
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(content.split(b"\n")[:-1], start=1):
        problem, row = _read_line(line, rows[-1]["step"] if rows else 0, checksums)
        if problem:
            raise DataError(f"{path}, line {number}: damaged, or changed after it was written ({problem}); {WAY_OUT}")
        rows.append(row)
    return rows


def _read_line(line: bytes, last_step: int, checksums: bool) -> tuple[str, dict[str, Any]]:
    """Return the problem with a line ("" if there is none) and its row."""
    try:
        row = json.loads(line.decode())
    except (ValueError, RecursionError) as error:
        return f"no JSON: {error}", {}
    if not isinstance(row, dict):
        return "no JSON object", {}
    found = row.pop(LINE_CHECKSUM, None)
    if found != _checksum(row) and (checksums or found is not None):
        return "its checksum does not match", {}
    step = row.get("step")
    if type(step) is not int or step <= last_step:
        return f"step {step!r} after step {last_step}", {}
    wrong = [key for key, value in row.items() if not _is_number(value)]
    wrong += ["ci95" for metric in _metrics() if metric in row and not isinstance(row.get("ci95"), float)]
    return (f"{wrong[0]} is {row.get(wrong[0])!r}" if wrong else ""), row


def _is_number(value: Any) -> bool:
    """Return whether a value is a number or a list of numbers: a log holds nothing else."""
    return all(type(number) in (int, float) for number in (value if isinstance(value, list) else [value]))


def _checksum(row: Mapping[str, Any]) -> str:
    return f"{crc32(json.dumps(row).encode()):08x}"


def _metrics() -> list[str]:
    return [PROBLEMS.get(name).metric for name in PROBLEMS.names()]  # accuracy, f1, and those of others


def validated(rows: Sequence[dict[str, Any]]) -> tuple[str, list[dict[str, Any]]]:
    """Return the name of the metric that selected the weights, and the rows of validations."""
    metrics = _metrics()
    for metric in metrics:
        found = [row for row in rows if metric in row]
        if found:
            return metric, found
    return metrics[0], []


def _checked(config: Any) -> dict[str, Any]:
    """Return the content of a config.json without its checksum; raise a ValueError that names a problem."""
    if not isinstance(config, dict):
        raise ValueError("no JSON object")
    kinds = {"version": str, "n_classes": int, "data_digest": str, "recipe": dict}
    missing = [key for key in kinds if key not in config]
    if missing:
        raise ValueError(f"{missing[0]!r} is missing")
    found = config.get("format", 1)
    if type(found) is not int or not 1 <= found <= FORMAT:
        raise ValueError(f"format {found!r}; this version reads 1 to {FORMAT}")
    checksum = config.pop("checksum", None)
    if checksum != json_checksum(config) and (checksum is not None or found >= CHECKSUMS):
        raise ValueError("damaged, or changed after it was written: its checksum does not match")
    wrong = [key for key, kind in kinds.items() if type(config[key]) is not kind]
    if wrong or config["n_classes"] < 0:
        key = (wrong or ["n_classes"])[0]
        raise ValueError(f"{key!r} is {config[key]!r:.50}")
    return config


def _migrated(config: dict[str, Any]) -> dict[str, Any]:
    """Convert the configuration of an older version to the current one; "format" keeps the original number."""
    found = config.get("format", 1)
    recipe = config["recipe"]
    if found < 2:  # initialised from 5 instances a class; one schedule for all
        method = recipe["method"]
        if "init_shot" in keywords(METHODS.get(method["name"])):
            method = {"init_shot": 5, **method}
        optim = {name: {"dense": False, "scheduled": True, **section} for name, section in recipe["optim"].items()}
        recipe = {**recipe, "method": method, "optim": optim}
    if found < 3:  # the decision was part of the method
        moved = {key: value for key, value in recipe["method"].items() if key in DECISION_OPTIONS}
        method = {key: value for key, value in recipe["method"].items() if key not in moved}
        recipe = {**recipe, "method": method, "decision": {**recipe.get("decision", {}), **moved}}
    if found < 4 and recipe.get("encoder", {}).get("name") == "sentence-transformer":  # the mean of at most 128 pieces
        recipe = {**recipe, "encoder": {"max_length": 128, "pooling": "plain", **recipe["encoder"]}}
    if found < 5 and _reads_prompts(recipe.get("encoder", {})):  # the mean of the sentence as it is
        recipe = {**recipe, "encoder": {**recipe["encoder"], "representation": "mean"}}
    return {**config, "format": found, "recipe": recipe}


def _reads_prompts(encoder: dict[str, Any]) -> bool:
    """Return whether these encoder options select the prompt with head and tail, which is the default since 5."""
    if encoder.get("name") != "relation-transformer" or not encoder.get("frozen", True):
        return False
    usual = {"representation": "auto", "markers": None, "output": "vectors"}
    return all(encoder.get(key, value) == value for key, value in usual.items())


def _settings(recipe: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that determine a result, without descriptions."""
    return {key: value for key, value in recipe.items() if key not in WORDS}


def differences(a: Any, b: Any, path: str = "") -> set[str]:
    """Return the dotted names of values that differ between two nested tables."""
    if not (isinstance(a, dict) and isinstance(b, dict)):
        return set() if a == b else {path}
    keys = a.keys() | b.keys()
    return {name for key in keys for name in differences(a.get(key), b.get(key), f"{path}.{key}".lstrip("."))}


@dataclass(frozen=True)
class PriorRatio:
    """Ratios of within- to between-class variance by feature transform, and the classes they were measured on.

    `fit="bayes"` needs such a ratio before it sees any support. It depends on encoder and data (0.25 for Conv4 on
    glyphs, 7 on miniImageNet), so a run measures it on validation classes that were not trained on.
    """

    data: str
    split: str
    classes: list[str]
    ratio: dict[str, float]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read and check prior_ratio.json; files of older versions have no checksum."""
        try:
            content = read_json(path, damaged=MEASURE_AGAIN)
            checksum = content.pop("checksum", None)
            if checksum is not None and checksum != json_checksum(content):
                raise ValueError("damaged, or changed after it was written: its checksum does not match")
            read = cls(**content)
        except (TypeError, ValueError, AttributeError) as error:
            raise DataError(f"{path}: not the ratios of a run ({error}); {MEASURE_AGAIN}") from None
        for key in ("data", "split"):
            if not isinstance(getattr(read, key), str):
                raise DataError(f"{path}: {key!r} is {getattr(read, key)!r}, not a name; {MEASURE_AGAIN}")
        if not (isinstance(read.classes, list) and all(isinstance(name, str) for name in read.classes)):
            raise DataError(f"{path}: 'classes' is not a list of names; {MEASURE_AGAIN}")
        for kind, ratio in read.ratio.items() if isinstance(read.ratio, dict) else [("all", read.ratio)]:
            if type(ratio) not in (float, int) or not isfinite(ratio) or ratio <= 0:
                raise DataError(f"{path}: the ratio of {kind!r} is {ratio!r}, not a number above 0; {MEASURE_AGAIN}")
        return read

    def write(self, path: Path) -> None:
        """Write prior_ratio.json with a checksum."""
        content = {**asdict(self), "checksum": json_checksum(asdict(self))}
        with atomic_write(path) as file:
            file.write(json.dumps(content, indent=1, ensure_ascii=False).encode() + b"\n")

    def for_pool(self, pool: Pool) -> dict[str, float]:
        """Return the ratios to use on a pool; none if they were measured on some of its classes."""
        return {} if set(self.classes) & set(pool.class_names) else self.ratio
