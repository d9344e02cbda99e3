"""What `recipes show` prints: readable, with the published numbers, and a recipe again when it is saved."""

from pathlib import Path

import pytest

from hyperproto.errors import ConfigError
from hyperproto.recipes import builtin_recipes, read_rows
from hyperproto.reports.run_page import recipe_text
from hyperproto.training import load_recipe


@pytest.mark.parametrize("name", builtin_recipes())
def test_what_is_shown_trains_the_same_when_it_is_saved(name: str, tmp_path: Path) -> None:
    for row in read_rows(name):
        recipe = load_recipe(f"{name}:{row}", ["training.seed=3"])
        path = tmp_path / f"{row}.toml"
        path.write_text(recipe_text(f"{name}:{row}", recipe))
        assert load_recipe(str(path)) == recipe


def test_the_head_says_what_it_costs_and_should_reach() -> None:
    name = "table5:classifier-resnet18"
    lines = recipe_text(name, load_recipe(name)).splitlines()
    assert lines[0] == "# hyperproto train table5:classifier-resnet18"
    head = lines[: lines.index("")]
    assert [line.partition(" = ")[0] for line in head[1:5]] == ["name", "description", "cost", "expected"]
    assert head[5] == "# published, table5, SimpleShot, RN-18: 65.56 ± 0.70 (5-way 5-shot)"
    assert head[6] == "# above HyperProto's 63.22, though the text says that HyperProto outperforms the baselines"
    assert "[optim.encoder]" in lines
    assert "steps = 30000" in lines
    assert not [line for line in lines if "null" in line]


def test_published_numbers_of_the_columns_it_is_about() -> None:
    text = recipe_text("table3:protonet-conv4-1shot", load_recipe("table3:protonet-conv4-1shot"))
    assert "# published, table3, ProtoNet, ConvNet: 46.44 ± 0.60 (5-way 1-shot)\n" in text
    assert "63.72" not in text


def test_tables_of_ones_own(tmp_path: Path) -> None:
    common = 'paper={table="mine", method="A", backbone="B", note="smaller"}'
    recipe = load_recipe("glyphs:protonet", [common])
    assert "# published, mine, A, B (no table of the package; its file is not at hand)" in recipe_text("x", recipe)
    path = tmp_path / "mine.toml"
    path.write_text(
        '[table]\ntitle = "t"\nepisodes = 2\nquery = 1\n'
        'columns = [{ name = "c", data = "x", way = 2, shot = 1 }, { name = "d", data = "x", way = 2, shot = 1 }]\n'
        '[[published]]\nmethod = "A"\nbackbone = "B"\nnumbers = { d = [1.5, 2.25] }\nnote = "odd"\n'
    )
    assert "# published, mine, A, B: 1.50 ± 2.25 (d)\n# odd\n# smaller\n" in recipe_text(f"{path}:row", recipe)
    other = load_recipe("glyphs:protonet", ['paper={table="table3", method="Protonet", backbone="ConvNet"}'])
    with pytest.raises(ConfigError, match="did you mean 'ProtoNet, ConvNet'"):
        recipe_text("x", other)
