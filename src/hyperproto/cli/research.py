"""Commands for research: train methods, compare them on episodes, and set the paper's numbers beside ours."""

import shlex
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from hyperproto.cli.options import (
    Data,
    EpisodeCount,
    EpisodeFile,
    JsonFile,
    LeastSpans,
    MethodOptions,
    NaRate,
    NotaShare,
    OneEncoder,
    OneFit,
    OneMethod,
    OneRun,
    OneTransform,
    Overrides,
    Query,
    RuleName,
    Seed,
    Shot,
    Split,
    ThresholdData,
    ThresholdSplit,
    Way,
    as_list,
    one_of,
)
from hyperproto.commands.output import console, write_json

app = typer.Typer()


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for runs, report.html and report.json.")] = Path("runs/demo"),
    json_file: JsonFile = None,
) -> None:
    """Train ProtoNet and HyperProto on the built-in glyphs; compare them, and simple baselines, on unseen scripts."""
    from hyperproto.studies.demo import run_demo

    report = run_demo(out, Console(stderr=json_file == "-"))
    if json_file:
        write_json(report, json_file)


@app.command()
def train(
    recipe: Annotated[str, typer.Argument(help="NAME, NAME:ROW (see `recipes list`) or a path that ends in .toml.")],
    out: Annotated[Path | None, typer.Option(help="Folder of the run (default: runs/RECIPE).")] = None,
    override: Overrides = None,
    json_file: JsonFile = None,
) -> None:
    """Train as a recipe says. A run that was killed goes on where it stopped, to the very same result."""
    from hyperproto.progress import progress_bar
    from hyperproto.recipes import run_name
    from hyperproto.training import load_recipe
    from hyperproto.training import train as run_training
    from hyperproto.training.metrics import validated

    checked = load_recipe(recipe, override)
    folder = out or Path("runs") / run_name(recipe)
    with progress_bar("train") as show:
        run = run_training(checked, folder, lambda report: show(report.step, report.steps, report.words()), show)
    with suppress(ModuleNotFoundError):  # without matplotlib a run has no page
        from hyperproto.reports.run_page import write_run_page

        write_run_page(run, checked, f"hyperproto train {recipe} --out {folder}")
    metric, validations = validated(run.read_metrics())
    best = max(validations, key=lambda row: float(row[metric]))
    summary = {key: best[key] for key in ("step", metric, "ci95")}
    result = {"run": str(folder), "validation": checked.validation.model_dump(), **summary}
    if json_file:
        write_json(result, json_file)
    if json_file != "-":
        value = f"{100 * best[metric]:.2f} ± {100 * best['ci95']:.2f} %"
        typer.echo(f"{folder}: best validation {metric} {value} at step {best['step']}")


@app.command()
def evaluate(
    data: Data,
    run: OneRun = None,
    encoder: OneEncoder = None,
    method: OneMethod = None,
    fit: OneFit = None,
    transform: OneTransform = None,
    split: Split = "test",
    way: Way = 5,
    shot: Shot = None,
    query: Query = None,
    episodes: EpisodeCount = None,
    seed: Seed = 0,
    nota_share: NotaShare = 0.0,
    na_rate: NaRate = 0,
    threshold_data: ThresholdData = None,
    threshold_split: ThresholdSplit = None,
    rule: RuleName = None,
    least_spans: LeastSpans = None,
    episode_file: EpisodeFile = None,
    option: MethodOptions = None,
    json_file: JsonFile = None,
) -> None:
    """Measure one method on episodes of unseen classes."""
    one = one_of(run, encoder)
    from hyperproto.commands.evaluation import Selection, show_results
    from hyperproto.commands.evaluation import evaluate as measure
    from hyperproto.commands.tasks import Tasks, checked_rule

    chosen = Selection(*one, as_list(method), as_list(fit), as_list(transform), option or ())
    nota = nota_share, na_rate, threshold_data, threshold_split
    greedy = checked_rule(rule), least_spans, episode_file
    [results] = measure(chosen, Tasks(data, split, as_list(shot), way, query, episodes, seed, *nota, *greedy))
    show_results([results], results[0].to_json(), json_file)


