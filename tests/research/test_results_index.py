"""results/README.md lists every file of results/, and nothing else; pages are short."""

import re
from fnmatch import fnmatch

from tests.docs.markdown import ROOT

RESULTS = ROOT / "results"
LONGEST = 400  # lines of a page


def listed() -> dict[str, list[str]]:
    """Patterns of file names in the first columns of the index, by folder."""
    found: dict[str, list[str]] = {}
    for part in (RESULTS / "README.md").read_text().split("\n## ")[1:]:
        cells = re.findall(r"^\| (`[^|]*) \|", part, flags=re.MULTILINE)
        found[part.partition("\n")[0]] = [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]
    return found


def test_the_index_lists_every_file_and_no_other() -> None:
    patterns = listed()
    assert set(patterns) == {path.name for path in RESULTS.iterdir() if path.is_dir()}
    for folder, own in patterns.items():
        files = [path.name for path in (RESULTS / folder).iterdir() if not path.name.startswith(".")]
        assert [name for name in files if not any(fnmatch(name, pattern) for pattern in own)] == [], folder
        assert [pattern for pattern in own if not any(fnmatch(name, pattern) for name in files)] == [], folder


def test_a_file_name_is_used_once() -> None:
    names = [path.name for path in RESULTS.glob("*/*")]
    assert sorted(set(names)) == sorted(names)


def test_no_page_is_long() -> None:
    lengths = {path.name: len(path.read_text().splitlines()) for path in RESULTS.rglob("*.md")}
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST} == {}
