"""Leaderboard of few-shot methods, each tuned alike and trained for the same CPU time on one encoder.

    python -m research.leaderboard relations tune protonet hyperproto gnn snail-5shot --minutes 2
    python -m research.leaderboard relations train protonet hyperproto gnn snail-5shot snail-1shot --minutes 8
    python -m research.leaderboard relations train protonet --track minilm --minutes 25
    python -m research.leaderboard relations score --episodes 2000 --few mlman=300 \\
        --json results/relations/leaderboard-relations.json
    python -m research.leaderboard images train matchingnet imp relationnet --track omniglot

A track is an encoder and its training data. `tune` trains four pairs of learning rate and temperature, each the
recipe's own or three times that, measures them on classes that are not reported (relations: 16 held out of the 64
training relations; images: the validation split), and writes the best to leaderboard-STUDY-choices.json below
results/STUDY. `train` uses that pair, or the recipe's own if there is none. A step is timed first; the number of
steps follows from the minutes and is kept in timing.json. Runs are kept below runs/leaderboard-STUDY; a killed run is
resumed. Two processes may work on different rows. `score` evaluates every finished run on the same episodes and
caches the scores. Rows of an earlier file whose runs are missing stay in it.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from hyperproto.errors import BusyError, ConfigError, HyperProtoError, unknown_name
from hyperproto.files import atomic_write, lock, read_json
from hyperproto.methods import METHODS
from hyperproto.progress import Show, progress_bar
from hyperproto.recipes import Recipe, read_rows, run_name
from hyperproto.registry import keywords
from hyperproto.reports.tables import write_results
from hyperproto.training import Run, load_recipe
from research import command_of
from research.equal_time import TIMING, OnShare, Plan
from research.leaderboard_page import page
from research.leaderboard_scores import (
    BASE,
    QUERY,
    SEED,
    UNEQUAL,
    UNEQUAL_OF_TWENTY,
    Column,
    Scorer,
    Shapes,
    board,
    column_title,
    columns_of,
    entries,
)

FACTORS = (1.0, 3.0)  # of a recipe's learning rates, and of its temperature
PAIR = ("rate", "temperature")
TUNED_ON, REPORTED_AFTER = 400, 200  # episodes of the one validation of a run, at its end


@dataclass(frozen=True)
class Track:
    """An encoder on a data set: its recipe file, the reported columns, and the data that pairs are chosen on."""

    title: str
    recipes: str
    data: str  # reported, in the splits of the columns
    held_out: str  # data whose split val has classes that are not reported
    columns: Sequence[Column]
    minutes: float  # of training


@dataclass(frozen=True)
class Study:
    """Tracks by name, and the folders of runs and choices."""

    title: str
    chosen_on: str  # in words
    tracks: dict[str, Track]
    runs: Path
    choices: Path

    def folder(self, track: str, row: str, seed: int) -> Path:
        """Return the folder of a run."""
        return self.runs / f"{track}-{row}-seed-{seed}"

    def start_folder(self, recipe: Recipe, seed: int, minutes: float) -> Path:
        """Return the folder of a recipe's first stage, which rows with the same first stage share."""
        first = recipe.stage_before
        return self.runs / f"{'' if first is None else run_name(first.recipe)}-{minutes:.3g}-minutes-seed-{seed}-start"


def _relations(title: str, recipes: str, minutes: float) -> Track:
    shapes: Shapes = [(5, 1), (5, 5), (5, UNEQUAL), (10, 5)]
    columns = columns_of(("val", "val_pubmed"), shapes)
    return Track(title, recipes, "fewrel", "fewrel:,holdout=16", columns, minutes)


def _images(title: str, name: str) -> Track:
    shapes: Shapes = [(5, 1), (5, 5), (5, UNEQUAL_OF_TWENTY), (20, 1), (20, 5)]
    return Track(title, name, name, name, columns_of(("test",), shapes), 5.0)


