"""Saved classifiers: model.json, and a safetensors file that it names with its checksum. No pickle.

The tensors are written first, under a name of their own. Replacing model.json switches the folder from the old to the
new model. Writers take turns (`model_lock`). Readers need no lock: if the tensors are gone, a newer model.json names
others.

Checksums detect accidents, not forgery, so every field is also checked against the others: a model that loads is one
that `fit` could have made.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hyperproto
from hyperproto.errors import ConfigError, DataError
from hyperproto.estimators.labels import LABEL_TYPES
from hyperproto.estimators.snapshot import UnlabelledSummary
from hyperproto.estimators.state import State
from hyperproto.files import atomic_write, json_checksum, lock, read_bytes, read_json
from hyperproto.regions.arrays import SHORTEST, sum_by_label
from hyperproto.regions.evidence_left_out import FoldCenters
from hyperproto.regions.left_out import Folds
from hyperproto.regions.statistics import Moments, moments_of

FORMAT = "hyperproto-estimator/1"
EVIDENCE_FORMAT = "hyperproto-estimator/2"  # with class names or unlabelled rows
OUTSIDE_FORMAT = "hyperproto-estimator/3"  # with out-of-class rows
FORMATS = (FORMAT, EVIDENCE_FORMAT, OUTSIDE_FORMAT)
LABELS_FORMAT = "hyperproto-multilabel/1"  # of a `MultiLabelClassifier`
HEAD = "model.json"
AGAIN = "take it from a copy, or fit and save again"
LONGEST_WAIT = 600.0  # seconds that a writer waits for others
CLUSTERS = {"cluster_mean", "cluster_worth", "cluster_rows"}
HEADS, FOLDS = {"head_center", "head_radius"}, {"fold_fold", "fold_weights", "fold_bias"}
TEMPERATURE, LEFT_OUT = {"row_temperature"}, {"left_out_fold", "left_out_center", "head_sharpness"}
EVIDENCE = {"names", "named", "declared", "unlabelled", "outside", *CLUSTERS, *HEADS, *FOLDS, *TEMPERATURE, *LEFT_OUT}
STATISTICS, EXAMPLES = ("count", "mean", "squares"), ("rows", "slots", "weights", "numbers", "given")
ROUNDING, SQUARES_ROUNDING = 1e-6, 1e-4  # of means after many updates; of squares of float32 rows
Tensors = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Saved:
    """Content of a saved classifier."""

    kind: str  # name of its class
    parameters: Mapping[str, Any]
    state: State
    feature_names: list[str] | None  # if the columns have names
    encoder: Mapping[str, Any] | None = None  # identity of the encoder of texts or images


@contextmanager
def model_lock(folder: str | PathLike[str], timeout: float = LONGEST_WAIT) -> Iterator[None]:
    """Lock a saved model against changes by other processes and threads between `load` and `save`.

    The end of a process frees its lock. After `timeout` seconds of waiting a `BusyError` is raised. Loading alone needs
    no lock.

    >>> with model_lock("model"):  # doctest: +SKIP
    ...     load_classifier("model").partial_fit(texts, labels).save("model")
    """
    busy = f"another process has been changing this model for {timeout:g} s; wait until it is done, or stop it"
    with lock(Path(folder), busy, timeout):
        yield


def write(folder: Path, saved: Saved, summarise: Callable[[], UnlabelledSummary | None] | None = None) -> None:
    """Write a model under its lock, with the unlabelled rows or, if `summarise` is given, the summary it returns."""
    state = saved.state
    with state.lock:  # other threads may be adding to it
        labels, items = list(state.labels), state.named_examples()
        evidence = _evidence_tensors(state, state.summary if summarise is None else summarise(), summarise is None)
        content = tensor_bytes({**_tensors(state), **evidence})
    head = {
        "kind": saved.kind,
        "parameters": saved.parameters,
        "classes": labels,
        "unit": state.unit,
        "feature_names": saved.feature_names,
        "encoder": saved.encoder,
        "items": None if saved.encoder is None else [[number, item] for number, item in items.items()],
    }
    form = OUTSIDE_FORMAT if "outside" in evidence else EVIDENCE_FORMAT if evidence else FORMAT
    write_files(folder, form, head, content)


def write_files(folder: Path, form: str, head: Mapping[str, Any], content: bytes) -> None:
    """Write model.json with `head` and the safetensors file of `content`, under the lock of the model."""
    digest = sha256(content).hexdigest()
    file_name = f"tensors-{digest[:16]}.safetensors"
    parameters = {name: v.item() if isinstance(v, np.generic) else v for name, v in head["parameters"].items()}
    tensors = {"file": file_name, "sha256": digest, "bytes": len(content)}
    head = {
        "format": form,
        "hyperproto": hyperproto.__version__,
        **head,
        "parameters": parameters,
        "tensors": tensors,
    }
    try:
        text = json.dumps(
            {**head, "checksum": json_checksum(head)}, indent=2, ensure_ascii=False, allow_nan=False
        ).encode()
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"a parameter or a label cannot be written as JSON ({error}); use strings and numbers"
        ) from None
    with model_lock(folder):
        with atomic_write(folder / file_name) as file:
            file.write(content)
        with atomic_write(folder / HEAD) as file:
            file.write(text + b"\n")
        for old in folder.glob("tensors-*.safetensors"):  # unused now: the lock keeps other writers out
            if old.name != file_name:
                old.unlink(missing_ok=True)


def read_kind(folder: Path) -> str:
    """Return the name of the class of a saved model."""
    head = read_checked(folder / HEAD, (*FORMATS, LABELS_FORMAT), "classifier")
    return str((head if head["format"] == LABELS_FORMAT else _read_head(folder)).get("kind"))


def read(folder: Path) -> Saved:
    """Read and check a model."""
    head, tensors = read_files(folder, _read_head)
    path = folder / head["tensors"]["file"]
    items = dict(head["items"] or [])
    evidence = {name: tensors.pop(name) for name in sorted(EVIDENCE & {*tensors})}
    way, size = len(head["classes"]), (0, *tensors.get("mean", np.empty(0)).shape)[-1]
    refuse(path, _evidence_problems(evidence, way, size, tensors, head["unit"]))
    refuse(path, _tensors_problems(tensors, way, head["unit"], items, _declared(evidence)))
    names = head["feature_names"]
    if names is not None and len(names) != size:
        raise DataError(f"{folder / HEAD}: {len(names)} names for {size} features; {AGAIN}")
    state = _state(tensors, evidence, head["classes"], head["unit"])
    state.items = items
    return Saved(head["kind"], head["parameters"], state, names, head["encoder"])


def read_files(
    folder: Path, read_head: Callable[[Path], dict[str, Any]]
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the content of model.json, as `read_head` checks it, and the tensors that it names."""
    while True:
        head = read_head(folder)
        path = folder / head["tensors"]["file"]
        try:
            content = read_bytes(path, missing=f"{HEAD} names it: {AGAIN}")
            break
        except DataError:
            if read_head(folder) == head:  # else the model was replaced meanwhile
                raise
    if len(content) != head["tensors"]["bytes"] or sha256(content).hexdigest() != head["tensors"]["sha256"]:
        raise DataError(
            f"{path}: not the {head['tensors']['bytes']} bytes that were saved, but {len(content)}, or others; "
            f"the file was cut or changed: {AGAIN}"
        )
    try:
        return head, _safetensors().load(content)
    except Exception as error:  # the reader raises many types on damaged files
        raise DataError(f"{path}: not readable as safetensors ({error}); {AGAIN}") from None


