"""`hyperproto fit` and `hyperproto add`: examples to a model on disk, which changes whole or not at all."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hyperproto.commands.examples import read_examples
from hyperproto.errors import unknown_name
from hyperproto.estimators import HypersphereClassifier, load_classifier
from hyperproto.estimators.items import FewShotClassifier
from hyperproto.estimators.kinds import new_classifier


def fit(
    source: str,
    out: Path,
    encoder: str | None,
    settings: Mapping[str, Any],
    column: str | None,
    label: str,
    form: str | None,
) -> str:
    """Fit a classifier to a table, or to a folder of images, and save it; return a line about it."""
    model = new_classifier(encoder, Path(source).is_dir(), **settings)
    items, labels = read_examples(model, source, column, label, form)
    with _progress(model):
        model.fit(items, labels)
    model.save(out)
    return summary(out, model)


def add(folder: Path, source: str, column: str | None, label: str, form: str | None, new_classes: bool) -> str:
    """Add examples to a saved classifier; return a line about it."""
    model = load_classifier(folder)
    known = model.classes_.tolist()

    def check_label(given: str | int) -> None:
        if given not in known:
            named = unknown_name("class", str(given), map(str, known))
            raise ValueError(f"{named}; if it is to be a new class, say --new-classes")

    items, labels = read_examples(model, source, column, label, form, None if new_classes else check_label)
    with _progress(model):
        model.partial_fit(items, labels)
    model.save(folder)
    return summary(folder, model)


def summary(folder: Path, model: HypersphereClassifier) -> str:
    """How much the model knows."""
    counts = model.counts_
    least = counts.argmin()
    return (
        f"{folder}: {len(counts)} classes, {counts.sum()} examples, "
        f"{counts[least]} in the smallest class ({model.classes_[least]})"
    )


@contextmanager
def _progress(model: HypersphereClassifier) -> Iterator[None]:
    """Show a bar on a terminal."""
    if isinstance(model, FewShotClassifier):
        model.progress = sys.stderr.isatty()
        yield
        model.progress = False
    else:
        yield
