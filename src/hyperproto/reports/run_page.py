"""Settings of a recipe as TOML text, and the page of one training run: its command, its settings, how it went."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hyperproto.recipes import Paper, Recipe, builtin_tables, parse, read_table, table_name
from hyperproto.reports.page import Page

if TYPE_CHECKING:
    from hyperproto.training import Run

HEAD = ("name", "description", "cost", "expected")
NO_LOSS = {"step", "ci95", "precision", "recall", "radii", "radius_spread"}  # of what a run logs, beside its metric


def recipe_text(spec: str, recipe: Recipe) -> str:
    """Return a complete recipe as TOML, which can be saved as a .toml file and trained."""
    published = [] if recipe.paper is None else [f"# {line}" for line in published_words(spec, recipe.paper)]
    return "\n".join([f"# hyperproto train {spec}", *settings_lines(recipe, published)])


def settings_lines(recipe: Recipe, after_head: Sequence[str] = ()) -> list[str]:
    """Return every setting of a recipe as lines of TOML; `after_head` stands below its name, cost and description."""
    content = {key: value for key, value in recipe.model_dump(mode="json").items() if value is not None}
    lines = [*(_line(key, content.pop(key)) for key in HEAD), *after_head]
    plain = {key: value for key, value in content.items() if not isinstance(value, dict)}
    lines += ["", *(_line(key, value) for key, value in plain.items())]
    for key, value in content.items():
        if key not in plain:
            lines += _section(key, value)
    return lines


def published_words(spec: str, paper: Paper) -> list[str]:
    """Return lines that name the published row of a recipe and, if the table is available, its numbers."""
    row = f"published, {paper.table}, {paper.method}, {paper.backbone}"
    own_file = spec.partition(":")[0]
    if paper.table != table_name(own_file) and paper.table not in builtin_tables():
        return [f"{row} (no table of the package; its file is not at hand)"]
    table = read_table(own_file if paper.table == table_name(own_file) else paper.table)
    published = table.row_of(paper)
    numbers = [
        f"{published.printed(c.name)} ({c.name})" for c in table.columns_of(paper) if c.name in published.numbers
    ]
    notes = [note for note in (published.note, paper.note) if note]
    return [f"{row}: {', '.join(numbers)}", *notes]


def _section(name: str, content: dict[str, Any]) -> list[str]:
    """Return a TOML table as lines; a table of tables is written as these."""
    content = {key: value for key, value in content.items() if value is not None}
    if content and all(isinstance(value, dict) for value in content.values()):
        return [line for key, value in content.items() for line in _section(f"{name}.{key}", value)]
    return ["", f"[{name}]", *(_line(key, value) for key, value in content.items())]


def _line(key: str, value: Any) -> str:
    return f"{key} = {json.dumps(value, ensure_ascii=False)}"  # of what a recipe holds, JSON and TOML write all alike


def write_run_page(run: "Run", recipe: Recipe, command: str) -> None:
    """Write report.html into the run's folder; `command` is the complete command line, its `-o` included."""
    import numpy as np

    from hyperproto.methods.stored import watched_classes
    from hyperproto.reports import pictures
    from hyperproto.training.run import validated

    config, metrics = run.read_config(), run.read_metrics()
    metric, validations = validated(metrics)
    page = Page(f"Run {run.folder.name}", recipe.description)
    page.command(command)
    task = recipe.validation
    page.heading("Validation")
    rows = [[str(row["step"]), f"{100 * row[metric]:.2f} ± {100 * row['ci95']:.2f}"] for row in validations]
    page.table(["step", f"{metric}, %"], rows)
    page.note(
        f"{recipe.validation_spec} {task.split}, {task.way}-way, shots {task.shot}, {task.query} queries a class, "
        f"{task.episodes} episodes, seed {task.seed}; 95 % intervals over episodes. The best of these chose the "
        "weights: report other episodes."
    )
    page.picture(
        pictures.training_curves(
            {part: [row[part] for row in metrics] for part in sorted(metrics[0].keys() - NO_LOSS - {metric})},
            [row["step"] for row in metrics],
            metric,
            [(row["step"], row[metric], row["ci95"]) for row in validations],
            f"Loss and validation {metric}",
        ),
        "Over the training steps.",
    )
    watched = [row for row in metrics if "radii" in row]
    if watched:
        names = [f"class {n}" for n in watched_classes(config["n_classes"]).tolist()]
        radii = np.array([row["radii"] for row in watched])
        page.picture(
            pictures.radius_curves([row["step"] for row in watched], radii, names, "Learned radii, centred"),
            f"Of {len(names)} of the {config['n_classes']} training classes, numbered as in the data.",
        )
    page.heading("Settings")
    page.text("All of them, as they were resolved: what recipe and command say, and what follows from the data.")
    page.code("\n".join(settings_lines(parse(config["recipe"], str(run.config)))))
    page.note(f"hyperproto {config['version']}; {config['n_classes']} classes; data digest {config['data_digest']}.")
    page.write(run.folder / "report.html")
