"""The page of a run: the command and every resolved setting stand on it."""

from pathlib import Path

import pytest

from hyperproto.reports.run_page import write_run_page
from hyperproto.training import load_recipe, train
from tests.training.conftest import TINY

RECIPE = """
encoder = {{ name = "tiny" }}
method = {{ name = "hyperproto", centers = "episode" }}
episodes = {{ way = 4, shot = 3, query = 4 }}
optim.encoder = {{ lr = 0.01 }}
optim.radius = {{ lr = 1.0 }}
training = {{ steps = 6, validate_every = 3, log_every = 3 }}
validation = {{ way = 4, shot = 2, query = 5, episodes = 10 }}
name = "mine"
description = "a description"
[data]
spec = "vectors:{data}"
"""


@pytest.fixture(autouse=True)
def tiny() -> None:
    exec(TINY, {"__name__": "tiny"})


def test_command_and_settings_stand_on_the_page(vectors_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(RECIPE.format(data=vectors_file))
    recipe = load_recipe(str(path), ["training.seed=7"])
    run = train(recipe, tmp_path / "run")
    write_run_page(run, recipe, "hyperproto train mine.toml --out run -o 'training.seed=7'")
    html = (tmp_path / "run" / "report.html").read_text()
    assert "<code>hyperproto train mine.toml --out run -o &#39;training.seed=7&#39;</code>" in html
    settings = html.partition("<pre>")[2].partition("</pre>")[0]
    assert "seed = 7" in settings
    assert "[optim.radius]\nname = &#34;adam&#34;\nlr = 1.0" in settings
    assert "shape = [" in settings  # what follows from the data
    assert run.read_config()["data_digest"] in html
    assert html.count("<img") == 2
