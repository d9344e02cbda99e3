"""Tables of results for the terminal."""

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from hyperproto.evaluation import Result, mean_interval, paired_difference
from hyperproto.evaluation.intervals import FloatArray

OTHERS = {"auroc": "AUROC"}  # how tables call second metrics


def percent(value: float) -> str:
    """Show a fraction as percent."""
    return f"{100 * value:.2f}"


def results_table(title: str, results: Sequence[Result]) -> Table:
    """One row a result, with the paired difference to the first; where queries may be rejected, how well that goes."""
    first = results[0]
    table = Table(title=title, title_justify="left")
    names = ["", "accuracy %", "± 95 %", "- first", "± 95 %"]
    if "auroc" in first.others:
        names += ["AUROC %", "± 95 %", "- first", "± 95 %", "coverage %", "rejected %"]
    for name in names:
        table.add_column(name, justify="left" if not name else "right")
    for result in results:
        cells = compared(result.values, None if result is first else first.values)
        if "auroc" in result.others:
            cells += compared(result.others["auroc"], None if result is first else first.others["auroc"])
            nota = result.metrics["nota"]
            cells += [percent(nota["coverage"]), percent(nota["outside_rejected"])]
        table.add_row(result.label, *cells)
    return table


def compared(values: FloatArray, first: FloatArray | None) -> list[str]:
    """Mean, interval, and the paired difference to the first with its interval, in percent."""
    cells = [percent(value) for value in mean_interval(values)]
    if first is None:
        return [*cells, "", ""]
    difference, ci95 = paired_difference(values, first)
    return [*cells, f"{100 * difference:+.2f}", percent(ci95)]


def columns_table(titles: Sequence[str], columns: Sequence[Sequence[Result]]) -> Table:
    """One row a contender, one column for each list of episodes; in brackets the paired difference to the first row."""
    table = Table(title="\n".join(titles), title_justify="left")
    table.add_column("")
    for column in columns:
        table.add_column(_shots(column[0].settings), justify="right")
    for row in zip(*columns, strict=True):
        cells = []
        for result, column in zip(row, columns, strict=True):
            first = column[0]
            cell = _cell(result.values, None if result is first else first.values)
            for name, values in result.others.items():
                other = None if result is first else first.others[name]
                cell += f"\n{OTHERS.get(name, name)} " + _cell(values, other)
            cells.append(cell + (f"\n{precision_recall(result)}" if result.metric == "f1" else ""))
        table.add_row(row[0].label, *cells)
    return table


def _cell(values: FloatArray, first: FloatArray | None) -> str:
    mean, ci95, difference, difference_ci95 = compared(values, first)
    return f"{mean} ± {ci95}" + (f"\n({difference} ± {difference_ci95})" if difference else "")


def precision_recall(result: Result) -> str:
    """Show precision and recall of exact spans, in the convention that comes first."""
    found = result.metrics[result.settings["convention"]]
    return f"P {percent(found['precision'])} R {percent(found['recall'])}"


def _shots(settings: dict[str, Any]) -> str:
    """Say how many examples a class has; of entities there are K to 2K."""
    shot = settings["shot"]
    if "convention" in settings:
        return f"{shot}~{2 * shot} shots"
    return f"shots {','.join(map(str, shot)) if isinstance(shot, list) else shot}"


def _queries(settings: dict[str, Any]) -> str:
    query = settings["query"]
    if query is None:  # a file does not say
        return ""
    return f"{query}~{2 * query} queries a type, " if "convention" in settings else f"{query} queries a class, "


def _drawn(settings: dict[str, Any]) -> str:
    return f"of {settings['episode_file']}" if "episode_file" in settings else f"seed {settings['seed']}"


def describe(settings: dict[str, Any]) -> str:
    """Say in one line which episodes a table is about; in a second one, where queries may be rejected, by what."""
    nota = {"NOTA share": settings.get("nota_share"), "NOTA rate": settings.get("na_rate")}
    others = "".join(f"{name} {value}, " for name, value in nota.items() if value)
    words = (
        f"{settings['data']} {settings['split']}, {settings['way']}-way, {_shots(settings)}, {_queries(settings)}"
        f"{others}{settings['episodes']} episodes, {_drawn(settings)}, hash {settings['episode_hash']}"
    )
    if "threshold_hash" in settings:
        words += (
            f"\nthresholds of rejection from {settings['threshold_data']} {settings['threshold_split']}, "
            f"hash {settings['threshold_hash']}; accuracy counts rejection as one more class"
        )
    return words
