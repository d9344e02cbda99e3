"""The command line: thin. Exit codes: 0; 1 for a mistake that the user can mend; 2 for wrong usage."""

import shlex
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from hyperproto import __version__
from hyperproto.allocator import keep_large_blocks
from hyperproto.commands.output import console, show_rows, write_json
from hyperproto.errors import HyperProtoError

app = typer.Typer(
    help="Few-shot learning in which a class is a region of embedding space, not a point.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
recipes_app = typer.Typer(help="The recipes that come with the package.", no_args_is_help=True)
methods_app = typer.Typer(help="The few-shot methods.", no_args_is_help=True)
data_app = typer.Typer(help="The data sets.", no_args_is_help=True)
app.add_typer(recipes_app, name="recipes")
app.add_typer(methods_app, name="methods")
app.add_typer(data_app, name="data")

EXTRAS = {
    "torch": "train", "PIL": "images", "pooch": "images", "requests": "images",
    "matplotlib": "plots", "transformers": "text", "pyarrow": "glove",
}  # fmt: skip


def _json_target(value: str | None) -> str | None:
    """Refuse a target that cannot be written before the work, not after it."""
    if value is not None and value != "-" and Path(value).is_dir():
        raise typer.BadParameter(f"{value} is a folder; name a file, or - for standard output")
    return value


JsonFile = Annotated[
    str | None,
    typer.Option("--json", metavar="FILE", help="Write JSON there; - for standard output.", callback=_json_target),
]
Overrides = Annotated[
    list[str] | None, typer.Option("-o", "--override", metavar="KEY=VALUE", help="Change a setting of the recipe.")
]
MethodOptions = Annotated[
    list[str] | None, typer.Option("-o", "--option", metavar="KEY=VALUE", help="Set an option of the method.")
]
Data = Annotated[str, typer.Option(help="A data spec, such as glyphs or vectors:FILE.npz.")]
Split = Annotated[str, typer.Option(help="The split to draw episodes from.")]
Way = Annotated[int, typer.Option(help="Classes an episode.")]
Shot = Annotated[str, typer.Option(help="Support examples a class: one number, or one for each, as in 1,1,2,5,20.")]
Query = Annotated[int, typer.Option(help="Queries a class.")]
EpisodeCount = Annotated[int, typer.Option(min=1, help="How many episodes.")]
Seed = Annotated[int, typer.Option(help="Seed of the episodes.")]
NotaShare = Annotated[float, typer.Option(help="Share of the queries that are of none of the classes.")]
NaRate = Annotated[int, typer.Option(help="The same as FewRel 2.0 says it: so many for each query of one class.")]
ThresholdData = Annotated[
    str | None, typer.Option(help="With NOTA: data to choose the threshold of rejection on (default: the same data).")
]
ThresholdSplit = Annotated[str | None, typer.Option(help="With NOTA: the split to choose it on (default: val).")]
OneRun = Annotated[str | None, typer.Option("--run", help="A trained run.")]
OneEncoder = Annotated[str | None, typer.Option("--encoder", help="A ready encoder, such as identity.")]
OneMethod = Annotated[str | None, typer.Option("--method", help="The method (default: the run's own).")]
OneFit = Annotated[str | None, typer.Option("--fit", help="Closed form: bayes, unbiased, paper or point.")]
OneTransform = Annotated[
    str | None, typer.Option("--transform", help="none, unit or center-unit (default: the run's).")
]


def main() -> None:
    """Run the command line; print a user's mistake as one paragraph, without a traceback (`--debug` shows it)."""
    keep_large_blocks()
    debug = "--debug" in sys.argv
    sys.argv = [argument for argument in sys.argv if argument != "--debug"]
    try:
        app(prog_name="hyperproto")
    except HyperProtoError as error:
        if debug:
            raise
        _fail(str(error))
    except OSError as error:
        if debug:
            raise
        _fail(f"{error.filename or 'a file'}: {error.strerror or error}; check the path and your rights to it")
    except ModuleNotFoundError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if debug or extra is None:
            raise
        _fail(f"this command needs {error.name}, which is not installed: pip install 'hyperproto[{extra}]'")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Take the options that come before a command; `main` has already acted on `--debug`."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for runs, report.html and report.json.")] = Path("runs/demo"),
    json_file: JsonFile = None,
) -> None:
    """Train ProtoNet and HyperProto on the built-in glyphs; compare them, and simple baselines, on unseen scripts."""
    from hyperproto.reports.demo import run_demo

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
    from hyperproto.recipes import run_name
    from hyperproto.reports.progress import progress_bar
    from hyperproto.training import load_recipe
    from hyperproto.training import train as run_training

    checked = load_recipe(recipe, override)
    folder = out or Path("runs") / run_name(recipe)
    with progress_bar("train") as show:
        run = run_training(checked, folder, lambda report: show(report.step, report.steps, report.words()), show)
    with suppress(ModuleNotFoundError):  # without matplotlib a run has no page
        from hyperproto.reports.run_page import write_run_page

        write_run_page(run, checked, f"hyperproto train {recipe} --out {folder}")
    validations = [row for row in run.read_metrics() if "accuracy" in row]
    best = max(validations, key=lambda row: row["accuracy"])
    summary = {key: best[key] for key in ("step", "accuracy", "ci95")}
    result = {"run": str(folder), "validation": checked.validation.model_dump(), **summary}
    if json_file:
        write_json(result, json_file)
    if json_file != "-":
        accuracy = f"{100 * best['accuracy']:.2f} ± {100 * best['ci95']:.2f} %"
        typer.echo(f"{folder}: best validation accuracy {accuracy} at step {best['step']}")


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
    shot: Shot = "5",
    query: Query = 15,
    episodes: EpisodeCount = 1000,
    seed: Seed = 0,
    nota_share: NotaShare = 0.0,
    na_rate: NaRate = 0,
    threshold_data: ThresholdData = None,
    threshold_split: ThresholdSplit = None,
    option: MethodOptions = None,
    json_file: JsonFile = None,
) -> None:
    """Measure one method on episodes of unseen classes."""
    one = _one_of(run, encoder)
    from hyperproto.commands.evaluation import Selection, Tasks, show_results
    from hyperproto.commands.evaluation import evaluate as measure

    chosen = Selection(*one, _one(method), _one(fit), _one(transform), option or ())
    nota = nota_share, na_rate, threshold_data, threshold_split
    [results] = measure(chosen, Tasks(data, split, [shot], way, query, episodes, seed, *nota))
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
    query: Query = 15,
    episodes: EpisodeCount = 1000,
    seed: Seed = 0,
    nota_share: NotaShare = 0.0,
    na_rate: NaRate = 0,
    threshold_data: ThresholdData = None,
    threshold_split: ThresholdSplit = None,
    option: MethodOptions = None,
    json_file: JsonFile = None,
) -> None:
    """Measure every combination that makes sense on the same episodes, with paired differences."""
    if not run and not encoder:
        raise typer.BadParameter("give at least one --run or --encoder", param_hint="--run")
    from hyperproto.commands.evaluation import Selection, Tasks, comparison, show_results
    from hyperproto.commands.evaluation import evaluate as measure

    chosen = Selection(run or (), encoder or (), method or (), fit or (), transform or (), option or ())
    nota = nota_share, na_rate, threshold_data, threshold_split
    columns = measure(chosen, Tasks(data, split, shot or ["5"], way, query, episodes, seed, *nota))
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
    one = _one_of(run, encoder)
    from hyperproto.commands.evaluation import Selection
    from hyperproto.commands.submission import submit as answer

    chosen = Selection(*one, _one(method), _one(fit), _one(transform), option or ())
    path, count = answer(test_input, chosen, out, uncased=uncased)
    typer.echo(f"{path}: {count} predictions")


