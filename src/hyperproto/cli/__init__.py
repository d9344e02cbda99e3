"""Entry point of the command line: signals, errors and exit codes.

| exit code | cause |
| --- | --- |
| 0 | success |
| 1 | an error that the user can fix, or a defect of hyperproto |
| 2 | wrong usage |
| 130 | Ctrl-C |
| 141 | the reader of the output closed it (`| head`) |
| 143 | SIGTERM, which cleans up as Ctrl-C does |

The commands are imported inside `main`, so that Ctrl-C is quiet from the first line on.
"""

import sys

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from typing import Any

    from hyperproto.cli.commands import app as app

INTERRUPTED, CLOSED_PIPE, TERMINATED = 130, 141, 143  # 128 plus the number of the signal, as in a shell
LONGEST = 500  # characters of a message from another library

EXTRAS = {
    "torch": "train", "PIL": "images", "pooch": "images", "requests": "images",
    "matplotlib": "plots", "transformers": "text", "pyarrow": "glove",
}  # fmt: skip


def __getattr__(name: str) -> "Any":
    if name != "app":
        raise AttributeError(f"module 'hyperproto.cli' has no attribute {name!r}")
    from hyperproto.cli.commands import app

    return app


def main() -> None:
    """Run the command line; print an error as one paragraph, with a traceback only under `--debug`."""
    debug = "--debug" in sys.argv
    sys.argv = [argument for argument in sys.argv if argument != "--debug"]
    try:
        with _CtrlC() as ctrl_c:
            try:
                code = _run()
                code = ctrl_c.code if ctrl_c.pressed else code  # typer makes 130 of every interruption
            except BaseException as error:
                ctrl_c.end_at_once()
                if debug and isinstance(error, Exception) and not ctrl_c.pressed:
                    raise
                code = ctrl_c.code if ctrl_c.pressed else _explain(error)
    except KeyboardInterrupt:
        code = INTERRUPTED
    sys.exit(code)


class _CtrlC:
    """Handlers of Ctrl-C and SIGTERM that remember the signal even where another error hides it.

    An interrupted import may end in an ImportError. In a callback an interruption is printed and lost, unless the
    signal is sent again.
    """

    def __enter__(self) -> "_CtrlC":
        import signal

        self.pressed = False
        self.code = INTERRUPTED
        self._ends = False
        self._hook = sys.unraisablehook
        try:
            self._watches = signal.getsignal(signal.SIGINT) is signal.default_int_handler
            if self._watches:  # else ignored, as in the background of a shell, or handled elsewhere
                signal.signal(signal.SIGINT, self._note)
            self._ends = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
            if self._ends:  # the default would leave drafts of files behind
                signal.signal(signal.SIGTERM, self._terminate)
        except ValueError:  # not in the main thread
            self._watches = False
        sys.unraisablehook = self._unraisable
        return self

    def __exit__(self, *_: object) -> None:
        self.end_at_once()
        sys.unraisablehook = self._hook

    def end_at_once(self) -> None:
        """Let signals end the process silently from now on, as there is nothing left to clean up."""
        import signal

        if self._watches:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        if self._ends:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _terminate(self, *_: "Any") -> None:
        self.code = TERMINATED
        self._note()

    def _note(self, *_: "Any") -> None:
        self.pressed = True
        raise KeyboardInterrupt

    def _unraisable(self, lost: "Any") -> None:
        if not issubclass(lost.exc_type, KeyboardInterrupt):
            self._hook(lost)
        elif self._watches or self.code == TERMINATED:
            import os
            import signal
            from threading import Timer

            number = signal.SIGTERM if self.code == TERMINATED else signal.SIGINT
            again = Timer(0.1, os.kill, (os.getpid(), number))  # at once it would be lost in the same way
            again.daemon = True
            again.start()


def _run() -> int:
    """Run the command, flush its output and return the exit code."""
    _prepare_streams()
    import warnings

    from hyperproto.allocator import keep_large_blocks
    from hyperproto.cli.commands import app

    keep_large_blocks()
    warnings.showwarning = _warn  # type: ignore[assignment] # without the line of code
    try:
        app(prog_name="hyperproto")
    except SystemExit as end:
        cause = end.__context__
        if isinstance(cause, OSError):  # typer turns it into an exit
            raise cause from None
        sys.stdout.flush()
        return end.code if isinstance(end.code, int) else 0
    sys.stdout.flush()
    return 0


def _prepare_streams() -> None:
    """Escape characters that a terminal cannot show, and name standard output in its errors."""
    from hyperproto.cli.terminal import escaping, naming

    sys.stdout = escaping(naming(sys.stdout, "standard output"))
    sys.stderr = escaping(sys.stderr)


def _explain(error: BaseException) -> int:
    """Print an error as one paragraph; return the exit code."""
    from contextlib import suppress

    from hyperproto.cli.terminal import drop_unwritten

    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    closed = isinstance(error, BrokenPipeError)
    if not closed:
        with suppress(OSError):  # standard error may be full or closed itself
            _complain("error", "bold red", _words(error))
    drop_unwritten(sys.stdout, sys.stderr)
    return CLOSED_PIPE if closed else 1


def _words(error: BaseException) -> str:
    from hyperproto.errors import HyperProtoError
    from hyperproto.files import os_problem

    if isinstance(error, HyperProtoError):
        return str(error)
    if isinstance(error, OSError):
        return os_problem(error)
    if isinstance(error, ModuleNotFoundError) and (extra := EXTRAS.get((error.name or "").partition(".")[0])):
        return f"this command needs {error.name}, which is not installed: pip install 'hyperproto[{extra}]'"
    message = " ".join(str(error).split())
    message = message if len(message) <= LONGEST else f"{message[:LONGEST]} ..."
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "allocate memory" in message):
        why = f" ({message})" if message else ""
        return f"there is not enough memory for this{why}; work on less at a time (fewer rows, a smaller --batch)"
    if isinstance(error, RecursionError):
        return f"a value is nested too deep ({message}); look for thousands of brackets in a file or an option"
    import shlex

    command = shlex.join(["hyperproto", *sys.argv[1:]])
    command = command if len(command) <= LONGEST else f"{command[:LONGEST]} ..."
    return (
        f"unexpected error ({type(error).__name__}{': ' if message else ''}{message}). This is a defect of hyperproto: "
        f"please report it with the command, {command}, and with the traceback that it prints when --debug is added"
    )


def _warn(message: Warning | str, *_: "Any") -> None:
    _complain("warning", "bold yellow", str(message))


def _complain(kind: str, style: str, message: str) -> None:
    from hyperproto.cli.terminal import complain

    complain(kind, style, message)
