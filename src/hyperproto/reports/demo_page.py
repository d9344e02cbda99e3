"""What the demo found: one sentence, eight rows in words, pictures, and every number; as a page and as JSON."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hyperproto import __version__
from hyperproto.evaluation import Result, compare
from hyperproto.problems import mean_interval, paired_difference
from hyperproto.reports.page import Page
from hyperproto.reports.pictures import accuracy_chart
from hyperproto.reports.tables import TextTable

# The rows that the page opens with, by their labels: "encoder trained by: method closed-form transform options".
SHORT = {
    "protonet: protonet point none": "ProtoNet, on its own encoder",
    "hyperproto: protonet point none": "ProtoNet",
    "hyperproto: cosine point none": "Cosine prototypes",
    "hyperproto: simpleshot point center-unit": "CL2N (SimpleShot)",
    "hyperproto: nearest point unit": "Nearest neighbour",
    "hyperproto: logistic point unit C=10.0": "Logistic regression",
    "hyperproto: hyperproto paper none radius_distance=plain": "HyperProto, the paper's radius",
    "hyperproto: hyperproto bayes none prior_ratio=measured": "HyperProto, Bayes fit",
}
OURS = "hyperproto: hyperproto bayes none prior_ratio=measured"
SAME_FIT = "protonet: hyperproto bayes none prior_ratio=measured"  # on the other encoder
THEIRS = "protonet: protonet point none"
TITLE = "Accuracy on unseen scripts, % (± 95 % intervals over episodes); HyperProto's encoder, but in the first row"
BEST, LEVEL = "*", "="
MARKS = (
    f"{BEST} the best of its column; {LEVEL} level with it: the 95 % interval of the paired difference to the best "
    "includes 0."
)
DIGITS = (
    "Why the last digits differ on another machine: sums of floating-point numbers depend on the order in which they "
    "are taken, and that depends on the processor, the number of threads and the version of torch. The same seeds draw "
    "the same episodes everywhere, but 300 training steps carry such differences on. Two threads against one moved "
    "accuracies by up to 0.3 points, and by up to 2.2 points where validation then chose the weights of another step; "
    "smaller differences than that may turn around."
)


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure with its heading and its caption."""

    heading: str
    png: bytes
    caption: str


