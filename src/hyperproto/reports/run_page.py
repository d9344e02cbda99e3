"""The page of one training run: the command and the settings that made it, and how it went."""

import numpy as np

from hyperproto.methods.stored import watched_classes
from hyperproto.recipes import Recipe, parse
from hyperproto.reports import pictures as figures
from hyperproto.reports.page import Page
from hyperproto.reports.recipe_text import settings_lines
from hyperproto.training import Run
from hyperproto.training.run import validated

NO_LOSS = {"step", "ci95", "precision", "recall", "radii", "radius_spread"}  # of what a run logs, beside its metric


def write_run_page(run: Run, recipe: Recipe, command: str) -> None:
    """Write report.html into the run's folder; `command` is the complete command line, its `-o` included."""
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
        figures.training_curves(
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
            figures.radius_curves([row["step"] for row in watched], radii, names, "Learned radii, centred"),
            f"Of {len(names)} of the {config['n_classes']} training classes, numbered as in the data.",
        )
    page.heading("Settings")
    page.text("All of them, as they were resolved: what recipe and command say, and what follows from the data.")
    page.code("\n".join(settings_lines(parse(config["recipe"], str(run.config)))))
    page.note(f"hyperproto {config['version']}; {config['n_classes']} classes; data digest {config['data_digest']}.")
    page.write(run.folder / "report.html")
