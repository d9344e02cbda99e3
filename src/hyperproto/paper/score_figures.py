"""Figures 3 and 8 of the paper: prototypes against HyperProto, and F1 against shots.

Published values come from the tables of the paper that the package holds (`recipes/table1.toml` to `table3.toml`); ours
from what `hyperproto report TABLE --json FILE` and `python -m research.entity_grid report` write.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hyperproto.paper.figure import (
    Drawing,
    FigureDefinition,
    NotGivenError,
    Numbers,
    Points,
    Request,
    Table,
    about,
    style,
)
from hyperproto.progress import Show
from hyperproto.recipes import read_table
from hyperproto.reports.pictures import BLUE, ORANGE, PURPLE, SKY, VERMILLION, plain

# Of each panel: its title, the table, and of each group of bars the published backbone and the columns.
PANELS: list[tuple[str, str, list[tuple[str, str]]]] = [
    ("Named entities: F1 on Few-NERD, BERT", "table1", [("BERT", "")]),
    ("Relations: accuracy on FewRel 1.0 and 2.0, BERT", "table2", [("BERT", "")]),
    ("Images: accuracy on miniImageNet", "table3", [("WideResNet-28-10", "WRN-28-10 "), ("ConvNet", "Conv4 ")]),
]
HIDDEN = {"table2": "on validation sets, as the test sets are hidden"}
PROTONET, HYPERPROTO = "ProtoNet, published", "HyperProto, published"
OURS, OURS_PAPER, OURS_BAYES = "ProtoNet, ours", "HyperProto (eq. 3), ours", "HyperProto (Bayes fit), ours"
COLOURS = {PROTONET: BLUE, HYPERPROTO: VERMILLION, OURS: SKY, OURS_PAPER: ORANGE, OURS_BAYES: PURPLE}
HATCHES = {OURS: "////", OURS_PAPER: "\\\\\\\\", OURS_BAYES: "...."}
Value = tuple[float, float | None]  # percent, and what follows its ±


def bar_numbers(reports: Mapping[str, Mapping[str, Any]]) -> Numbers:
    """Combine published and own values; `reports` holds the JSON of reports on tables, by the name of the table."""
    panels = []
    for title, name, groups in PANELS:
        table = read_table(name)
        series: dict[str, dict[str, Value]] = {}
        columns: list[str] = []
        runs: dict[str, str] = {}
        notes: list[str] = []
        for backbone, prefix in groups:
            own = [column.name for column in table.columns]
            columns += [prefix + column for column in own]
            for row in table.published:
                if (row.method, row.backbone) in (("ProtoNet", backbone), ("HyperProto", backbone)):
                    said = {prefix + c: (v[0], v[1] if len(v) > 1 else None) for c, v in row.numbers.items()}
                    series.setdefault(f"{row.method}, published", {}).update(said)
            for label, group, values in _ours(reports.get(name, {}), backbone):
                runs[f"{label}, {backbone}"] = group["label"]
                notes += [note for note in (group.get("note"), HIDDEN.get(name)) if note and note not in notes]
                series.setdefault(label, {}).update({prefix + column: value for column, value in values.items()})
        ordered = [label for label in COLOURS if label in series]
        panels.append(
            {
                "title": title,
                "metric": table.metric,
                "columns": columns,
                "series": {
                    label: {c: {"percent": v, "half": h} for c, (v, h) in series[label].items()} for label in ordered
                },
                "runs": runs,
                "note": f"Ours: {'; '.join(notes)}" if notes else "",
            }
        )
    return {"panels": panels, "bars": "published: as printed after ±; ours: 95 % interval over episodes"}


def _ours(report: Mapping[str, Any], backbone: str) -> Iterator[tuple[str, Any, dict[str, Value]]]:
    """Yield our series of a report for one backbone: label, runs, and percent by column; the first runs of each row."""
    for row in report.get("rows", []):
        method = row["published"]["method"]
        if row["published"]["backbone"] != backbone or method not in ("ProtoNet", "HyperProto") or not row["ours"]:
            continue
        group = row["ours"][0]
        wanted = {OURS: "protonet point"} if method == "ProtoNet" else {
            OURS_PAPER: "hyperproto paper", OURS_BAYES: "hyperproto bayes",
        }  # fmt: skip
        for label, start in wanted.items():
            for variant in group["results"]:
                if _method(variant).startswith(start):
                    yield label, group, {c: _percent(v) for c, v in variant["columns"].items()}
                    break


def _method(variant: Mapping[str, Any]) -> str:
    """Return the label of a result without what stands before it, as in "Bayes fit: hyperproto bayes none"."""
    return str(variant["label"]).rpartition(": ")[2]


def _percent(measured: Mapping[str, Any]) -> Value:
    value = measured["accuracy"] if "accuracy" in measured else measured["f1"]
    half = measured.get("ci95")
    if not 0 <= value <= 1 or (half is not None and not 0 <= half <= 1):
        raise ValueError(f"{value} ± {half} is not a share of 1")
    return round(100 * float(value), 2), None if half is None else round(100 * float(half), 2)


def draw_bars(numbers: Numbers) -> Drawing:
    """Draw a panel for each task, with a group of bars for each setting."""
    panels = numbers["panels"]
    figure = Figure(figsize=(11, 3.1 * len(panels)), layout="constrained")
    drawing = Drawing(figure)
    labels = [label for label in COLOURS if any(label in panel["series"] for panel in panels)]
    for axis, panel in zip(figure.subplots(len(panels), 1, squeeze=False)[:, 0], panels, strict=True):
        _bars(drawing, axis, panel, labels)
    handles = {
        label: handle for axis in figure.axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        [handles[label] for label in labels], labels, loc="outside upper center", ncols=5, fontsize=9, frameon=False
    )
    return drawing


def _bars(drawing: Drawing, axis: Axes, panel: Mapping[str, Any], labels: Sequence[str]) -> None:
    width = 0.84 / len(labels)
    here = {
        column: [label for label in labels if column in panel["series"].get(label, {})] for column in panel["columns"]
    }
    for label in labels:
        values = panel["series"].get(label, {})
        at = [(n, column) for n, column in enumerate(panel["columns"]) if column in values]
        if not at:
            continue
        x = np.array([n + (here[c].index(label) - (len(here[c]) - 1) / 2) * width for n, c in at])
        y = [values[column]["percent"] for _, column in at]
        half = [values[column]["half"] or 0.0 for _, column in at]
        look: dict[str, Any] = {
            "color": COLOURS[label],
            "hatch": HATCHES.get(label),
            "edgecolor": "white",
            "linewidth": 0,
        }
        bars = axis.bar(x, y, 0.94 * width, label=label, **look)
        errors = axis.errorbar(x, y, half, fmt="none", ecolor="#222222", elinewidth=0.9, capsize=1.6)
        series = drawing.belongs(label, [*bars.get_children(), *errors.get_children()])
        words = [_said(column, label, values[column], panel["metric"]) for _, column in at]
        spots = np.stack([x, np.array(y) / 2], axis=1)
        drawing.spots.append(Points(axis, spots, [drawing.tip(text) for text in words], series))
    style(axis)
    names = [re.sub(r" (?=\d+[-~]\S*shot)", "\n", column) for column in panel["columns"]]
    axis.set_xticks(range(len(names)), names, fontsize=8)
    axis.set_xlim(-0.6, len(names) - 0.4)
    axis.set_ylabel("F1, %" if panel["metric"] == "f1" else "accuracy, %", fontsize=9)
    axis.set_title(panel["title"], fontsize=9.5, loc="left", fontweight="bold")
    if panel["note"]:
        axis.set_xlabel(plain(panel["note"]), fontsize=8, color="#444444", loc="left")


def _said(column: str, label: str, value: Mapping[str, Any], metric: str) -> str:
    half = "" if value["half"] is None else f" ± {value['half']:.2f}"
    return f"{column}\n{label}: {'F1' if metric == 'f1' else 'accuracy'} {value['percent']:.2f}{half} %"


def bar_table(numbers: Numbers) -> Table:
    """Return head and rows: a row for each setting."""
    labels = [label for label in COLOURS if any(label in panel["series"] for panel in numbers["panels"])]
    rows = []
    for panel in numbers["panels"]:
        for column in panel["columns"]:
            cells = [panel["series"].get(label, {}).get(column) for label in labels]
            rows.append([f"{panel['title'].partition(':')[0]}: {column}", *(_cell(cell) for cell in cells)])
    return ["setting", *labels], rows


def _cell(value: Mapping[str, Any] | None) -> str:
    if value is None:
        return ""
    return f"{value['percent']:.2f}" + ("" if value["half"] is None else f" ± {value['half']:.2f}")


# F1 against shots -------------------------------------------------------------------------------------------------

METHODS = {  # method and closed form of a result: how its line is called, and looks
    ("protonet", "point"): ("ProtoNet", BLUE, "o"),
    ("nnshot", "point"): ("NNShot", "#666666", "s"),
    ("hyperproto", "paper"): ("HyperProto (eq. 3)", ORANGE, "^"),
    ("hyperproto", "bayes"): ("HyperProto (Bayes fit)", VERMILLION, "D"),
}
DECIDED = {"words": "each word for itself", "path": "best path of labels", "path, O": "best path, O known beforehand"}
SETTING = re.compile(r"(\d+)-way (\d+)(?:~\d+)?(?:-shot)?$")


def shot_numbers(content: Mapping[str, Any]) -> Numbers:
    """Read F1 by shots, 5-way: from an entity grid's report, or from `hyperproto report table1-shots`."""
    found: dict[tuple[str, str], dict[int, Value]] = {}
    for (way, shots), method, decided, value in _by_setting(content):
        if int(way) == 5:
            found.setdefault((decided, method), {})[int(shots)] = value
    columns = content.get("columns") or [{"data": content.get("data", "")}]
    spec = str(columns[0]["data"])
    lines = [
        {
            "method": method,
            "decided": decided,
            "points": [{"shots": shots, "f1": value, "half": half} for shots, (value, half) in sorted(line.items())],
        }
        for (decided, method), line in found.items()
    ]
    paper = "INTRA, BERT; a figure without numbers: HyperProto above ProtoNet at 10, 15 and 20 shots"
    part = "INTRA" if "setting=intra" in spec else "INTER"
    return {"data": spec, "part": part, "way": 5, "encoder": content.get("encoder"), "lines": lines, "paper": paper}


