"""The command for named entities: a handful of annotated sentences to labels of raw text."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from hyperproto.cli.options import MethodOptions, OneEncoder, OneFit, OneMethod, OneRun, OneTransform, as_list, one_of

app = typer.Typer()


@app.command()
def tag(
    text: Annotated[Path, typer.Argument(help="Plain text, a sentence a line.", dir_okay=False)],
    support: Annotated[
        str, typer.Option(help="Annotated sentences, FILE.conll (IO, BIO or BIOES); options as in FILE,scheme=io.")
    ],
    run: OneRun = None,
    encoder: OneEncoder = None,
    method: OneMethod = None,
    fit: OneFit = None,
    transform: OneTransform = None,
    option: MethodOptions = None,
    form: Annotated[Literal["jsonl", "conll"], typer.Option("--format", help="jsonl or conll.")] = "jsonl",
    out: Annotated[Path | None, typer.Option(help="Write there (default: standard output).", dir_okay=False)] = None,
) -> None:
    """Find entities in raw text by the example of a few annotated sentences; --encoder minilm needs no training."""
    one = one_of(run, encoder)
    from hyperproto.commands.evaluation import Selection
    from hyperproto.commands.tagging import tag_file

    chosen = Selection(*one, as_list(method), as_list(fit), as_list(transform), option or ())
    typer.echo(tag_file(chosen, support, text, out, form), nl=False)
