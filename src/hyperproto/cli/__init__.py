"""The command line: thin. Exit codes: 0; 1 for a mistake that the user can mend; 2 for wrong usage."""

import sys
import warnings
from typing import Annotated, Any

import typer

from hyperproto import __version__
from hyperproto.allocator import keep_large_blocks
from hyperproto.cli import entities, lists, practice, research
from hyperproto.cli.terminal import complain
from hyperproto.errors import HyperProtoError

app = typer.Typer(
    help="Few-shot learning in which a class is a region of embedding space, not a point.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(practice.app)
app.add_typer(entities.app)
app.add_typer(research.app)
app.add_typer(lists.recipes_app, name="recipes")
app.add_typer(lists.methods_app, name="methods")
app.add_typer(lists.data_app, name="data")

EXTRAS = {
    "torch": "train", "PIL": "images", "pooch": "images", "requests": "images",
    "matplotlib": "plots", "transformers": "text", "pyarrow": "glove",
}  # fmt: skip


def main() -> None:
    """Run the command line; print a user's mistake as one paragraph, without a traceback (`--debug` shows it)."""
    keep_large_blocks()
    warnings.showwarning = _warn  # type: ignore[assignment] # where it comes from is of no use here
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


def _warn(message: Warning | str, *_: Any) -> None:
    complain("warning", "bold yellow", str(message))


def _fail(message: str) -> None:
    complain("error", "bold red", message)
    sys.exit(1)
