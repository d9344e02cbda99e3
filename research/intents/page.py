"""Write the results of the studies of intents as pages: transform `unit`, without times.

python -m research.intents.page results/intents
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hyperproto.files import atomic_write, read_json
from hyperproto.problems.base import Mark, best_of_draws

DIGITS = {"log_loss": 2, "brier": 3, "set_size": 1, "expected_set_size": 1}
SMALLER = ("fpr95", "ece", "log_loss", "brier")  # is better
UNRANKED = (
    *("coverage", "accepted", "set_size", "open_classes", "out_of_class_accepted", "too_few", "vacuous"),
    *("expected_rejected", "expected_set_size", "left_out_rejected", "outside_rejected"),
)
RULES = {  # columns of the table of rejection: the measure, and the estimate of it that the model gives
    "genuine texts rejected": ("genuine_rejected", "expected_genuine_rejected"),
    "out-of-class texts rejected": ("outside_rejected", "expected_outside_rejected"),
    "right among genuine texts answered": ("precision", "expected_precision"),
}
FOLDED = ("seconds", "fit_seconds", "predict_seconds", "macro_f1")  # measures that only the JSON files show
PAGES = {  # titles by file name
    "accuracy": "Accuracy",
    "unlabelled": "Class names and unlabelled texts",
    "pools": "Unlabelled texts of other kinds",
    "topics": "Sets of few classes",
    "calibration": "Calibration",
    "none-of-these": "None of these: out-of-class scores and rules of rejection",
    "coverage": "Empirical coverage",
    "vacuous": "Coverage of few examples",
}
TOPICS = ("trec", "agnews", "reviews")  # a page of their own in the study `evidence`
STUDIES = {  # pages of studies; others have their own page
    "constants": "accuracy",
    **dict.fromkeys(("outside", "left-out", "rejection"), "none-of-these"),
}
AUTO = ", auto"  # ends the names of methods of the study `evidence` measured with `refine="auto"`
RENAMED = {"knowledge": "evidence", "strangers": "out-of-class", "strangers_accepted": "out_of_class_accepted"}
FORMER = "hypersphere, extent", "least distance, the novelty of 0.2"  # name of a score in files, and on pages
REMOVED = (
    'Measured with `refine="auto"`, which has since been removed: methods whose name ends in ", auto". They are shown',
    "only where the closed form was not measured; the JSON files have all.",
)

Row = Mapping[str, Any]


def pages(folder: Path) -> dict[str, str]:
    """Return the pages by file name, made from the files intents-*.json of a folder."""
    sections: dict[str, list[str]] = {name: [] for name in PAGES}
    for file in sorted(folder.glob("intents-*.json")):
        content = read_json(file)
        sections[page_of(content)] += ["", *section(content, file.name)]
    return {name: "\n".join([*_head(PAGES[name]), *lines]) + "\n" for name, lines in sections.items() if lines}


def page_of(content: Row) -> str:
    """Return the name of the page that shows a file."""
    study = _study(content)
    if study != "evidence":
        return STUDIES.get(study, study)
    if content["data"] in TOPICS:
        return "topics"
    if content.get("pool", "all") != "all":
        return "pools"
    return "calibration" if "ece" in content["results"][0] else "unlabelled"


def _head(title: str) -> Iterator[str]:
    yield from (f"# Intents: {title}", "")
    yield "Frozen MiniLM, transform `unit`, all classes (unless a table has a column for their number) and all test"
    yield "texts at once; means over draws of the support, in % unless a measure has another unit. Bold: the best of a"
    yield "column, the paired 95 % interval over the draws against every other row excluding 0. Italic: tied for the"
    yield "best. The JSON files also have each draw, intervals, other transforms, times and the hashes of the supports."
    yield "Summary: [estimators.md](estimators.md). Made by `python -m research.intents.page results/intents`."
    if title in (PAGES["unlabelled"], PAGES["pools"]):
        yield from ("", *REMOVED)


def _study(content: Row) -> str:
    study = str(content["command"].split()[3])
    return RENAMED.get(study, study)


def section(content: Row, name: str) -> Iterator[str]:
    """Return the tables of one file: each measure, once for every `kind`."""
    yield f"## {content['data']}, {content['split']} split: {_study(content)}{_pool(content)}"
    yield ""
    rows = _rows(content)
    texts = content["texts"]["train" if content["split"] == "train" else "test"]
    yield f"[{name}]({name}): {content['classes']} classes, {texts:,} texts, {_draws(rows)}."
    if _study(content) == "rejection":
        yield from ("", *rejection_table(rows))
        return
    where = {"transform": "unit"} if "transform" in rows[0] else {}
    measures = dict.fromkeys(name for row in rows for name, value in row.items() if isinstance(value, dict))
    for kind in dict.fromkeys(row.get("kind") for row in rows):
        own = where if kind is None else {**where, "kind": kind}
        for measure in (measure for measure in measures if measure not in FOLDED):
            yield from ("", f"**{measure}**" + ("" if kind is None else f", {kind}"), "", *table(rows, measure, own))
    pairs = [_plain(row) for row in content.get("comparisons", []) if row.get("transform", "unit") == "unit"]
    if "reference" in content and _study(content) != "evidence":
        compared = [name for name, value in pairs[0].items() if isinstance(value, dict)]
        for measure in compared if _study(content) == "left-out" else compared[:1]:
            reference = content["reference"].replace(*FORMER)
            yield from ("", f"**{measure}**: {reference} minus the others, paired over draws", "")
            yield from table(pairs, measure, where, _difference)


def _rows(content: Row) -> list[Row]:
    """Return the rows that a page shows, with names of today."""
    there = {row["method"] for row in content["results"] if _study(content) == "evidence"}
    removed = {f"{method}{AUTO}" for method in there}
    rows = [row for row in content["results"] if row.get("transform", "unit") == "unit"]
    rows = [{RENAMED.get(key, key): row[key] for key in row} for row in rows if row.get("method") not in removed]
    return [_plain(row) for row in rows]


def _plain(row: Row) -> Row:
    return {name: value.replace(*FORMER) if isinstance(value, str) else value for name, value in row.items()}


def _pool(content: Row) -> str:
    pool = content.get("pool", "all")
    return "" if pool == "all" else f", pool `{RENAMED.get(pool, pool)}`"


def _draws(rows: Sequence[Row]) -> str:
    """Return the number of draws, and the methods that have fewer."""
    draws = [len(next(value for value in row.values() if isinstance(value, dict))["draws"]) for row in rows]
    names = [row.get("method", row.get("score", "")) for row in rows]
    fewer = sorted({f"{name}: {n}" for name, n in zip(names, draws, strict=True) if n < max(draws)})
    return f"{max(draws)} draws" + (f" ({'; '.join(fewer)})" if fewer else "")


def rejection_table(rows: Sequence[Row]) -> Iterator[str]:
    """Return what each rule of rejection does, with the model's own estimate in brackets."""
    yield f"| rule | shots | {' | '.join(f'{column} (expected)' for column in RULES)} |"
    yield f"| {' | '.join(['---'] * (2 + len(RULES)))} |"
    for rule in dict.fromkeys(row["rule"] for row in rows):
        for row in (row for row in rows if row["rule"] == rule):
            cells = [_with_estimate(row, measure, estimate) for measure, estimate in RULES.values()]
            yield f"| `{rule}` | {row['shots']} | {' | '.join(cells)} |"


