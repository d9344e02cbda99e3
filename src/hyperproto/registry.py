"""Names to classes, imported on first use; other packages add their own by entry point."""

import inspect
import sys
from hashlib import sha256
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, get_type_hints

from hyperproto.errors import ConfigError, unknown_name

FILLED_IN = {"feature_shape", "n_classes", "way", "shot"}  # arguments that the library gives, never the user


class Registry:
    """A table of `name -> "module:attribute"` (or "module"), one line each, extended by the entry points of `group`.

    `FILE.py:NAME` stands for what a file of that name defines. A third-party package registers with, in its own
    pyproject.toml::

        [project.entry-points."hyperproto.methods"]
        mymethod = "mypackage.mymethod:MyMethod"
    """

    def __init__(self, kind: str, group: str, entries: dict[str, str], base: str = "") -> None:
        self.kind = kind
        self.base = base  # "module:class" that every class of others must be a subclass of
        self.group = group
        self._entries: dict[str, Any] = dict(entries)

    def names(self) -> list[str]:
        """Every name that `get` accepts."""
        return sorted({*self._entries, *(point.name for point in entry_points(group=self.group))})

    def add(self, name: str, entry: Any) -> None:
        """Register `entry` (an object, or where to import it from) for this process."""
        if name in self._entries:
            raise ConfigError(f"the {self.kind} {name!r} is registered already; choose another name")
        self._entries[name] = entry

    def get(self, name: str) -> Any:
        """Return the entry called `name`, importing it now."""
        entry = self._entries.get(name)
        if entry is None and ".py:" in name:
            entry = _from_file(self.kind, name)
        elif entry is None:
            points = [point for point in entry_points(group=self.group) if point.name == name]
            if not points:
                raise ConfigError(unknown_name(self.kind, name, self.names()))
            entry = points[0].value
        if isinstance(entry, str):
            module, _, attribute = entry.partition(":")
            loaded = import_module(module)
            entry = getattr(loaded, attribute) if attribute else loaded
        if self.base and name not in self._entries:
            self._check_base(name, entry)
        return entry

    def _check_base(self, name: str, entry: Any) -> None:
        module, _, base = self.base.partition(":")
        if not (isinstance(entry, type) and issubclass(entry, getattr(import_module(module), base))):
            raise ConfigError(f"the {self.kind} {name!r} is no subclass of {module}.{base}")


def _from_file(kind: str, name: str) -> Any:
    """Import what `FILE.py:NAME` stands for; a file is imported anew when it has changed."""
    file, _, attribute = name.rpartition(":")
    path = Path(file).expanduser().resolve()
    if not path.is_file():
        raise ConfigError(f"the {kind} {name!r}: there is no file {path}")
    digest = sha256(path.read_bytes()).hexdigest()[:12]
    module_name = f"hyperproto_file_{path.stem}_{sha256(str(path).encode()).hexdigest()[:8]}_{digest}"
    if module_name not in sys.modules:
        spec = spec_from_file_location(module_name, path)
        assert spec is not None  # its name ends in .py
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


def option_problems(kind: str, name: str, cls: type, options: dict[str, Any]) -> list[str]:
    """Compare options with the keyword arguments of `cls`: unknown names and wrong types, each in words."""
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
            problems.append(f"{kind} {name!r}, option {option!r}: {value!r} will not do ({reason})")
    return problems


def keywords(cls: type) -> dict[str, Any]:
    """Keyword arguments of a class with their types; `**options` means those of its bases, too."""
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


def check_options(kind: str, name: str, cls: type, options: dict[str, Any]) -> None:
    """Raise one ConfigError that holds every problem."""
    problems = option_problems(kind, name, cls, options)
    if problems:
        raise ConfigError("\n".join(problems))
