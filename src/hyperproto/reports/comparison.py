"""Results of several methods on the same episodes: as tables, as JSON, as a chart."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hyperproto.evaluation import Result, compare
from hyperproto.problems import mean_interval, paired_difference
from hyperproto.problems.base import FloatArray
from hyperproto.reports.tables import TextTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OTHERS = {"auroc": "AUROC"}  # how tables call second metrics
ERRORS = {
    "outside": "O, true %",
    "outside_predicted": "O, predicted %",
    "false_positive": "O called an entity %",
    "false_negative": "entity called O %",
    "within": "wrong fine type %",
    "outer": "wrong coarse type %",
}


@dataclass(frozen=True, eq=False)
class Comparison:
    """Results of `hyperproto.compare`: a group of results for each number of shots.

    Results of one group are compared in pairs, on the same episodes; every group has the same order of methods.
    """

    groups: Sequence[Sequence[Result]]

    @property
    def results(self) -> list[Result]:
        """All results, group after group."""
        return [result for group in self.groups for result in group]

    @property
    def differences(self) -> list[dict[str, Any]]:
        """Mean difference a - b and its 95 % interval for every two results of a group, as fractions."""
        return [{"shot": group[0].settings["shot"], **row} for group in self.groups for row in compare(group)]

    def to_json(self) -> dict[str, Any]:
        """Return every result and every paired difference, as `--json` prints them; metrics are fractions."""
        return {"results": [result.to_json() for result in self.results], "comparisons": self.differences}

    def tables(self) -> list[TextTable]:
        """Return tables of results in percent, with paired differences to the first; for entities also of errors."""
        titles = [describe(group[0].settings) for group in self.groups]
        tagged = self.groups[0][0].metric == "f1"
        if len(self.groups) > 1:
            tables = [columns_table(titles, self.groups)]
        else:
            tables = [(spans_table if tagged else results_table)(titles[0], self.groups[0])]
        return tables + ([errors_table(group) for group in self.groups] if tagged else [])

    def table(self, width: int = 100) -> str:
        """Return the tables as text of so many columns."""
        return "\n".join(table.text(width) for table in self.tables())

    def plot(self) -> "Figure":
        """Draw means with 95 % intervals: a row for each method, a colour for each number of shots."""
        from matplotlib.figure import Figure

        labels = [result.label for result in self.groups[0]]
        figure = Figure(figsize=(7, 1.2 + 0.32 * len(labels) * max(1, len(self.groups) / 2)), layout="constrained")
        axis = figure.subplots()
        for number, group in enumerate(self.groups):
            percents, bars = _means_and_bars(group)
            offset = 0.6 * ((number + 0.5) / len(self.groups) - 0.5)
            places = [row + offset for row in range(len(group))]
            axis.errorbar(percents, places, xerr=bars, fmt="o", capsize=3, label=shots_in_words(group[0].settings))
        axis.set_yticks(range(len(labels)), labels)
        axis.invert_yaxis()
        axis.grid(axis="x", alpha=0.3)
        axis.set_xlabel(self._measured)
        axis.set_title(self._title, fontsize=10)
        axis.legend()
        return figure

    def curves(self) -> "Figure":
        """Draw learning curves: the mean of each method over shots, with 95 % intervals; unequal shots stand apart."""
        from matplotlib.figure import Figure

        from hyperproto.reports.pictures import CLASS_COLOURS, CLASS_MARKERS

        equal = [group for group in self.groups if isinstance(group[0].settings["shot"], int)]
        equal.sort(key=lambda group: group[0].settings["shot"])
        others = [group for group in self.groups if group not in equal]
        figure = Figure(figsize=(8, 5), layout="constrained")
        axis = figure.subplots()
        for row, result in enumerate(self.groups[0]):
            percents, bars = _means_and_bars([group[row] for group in [*equal, *others]])
            look: dict[str, Any] = {"color": CLASS_COLOURS[row % len(CLASS_COLOURS)], "capsize": 3}
            look["marker"] = CLASS_MARKERS[row % len(CLASS_MARKERS)]
            for part, line in ((slice(0, len(equal)), "-"), (slice(len(equal), None), "")):
                places = list(range(len(percents)))[part]
                label = result.label if places[:1] == [0] else None  # once
                if places:
                    axis.errorbar(places, percents[part], yerr=bars[part], linestyle=line, label=label, **look)
        words = [shots_in_words(group[0].settings).removeprefix("shots ") for group in [*equal, *others]]
        axis.set_xticks(range(len(words)), words)
        axis.set_xlabel("shots a class")
        axis.set_ylabel(self._measured)
        axis.set_title(self._title, fontsize=10)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
        return figure

    @property
    def _measured(self) -> str:
        metric = self.groups[0][0].metric
        return f"{'F1' if metric == 'f1' else metric}, %, with 95 % intervals over episodes"

    @property
    def _title(self) -> str:
        settings = self.groups[0][0].settings
        return f"{settings['data']} {settings['split']}, {settings['way']}-way"


def _means_and_bars(results: Sequence[Result]) -> tuple[list[float], list[float]]:
    """Return means and half intervals in percent; a single episode has no interval, and a bar of 0."""
    found = [mean_interval(result.values) for result in results]
    return [100 * mean for mean, _ in found], [0.0 if half != half else 100 * half for _, half in found]


def percent(value: float) -> str:
    """Show a fraction as percent."""
    return f"{100 * value:.2f}"


def results_table(title: str, results: Sequence[Result]) -> TextTable:
    """Return a row for each result, the paired difference to the first and, with rejection, its quality."""
    first = results[0]
    head = ["", f"{first.metric} %", "± 95 %", "- first", "± 95 %"]
    short_head = ["", f"{first.metric} %, - first"]
    if "auroc" in first.others:
        more = ["coverage %", "rejected %"]
        head += ["AUROC %", "± 95 %", "- first", "± 95 %", *more]
        short_head += ["AUROC %, - first", *more]
    rows, short_rows = [], []
    for result in results:
        before = None if result is first else first.values
        row = [result.label, *compared(result.values, before)]
        short_row = [result.label, _cell(result.values, before)]
        if "auroc" in result.others:
            own, other = result.others["auroc"], None if result is first else first.others["auroc"]
            nota = result.metrics["nota"]
            rates = [percent(nota["coverage"]), percent(nota["outside_rejected"])]
            row += [*compared(own, other), *rates]
            short_row += [_cell(own, other), *rates]
        rows.append(row)
        short_rows.append(short_row)
    return TextTable(title, head, rows, narrower=TextTable(title, short_head, short_rows))


def spans_table(title: str, results: Sequence[Result]) -> TextTable:
    """Return a row for each result: F1, paired difference to the first, precision and recall, by convention."""
    first = results[0]
    conventions = [first.settings["convention"], *first.others]
    names = [f"F1 %, {convention}" for convention in conventions]
    head = ["", *(name for f1 in names for name in (f1, "± 95 %", "- first", "± 95 %", "P %", "R %"))]
    rows, short_rows = [], []
    for result in results:
        row, short_row = [result.label], [result.label]
        for convention, values, others in zip(conventions, _values(result), _values(first), strict=True):
            before = None if result is first else others
            found = result.metrics[convention]
            row += [*compared(values, before), percent(found["precision"]), percent(found["recall"])]
            short_row.append(f"{_cell(values, before)}\n{precision_recall(result, convention)}")
        rows.append(row)
        short_rows.append(short_row)
    return TextTable(title, head, rows, narrower=TextTable(title, ["", *names], short_rows))


def errors_table(results: Sequence[Result]) -> TextTable:
    """Return a table of error rates: shares of all words or, for wrong types, of spans with the right borders."""
    rates = [(result.label, result.metrics["errors"]["rates"]) for result in results]
    rows = [[label, *(percent(own[name]) for name in ERRORS)] for label, own in rates]
    return TextTable("what goes wrong (types: of spans with the right borders)", ["", *ERRORS.values()], rows)


def columns_table(titles: Sequence[str], columns: Sequence[Sequence[Result]]) -> TextTable:
    """Return a table with a row for each candidate and a column for each list of episodes, differences in brackets."""
    rows = []
    for row in zip(*columns, strict=True):
        cells = []
        for result, column in zip(row, columns, strict=True):
            first = column[0]
            cell = _cell(result.values, None if result is first else first.values)
            for name, values in result.others.items():
                other = None if result is first else first.others[name]
                cell += f"\n{OTHERS.get(name, name)} " + _cell(values, other)
            tagged = result.metric == "f1"
            cells.append(cell + (f"\n{precision_recall(result, result.settings['convention'])}" if tagged else ""))
        rows.append([row[0].label, *cells])
    return TextTable("\n".join(titles), ["", *(shots_in_words(column[0].settings) for column in columns)], rows)


def compared(values: FloatArray, first: FloatArray | None) -> list[str]:
    """Return mean, interval, and the paired difference to the first with its interval, in percent."""
    cells = [percent(value) for value in mean_interval(values)]
    if first is None:
        return [*cells, "", ""]
    difference, ci95 = paired_difference(values, first)
    return [*cells, f"{100 * difference:+.2f}", percent(ci95)]


def _cell(values: FloatArray, first: FloatArray | None) -> str:
    mean, ci95, difference, difference_ci95 = compared(values, first)
    return f"{mean} ± {ci95}" + (f"\n({difference} ± {difference_ci95})" if difference else "")


def _values(result: Result) -> list[FloatArray]:
    return [result.values, *result.others.values()]


def precision_recall(result: Result, convention: str) -> str:
    """Show precision and recall of exact spans, as counted by a convention."""
    found = result.metrics[convention]
    return f"P {percent(found['precision'])} R {percent(found['recall'])}"


def shots_in_words(settings: dict[str, Any]) -> str:
    """Return the number of shots in words; entities have K to 2K."""
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
    """Return a line that describes the episodes, and a second one that describes thresholds of rejection."""
    nota = {"NOTA share": settings.get("nota_share"), "NOTA rate": settings.get("na_rate")}
    others = "".join(f"{name} {value}, " for name, value in nota.items() if value)
    words = (
        f"{settings['data']} {settings['split']}, {settings['way']}-way, {shots_in_words(settings)}, "
        f"{_queries(settings)}{others}{settings['episodes']} episodes, {_drawn(settings)}, "
        f"hash {settings['episode_hash']}"
    )
    if "threshold_hash" in settings:
        words += (
            f"\nthresholds of rejection from {settings['threshold_data']} {settings['threshold_split']}, "
            f"hash {settings['threshold_hash']}; accuracy counts rejection as one more class"
        )
    return words