STUDIES = {
    "relations": Study(
        title="Relations",
        chosen_on="relations held out of the training set",
        tracks={
            "cnn": _relations("CNN with GloVe", "fewrel-cnn", 8.0),
            "minilm": _relations("MiniLM, fine-tuned", "fewrel-minilm", 25.0),
        },
        runs=Path("runs/leaderboard-relations"),
        choices=Path("results/relations/leaderboard-relations-choices.json"),
    ),
    "images": Study(
        title="Images",
        chosen_on="the validation split",
        tracks={
            "glyphs": _images("Conv4 on glyphs", "glyphs"),
            "omniglot": _images("Conv4 on Omniglot", "omniglot"),
        },
        runs=Path("runs/leaderboard-images"),
        choices=Path("results/images/leaderboard-images-choices.json"),
    ),
}


def pair_changes(recipe: Recipe, rate: float, temperature: float) -> list[str]:
    """Multiply all learning rates of a recipe, and its temperature."""
    changes = [f"optim.{name}.lr={rate * own.lr!r}" for name, own in recipe.optim.items() if rate != 1]
    if temperature != 1:
        start = recipe.method.options.get("temperature", METHODS.get(recipe.method.name).start_temperature)
        changes.append(f"method.temperature={temperature * start!r}")
    return changes


def pairs_of(recipe: Recipe) -> list[tuple[float, float]]:
    """Return the pairs of factors to try; a method without a temperature has half as many."""
    has_temperature = "temperature" in keywords(METHODS.get(recipe.method.name))
    return list(product(FACTORS, FACTORS if has_temperature else (1.0,)))


def tune(study: Study, track: str, row: str, minutes: float, start_share: float, on_share: OnShare) -> dict[str, Any]:
    """Train every pair on the other classes, measure it on the held-out ones, and store the best."""
    own = study.tracks[track]
    name = f"{own.recipes}:{row}"
    data = [f"data.spec={own.held_out}", "data.split=train", "validation.split=val"]
    recipe = load_recipe(name, data)
    base = study.runs / "tuning" / f"{track}-{row}"
    pairs = pairs_of(recipe)
    first = recipe.stage_before
    same_data = first is not None and load_recipe(first.recipe).data == load_recipe(name).data
    tried = []
    for number, (rate, temperature) in enumerate(pairs):
        plan = Plan(
            recipe=name,
            changes=[*data, f"validation.episodes={TUNED_ON}", *pair_changes(recipe, rate, temperature)],
            folder=base / f"rate-{rate:g}-temperature-{temperature:g}",
            timing=base / TIMING,
            minutes=minutes,
            start_folder=base.with_name(study.start_folder(recipe, 0, minutes * start_share).name),
            start_share=start_share,
            start_changes=data if same_data else [],
        )
        tried.append({"rate": rate, "temperature": temperature, **_tried(plan, _part(on_share, number, len(pairs)))})
    best = max(tried, key=lambda pair: -1.0 if pair["accuracy"] is None else float(pair["accuracy"]))
    task = recipe.validation
    timing = read_json(base / TIMING)
    found = {
        "track": track,
        "row": row,
        "rate": best["rate"],
        "temperature": best["temperature"],
        "tried": tried,
        "data": own.held_out,
        "split": "val",
        "way": task.way,
        "shot": task.shot,
        "query": task.query,
        "episodes": TUNED_ON,
        **timing,
    }
    _note(study, found)
    return found


def _tried(plan: Plan, on_share: OnShare) -> dict[str, Any]:
    """Return the accuracy of a pair; None if training diverged."""
    try:
        measured = plan.train(on_share).best_validation()
    except ConfigError as error:
        if not str(error).startswith("step "):
            raise
        return {"accuracy": None, "ci95": None}
    return {"accuracy": round(measured["accuracy"], 5), "ci95": round(measured["ci95"], 5)}


def _note(study: Study, found: dict[str, Any]) -> None:
    """Write a choice to the file of choices, replacing an older one."""
    with lock(study.choices.parent, "another process writes results", timeout=60):
        key = found["track"], found["row"]
        rows = [row for row in _choices(study) if (row["track"], row["row"]) != key] + [found]
        rows.sort(key=lambda row: (row["track"], row["row"]))
        command = f"python -m research.leaderboard {study.title.lower()} tune ROW ..."
        write_results(study.choices, {"command": command, "results": rows})


def _choices(study: Study) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = read_json(study.choices)["results"] if study.choices.exists() else []
    return rows


