"""What may come of a hostile input, and what came of one.

A case ends well with a result, or with an error of ours in one paragraph. Everything else is a finding: another
exception, a hang, a file that was changed or left behind on an error, a damaged file that was used without a word.
"""

import hashlib
import math
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hyperproto.errors import HyperProtoError

HANG = 30  # seconds
LONGEST = 5_000  # characters of a message: what a terminal of 60 lines shows

Verdict = Literal["result", "refused", "traceback", "hang", "lost", "silent", "unclear"]
VERDICTS: tuple[Verdict, ...] = ("result", "refused", "traceback", "hang", "lost", "silent", "unclear")
GOOD = ("result", "refused")


class Hang(BaseException):
    """A case took too long; no handler of ours may catch it."""


class Enough(Exception):  # noqa: N818 - it ends a case well
    """Raised by a case itself: what was to be seen has been seen."""


class Silent(Exception):  # noqa: N818 - a verdict
    """Raised by a case whose answer is wrong without a word."""


@dataclass(frozen=True)
class Outcome:
    """What came of a case; `cause` is the same for all cases that fail at the same place."""

    verdict: Verdict
    cause: str = ""
    detail: str = ""

    @property
    def good(self) -> bool:
        return self.verdict in GOOD


class BadEnd(Exception):  # noqa: N818 - a verdict
    """Raised by a case that has judged itself."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.cause)
        self.outcome = outcome


@dataclass
class Trial:
    """A case that is ready to run: `run` calls the code under test and raises `Silent` if its answer is wrong."""

    run: Callable[[], Any]
    allowed: tuple[type[Exception], ...] = ()  # beside errors of ours: what scikit-learn's contract has
    may_write: tuple[str, ...] = ()  # names at the top of the folder that may change also on an error
    words: str = ""  # what the input is, for a report


def snapshot(folder: Path, besides: tuple[str, ...] = ()) -> dict[str, str]:
    """Return a digest of every file below a folder, except caches, locks and files that may be written."""
    found = {}
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        top = name.partition("/")[0]
        if top in ("cache", *besides) or path.name == ".lock" or not path.is_file() or path.is_symlink():
            continue
        found[name] = hashlib.md5(path.read_bytes()).hexdigest()
    return found


def judge(trial: Trial, folder: Path, seconds: int = HANG) -> Outcome:
    """Run a case in its folder and say what came of it."""
    before = snapshot(folder, trial.may_write)
    try:
        with time_limit(seconds), warnings.catch_warnings(), chdir(folder):  # names without a folder are below it too
            warnings.simplefilter("ignore")
            trial.run()
        outcome = Outcome("result")
    except Enough:
        outcome = Outcome("result")
    except Hang:
        return Outcome("hang", f"more than {seconds} s: {trial.words}", traceback.format_exc())
    except BadEnd as error:
        outcome = error.outcome
    except Silent as error:
        outcome = Outcome("silent", str(error), traceback.format_exc())
    except HyperProtoError as error:
        outcome = _refused(error)
    except trial.allowed as error:
        outcome = _refused(error) if _in_words(error) else Outcome("traceback", cause_of(error), traceback.format_exc())
    except Exception as error:
        outcome = Outcome("traceback", cause_of(error), traceback.format_exc())
    if not outcome.good:
        return outcome
    return _looked_after(folder, before, trial, outcome)


def _refused(error: Exception) -> Outcome:
    problem = unclear(str(error))
    if problem:
        return Outcome("unclear", f"{problem}: {place_of(error)}", traceback.format_exc())
    return Outcome("refused", detail=str(error))


def unclear(message: str) -> str:
    """Say what keeps a message from being a paragraph that a user can read; empty if nothing does."""
    if not message.strip():
        return "an error without a message"
    if "\n\n" in message.strip():
        return "a message of several paragraphs"
    if len(message) > LONGEST:
        return f"a message of more than {LONGEST} characters"
    if "Traceback (most recent call last)" in message:
        return "a message that holds a traceback"
    return ""


def _in_words(error: Exception) -> bool:
    """Whether a ValueError or a TypeError was raised by a check, not by an operation that failed inside NumPy."""
    text = str(error)
    inner = (
        "operands could not be broadcast", "inhomogeneous", "unsupported operand", "object is not", "has no attribute",
        "zero-size array", "matmul:", "not supported between instances", "unexpected keyword", "object has no",
        "ufunc ", "must be real number", "index out of", "argument must be",
    )  # fmt: skip
    return not any(part in text for part in inner) or _raised_by_sklearn(error)


def _raised_by_sklearn(error: BaseException) -> bool:
    """Whether scikit-learn's own checks raised it, or what they call: those words are its own."""
    frames = traceback.extract_tb(error.__traceback__)
    return any("/sklearn/utils/" in frame.filename for frame in frames)


def cause_of(error: BaseException) -> str:
    """Return the type of an exception and the last line of our code in its traceback."""
    return f"{type(error).__name__} {place_of(error)}"


def place_of(error: BaseException) -> str:
    ours = [f for f in traceback.extract_tb(error.__traceback__) if "/hyperproto/" in f.filename]
    if not ours:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{Path(last.filename).name} {last.name}"
    return f"{ours[-1].filename.rpartition('/hyperproto/')[2]} {ours[-1].name}"


def _looked_after(folder: Path, before: dict[str, str], trial: Trial, outcome: Outcome) -> Outcome:
    """Look for drafts and, after an error, for files that changed."""
    drafts = [path for path in folder.rglob(".*.tmp") if path.is_file()]
    if drafts:
        return Outcome("lost", f"a draft is left: {trial.words}", str(drafts[0]))
    if outcome.verdict == "refused":
        after = snapshot(folder, trial.may_write)
        changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
        if changed:
            return Outcome("lost", f"an error changed files: {trial.words}", f"{changed[:5]} {outcome.detail}")
    return outcome


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Raise `Hang` after so many seconds; only in a main thread."""

    def stop(*_: object) -> None:
        raise Hang

    old = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)


def check_probabilities(found: Any, where: str) -> None:
    """Each row of probabilities is finite, between 0 and 1, and sums to 1."""
    values = np.asarray(found, dtype=np.float64)
    if not np.isfinite(values).all():
        raise Silent(f"{where}: probabilities hold NaN")
    if values.size and (values.min() < 0 or values.max() > 1 + 1e-6 or abs(values.sum(-1) - 1).max() > 1e-3):
        raise Silent(f"{where}: probabilities do not sum to 1")


def check_finite(found: Any, where: str) -> None:
    """Numbers that are reported are finite."""
    if not np.isfinite(np.asarray(found, dtype=np.float64)).all():
        raise Silent(f"{where}: not finite")


def same(found: Any, expected: Any) -> bool:
    """Whether two answers are equal, array by array; NaN equals NaN."""
    if isinstance(expected, dict):
        return (
            isinstance(found, dict)
            and found.keys() == expected.keys()
            and all(same(found[key], value) for key, value in expected.items())
        )
    if isinstance(expected, list | tuple):
        return (
            isinstance(found, list | tuple)
            and len(found) == len(expected)
            and all(same(a, b) for a, b in zip(found, expected, strict=True))
        )
    if isinstance(expected, np.ndarray):
        return isinstance(found, np.ndarray) and found.dtype == expected.dtype and np.array_equal(found, expected)
    if isinstance(expected, float) and isinstance(found, float) and math.isnan(expected):
        return math.isnan(found)
    return bool(found == expected)
