"""Write each report of `research.entity_grid` as a page beside its file.

python -m research.entities_page results/entities
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from hyperproto.files import atomic_write, read_json

Row = dict[str, Any]

MEASURES: dict[str, Callable[[Row], str]] = {
    "F1, spans within sentences": lambda row: (
        f"{100 * row['sentence']['f1']:.1f} ± {100 * row['sentence']['ci95']:.1f}"
    ),
    "F1, counted as the toolkit does": lambda row: f"{100 * row['toolkit']['f1']:.1f}",
    "precision / recall": lambda row: (
        f"{100 * row['sentence']['precision']:.1f} / {100 * row['sentence']['recall']:.1f}"
    ),
    "share of words called O": lambda row: f"{100 * row['outside_predicted']:.1f}",
    "words of O given a type / of an entity called O, of all words": lambda row: (
        f"{100 * row['false_positive']:.1f} / {100 * row['false_negative']:.1f}"
    ),
    "right span, wrong type of the same / another coarse type": lambda row: (
        f"{100 * row['within']:.1f} / {100 * row['outer']:.1f}"
    ),
    "F1 minus ProtoNet's, paired": lambda row: _signed(row.get("less_protonet")),
    "F1 minus that of cosine prototypes, paired": lambda row: _signed(row.get("less_cosine")),
}
DECIDED = {
    "words": "word by word",
    "path": "by the best path",
    "path, O": "by the best path, with what the training data say of O",
}


def pages(folder: Path) -> dict[str, str]:
    """Return a page for each file fewnerd-*.json that `report` wrote, by file name."""
    found = {}
    for file in sorted(folder.glob("fewnerd-*.json")):
        content = read_json(file)
        if " report " in content.get("command", ""):
            head = [
                f"# Few-NERD INTER: {file.stem}",
                "",
                "In %, with 95 % intervals over episodes. Transform, temperature and weights were chosen on dev for",
                "each method (the files `-choices`). Summary: [entities.md](entities.md). Made by",
                "`python -m research.entities_page results/entities`.",
                "",
            ]
            found[file.stem] = "\n".join([*head, *section(content)]) + "\n"
    return found


def section(content: dict[str, Any]) -> Iterator[str]:
    """Return the tables of one file: a row for each method and decision, a column for each setting."""
    rows = content["results"]
    settings = {row["setting"]: row["episode_hash"] for row in rows}
    yield f"## {content['encoder']}, {content['split']} split"
    yield ""
    yield f"`{content['command']}`; episodes {', '.join(f'`{digest}`' for digest in settings.values())}."
    for decided, words in DECIDED.items():
        own = [row for row in rows if row["decided"] == decided]
        if not own:
            continue
        truth = {row["setting"]: f"{100 * row['outside']:.1f}" for row in own}
        for measure, cell in MEASURES.items():
            yield from ("", f"**{measure}**, {words}", "")
            yield from _table(own, list(settings), cell)
            if measure.startswith("share"):
                yield f"| *in truth* | | {' | '.join(truth[setting] for setting in settings)} |"


def _table(rows: Sequence[Row], settings: Sequence[str], cell: Callable[[Row], str]) -> Iterator[str]:
    yield f"| method | chosen on dev | {' | '.join(settings)} |"
    yield f"| {' | '.join(['---'] * (2 + len(settings)))} |"
    found = {(row["method"], row["fit"], row["setting"]): row for row in rows}
    for method, fit in dict.fromkeys((row["method"], row["fit"]) for row in rows):
        cells = [found[method, fit, setting] for setting in settings]
        chosen = [cells[0]["transform"], *(f"{k}={v}" for k, v in cells[0]["options"].items() if k != "path")]
        yield f"| {method}, `{fit}` | {', '.join(chosen)} | {' | '.join(cell(row) for row in cells)} |"


def _signed(pair: Sequence[float] | None) -> str:
    return "-" if pair is None else f"{100 * pair[0]:+.1f} ± {100 * pair[1]:.1f}"


if __name__ == "__main__":
    for name, text in pages(Path(sys.argv[1])).items():
        with atomic_write(Path(sys.argv[1], f"{name}.md")) as file:
            file.write(text.encode())
