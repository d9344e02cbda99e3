"""Tables of the paper with every number of ours in `results`, also those whose runs are no longer on disk.

    python -m research.stored_table table2

writes table2.md and table2.json in results/tables, in the form of `hyperproto report`. Four kinds of files are read:
those of `compare` (rows that name a run), of `report` and `reproduce` (tables), of a leaderboard (rows that name a
track), and of an entity grid (rows that name a setting). A row stands below the published one that its recipe
reproduces, by its own method and by our Bayes fit. Another method on its vectors stands below its own published row.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hyperproto.files import atomic_write, read_json
from hyperproto.recipes import PaperTable, Recipe, builtin_recipes, read_rows, read_table, run_name
from hyperproto.training import load_recipe

FILES = {  # of several numbers for one cell the first counts; the first rows are those that figure 3 shows
    "table1": [
        *("fewnerd-mpnet-hyperproto", "fewnerd-mpnet-hyperproto-10way", "reproduce-table1"),
        "reproduce-table1-variants",
    ],
    "table2": [
        *("fewrel-mpnet-val_wiki", "fewrel-mpnet-val_wiki-10way", "fewrel-mpnet-val_pubmed"),
        *("fewrel-mpnet-entities-val_wiki", "fewrel-mpnet-entities-val_wiki-10way", "fewrel-mpnet-entities-val_pubmed"),
        "fewrel-report-table2",
        *("reproduce-table2", "table2-cnn-val_wiki", "table2-cnn-val_wiki-10way", "table2-cnn-val_pubmed"),
        *("table2-cnn-val_pubmed-10way", "leaderboard-relations"),
    ],
    "table5": ["cub-signed-runs", "cub-runs"],
}
SPLITS = {("fewrel", "val"): ("val", "val_wiki"), ("fewrel2", "test"): ("val_pubmed",)}  # others: their own
TRACKS = {"cnn": "fewrel-cnn", "minilm": "fewrel-minilm"}  # recipe files of a leaderboard's tracks
METHODS = {  # published rows of methods that were scored on another method's run
    "protonet": "ProtoNet",
    "simpleshot": "SimpleShot",
    "hyperproto": "HyperProto",
    "nnshot": "NNShot",
    "structshot": "StructShot",
}
SHOWN = {"hyperproto": ("paper", "bayes")}  # closed forms; of other methods all
DECIDED = "path, O"  # in entity grids
FEW = 1000  # cells of fewer episodes say how many

Cell = dict[str, Any]


@dataclass(frozen=True)
class Measured:
    """A number on file, with its place in the table: published row, run, closed form, column."""

    method: str
    backbone: str
    run: str
    note: str
    scored_by: str
    column: str
    cell: Cell


def stored_table(name: str, folder: Path) -> dict[str, Any]:
    """Return a table in the form that `hyperproto report` writes, made from the files of `results`."""
    table = read_table(name)
    groups: dict[tuple[str, str], dict[str, dict[str, dict[str, Cell]]]] = {}
    notes = {}
    for file in FILES[name]:
        [path] = folder.glob(f"*/{file}.json")
        for each in _on_file(table, read_json(path)):
            runs = groups.setdefault((each.method, each.backbone), {})
            own = runs.setdefault(each.run, {}).setdefault(each.scored_by, {})
            own.setdefault(each.column, {**each.cell, "file": f"{file}.json"})
            notes[each.run] = each.note
    rows = []
    for published in table.published:
        runs = groups.get((published.method, published.backbone), {})
        ours = [
            {
                "label": run,
                "recipe": run.partition(",")[0],
                "note": notes[run],
                "results": [{"label": scored_by, "columns": cells} for scored_by, cells in results.items()],
            }
            for run, results in runs.items()
        ]
        printed: dict[str, Any] = {"method": published.method, "backbone": published.backbone}
        printed |= {"note": published.note, "percent": published.numbers}
        rows.append({"published": printed, "ours": ours})
    return {
        "command": f"python -m research.stored_table {name}",
        "table": name,
        "title": table.title,
        "metric": table.metric,
        "notes": table.notes,
        "columns": [column.name for column in table.columns],
        "rows": rows,
    }


def page(content: Mapping[str, Any]) -> str:
    """Return a stored table in Markdown, published rows in bold, ours beneath."""
    columns, metric = content["columns"], content["metric"]
    lines = [["row", "scored by", *columns, "files"], ["---"] * (3 + len(columns))]
    notes = {}
    for row in content["rows"]:
        published = row["published"]
        numbers = [_printed(published["percent"].get(column)) for column in columns]
        cells = [published["method"], published["backbone"], *numbers, "the paper"]
        lines.append([f"**{cell}**" if cell else "" for cell in cells])
        notes[f"{published['method']}, {published['backbone']}"] = published["note"]
        for group in row["ours"]:
            notes[group["label"]] = group["note"]
            for result in group["results"]:
                own = result["columns"]
                files = ", ".join(dict.fromkeys(cell["file"] for cell in own.values()))
                texts = [_percent(own[column], metric) if column in own else "" for column in columns]
                lines.append([group["label"], result["label"], *texts, files])
        if not row["ours"]:
            lines.append(["nothing on file", "", *[""] * len(columns), ""])
    head = [
        f"## {content['title']}",
        "",
        f"Made by `{content['command']}` from the files named, which have commands, splits, seeds and episode",
        "hashes. Published rows as printed. Ours: mean ± 95 % interval over episodes; sd is the standard deviation",
        "between training seeds where there are several. `paper` is eq. 3 with squared distances unless it says",
        "otherwise. An empty cell: nothing was run.",
        "",
    ]
    body = [f"| {' | '.join(cells)} |" for cells in lines]
    said = [f"- {name}: {note}" for name, note in notes.items() if note]
    return "\n".join([*head, *body, "", *said, *(f"- {note}" for note in content["notes"])]) + "\n"


def _on_file(table: PaperTable, content: Mapping[str, Any]) -> Iterator[Measured]:
    if "rows" in content:
        return _of_table(table, content)
    if "setting" in content["results"][0]:
        return _of_grid(content)
    return _of_rows(table, content["results"])


def _of_table(table: PaperTable, content: Mapping[str, Any]) -> Iterator[Measured]:
    """Read a table that `report` or `reproduce` wrote."""
    published = {(row.method, row.backbone) for row in table.published}
    for row in content["rows"]:
        own, backbone = row["published"]["method"], row["published"]["backbone"]
        for group in row["ours"]:
            for result in group["results"]:
                for column, value in result["columns"].items():
                    first = value["runs"][0]
                    recipe = load_recipe(first["recipe"])
                    cell = {name: value[name] for name in (table.metric, "ci95", "sd_between_seeds")}
                    cell["episodes"] = first["episodes"]
                    method = own if _is_shown(first, recipe) else METHODS.get(first["method"], "")
                    other = first["method"] in ("nnshot", "structshot") and (method, backbone) in published
                    if method == own or other:
                        name = first["recipe"]
                        yield Measured(method, backbone, name, _note(recipe), _scored_by(first), column, cell)


def _of_grid(content: Mapping[str, Any]) -> Iterator[Measured]:
    """Read a grid of methods and decisions on Few-NERD INTER: what is decided by path and O."""
    command = content["command"].split()
    name = _recipes()[Path(command[command.index("--run") + 1]).name]
    run, note = f"{name}, decided by path and O", f"{_note(load_recipe(name))}; decided by path and O"
    episodes = int(command[command.index("--episodes") + 1]) if "--episodes" in command else 1000
    for row in content["results"]:
        shown = row["method"] in METHODS and row["fit"] in SHOWN.get(row["method"], (row["fit"],))
        if row["decided"] == DECIDED and shown:
            counts = row["toolkit"]
            cell = {"f1": counts["f1"], "ci95": counts["ci95"], "episodes": episodes}
            label = f"{row['method']} {row['fit']}"
            column = f"INTER {row['setting']}-shot"
            yield Measured(METHODS[row["method"]], "BERT", run, note, label, column, cell)


def _of_rows(table: PaperTable, rows: Sequence[Mapping[str, Any]]) -> Iterator[Measured]:
    """Read the rows of `compare`, or of a leaderboard."""
    by_method = {row.method: row.backbone for row in table.published}
    recipes = _recipes()
    for row in rows:
        column = _column(table, row)
        name = f"{TRACKS[row['track']]}:{row['row']}" if "track" in row else recipes[Path(row["run"]).name]
        recipe = load_recipe(name)
        if column is None:
            continue
        cell = {"accuracy": row["accuracy"], "ci95": row["ci95"], "episodes": row["episodes"]}
        paper = recipe.paper if recipe.paper is not None and recipe.paper.table == table.name else None
        if "track" in row:
            fits = {fit: f"{recipe.method.name} {fit}" for fit in ("paper", "bayes")}
            label = fits.get(row["scored_by"], row["scored_by"])
            if paper is not None and (row["scored_by"] in fits or row["scored_by"] == recipe.method.name):
                run = f"{name}, {row['steps']:,} steps"
                minutes = row["cpu_minutes"]
                took = "CPU time not measured" if minutes is None else f"{minutes:.1f} CPU minutes of training"
                note = f"{took} (leaderboard-relations.md); saw {row['saw']}"
                yield Measured(paper.method, paper.backbone, run, note, label, column, cell)
        elif paper is not None and _is_shown(row, recipe):
            yield Measured(paper.method, paper.backbone, name, paper.note, _scored_by(row), column, cell)
        elif paper is None and METHODS.get(row["method"]) in by_method and row["transform"] != "none":
            method = METHODS[row["method"]]
            if row["fit"] in SHOWN.get(row["method"], (row["fit"],)) and row["transform"] == _transform(row["method"]):
                yield Measured(method, by_method[method], name, _note(recipe), _scored_by(row), column, cell)


def _transform(method: str) -> str:
    return "center-unit" if method == "simpleshot" else "unit"


def _recipes() -> dict[str, str]:
    """Name the recipes by the folders of their runs."""
    return {run_name(f"{file}:{row}"): f"{file}:{row}" for file in builtin_recipes() for row in read_rows(file)}


def _column(table: PaperTable, row: Mapping[str, Any]) -> str | None:
    for column in table.columns:
        same = (row["way"], row["shot"]) == (column.way, column.shot)
        if same and row["split"] in SPLITS.get((column.data, column.split), (column.split,)):
            return column.name
    return None


def _is_shown(row: Mapping[str, Any], recipe: Recipe) -> bool:
    """Return whether a row is a run's own method, or the Bayes fit, on its own vectors."""
    own = row["method"] == recipe.method.name and row["fit"] in SHOWN.get(row["method"], (row["fit"],))
    bayes = (row["method"], row["fit"]) == ("hyperproto", "bayes")
    return row["transform"] == (recipe.transform or "none") and (own or bayes)


