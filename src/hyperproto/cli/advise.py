"""Commands that advise about new items: what to label next, and whether they have drifted."""

import sys
from pathlib import Path
from typing import Annotated

import typer

import hyperproto
from hyperproto.cli.options import JsonFile, Trust
from hyperproto.cli.practice import Column, Format, Model
from hyperproto.cli.terminal import complain, echo, has_width, note, rows_output, width, write_json

app = typer.Typer()


@app.command()
def suggest(
    model: Model,
    pool: Annotated[str, typer.Argument(help="A table, images, or - for lines of standard input.")],
    number: Annotated[int, typer.Option("-n", "--number", min=1, help="Rows to suggest.")] = 20,
    text: Column = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write there, not to standard output: .csv, .tsv, .jsonl or .parquet, by the ending.", dir_okay=False
        ),
    ] = None,
    form: Format = None,
    safe_cells: Annotated[
        bool,
        typer.Option("--safe-cells", help="CSV, TSV: an apostrophe before cells that a spreadsheet would calculate."),
    ] = False,
    trust: Trust = None,
) -> None:
    """Write the rows that are worth labelling next, the most useful first, each with a score and a reason."""
    shown = sys.stderr.isatty()
    settings = {"text": text, "format": form, "safe_cells": safe_cells, "bar": shown, "trust": trust}
    found = hyperproto.suggest(model, pool, out or rows_output(), n=number, **settings)  # type: ignore[arg-type]
    if found.failed:
        what = f"{found.failed} of {found.rows} rows cannot be read and were left out:"
        complain("warning", "bold yellow", "\n".join([what, *found.problems]))
    enough = [each.enough for each in found.suggestions]
    if enough[0]:
        note("more labels from this pool are expected to change little")
    elif enough[-1]:
        note(f"after {enough.index(True)} labels more are expected to change little")


@app.command()
def drift(
    model: Model,
    new: Annotated[str, typer.Argument(help="New items without labels: a table, images, or vectors.")],
    reference: Annotated[
        str | None,
        typer.Option(help="Items of the time of the fit to compare with (default: what the model was fitted to)."),
    ] = None,
    text: Column = None,
    json_file: JsonFile = None,
    trust: Trust = None,
) -> None:
    """Test whether new items differ from those of the fit, and show the items that explain it."""
    from hyperproto.api.examples import read_items

    loaded = hyperproto.load_classifier(model, trust=trust)
    items = read_items(loaded, new, text)
    before = None if reference is None else read_items(loaded, reference, text)
    found = loaded.drift(items, before)
    if json_file:
        write_json(found.to_dict(), json_file)
    if json_file != "-":
        echo(found.table(width() if has_width() else None))