@dataclass(frozen=True, eq=False)
class DemoReport:
    """Every result of the demo by the kind of episodes, in the same order in each; and the pictures."""

    command: str
    columns: dict[str, list[Result]]
    notes: Sequence[str]  # what was trained, chosen and drawn
    pictures: Sequence[Picture]
    seconds: float

    def takeaway(self) -> str:
        """Say in one sentence what the numbers come to: where HyperProto is better than ProtoNet, level, or worse."""
        pairs = {name: self._difference(name, OURS, THEIRS) for name in self.columns}
        better = [name for name, (mean, half) in pairs.items() if mean - half > 0]
        worse = [name for name, (mean, half) in pairs.items() if mean + half < 0]
        level = [name for name in pairs if name not in (*better, *worse)]
        opening = "HyperProto with the Bayes fit against ProtoNet, each on the encoder that it trained"
        if len(level) == len(pairs):
            return (
                f"{opening}: no difference that these episodes can show in any of the {len(pairs)} kinds of episodes."
            )
        parts = []
        for word, names in (("better", better), ("worse", worse)):
            if names:
                most = max(names, key=lambda name: abs(pairs[name][0]))
                share = "all" if len(names) == len(pairs) else f"{len(names)} of"
                parts.append(f"{word} in {share} {len(pairs)} kinds of episodes, most in {self._against(most)}")
        if level:
            parts.append(f"level in {' and in '.join(level)}")
        return f"{opening}: {'; '.join(parts)}."

    def _against(self, column: str) -> str:
        ours, theirs = (100 * self._result(column, label).values.mean() for label in (OURS, THEIRS))
        mean, half = self._difference(column, OURS, THEIRS)
        return f"{column}: {ours:.1f} % against {theirs:.1f} %, a paired difference of {_signed(mean, half)} points"

    def fit_alone(self) -> str:
        """Say what the Bayes fit gains without HyperProto's training: on the encoder that ProtoNet trained."""
        gains = [f"{name}: {_signed(*self._difference(name, SAME_FIT, THEIRS))}" for name in self.columns]
        return f"The Bayes fit alone, on ProtoNet's encoder, less ProtoNet, in points: {'; '.join(gains)}."

    def short_rows(self, intervals: bool = True) -> list[list[str]]:
        """One row for each method of SHORT, in words: accuracy in percent by kind of episodes, the best marked."""
        rows = []
        for label, words in SHORT.items():
            cells = []
            for name in self.columns:
                mean, half = mean_interval(self._result(name, label).values)
                number = f"{100 * mean:.2f} ± {100 * half:.2f}" if intervals else f"{100 * mean:.1f}"
                cells.append(f"{number} {self._mark(name, label)}")
            rows.append([words, *cells])
        return rows

    def _mark(self, column: str, label: str) -> str:
        """BEST for the best row of SHORT, LEVEL where the paired difference to it may be 0, else a blank."""
        best = max(SHORT, key=lambda other: self._result(column, other).values.mean())
        mean, half = self._difference(column, best, label)
        return BEST if label == best else LEVEL if mean - half <= 0 else " "

    def table(self) -> TextTable:
        """The eight rows for a terminal: with intervals, and a narrower form without."""
        head = ["", *(name.replace(", ", "\n", 1) for name in self.columns)]
        narrower = TextTable(TITLE, head, self.short_rows(intervals=False))
        return TextTable(TITLE, head, self.short_rows(), narrower=narrower)

    def all_rows(self) -> list[list[str]]:
        """One row for each candidate; a row of one cell opens an encoder's group."""
        rows, trainer = [], ""
        for column in zip(*self.columns.values(), strict=True):
            before, _, label = column[0].label.partition(": ")
            if before != trainer:
                trainer = before
                rows.append([f"encoder trained by {trainer}"])
            rows.append([label, *(_percent(result) for result in column)])
        return rows

    def difference_rows(self) -> list[list[str]]:
        """Paired differences in points of the Bayes fit less every other row of the same encoder."""
        rows = []
        for reference in (SAME_FIT, OURS):
            trainer, _, own = reference.partition(": ")
            rows.append([f"encoder trained by {trainer}"])
            first = next(iter(self.columns.values()))
            for result in first:
                before, _, label = result.label.partition(": ")
                if before == trainer and label != own:
                    pairs = [self._difference(name, reference, result.label) for name in self.columns]
                    rows.append([label, *(_signed(*pair) for pair in pairs)])
        return rows

    def to_json(self) -> dict[str, Any]:
        """Every result and every paired difference; metrics are fractions."""
        comparisons = []
        for results in self.columns.values():
            task = {key: results[0].settings[key] for key in ("way", "shot")}
            comparisons += [{**row, **task} for row in compare(results)]
        return {
            "command": self.command,
            "version": __version__,
            "takeaway": self.takeaway(),
            "results": [result.to_json() for results in self.columns.values() for result in results],
            "comparisons": comparisons,
            "seconds": self.seconds,
        }

    def write_page(self, path: Path) -> None:
        """Write the page: the sentence, the chart, eight rows, pictures; every other number is folded below."""
        page = Page("Classes as regions: few-shot recognition of unseen scripts", self.takeaway())
        chart = {
            name: [(words, *mean_interval(self._result(name, label).values)) for label, words in SHORT.items()]
            for name in self.columns
        }
        page.picture(accuracy_chart(chart), f"{TITLE}.")
        rows = self.short_rows()
        strong = {(y, x) for y, row in enumerate(rows) for x, cell in enumerate(row) if cell.endswith(BEST)}
        page.table(["method", *self.columns], rows, strong)
        page.note(f"{MARKS} One training of each encoder: the intervals speak of episodes, not of other trainings.")
        page.text(self.fit_alone())
        for picture in self.pictures:
            page.heading(picture.heading)
            page.picture(picture.png, picture.caption)
        page.heading("How it was made")
        page.command(self.command)
        for note in (*self.notes, DIGITS):
            page.note(note)
        hashes = ", ".join(f"{name}: {results[0].settings['episode_hash']}" for name, results in self.columns.items())
        with page.folded(f"All {len(next(iter(self.columns.values())))} rows: every method, closed form and transform"):
            page.table(["method, closed form, transform", *self.columns], self.all_rows())
            page.note(f"Percent, with 95 % intervals over episodes. Episode hashes: {hashes}")
        with page.folded("Paired differences: the Bayes fit less every other row of the same encoder"):
            page.table([f"{OURS.partition(': ')[2]}, less", *self.columns], self.difference_rows())
            page.note("Points, same encoder, same episodes, with 95 % intervals.")
        page.write(path)

    def _result(self, column: str, label: str) -> Result:
        return next(result for result in self.columns[column] if result.label == label)

    def _difference(self, column: str, a: str, b: str) -> tuple[float, float]:
        return paired_difference(self._result(column, a).values, self._result(column, b).values)


def _percent(result: Result) -> str:
    mean, half = mean_interval(result.values)
    return f"{100 * mean:.2f} ± {100 * half:.2f}"


def _signed(mean: float, half: float) -> str:
    return f"{round(100 * mean, 2) + 0.0:+.2f} ± {100 * half:.2f}"  # no -0.00
