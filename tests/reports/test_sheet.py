"""Sheets as Markdown, LaTeX, CSV and HTML: whatever a name holds, a reader of the format gets it back."""

import csv
import re
import shutil
import subprocess
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperproto.errors import ConfigError
from hyperproto.reports.tables import FORMATS, Number, Sheet, SheetRow, format_of, latex_text, markdown_cell

HARD = 'a_b & 50 % of <b>$x$</b> | {y} \\ ~ ^ # "q", `c` *d* [e] 1~2 --out ±'
SMALL = Sheet(
    "Table 1: F1 & co, %",
    ["row", "how", "5-way, 1 shot", "10-way"],
    [
        SheetRow(["ProtoNet", HARD, Number(69.2, 0.2, parts=(60.0, 80.5), parts_apart=True), ""], strong=True),
        SheetRow(["", "precision / recall", "60.00 / 80.50", ""]),
        SheetRow(["ours", "a", Number(70.126, 0.5, 0.25, (61.0, 81.0)), Number(7.0)]),
        SheetRow(["", "b", Number(9.5, 0.5), ""]),
    ],
    notes=["a note & <more>"],
    labels=2,
)

words = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp")), max_size=20)


def test_a_number_says_what_belongs_to_it() -> None:
    assert [cell.text() for row in SMALL.rows for cell in row.cells if isinstance(cell, Number)] == [
        "69.20 ± 0.20", "70.13 ± 0.50, sd 0.25 (61.00 / 81.00)", "7.00", "9.50 ± 0.50",
    ]  # fmt: skip


def test_csv_has_each_part_of_a_number_in_a_column() -> None:
    head, *rows = csv.reader(StringIO(SMALL.text("csv")))
    assert head == [
        "row", "how", "5-way, 1 shot", "5-way, 1 shot ±", "5-way, 1 shot sd", "5-way, 1 shot precision",
        "5-way, 1 shot recall", "10-way",
    ]  # fmt: skip
    assert rows == [
        ["ProtoNet", HARD, "69.20", "0.20", "", "60.00", "80.50", ""],
        ["ours", "a", "70.13", "0.50", "0.25", "61.00", "81.00", "7.00"],
        ["ours", "b", "9.50", "0.50", "", "", "", ""],  # labels are repeated, lines without a number left out
    ]


@given(st.lists(words, min_size=2, max_size=2))
def test_csv_keeps_every_word(labels: list[str]) -> None:
    sheet = Sheet("", ["a,b", 'c"d', "e"], [SheetRow(["x", *labels[1:], Number(1.0)])], labels=2)
    assert list(csv.reader(StringIO(sheet.text("csv"))))[1] == ["x", labels[1], "1.00"]


def cells_of(line: str) -> list[str]:
    """The cells of a line of Markdown, as GitHub splits and reads it."""
    inner = [part.strip() for part in re.split(r"(?<!\\)(?:\\\\)*\|", line)[1:-1]]
    return [re.sub(r"\\([|*`\\])", r"\1", part).replace("&lt;", "<") for part in inner]


def test_markdown() -> None:
    lines = SMALL.text("markdown").splitlines()
    assert lines[:2] == ["## Table 1: F1 & co, %", ""]
    assert lines[3] == "| --- | --- | ---: | ---: |"
    assert cells_of(lines[4].replace("**", ""))[:2] == ["ProtoNet", HARD]
    assert lines[4].startswith("| **ProtoNet** | **")
    assert lines[4].endswith(" | **69.20 ± 0.20** |  |")
    assert lines[-1] == "- a note & <more>"
    assert "<" not in markdown_cell("<script>")


@given(words)
def test_a_cell_of_markdown_ends_where_it_should(text: str) -> None:
    escaped = markdown_cell(text)
    assert "\n" not in escaped
    assert not re.search(r"(?<!\\)(?:\\\\)*[|*`]", escaped)
    assert re.sub(r"\\([|*`\\])", r"\1", escaped).replace("&lt;", "<") == " ".join(text.split()).replace("&lt;", "<")


READ = [
    (r"\textbackslash{}", "\\"), (r"\textasciitilde{}", "~"), (r"\textasciicircum{}", "^"), (r"$\pm$", "±"),
    (r"\textless{}", "<"), (r"\textgreater{}", ">"), ("{[}", "["), ("{*}", "*"), ("{-}", "-"), ("{''}", '"'),
    *((f"\\{character}", character) for character in "&%$#_{}"),
]  # fmt: skip


def read_latex(text: str) -> str:
    """What LaTeX prints; a command that is not of those expected is an error."""
    found = ""
    while text:
        token, character = next(((t, c) for t, c in READ if text.startswith(t)), (text[0], text[0]))
        assert len(token) > 1 or token not in "\\~^&%$#_{}±<>[*", text
        found, text = found + character, text[len(token) :]
    return found


