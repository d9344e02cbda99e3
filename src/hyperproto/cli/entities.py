"""The command for named entities: a handful of annotated sentences to labels of raw text."""

from pathlib import Path
from typing import Annotated, Literal

import typer

import hyperproto
from hyperproto.cli.options import (
    OneEncoder,
    OneFit,
    OneMethod,
    OneOptions,
    OneRun,
    OneTransform,
    Trust,
    one_of,
    single_values,
)
from hyperproto.cli.streams import rows_output
from hyperproto.cli.terminal import say
from hyperproto.progress import progress_bar

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
    option: OneOptions = None,
    trust: Trust = None,
    form: Annotated[Literal["jsonl", "conll"], typer.Option("--format", help="jsonl or conll.")] = "jsonl",
    out: Annotated[Path | None, typer.Option(help="Write there (default: standard output).", dir_okay=False)] = None,
) -> None:
    """Find entities in raw text by the example of a few annotated sentences; --encoder minilm needs no training."""
    one = one_of(run, encoder)
    from hyperproto.files import atomic_write

    chosen = {**one, "method": method, "fit": fit, "transform": transform}
    with progress_bar("tag") as progress:
        tagged = hyperproto.tag(text, support, **chosen, options=single_values(option), trust=trust, progress=progress)
    content = "".join(line.to_json() if form == "jsonl" else line.to_conll() for line in tagged)
    if out is None:
        rows_output().write(content)
        return
    with atomic_write(out) as file:
        file.write(content.encode())
    entities = sum(len(list(line.entities())) for line in tagged)
    say(f"{out}: {len(tagged)} sentences, {entities} entities")
