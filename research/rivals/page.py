"""Write rivals.md from the files rivals-*.json of a folder.

python -m research.rivals.page results/rivals
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hyperproto.files import atomic_write, read_json
from hyperproto.problems.base import best_of_draws
from research.intents.page import marked
from research.rivals.study import METHODS, NAMED, OURS_NAMED

GROUPS = {
    "examples only": [name for name in METHODS if NAMED not in name and OURS_NAMED not in name and name[:4] != "self"],
    "examples and class names": [
        *(name for name in METHODS if name.endswith(NAMED) and name[:4] != "self"),
        *(OURS_NAMED, f"{OURS_NAMED}, refined"),
    ],
    "examples and unlabelled texts, some with class names": [
        *(name for name in METHODS if name[:4] == "self"),
        *(f"{OURS_NAMED} + texts", f"{OURS_NAMED} + texts, refined"),
    ],
}
MEASURES = {  # heading, factor, digits, and 1 if larger is better, -1 if smaller
    "accuracy": ("accuracy, %", 100, 1, 1),
    "auroc": ("AUROC, own score", 100, 1, 1),
    "auroc_confidence": ("AUROC, confidence", 100, 1, 1),
    "ece": ("calibration error, %", 100, 1, -1),
    "lost": ("old classes after growth, points", 100, 1, 1),
    "fit_seconds": ("fit, s", 1, 2, 0),
    "predict_seconds": ("1,000 answers, s", 1, 2, 0),
}
HEAD = """# Other packages beside ours

Frozen MiniLM; the same texts, vectors and supports for all, 1 / 5 / 20 examples a class; means over draws. Bold: the
best of its column and table, the paired 95 % interval over draws against every other row excluding 0. Italic: tied for
the best. Rows with fewer draws are not ranked. The JSON files have each draw, intervals, versions and hashes.

- **AUROC**: a quarter of the classes is left out of the fit; test texts of these classes against the others, by the
  method's own out-of-class score (`novelty`, `ood_score`, similarity) and by 1 - confidence.
- **calibration error** of the likeliest class, 15 bins. Similarities of `semantic-router` are no probabilities.
- **old classes after growth**: the left-out quarter is added by the method's own update. Accuracy on test texts of the
  old classes, minus that of a fit to all examples at once. `-`: there is no update.
- **seconds** of CPU, one thread, without the encoder, which is the same for all except SetFit (trains its own).
- Settings: the packages' defaults, `use_onnx=False`. Chosen on HWU64's valid texts: C of logistic regression, by
  shots; `sum`, the best of three aggregations of `semantic-router`. "Name as example": a class's name is one more
  example of it.

Packages run in interpreters of their own: `python -m research.rivals --help`. Made by `python -m research.rivals.page
results/rivals`.
"""

Row = Mapping[str, Any]


def page(folder: Path) -> str:
    """Return the page of the files rivals-*.json of a folder."""
    lines = [HEAD]
    for file in sorted(folder.glob("rivals-*.json")):
        lines += [*section(read_json(file), file.name)]
    return "\n".join(lines) + "\n"


def section(content: Row, name: str) -> Iterator[str]:
    """Yield the tables of one file: one for each group of methods."""
    found = {(row["method"], row["shots"]): _with_lost(row) for row in content["results"]}
    shots = list(dict.fromkeys(shot for _, shot in found))
    encoder = f"; encoder {content['encode_seconds']:.1f} s for 1,000 texts" if content.get("encode_seconds") else ""
    yield f"## {content['data']}"
    yield ""
    yield f"[{name}]({name}): {content['classes']} classes, {content['texts']['test']:,} test texts{encoder}."
    for group, methods in GROUPS.items():
        there = [method for method in methods if any((method, shot) in found for shot in shots)]
        if not there:
            continue
        titles = [title for title, *_ in MEASURES.values()]
        yield from ("", f"| {group} | draws | {' | '.join(titles)} |", f"| --- {'| --- ' * (len(titles) + 1)}|")
        columns = [cells(found, there, shots, measure) for measure in MEASURES]
        for place, method in enumerate(there):
            numbers = [
                len(found[method, shot]["accuracy"]["draws"]) if (method, shot) in found else 0 for shot in shots
            ]
            draws = str(numbers[0]) if len(set(numbers)) == 1 else " / ".join(map(str, numbers))
            yield f"| {method} | {draws} | {' | '.join(column[place] for column in columns)} |"
    yield ""


def cells(
    found: Mapping[tuple[str, str], Row], methods: Sequence[str], shots: Sequence[str], measure: str
) -> list[str]:
    """Return for each method its means by shots; the best and ties among rows with the most draws are marked."""
    _, factor, digits, better = MEASURES[measure]
    texts: dict[str, list[str]] = {method: [] for method in methods}
    for shot in shots:
        own = {name: found[name, shot][measure] for name in methods if measure in found.get((name, shot), {})}
        most = max((len(value["draws"]) for value in own.values()), default=0)
        ranked = [name for name, value in own.items() if better and len(value["draws"]) == most]
        values = [[better * one for one in own[name]["draws"]] for name in ranked]
        marks = dict(zip(ranked, best_of_draws(values) if values else [], strict=True))
        for method in methods:
            text = f"{factor * own[method]['mean']:.{digits}f}" if method in own else "-"
            texts[method].append(marked(text, marks.get(method, "")))
    return [" / ".join(own) if set(own) != {"-"} else "-" for own in texts.values()]


def _with_lost(row: Row) -> Row:
    """Add the change of accuracy on old classes by adding the others."""
    if "old_after" not in row:
        return row
    draws = [a - b for a, b in zip(row["old_after"]["draws"], row["old_joint"]["draws"], strict=True)]
    return {**row, "lost": {"mean": sum(draws) / len(draws), "draws": draws}}


if __name__ == "__main__":
    with atomic_write(Path(sys.argv[1], "rivals.md")) as file:
        file.write(page(Path(sys.argv[1])).encode())
