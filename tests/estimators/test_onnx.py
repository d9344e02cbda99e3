"""The ONNX graph, run by onnxruntime: the same scores, probabilities and labels."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hyperproto.errors import ConfigError
from hyperproto.estimators import HypersphereClassifier
from hyperproto.regions import REGIONS
from tests.estimators.conftest import MODES, blobs

pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")


def run(path: Any, x: Any) -> Any:
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {"x": x}), strict=True)), session.get_modelmeta().custom_metadata_map


LINEAR = [(region, mode) for region, mode in MODES if (region, mode) != ("cone", "paper")]


@pytest.mark.parametrize(("region", "mode"), LINEAR)
@pytest.mark.parametrize("transform", ["none", "unit", "center-unit"])
@pytest.mark.parametrize("coverage", [None, 0.8])
def test_the_graph_says_what_we_say(tmp_path: Path, region: Any, mode: str, transform: str, coverage: float) -> None:
    x, y = blobs((8, 5, 1, 6), dim=12, seed=1)
    model = HypersphereClassifier(region=region, fit_mode=mode, feature_transform=transform, coverage=coverage).fit(
        x, y
    )
    random = np.random.default_rng(2)
    q = np.vstack([x, 2 * random.normal(size=(60, 12)), np.zeros((1, 12))]).astype(np.float32)
    model.export_onnx(tmp_path / "model.onnx")
    found, metadata = run(tmp_path / "model.onnx", q)
    assert json.loads(metadata["classes"]) == ["a", "b", "c", "d"]
    assert found.keys() == {"scores", "probabilities", "label", "name"} | ({"plausible"} if coverage else set())
    measure = model.measure(q.astype(np.float64))
    both = found["scores"] + measure
    size = max(1, np.abs(measure).max())
    np.testing.assert_allclose(both, np.tile(both[:, :1], (1, 4)), atol=1e-4 * size)
    probability = model.predict_proba(q.astype(np.float64))
    np.testing.assert_allclose(found["probabilities"], probability, atol=1e-4)
    names = np.array([*"abcd", "none of these"])
    top = np.sort(probability, axis=1)
    clear = top[:, -1] - top[:, -2] > 1e-3
    assert (names[found["label"]] == model.predict(q))[clear].all()
    if coverage:
        assert (found["plausible"] == model.predict_set(q)).mean() > 0.99
        assert (found["label"][~model.predict_set(q).any(axis=1)] == -1).mean() > 0.99
        assert (found["label"] == -1).any()


def test_the_graph_rejects_where_the_likeliest_class_is_not_plausible(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    x = np.vstack([3 * random.normal(size=(30, 3)), 4 + 0.1 * random.normal(size=(30, 3))])
    model = HypersphereClassifier(fit_mode="point", feature_transform="none", coverage=0.9, class_thresholds=True).fit(
        x, np.repeat(["wide", "narrow"], 30)
    )
    q = (np.linspace(0, 12, 50)[:, None] * np.ones(3)).astype(np.float32)
    model.export_onnx(tmp_path / "model.onnx")
    found, _ = run(tmp_path / "model.onnx", q)
    assert np.array([*model.classes_, "none of these"])[found["label"]].tolist() == model.predict(q).tolist()
    assert (found["plausible"].any(axis=1) & (found["label"] == -1)).any()


def test_it_is_one_product_and_a_bias(tmp_path: Path) -> None:
    import onnx

    HypersphereClassifier(feature_transform="none", temperature=1.0).fit(*blobs()).export_onnx(tmp_path / "m.onnx")
    graph = onnx.load(tmp_path / "m.onnx").graph
    assert [node.op_type for node in graph.node] == [
        "Gemm",
        "Identity",
        "Mul",
        "Softmax",
        "Identity",
        "ArgMax",
        "Identity",
        "Gather",
        "Identity",
    ]
    assert graph.input[0].type.tensor_type.shape.dim[1].dim_value == 5


def test_without_examples_there_are_no_probabilities(tmp_path: Path) -> None:
    x, y = blobs()
    model = HypersphereClassifier(fit_mode="unbiased", store_support=False).fit(x, y)
    model.export_onnx(str(tmp_path / "model.onnx"))
    found, _ = run(tmp_path / "model.onnx", x.astype(np.float32))
    assert found.keys() == {"scores", "label", "name"}
    assert (np.array(list("abcd"))[found["label"]] == model.predict(x)).all()


def test_a_threshold_that_is_not_known_yet_lets_everything_pass(tmp_path: Path) -> None:
    x, y = blobs((2, 2))
    model = HypersphereClassifier(coverage=0.95).fit(x, y)
    with pytest.warns(UserWarning, match="some classes accept everything"):
        model.export_onnx(tmp_path / "model.onnx")
    found, _ = run(tmp_path / "model.onnx", 1e3 * x.astype(np.float32))
    assert found["plausible"].all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"region": "cone", "fit_mode": "paper"}, "cones of fit_mode='paper' is not linear in x.*fit_mode='unbiased'"),
        ({"squared": False}, "the measure of squared=False is not linear in x.*fit with squared=True"),
    ],
)
def test_what_is_not_linear_is_refused(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        HypersphereClassifier(**settings).fit(*blobs()).export_onnx(tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_without_the_package_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(ConfigError, match=r"written with onnx .*pip install 'hyperproto\[onnx\]'"):
        HypersphereClassifier().fit(*blobs()).export_onnx(tmp_path / "model.onnx")


def test_every_region_is_either_exported_or_refused() -> None:
    assert {region for region, _ in LINEAR} == set(REGIONS)


@pytest.mark.parametrize("transform", ["unit", "center-unit"])
def test_rows_of_any_size_are_scaled_in_the_graph_too(tmp_path: Path, transform: str) -> None:
    x, y = blobs((8, 5, 6), dim=12, seed=1)
    model = HypersphereClassifier(feature_transform=transform).fit(x, y)
    model.export_onnx(tmp_path / "model.onnx")
    q = (x * 1e25).astype(np.float32)
    labels = run(tmp_path / "model.onnx", q)[0]["label"]
    assert model.classes_[labels].tolist() == model.predict(q).tolist()


def test_examples_far_from_the_origin_keep_their_digits(tmp_path: Path) -> None:
    x, y = blobs((8, 5, 6), dim=12, seed=1)
    q = (x + 1e6).astype(np.float32)
    model = HypersphereClassifier(feature_transform="none", coverage=0.8).fit(q, y)
    model.export_onnx(tmp_path / "model.onnx")
    found, _ = run(tmp_path / "model.onnx", q)
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(q), atol=1e-4)
    np.testing.assert_array_equal(found["plausible"], model.predict_set(q))
