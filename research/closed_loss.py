"""Comparison of ProtoNet's loss with a loss through the closed form, both tuned alike.

    python -m research.closed_loss glyphs --seeds 0 1 2 --json results/images/glyphs-closed-loss.json

Two losses, each trained with 5 shots and with 1 to 10 shots a class: four arms, which separate the effect of the loss
from that of the shots. Each arm tries a few settings in short runs, scored on classes that are not reported: the
recipe's temperature, a third and three times that; with the best of them twice the learning rate; with the best of
those another prior ratio, if the loss has one. A setting is judged by the mean accuracy over the columns with the best
closed form. The chosen settings are trained with every seed and scored on the reported classes, by every closed form.
Runs are kept below runs/; a killed run is resumed.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from hyperproto.regions import PRIOR_RATIO
from hyperproto.reports.tables import write_results
from hyperproto.training import load_recipe
from research import ablation, command_of
from research.ablation import HELD_OUT, STUDIES, UNEQUAL, ClosedForm, Study

FORMS: list[ClosedForm] = [form for form in ablation.CLOSED_FORMS if form[1] in ("point", "unbiased", "bayes")]
TEMPERATURES = (1 / 3, 1.0, 3.0)  # of the recipe's own
FASTER: dict[str, float] = {"rate": 2.0}
CHANGES = {"protonet": [FASTER], "hyperproto-closed": [FASTER, {"prior_ratio": 1.0}]}


@dataclass(frozen=True)
class Arm:
    """A row of the recipe and the fewest and most shots of its training episodes."""

    row: str
    shots: tuple[int, int]

    @property
    def title(self) -> str:
        """Return the name shown in tables."""
        fewest, most = self.shots
        loss = "ProtoNet's loss" if self.row == "protonet" else "loss through bayes"
        return f"{loss}, {fewest if fewest == most else f'{fewest} to {most}'} shots"


ARMS = [Arm(row, shots) for row in ("protonet", "hyperproto-closed") for shots in ((5, 5), (1, 10))]


@dataclass(frozen=True)
class Setting:
    """Tuned settings: factors of the recipe's temperature and learning rate, and the prior ratio."""

    temperature: float = 1.0
    rate: float = 1.0
    prior_ratio: float = PRIOR_RATIO

    def changes(self, recipe: str, arm: Arm) -> list[str]:
        """Return the setting as overrides of the arm's recipe."""
        own = load_recipe(f"{recipe}:{arm.row}")
        found = [
            f"method.temperature={own.method.options['temperature'] * self.temperature!r}",
            f"optim.encoder.lr={own.optim['encoder'].lr * self.rate!r}",
            f"episodes.shot={arm.shots[0]}",
            f"episodes.most_shots={arm.shots[1]}",
        ]
        return found if arm.row == "protonet" else [*found, f"method.prior_ratio={self.prior_ratio!r}"]


@dataclass(frozen=True)
class Plan:
    """Columns that are reported, columns that settings are chosen on, and the steps of the runs of each."""

    reported: Study
    chosen_on: Study
    steps: int
    trial_steps: int


PLANS = {
    "glyphs": Plan(
        STUDIES["glyphs"],
        Study(
            "glyphs", [("glyphs", "val", 20, 1), ("glyphs", "val", 20, 5), ("glyphs", "val", 5, [1, 1, 2, 5, 10])], 15
        ),
        steps=600,
        trial_steps=300,
    ),
    "fewrel": Plan(
        STUDIES["fewrel"],
        Study("fewrel-cnn", [(HELD_OUT, "val", 5, shot) for shot in (1, 5, UNEQUAL)], 5, spec=HELD_OUT),
        steps=1500,
        trial_steps=300,
    ),
}


def run(study: Study, arm: Arm, setting: Setting, steps: int, seed: int) -> str:
    """Train what is missing of a run; return its folder."""
    changes = [*setting.changes(study.recipe, arm), f"training.seed={seed}", f"training.steps={steps}"]
    changes += [f"training.validate_every={steps}", "validation.episodes=100"]
    changes += [f"data.spec={study.spec}"] if study.spec else []
    words = f"{setting.temperature:.2g}-{setting.rate:.2g}-{setting.prior_ratio:.2g}"
    name = f"{arm.row}-{arm.shots[0]}-{arm.shots[1]}-{words}-{steps}-steps-seed-{seed}"
    folder = f"runs/closed-loss-{study.recipe}/{name}{'-held-out' if study.spec else ''}"
    ablation.train_shown(f"{study.recipe}:{arm.row}", changes, folder, f"{arm.title}, {words}, seed {seed}")
    return folder


def best_accuracy(study: Study, folder: str, episodes: int) -> tuple[float, str]:
    """Return a run's mean accuracy over the columns with its best closed form, and the name of that form."""
    by_form: dict[str, list[float]] = {}
    for _, results in ablation.scored(study, {("", "", 0): folder}, episodes, FORMS):
        for (*_, form), seeds in results.items():
            by_form.setdefault(form, []).append(float(seeds[0].values.mean()))
    return max((fmean(values), form) for form, values in by_form.items())


def choose(plan: Plan, arm: Arm, episodes: int) -> tuple[Setting, list[dict[str, Any]]]:
    """Return the best setting of an arm, and the accuracy of each."""
    tried: dict[Setting, tuple[float, str]] = {}

    def best() -> Setting:
        return max(tried, key=lambda setting: tried[setting][0])

    def attempt(setting: Setting) -> None:
        folder = run(plan.chosen_on, arm, setting, plan.trial_steps, seed=0)
        tried[setting] = best_accuracy(plan.chosen_on, folder, episodes)

    for temperature in TEMPERATURES:
        attempt(Setting(temperature))
    for change in CHANGES[arm.row]:
        attempt(replace(best(), **change))
    listed = [
        {"arm": arm.title, **vars(setting), "accuracy": round(accuracy, 5), "closed_form": form}
        for setting, (accuracy, form) in tried.items()
    ]
    return best(), listed


def main(arguments: Sequence[str] | None = None) -> None:
    """Choose, train, score, show, and write JSON if asked to."""
    parser = argparse.ArgumentParser(prog="python -m research.closed_loss", description=__doc__)
    parser.add_argument("study", choices=PLANS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--episodes", type=int, default=2000, help="reported; settings are chosen on 400")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every number there, and a page beside it")
    options = parser.parse_args(arguments)
    plan = PLANS[options.study]
    chosen, tried = {}, []
    for arm in ARMS:
        chosen[arm], listed = choose(plan, arm, min(400, options.episodes))
        tried += listed
    folders = {
        (arm.title, f"{setting.temperature:.2g} x", seed): run(plan.reported, arm, setting, plan.steps, seed)
        for seed in options.seeds
        for arm, setting in chosen.items()
    }
    baseline = (ARMS[0].title, f"{chosen[ARMS[0]].temperature:.2g} x", "point")
    found = [
        row
        for column, results in ablation.scored(plan.reported, folders, options.episodes, FORMS)
        for row in ablation.rows(column, results, baseline)
    ]
    ablation.show(found)
    if options.json:
        command = command_of("closed_loss", arguments)
        facts = {"recipe": plan.reported.recipe, "query": plan.reported.query, "episodes": options.episodes}
        facts |= {"seeds": options.seeds, "steps": plan.steps, "trial_steps": plan.trial_steps, "tried": tried}
        write_results(options.json, {"command": command, **facts, "results": found})
        page = ablation.markdown(found, command, options.episodes, "A loss through the closed form")
        ablation.write_page(options.json, page)


if __name__ == "__main__":
    main()
