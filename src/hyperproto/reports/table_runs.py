"""The runs that reproduce rows of a table: found below a folder, and put together where only the seed differs."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hyperproto.encoders import ENCODERS, Encoder
from hyperproto.errors import HyperProtoError
from hyperproto.recipes import WORDS, Paper, PaperTable, Recipe, parse, recipes_of
from hyperproto.registry import TrustError, names_file
from hyperproto.training import Run, load_recipe
from hyperproto.training.resolve import completed
from hyperproto.training.run import differences, validated


@dataclass(frozen=True, eq=False)
class TableRun:
    """A run, and the published row that it reproduces."""

    folder: Path
    recipe: Recipe
    paper: Paper
    name: str  # FILE:ROW, if it was trained exactly as that says; "" if it was not
    data_digest: str
    step: int  # the last one logged
    finished: bool

    @property
    def seed(self) -> int:
        """The seed of the training."""
        return self.recipe.training.seed

    @property
    def has_model(self) -> bool:
        """Whether it was ever validated: before that there is nothing to evaluate."""
        return Run(self.folder).model.exists()

    def label(self, seeds: list[int]) -> str:
        """Say in a few words what it is."""
        words = [self.name or f"{self.recipe.name} with other settings ({self.folder})"]
        words.append(f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}")
        if not self.finished:
            words.append(f"not finished: step {self.step} of {self.recipe.training.steps}")
        notes = [self.paper.note] if self.paper.note else []
        notes += [f"at most {self.paper.episodes:,} episodes"] if self.paper.episodes else []
        return "; ".join([", ".join(words), *notes])


def find_runs(spec: str, table: PaperTable, folder: Path) -> tuple[list[TableRun], dict[str, Paper], list[str]]:
    """Look one and two levels below `folder` for runs of a table.

    A run belongs to it if its recipe says so, or if it was trained exactly as one of the table's recipes says: a run
    may serve two tables. Returned beside the runs: the recipes that nobody has run, and what was left out, and why.
    """
    recipes = recipes_of(spec)
    for reproduced in recipes.values():
        table.row_of(reproduced)
    by_settings, runs, remarks = {}, [], []
    for name in recipes:
        try:
            by_settings[_settings(load_recipe(name))] = name
        except TrustError as error:
            remarks.append(f"runs of {name} are not looked for: {error}")
    for path in sorted({*folder.glob("*/config.json"), *folder.glob("*/*/config.json")}):
        try:
            recipe, digest = _read(path)
            if names_file(recipe.method.name) and (recipe.paper is None or recipe.paper.table != table.name):
                continue
            name = by_settings.get(_settings(recipe), "")
            paper = recipes[name] if name else recipe.paper
            if paper is not None and paper.table == table.name:
                table.row_of(paper)
                runs.append(TableRun(path.parent, recipe, paper, name, digest, *_progress(recipe, Run(path.parent))))
        except HyperProtoError as error:
            remarks.append(f"{path.parent} is left out: {' '.join(str(error).split())}")
    found = {run.name for run in runs}
    return runs, {name: paper for name, paper in recipes.items() if name not in found}, remarks


def group_by_seed(runs: list[TableRun]) -> tuple[list[list[TableRun]], list[str]]:
    """Put together finished runs that differ only in the seed; say which are there twice."""
    groups: dict[str, dict[int, TableRun]] = {}
    remarks = []
    for run in runs:
        key = _settings(run.recipe) + run.data_digest if run.finished else str(run.folder)
        first = groups.setdefault(key, {}).setdefault(run.seed, run)
        if first is not run:
            remarks.append(f"{run.folder} is left out: it has the settings and the seed of {first.folder}")
    return [[seeds[seed] for seed in sorted(seeds)] for seeds in groups.values()], remarks


def _read(path: Path) -> tuple[Recipe, str]:
    """Read the recipe of a run, and the digest of its data."""
    config = Run(path.parent).read_config()
    return parse(config["recipe"], str(path)), str(config["data_digest"])


def run_differences(run: Run, recipe: Recipe) -> list[str]:
    """Name the settings in which a run differs from a recipe; what follows from the data is not looked at."""
    found = parse(run.read_config()["recipe"], str(run.config))
    return sorted(differences(_all_settings(found), _all_settings(recipe)))


def _settings(recipe: Recipe) -> str:
    """All that decides what a run learns, but for its seed."""
    own = _all_settings(recipe)
    del own["training"]["seed"]
    return json.dumps(own, sort_keys=True)


def _all_settings(recipe: Recipe) -> dict[str, Any]:
    """All that decides what a run learns: no words, and nothing that follows from the data."""
    own: dict[str, Any] = completed(recipe).model_dump(mode="json", exclude=set(WORDS))
    own["encoder"] = _encoder_settings(own["encoder"])
    return own


def _encoder_settings(section: dict[str, Any]) -> dict[str, Any]:
    """Put the encoder of a recipe and of a run in one form: a run has `NAME:ARGUMENT` apart, and what its data say."""
    name, _, argument = section["name"].partition(":")
    cls: type[Encoder] = ENCODERS.get(name)
    named = {cls.argument: argument} if argument and cls.argument else {}
    from_data = options_from_data(name)
    return {key: value for key, value in {**named, **section, "name": name}.items() if key not in from_data}


def options_from_data(encoder: str) -> set[str]:
    """Name the options of an encoder that training reads off the data: a run has them, its recipe need not."""
    cls: type[Encoder] = ENCODERS.get(encoder.partition(":")[0])
    return set(cls.data_options)


def _progress(recipe: Recipe, run: Run) -> tuple[int, bool]:
    """Tell the last step that was logged, and whether it is the end: of all steps, or of patience."""
    rows = run.read_metrics() if run.metrics.exists() else []
    step = rows[-1]["step"] if rows else 0
    metric, validations = validated(rows)
    values = [row[metric] for row in validations]
    stale = len(values) - 1 - values.index(max(values)) if values else 0
    patience = recipe.training.patience
    return step, step >= recipe.training.steps or (patience is not None and stale >= patience)
