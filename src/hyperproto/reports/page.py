"""A self-contained HTML page: tables and pictures in one file that can be mailed."""

from base64 import b64encode
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from html import escape
from pathlib import Path

from hyperproto.files import atomic_write

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1c2430; }
h1 { line-height: 1.2; } h2 { margin-top: 2.5rem; border-bottom: 1px solid #d5dbe3; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.9rem; width: 100%; }
th, td { padding: 0.25rem 0.6rem; text-align: right; border-bottom: 1px solid #e6eaf0; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
td.strong { font-weight: 700; background: #fdf1ee; }
tr.group td { background: #f2f5f9; font-weight: 600; text-align: left; }
.lead { font-size: 1.2rem; } summary { cursor: pointer; margin-top: 1.5rem; font-weight: 600; }
pre { background: #f2f5f9; padding: 0.8rem; overflow-x: auto; font-size: 0.85rem; line-height: 1.4; }
.scroll { overflow-x: auto; } figure { margin: 1.5rem 0; } img { max-width: 100%; }
figcaption, .note { color: #56606e; font-size: 0.9rem; } code { background: #f2f5f9; padding: 0.1rem 0.3rem; }
"""


class Page:
    """Collects the parts of a report, then writes them all at once."""

    def __init__(self, title: str, lead: str) -> None:
        self.title = title
        self._parts = [f"<h1>{escape(title)}</h1>", f'<p class="lead">{escape(lead)}</p>']

    def heading(self, text: str) -> None:
        """Start a section."""
        self._parts.append(f"<h2>{escape(text)}</h2>")

    def text(self, text: str) -> None:
        """Add a paragraph."""
        self._parts.append(f"<p>{escape(text)}</p>")

    def note(self, text: str) -> None:
        """Add a paragraph in small grey letters."""
        self._parts.append(f'<p class="note">{escape(text)}</p>')

    def command(self, text: str) -> None:
        """Add the command that makes the numbers."""
        self._parts.append(f"<p><code>{escape(text)}</code></p>")

    def code(self, text: str) -> None:
        """Add lines as they are, in letters of equal width."""
        self._parts.append(f"<pre>{escape(text)}</pre>")

    @contextmanager
    def folded(self, title: str) -> Iterator[None]:
        """Fold what is added inside below its title, until a reader opens it."""
        self._parts.append(f"<details><summary>{escape(title)}</summary>")
        yield
        self._parts.append("</details>")

    def table(
        self, head: Sequence[str], rows: Sequence[Sequence[str]], strong: Collection[tuple[int, int]] = ()
    ) -> None:
        """Add a table; a row of one cell opens a group, cells (row, column) in `strong` stand out."""
        cells = "".join(f"<th>{escape(name)}</th>" for name in head)
        lines = []
        for y, row in enumerate(rows):
            if len(row) == 1:
                lines.append(f'<tr class="group"><td colspan="{len(head)}">{escape(row[0])}</td></tr>')
            else:
                marked = (' class="strong"' if (y, x) in strong else "" for x in range(len(row)))
                cells_here = (f"<td{mark}>{escape(cell)}</td>" for mark, cell in zip(marked, row, strict=True))
                lines.append(f"<tr>{''.join(cells_here)}</tr>")
        self._parts.append(f'<div class="scroll"><table><tr>{cells}</tr>{"".join(lines)}</table></div>')

    def part(self, html: str) -> None:
        """Add HTML as it is; the caller has escaped what needs it."""
        self._parts.append(html)

    def picture(self, png: bytes, caption: str) -> None:
        """Add a picture, inline."""
        source = f"data:image/png;base64,{b64encode(png).decode()}"
        image = f'<img src="{source}" alt="{escape(caption, quote=True)}">'
        self._parts.append(f"<figure>{image}<figcaption>{escape(caption)}</figcaption></figure>")

    def html(self) -> str:
        """The page as text."""
        return (
            f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(self.title)}</title>'
            f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>'
            f"<body>{''.join(self._parts)}</body></html>\n"
        )

    def write(self, path: Path) -> None:
        """Write the page."""
        with atomic_write(path) as file:
            file.write(self.html().encode())
