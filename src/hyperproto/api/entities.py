"""Find entities in plain text, by a few annotated sentences or by a saved tagger."""

import sys
from collections.abc import Iterable, Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from hyperproto.api.research import one_selection
from hyperproto.errors import ConfigError, DataError, unknown_name
from hyperproto.options import SelectionOptions, complete, documented
from hyperproto.progress import Show, noted
from hyperproto.registry import trust as trust_files

if TYPE_CHECKING:
    from hyperproto.data.formats.tagged import Line, TaggedLine
    from hyperproto.estimators import EntityTagger

ON_ERROR = ("stop", "skip", "blank")


@documented(SelectionOptions)
def tag(
    text: str | PathLike[str] | Iterable[str],
    support: str | PathLike[str] | None = None,
    *,
    model: str | PathLike[str] | None = None,
    on_error: str = "stop",
    progress: Show | None = None,
    **settings: Unpack[SelectionOptions],
) -> "list[TaggedLine]":
    """Find entities in raw text, given a few annotated sentences; `encoder="minilm"` needs no training.

    Parameters
    ----------
    text : the path of a file of plain text, a sentence a line; "-" for standard input; or a list of sentences.
    support : a file of annotated sentences (IO, BIO or BIOES), with options as in `FILE,scheme=io`.
    model : the folder of a saved tagger, in place of `support` and settings: see `fit_tagger`.
    on_error : for a line that is not UTF-8. "stop": an error. "skip": it is left out. "blank": it has no entities, and
        the reason in `line.problem`.
    settings : see `SelectionOptions`; with `support`, one of `run` and `encoder` is needed. Without `method` and
        `transform` the ones that are best on words without training are taken.

    Returns
    -------
    For each line that has words: `labels`, `entities()`, `to_json()`, `to_conll()`.

    Examples
    --------
    >>> lines = tag(["Anna lives in Rome."], "few.conll", encoder="minilm")  # doctest: +SKIP
    >>> [(entity["type"], entity["text"]) for entity in lines[0].entities()]  # doctest: +SKIP
    [('person', 'Anna'), ('city', 'Rome')]
    """
    from hyperproto.data.formats.tagged import TaggedLine
    from hyperproto.estimators import EntityTagger

    if on_error not in ON_ERROR:
        raise ConfigError(f"--on-error: {unknown_name('way', str(on_error), ON_ERROR)}")
    if (support is None) == (model is None):
        raise ConfigError("give one of --support (annotated sentences) and --model (a saved tagger)")
    options = complete(SelectionOptions, settings)
    if model is not None:
        if given := [name for name, value in options.items() if value is not None and name != "trust"]:
            raise ConfigError(f"--model {fspath(model)}: a saved tagger has its own {given[0]}; leave the option out")
        trust_files(options["trust"])
    lines = _lines(text, on_error)
    if model is not None:
        tagger = EntityTagger.load(model, trust=options["trust"])
    else:
        assert support is not None
        tagger = fit_tagger(support, **settings)
    read = [line for line in lines if line.spans]
    found = iter(tagger.spans([line.words for line in read], progress=noted(progress, "sentences encoded")))
    spans = [next(found) if line.spans else [] for line in lines]
    rows = ([(span.type, span.first, span.last, span.score) for span in each] for each in spans)
    return [TaggedLine.of(*pair) for pair in zip(lines, rows, strict=True)]


@documented(SelectionOptions)
def fit_tagger(
    support: str | PathLike[str],
    out: str | PathLike[str] | None = None,
    *,
    names: Mapping[str, str] | str | None = None,
    threshold: float | None = None,
    reject_rate: float | None = None,
    progress: Show | None = None,
    **settings: Unpack[SelectionOptions],
) -> "EntityTagger":
    """Fit an `EntityTagger` to a file of annotated sentences, and save it for `tag(text, model=out)`.

    Parameters
    ----------
    support : a file of annotated sentences (IO, BIO or BIOES), with options as in `FILE,scheme=io`.
    out : folder for the tagger; an existing one is replaced. None: it is not saved.
    names, threshold, reject_rate : as `EntityTagger` takes them.
    settings : see `SelectionOptions`; one of `run` and `encoder` is needed.

    Examples
    --------
    >>> fit_tagger("few.conll", "tagger", encoder="minilm").classes_  # doctest: +SKIP
    ['O', 'city', 'person']
    """
    from hyperproto.data import open_pool
    from hyperproto.data.formats.tagged import labels_of_sentences
    from hyperproto.estimators import EntityTagger
    from hyperproto.training import Run

    chosen = one_selection(options := complete(SelectionOptions, settings))
    examples = open_pool(f"conll:{fspath(support)}", "all")
    for folder in chosen.runs:
        Run(folder).read_config()  # refuses a folder without a run
    tagger = EntityTagger(
        encoder=[*chosen.runs, *chosen.encoders][0],
        method=options["method"],
        fit_mode=options["fit"],
        feature_transform=options["transform"],
        options={key: value for key, [value] in chosen.options.items()} or None,
        scheme="io",
        names=names,
        threshold=threshold,
        reject_rate=reject_rate,
    )
    show = None if progress is None else noted(progress, "sentences encoded")
    tagger.fit(examples.items, labels_of_sentences(examples), progress=show)
    if out is not None:
        tagger.save(out)
    return tagger


def _lines(text: str | PathLike[str] | Iterable[str], on_error: str) -> "list[Line]":
    """Return the lines that have words and, for "blank", those that cannot be read."""
    from hyperproto.data.formats.tagged import cut_lines, cut_text, read_plain

    if not isinstance(text, str | PathLike):
        return cut_lines(text, "the text")
    if fspath(text) == "-":
        if sys.stdin is None:
            raise DataError("standard input is closed; name a file")
        lines = cut_text(sys.stdin.buffer.read(), "standard input", on_error != "stop")
    else:
        lines = read_plain(Path(text), on_error != "stop")
    return [line for line in lines if line.problem is None or on_error == "blank"]
