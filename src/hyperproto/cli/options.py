"""Options of commands: those of `hyperproto.options` as typer's, and those that several commands share."""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from hyperproto.options import Option, declared


def _json_target(value: str | None) -> str | None:
    """Refuse a target that cannot be written before the work, not after it."""
    if value is not None and value != "-" and Path(value).is_dir():
        raise typer.BadParameter(f"{value} is a folder; name a file, or - for standard output")
    return value


JsonFile = Annotated[
    str | None,
    typer.Option("--json", metavar="FILE", help="Write JSON there; - for standard output.", callback=_json_target),
]
Overrides = Annotated[
    list[str] | None, typer.Option("-o", "--override", metavar="KEY=VALUE", help="Change a setting of the recipe.")
]
Workers = Annotated[
    int | None,
    typer.Option(help="Processes that train at a time (default: two, as far as there are cores; one on a GPU)."),
]
Trust = Annotated[
    list[str] | None,
    typer.Option("--trust", metavar="FILE.py", help="Let a run, recipe or model import this file; repeatable."),
]
Data = Annotated[str, typer.Option(help="A data spec, such as glyphs or vectors:FILE.npz.")]


def with_options(declaration: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a command of a function `(own arguments, **settings: Unpack[declaration])`.

    The declared options stand between the function's required and its other arguments. Former names are accepted
    without being shown. Of two options with the same spelling, such as `shots` and `shot`, the first is taken.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        own = [each for each in inspect.signature(function).parameters.values() if each.kind is not each.VAR_KEYWORD]
        options: dict[str, Option] = {}
        shown: list[inspect.Parameter] = []
        hidden: list[inspect.Parameter] = []
        taken: set[str] = set()
        for name, (hint, option) in declared(declaration).items():
            flags = option.flags or (f"--{name.replace('_', '-')}",)
            if taken & {*flags}:
                continue
            taken |= {*flags}
            options[name] = option
            typed = hint if option.typed is None else option.typed
            info = typer.Option(*flags, help=option.help, metavar=option.metavar, min=option.least)
            shown.append(_keyword(name, option.default, Annotated[typed, info]))
            if option.formerly is not None:
                info = typer.Option(f"--{option.formerly}", hidden=True, min=option.least)
                hidden.append(_keyword(option.formerly, None, Annotated[typed | None, info]))

        def command(**values: Any) -> None:
            settings = {name: _value(name, option, values) for name, option in options.items()}
            function(**values, **settings)

        required = [each for each in own if each.default is each.empty]
        parameters = [*required, *shown, *(each for each in own if each not in required), *hidden]
        keyword = inspect.Parameter.KEYWORD_ONLY
        command.__signature__ = inspect.Signature([each.replace(kind=keyword) for each in parameters])  # type: ignore[attr-defined]
        command.__annotations__ = {each.name: each.annotation for each in parameters}
        command.__name__, command.__doc__ = function.__name__, function.__doc__
        return command

    return decorate


def _keyword(name: str, default: Any, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _value(name: str, option: Option, values: dict[str, Any]) -> Any:
    """Remove an option, or its former name, from the values of a command line and return its value in Python."""
    value = values.pop(name)
    former = None if option.formerly is None else values.pop(option.formerly)
    if former:
        if value not in (option.default, []):
            raise typer.BadParameter(
                f"--{option.formerly} is the former name of --{name}; give one of them", param_hint=f"--{name}"
            )
        value = former
    return value if option.read is None else option.read(value)


def check_one_source(settings: Mapping[str, Any]) -> None:
    """Refuse a command line without a run or an encoder, and one with both."""
    if (settings["run"] is None) == (settings["encoder"] is None):
        raise typer.BadParameter("give one of --run and --encoder", param_hint="--run")
