"""What a user gets from `import hyperproto`, and from the wheel without torch."""

import json
import os
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


def test_importing_the_package_loads_nothing_heavy() -> None:
    heavy = "'torch', 'sklearn', 'numpy', 'typer', 'pydantic'"
    assert python(f"import sys, hyperproto; print([m for m in ({heavy}) if m in sys.modules])").strip() == "[]"


def test_regions_episodes_and_estimators_need_no_torch() -> None:
    code = (
        "import sys; from hyperproto import HypersphereClassifier, EpisodeSampler, Pool;"
        "import hyperproto.regions, hyperproto.recipes, hyperproto.data.glyphs; print('torch' in sys.modules)"
    )
    assert python(code).strip() == "False"


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


@pytest.mark.slow
def test_the_wheel_without_torch_fits_and_predicts(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
    [wheel] = tmp_path.glob("*.whl")
    venv.create(tmp_path / "env", with_pip=True)
    own = str(tmp_path / "env" / "bin" / "python")
    install = [own, "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt"), str(wheel)]
    subprocess.run(install, check=True, stdout=subprocess.DEVNULL)
    code = """
import importlib.util, json
from hyperproto import HypersphereClassifier
model = HypersphereClassifier().fit([[1.0, 0.1], [0.9, 0.2], [0.1, 1.0]], ["cat", "cat", "dog"])
print(json.dumps([importlib.util.find_spec("torch") is None, model.predict([[0.8, 0.3], [0.2, 0.9]]).tolist()]))
"""
    ran = subprocess.run([own, "-c", code], check=True, capture_output=True, text=True, cwd=tmp_path)
    assert json.loads(ran.stdout) == [True, ["cat", "dog"]]
    script = str(tmp_path / "env" / "bin" / "hyperproto")
    listed = subprocess.run([script, "recipes", "list"], check=True, capture_output=True, text=True, cwd=tmp_path)
    assert "glyphs:hyperproto" in listed.stdout
    environment = {**os.environ, "HYPERPROTO_CACHE": str(tmp_path / "cache")}
    asked = [script, "evaluate", "--encoder", "identity", "--data", "glyphs", "--method", "protonet"]
    failed = subprocess.run(asked, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert failed.returncode == 1
    assert "pip install 'hyperproto[" in failed.stderr
    assert "Traceback" not in failed.stderr


def test_extras_are_those_of_the_documentation() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    known = {"train", "text", "glove", "images", "efficientnet", "onnx", "plots", "all", "dev"}
    assert set(project["optional-dependencies"]) == known
