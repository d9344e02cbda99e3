"""Every number of the study of intents as one page.

python -m hyperproto.reports.intents_page results > results/intents.md
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

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
        "over draws of the support, the best of a column in bold. The files named hold each draw, intervals and the",
        "hashes of the supports. What it comes to: [estimators.md](estimators.md). Made by",
        "`python -m hyperproto.reports.intents_page results > results/intents.md`.",
    ]
    for file in sorted(folder.glob("intents-*.json")):
        lines += ["", *section(file)]
    return "\n".join(lines) + "\n"


def section(file: Path) -> Iterator[str]:
    """The tables of one file: each measure, once for every value of what is no method."""
    content = json.loads(file.read_text())
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
    best = {shot: _best([value for key, value in found.items() if key[-1] == shot], measure) for shot in shots}
    for key in dict.fromkeys(key[:-1] for key in found):
        values = [(found.get((*key, shot)), best[shot]) for shot in shots]
        lines.append([*key, *("-" if value is None else (cell or _mean)(value, measure, top) for value, top in values)])
    yield from (f"| {' | '.join(cells)} |" for cells in lines)


def _heading(shots: str) -> str:
    return shots if not shots.isdigit() else "1 shot" if shots == "1" else f"{shots} shots"


def _best(values: Sequence[Row], measure: str) -> float | None:
    if measure in UNRANKED or "mean" not in values[0]:
        return None
    means = [value["mean"] for value in values]
    return float(min(means) if measure in SMALLER else max(means))


def _mean(value: Row, measure: str, best: float | None) -> str:
    text = _number(value["mean"], measure)
    return f"**{text}**" if best is not None and text == _number(best, measure) else text


def _difference(value: Row, measure: str, best: float | None) -> str:
    half = "" if value["ci95"] is None else f" ± {_number(value['ci95'], measure)}"
    return f"{'+' if value['difference'] > 0 else ''}{_number(value['difference'], measure)}{half}"


def _number(value: float, measure: str) -> str:
    digits = DIGITS.get(measure)  # None: in per cent
    return f"{100 * value:.1f}" if digits is None else f"{value:.{digits}f}"


if __name__ == "__main__":
    sys.stdout.write(page(Path(sys.argv[1])))
