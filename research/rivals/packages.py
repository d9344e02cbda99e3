"""Interpreters of other packages, run as child processes."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hyperproto.errors import ConfigError
from research.rivals import worker


class Package:
    """A package in another interpreter; a context manager that starts it and ends it.

    `python` is the interpreter, `model` the folder of the encoder, `version` that of the package.
    """

    def __init__(self, name: str, python: str, model: Path) -> None:
        self.name, self.python, self.model = name, python, model

    def __enter__(self) -> Self:
        command = [self.python, worker.__file__, self.name, str(self.model)]
        with ExitStack() as stack:
            self.errors = stack.enter_context(TemporaryFile("w+"))
            pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.errors}
            try:
                self.process = stack.enter_context(subprocess.Popen(command, text=True, **pipes))
            except OSError as error:
                raise ConfigError(f"{self.python}: cannot be run ({error}); {self._install()}") from None
            stack.callback(self.process.kill)
            self.version = self._reply()
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def run_steps(
        self, steps: Sequence[Mapping[str, Any]], texts: Sequence[str], x: NDArray[np.float32]
    ) -> list[dict[str, Any]]:
        """Return what `worker.run_steps` returns in the other interpreter."""
        assert self.process.stdin is not None
        with TemporaryDirectory() as folder:
            job = Path(folder, "job.json")
            job.write_text(json.dumps({"steps": [*steps], "texts": [*texts]}))
            np.save(job.with_suffix(".npy"), x)
            self.process.stdin.write(f"{job}\n")
            self.process.stdin.flush()
            self._reply()
            with np.load(job.with_suffix(".npz")) as file:
                values = {name: file[name] for name in file.files}
        found: list[dict[str, Any]] = [{} for _ in steps]
        for key, value in values.items():
            number, _, name = key.partition(" ")
            found[int(number)][name] = value
        return found

    def _reply(self) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(worker.DONE):
                return str(line).removeprefix(worker.DONE).strip()
        self.errors.seek(0)
        last = (self.errors.read().strip().splitlines() or ["no message"])[-1]
        raise ConfigError(f"{self.name} failed in {self.python} ({last}); {self._install()}")

    def _install(self) -> str:
        name = self.name.partition(",")[0].lower()
        return (
            f"name an interpreter that has it: {Path(sys.executable).name} -m venv ENV, then ENV/bin/pip install {name}"
        )