def _tensors(state: State) -> dict[str, NDArray[Any]]:
    """Return classes and stored examples as arrays by name; the state must be locked."""
    state = state.copy()
    parts = STATISTICS + (EXAMPLES[:-1] if state.store else ())
    tensors = {name: getattr(state, name).view for name in parts}
    return {**tensors, "given": np.array([state.given])} if state.store else tensors


def _evidence_tensors(state: State, summary: UnlabelledSummary | None, with_rows: bool) -> dict[str, NDArray[Any]]:
    """Return names, out-of-class rows and, if asked for, unlabelled rows, or else their summary, by name."""
    labels, tensors = state.labels, {}
    if state.outside.size:
        tensors["outside"] = state.outside.view
    if state.names:
        slots = [slot for slot, label in enumerate(labels) if label in state.names]
        tensors["names"] = np.stack([state.names[labels[slot]] for slot in slots])
        tensors["named"] = np.array(slots, dtype=np.int64)
        tensors["declared"] = np.array([labels[slot] in state.declared for slot in slots], dtype=np.int64)
    if with_rows and state.unlabelled.size:
        return {**tensors, "unlabelled": state.unlabelled.view}
    if summary is not None:
        clusters = summary.clusters_of(labels, state.n_features)
        tensors |= {"cluster_mean": clusters.mean, "cluster_worth": clusters.weight}
        tensors["cluster_rows"] = np.array([summary.spread, summary.dim])
        if summary.head is not None:
            tensors |= {"head_center": summary.head[0], "head_radius": summary.head[1]}
        if summary.folds is not None:
            tensors |= {f"fold_{name}": part for name, part in vars(summary.folds).items()}
        if summary.temperature is not None:
            tensors["row_temperature"] = np.array([summary.temperature])
        if summary.fold_centers is not None:
            tensors |= {f"left_out_{name}": part for name, part in vars(summary.fold_centers).items()}
            tensors["head_sharpness"] = np.array([summary.sharpness])
    return tensors