@app.command()
def compare(
    data: Data,
    run: Annotated[list[str] | None, typer.Option(help="A trained run; repeatable.")] = None,
    encoder: Annotated[list[str] | None, typer.Option(help="A ready encoder; repeatable.")] = None,
    method: Annotated[list[str] | None, typer.Option(help="A method; repeatable.")] = None,
    fit: Annotated[list[str] | None, typer.Option(help="A closed form; repeatable.")] = None,
    transform: Annotated[list[str] | None, typer.Option(help="A feature transform; repeatable.")] = None,
    split: Split = "test",
    way: Way = 5,
    shot: Annotated[
        list[str] | None, typer.Option(help="Support examples a class (default: 5), or 1,1,2,5,20; repeatable.")
    ] = None,
    query: Query = None,
    episodes: EpisodeCount = None,
    seed: Seed = 0,
    nota_share: NotaShare = 0.0,
    na_rate: NaRate = 0,
    threshold_data: ThresholdData = None,
    threshold_split: ThresholdSplit = None,
    rule: RuleName = None,
    least_spans: LeastSpans = None,
    episode_file: EpisodeFile = None,
    option: MethodOptions = None,
    json_file: JsonFile = None,
) -> None:
    """Measure every combination that makes sense on the same episodes, with paired differences."""
    if not run and not encoder:
        raise typer.BadParameter("give at least one --run or --encoder", param_hint="--run")
    from hyperproto.commands.evaluation import Selection, comparison, show_results
    from hyperproto.commands.evaluation import evaluate as measure
    from hyperproto.commands.tasks import Tasks, checked_rule

    chosen = Selection(run or (), encoder or (), method or (), fit or (), transform or (), option or ())
    nota = nota_share, na_rate, threshold_data, threshold_split
    greedy = checked_rule(rule), least_spans, episode_file
    columns = measure(chosen, Tasks(data, split, shot or [], way, query, episodes, seed, *nota, *greedy))
    content = {"command": shlex.join(["hyperproto", *sys.argv[1:]]), **comparison(columns)}
    show_results(columns, content, json_file)


@app.command()
def submit(
    test_input: Annotated[Path, typer.Argument(help="A hidden test set, such as FewRel's test_wiki_input-5-1.json.")],
    run: OneRun = None,
    encoder: OneEncoder = None,
    method: OneMethod = None,
    fit: OneFit = None,
    transform: OneTransform = None,
    uncased: Annotated[bool, typer.Option("--uncased", help="Lower-case the words and strip their accents.")] = False,
    option: MethodOptions = None,
    out: Annotated[
        Path | None, typer.Option(help="Where the answers go (default: pred-N-K.json).", dir_okay=False)
    ] = None,
) -> None:
    """Answer a hidden test set of FewRel; the file is what its server takes."""
    one = one_of(run, encoder)
    from hyperproto.commands.evaluation import Selection
    from hyperproto.commands.submission import submit as answer

    chosen = Selection(*one, as_list(method), as_list(fit), as_list(transform), option or ())
    path, count = answer(test_input, chosen, out, uncased=uncased)
    typer.echo(f"{path}: {count} predictions")


@app.command()
def report(
    table: Annotated[str, typer.Argument(help="table1 to table5, or a path that ends in .toml, with a [table].")],
    runs: Annotated[Path | None, typer.Option(help="Folder that holds the runs (default: runs).")] = None,
    episodes: Annotated[int | None, typer.Option(min=2, help="How many episodes (default: the table's).")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the table there, as Markdown.", dir_okay=False)] = None,
    json_file: JsonFile = None,
) -> None:
    """Print a table of the paper and, beneath each published row, what your runs reach on the same episodes."""
    from hyperproto.files import atomic_write
    from hyperproto.progress import progress_bar
    from hyperproto.reports.table_text import caption, markdown, rich_table
    from hyperproto.studies.paper_table import make_report

    with progress_bar("report") as show:
        made = make_report(table, runs, episodes, show)
    if out is not None:
        with atomic_write(out) as file:
            file.write(markdown(made).encode())
    if json_file:
        write_json(made.to_json(), json_file)
    if json_file != "-":
        console().print(rich_table(made), *caption(made), sep="\n", markup=False, highlight=False)
