"""Registries: names of classes that are imported on first use; other packages add theirs by entry point.

A name `FILE.py:CLASS` stands for a class in a file of code. Runs, recipes and saved models of others may hold such
names, so a file is imported only after `trust(FILE.py)`: see SECURITY.md.
"""

import ast
import inspect
import shlex
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import sha256
from importlib import import_module
from importlib.abc import InspectLoader
from importlib.metadata import entry_points
from importlib.util import module_from_spec, spec_from_file_location
from os import PathLike, fspath
from pathlib import Path
from types import CodeType
from typing import Any, Literal, get_args, get_type_hints

from hyperproto.errors import ConfigError, unknown_name
from hyperproto.files import read_bytes

Transform = Literal["none", "unit", "center-unit"]  # what may follow an encoder
TRANSFORMS: tuple[str, ...] = get_args(Transform)

Trust = str | PathLike[str] | Iterable[str | PathLike[str]] | None  # files that may be imported: one or several

_trusted: set[Path] = set()  # resolved paths, trusted until the process ends
_imports_files: ContextVar[bool] = ContextVar("imports_files", default=True)

MAKE_NAMES = {"*", "globals", "vars", "setattr", "__getattr__"}  # a module that uses one of these may define any name
FILLED_IN = {"feature_shape", "n_classes", "way", "shot"}  # arguments given by the library, not by the user

TABLES = {"encoder": "hyperproto.encoders.ENCODERS", "data set": "hyperproto.data.DATASETS"}  # for messages


class Registry:
    """A table of `name -> "module:attribute"` (or "module"), one line each, extended by the entry points of `group`.

    `FILE.py:NAME` stands for what a trusted file of that name defines. A third-party package registers with, in its own
    pyproject.toml::

        [project.entry-points."hyperproto.methods"]
        mymethod = "mypackage.mymethod:MyMethod"
    """

    def __init__(self, kind: str, group: str, entries: dict[str, str], base: str = "") -> None:
        self.kind = kind
        self.base = base  # "module:class", base class of all third-party entries
        self.group = group
        self._entries: dict[str, Any] = dict(entries)

    def names(self) -> list[str]:
        """Return every name that `get` accepts."""
        return sorted({*self._entries, *(point.name for point in entry_points(group=self.group))})

    def add(self, name: str, entry: Any) -> None:
        """Register `entry`, an object or "module:attribute", for this process."""
        if name in self._entries:
            raise ConfigError(f"the {self.kind} {name!r} is registered already; choose another name")
        self._entries[name] = entry

    def get(self, name: str) -> Any:
        """Return the entry called `name`, importing it now."""
        entry = self._entries.get(name)
        if entry is None and names_file(name):
            entry = _from_file(self.kind, name)
        elif entry is None:
            points = [point for point in entry_points(group=self.group) if point.name == name]
            if not points:
                raise ConfigError(unknown_name(self.kind, name, self.names()) + self._advice(name))
            entry = points[0].value
        if isinstance(entry, str):
            module, _, attribute = entry.partition(":")
            loaded = import_module(module)
            entry = getattr(loaded, attribute) if attribute else loaded
        if self.base and name not in self._entries:
            self._check_base(name, entry)
        return entry

    def _advice(self, name: str) -> str:
        """Return how to register a class, where a file was named."""
        if not name.endswith(".py"):
            return ""
        table = TABLES.get(self.kind)
        python = f", or in Python call {table}.add(NAME, ...) first and use that name" if table else ""
        return (
            f". Files are read as methods only (FILE.py:CLASS); register your {self.kind} by the entry point "
            f"{self.group!r} of a package{python}: see CONTRIBUTING.md"
        )

    def _check_base(self, name: str, entry: Any) -> None:
        module, _, base = self.base.partition(":")
        if not (isinstance(entry, type) and issubclass(entry, getattr(import_module(module), base))):
            raise ConfigError(f"the {self.kind} {name!r} is no subclass of {module}.{base}")


class TrustError(ConfigError):
    """File of code that the user has not allowed to be imported."""


def names_file(name: object) -> bool:
    """Return whether a name has the form `FILE.py:CLASS`."""
    return isinstance(name, str) and ".py:" in name


def trust(files: Trust) -> None:
    """Allow this process to import these files; `FILE.py:CLASS` stands for its file. Paths are resolved."""
    several = [files] if isinstance(files, str | PathLike) else files or ()
    given = list(several) if isinstance(several, Iterable) else [several]
    if not all(isinstance(one, str | PathLike) for one in given):
        raise ConfigError(f"trust = {files!r:.60}: name a file, or a list of files")
    for one in given:
        name = fspath(one)
        file = name.rpartition(":")[0] if names_file(name) else name
        path = _path_of(file)
        if not file.endswith(".py"):
            raise ConfigError(f"--trust {name}: not a .py file; name the file that may be imported")
        if not path.is_file():
            raise ConfigError(f"--trust {name}: there is no file {path}; check the path")
        _trusted.add(path)


def trust_names(names: Iterable[object]) -> None:
    """Trust the files among names that the user gave as arguments; names of other forms are ignored."""
    files = [str(name).rpartition(":")[0] for name in names if names_file(name)]
    trust([file for file in files if _path_of(file).is_file()])  # a missing file is reported where it is used


def trusted_files() -> list[str]:
    """Return the trusted files, for a process that continues the work of this one."""
    return sorted(map(str, _trusted))


@contextmanager
def without_files() -> Iterator[None]:
    """Import no user file inside this block, trusted or not: for code that opens runs which the user did not name."""
    token = _imports_files.set(False)
    try:
        yield
    finally:
        _imports_files.reset(token)


