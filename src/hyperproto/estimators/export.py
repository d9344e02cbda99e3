"""Export of a classifier of texts or vectors to a folder that `hyperproto.exported` reads without torch."""

import json
from collections.abc import Mapping
from hashlib import sha256
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import hyperproto
from hyperproto.errors import ConfigError
from hyperproto.estimators.attributes import FittedAttributes
from hyperproto.estimators.few_shot import FewShotClassifier
from hyperproto.estimators.rejection import rule_of
from hyperproto.estimators.storage import HEAD as MODEL
from hyperproto.estimators.storage import model_lock
from hyperproto.estimators.text import FewShotTextClassifier
from hyperproto.exported import ENCODER, FORMAT, GRAPH, HEAD, TOKENIZER, ExportedClassifier
from hyperproto.files import atomic_write, is_there, json_checksum, read_bytes

TOLERANCE = 1e-4  # largest difference of a number of a vector between torch and onnxruntime
CHECKED = 32  # examples that are encoded both ways
SAMPLE = ("a text", "Another text, which is a little longer than the first.")


def export_classifier(model: Any, folder: str | PathLike[str], int8: bool = False) -> None:
    """Write a fitted classifier to `folder`, with the encoder if it is one of texts.

    Some texts are encoded by both first; nothing is written if a vector differs by more than 1e-4. `int8` stores the
    encoder's weights in 8 bits: a quarter of the size, and slightly different vectors.
    """
    if not isinstance(model, FittedAttributes):
        raise ConfigError(f"{type(model).__name__} cannot be exported; only classifiers of one label an item can be")
    _ = model._snapshot().temperature  # an error if there is none, since answers have probabilities
    if (rule := rule_of(model._snapshot())) not in (None, "coverage"):
        raise ConfigError(f"{rule} rejects by a score that is not exported; set a coverage instead, or no rule")
    if isinstance(model, FewShotClassifier) and not isinstance(model, FewShotTextClassifier):
        raise ConfigError(
            "only classifiers of texts and of vectors are exported with their encoder; for images write the head "
            "alone, with --onnx FILE or export_onnx(path), and encode images by the network itself"
        )
    if int8 and not isinstance(model, FewShotTextClassifier):
        raise ConfigError("int8 is for the encoder, and a classifier of vectors has none")
    folder = Path(folder)
    if is_there(folder / MODEL):
        raise ConfigError(f"{folder}: holds a model; export to a folder of its own, such as {folder / 'export'}")
    with TemporaryDirectory() as scratch:
        draft = Path(scratch)
        head = _write_parts(model, draft, int8)
        text = json.dumps({**head, "checksum": json_checksum(head)}, indent=1, ensure_ascii=False)
        (draft / HEAD).write_text(text + "\n", encoding="utf-8")
        if isinstance(model, FewShotTextClassifier) and not int8:
            _compare(model, ExportedClassifier(draft))
        contents = {name: read_bytes(draft / name) for name in (*head["files"], HEAD)}  # the head last
    with model_lock(folder):
        for name, content in contents.items():
            with atomic_write(folder / name) as file:
                file.write(content)


def _write_parts(model: FittedAttributes, draft: Path, int8: bool) -> dict[str, Any]:
    """Write the graphs and the tokenizer to `draft`; return the content of export.json."""
    model.export_onnx(draft / GRAPH)
    labels = model.classes_.tolist()
    text: Mapping[str, Any] | None = None
    if isinstance(model, FewShotTextClassifier):
        text = _write_encoder(model, draft, int8)
    names = [GRAPH] if text is None else [GRAPH, TOKENIZER, ENCODER]
    return {
        "format": FORMAT,
        "hyperproto": hyperproto.__version__,
        "items": "vector" if text is None else "text",
        "classes": labels,
        "reject_label": model.answers_[len(labels) :].tolist()[0] if len(model.answers_) > len(labels) else None,
        "size": int(model.means_.shape[1]),
        "text": text,
        "int8": int8,
        "encoder": getattr(model, "encoder_", None),
        "files": {name: sha256(read_bytes(draft / name)).hexdigest() for name in names},
    }


def _write_encoder(model: FewShotTextClassifier, draft: Path, int8: bool) -> dict[str, Any]:
    """Write tokenizer and encoder; return the settings of the tokenizer."""
    model.check_encoder()
    from hyperproto.estimators.networks import export_text_network

    settings = export_text_network(model.item_encoder().network(), draft / ENCODER, draft / TOKENIZER)
    if int8:
        from onnxruntime.quantization import QuantType, quantize_dynamic

        full = draft / f"full-{ENCODER}"
        (draft / ENCODER).rename(full)
        quantize_dynamic(full, draft / ENCODER, weight_type=QuantType.QInt8)
    return settings


def _compare(model: FewShotTextClassifier, exported: ExportedClassifier) -> None:
    """Raise an error if the exported encoder gives other vectors."""
    texts = [*SAMPLE, *list(model.examples_.values())[:CHECKED]]
    away = float(np.abs(exported.vectors(texts) - model.item_encoder().encode(texts)).max())
    if not away <= TOLERANCE:
        raise ConfigError(
            f"the exported encoder's vectors differ from those of the model by up to {away:.2g}, where {TOLERANCE} is "
            "allowed; nothing was written: this checkpoint cannot be exported, use the model itself"
        )
