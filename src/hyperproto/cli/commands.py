"""The program `hyperproto`: its commands, its global options, and the commands that list or fetch what there is."""

import shlex
from pathlib import Path
from typing import Annotated, Any, Unpack

import typer
from typer.core import TyperGroup

import hyperproto
from hyperproto.cli import advise, practice, research
from hyperproto.cli.options import JsonFile, Overrides, Trust, with_options
from hyperproto.cli.terminal import echo, say, show, show_rows, write_json
from hyperproto.errors import DataError
from hyperproto.options import DistantOptions
from hyperproto.progress import progress_bar
from hyperproto.reports.tables import TextTable


class _Commands(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except EOFError as error:  # typer takes it for the end of standard input and prints "Aborted."
            raise DataError(f"a file ended too early ({error}); it may be cut: --debug shows which one") from error


app = typer.Typer(
    cls=_Commands,
    help="Few-shot learning in which a class is a region of embedding space, not a point.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(practice.app)
app.add_typer(advise.app)
app.add_typer(research.app)

recipes_app = typer.Typer(help="The recipes that come with the package.", no_args_is_help=True)
methods_app = typer.Typer(help="The few-shot methods.", no_args_is_help=True)
data_app = typer.Typer(help="The data sets.", no_args_is_help=True)
app.add_typer(recipes_app, name="recipes")
app.add_typer(methods_app, name="methods")
app.add_typer(data_app, name="data")


def _print_version(wanted: bool) -> None:
    if wanted:
        echo(hyperproto.__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Accept the options before a command; `main` handles `--debug`."""


@recipes_app.command("list")
def recipes_list(
    data: Annotated[str | None, typer.Option(help="Only those that train on this data set.")] = None,
    method: Annotated[str | None, typer.Option(help="Only those with this method.")] = None,
    cost: Annotated[
        str | None, typer.Option(help="cpu, gpu, or the largest number of CPU minutes, all stages included.")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """List the recipes and their rows."""
    show_rows(hyperproto.list_recipes(data=data, method=method, cost=cost), json_file)


@recipes_app.command("show")
def recipes_show(recipe: str, override: Overrides = None, trust: Trust = None, json_file: JsonFile = None) -> None:
    """Print a complete recipe as TOML, with its cost, the expected and the published result."""
    from hyperproto.reports.run_page import recipe_text
    from hyperproto.training import load_recipe

    checked = load_recipe(recipe, override, trust=trust)
    if json_file:
        write_json(checked.model_dump(mode="json"), json_file)
    if json_file != "-":
        echo(recipe_text(recipe, checked))


@methods_app.command("list")
def methods_list(json_file: JsonFile = None) -> None:
    """List the methods, their closed forms and their traits."""
    show_rows(hyperproto.list_methods(), json_file)


@data_app.command("list")
def data_list(json_file: JsonFile = None) -> None:
    """List the data sets."""
    show_rows(hyperproto.list_data(), json_file)


@data_app.command("check")
def data_check(spec: str, json_file: JsonFile = None) -> None:
    """Open every split of a data set and count its classes and items."""
    with progress_bar("check") as progress:
        rows = hyperproto.check_data(spec, progress)
    show_rows(rows, json_file)


@data_app.command("get")
def data_get(
    name: Annotated[str, typer.Argument(help="omniglot, cub, fewrel or intents.")],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Folder to put it in (default: NAME below $HYPERPROTO_DATA, or in the cache)."
        ),
    ] = None,
) -> None:
    """Download a data set from its official site and verify it; an interrupted download is resumed."""
    from hyperproto.data.get import get, spec

    with progress_bar(name) as bar:
        files = get(name, out, lambda done, total: bar(done // 1000, total // 1000, "kB"))
    for file in files:
        say(file.words())
    say(f"use it with: --data {shlex.quote(spec(name, out))}")


@data_app.command("distant")
@with_options(DistantOptions)
def data_distant(
    sentences: Annotated[Path, typer.Argument(help="JSON lines: tokens, and entities with id, start and end.")],
    triples: Annotated[Path, typer.Argument(help="Lines of head, relation and tail, separated by tabs.")],
    out: Annotated[Path, typer.Option(help="File to write, in FewRel's format.")],
    json_file: JsonFile = None,
    **settings: Unpack[DistantOptions],
) -> None:
    """Label sentences with linked entities by a file of triples: a corpus to pre-train on."""
    with progress_bar("label") as progress:
        corpus = hyperproto.distant_data(sentences, triples, out, progress=progress, **settings)
    rows = [[words, f"{count:,}"] for words, count in corpus.rows()]
    kept = [[relation, f"{count:,}"] for relation, count in corpus.kept.items()]
    tables = [TextTable(f"Written to {out}", ["", "number"], rows), TextTable("", ["relation", "instances"], kept)]
    show(tables, corpus.to_json(), json_file)
    if json_file != "-":
        say(f"use it with: --data {shlex.quote(f'fewrel:{out}')}")
