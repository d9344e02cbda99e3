"""Every option is declared once: functions, commands and samplers follow the declaration."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import hyperproto
from hyperproto import ConfigError, EpisodeError, EpisodeSampler, Pool
from hyperproto.cli import app
from hyperproto.cli.options import with_options
from hyperproto.comparison.measure import Tasks
from hyperproto.options import (
    CompareOptions,
    EpisodeOptions,
    EvaluateOptions,
    FigureOptions,
    Option,
    ReproduceOptions,
    SamplerOptions,
    SelectionOptions,
    TrainingSamplerOptions,
    changed,
    complete,
    declared,
    only,
)
from hyperproto.problems.classification import Classification

DECLARATIONS: dict[str, type] = {
    "compare": CompareOptions,
    "evaluate": EvaluateOptions,
    "figure": FigureOptions,
    "fit_tagger": SelectionOptions,
    "reproduce": ReproduceOptions,
    "submit": SelectionOptions,
    "tag": SelectionOptions,
}


@pytest.fixture
def data(tmp_path: Path) -> str:
    x = np.random.default_rng(0).normal(size=(120, 4)) + np.repeat(np.arange(6), 20)[:, None]
    np.savez(tmp_path / "own.npz", x=x, y=np.repeat(list("abcdef"), 20))
    return f"vectors:{tmp_path / 'own.npz'}"


@pytest.mark.parametrize("name", DECLARATIONS)
def test_functions_and_commands_have_the_options_that_are_declared(name: str) -> None:
    function = getattr(hyperproto, name)
    parameters = inspect.signature(function).parameters
    command: Any = typer.main.get_command(app)
    spelled = {flag: each for each in command.commands[name.replace("_", "-")].params for flag in each.opts}
    for option_name, (_, option) in declared(DECLARATIONS[name]).items():
        assert parameters[option_name].default == option.default
        assert parameters[option_name].kind is inspect.Parameter.KEYWORD_ONLY
        assert f"    {option_name} : {option.help}\n" in function.__doc__
        flags = option.flags or (f"--{option_name.replace('_', '-')}",)
        assert {*flags} <= {*spelled[flags[-1]].opts}
        if (name, option_name) != ("compare", "shot"):  # --shot is `shots` there
            assert spelled[flags[-1]].help == option.help
            assert not spelled[flags[-1]].hidden
        if option.formerly is not None:
            assert spelled[f"--{option.formerly}"].hidden


def test_a_new_option_takes_its_declaration_and_the_sampler_that_uses_it(
    data: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = Annotated[int, Option(0, "Leave out so many of the first classes.", least=0)]
    for declaration in (SamplerOptions, TrainingSamplerOptions, EpisodeOptions, EvaluateOptions, CompareOptions):
        monkeypatch.setitem(declaration.__annotations__, "without_first", new)
    asked = []

    def sampler(self: Classification, pool: Pool, **settings: Any) -> EpisodeSampler:
        asked.append(settings.pop("without_first", 0))
        return EpisodeSampler(pool, **settings)

    monkeypatch.setattr(Classification, "sampler", sampler)
    given: dict[str, Any] = {"encoder": "identity", "split": "all", "episodes": 2}
    result = hyperproto.evaluate(data, method="cosine", **{**given, "without_first": 2})
    assert result.settings["without_first"] == 2
    hyperproto.compare(data, methods="cosine", **{**given, "without_first": 3})
    hyperproto.evaluate(data, method="cosine", **given)
    assert asked == [2, 3, 0]

    program = typer.Typer()
    found: dict[str, Any] = {}

    @program.command()
    @with_options(EvaluateOptions)
    def measure(**settings: Any) -> None:
        found.update(settings)

    shown = CliRunner().invoke(program, ["--help"], env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert "--without-first" in shown.output
    assert "Leave out so many of the first classes." in shown.output
    assert CliRunner().invoke(program, ["--without-first", "4"]).exit_code == 0
    assert found["without_first"] == 4
    assert CliRunner().invoke(program, ["--without-first", "-1"]).exit_code == 2


def test_former_names_are_accepted(data: str) -> None:
    given: dict[str, Any] = {"encoder": "identity", "split": "all", "way": 4, "query": 3, "episodes": 3}
    new = hyperproto.evaluate(data, method="hyperproto", evidence="unlabelled", unlabelled=2, distractors=5, **given)
    former: dict[str, Any] = {"know": "unlabelled", "strangers": 5}
    old = hyperproto.evaluate(data, method="hyperproto", unlabelled=2, **former, **given)
    assert (new.settings["knows"], new.settings["strangers"]) == ("unlabelled", 5)  # as files of results have it
    assert old.settings == new.settings
    assert np.array_equal(old.values, new.values)
    with pytest.raises(TypeError, match="'know' is the former name of 'evidence'; give one of them"):
        hyperproto.evaluate(data, evidence="names", **former, **given)
    with pytest.raises(TypeError, match=r"unexpected option 'wey': .* did you mean 'way'"):
        hyperproto.evaluate(data, **{**given, "wey": 3})
    pool = Pool(np.zeros((60, 2)), np.repeat(np.arange(6), 10), tuple("abcdef"))
    sampled: Callable[..., Any] = EpisodeSampler
    assert sampled(pool, way=2, shot=1, query=1, strangers=3).distractors == 3


def test_former_names_are_accepted_on_the_command_line(data: str) -> None:
    common = ["evaluate", "--data", data, "--encoder", "identity", "--method", "hyperproto", "--split", "all"]
    common += ["--episodes", "2", "--query", "2", "--way", "4", "--json", "-", "--unlabelled", "2"]
    run = CliRunner().invoke
    old = run(app, [*common, "--know", "unlabelled", "--strangers", "3"])
    new = run(app, [*common, "--evidence", "unlabelled", "--distractors", "3"])
    assert old.exit_code == new.exit_code == 0, old.output
    same = [line for line in old.output.splitlines() if '"seconds' not in line and '"command"' not in line]
    assert same == [line for line in new.output.splitlines() if '"seconds' not in line and '"command"' not in line]
    both = run(app, [*common, "--know", "unlabelled", "--evidence", "names"])
    assert both.exit_code == 2
    assert "--know is the former name of --evidence" in " ".join(both.output.split())


def test_settings_are_completed_and_compared_with_their_defaults() -> None:
    settings = complete(EpisodeOptions, {"way": 3, "nota_share": 0.5})
    assert (settings["way"], settings["seed"], settings["shot"]) == (3, 0, None)
    assert changed(SamplerOptions, settings) == {"way": 3, "nota_share": 0.5}
    assert "split" not in only(SamplerOptions, settings)
    assert Tasks("glyphs", shot=[1, 2]).shots == [(1, 2)]
    with pytest.raises(ConfigError, match="shot = 1 and shots = 5: give one of them"):
        hyperproto.compare("glyphs", encoder="identity", methods="cosine", shot=1, shots=5)


def test_samplers_refuse_options_that_they_have_no_use_for() -> None:
    pool = Pool(np.zeros((60, 2)), np.repeat(np.arange(6), 10), tuple("abcdef"))
    with pytest.raises(EpisodeError, match="rule: not for N-way K-shot episodes"):
        EpisodeSampler(pool, way=2, rule="toolkit")
    with pytest.raises(TypeError, match="unexpected option 'split'"):
        EpisodeSampler(pool, way=2, split="test")  # type: ignore[call-arg]
