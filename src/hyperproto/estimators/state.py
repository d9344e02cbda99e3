"""What every part of the classifier needs: its state, the rows it is given, and its attributes."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from hyperproto.errors import ConfigError
from hyperproto.estimators.memory import Memory
from hyperproto.estimators.model import Model
from hyperproto.estimators.settings import Settings
from hyperproto.estimators.vectors import Floats
from hyperproto.regions import Region

FLOATS = [np.float64, np.float32]  # float32 stays as it is, anything else becomes float64


class State:
    """The attributes of a fitted classifier, each derived from what it remembers when it is asked for."""

    _memory: Memory
    n_features_in_: int

    @property
    def classes_(self) -> NDArray[Any]:
        """The labels, sorted (N,)."""
        return self._model().classes

    @property
    def counts_(self) -> Any:
        """Examples of each class, or the sum of their weights (N,)."""
        counts = self._model().moments.count
        whole: NDArray[Any] = counts.astype(np.int64)
        return whole if (counts == whole).all() else counts

    @property
    def centers_(self) -> NDArray[np.float64]:
        """The centre of each region (N, D), in the whitened space if "bayes"."""
        return np.asarray(self._model().region.center)

    @property
    def radii_(self) -> NDArray[np.float64]:
        """What the measure subtracts (N,)."""
        return np.asarray(self._model().region.bias_radius)

    @property
    def extents_(self) -> NDArray[np.float64]:
        """How far each class reaches (N,)."""
        return np.asarray(self._model().whole_region.extent_radius)

    @property
    def means_(self) -> NDArray[np.float64]:
        """The mean of each class (N, D), after the feature transform."""
        return np.asarray(self._model().moments.mean)

    @property
    def mean_(self) -> NDArray[np.float64]:
        """What the feature transform subtracts (D,): 0 but for "center-unit"."""
        model = self._model()
        return model.mean if model.settings.transform == "center-unit" else np.zeros(self.n_features_in_)

    @property
    def region_(self) -> Region:
        """The fitted region."""
        return self._model().region

    @property
    def temperature_(self) -> float:
        """The temperature of the probabilities."""
        return self._model().temperature

    @property
    def thresholds_(self) -> NDArray[np.float64]:
        """The distance from its mean at which each class ends (N,); infinite if too little is known."""
        return self._model().thresholds

    def __sklearn_is_fitted__(self) -> bool:
        """Whether `fit` or `partial_fit` was called."""
        return hasattr(self, "_memory")

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            check_is_fitted(self)  # which says it in scikit-learn's words, and takes long to find out

    def _model(self) -> Model:
        settings = self._settings()  # first: it knows whether there was a fit
        return Model.of(self._memory, settings)

    def _settings(self) -> Settings:
        """The settings, checked against what is remembered; quickly, if they are those of the last time."""
        self._check_fitted()
        read, last = Settings.read(self), self._memory.last_settings
        if last is not None and last[0] == read:
            return last[1]
        settings = Settings(*read)
        if settings.unit != self._memory.unit:
            raise ConfigError(
                "region or feature_transform was changed after the fit, which kept other vectors; fit again"
            )
        self._memory.last_settings = (read, settings)
        return settings

    def _rows(self, X: Any) -> Floats:
        """Check rows to be judged."""
        self._check_fitted()
        if self._is_plain(X):
            return X  # type: ignore[no-any-return]
        rows: Floats = validate_data(self, X, reset=False, dtype=FLOATS)
        return rows

    def _is_plain(self, X: Any) -> bool:
        """Whether rows need no conversion: what scikit-learn's checks find out, for a tenth of the time."""
        return (
            type(X) is np.ndarray
            and X.ndim == 2
            and X.dtype in FLOATS
            and len(X) > 0
            and X.shape[1] == getattr(self, "n_features_in_", -1)
            and not hasattr(self, "feature_names_in_")
            and bool(np.isfinite(X).all() if X.size < 10_000 else np.isfinite(X.sum()))
        )
