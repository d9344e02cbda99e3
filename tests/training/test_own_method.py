"""A method of one's own, in a file: a graph network with attention, for a fixed way and shot, trained and evaluated."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from hyperproto.cli import app
from hyperproto.comparison.measure import evaluate_candidates, select
from hyperproto.data import Pool, open_pool
from hyperproto.episodes import EpisodeSampler
from hyperproto.errors import ConfigError
from hyperproto.methods import METHODS, make_method
from hyperproto.registry import trust
from hyperproto.training import Learner, Report, Run, load_recipe, train
from hyperproto.training.resolve import resolve
from hyperproto.training.sources import encoder_source, run_source
from tests.helpers.tiny_models import tiny_bert

METHOD = """
import torch
from torch import nn

from hyperproto.methods import Group, Method


class Graph(Method):
    '''Attention from a query to the support and itself, then a layer for as many classes as training has.'''

    def __init__(self, *, heads: int = 4, **options):
        super().__init__(**options)
        [dim] = self.feature_shape
        self.attention = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.head = nn.Linear(dim, self.way)
        self.scale = nn.Parameter(torch.tensor(1.0))

    def scores(self, task):
        batch, queries = task.query.shape[:2]
        query = task.query.reshape(batch * queries, 1, -1)
        nodes = torch.cat([query, task.support.repeat_interleave(queries, 0)], 1)
        return self.scale * self.head(self.attention(query, nodes, nodes)[0]).view(batch, queries, -1)

    def param_groups(self):
        return {"head": Group([*self.attention.parameters(), *self.head.parameters()]), "scale": Group([self.scale])}


def not_a_method():
    pass