def _by_setting(content: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], str, str, Value]]:
    for row in content.get("results", []):
        match = SETTING.search(row["setting"])
        known = METHODS.get((row["method"], row["fit"]))
        if match and known and row["decided"] in DECIDED:
            yield (match[1], match[2]), known[0], row["decided"], _percent(row["toolkit"])
    for row in content.get("rows", []):
        for variant in (variant for group in row["ours"][:1] for variant in group["results"]):
            method, fit, *_ = *_method(variant).split(), "", ""
            known = METHODS.get((method, fit))
            for column, measured in variant["columns"].items():
                match = SETTING.search(column)
                if known and match:
                    yield (match[1], match[2]), known[0], "words", _percent(measured)


def draw_shots(numbers: Numbers) -> Drawing:
    """Draw a panel for each way of deciding, with a line for each method."""
    kinds = [kind for kind in DECIDED if any(line["decided"] == kind for line in numbers["lines"])]
    figure = Figure(figsize=(3.1 + 2.6 * len(kinds), 4.2), layout="constrained")
    drawing = Drawing(figure)
    panels = dict(zip(kinds, figure.subplots(1, len(kinds), sharey=True, squeeze=False)[0], strict=True))
    looks = {name: (number, colour, marker) for number, (name, colour, marker) in enumerate(METHODS.values())}
    for line in numbers["lines"]:
        axis = panels[line["decided"]]
        number, colour, marker = looks[line["method"]]
        x = np.array([point["shots"] for point in line["points"]]) + 0.28 * (number - 1.5)  # side by side
        y = [point["f1"] for point in line["points"]]
        halves = [point["half"] or 0.0 for point in line["points"]]
        look: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 5.5, "label": line["method"]}
        bars = axis.errorbar(x, y, halves, capsize=2.5, elinewidth=0.8, **look)
        series = drawing.belongs(line["method"], bars.get_children())
        what = f"{line['method']}, {DECIDED[line['decided']]}"
        words = [f"{what}\n{p['shots']} shots: F1 {p['f1']:.2f} ± {p['half'] or 0:.2f} %" for p in line["points"]]
        drawing.spots.append(Points(axis, np.stack([x, y], axis=1), [drawing.tip(text) for text in words], series))
    for kind, axis in panels.items():
        style(axis)
        axis.set_xticks(_all_shots(numbers))
        axis.set_xlabel("shots K (K~2K sampling)", fontsize=9)
        axis.set_title(DECIDED[kind], fontsize=9)
    panels[kinds[0]].set_ylabel("F1 of exact spans, %", fontsize=9)
    handles = {label: h for axis in figure.axes for h, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4, fontsize=9, frameon=False)
    title = f"Few-NERD {numbers['part']}, {numbers['way']}-way (the paper: INTRA); 95 % intervals over episodes"
    figure.suptitle(title, fontsize=10)
    return drawing