def _scored_by(row: Mapping[str, Any]) -> str:
    plain = row["fit"] == "paper" and row["options"].get("radius_distance") == "plain"
    return f"{row['method']} {row['fit']}" + (", plain distances" if plain else "")


def _note(recipe: Recipe) -> str:
    return "" if recipe.paper is None else recipe.paper.note


def _percent(cell: Cell, metric: str) -> str:
    half = "" if cell["ci95"] is None else f" ± {100 * cell['ci95']:.1f}"
    sd = cell.get("sd_between_seeds")
    few = f" [{cell['episodes']} episodes]" if cell["episodes"] < FEW else ""
    return f"{100 * cell[metric]:.1f}{half}" + ("" if sd is None else f", sd {100 * sd:.1f}") + few


def _printed(number: Sequence[float] | None) -> str:
    return "" if number is None else " ± ".join(f"{value:.2f}" for value in number)


def main(name: str, folder: Path) -> None:
    """Write a table's page and JSON into the folder `tables` of the results."""
    content = stored_table(name, folder)
    for ending, text in ((".md", page(content)), (".json", json.dumps(content, indent=1) + "\n")):
        with atomic_write(folder / "tables" / f"{name}{ending}") as file:
            file.write(text.encode())


if __name__ == "__main__":
    main(sys.argv[1], Path("results"))
