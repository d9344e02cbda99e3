from pathlib import Path

import pytest

from hyperproto.errors import ConfigError
from hyperproto.recipes import builtin_recipes, read_rows, read_text
from hyperproto.training import load_recipe

ROWS = [f"{name}:{row}" for name in builtin_recipes() for row in read_rows(name)]


@pytest.mark.parametrize("name", ROWS)
def test_every_recipe_that_we_ship_is_valid_and_says_what_it_costs(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.description
    assert recipe.cost
    assert recipe.expected


def test_rows_change_the_common_part() -> None:
    plain, stored = load_recipe("glyphs:hyperproto"), load_recipe("glyphs:hyperproto-stored")
    assert plain.episodes is not None
    assert stored.episodes is not None
    assert (plain.episodes.shot, stored.episodes.shot) == (5, 0)
    assert plain.episodes.way == stored.episodes.way
    assert stored.description != plain.description


def test_overrides_are_toml_values_or_strings() -> None:
    overrides = ["training.steps=7", "episodes.shot=[1,2]", "method.temperature=0.5", "data.spec=glyphs:3"]
    recipe = load_recipe("glyphs:protonet", overrides)
    assert recipe.training.steps == 7
    assert recipe.episodes is not None
    assert recipe.episodes.shot == [1, 2]
    assert recipe.method.options == {"learn_temperature": True, "temperature": 0.5}
    assert recipe.data.spec == "glyphs:3"
    assert recipe.transform == "none"


def test_a_method_with_its_own_transform_gets_it() -> None:
    assert load_recipe("glyphs:protonet", ["method={name='simpleshot'}"]).transform == "center-unit"


def test_all_mistakes_come_at_once_with_the_nearest_name() -> None:
    overrides = [
        "training.stepz=3",
        "optim.encoder.learning_rate=3",
        "episodes.way=many",
        "method.temprature=2",
        "encoder.filters=wide",
        "validaton.way=3",
        "optim.radus.lr=1.0",
    ]
    with pytest.raises(ConfigError) as caught:
        load_recipe("glyphs:protonet", overrides)
    message = str(caught.value)
    assert message.startswith("glyphs:protonet: 7 problem(s)")
    for words in (
        "training.stepz: there is no key 'stepz'; did you mean 'steps'?",
        "optim.encoder.learning_rate: there is no key 'learning_rate'",
        "episodes.way = 'many': input should be a valid integer",
        "no option of method 'protonet' called 'temprature'; did you mean 'temperature'?",
        "encoder 'conv4', option 'filters': 'wide' is not valid",
        "validaton: there is no key 'validaton'; did you mean 'validation'?",
    ):
        assert words in message


@pytest.mark.parametrize(
    ("recipe", "overrides", "message"),
    [
        ("glyphs", [], r"glyphs has \d+ rows; name one: glyphs:protonet, "),
        ("glyphs:protnet", [], r"glyphs: there is no row 'protnet'; did you mean 'protonet'\?"),
        ("glyph", [], r"no recipe 'glyph'; did you mean 'glyphs'\? .*Your own: a path that ends in \.toml"),
        ("none.toml", [], r"none\.toml: No such file or directory; check the path"),
        ("glyphs:protonet", ["training.steps"], "write section.key=value"),
        ("glyphs:protonet", ["method.name=protnet"], r"method\.name: there is no method 'protnet'; did you mean"),
        (
            "glyphs:protonet",
            ["encoder.name=conv5"],
            r"encoder\.name: there is no encoder 'conv5'; did you mean 'conv4'",
        ),
        (
            "fewrel-minilm:hyperproto",
            ["encoder.name=identity"],
            r"encoder 'identity' called 'frozen'(.|\n)*encoder\.name=\.\.\. keeps the recipe's other options; "
            r"encoder=\{name='\.\.\.'\} starts the section anew",
        ),
        ("glyphs:hyperproto", ["method.name=protonet"], "option of method 'protonet' called 'centers'"),
        (
            "glyphs:hyperproto",
            ["optim.radius={name='sgd', lr=0.1, dense=true}"],
            r"optim\.radius: dense = true is plain Adam on a whole table; leave it out for sgd",
        ),
        ("glyphs:hyperproto", ["optim.encoder.dense=true"], r"optim\.encoder: dense = true is for tables of rows"),
        ("glyphs:protonet", ["optim.raduis={lr=1.0}"], r"optim\.raduis: there is no optimiser section 'raduis'"),
        ("glyphs:protonet", ["method={name='hyperproto'}"], r"\[optim\.radius\] is missing: hyperproto learns it"),
        ("glyphs:hyperproto", ["episodes.shot=0"], "hyperproto trains on the support; draw at least 1"),
        (
            "glyphs:protonet",
            ["method={name='simpleshot'}", "transform=unit"],
            "simpleshot is defined with 'center-unit'",
        ),
        (
            "glyphs:hyperproto",
            ["optim.radius.momentum=0.5"],
            r"radius: momentum and weight_decay do not go with",
        ),
        ("glyphs:protonet", ["episodes.shot=0"], r"episodes\.shot = 0: protonet trains on the support"),
        (
            "glyphs:protonet",
            ["episodes.shot=many"],
            r"1 problem\(s\)\n- episodes\.shot = 'many': input .* integer, or input .* list",
        ),
        ("glyphs:protonet", ["validation.shot=0"], r"validation\.shot = 0: input should be greater than 0"),
        ("glyphs:protonet", ["training.steps=0"], r"training\.steps = 0: input should be greater than 0"),
    ],
)
def test_mistakes_in_words(recipe: str, overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_recipe(recipe, overrides)


def test_files_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("this is not TOML")
    with pytest.raises(ConfigError, match=r"mine\.toml: not TOML"):
        load_recipe(str(path))
    path.write_text("[[row]]\ndescription = 'x'\n")
    with pytest.raises(ConfigError, match=r"row 1 has no name; give it name = "):
        load_recipe(str(path))
    path.write_text(read_text("glyphs").replace("[optim.encoder]", "[optim.encodr]"))
    with pytest.raises(ConfigError, match=r"\[optim\.encoder\] is missing; give it at least a learning rate"):
        load_recipe(f"{path}:protonet")
    path.write_text("description = 'nothing else'\n")
    with pytest.raises(ConfigError, match=r"6 problem\(s\)(.|\n)*data is missing"):
        load_recipe(str(path))


def test_another_encoder_keeps_what_it_knows_of_the_old_ones_options() -> None:
    old = load_recipe("fewnerd-minilm:protonet").encoder
    assert old.options == {"frozen": False}
    new = load_recipe("fewnerd-minilm:protonet", ["encoder.name=token-transformer:bert"]).encoder
    assert (new.name, new.options) == ("token-transformer:bert", {"frozen": False})
    cnn = load_recipe("table2:protonet-bert-5shot", ["encoder.name=relation-transformer:mpnet"]).encoder
    assert cnn.options == {"frozen": False, "dropout": 0.5}
    anew = load_recipe("fewnerd-minilm:protonet", ["encoder={name='token-transformer:bert'}"]).encoder
    assert anew.options == {}
    both = load_recipe("fewnerd-minilm:protonet", ["encoder={name='token-transformer:bert'}", "encoder.dropout=0.5"])
    assert both.encoder.options == {"dropout": 0.5}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("description = 'caf\xe9'".encode("latin-1"), r"own\.toml, line 1: not UTF-8 text"),
        (b"a = " + b"[" * 100_000, r"own\.toml: tables or lists nested more than 100 deep"),
        (b"a." * 100_000 + b"a = 1", r"own\.toml: tables or lists nested more than 100 deep"),
        (b"a = " + b"9" * 5_000, r"own\.toml: a whole number of thousands of digits"),
        (b"a = 1\na = 2", r"own\.toml: not TOML \(Cannot overwrite a value"),
        (b"row = 'x'", r"own\.toml: row is not a list of tables; begin each row with \[\[row\]\]"),
        (b"[row]\nname = 'x'", r"own\.toml: row is not a list of tables"),
        (b"[[row]]\nname = 3", r"own\.toml: row 1 has no name"),
        (b"[[row]]\nname = 'a'\n[[row]]\nname = 'a'", r"own\.toml: two rows are called 'a'; rename one"),
        (b"data = 'glyphs'\nencoder = 3", r"data = 'glyphs': input should be (.|\n)*encoder = 3: input should be"),
    ],
)
def test_files_that_are_no_recipes(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "own.toml").write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        load_recipe(str(tmp_path / "own.toml"))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("a=" + "[" * 100_000, r"a=\[\[.* \.\.\.: tables or lists nested more than 100 deep"),
        ("training.steps=" + "9" * 5_000, "a whole number of thousands of digits"),
        (".".join("a" * 5_000) + "=1", "5000 nested keys"),
        ("training.steps=2147483648", r"training\.steps = 2147483648: input should be less than 2147483648"),
        ("episodes.way=99999999999999999999", r"episodes\.way"),
    ],
)
def test_settings_that_no_recipe_has(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_recipe("glyphs:protonet", [override])


def test_a_table_given_as_an_override_starts_the_section_anew_also_under_the_same_name() -> None:
    own = load_recipe("glyphs:hyperproto").method.options
    assert own
    anew = load_recipe("glyphs:hyperproto", ["method={name='hyperproto', learn_temperature=false}"])
    assert anew.method.options == {"learn_temperature": False}
    kept = load_recipe("glyphs:hyperproto", ["method.learn_temperature=false"])
    assert kept.method.options == {**own, "learn_temperature": False}
    both = ["method={name='hyperproto'}", "method.learn_temperature=false"]
    assert load_recipe("glyphs:hyperproto", both).method.options == {"learn_temperature": False}
