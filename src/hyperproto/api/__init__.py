"""Typed functions for everything that the command line does, with the same words; they print nothing.

    train(recipe) -> Run                            compare(data, run | encoder, ...) -> Comparison
    evaluate(data, run | encoder, ...) -> Result    tag(text, support, ...) -> list[TaggedLine]
    fit_tagger(support, out, ...) -> EntityTagger   report(table) -> TableReport
    submit(test_input, ...) -> Submission           reproduce(table) -> Reproduction
    figure(name, out, ...) -> list[PaperFigure]
    grid(recipe, settings) -> GridReport            distant_data(sentences, triples, out) -> DistantCorpus
    list_recipes(), list_methods(), list_data(), check_data(spec) -> list[dict]

`hyperproto.fit`, `add`, `predict` and `suggest` work on files of examples: see `hyperproto.api.files` and `.advise`.

`progress` is a function `(done, total, note)` that is called during long work. Errors are `HyperProtoError`s; an option
that a message names (`--shot`) is the argument of that name. `trust` names .py files that a run, a recipe or a model
may import (`FILE.py:CLASS`). Files that you name yourself, as a method or in `overrides`, are trusted until the process
ends: see SECURITY.md. Torch is imported by the functions that need it, not by this package.
"""

from hyperproto.api.entities import fit_tagger, tag
from hyperproto.api.lists import check_data, distant_data, list_data, list_methods, list_recipes
from hyperproto.api.paper import figure, grid, report, reproduce
from hyperproto.api.research import Submission, compare, evaluate, submit, train

__all__ = [
    "Submission",
    "check_data",
    "compare",
    "distant_data",
    "evaluate",
    "figure",
    "fit_tagger",
    "grid",
    "list_data",
    "list_methods",
    "list_recipes",
    "report",
    "reproduce",
    "submit",
    "tag",
    "train",
]
