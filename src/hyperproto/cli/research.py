"""Commands for research: train methods, compare them on episodes, reproduce the paper's tables and figures."""

from collections.abc import Sized
from pathlib import Path
from typing import Annotated, Literal, Unpack

import typer
from rich.text import Text

import hyperproto
from hyperproto.cli.options import Data, JsonFile, Overrides, Trust, Workers, check_one_source, with_options
from hyperproto.cli.terminal import as_result, complain, note, rows_output, say, show, write_json
from hyperproto.files import atomic_write
from hyperproto.options import CompareOptions, EvaluateOptions, FigureOptions, ReproduceOptions, SelectionOptions
from hyperproto.progress import progress_bar

app = typer.Typer()
PICTURES = (".png", ".svg", ".pdf")


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for runs, report.html and report.json.")] = Path("runs/demo"),
    json_file: JsonFile = None,
) -> None:
    """Train ProtoNet and HyperProto on the built-in glyphs; compare them, and simple baselines, on unseen scripts."""
    from hyperproto.paper.demo import MARKS, run_demo

    with progress_bar("demo") as moved:
        report = run_demo(out, moved)
    written = f"{out / 'report.html'}, {out / 'report.json'}: written after {report.seconds:.0f} s"
    show([report.takeaway(), "", report.table(), MARKS, "", written], report.to_json(), json_file)


@app.command()
def train(
    recipe: Annotated[str, typer.Argument(help="NAME, NAME:ROW (see `recipes list`) or a path that ends in .toml.")],
    out: Annotated[Path | None, typer.Option(help="Folder of the run (default: runs/RECIPE).")] = None,
    override: Overrides = None,
    trust: Trust = None,
    json_file: JsonFile = None,
) -> None:
    """Train by a recipe. An interrupted run is resumed, with the same result."""
    with progress_bar("train") as progress:
        run = hyperproto.train(recipe, out, overrides=override or (), trust=trust, progress=progress)
    best = run.best_validation()
    metric = next(key for key in best if key not in ("step", "ci95"))
    if json_file:
        task = run.read_config()["recipe"]["validation"]
        write_json({"run": str(run.folder), "validation": task, **best}, json_file)
    if json_file != "-":
        value = f"{100 * best[metric]:.2f} ± {100 * best['ci95']:.2f} %"
        say(f"{run.folder}: best validation {metric} {value} at step {best['step']}")


@app.command()
@with_options(EvaluateOptions)
def evaluate(data: Data, json_file: JsonFile = None, **settings: Unpack[EvaluateOptions]) -> None:
    """Measure one method on episodes of unseen classes."""
    check_one_source(settings)
    with progress_bar("evaluate") as progress:
        result = hyperproto.evaluate(data, progress=progress, **settings)
    show(hyperproto.Comparison([[result]]).tables(), as_result(result.to_json()), json_file)


@app.command()
@with_options(CompareOptions)
def compare(
    data: Data,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", dir_okay=False, help="Draw the results over shots there: .png, .svg or .pdf."),
    ] = None,
    json_file: JsonFile = None,
    **settings: Unpack[CompareOptions],
) -> None:
    """Measure every combination that makes sense on the same episodes, with paired differences."""
    if not settings["run"] and not settings["encoder"]:
        raise typer.BadParameter("give at least one --run or --encoder", param_hint="--run")
    if plot is not None and plot.suffix not in PICTURES:
        raise typer.BadParameter(f"{plot}: a picture ends in {', '.join(PICTURES)}", param_hint="--plot")
    with progress_bar("compare") as progress:
        found = hyperproto.compare(data, progress=progress, **settings)
    if plot is not None:
        with atomic_write(plot) as file:
            found.curves().savefig(file, format=plot.suffix[1:], dpi=150)
    show(found.tables(), as_result(found.to_json()), json_file)


@app.command()
@with_options(SelectionOptions)
def tag(
    text: Annotated[str, typer.Argument(help="Plain text, a sentence a line; - for standard input.")],
    support: Annotated[
        str | None,
        typer.Option(help="Annotated sentences, FILE.conll (IO, BIO or BIOES); options as in FILE,scheme=io."),
    ] = None,
    model: Annotated[Path | None, typer.Option(help="A saved tagger, in place of --support.", file_okay=False)] = None,
    form: Annotated[Literal["jsonl", "conll"], typer.Option("--format", help="jsonl or conll.")] = "jsonl",
    out: Annotated[Path | None, typer.Option(help="Write there (default: standard output).", dir_okay=False)] = None,
    on_error: Annotated[
        Literal["stop", "skip", "blank"],
        typer.Option(help="A line that is not UTF-8: stop there, skip it, or write it without entities."),
    ] = "stop",
    **settings: Unpack[SelectionOptions],
) -> None:
    """Find entities in raw text, given a few annotated sentences; --encoder minilm needs no training."""
    if model is None:
        check_one_source(settings)
    with progress_bar("tag") as progress:
        tagged = hyperproto.tag(text, support, model=model, on_error=on_error, progress=progress, **settings)
    content = "".join(line.to_json() if form == "jsonl" else line.to_conll() for line in tagged)
    if out is None:
        rows_output().write(content)
        return
    with atomic_write(out) as file:
        file.write(content.encode())
    entities = sum(len(line.scores) for line in tagged)
    say(f"{out}: {len(tagged)} sentences, {entities} entities")


@app.command("fit-tagger")
@with_options(SelectionOptions)
def fit_tagger(
    support: Annotated[
        str, typer.Argument(help="Annotated sentences, FILE.conll (IO, BIO or BIOES); options as in FILE,scheme=io.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for the tagger; an existing one is replaced.", file_okay=False)],
    names: Annotated[bool, typer.Option("--names", help="Use the words of each type as one more example.")] = False,
    threshold: Annotated[float | None, typer.Option(help="Smallest score of an entity that is tagged.")] = None,
    reject_rate: Annotated[
        float | None, typer.Option(help="Share of right entities that may be lost by rejection, such as 0.05.")
    ] = None,
    **settings: Unpack[SelectionOptions],
) -> None:
    """Fit a tagger to annotated sentences and save it, for `tag TEXT --model FOLDER`."""
    check_one_source(settings)
    given = {"names": "auto" if names else None, "threshold": threshold, "reject_rate": reject_rate}
    with progress_bar("fit-tagger") as progress:
        found = hyperproto.fit_tagger(support, out, progress=progress, **given, **settings)  # type: ignore[arg-type]
    say(f"{out}: {len(found.sentences_)} sentences; types: {', '.join(found.classes_[1:])}")


@app.command()
@with_options(SelectionOptions)
def submit(
    test_input: Annotated[Path, typer.Argument(help="A hidden test set, such as FewRel's test_wiki_input-5-1.json.")],
    uncased: Annotated[bool, typer.Option("--uncased", help="Lower-case the words and strip their accents.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Where the answers go (default: pred-N-K.json).", dir_okay=False)
    ] = None,
    **settings: Unpack[SelectionOptions],
) -> None:
    """Answer a hidden test set of FewRel and write the answers to submit.

    The file is one JSON list of whole numbers, such as [2, 0, 4]: for each task of the input, in its order, the place
    (0 to N - 1) of the predicted class in meta_train.
    """
    check_one_source(settings)
    with progress_bar("submit") as progress:
        done = hyperproto.submit(test_input, out, uncased=uncased, progress=progress, **settings)
    say(f"{done.path}: {len(done.labels)} predictions")