def _path_of(file: str) -> Path:
    try:
        return Path(file).expanduser().resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigError(f"{file!r}: not the name of a file ({error}); check the path") from None


def _from_file(kind: str, name: str) -> Any:
    """Import the object `FILE.py:NAME` if the file is trusted; a changed file is imported again.

    The bytes that are checked are those that run: compiled files (`__pycache__`) are neither read nor written.
    """
    file, _, attribute = name.rpartition(":")
    path = _path_of(file)
    if not file.endswith(".py") or not path.is_file():
        raise ConfigError(f"the {kind} {name!r}: there is no file {path}")
    if not _imports_files.get():
        raise TrustError(
            f"the {kind} {name!r} is code in {path}, which is not imported here; measure the run by itself, with "
            f"`hyperproto evaluate --run ... --trust {shlex.quote(file)}`"
        )
    if path not in _trusted:
        raise TrustError(
            f"the {kind} {name!r} is code in {path}, which would run; read it and, if you trust it, add "
            f"--trust {shlex.quote(file)} (in Python: trust={file!r})"
        )
    source = read_bytes(path, error=ConfigError)
    digest = sha256(source).hexdigest()[:12]
    module_name = f"hyperproto_file_{path.stem}_{sha256(str(path).encode()).hexdigest()[:8]}_{digest}"
    if module_name not in sys.modules:
        _check_defines(kind, name, path, source, attribute)
        spec = spec_from_file_location(module_name, path, loader=_SourceLoader(path, source))
        assert spec is not None  # it has a loader
        assert spec.loader is not None
        sys.modules[module_name] = module = module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except (Exception, SystemExit) as error:
            del sys.modules[module_name]
            raise ConfigError(f"the {kind} {name!r}: {path} cannot be imported ({error!r})") from error
    loaded = sys.modules[module_name]
    if not hasattr(loaded, attribute):
        own = [key for key, value in vars(loaded).items() if getattr(value, "__module__", None) == module_name]
        raise ConfigError(f"the {kind} {name!r}: {path.name}: {unknown_name('name', attribute, own)}")
    return getattr(loaded, attribute)


class _SourceLoader(InspectLoader):
    """Loader of a module from bytes that were read before."""

    def __init__(self, path: Path, source: bytes) -> None:
        self.path, self.source = path, source

    def get_code(self, fullname: str) -> CodeType:
        """Compile the source."""
        return self.source_to_code(self.source, str(self.path))

    def get_source(self, fullname: str) -> str:
        """Return the source as text."""
        return self.source.decode(errors="replace")


def _check_defines(kind: str, name: str, path: Path, source: bytes, attribute: str) -> None:
    """Refuse a file that is no Python, or that does not define the name, before it runs.

    Files that may define names while they run (`from x import *`, `globals()`) are checked after the import.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ConfigError(f"the {kind} {name!r}: {path} cannot be imported ({error!r})") from None
    bound, classes = set(), []
    nodes: list[ast.AST] = [tree]
    while nodes:  # statements of the module, not those inside classes and functions
        node = nodes.pop()
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            bound.add(node.name)
            classes += [node.name] if isinstance(node, ast.ClassDef) else []
            continue
        if isinstance(node, ast.alias):
            bound.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.Name) and (isinstance(node.ctx, ast.Store) or node.id in MAKE_NAMES):
            bound.add(node.id)
        nodes += ast.iter_child_nodes(node)
    if attribute not in bound and not bound & MAKE_NAMES:
        raise ConfigError(f"the {kind} {name!r}: {path.name}: {unknown_name('name', attribute, classes)}")


def option_problems(kind: str, name: str, cls: type, options: dict[str, Any]) -> list[str]:
    """Return a message for each option that is no keyword argument of `cls`, or of the wrong type."""
    from pydantic import ConfigDict, TypeAdapter, ValidationError

    known = keywords(cls)
    problems = []
    for option, value in options.items():
        if option not in known:
            problems.append(unknown_name(f"option of {kind} {name!r} called", option, known.keys() - FILLED_IN))
            continue
        try:
            TypeAdapter(known[option], config=ConfigDict(strict=True)).validate_python(value)
        except ValidationError as error:
            reason = error.errors()[0]["msg"]
            problems.append(f"{kind} {name!r}, option {option!r}: {value!r} is not valid ({reason})")
    return problems


def keywords(cls: type) -> dict[str, Any]:
    """Return the keyword arguments of a class with their types, including those of bases that `**options` passes on."""
    found: dict[str, Any] = {}
    for base in (base for base in cls.__mro__ if "__init__" in vars(base)):
        init = vars(base)["__init__"]
        parameters = inspect.signature(init).parameters.values()
        hints = get_type_hints(init)
        found |= {
            p.name: hints.get(p.name, Any) for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in found
        }
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break
    return found


def defaults(cls: type) -> dict[str, Any]:
    """Return the keyword arguments of a class that have a default, as `keywords` finds them."""
    found: dict[str, Any] = {}
    for base in (base for base in cls.__mro__ if "__init__" in vars(base)):
        for p in inspect.signature(vars(base)["__init__"]).parameters.values():
            if p.kind is p.KEYWORD_ONLY and p.default is not p.empty:
                found.setdefault(p.name, p.default)
    return {name: value for name, value in found.items() if name in keywords(cls)}


def check_options(kind: str, name: str, cls: type, options: dict[str, Any]) -> None:
    """Raise one ConfigError with all messages of `option_problems`."""
    problems = option_problems(kind, name, cls, options)
    if problems:
        raise ConfigError("\n".join(problems))
