"""Every number of the study of intents as one page.

python -m research.intents.page results > results/intents.md
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from hyperproto.files import read_json
from hyperproto.problems.intervals import Mark, best_of_draws

SECONDS = {"seconds": 2, "fit_seconds": 3, "predict_seconds": 3}
DIGITS = {"log_loss": 2, "brier": 3, "set_size": 1, "expected_set_size": 1, **SECONDS}
SMALLER = ("fpr95", "ece", "log_loss", "brier", *SECONDS)  # is better
UNRANKED = (
    *("coverage", "accepted", "set_size", "open_classes", "strangers_accepted", "too_few", "vacuous"),
    *("expected_rejected", "expected_set_size", "left_out_rejected", "outside_rejected"),
)

Row = Mapping[str, Any]


def page(folder: Path) -> str:
    """All tables of the files intents-*.json in a folder."""
    lines = [
        "# Intents: every number",
        "",
        "Frozen MiniLM, all classes (unless a table has a column for their number) and all test texts at once; means",
        "over draws of the support. Bold: the best of a column, the paired 95 % interval over the draws against every",
        "other row leaving out 0. Italic: tied for the best, since such an interval holds 0. The files named hold each",
        "draw, intervals and the hashes of the supports. What it comes to: [estimators.md](estimators.md). Made by",
        "`python -m research.intents.page results > results/intents.md`.",
    ]
    for file in sorted(folder.glob("intents-*.json")):
        lines += ["", *section(file)]
    return "\n".join(lines) + "\n"


def section(file: Path) -> Iterator[str]:
    """The tables of one file: each measure, once for every value of what is no method."""
    content = read_json(file)
    rows = content["results"]
    draws = [len(next(value for value in row.values() if isinstance(value, dict))["draws"]) for row in rows]
    fewer = sorted({f"{row['method']}: {n}" for row, n in zip(rows, draws, strict=True) if n < max(draws)})
    said = f"{max(draws)} draws" + (f" ({'; '.join(fewer)})" if fewer else "")
    pool = f", pool `{content['pool']}`" if content.get("pool", "all") != "all" else ""
    yield f"## {content['data']}, {content['split']} split: {content['command'].split()[3]}{pool}"
    yield ""
    yield f"`{content['command']}`, {content['classes']} classes, {content['texts']['test']:,} texts, {said}."
    apart = [name for name in ("transform", "kind") if name in rows[0]]
    for values in product(*(dict.fromkeys(row[name] for row in rows) for name in apart)):
        where = dict(zip(apart, values, strict=True))
        named = "".join(f", {name} {value}" for name, value in where.items())
        for measure in dict.fromkeys(name for row in rows for name, value in row.items() if isinstance(value, dict)):
            yield from ("", f"**{measure}**{named}", "", *table(rows, measure, where))
    if "reference" in content:
        pairs = [row for row in content["comparisons"] if row.get("transform", "unit") == "unit"]
        measure = next(name for name, value in pairs[0].items() if isinstance(value, dict))
        yield from ("", f"**{measure}**: {content['reference']} less the others, transform unit, paired over draws", "")
        yield from table(pairs, measure, dict.fromkeys(apart, "unit"), _difference)


def table(rows: Sequence[Row], measure: str, where: Mapping[str, str], cell: Any = None) -> Iterator[str]:
    """One measure of the rows that have the values in `where`: a column for each kind of shots."""
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
    sys.stdout.write(page(Path(sys.argv[1])))