def _state(tensors: Tensors, evidence: Tensors, labels: list[Any], unit: bool) -> State:
    """Return the state whose tensors these are."""
    store = "rows" in tensors
    state = State(tensors["mean"].shape[1], tensors["rows"].dtype if store else float, unit, store)
    state._put(state._slots_of(labels), Moments(*(tensors[name] for name in STATISTICS)))
    if store:
        for name in EXAMPLES[:-1]:
            getattr(state, name).append(tensors[name])
        state.given = int(tensors["given"][0])
    if "names" in evidence:
        of = [labels[slot] for slot in evidence["named"]]
        state.names = dict(zip(of, evidence["names"], strict=True))
        state.declared = {label for label, declared in zip(of, evidence["declared"], strict=True) if declared}
    if "outside" in evidence:
        state.outside.append(evidence["outside"])
    if "unlabelled" in evidence:
        state.unlabelled.append(evidence["unlabelled"])
    if "cluster_mean" in evidence:
        each = zip(evidence["cluster_mean"], evidence["cluster_worth"].tolist(), strict=True)
        head, folds, temperature = None, None, None
        left_out: tuple[FoldCenters | None, float] = None, 1.0
        if "head_center" in evidence:
            head = evidence["head_center"], evidence["head_radius"]
        if "fold_fold" in evidence:
            folds = Folds(*(evidence[f"fold_{name}"] for name in ("fold", "weights", "bias")))
        if "row_temperature" in evidence:
            temperature = float(evidence["row_temperature"][0])
        if "left_out_fold" in evidence:
            centers = FoldCenters(evidence["left_out_fold"], evidence["left_out_center"])
            left_out = centers, float(evidence["head_sharpness"][0])
        clusters = dict(zip(labels, each, strict=True))
        spread, dim = evidence["cluster_rows"].tolist()
        state.summary = UnlabelledSummary(clusters, spread, dim, head, folds, temperature, *left_out)
    return state


def construct(cls: Any, folder: str | PathLike[str], saved: Saved) -> Any:
    """Return an unfitted `cls` with the saved parameters, after a check that the folder holds one."""
    if saved.kind != cls.__name__:
        raise DataError(f"{folder}: holds a {saved.kind}, not a {cls.__name__}; load it as what it is")
    try:
        return cls(**saved.parameters)
    except TypeError as error:
        raise DataError(f"{folder}: was saved by another version of hyperproto ({error}); use that one") from None


def read_checked(path: Path, form: str | tuple[str, ...], kind: str) -> dict[str, Any]:
    """Read a JSON file and check its format and checksum; messages call its content a saved `kind`."""
    forms = (form,) if isinstance(form, str) else form
    head = read_json(path, missing=f"a saved {kind} is a folder with a {path.name} in it", damaged=AGAIN)
    found = head.get("format") if isinstance(head, dict) else None
    if found not in forms:
        raise DataError(f"{path}: format {found!r}; this version of hyperproto reads {' and '.join(map(repr, forms))}")
    if head.pop("checksum", None) != json_checksum(head):
        raise DataError(f"{path}: was changed after it was saved; {AGAIN}")
    return head  # type: ignore[no-any-return]


def identity_problems(encoder: Any) -> Iterator[str]:
    """Yield what is wrong with the saved identity of an encoder; only the first item is reliable."""
    if not (isinstance(encoder, dict) and isinstance(encoder.get("name"), str)):
        yield f"its encoder is {encoder!r}, which has no name"
    if not isinstance(encoder.get("options"), dict) or not isinstance(encoder.get("sha256", 0), str | None):
        yield "its encoder has no options, or no checksum of weights"
    if not isinstance(encoder["options"].get("encoder"), str | None):  # of a run: the name of its encoder
        yield f"the options of its encoder name an encoder {encoder['options']['encoder']!r:.60}"
    ratios = encoder.get("prior_ratio", {})
    if not isinstance(ratios, dict) or not all(_is_number(ratio) and ratio > 0 for ratio in ratios.values()):
        yield f"the prior_ratio of its encoder is {ratios!r}"


def _read_head(folder: Path) -> dict[str, Any]:
    head = read_checked(folder / HEAD, FORMATS, "classifier")
    refuse(folder / HEAD, _head_problems(head))
    return head


def refuse(path: Path, problems: Iterator[str]) -> None:
    """Raise the first problem, if there is one; later checks rely on earlier ones."""
    for problem in problems:
        raise DataError(f"{path}: {problem}; no saved classifier is like that: {AGAIN}")