@app.command()
def report(
    table: Annotated[str, typer.Argument(help="table2 to table5, or a path that ends in .toml, with a [table].")],
    runs: Annotated[Path | None, typer.Option(help="Folder that holds the runs (default: runs).")] = None,
    episodes: Annotated[int | None, typer.Option(min=2, help="How many episodes (default: the table's).")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the table there, as Markdown.", dir_okay=False)] = None,
    json_file: JsonFile = None,
) -> None:
    """Print a table of the paper and, beneath each published row, what your runs reach on the same episodes."""
    from hyperproto.files import atomic_write
    from hyperproto.reports.progress import progress_bar
    from hyperproto.reports.table_text import caption, markdown, rich_table
    from hyperproto.reports.tables import make_report

    with progress_bar("report") as show:
        made = make_report(table, runs, episodes, show)
    if out is not None:
        with atomic_write(out) as file:
            file.write(markdown(made).encode())
    if json_file:
        write_json(made.to_json(), json_file)
    if json_file != "-":
        console().print(rich_table(made), *caption(made), sep="\n", markup=False, highlight=False)


@recipes_app.command("list")
def recipes_list(json_file: JsonFile = None) -> None:
    """List the recipes and their rows."""
    from hyperproto.commands.lists import recipe_rows

    show_rows(recipe_rows(), json_file)


@recipes_app.command("show")
def recipes_show(recipe: str, override: Overrides = None, json_file: JsonFile = None) -> None:
    """Print a recipe, complete, with its cost, the number it should reach and the published one; it is TOML."""
    from hyperproto.reports.recipe_text import recipe_text
    from hyperproto.training import load_recipe

    checked = load_recipe(recipe, override)
    if json_file:
        write_json(checked.model_dump(mode="json"), json_file)
    if json_file != "-":
        typer.echo(recipe_text(recipe, checked))


@methods_app.command("list")
def methods_list(json_file: JsonFile = None) -> None:
    """List the methods, their closed forms and their traits."""
    from hyperproto.commands.lists import method_rows

    show_rows(method_rows(), json_file)


@data_app.command("list")
def data_list(json_file: JsonFile = None) -> None:
    """List the data sets."""
    from hyperproto.commands.lists import data_rows

    show_rows(data_rows(), json_file)


@data_app.command("check")
def data_check(spec: str, json_file: JsonFile = None) -> None:
    """Open every split of a data set and count what is in it."""
    from hyperproto.commands.lists import split_rows

    show_rows(split_rows(spec), json_file)


@data_app.command("get")
def data_get(
    name: Annotated[str, typer.Argument(help="omniglot or cub.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder to put it in (default: below $HYPERPROTO_DATA, or in the cache).")
    ] = None,
) -> None:
    """Download a data set from its official place, checked; a download that was cut goes on where it stopped."""
    from hyperproto.data.get import get, spec
    from hyperproto.reports.progress import progress_bar

    with progress_bar(name) as show:
        files = get(name, out, lambda done, total: show(done // 1000, total // 1000, "kB"))
    for file in files:
        typer.echo(file.words())
    typer.echo(f"use it with: --data {shlex.quote(spec(name, out))}")


def _one_of(run: str | None, encoder: str | None) -> tuple[list[str], list[str]]:
    """Take a run or an encoder, not both."""
    if (run is None) == (encoder is None):
        raise typer.BadParameter("give one of --run and --encoder", param_hint="--run")
    return _one(run), _one(encoder)


def _one(value: str | None) -> list[str]:
    return [] if value is None else [value]


def _fail(message: str) -> None:
    Console(stderr=True).print(f"[bold red]error:[/] {escape(message)}", highlight=False, soft_wrap=True)
    sys.exit(1)
