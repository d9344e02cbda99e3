"""Commands for classifiers: fit to a file of examples, add, predict, diagnose and export."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import hyperproto
from hyperproto.cli.options import JsonFile, Trust
from hyperproto.cli.terminal import complain, echo, has_width, note, rows_output, say, width, write_json

if TYPE_CHECKING:
    from hyperproto import HypersphereClassifier

app = typer.Typer()

FIGURES = (".png", ".svg", ".pdf")
FORMATS = ("csv", "tsv", "jsonl", "parquet", "lines")
ON_ERROR = ("stop", "skip", "blank")
LONG = ("truncate", "windows", "typical")
REFINE = {"yes": True, "no": False, "auto": "auto"}  # "auto" is deprecated: as "no", with a warning


def _one_of(*choices: str, hidden: str = "") -> Callable[[str | None], str | None]:
    """Return a callback that refuses all values but the choices, of which `hidden` is not named."""

    def check(value: str | None) -> str | None:
        if value not in (None, *choices, hidden):
            raise typer.BadParameter(f"{value!r} is none of {', '.join(choices)}")
        return value

    return check


Model = Annotated[Path, typer.Argument(help="Folder of the model.", file_okay=False)]
Column = Annotated[
    str | None,
    typer.Option("--text", help="Column with the texts (default: text; paths of images: image; vectors: vector)."),
]
Label = Annotated[str, typer.Option(help="Column with the labels.")]
Format = Annotated[
    str | None,
    typer.Option(
        "--format", help=f"One of {', '.join(FORMATS)} (default: by the file's name).", callback=_one_of(*FORMATS)
    ),
]


@app.command()
def fit(
    examples: Annotated[str, typer.Argument(help="A table, - for standard input, or a folder of images by class.")],
    out: Annotated[Path, typer.Option(help="Folder for the model; an existing one is replaced.", file_okay=False)],
    text: Column = None,
    label: Label = "label",
    label_separator: Annotated[
        str | None, typer.Option(help="Text between labels of a cell, such as |: rows carry any number of labels.")
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(help="minilm, mpnet, a folder, a name on the hub; efficientnet-lite0; identity for vectors."),
    ] = None,
    coverage: Annotated[
        float | None,
        typer.Option(help="Share of items of the classes to accept, such as 0.95; the others are none of these."),
    ] = None,
    reject_rate: Annotated[
        float | None, typer.Option(help="Share of items of the classes to reject, such as 0.05, beside the others.")
    ] = None,
    precision: Annotated[
        float | None, typer.Option(help="Answer only where the answer is right with this probability, such as 0.95.")
    ] = None,
    outside: Annotated[
        str | None, typer.Option(help="Items of none of the classes: a table, or images. They tune what is rejected.")
    ] = None,
    region: Annotated[str | None, typer.Option(help="sphere, point, cone or gaussian.")] = None,
    fit_mode: Annotated[str | None, typer.Option(help="bayes, unbiased, paper or point.")] = None,
    feature_transform: Annotated[str | None, typer.Option(help="unit, center-unit or none.")] = None,
    reject_label: Annotated[str | None, typer.Option(help="Label of rejected items, none of these.")] = None,
    unlabelled: Annotated[
        str | None, typer.Option(help="More items, without a label: a table, or images. Used by the fit, not stored.")
    ] = None,
    descriptions: Annotated[
        str | None,
        typer.Option(help="For texts: a table of labels and descriptions (default: the labels, in words)."),
    ] = None,
    refine: Annotated[
        str | None,
        typer.Option(
            help="yes or no (default): go on with a softmax regression; slower.",
            callback=_one_of("yes", "no", hidden="auto"),
        ),
    ] = None,
    long: Annotated[
        str | None,
        typer.Option(help=f"Texts longer than the encoder reads: {', '.join(LONG)}.", callback=_one_of(*LONG)),
    ] = None,
    form: Format = None,
    trust: Trust = None,
) -> None:
    """Fit a classifier to labelled texts, images or vectors, and save it. One example a class is enough."""
    given: dict[str, Any] = {"coverage": coverage, "region": region, "fit_mode": fit_mode, "reject_label": reject_label}
    given |= {"long": long, "reject_rate": reject_rate, "precision": precision, "outside": outside}
    given |= {"feature_transform": feature_transform, "refine": None if refine is None else REFINE[refine]}
    settings = {name: value for name, value in given.items() if value is not None}
    settings |= {"unlabelled": unlabelled, "descriptions": descriptions, "trust": trust}
    settings |= {"label_separator": label_separator}
    shown = sys.stderr.isatty()
    found = hyperproto.fit(examples, out, encoder=encoder, text=text, label=label, format=form, bar=shown, **settings)
    _summarise(out, found)


@app.command()
def predict(
    model: Model,
    source: Annotated[str, typer.Argument(help="A table, images, or - for lines of standard input.")],
    text: Column = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write there, not to standard output: .csv, .tsv, .jsonl or .parquet, by the ending.", dir_okay=False
        ),
    ] = None,
    form: Format = None,
    batch: Annotated[int, typer.Option(min=1, help="Rows labelled at once; 1 labels each row on arrival.")] = 64,
    on_error: Annotated[
        str,
        typer.Option(
            metavar="stop|skip|blank",
            help="A row that cannot be labelled: stop there, skip it, or leave its label blank, with the reason in a "
            "column error.",
            callback=_one_of(*ON_ERROR),
        ),
    ] = "blank",
    explain: Annotated[bool, typer.Option("--explain", help="Add a column explanation: why this label.")] = False,
    safe_cells: Annotated[
        bool,
        typer.Option("--safe-cells", help="CSV, TSV: an apostrophe before cells that a spreadsheet would calculate."),
    ] = False,
    trust: Trust = None,
) -> None:
    """Label the rows of a table of any size: write the same rows with a label and its probability."""
    done = hyperproto.predict(
        model,
        source,
        out or rows_output(),
        text=text,
        format=form,
        batch=batch,
        on_error=on_error,
        explain=explain,
        safe_cells=safe_cells,
        trust=trust,
    )
    if done.failed:
        what = "were left out" if on_error == "skip" else "have no label, and their reasons in the column error"
        complain("warning", "bold yellow", "\n".join([f"{done.failed} of {done.rows} rows {what}:", *done.problems]))


@app.command()
def add(
    model: Model,
    examples: Annotated[str, typer.Argument(help="A table, - for standard input, or a folder of images by class.")],
    text: Column = None,
    label: Label = "label",
    new_classes: Annotated[
        bool, typer.Option("--new-classes", help="Accept labels that are not among the classes of the model.")
    ] = False,
    form: Format = None,
    trust: Trust = None,
) -> None:
    """Add examples to a model, as if they had been there from the start."""
    shown = sys.stderr.isatty()
    found = hyperproto.add(
        model, examples, text=text, label=label, new_classes=new_classes, format=form, bar=shown, trust=trust
    )
    _summarise(model, found)


def _summarise(folder: Path, model: "HypersphereClassifier") -> None:
    """Print the number of classes and examples of a model, and its expected accuracy."""
    counts = model.counts_
    least = counts.argmin()
    if isinstance(model, hyperproto.MultiLabelClassifier):
        say(f"{folder}: {len(counts)} labels, {counts[least]} examples of the rarest ({model.classes_[least]})")
        say(str(model.expected_))
        return
    say(
        f"{folder}: {len(counts)} classes, {counts.sum()} examples, "
        f"{counts[least]} in the smallest class ({model.classes_[least]})"
    )
    say(str(model.expected_))


@app.command()
def diagnose(
    model: Model,
    json_file: JsonFile = None,
    figure: Annotated[Path | None, typer.Option(help="Draw the classes: .png, .svg or .pdf.", dir_okay=False)] = None,
    fix: Annotated[
        Path | None,
        typer.Option(
            help="Write all examples there, with corrected labels, for `fit`: .csv, .tsv, .jsonl or .parquet.",
            dir_okay=False,
        ),
    ] = None,
) -> None:
    """Show which classes are small, wide or close to another, and which examples look wrong."""
    from hyperproto.api.advise import write_fixed
    from hyperproto.data.formats.table_output import output_format
    from hyperproto.files import atomic_write

    if figure is not None and figure.suffix.lower() not in FIGURES:
        raise hyperproto.ConfigError(f"{figure}: a figure is a file that ends in {', '.join(FIGURES)}")
    if fix is not None:
        output_format(fix, "csv")  # refuse a wrong ending before any work
    loaded = hyperproto.load_classifier(model, check_encoder=False)
    found = loaded.diagnose()
    if figure is not None:
        drawn = found.figure()
        with atomic_write(figure) as file:
            drawn.savefig(file, format=figure.suffix[1:].lower(), dpi=150)
    if json_file:
        write_json(found.to_dict(), json_file)
    if json_file != "-":
        echo(found.table(width() if has_width() else None))
    if fix is not None:
        fixed = write_fixed(loaded, found, fix)
        note(f"{fix}: {fixed.examples} examples, {fixed.relabelled} relabelled, {fixed.outlying} to check")


@app.command()
def export(
    model: Model,
    to: Annotated[
        Path | None,
        typer.Option(
            help="Folder for classifier, encoder and tokenizer (default: export, in the model).", file_okay=False
        ),
    ] = None,
    int8: Annotated[
        bool, typer.Option("--int8", help="Weights of the encoder in 8 bits: a quarter of the size, less exact.")
    ] = False,
    onnx: Annotated[
        Path | None, typer.Option(help="Write this file only: the classifier, without its encoder.", dir_okay=False)
    ] = None,
    trust: Trust = None,
) -> None:
    """Write a model for onnxruntime: `ExportedClassifier` in Python then answers without torch."""
    if onnx is not None:
        if to is not None or int8:
            raise typer.BadParameter("--onnx writes one file; leave out --to and --int8", param_hint="--onnx")
        hyperproto.load_classifier(model, check_encoder=False, trust=trust).export_onnx(onnx)
        say(str(onnx))
    else:
        say(str(hyperproto.export(model, to, int8=int8, trust=trust)))
