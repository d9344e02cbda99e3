"""All commands in one program, and the options that stand before them."""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from hyperproto import __version__
from hyperproto.cli import lists, practice, research
from hyperproto.cli.terminal import echo
from hyperproto.errors import DataError


class _Commands(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except EOFError as error:  # typer would take it for the end of standard input, and print "Aborted."
            raise DataError(f"a file ended too early ({error}); is it whole? --debug shows which one") from error


app = typer.Typer(
    cls=_Commands,
    help="Few-shot learning in which a class is a region of embedding space, not a point.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(practice.app)
app.add_typer(research.app)
app.add_typer(lists.recipes_app, name="recipes")
app.add_typer(lists.methods_app, name="methods")
app.add_typer(lists.data_app, name="data")


def _print_version(wanted: bool) -> None:
    if wanted:
        echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Take the options that come before a command; `main` has already acted on `--debug`."""
