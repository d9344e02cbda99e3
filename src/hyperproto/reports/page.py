"""A self-contained HTML page: tables and pictures in one file that can be mailed.

Its parts are the macros of templates/parts.html; Jinja2 escapes every text that is put into them.
"""

from base64 import b64encode
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hyperproto.files import atomic_write

if TYPE_CHECKING:
    from jinja2 import Template


@cache
def _template(name: str) -> "Template":
    """Load a template; jinja2 comes with torch, and tables for the terminal do without both."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("hyperproto.reports")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined).get_template(name)


class Page:
    """Collects the parts of a report, then writes them all at once."""

    def __init__(self, title: str, lead: str) -> None:
        self.title = title
        self.lead = lead
        self._parts: list[str] = []  # escaped

    def add(self, part: str, *values: Any) -> None:
        """Add a part by the name of its macro, with the values that the macro takes."""
        self._parts.append(getattr(_template("parts.html").module, part)(*values))

    def heading(self, text: str) -> None:
        """Start a section."""
        self.add("heading", text)

    def text(self, text: str) -> None:
        """Add a paragraph."""
        self.add("text", text)

    def note(self, text: str) -> None:
        """Add a paragraph in small grey letters."""
        self.add("note", text)

    def command(self, text: str) -> None:
        """Add the command that makes the numbers."""
        self.add("command", text)

    def code(self, text: str) -> None:
        """Add lines as they are, in letters of equal width."""
        self.add("code", text)

    @contextmanager
    def folded(self, title: str) -> Iterator[None]:
        """Fold what is added inside below its title, until a reader opens it."""
        self.add("fold", title)
        yield
        self.add("end_fold")

    def table(
        self, head: Sequence[str], rows: Sequence[Sequence[str]], strong: Collection[tuple[int, int]] = ()
    ) -> None:
        """Add a table; a row of one cell opens a group, cells (row, column) in `strong` stand out."""
        self.add("table", head, rows, strong)

    def picture(self, png: bytes, caption: str) -> None:
        """Add a picture, inline."""
        self.add("picture", b64encode(png).decode(), caption)

    def html(self) -> str:
        """Return the page as text."""
        return _template("page.html").render(title=self.title, lead=self.lead, parts=self._parts) + "\n"

    def write(self, path: Path) -> None:
        """Write the page."""
        with atomic_write(path) as file:
            file.write(self.html().encode())
