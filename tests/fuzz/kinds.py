"""The register of kinds: a name, how a case of it is made, what it covers, and its share of all inputs."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.fuzz.inputs import Samples
from tests.fuzz.judge import Trial

Maker = Callable[[Random, Path, Samples], Trial]


@dataclass(frozen=True)
class Kind:
    """A kind of cases."""

    name: str
    make: Maker
    covers: tuple[str, ...]  # names of `hyperproto`, methods, readers, `data NAME`
    share: int  # of all inputs, in parts

    def trial(self, number: int, folder: Path, samples: Samples) -> Trial:
        """Case `number`: its input is written below `folder`, and is the same each time."""
        return self.make(case_random(self.name, number), folder, samples)


KINDS: dict[str, Kind] = {}
_seed = ""  # before the name of each case; "" are the cases that the tests run


def set_seed(seed: int | None) -> None:
    """Draw other cases from now on; None: those that the tests run."""
    global _seed
    _seed = "" if seed is None else f"{seed}:"


def case_random(name: str, number: int) -> Random:
    """Return the random numbers of a case: the same each time for one seed."""
    return Random(f"{_seed}{name}:{number}")


def kind(name: str, *covers: str, share: int = 10) -> Callable[[Maker], Maker]:
    """Register the maker of a kind."""

    def register(make: Maker) -> Maker:
        KINDS[name] = Kind(name, make, covers, share)
        return make

    return register


def write_files(folder: Path, files: dict[str, bytes]) -> Path:
    """Write files below a folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def all_kinds() -> dict[str, Kind]:
    """Every kind, with the modules imported that register them."""
    from tests.fuzz import caches, calls, commands, data_sets, saved, tables, vectors  # noqa: F401 - they register

    return KINDS
