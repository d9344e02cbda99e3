"""What leaves a fitted classifier: a diagnosis, a folder on disk, an ONNX file."""

from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np

from hyperproto.errors import DataError
from hyperproto.estimators import storage
from hyperproto.estimators.diagnosis import Diagnosis, diagnose
from hyperproto.estimators.onnx_export import export
from hyperproto.estimators.state import State


class Outlets(State):
    """The methods that write or report, and `load`."""

    feature_names_in_: Any

    def diagnose(self) -> Diagnosis:
        """Report on every class, and on the examples that look wrong; the examples must have been kept."""
        return diagnose(self._model())

    def save(self, folder: str | PathLike[str]) -> None:
        """Write the classifier to a folder, whole or not at all: a JSON file and a safetensors file, no pickle."""
        memory = self._model().memory
        names = list(self.feature_names_in_) if hasattr(self, "feature_names_in_") else None
        parameters = self.get_params(deep=False)  # type: ignore[attr-defined]
        storage.write(Path(folder), storage.Saved(type(self).__name__, parameters, memory, names, **self._origin()))

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> Self:
        """Read a classifier that `save` wrote; files that were cut or changed are refused."""
        saved = storage.read(Path(folder))
        if saved.kind != cls.__name__:
            raise DataError(f"{folder}: holds a {saved.kind}, not a {cls.__name__}; load it as what it is")
        try:
            loaded = cls(**saved.parameters)
        except TypeError as error:
            raise DataError(f"{folder}: was saved by another version of hyperproto ({error}); use that one") from None
        loaded._memory = saved.memory
        loaded.n_features_in_ = saved.memory.moments.mean.shape[1]
        if saved.feature_names is not None:
            loaded.feature_names_in_ = np.array(saved.feature_names, dtype=object)
        loaded._take_origin(saved)
        loaded._model()  # checks the settings
        return loaded

    def _origin(self) -> dict[str, Any]:
        """Where the vectors came from, as `Saved` has it; here nobody knows."""
        return {}

    def _take_origin(self, saved: storage.Saved) -> None:
        """Take back what `_origin` gave."""

    def export_onnx(self, path: str | PathLike[str]) -> None:
        """Write the classifier, feature transform included, as an ONNX graph; see `hyperproto.estimators.onnx_export`.

        The graph takes `x` (n, D) float32 and gives `scores`, `label` (the index of the class; -1 for none of these),
        `probabilities` if there is a temperature, and `plausible` if there is a coverage.
        """
        model = self._model()
        known = model.settings.temperature != "auto" or model.memory.support is not None
        export(model, Path(path), model.temperature if known else None)