def _with_estimate(row: Row, measure: str, estimate: str) -> str:
    """Return a cell of `rejection_table`; where nothing is answered in any draw there is no precision."""
    if measure not in row:
        return "-"
    half, draws = row[measure]["ci95"], len(row[measure]["draws"])
    text = _mean(row[measure], measure) + ("" if half is None else f" ± {_number(half, measure)}")
    text += f" ({_mean(row[estimate], estimate)})" if estimate in row else ""
    return text if draws == len(row["genuine_rejected"]["draws"]) else f"{text}, {draws} of the draws"


def table(rows: Sequence[Row], measure: str, where: Mapping[str, str], cell: Any = None) -> Iterator[str]:
    """Return one measure of the rows that have the values in `where`, with a column for each number of shots."""
    rows = [row for row in rows if measure in row and all(row[name] == value for name, value in where.items())]
    names = [name for name, value in rows[0].items() if isinstance(value, str) and name not in ("shots", *where)]
    shots = list(dict.fromkeys(row["shots"] for row in rows))
    found = {(*(row[name] for name in names), row["shots"]): row[measure] for row in rows}
    lines = [[*names, *map(_heading, shots)], ["---"] * (len(names) + len(shots))]
    marks = {} if measure in UNRANKED or cell is not None else _marks(found, shots, measure)
    for key in dict.fromkeys(key[:-1] for key in found):
        own = [(*key, shot) for shot in shots]
        cells = [(cell or _mean)(found[one], measure) if one in found else "-" for one in own]
        lines.append([*key, *(marked(text, marks.get(one, "")) for one, text in zip(own, cells, strict=True))])
    yield from (f"| {' | '.join(cells)} |" for cells in lines)


def marked(text: str, mark: Mark) -> str:
    """Put a cell in bold if it is the best, in italics if it is tied for the best."""
    around = {"best": "**", "tied": "*", "": ""}[mark]
    return f"{around}{text}{around}"


def accuracy_cells(content: Row, methods: Sequence[str], shots: Sequence[str]) -> list[str]:
    """Return for each method its accuracies at several shots in %, the best and ties of each shot marked."""
    found = {(row["method"], row["shots"]): row["accuracy"] for row in content["results"]}
    columns = []
    for shot in shots:
        own = [method for method in methods if (method, shot) in found]
        marks = best_of_draws([found[method, shot]["draws"] for method in own])
        texts = [
            marked(_number(found[method, shot]["mean"], "accuracy"), m) for method, m in zip(own, marks, strict=True)
        ]
        columns.append(dict(zip(own, texts, strict=True)))
    return [" / ".join(column.get(method, "-") for column in columns) for method in methods]


def _heading(shots: str) -> str:
    return shots if not shots.isdigit() else "1 shot" if shots == "1" else f"{shots} shots"


def _marks(found: Mapping[tuple[str, ...], Row], shots: Sequence[str], measure: str) -> dict[tuple[str, ...], Mark]:
    """Mark the best cells of each column, by the draws behind them."""
    sign = -1.0 if measure in SMALLER else 1.0
    marks: dict[tuple[str, ...], Mark] = {}
    for shot in shots:
        keys = [key for key in found if key[-1] == shot]
        values = [[sign * value for value in found[key]["draws"]] for key in keys]
        marks |= zip(keys, best_of_draws(values), strict=True)
    return marks


def _mean(value: Row, measure: str) -> str:
    return _number(value["mean"], measure)


def _difference(value: Row, measure: str) -> str:
    half = "" if value["ci95"] is None else f" ± {_number(value['ci95'], measure)}"
    return f"{'+' if value['difference'] > 0 else ''}{_number(value['difference'], measure)}{half}"


def _number(value: float, measure: str) -> str:
    digits = DIGITS.get(measure)  # None: in per cent
    return f"{100 * value:.1f}" if digits is None else f"{value:.{digits}f}"


if __name__ == "__main__":
    for name, text in pages(Path(sys.argv[1])).items():
        with atomic_write(Path(sys.argv[1], f"{name}.md")) as file:
            file.write(text.encode())