@app.command()
def grid(
    recipe: Annotated[str, typer.Argument(help="NAME, NAME:ROW (see `recipes list`) or a path that ends in .toml.")],
    override: Annotated[
        list[str] | None,
        typer.Option(
            "-o",
            "--override",
            metavar="KEY=VALUE,VALUE",
            help="A setting and the values to try: training.seed=0,1,2. Commas inside [], {} or quotes are part of a "
            "value: validation.shot=[1,1,2,5].",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Folder of the grid (default: runs/RECIPE-grid).")
    ] = None,
    workers: Workers = None,
    trust: Trust = None,
    json_file: JsonFile = None,
) -> None:
    """Train every combination of settings, each in its own folder, and print a table, the best first.

    Finished runs are skipped and interrupted ones are resumed. Failed runs are listed at the end (exit code 1), and the
    other runs continue.
    """
    with progress_bar("grid") as progress:
        found = hyperproto.grid(
            recipe,
            override or (),
            out,
            workers=workers,
            trust=trust,
            progress=progress,
            on_run=lambda _, line: note(line),
        )
    words = [*found.sheet().notes, f"{found.folder / 'grid.json'}, {found.folder / 'grid.md'}: written"]
    show([found.table(), *map(Text, words)], as_result(found.to_json()), json_file)
    if found.failed:
        complain(
            "error",
            "bold red",
            f"{len(found.failed)} of {len(found.runs)} runs failed; the same command tries them again",
        )
        raise typer.Exit(1)


@app.command()
def report(
    table: Annotated[
        str,
        typer.Argument(help="table1, table1-shots, table2 to table5, or a .toml file that has a table section."),
    ],
    runs: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder with the runs, one or two levels below (default: runs, if there is one).",
        ),
    ] = None,
    episodes: Annotated[
        int | None, typer.Option(min=2, help="How many episodes a column (default: as many as the table says).")
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="markdown, latex, csv or html, written to --out, or printed (default: by the name of --out, or a "
            "table for the terminal).",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Write the table there; .tex, .csv and .html say how, else Markdown.", dir_okay=False),
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Print a table of the paper with, below each published row, the results of your runs on the same episodes.

    Rows that were not run name the recipe to train. Nothing is trained here: see train, and recipes list.
    """
    from hyperproto.paper.table import caption, text_table
    from hyperproto.reports.tables import checked_format, format_of

    if kind is not None:
        checked_format(kind)
    with progress_bar("report") as progress:
        made = hyperproto.report(table, runs, episodes=episodes, progress=progress)
    if out is not None:
        with atomic_write(out) as file:
            file.write(made.table_text(format_of(out, kind)).encode())
    if kind is not None and out is None:
        show([], as_result(made.to_json()), json_file)
        if json_file != "-":
            rows_output().write(made.table_text(kind))
    else:
        show([text_table(made), *map(Text, caption(made))], as_result(made.to_json()), json_file)


@app.command()
@with_options(ReproduceOptions)
def reproduce(
    table: Annotated[
        str,
        typer.Argument(help="table1, table1-shots, table2 to table5, or a .toml file that has a table section."),
    ],
    json_file: JsonFile = None,
    **settings: Unpack[ReproduceOptions],
) -> None:
    """Make a table of the paper: train its rows with several seeds, measure them in every column, write the table.

    Finished runs are kept; an interrupted command is resumed. Failed runs are listed at the end (exit code 1), and the
    other runs continue.
    """
    with progress_bar("reproduce") as progress:
        found = hyperproto.reproduce(table, progress=progress, on_run=lambda _, line: note(line), **settings)
    if found.report is None:
        show([found.plan_table(), *map(Text, found.plan_words())], found.to_json(), json_file)
        return
    from hyperproto.paper.table import caption, text_table

    written = ", ".join(map(str, found.files)) + ": written"
    words = [*map(Text, [*caption(found.report), written])]
    show([text_table(found.report), *words], as_result(found.to_json()), json_file)
    if found.failed:
        complain(
            "error",
            "bold red",
            f"{len(found.failed)} of {len(found.runs)} runs failed; the same command tries them again",
        )
        raise typer.Exit(1)


@app.command()
@with_options(FigureOptions)
def figure(
    name: Annotated[str, typer.Argument(help="fig1 to fig8, radius, memory; or all, which also writes a page.")],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for NAME.png, NAME.svg and NAME.json.")],
    **settings: Unpack[FigureOptions],
) -> None:
    """Draw a figure of the paper from runs or files of results, as PNG and SVG, with its numbers as JSON."""
    with progress_bar("figure") as progress:
        made = hyperproto.figure(name, out, progress=progress, **settings)
    for each in made:
        say(f"{each.name}: {each.title}: {', '.join(map(str, each.files))}")
    if name == "all":
        say(f"{out / 'index.html'}: a page with these {len(made)} figures, and a list of what the others need")


def _end_if_failed(failed: Sized, runs: Sized) -> None:
    """End a command with exit code 1 if runs failed."""
    if failed:
        complain("error", "bold red", f"{len(failed)} of {len(runs)} runs failed; the same command tries them again")
        raise typer.Exit(1)
