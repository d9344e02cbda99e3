"""A run on disk: config.json, metrics.jsonl, model.safetensors, prior_ratio.json, checkpoint/."""

import json
import os
from pathlib import Path
from typing import Any

from hyperproto import __version__
from hyperproto.data import Pool
from hyperproto.decisions import DECISION_OPTIONS
from hyperproto.errors import ConfigError, DataError
from hyperproto.files import atomic_write
from hyperproto.methods import METHODS
from hyperproto.recipes import WORDS, Recipe, parse
from hyperproto.registry import keywords
from hyperproto.training.checkpoint import load_model
from hyperproto.training.learner import Learner
from hyperproto.training.metrics import validated

FORMAT = 4  # of config.json; version 0.1 wrote none, 2 had the options of the decision among the method's,
# up to 3 no sentence-transformer read its checkpoint's own files


class Run:
    """The folder of one training run."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.config = self.folder / "config.json"
        self.metrics = self.folder / "metrics.jsonl"
        self.model = self.folder / "model.safetensors"
        self.checkpoint = self.folder / "checkpoint" / "last.safetensors"
        self.prior_ratio = self.folder / "prior_ratio.json"

    def claim(self, recipe: Recipe, pool: Pool) -> None:
        """Write the resolved configuration, or make sure that the run already there has the same, and the same data."""
        data = {"n_classes": pool.n_labels, "data_digest": pool.digest}
        config = {"version": __version__, "format": FORMAT, **data, "recipe": recipe.model_dump(mode="json")}
        if not self.config.exists():
            with atomic_write(self.config) as file:
                file.write(json.dumps(config, indent=2).encode() + b"\n")
            return
        found = self.read_config()
        different = sorted(_differences(_settings(found["recipe"]), _settings(recipe.model_dump(mode="json"))))
        different += [name for name in data if found.get(name) != data[name]]
        if different:
            raise ConfigError(
                f"{self.folder} holds a run with other settings ({', '.join(different)}); "
                "name another folder with --out, or remove this one"
            )

    def load(self) -> tuple[Learner, Recipe]:
        """Build the learner with its best weights."""
        config = self.read_config()
        recipe = parse(config["recipe"], str(self.config))
        learner = Learner.build(recipe, config["n_classes"])
        load_model(self.model, learner)
        return learner.eval(), recipe

    def append_metrics(self, rows: list[dict[str, Any]]) -> int:
        """Append rows, make sure they are on disk, and return the length of the file."""
        with self.metrics.open("ab") as file:
            file.writelines(json.dumps(row).encode() + b"\n" for row in rows)
            file.flush()
            os.fsync(file.fileno())
            return file.tell()

    def cut_metrics(self, length: int) -> None:
        """Forget what was logged after the checkpoint."""
        self.metrics.touch()
        if self.metrics.stat().st_size < length:
            raise DataError(f"{self.metrics}: shorter than its checkpoint says; remove {self.folder} and train again")
        os.truncate(self.metrics, length)

    def read_metrics(self) -> list[dict[str, Any]]:
        """Return every row logged."""
        return [json.loads(line) for line in self.metrics.read_text().splitlines()]

    def best_validation(self) -> dict[str, Any]:
        """The step whose weights the run keeps: `step`, the metric (`accuracy` or `f1`, a fraction) and its `ci95`."""
        metric, validations = validated(self.read_metrics())
        best = max(validations, key=lambda row: float(row[metric]))
        return {key: best[key] for key in ("step", metric, "ci95")}

    def read_config(self) -> dict[str, Any]:
        """Return config.json; that of an older version in today's words."""
        try:
            config: dict[str, Any] = json.loads(self.config.read_text())
            _ = config["n_classes"], config["data_digest"]
            return _migrated(config)
        except FileNotFoundError:
            raise DataError(f"{self.folder}: no config.json here; is it the folder of a run?") from None
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{self.config}: not the configuration of a run ({error!r})") from None


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
    if found < 4 and recipe["encoder"]["name"] == "sentence-transformer":  # the mean of all pieces, of at most 128
        recipe = {**recipe, "encoder": {"max_length": 128, "pooling": "plain", **recipe["encoder"]}}
    return {**config, "format": found, "recipe": recipe}


def _settings(recipe: dict[str, Any]) -> dict[str, Any]:
    """What decides the result of a run, without the words about it."""
    return {key: value for key, value in recipe.items() if key not in WORDS}


def _differences(a: Any, b: Any, path: str = "") -> set[str]:
    """Dotted names of what differs between two nested tables."""
    if not (isinstance(a, dict) and isinstance(b, dict)):
        return set() if a == b else {path}
    keys = a.keys() | b.keys()
    return {name for key in keys for name in _differences(a.get(key), b.get(key), f"{path}.{key}".lstrip("."))}
