"""The formulas that the library is held to, as plain NumPy files beside the data; skipped where they are not."""

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest


def reference(name: str, replaced: tuple[str, str] | None = None) -> ModuleType:
    """Load reference/NAME.py, with one string replaced by another if asked for."""
    data = os.environ.get("HYPERPROTO_DATA")
    path = Path(data).parent / "reference" / f"{name}.py" if data else Path()
    if not path.is_file():
        pytest.skip(f"no reference/{name}.py beside the folder that HYPERPROTO_DATA names")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    source = path.read_text()
    sys.path.insert(0, str(path.parent))  # one imports another
    try:
        exec(compile(source if replaced is None else source.replace(*replaced), path, "exec"), vars(module))
    finally:
        sys.path.remove(str(path.parent))
    return module
