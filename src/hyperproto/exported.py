"""Exported classifiers of texts and vectors: answers by onnxruntime and tokenizers, without torch and scikit-learn.

`hyperproto export MODEL` writes such a folder (see `estimators.export`):

    export.json      labels, settings of the tokenizer, and the checksums of the other files
    tokenizer.json   tokenizer of texts, as the `tokenizers` library reads it
    encoder.onnx     tokens (n, L) and their numbers (n,) to vectors (n, D); only of texts
    head.onnx        vectors (n, D) to scores, labels and probabilities
"""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hyperproto.data.formats.items import checked_texts, label_array, refuse_single_text
from hyperproto.errors import ConfigError, DataError
from hyperproto.files import json_checksum, read_bytes, read_json
from hyperproto.windows import pooled_windows, text_windows

FORMAT = "hyperproto-export/1"
HEAD, TOKENIZER, ENCODER, GRAPH = "export.json", "tokenizer.json", "encoder.onnx", "head.onnx"
AGAIN = "export the model again"
TOGETHER = 16  # texts in a forward pass: less padding is faster than larger batches
LARGEST = float(np.finfo(np.float32).max)

Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predictions for n items."""

    labels: NDArray[Any]  # (n,) label, or the reject label
    probabilities: Floats  # (n, N), in the order of `classes_`
    plausible: NDArray[np.bool_] | None  # (n, N), if the classifier has a coverage


class ExportedClassifier:
    """Classifier read from an exported folder; its answers are those of the classifier that was exported.

    It does not learn: `hyperproto add` changes the model, which is then exported again. Threads may share it.

    Parameters
    ----------
    folder : folder that `hyperproto export` wrote.
    threads : threads of onnxruntime; None: as many as there are cores.

    Attributes
    ----------
    classes_ : labels, sorted (N,).
    items : "text" or "vector".
    rejects : whether an answer may be the reject label.

    Examples
    --------
    >>> from hyperproto import ExportedClassifier
    >>> ExportedClassifier("exported").predict(["Where is my card?"])  # doctest: +SKIP
    """

    def __init__(self, folder: str | PathLike[str], *, threads: int | None = None) -> None:
        self.folder = Path(folder)
        head = read_head(self.folder)
        self.items: str = head["items"]
        self.classes_ = label_array(head["classes"])
        self.rejects = head["reject_label"] is not None
        self._labels = label_array([*head["classes"], *([head["reject_label"]] if self.rejects else [])])
        self.n_features_in_: int = head["size"]
        graph = _session(self._content(head, GRAPH), threads)
        self._head = graph, [output.name for output in graph.get_outputs()]
        self._encoder = None
        if self.items == "text":
            self._encoder = _Encoder.of(
                head["text"], self._content(head, TOKENIZER), self._content(head, ENCODER), threads
            )

    def predictions(self, X: Any) -> Predictions:
        """Return labels, probabilities and plausible classes of items in one pass."""
        x = self.vectors(X)
        graph, names = self._head
        found = dict(zip(names, graph.run(None, {"x": x}), strict=True))
        return Predictions(self._labels[found["label"]], found["probabilities"], found.get("plausible"))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the label of each item (n,), or the reject label."""
        return self.predictions(X).labels

    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of each class, given that it is one of them (n, N)."""
        return self.predictions(X).probabilities

    def predict_set(self, X: Any) -> NDArray[np.bool_]:
        """Return which classes are plausible for each item (n, N); needs a coverage."""
        plausible = self.predictions(X).plausible
        if plausible is None:
            raise ConfigError(f"{self.folder}: the exported model has no coverage; fit it with one, and {AGAIN}")
        return plausible

    def vectors(self, X: Any) -> Floats:
        """Return the vectors (n, D) of texts, or checked vectors."""
        if self._encoder is not None:
            refuse_single_text(X)
            texts = checked_texts(list(X))
            return self._encoder(texts) if texts else np.empty((0, self.n_features_in_), dtype=np.float32)
        try:
            x = np.asarray(X, dtype=np.float64)
        except (OverflowError, TypeError, ValueError):
            raise DataError(f"X is {type(X).__name__}, no array of numbers (n, {self.n_features_in_})") from None
        if x.ndim != 2 or x.shape[1] != self.n_features_in_:
            raise DataError(f"X has shape {x.shape}; this classifier takes vectors (n, {self.n_features_in_})")
        if not (np.abs(x) <= LARGEST).all():  # NaN included
            row = int(np.flatnonzero(~(np.abs(x) <= LARGEST).all(axis=1))[0])
            raise DataError(
                f"X[{row}] holds a number that is not finite in float32; scale the vectors, or leave it out"
            )
        return x.astype(np.float32)

    def _content(self, head: dict[str, Any], name: str) -> bytes:
        """Read a file of the folder; refuse one that was cut or changed."""
        path = self.folder / name
        content = read_bytes(path, missing=f"{HEAD} names it: {AGAIN}")
        if sha256(content).hexdigest() != head["files"].get(name):
            raise DataError(f"{path}: was cut or changed since the export; {AGAIN}")
        return content


class _Encoder:
    """Texts to vectors: the tokens of the `tokenizers` library, then a graph."""

    def __init__(self, settings: dict[str, Any], tokenizer: Any, graph: Any) -> None:
        self.tokenizer = tokenizer
        self.graph = graph
        self.prompt: str = settings["prompt"]
        self.lower_case: bool = settings["lower_case"]
        self.keeps_end: bool = settings["keeps_end"]
        self.before: list[int] = settings["before"]
        self.after: list[int] = settings["after"]
        self.fill: int = settings["fill"]
        self.room: int = settings["max_length"] - len(self.before) - len(self.after)
        self.long: str = settings["long"]

    @classmethod
    def of(cls, settings: dict[str, Any], tokenizer: bytes, graph: bytes, threads: int | None) -> Self:
        """Load tokenizer and graph from the content of their files."""
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise ConfigError(f"texts need tokenizers ({error}); pip install 'hyperproto[onnx]'") from error
        return cls(settings, Tokenizer.from_str(tokenizer.decode()), _session(graph, threads))

    def __call__(self, texts: list[str]) -> Floats:
        """Encode texts; of those longer than the encoder reads, what the setting `long` says."""
        if self.long == "truncate":
            return self._encode(texts)
        parts = text_windows(self.tokenizer, texts, self.room, self.prompt, self.lower_case)
        ends = np.cumsum([len(each) for each in parts])
        vectors = np.split(self._encode([window for each in parts for window in each]), ends[:-1])
        return np.stack([each[0] if len(each) == 1 else pooled_windows(each, self.long) for each in vectors])

    def _encode(self, texts: list[str]) -> Floats:
        """Encode texts, those of similar length together."""
        rows = [self._tokens(found.ids) for found in self._tokenised(texts)]
        lengths = np.array([len(row) for row in rows], dtype=np.int64)
        order = np.argsort(lengths, kind="stable")
        found: Floats | None = None
        for some in _parts(order):
            size = lengths[some]
            pieces = np.full((len(some), int(size.max())), self.fill, dtype=np.int64)
            for place, n in enumerate(some):
                pieces[place, : len(rows[n])] = rows[n]
            [vectors] = self.graph.run(["vectors"], {"pieces": pieces, "lengths": size})
            if found is None:
                found = np.empty((len(rows), vectors.shape[1]), dtype=np.float32)
            found[some] = vectors
        assert found is not None  # there is at least one text
        return found

    def _tokenised(self, texts: list[str]) -> Any:
        """Tokenise texts with the prompt, without special tokens."""
        given = [self.prompt + text for text in texts]
        return self.tokenizer.encode_batch(
            [text.lower() for text in given] if self.lower_case else given, add_special_tokens=False
        )

    def _tokens(self, pieces: list[int]) -> list[int]:
        """Return tokens between the special ones, of a long text its beginning or its end."""
        if len(pieces) > self.room:
            pieces = pieces[-self.room :] if self.keeps_end else pieces[: self.room]
        return [*self.before, *pieces, *self.after] or [self.fill]


def read_head(folder: Path) -> dict[str, Any]:
    """Read and check export.json."""
    path = folder / HEAD
    head: Any = read_json(path, missing=f"write it with: hyperproto export MODEL --to {folder}")
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        found = head.get("format") if isinstance(head, dict) else None
        raise DataError(f"{path}: has format {found!r:.60}, and this version reads {FORMAT!r}; {AGAIN}")
    if head.get("checksum") != json_checksum({key: value for key, value in head.items() if key != "checksum"}):
        raise DataError(f"{path}: was changed since the export; {AGAIN}")
    return head


def _parts(order: NDArray[np.intp]) -> Iterator[NDArray[np.intp]]:
    for start in range(0, len(order), TOGETHER):
        yield order[start : start + TOGETHER]


def _session(content: bytes, threads: int | None) -> Any:
    """Load a graph."""
    try:
        import onnxruntime
    except ImportError as error:
        raise ConfigError(
            f"exported classifiers run on onnxruntime ({error}); pip install 'hyperproto[onnx]'"
        ) from error
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if threads is not None:
        options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
