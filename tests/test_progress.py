"""The bar says what it counts and what is left, at any width, and is gone when an error is printed."""

import re

import pytest

from hyperproto.errors import DataError
from hyperproto.progress import noted, progress_bar


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard error as a terminal of 80 columns."""
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("TTY_INTERACTIVE", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")


def screen(written: str) -> list[str]:
    """What is left on a terminal: lines, cursor up and erase; colours have no effect."""
    lines, row = [""], 0
    for part in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|[^\x1b\r\n]+|\r|\n", written):
        if part == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif part.endswith("A") and part.startswith("\x1b"):
            row -= int(part[2:-1] or 1)
        elif part == "\x1b[2K":
            lines[row] = ""
        elif not part.startswith("\x1b") and part != "\r":
            lines[row] += part
    return [line for line in lines if line.strip()]


def plain(written: str) -> str:
    return " ".join(re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", " ", written).split())


@pytest.mark.usefixtures("terminal")
def test_the_bar_says_what_it_counts_and_leaves_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("evaluate") as show:
        noted(show, "episodes scored")(3, 10)
    written = capsys.readouterr().err
    for words in ("evaluate", "getting ready", "3/10", "episodes scored", "left:"):
        assert words in plain(written)
    assert screen(written) == []


@pytest.mark.usefixtures("terminal")
def test_no_bar_stays_above_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        with progress_bar("report") as show:
            show(1, 3, "items of a data set with a long name, encoded by run 3 of 10, 5-way 1-shot, and more words")
            raise DataError("no such file")

    with pytest.raises(DataError):
        work()
    written = capsys.readouterr().err
    for word in ("long", "encoded", "5-way", "more", "words"):  # folded at spaces, none is cut
        assert f" {word} " in f" {plain(written)} "
    assert screen(written) == []


def test_without_a_terminal_nothing_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("work") as show:
        show(3, 10, "items")
    assert capsys.readouterr().err.strip() == ""


def test_nobody_need_listen() -> None:
    noted(None, "items")(1, 2)
