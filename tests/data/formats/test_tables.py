"""Rows of files, in every format, with the lines they stand on; damage is named by its line."""

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from hyperproto.data.formats import tables
from hyperproto.data.formats.tables import Row, open_table
from hyperproto.errors import ConfigError, DataError


def rows(source: object, form: str | None = None) -> list[Row]:
    with open_table(str(source), form) as table:
        return list(table.rows)


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_csv(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", '\ufefftext,label\r\n"one, two\nthree",x\n\nfour,y\n')
    assert rows(file) == [(2, {"text": "one, two\nthree", "label": "x"}), (5, {"text": "four", "label": "y"})]


@pytest.mark.parametrize("mark", [";", "\t"])
def test_csv_may_be_separated_by_semicolons_or_tabs(tmp_path: Path, mark: str) -> None:
    file = write(tmp_path / "a.csv", f'\n"text, or so"{mark}label\n"a{mark}b"{mark}x\n\none, two{mark}y\n')
    with open_table(str(file)) as table:
        assert (table.columns, table.delimiter) == (["text, or so", "label"], mark)
        found = list(table.rows)
    assert found == [
        (3, {"text, or so": f"a{mark}b", "label": "x"}),
        (5, {"text, or so": "one, two", "label": "y"}),
    ]
    assert rows(write(tmp_path / "b.csv", "text\na;b\n")) == [(2, {"text": "a;b"})]
    assert rows(write(tmp_path / "c.csv", "text;x,label\na;b,c\n")) == [(2, {"text;x": "a;b", "label": "c"})]


def test_tsv_knows_no_quotes(tmp_path: Path) -> None:
    file = write(tmp_path / "a.tsv", 'text\tlabel\n"quoted\tx\nplain"\ty\n')
    assert rows(file) == [(2, {"text": '"quoted', "label": "x"}), (3, {"text": 'plain"', "label": "y"})]


def test_json_lines(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", '{"text": "é", "n": 1}\n\n{"label": null}')
    assert rows(file) == [(1, {"text": "é", "n": 1}), (3, {"label": None})]


def test_plain_lines(tmp_path: Path) -> None:
    assert rows(write(tmp_path / "a.txt", "one\r\n two \nthree")) == [
        (1, {"text": "one"}),
        (2, {"text": " two "}),
        (3, {"text": "three"}),
    ]


def test_parquet(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(arrow.table({"text": ["a", None], "v": [[1.0], [2.0]]}), tmp_path / "a.parquet")
    assert rows(tmp_path / "a.parquet") == [(1, {"text": "a", "v": [1.0]}), (2, {"text": None, "v": [2.0]})]
    with open_table(str(tmp_path / "a.parquet")) as table:
        assert table.where(2).endswith("a.parquet, row 2")


def test_a_long_cell_is_no_mistake(tmp_path: Path) -> None:
    text = "word " * 50_000
    assert rows(write(tmp_path / "a.csv", f"text\n{text}\n")) == [(2, {"text": text})]


def test_a_format_may_be_named(tmp_path: Path) -> None:
    assert rows(write(tmp_path / "a.data", "text\none"), "csv") == [(2, {"text": "one"})]
    assert rows(write(tmp_path / "b.csv", '{"a": 1}'), "jsonl") == [(1, {"a": 1})]


def test_standard_input_comes_line_by_line(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []

    class Slow:
        def __iter__(self) -> Iterator[bytes]:
            for line in (b"one\n", b"two\n"):
                asked.append(line)
                yield line

    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=Slow()))
    with open_table("-") as table:
        assert next(table.rows) == (1, {"text": "one"})
        assert asked == [b"one\n"]
        assert table.where(1) == "standard input, line 1"
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"a,b\n1,2\n")))
    assert rows("-", "csv") == [(2, {"a": "1", "b": "2"})]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "", r"a\.csv: is empty; its first line must name the columns"),
        ("a.csv", "a,b,a\n", r"a\.csv: two columns are called 'a'; rename one"),
        ("a.csv", "a,b\n1,2\n1,2,3\n", r"line 3: 3 cells where the first line names 2; put a cell .* into quotes"),
        ("a.csv", "a,b\n1\n", r"line 2: 1 cells where the first line names 2"),
        ("a.csv", 'a,b\n1,2\n"1"x,2\n', r"line 3: not readable \(.*\); check its quotes"),
        ("a.csv", b"a\nok\n\xff\xfe\n", r"line 3: not UTF-8 \(.*\); save the file as UTF-8"),
        ("a.jsonl", '{"a": 1}\n{"a"\n', r"line 2: not JSON \(.*\); write one object on each line"),
        ("a.jsonl", "[1, 2]", r"line 1: not an object like \{\"text\": \.\.\.\}, but \[1, 2\]"),
        ("a.parquet", "PAR1 and nothing", r"a\.parquet: not readable as Parquet \(.*\); is it whole\?"),
    ],
)
def test_damage_is_named_by_its_line(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        rows(write(tmp_path / name, content))


def test_a_parquet_file_that_was_cut_in_the_middle(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    texts = [f"text {n}" * 20 for n in range(5000)]
    parquet.write_table(arrow.table({"text": texts}), tmp_path / "a.parquet", compression="zstd")
    content = bytearray((tmp_path / "a.parquet").read_bytes())
    content[200 : len(content) // 2] = bytes(len(content) // 2 - 200)
    (tmp_path / "a.parquet").write_bytes(content)
    with pytest.raises(DataError, match="not readable as Parquet"):
        rows(tmp_path / "a.parquet")


def test_files_that_nobody_can_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a.xlsx", "")
    with pytest.raises(ConfigError, match=r"the suffix '.xlsx' names no format; name its format with --format \(csv, "):
        rows(tmp_path / "a.xlsx")
    for name in ("none.csv", "none.parquet"):
        with pytest.raises(DataError, match=f"{name}: No such file or directory; check the path$"):
            rows(tmp_path / name)
    with pytest.raises(ConfigError, match="Parquet cannot be read from standard input; name a file"):
        rows("-", "parquet")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ConfigError, match=r"Parquet is read with pyarrow \(.*\); pip install pyarrow"):
        rows(tmp_path / "a.parquet")


def test_a_column_that_is_not_there_is_named_with_its_option(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "texts,label\na,b\n")
    with (
        open_table(str(file)) as table,
        pytest.raises(DataError, match=r"no column 'text'; did you mean 'texts'\? .*--text"),
    ):
        table.check_column("text", "--text")
    file = write(tmp_path / "a.jsonl", json.dumps({"a": 1}))
    with open_table(str(file)) as table:
        table.check_column("text", "--text")  # every row has its own


def test_a_format_that_there_is_not(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("text\na\n")
    with (
        pytest.raises(ConfigError, match=r"there is no format 'xml'.*Known: csv, jsonl, lines, parquet, tsv"),
        open_table(str(tmp_path / "rows.csv"), "xml"),
    ):
        pass


def test_names_of_columns_are_compared_a_few_times_each(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []

    class Cell(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            compared.append(self)
            return str.__eq__(self, other)

    records = tables._records
    monkeypatch.setattr(
        tables, "_records", lambda *given: ((line, [*map(Cell, cells)]) for line, cells in records(*given))
    )
    names = [f"column {number}" for number in range(2000)]
    table = tables._csv(iter([",".join(names) + "\n", ",".join("1" for _ in names) + "\n"]), "wide", keep_bad=False)
    assert [len(row) for _, row in table.rows] == [2000]
    assert len(compared) < 5 * len(names)
