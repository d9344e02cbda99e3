"""Code, commands and tables of the documents, for the tests that run them."""

import re
import shlex
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from hyperproto.cli import app

ROOT = Path(__file__).parents[2]
GUIDES = sorted(f"docs/{path.name}" for path in ROOT.glob("docs/*.md"))
MEASURED = [
    f"results/{name}.md"
    for name in ("README", "speed/benchmarks", "entities/entities", "intents/estimators", "images/images")
] + ["results/relations/relations.md"]
DOCUMENTS = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", *GUIDES, *MEASURED]


def read(document: str) -> str:
    return (ROOT / document).read_text()


def result(name: str) -> str:
    """The text of a file of results, whichever folder it is in."""
    [path] = ROOT.glob(f"results/*/{name}")
    return path.read_text()


def section(document: str, heading: str) -> str:
    """The text below a heading `## ...`, up to the next one."""
    [text] = re.findall(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", read(document), flags=re.DOTALL | re.MULTILINE)
    return str(text)


def blocks(text: str, language: str) -> list[str]:
    """The code in fences of one language."""
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def commands(text: str, start: str = "hyperproto") -> list[list[str]]:
    """Commands in indented lines that begin with `start`, as arguments."""
    lines = re.sub(r"```.*?```", "", text, flags=re.DOTALL).replace("\\\n", " ").splitlines()
    own = [line.strip().partition("  #")[0] for line in lines if line.startswith("    ")]
    return [shlex.split(line)[1:] for line in own if line.startswith(start)]


def tables(text: str) -> list[list[list[str]]]:
    """Tables as rows of cells, the head first."""
    found = re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE)
    rows = [[[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()] for table in found]
    return [[head, *body] for head, _, *body in rows]


def run(code: str, names: dict[str, Any] | None = None) -> dict[str, Any]:
    """Run code as a script; what it defines comes back."""
    names = {"__name__": "example"} if names is None else names
    exec(code, names)
    return names


def run_saying(code: str, printed: Any, names: dict[str, Any] | None = None) -> dict[str, Any]:
    """Run code that says in comments what it prints; `printed` is pytest's capsys."""
    names = run(code, names)
    assert printed.readouterr().out == "".join(f"{said}\n" for said in re.findall(r"print\(.*\)  # (.*)", code))
    return names


def done(arguments: list[str], *more: str, said: str | None = None) -> str:
    """Run a command of the command line; return what it printed."""
    result = CliRunner().invoke(app, [*arguments, *more], input=said, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout
