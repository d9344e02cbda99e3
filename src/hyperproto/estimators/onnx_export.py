"""Export of a classifier as an ONNX graph: the feature transform, one matrix product and a bias."""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hyperproto.errors import ConfigError
from hyperproto.estimators.rejection import rule_of
from hyperproto.estimators.snapshot import Snapshot
from hyperproto.files import atomic_write
from hyperproto.regions.arrays import SHORTEST

OPSET = 17
IR_VERSION = 8  # as old as the opset, for old runtimes


def export(model: Snapshot, path: Path, temperature: float | None, labels: NDArray[Any]) -> None:
    """Write the graph. Its input is `x` (n, D) float32. `labels` are the classes and, if rows are rejected, its label.

    Outputs:

    - `scores` (n, N): minus the measure, up to a number that all classes of a row share;
    - `label` (n,): index of the class, -1 for none of these; the metadata hold the labels as JSON;
    - `name` (n,): the label itself, a string or, if all labels are whole numbers, an int64; the reject label for none
      of these;
    - `probabilities` (n, N), if there is a temperature, and `plausible` (n, N), if there is a coverage.
    """
    form = model.linear
    if form is None:
        region = model.parameters["region"]
        what, instead = {
            "cone": ("cones of fit_mode='paper'", "fit_mode='unbiased'"),
            "sphere": ("squared=False", "squared=True"),
            "point": ("squared=False", "squared=True"),
        }.get(region, (f"the region {region!r}", "region='sphere'"))
        raise ConfigError(f"the measure of {what} is not linear in x, so it cannot be exported; fit with {instead}")
    graph = _Graph()
    x = _transform(graph, model)
    scores = graph.add("Gemm", x, graph.constant(form.weights), graph.constant(form.bias))
    if form.curve is not None:
        away = graph.add("Sub", x, graph.constant(form.middle))
        square = graph.add("ReduceSumSquare", away, axes=[1], keepdims=1)
        scores = graph.add("Sub", scores, graph.add("Mul", square, graph.constant(form.curve)))
    outputs = [graph.name(scores, "scores", float, 2)]
    if temperature is not None:
        power = graph.add("Mul", scores, graph.constant(np.array(1 / temperature)))
        outputs.append(graph.name(graph.add("Softmax", power, axis=1), "probabilities", float, 2))
    if rule_of(model) not in (None, "coverage"):
        warnings.warn(
            "the ONNX graph never answers none of these: rejection_ is not exported; compare the largest of its "
            "probabilities with rejection_.threshold, or set a coverage",
            stacklevel=4,
        )
    if model.parameters["coverage"] is None:
        label = graph.add("ArgMax", scores, axis=1, keepdims=0)
    else:
        label, plausible = _rejecting(graph, model, x, scores)
        outputs.append(graph.name(plausible, "plausible", bool, 2))
    outputs += [graph.name(label, "label", int, 1), _named(graph, label, labels)]
    graph.write(path, model, outputs)


def _transform(graph: "_Graph", model: Snapshot) -> str:
    x = "x"
    if model.centered:
        x = graph.add("Sub", x, graph.constant(model.mean))
    elif not model.unit:
        return x if model.origin is None else graph.add("Sub", x, graph.constant(model.origin))
    shortest = SHORTEST * float(np.abs(model.mean).max()) if model.centered else 0.0
    peak = graph.add("ReduceMax", graph.add("Abs", x), axes=[1], keepdims=1)  # avoids overflow of the squares
    some = graph.add("Greater", peak, graph.constant(np.array(shortest)))
    x = graph.add("Div", x, graph.add("Where", some, peak, graph.constant(np.array(1.0))))
    length = graph.add("ReduceL2", x, axes=[1], keepdims=1)
    return graph.add("Div", x, graph.add("Where", some, length, graph.constant(np.array(1.0))))


def _rejecting(graph: "_Graph", model: Snapshot, x: str, scores: str) -> tuple[str, str]:
    """Return label and plausible classes: those with ||x - mean||^2 <= threshold^2, by one more product."""
    near = model.squared_distances
    limit = np.where(np.isfinite(model.thresholds), model.thresholds, 1e18) ** 2
    away = graph.add("Sub", x, graph.constant(near.middle))
    square = graph.add("ReduceSumSquare", away, axes=[1], keepdims=1)
    inner = graph.add("Gemm", x, graph.constant(near.weights), graph.constant(near.bias + limit))
    plausible = graph.add("LessOrEqual", square, inner)
    best = graph.add("ArgMax", scores, axis=1, keepdims=1)  # (n, 1)
    inside = graph.add("GatherElements", graph.add("Cast", plausible, to=1), best, axis=1)  # 1.0 or 0.0
    passes = graph.add("Greater", inside, graph.constant(np.array(0.0)))
    named = graph.add("Where", passes, best, graph.constant(np.array(-1), np.int64))
    return graph.add("Squeeze", named, graph.constant(np.array([1]), np.int64)), plausible


def _named(graph: "_Graph", label: str, labels: NDArray[Any]) -> Any:
    """Look up the label of each index; -1, none of these, is the last of the labels."""
    whole = labels.dtype.kind in "iu"
    table = graph.constant(labels, np.int64) if whole else graph.strings([str(label) for label in labels.tolist()])
    return graph.name(graph.add("Gather", table, label), "name", int if whole else str, 1)


class _Graph:
    """Nodes and constants of the graph, named by number."""

    def __init__(self) -> None:
        try:
            import onnx
        except ImportError as error:
            raise ConfigError(f"ONNX files are written with onnx ({error}); pip install 'hyperproto[onnx]'") from error
        self.onnx: Any = onnx
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(np.ascontiguousarray(value, dtype=dtype), name))
        return name

    def strings(self, values: list[str]) -> str:
        name = f"c{len(self.constants)}"
        encoded = [value.encode() for value in values]
        self.constants.append(self.onnx.helper.make_tensor(name, self.onnx.TensorProto.STRING, [len(values)], encoded))
        return name

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        output = f"n{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(operator, inputs, [output], **attributes))
        return output

    def name(self, value: str, name: str, kind: type, axes: int) -> Any:
        self.nodes.append(self.onnx.helper.make_node("Identity", [value], [name]))
        kinds = self.onnx.TensorProto
        types = {float: kinds.FLOAT, int: kinds.INT64, bool: kinds.BOOL, str: kinds.STRING}
        return self.onnx.helper.make_tensor_value_info(name, types[kind], ["n", None][:axes])

    def write(self, path: Path, model: Snapshot, outputs: list[Any]) -> None:
        helper = self.onnx.helper
        size = model.moments.mean.shape[1]
        x = helper.make_tensor_value_info("x", self.onnx.TensorProto.FLOAT, ["n", size])
        graph = helper.make_graph(self.nodes, "hyperproto", [x], outputs, self.constants)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
        made.producer_name = "hyperproto"
        helper.set_model_props(made, {"classes": json.dumps(model.classes.tolist())})
        self.onnx.checker.check_model(made, full_check=True)
        with atomic_write(path) as file:
            file.write(made.SerializeToString())