@given(words)
def test_latex_prints_every_character(text: str) -> None:
    escaped = latex_text(text)
    assert read_latex(escaped) == " ".join(text.split())
    assert "--" not in escaped  # would be a dash


def test_latex_is_a_table_of_booktabs() -> None:
    lines = SMALL.text("latex").splitlines()
    assert lines[:2] == [r"% \usepackage{booktabs}", r"\begin{table}"]
    assert r"\caption{Table 1: F1 \& co, \%}" in lines
    assert [line for line in lines if line.startswith(("\\top", "\\mid", "\\bottom", "\\begin{tab", "\\end{tab"))] == [
        r"\begin{table}", r"\begin{tabular}{p{4.5cm}lrr}", r"\toprule", r"\midrule", r"\bottomrule", r"\end{tabular}",
        r"\end{table}",
    ]  # fmt: skip
    rows = [line for line in lines if line.endswith(r"\\")]
    assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {3}
    assert rows[3] == r"ours & a & 70.13 $\pm$ 0.50, sd 0.25 (61.00 / 81.00) & 7.00 \\"
    assert lines[-2] == r"\par\smallskip\raggedright a note \& \textless{}more\textgreater{}"


class Reader(HTMLParser):
    """Collects cells, and every address that is not in the page itself."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.values: list[str | None] = []
        self.elsewhere: list[str] = []
        self.inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.inside = True
            self.rows[-1].append("")
        if tag == "br":
            self.rows[-1][-1] += "|"
        if tag == "td":
            self.values.append(dict(attrs).get("data-value"))
        self.elsewhere += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.rows[-1][-1] += data


def read_html(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    return reader


def test_html_is_one_file_whose_cells_are_the_sheets() -> None:
    text = SMALL.text("html")
    read = read_html(text)
    assert read.elsewhere == []
    assert read.rows[0] == ["row", "how", "5-way, 1 shot", "10-way"]
    assert read.rows[1] == ["ProtoNet", HARD, "69.20 ± 0.20", ""]
    assert read.rows[4] == ["ours", "b", "9.50 ± 0.50", ""]  # the label again: a sorted row knows whose it is
    assert read.rows[3][2] == "70.13 ± 0.50|sd 0.25|(61.00 / 81.00)"
    assert read.values[2::4] == ["69.2", "", "70.126", "9.5"]
    assert "a note &amp; &lt;more&gt;" in text
    assert "<title>Table 1: F1 &amp; co, %</title>" in text


@given(words)
def test_html_shows_every_word(text: str) -> None:
    read = read_html(Sheet("", ["a", "b"], [SheetRow([text, Number(1.0)])]).text("html"))
    assert read.rows[1] == [text, "1.00"]


def test_every_format_is_written(tmp_path: Path) -> None:
    paths = SMALL.write(tmp_path / "new", "table")
    assert [path.name for path in paths] == ["table.md", "table.tex", "table.csv", "table.html"]
    assert [path.read_text() for path in paths] == [SMALL.text(kind) for kind in FORMATS]


def test_formats_by_name() -> None:
    assert [format_of(Path(name), None) for name in ("a.md", "a.TEX", "a.csv", "a.html", "a.txt")] == [
        "markdown", "latex", "csv", "html", "markdown",
    ]  # fmt: skip
    assert format_of(None, None) == "markdown"
    assert format_of(Path("a.tex"), "csv") == "csv"
    with pytest.raises(ConfigError, match="--format: there is no format 'latx'; did you mean 'latex'"):
        SMALL.text("latx")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="there is no chromium")
def test_a_click_sorts_in_a_browser(tmp_path: Path) -> None:
    """The script runs: descending, ascending, as it was; rows without a number come last."""
    click = "document.querySelectorAll('th button')[2].click();"
    orders = []
    for clicks in range(4):
        script = f"<script>addEventListener('load', () => {{ {click * clicks} }})</script>"
        page = tmp_path / "page.html"
        page.write_text(SMALL.text("html").replace("</body>", f"{script}</body>"))
        browser = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", page.as_uri()]
        shown = subprocess.run(browser, capture_output=True, text=True, check=True, timeout=120).stdout
        orders.append([row[2].split()[0] for row in read_html(shown).rows[1:]])
    assert orders == [
        ["69.20", "60.00", "70.13", "9.50"],
        ["70.13", "69.20", "9.50", "60.00"],  # precision / recall is no number
        ["9.50", "69.20", "70.13", "60.00"],
        ["69.20", "60.00", "70.13", "9.50"],
    ]
