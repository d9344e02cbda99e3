"""Standard output and standard error: what cannot be shown is escaped, what cannot be written is named or dropped."""

import os
import sys
from contextlib import suppress
from io import BufferedWriter, FileIO, TextIOBase, TextIOWrapper
from pathlib import Path
from typing import Any, TextIO, cast


class _NamedOutput(FileIO):
    """A descriptor that cannot be written says so by its name, as a file does."""

    words = ""

    def write(self, data: Any) -> Any:
        """Write bytes."""
        try:
            return super().write(data)
        except OSError as error:
            error.filename = self.words
            raise


def naming(stream: TextIO | None, words: str) -> TextIO | None:
    """Return the same stream with errors that name it; one that is no descriptor stays as it is."""
    buffer = getattr(stream, "buffer", None)
    raw = getattr(buffer, "raw", buffer)  # no buffer with PYTHONUNBUFFERED
    if type(raw) is not FileIO or not isinstance(stream, TextIOWrapper):
        return stream
    stream.flush()
    output = _NamedOutput(raw.fileno(), "w", closefd=False)
    output.words = words
    binary = output if buffer is raw else BufferedWriter(output)
    return TextIOWrapper(
        binary,
        stream.encoding,
        stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def escaping(stream: TextIO | None) -> TextIO:
    """Let characters that the stream cannot encode be escaped; one that is closed takes everything."""
    if stream is None:
        return Path(os.devnull).open("w", encoding="utf-8")
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
    return stream


class _TerminalRows(TextIOBase):
    """A terminal that gets rows of data with their control characters escaped."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text."""
        from hyperproto.cli.terminal import printable

        return self._stream.write(printable(text))

    def flush(self) -> None:
        """Write what is buffered."""
        self._stream.flush()


def rows_output() -> TextIO:
    """Return standard output for rows of data: UTF-8 in a file or a pipe, whatever the locale.

    A terminal gets what it can show, with control characters escaped.
    """
    if sys.stdout.isatty():
        return cast(TextIO, _TerminalRows(sys.stdout))
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="strict")
    return sys.stdout


def drop_unwritten(*streams: TextIO) -> None:
    """Throw away what cannot be written: Python would try again when it ends, and print that it failed."""
    for stream in streams:
        try:
            stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