def _all_shots(numbers: Numbers) -> list[int]:
    return sorted({point["shots"] for line in numbers["lines"] for point in line["points"]})


def shot_table(numbers: Numbers) -> Table:
    """Return head and rows: a row for each line."""
    shots = _all_shots(numbers)
    rows = []
    for line in numbers["lines"]:
        by_shots = {p["shots"]: {"percent": p["f1"], "half": p["half"]} for p in line["points"]}
        rows.append([line["method"], DECIDED[line["decided"]], *(_cell(by_shots.get(k)) for k in shots)])
    return ["method", "how labels are decided", *(f"F1 at {k} shots, %" for k in shots)], rows


def _measure_bars(request: Request, show: Show) -> Numbers:
    tables = request.results.tables
    with about(", ".join(str(path) for path, _ in tables.values()) or None):
        return bar_numbers({name: content for name, (_, content) in tables.items()})


def _measure_shots(request: Request, show: Show) -> Numbers:
    given = [
        *request.results.shots,
        *([request.results.tables["table1-shots"]] if "table1-shots" in request.results.tables else []),
    ]
    for path, content in given:
        with about(str(path)):
            numbers = shot_numbers(content)
        if numbers["lines"]:
            return numbers
    raise NotGivenError(
        "fig8 is drawn from F1 at several shots, 5-way; name the file with --results. Make it with `python -m "
        "research.entity_grid report --ways 5 --shots 10 15 20 --run RUN --choices FILE --json FILE`"
    )


FIG3 = FigureDefinition(
    "Vanilla prototypes against HyperProto",
    "Published values are those of the paper's tables 1 to 3, with what they print after ±; for miniImageNet both "
    "WRN-28-10, whose average gain is the 3.45 points of the text, and Conv4. Ours have 95 % intervals over "
    "episodes. The text says 'at least 5 %' for entities; INTRA 10-way 1~2-shot gains 4.26.",
    _measure_bars,
    draw_bars,
    bar_table,
)
FIG8 = FigureDefinition(
    "F1 against shots",
    "Ours is on Few-NERD INTER with MiniLM; the paper's figure, which prints no numbers, is on INTRA with BERT. "
    "INTRA is not at hand.",
    _measure_shots,
    draw_shots,
    shot_table,
)
