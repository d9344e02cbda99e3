"""Page of a leaderboard: accuracies, differences to ProtoNet and costs, by track."""

from collections.abc import Mapping, Sequence
from typing import Any

Row = dict[str, Any]
NOTES = """\
Every run has about the same CPU time on one thread, and the number of steps follows from the time of a step. Learning
rate and temperature are one of four pairs, chosen on {chosen_on} (each one's accuracy and CPU minutes:
leaderboard-{study}-choices.json), or the recipe's own where the costs say so; nothing is chosen on the episodes
reported here. ± is half a 95 % interval over episodes; the second number of a cell is the paired difference to ProtoNet
of the same track and seed on the same episodes. An empty cell: the method serves no such episodes, or was left out
there for its cost (see the command). Rows of `cosine`, `simpleshot`, `nearest` and `logistic` score the encoder of
ProtoNet's run. A number in square brackets says that only so many of the episodes were scored; the difference is on
those."""


def page(
    rows: Sequence[Row], command: str, facts: Row, *, title: str, titles: Mapping[str, str], chosen_on: str
) -> str:
    """Return all tables in Markdown; `titles` are those of the tracks, `chosen_on` describes where pairs are chosen."""
    earlier = dict.fromkeys(f"{_names(rows, row['command'])}: `{row['command']}`" for row in rows if "command" in row)
    parts = [f"# {title}: methods side by side", "", f"`{command}`", ""]
    if earlier:
        parts += ["Rows that were scored earlier, whose runs are not kept:", "", *(f"- {line}" for line in earlier), ""]
    parts += [
        f"{facts['episodes']:,} episodes a column, {facts['query']} queries a class, episode seed {facts['seed']}."
    ]
    parts += ["", NOTES.format(chosen_on=chosen_on, study=title.lower()), ""]
    for track in dict.fromkeys(row["track"] for row in rows):
        own = [row for row in rows if row["track"] == track]
        parts += [f"## {titles[track]}", ""]
        for split in dict.fromkeys(row["split"] for row in own):
            parts += [f"### {split}", "", *_lines(accuracy_cells([row for row in own if row["split"] == split])), ""]
        parts += ["### Cost", "", *_lines(cost_cells(own)), ""]
    return "\n".join([*parts, "## Episodes", "", *_lines(hash_cells(rows)), ""])


def _names(rows: Sequence[Row], command: str) -> str:
    """Name the rows that were scored by a command, by track."""
    own: dict[str, list[str]] = {}
    for row in rows:
        if row.get("command") == command and row["row"] not in own.setdefault(row["track"], []):
            own[row["track"]].append(row["row"])
    return "; ".join(f"{track} {', '.join(names)}" for track, names in own.items())


def accuracy_cells(rows: Sequence[Row]) -> list[list[str]]:
    """Return a line for each row and closed form, a column for each kind of episode."""
    columns = list(dict.fromkeys(row["column"] for row in rows))
    full = max(row["episodes"] for row in rows)
    lines: dict[tuple[str, str], dict[str, Row]] = {}
    for row in rows:
        lines.setdefault((row["row"], row["scored_by"]), {})[row["column"]] = row
    head = ["row", "scored by", "seeds", *(column.partition(" ")[2] for column in columns)]
    body = [
        [*key, ", ".join(next(iter(own.values()))["seeds"]), *(_cell(own.get(column), full) for column in columns)]
        for key, own in lines.items()
    ]
    return [head, *body]


def _cell(row: Row | None, full: int) -> str:
    if row is None:
        return ""
    words = _percent(row["accuracy"], row["ci95"])
    if "difference" in row and (row["row"], row["scored_by"]) != ("protonet", "protonet"):
        words += f" ({_percent(row['difference'], row['difference_ci95'], '+')})"
    return words if row["episodes"] == full else f"{words} [{row['episodes']}]"


def _percent(value: float, ci95: float | None, sign: str = "") -> str:
    half = "" if ci95 is None else f" ± {100 * ci95:.1f}"
    return f"{100 * value:{sign}.1f}{half}"


def cost_cells(rows: Sequence[Row]) -> list[list[str]]:
    """Return the costs of training and scoring (means over columns) of each row, and its other training data."""
    lines: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        lines.setdefault((row["row"], row["scored_by"]), []).append(row)
    head = ["row", "scored by", "steps", "ms a step", "CPU minutes", "learned in the encoder", "in the head"]
    head += ["ms an episode", "head's share of evaluation", "pair (rate x, temperature x)", "saw besides labels"]
    body = []
    for key, own in lines.items():
        first = own[0]
        pair = f"{first['rate']:g}, {first['temperature']:g}" + ("" if first["chosen_on"] else " (the recipe's own)")
        took = sum(row["ms_an_episode"] for row in own) / len(own)
        share = sum(row["head_share"] for row in own) / len(own)
        step, minutes = ("" if first[name] is None else f"{first[name]:.1f}" for name in ("ms_a_step", "cpu_minutes"))
        counts = [f"{first[name]:,}" for name in ("encoder_parameters", "head_parameters")]
        trained = [f"{first['steps']:,}", step, minutes, *counts]
        body.append([*key, *trained, f"{took:.2f}", f"{share:.0%}", pair, first["saw"]])
    return [head, *body]


def hash_cells(rows: Sequence[Row]) -> list[list[str]]:
    """Return the hash of the episodes of each column."""
    found = dict.fromkeys((row["column"], f"{row['episodes']:,}", f"`{row['episode_hash']}`") for row in rows)
    return [["column", "episodes", "hash"], *(list(line) for line in found)]


def _lines(cells: Sequence[Sequence[str]]) -> list[str]:
    head, *body = ("| " + " | ".join(row) + " |" for row in cells)
    return [head, "| --- " * len(cells[0]) + "|", *body]