def _head_problems(head: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with single fields of model.json."""
    for name, kind in (("kind", str), ("parameters", dict), ("classes", list), ("unit", bool), ("tensors", dict)):
        if not isinstance(head.get(name), kind):
            yield f"its {name!r} is {head.get(name)!r}"
    if missing := sorted({"feature_names", "encoder", "items"} - {*head}):
        yield f"it has no {missing[0]!r}"
    items = head["items"]
    if items is not None and not (isinstance(items, list) and all(map(_is_item, items))):
        yield "its 'items' are no list of numbers and texts"
    yield from common_problems(head)


def common_problems(head: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the fields that every format of model.json has."""
    labels, names, tensors = head["classes"], head["feature_names"], head["tensors"]
    if not labels or not all(isinstance(label, LABEL_TYPES) for label in labels):
        yield "its 'classes' are no list of strings and numbers"
    if any(isinstance(label, float) and not math.isfinite(label) for label in labels) or len({*labels}) < len(labels):
        yield "a class is there twice, or is no number"
    if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        yield "its 'feature_names' are no list of strings"
    if head["encoder"] is not None:
        yield from identity_problems(head["encoder"])
    file = tensors.get("file")
    if not (isinstance(file, str) and re.fullmatch(r"tensors-[0-9a-f]{16}\.safetensors", file)):
        yield f"its tensors lie in {file!r}"
    if type(tensors.get("bytes")) is not int or not isinstance(tensors.get("sha256"), str):
        yield "its tensors have no size, or no checksum"


def _is_item(entry: Any) -> bool:
    return isinstance(entry, list) and len(entry) == 2 and type(entry[0]) is int and isinstance(entry[1], str)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def tensor_bytes(tensors: Tensors) -> bytes:
    """Return arrays as the content of a safetensors file."""
    content: bytes = _safetensors().save({name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()})
    return content


def _declared(evidence: Tensors) -> list[int]:
    """Return the slots of classes that need no example."""
    return evidence["named"][evidence["declared"] > 0].tolist() if "names" in evidence else []


def _evidence_problems(found: Tensors, way: int, size: int, tensors: Tensors, unit: bool) -> Iterator[str]:
    """Yield what is wrong with names, unlabelled rows or their summary, alone and together."""
    for group in ({"names", "named", "declared"}, CLUSTERS, HEADS, FOLDS, LEFT_OUT):
        if group & {*found} and not group <= {*found}:
            yield f"holds {', '.join(sorted(group & {*found}))} without {', '.join(sorted(group - {*found}))}"
    derived = (HEADS | FOLDS | TEMPERATURE | LEFT_OUT) & {*found}
    if (derived and not {*found} >= CLUSTERS) or ("unlabelled" in found and CLUSTERS & {*found}):
        yield "holds clusters beside unlabelled rows, or a head without either"
    number, rows = (*found.get("named", np.empty(0)).shape, 0)[0], (*found.get("unlabelled", np.empty(0)).shape, 0)[0]
    examples, folds = (
        (*of.get(name, np.empty(0)).shape, 0)[0] for of, name in ((tensors, "slots"), (found, "fold_bias"))
    )
    shapes: dict[str, tuple[int, ...]] = {"names": (number, size), "named": (number,), "declared": (number,)}
    shapes |= {"outside": (*found.get("outside", np.empty(0)).shape[:1], size)}
    shapes |= {"unlabelled": (rows, size), "cluster_mean": (way, size), "cluster_worth": (way,), "cluster_rows": (2,)}
    shapes |= {"head_center": (way, size), "head_radius": (way,), "fold_fold": (examples,)}
    shapes |= {"fold_weights": (folds, size, way), "fold_bias": (folds, way), "row_temperature": (1,)}
    fits = (*found.get("left_out_center", np.empty(0)).shape, 0)[0]
    shapes |= {"left_out_fold": (examples,), "left_out_center": (fits, way, size), "head_sharpness": (1,)}
    for name, tensor in found.items():
        kinds = (
            "i8"
            if name in ("named", "declared", "fold_fold", "left_out_fold")
            else "f4 f8"
            if name in ("unlabelled", "outside")
            else "f8"
        )
        if tensor.shape != shapes[name] or not tensor.size or tensor.dtype.str[1:] not in kinds.split():
            yield f"{name!r} is of type {tensor.dtype} and shape {tensor.shape}, not {shapes[name]}, or nothing in it"
        if not np.isfinite(tensor).all():
            yield f"{name!r} holds numbers that are not finite"
    for name in sorted({"names", "unlabelled", "outside"} & {*found} if unit else ()):
        if not has_unit_rows(found[name]):
            yield f"{name!r} are not of length 1"
    if "named" in found:
        slots = found["named"]
        if (
            (np.diff(slots) <= 0).any()
            or slots[0] < 0
            or slots[-1] >= way
            or not np.isin(found["declared"], (0, 1)).all()
        ):
            yield "names classes that do not exist, or one twice"
    tiny = np.finfo(np.float64).tiny
    least = {"cluster_worth": 0.0, "cluster_rows": 0.0}
    least |= {"row_temperature": tiny, "head_sharpness": tiny}
    if any((found[name] < bound).any() for name, bound in least.items() if name in found):
        yield "a cluster has a negative weight, or a temperature is not above 0"
    most = {"fold_fold": folds, "left_out_fold": fits}
    if any(((found[name] < 0) | (found[name] >= most[name])).any() for name in most if name in found):
        yield "an example is in a fold that does not exist"


def _tensors_problems(
    tensors: Tensors, way: int, unit: bool, items: Mapping[int, str], declared: Sequence[int]
) -> Iterator[str]:
    """Yield what is wrong with the tensors of a state of `way` classes; those `declared` need no examples."""
    kept = "rows" in tensors
    expected = {*STATISTICS, *(EXAMPLES if kept else ())}
    if set(tensors) != expected:
        yield f"holds {', '.join(sorted(tensors)) or 'nothing'} where {', '.join(sorted(expected))} belong"
    size = (0, *tensors["mean"].shape)[-1]
    shapes: dict[str, tuple[int, ...]] = {"count": (way,), "mean": (way, size), "squares": (way,)}
    kinds = dict.fromkeys(STATISTICS, "f8")
    if kept:
        number = (*tensors["rows"].shape, 0)[0]
        shapes |= {"rows": (number, size), "given": (1,)} | dict.fromkeys(("slots", "weights", "numbers"), (number,))
        kinds |= dict.fromkeys(("slots", "numbers", "given"), "i8") | {"weights": "f8", "rows": "f4 f8"}
    nameless = len(set(declared)) < way
    for name in shapes:
        tensor = tensors[name]
        if tensor.shape != shapes[name] or not (tensor.size or (name in EXAMPLES and not nameless)):
            yield f"{name!r} has shape {tensor.shape}, not {shapes[name]}, or nothing in it"
        if tensor.dtype.str[1:] not in kinds[name].split():
            yield f"{name!r} is of type {tensor.dtype}"
        if not np.isfinite(tensor).all():
            yield f"{name!r} holds numbers that are not finite"
    needed = np.ones(way, dtype=bool)
    needed[list(declared)] = False
    if (tensors["count"][needed] <= 0).any() or (tensors["count"] < 0).any() or (tensors["squares"] < 0).any():
        yield "a class has no examples, or a negative scatter"
    if kept:
        yield from _examples_problems(tensors, way, unit, items)
    elif items:
        yield "names examples, and holds none"


def _examples_problems(tensors: Tensors, way: int, unit: bool, items: Mapping[int, str]) -> Iterator[str]:
    """Yield contradictions between examples and statistics."""
    rows, slots, weights, numbers = (tensors[name] for name in ("rows", "slots", "weights", "numbers"))
    count, mean, squares = (tensors[name] for name in STATISTICS)
    if ((slots < 0) | (slots >= way)).any() or (weights <= 0).any():
        yield "an example has no class, or no weight"
    if not len(numbers):
        return
    if numbers[0] < 0 or (np.diff(numbers) <= 0).any() or numbers[-1] >= tensors["given"][0]:
        yield "examples are not numbered in their order"
    if not items.keys() <= set(numbers.tolist()):
        yield "names examples that it does not hold"
    if unit and not has_unit_rows(rows):
        yield "examples are not of length 1"
    if not np.allclose(sum_by_label(slots, weights, way), count, rtol=ROUNDING, atol=0):
        yield "the counts of classes are not those of their examples"
    found = moments_of(rows, slots, weights, way)
    if (np.abs(found.mean - mean) > ROUNDING * np.abs(rows).max()).any():
        yield "the means of classes are not those of their examples"
    tolerance = SQUARES_ROUNDING * squares + ROUNDING * count * np.linalg.norm(rows, axis=1).max() ** 2
    if (np.abs(found.squares - squares) > tolerance).any():
        yield "the scatter of classes is not that of their examples"


def has_unit_rows(rows: NDArray[Any]) -> bool:
    """Return whether all rows that are not 0 have length 1."""
    length = np.linalg.norm(rows, axis=1)
    return not (np.abs(length - 1)[length >= SHORTEST] > SQUARES_ROUNDING).any()


def _safetensors() -> Any:
    try:
        import safetensors.numpy
    except ImportError as error:
        raise ConfigError(f"models are saved with safetensors ({error}); pip install safetensors") from error
    return safetensors.numpy
