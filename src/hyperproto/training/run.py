"""A run on disk: config.json, metrics.jsonl, model.safetensors, prior_ratio.json, checkpoint/.

Each of them has checksums of its content. What was damaged or edited is refused by name.
"""

import json
import os
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, Literal

from hyperproto import __version__
from hyperproto.data import Pool
from hyperproto.decisions import DECISION_OPTIONS
from hyperproto.errors import ConfigError, DataError
from hyperproto.files import atomic_write, errors_name, json_checksum, lock, read_bytes, read_json
from hyperproto.methods import METHODS
from hyperproto.recipes import WORDS, Recipe, parse
from hyperproto.registry import Trust, TrustError, keywords
from hyperproto.registry import trust as trust_files
from hyperproto.training.checkpoint import WAY_OUT, fill, load_model, load_state, load_tensors, model_tensors
from hyperproto.training.learner import Learner
from hyperproto.training.metrics import line_of, read_lines, validated

# Of config.json. 0.1 wrote none; 2 had the options of the decision among the method's; up to 3 there were no checksums,
# and no sentence-transformer read its checkpoint's own files; up to 4 a frozen relation-transformer gave the mean.
FORMAT = 5
CHECKSUMS = 4  # the first with checksums


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
        """Let no other process train here meanwhile; evaluating a run needs no lock."""
        return lock(
            self.folder,
            "another process is training in this folder; wait until it ends, or name another folder with --out",
        )

    def claim(self, recipe: Recipe, pool: Pool) -> None:
        """Write the resolved configuration, or make sure that the run already there has the same, and the same data."""
        data = {"n_classes": pool.n_labels, "data_digest": pool.digest}
        config = {"version": __version__, "format": FORMAT, **data, "recipe": recipe.model_dump(mode="json")}
        if not self.config.exists():
            with atomic_write(self.config) as file:
                file.write(json.dumps({**config, "checksum": json_checksum(config)}, indent=2).encode() + b"\n")
            return
        found = self.read_config()
        began = parse(found["recipe"], str(self.config)).model_dump(mode="json")  # with settings that are newer than it
        different = sorted(differences(_settings(began), _settings(recipe.model_dump(mode="json"))))
        different += [name for name in data if found.get(name) != data[name]]
        if different:
            raise ConfigError(
                f"{self.folder} holds a run with other settings ({', '.join(different)}); "
                "name another folder with --out, or remove this one"
            )

    def load(self, weights: Literal["best", "last"] = "best", *, trust: Trust = None) -> tuple[Learner, Recipe]:
        """Build the learner with its best weights, or with those of its last checkpoint.

        A method `FILE.py:CLASS` is imported only if `trust`, or an earlier consent, names the file.
        """
        trust_files(trust)
        config = self.read_config()
        recipe = parse(config["recipe"], str(self.config))
        try:
            learner = Learner.build(recipe, config["n_classes"])
        except (ConfigError, DataError) as error:
            raise type(error)(f"{self.config}: {error}") from None
        except (TypeError, ValueError, RuntimeError, MemoryError) as error:  # numbers that no network has
            raise DataError(f"{self.config}: no such model can be built ({error}); {WAY_OUT}") from None
        if weights == "best":
            load_model(self.model, learner)
        else:
            fill(learner, model_tensors(load_tensors(self.checkpoint)[0]), self.checkpoint)
        return learner.eval(), recipe

    def append_metrics(self, rows: list[dict[str, Any]]) -> int:
        """Append rows, make sure they are on disk, and return the length of the file."""
        with errors_name(self.metrics), self.metrics.open("ab") as file:
            file.writelines(map(line_of, rows))
            file.flush()
            os.fsync(file.fileno())
            return file.tell()

    def cut_metrics(self, length: int) -> None:
        """Forget what was logged after the checkpoint; what was logged before, `length` bytes, must be whole."""
        self.metrics.touch()
        self._rows(read_bytes(self.metrics)[:length], length)
        os.truncate(self.metrics, length)

    def read_metrics(self) -> list[dict[str, Any]]:
        """Return every row logged; a last line without an end, as a killed training leaves it, is left out."""
        length = 0
        with suppress(DataError):  # there is no checkpoint yet, or a damaged one, which is not asked for here
            length = load_state(self.checkpoint).get("metrics_length", 0)
        return self._rows(read_bytes(self.metrics, missing="has this run been trained?"), length)

    def _rows(self, content: bytes, length: int) -> list[dict[str, Any]]:
        """Read the log; its first `length` bytes are whole lines, since the checkpoint says so."""
        rows = read_lines(content, self.metrics, checksums=self.read_config()["format"] >= CHECKSUMS)
        if content[:length].rpartition(b"\n")[2] or len(content) < length:
            raise DataError(f"{self.metrics}: shorter than its checkpoint says, or lines were changed; {WAY_OUT}")
        return rows

    def best_validation(self) -> dict[str, Any]:
        """The step whose weights the run keeps: `step`, the metric (`accuracy` or `f1`, a fraction) and its `ci95`."""
        metric, validations = validated(self.read_metrics())
        if not validations:
            raise DataError(f"{self.metrics}: no validation in it; train on: {self.folder} has no best weights yet")
        best = max(validations, key=lambda row: float(row[metric]))
        return {key: best[key] for key in ("step", metric, "ci95")}

    def read_config(self) -> dict[str, Any]:
        """Return config.json; that of an older version in today's words."""
        content = read_json(self.config, missing="is this the folder of a run?", damaged=WAY_OUT)
        try:
            return _migrated(_checked(content))
        except TrustError as error:
            raise TrustError(f"{self.config}: {error}") from None
        except (ValueError, LookupError, TypeError, AttributeError, ConfigError) as error:
            raise DataError(f"{self.config}: not the configuration of a run ({error}); {WAY_OUT}") from None


def _checked(config: Any) -> dict[str, Any]:
    """Return the content of a config.json without its checksum, if that is right; a ValueError says what is not."""
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
        raise ValueError("damaged, or changed after it was written: its checksum is another")
    wrong = [key for key, kind in kinds.items() if type(config[key]) is not kind]
    if wrong or config["n_classes"] < 0:
        key = (wrong or ["n_classes"])[0]
        raise ValueError(f"{key!r} is {config[key]!r:.50}")
    return config


def _migrated(config: dict[str, Any]) -> dict[str, Any]:
    """Say in today's words what a run of an older version did; its own format stays in "format"."""
    found = config.get("format", 1)
    recipe = config["recipe"]
    if found < 2:  # 5 instances a class to start from, one schedule for all
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
    """Whether an encoder with these options names head and tail before the sentence because nothing else is said."""
    if encoder.get("name") != "relation-transformer" or not encoder.get("frozen", True):
        return False
    usual = {"representation": "auto", "markers": None, "output": "vectors"}
    return all(encoder.get(key, value) == value for key, value in usual.items())


def _settings(recipe: dict[str, Any]) -> dict[str, Any]:
    """What decides the result of a run, without the words about it."""
    return {key: value for key, value in recipe.items() if key not in WORDS}


def differences(a: Any, b: Any, path: str = "") -> set[str]:
    """Dotted names of what differs between two nested tables."""
    if not (isinstance(a, dict) and isinstance(b, dict)):
        return set() if a == b else {path}
    keys = a.keys() | b.keys()
    return {name for key in keys for name in differences(a.get(key), b.get(key), f"{path}.{key}".lstrip("."))}