def choice_of(study: Study, track: str, row: str) -> dict[str, Any] | None:
    """Return the pair chosen for a row, or for a row of its method (preferably 5-shot); None: the recipe's own."""
    found = {entry["row"]: entry for entry in _choices(study) if entry["track"] == track}
    if row in found:
        return found[row]
    recipes = study.tracks[track].recipes
    method = load_recipe(f"{recipes}:{row}").method.name
    siblings = [name for name in found if load_recipe(f"{recipes}:{name}").method.name == method]
    siblings.sort(key=lambda name: (not name.endswith("-5shot"), name))
    return found[siblings[0]] if siblings else None


def train_row(
    study: Study, track: str, row: str, seed: int, minutes: float, start_share: float, on_share: OnShare
) -> Run:
    """Train a row on all training classes with the pair chosen for it."""
    name, folder = f"{study.tracks[track].recipes}:{row}", study.folder(track, row, seed)
    chosen = choice_of(study, track, row)
    pair = {"rate": 1.0, "temperature": 1.0} if chosen is None else {key: chosen[key] for key in PAIR}
    changes = [f"training.seed={seed}", f"validation.episodes={REPORTED_AFTER}"]
    recipe = load_recipe(name)
    changes += pair_changes(recipe, **pair)
    plan = Plan(
        recipe=name,
        changes=changes,
        folder=folder,
        timing=folder / TIMING,
        minutes=minutes,
        start_folder=study.start_folder(recipe, seed, minutes * start_share),
        start_share=start_share,
        start_changes=[f"training.seed={seed}"],
        facts={**pair, "chosen_on": None if chosen is None else chosen["data"]},
    )
    return plan.train(on_share)


def score(study: Study, episodes: int, few: Mapping[str, int], path: Path | None, command: str) -> None:
    """Score every finished run, show the tables, and write them."""
    scorers = {
        name: Scorer(track.data, study.runs / "scores", episodes, few, track.columns)
        for name, track in study.tracks.items()
    }
    with _one_thread(), progress_bar("score") as show:
        runs = entries(study.runs, list(study.tracks))
        if not runs:
            raise SystemExit(f"{study.runs}: no finished run; begin with train")
        scored = []
        for number, entry in enumerate(runs):
            show(number, len(runs), entry.folder.name)
            scored += scorers[entry.track].score(entry, partial(show, number, len(runs)))
    rows = _with_earlier(board(scored), path, list(study.tracks))
    facts = {"episodes": episodes, "query": QUERY, "seed": SEED}
    titles = {name: track.title for name, track in study.tracks.items()}
    text = page(rows, command, facts, title=study.title, titles=titles, chosen_on=study.chosen_on)
    Console(width=250, highlight=False).print(text, markup=False, soft_wrap=True)
    if path is not None:
        write_results(path, {"command": command, **facts, "results": rows})
        with atomic_write(path.with_suffix(".md")) as file:
            file.write(text.encode())


def _with_earlier(rows: list[dict[str, Any]], path: Path | None, tracks: Sequence[str]) -> list[dict[str, Any]]:
    """Add the rows of an earlier file whose runs are not here, with the command that scored them."""
    if path is None or not path.exists():
        return rows
    earlier = read_json(path)
    here = {(row["track"], row["row"]) for row in rows}
    kept = [
        {"command": earlier["command"], **row} for row in earlier["results"] if (row["track"], row["row"]) not in here
    ]
    hashes = {(row["track"], row["column"], row["episodes"]): row["episode_hash"] for row in rows}
    for row in kept:
        if hashes.get((row["track"], row["column"], row["episodes"]), row["episode_hash"]) != row["episode_hash"]:
            raise SystemExit(f"{path}: its rows were scored on other episodes of {row['column']}; name another file")
    return sorted([*rows, *kept], key=lambda row: (tracks.index(row["track"]), row["row"] != BASE, row["row"]))


def unknown_few(study: Study, asked: Sequence[str]) -> str:
    """Return an error message for the names of `--few` (a row or method, perhaps with a column), or "" if valid."""
    rows = [row for track in study.tracks.values() for row in read_rows(track.recipes)]
    titles = list(dict.fromkeys(column_title(column) for track in study.tracks.values() for column in track.columns))
    for text in asked:
        name, at, title = text.partition("@")
        if name not in rows and name not in METHODS.names():
            return f"--few {text}: {unknown_name('row or method', name, {*rows, *METHODS.names()})}"
        if at and title not in titles:
            return f"--few {text}: there is no column {title!r}; write one of {', '.join(titles)}"
    return ""


