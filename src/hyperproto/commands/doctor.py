"""`hyperproto diagnose`: what the class doctor finds in a saved model, to read, as JSON, or as a figure."""

from pathlib import Path

import typer

from hyperproto.commands.output import write_json
from hyperproto.errors import ConfigError
from hyperproto.estimators import load_classifier
from hyperproto.files import atomic_write

FIGURES = (".png", ".svg", ".pdf")


def diagnose(folder: Path, json_file: str | None, figure: Path | None) -> None:
    """Diagnose a saved classifier."""
    if figure is not None and figure.suffix.lower() not in FIGURES:
        raise ConfigError(f"{figure}: a figure is a file that ends in {', '.join(FIGURES)}")
    found = load_classifier(folder, check_encoder=False).diagnose()
    if figure is not None:
        drawn = found.figure()
        with atomic_write(figure) as file:
            drawn.savefig(file, format=figure.suffix[1:].lower(), dpi=150)
    if json_file:
        write_json(found.to_dict(), json_file)
    if json_file != "-":
        typer.echo(found.table())