"""
RECIPE = """
data = {{ spec = "vectors:{data}" }}
encoder = {{ name = "tiny", size = 8 }}
method = {{ name = "{method}:Graph", heads = 2 }}
episodes = {{ way = 4, shot = 3, query = 4 }}
optim.encoder = {{ lr = 0.01 }}
optim.head = {{ name = "adamw", lr = 0.01, weight_decay = 0.1, clip_each = 1.0 }}
optim.scale = {{ name = "sgd", lr = 0.1, momentum = 0.9 }}
[training]
steps = 12
validate_every = 6
checkpoint_every = 5
[validation]
way = 4
shot = 3
query = 5
episodes = 10
"""


@pytest.fixture
def method(tmp_path: Path) -> str:
    path = tmp_path / "gnn.py"
    path.write_text(METHOD)
    trust(path)
    return str(path)


@pytest.fixture
def recipe(vectors_file: Path, method: str) -> str:
    path = vectors_file.with_name("gnn.toml")
    path.write_text(RECIPE.format(data=vectors_file, method=method))
    return str(path)


def test_it_trains_with_groups_of_its_own_resumes_and_is_evaluated(recipe: str, tmp_path: Path) -> None:
    class KilledError(Exception):
        pass

    def kill(report: Report) -> None:
        if report.step == 8:
            raise KilledError

    with pytest.raises(KilledError):
        train(load_recipe(recipe), tmp_path / "cut", kill)
    runs = [train(load_recipe(recipe), tmp_path / name) for name in ("cut", "whole")]
    weights = [run.load()[0].state_dict() for run in runs]
    assert all((weights[0][key] == weights[1][key]).all() for key in weights[0])
    learner, resolved = runs[0].load()
    assert (learner.method.way, learner.method.shot) == (4, 3)
    assert (resolved.method.options["way"], resolved.method.options["shot"]) == (4, 3)
    assert learner.method.state_dict()["scale"] != 1.0  # the learned number, under its own optimiser
    pool = open_pool(resolved.data.spec, "test")
    [candidate] = select([run_source(str(runs[0].folder), pool)], [], [], [], {})
    episodes = EpisodeSampler(pool, way=4, shot=3, query=5).draw(5)
    [result] = evaluate_candidates([candidate], pool, episodes, {})
    assert result.settings["method"].endswith("gnn.py:Graph")


def test_another_way_or_shot_is_refused_before_any_work(recipe: str, tmp_path: Path) -> None:
    folder = train(load_recipe(recipe), tmp_path / "run").folder
    pool = open_pool(load_recipe(recipe).data.spec, "test")
    candidates = select([run_source(str(folder), pool)], [], [], [], {})
    cases: list[tuple[int, int | list[int], str]] = [
        (3, 3, "Graph was trained with 4 classes an episode and serves no other number, but these have 3; evaluate it "
               "4-way, or train it 3-way"),
        (4, 1, "Graph was trained with 3 shots and serves no other number, but these episodes have 1"),
        (4, [3, 3, 3, 2], "these episodes have 2, 3"),
    ]  # fmt: skip
    for way, shot, words in cases:
        with pytest.raises(ConfigError, match=words):
            evaluate_candidates(candidates, pool, EpisodeSampler(pool, way=way, shot=shot, query=2).draw(2), {})


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("validation.way=5", "validation.way = 5: .*Graph serves no other way than that of its training, 4"),
        ("validation.shot=1", "validation.shot = 1: .*Graph serves no other shot than that of its training, 3"),
        ("method.way=6", r"method.way = 6: .*Graph takes it from \[episodes\], way = 4; leave it out"),
        ("optim.head.dense=true", "optim.head: dense = true is for tables of rows; head is none: leave it out"),
        ("optim.haed={lr=1.0}", "there is no optimiser section 'haed'; did you mean 'head'"),
        ("method.haeds=2", "called 'haeds'; did you mean 'heads'"),
    ],
)
def test_a_recipe_must_agree_with_its_method(override: str, words: str, recipe: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load_recipe(recipe, [override])


def test_a_shape_that_does_not_fit_is_said_once_the_data_are_known(recipe: str, tmp_path: Path) -> None:
    loaded = load_recipe(recipe, ["method.heads=3"])  # three heads do not divide eight
    with pytest.raises(ConfigError, match=r"gnn.py:Graph' cannot be made for units of shape \(8,\) with .*divisible"):
        train(loaded, tmp_path / "run")
    assert not Run(tmp_path / "run").config.exists()
    resolved = resolve(load_recipe(recipe), open_pool(loaded.data.spec, "train"))
    assert Learner.build(resolved, 8).method.feature_shape == (8,)


def test_files_and_names_that_are_not_there_are_said(method: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the method 'no.py:Graph': there is no file .*no.py"):
        METHODS.get("no.py:Graph")
    with pytest.raises(ConfigError, match=r"gnn.py: there is no name 'Grph'; did you mean 'Graph'"):
        METHODS.get(f"{method}:Grph")
    with pytest.raises(ConfigError, match=r"gnn.py:not_a_method' is no subclass of hyperproto.methods.Method"):
        make_method(f"{method}:not_a_method", feature_shape=(6,))
    broken = tmp_path / "broken.py"
    broken.write_text("import no_such_module\nclass Method: pass\n")
    trust(broken)
    with pytest.raises(ConfigError, match=r"broken.py cannot be imported .*no_such_module"):
        METHODS.get(f"{broken}:Method")


def test_a_file_that_changed_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    for number in (1, 2):
        path.write_text(f"from hyperproto.methods import Method\nclass Mine(Method):\n    number = {number}\n")
        trust(path)
        assert METHODS.get(f"{path}:Mine").number == number
        assert METHODS.get(f"{path}:Mine") is METHODS.get(f"{path}:Mine")


def test_the_command_line_takes_a_file(vectors_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "nearest_mean.py"
    path.write_text(
        "from hyperproto.methods.protonet import ProtoNet\n\n\nclass Mine(ProtoNet):\n    '''Prototypes of my own.'''\n"
    )
    out = tmp_path / "found.json"
    command = ["evaluate", "--encoder", "identity", "--data", f"vectors:{vectors_file}", "--split", "test", "--method",
               f"{path}:Mine", "--episodes", "20", "--json", str(out)]  # fmt: skip
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    found = json.loads(out.read_text())
    assert found["method"].endswith("nearest_mean.py:Mine")
    assert found["accuracy"] > 0.5


def test_random_weights_are_asked_for_by_name() -> None:
    glyphs = open_pool("glyphs", "test")
    with pytest.raises(ConfigError, match=r"encoder 'conv4' comes without trained weights; train it and name the run "
                                          r"\(--run FOLDER\), or write conv4:random to see"):  # fmt: skip
        encoder_source("conv4", glyphs)
    source = encoder_source("conv4:random", glyphs)
    assert source.settings["encoder"] == "conv4:random"
    again = encoder_source("conv4:random", glyphs)
    for one, other in zip(source.encoder.parameters(), again.encoder.parameters(), strict=True):
        assert np.array_equal(one.detach().numpy(), other.detach().numpy())
    assert encoder_source("identity", glyphs).settings["encoder"] == "identity"


def test_options_of_an_encoder_follow_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    glyphs = open_pool("glyphs", "test")
    source = encoder_source("conv4:random,filters=8,last_relu=false", glyphs)
    assert source.settings["encoder"] == "conv4:random,filters=8,last_relu=false"
    assert source.encoder.made_from is not None
    assert source.encoder.made_from[1].items() >= {"filters": 8, "last_relu": False}.items()
    with pytest.raises(ConfigError, match=r"no option of encoder 'conv4' called 'filter'; did you mean 'filters'"):
        encoder_source("conv4:random,filter=8", glyphs)
    with pytest.raises(ConfigError, match=r"encoder 'conv4', option 'filters': 'many' is not valid"):
        encoder_source("conv4,filters=many", glyphs)
    monkeypatch.chdir(tmp_path)
    odd = "bert,max_length=9"
    tiny_bert(tmp_path / odd)  # a folder's own name may look like an option
    texts = Pool(["one text", "two"], np.arange(2), ("a", "b"))
    for spec, length in ((f"sentence-transformer:{odd}", None), (f"sentence-transformer:{odd},max_length=12", 12)):
        made = encoder_source(spec, texts, texts).encoder.made_from
        assert made is not None
        assert made[1]["model"] == odd
        assert made[1].get("max_length") == length