def _part(on_share: OnShare, number: int, count: int) -> OnShare:
    """Return a callback that reports the share of one part of several."""
    return lambda share: on_share((number + share) / count)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Run torch on one thread, so that CPU time equals elapsed time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def each_row(title: str, rows: Sequence[str], work: Callable[[str, OnShare], str]) -> None:
    """Work on the rows in turn under one progress bar; failed rows are skipped and reported at the end."""
    failed = []
    console = Console(soft_wrap=True, highlight=False)
    with _one_thread(), progress_bar(title) as show:
        for number, row in enumerate(rows):
            try:
                console.print(work(row, _shown(show, row, number, len(rows))), markup=False)
            except BusyError as error:
                console.print(f"{row}: left out ({error})", markup=False)
            except HyperProtoError as error:
                failed.append(f"{row}: {error}")
                console.print(failed[-1], markup=False)
    if failed:
        raise SystemExit(f"{len(failed)} of {len(rows)} rows failed: " + "; ".join(failed))


def _shown(show: Show, row: str, number: int, count: int) -> OnShare:
    """Return a callback that fills one row's part of the bar."""
    return lambda share: show(round(1000 * (number + share)), 1000 * count, row)


def main(arguments: Sequence[str] | None = None) -> None:
    """Tune, train or score."""
    parser = argparse.ArgumentParser(
        prog="python -m research.leaderboard",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("study", choices=STUDIES)
    commands = parser.add_subparsers(dest="command", required=True)
    tracks = [name for study in STUDIES.values() for name in study.tracks]
    for command in ("tune", "train"):
        own = commands.add_parser(command)
        own.add_argument("rows", nargs="+", metavar="ROW", help="of the recipe file")
        own.add_argument("--track", choices=tracks, help="the study's first, unless given")
        own.add_argument("--minutes", type=float, help="CPU minutes of each run: a quarter of the track's to tune")
        own.add_argument("--start-share", type=float, default=1 / 3, help="of the minutes, for a first stage")
        if command == "train":
            own.add_argument("--seed", type=int, default=0)
    own = commands.add_parser("score")
    own.add_argument("--episodes", type=int, default=2000)
    own.add_argument(
        "--few",
        type=_named_count,
        action="append",
        default=[],
        metavar="NAME[@COLUMN]=COUNT",
        help='the first COUNT episodes only, for a row or method ("mlman=200", "bert-pair@10-way 5-shot=20"); 0: none',
    )
    own.add_argument("--json", type=Path, metavar="FILE", help="write every number there, and a page beside it")
    options = parser.parse_args(arguments)
    study = STUDIES[options.study]
    if options.command == "score":
        if wrong := unknown_few(study, [name for name, _ in options.few]):
            parser.error(wrong)
        command = command_of("leaderboard", arguments)
        score(study, options.episodes, dict(options.few), options.json, command)
        return

    track = options.track or next(iter(study.tracks))
    if track not in study.tracks:
        parser.error(f"--track {track}: {options.study} has {', '.join(study.tracks)}")
    full = study.tracks[track].minutes

    def tuned(row: str, on_share: OnShare) -> str:
        found = tune(study, track, row, options.minutes or full / 4, options.start_share, on_share)
        tried = ", ".join(f"{p['rate']:g} x {p['temperature']:g}: {_percent(p['accuracy'])}" for p in found["tried"])
        return f"{row}: rate x {found['rate']:g}, temperature x {found['temperature']:g} ({tried})"

    def trained(row: str, on_share: OnShare) -> str:
        run = train_row(study, track, row, options.seed, options.minutes or full, options.start_share, on_share)
        timing = read_json(run.folder / TIMING)
        accuracy = _percent(run.best_validation()["accuracy"])
        return f"{run.folder}: {timing['steps']:,} steps of {timing['seconds_a_step']:.3f} s, {accuracy} at the end"

    each_row(options.command, options.rows, tuned if options.command == "tune" else trained)


def _named_count(text: str) -> tuple[str, int]:
    name, _, count = text.partition("=")
    return name, int(count)


def _percent(accuracy: float | None) -> str:
    return "diverged" if accuracy is None else f"{100 * accuracy:.1f} %"


if __name__ == "__main__":
    main()
