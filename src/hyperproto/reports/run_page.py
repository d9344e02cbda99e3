"""The page of one training run: what it did, and how it went."""

from hyperproto.recipes import Recipe
from hyperproto.reports import figures
from hyperproto.reports.page import Page
from hyperproto.training import Run
from hyperproto.training.metrics import validated


def write_run_page(run: Run, recipe: Recipe, command: str) -> None:
    """Write report.html into the run's folder."""
    metrics = run.read_metrics()
    metric, validations = validated(metrics)
    page = Page(f"Run {run.folder.name}", recipe.description)
    page.command(command)
    task = recipe.validation
    page.heading("Validation")
    rows = [[str(row["step"]), f"{100 * row[metric]:.2f} ± {100 * row['ci95']:.2f}"] for row in validations]
    page.table(["step", f"{metric}, %"], rows)
    page.note(
        f"{recipe.data.spec} {task.split}, {task.way}-way, shots {task.shot}, {task.query} queries a class, "
        f"{task.episodes} episodes, seed {task.seed}; 95 % intervals over episodes. The best of these chose the "
        "weights: report other episodes."
    )
    page.picture(figures.training_curves(metrics, f"Loss and validation {metric}"), "Over the training steps.")
    if "radii" in metrics[0]:
        page.picture(figures.radius_curves(metrics, "Learned radii, centred"), "Of some training classes.")
    page.write(run.folder / "report.html")
