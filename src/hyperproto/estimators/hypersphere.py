"""HypersphereClassifier: few labelled vectors to a working classifier, scikit-learn style, without torch."""

from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import assert_all_finite
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from hyperproto.errors import ConfigError, DataError
from hyperproto.estimators import storage
from hyperproto.estimators.diagnosis import Diagnosis, diagnose
from hyperproto.estimators.memory import Memory, encode, label_array, plain_labels
from hyperproto.estimators.model import Model
from hyperproto.estimators.onnx_export import export
from hyperproto.estimators.settings import Settings
from hyperproto.regions import PRIOR_RATIO, Region
from hyperproto.regions.arrays import Floats, Indices

Batch = tuple[Floats, list[Any], Indices, NDArray[np.float64] | None]  # rows, labels, codes, weights

FLOATS = [np.float64, np.float32]  # float32 stays as it is, anything else becomes float64


class HypersphereClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
    """Classify vectors by the regions of their classes, fitted in closed form.

    Parameters
    ----------
    region : "sphere", "point", "cone" or "gaussian".
    fit_mode : the closed form: "bayes" (sphere only), "unbiased", "paper" (eq. 3), "point" (nearest mean).
    feature_transform : "unit" scales every vector to length 1, "center-unit" subtracts the mean of the class means
        first, "none" or None leaves them alone. (Not called `transform`: scikit-learn takes whatever has that
        attribute for a transformer.)
    squared : measure by the squared distance (sphere and point).
    coverage : the share of genuine examples, such as 0.95, that "none of these" must let pass; None rejects nothing.
    class_thresholds : give a class a threshold of its own once it has ceil(1 / (1 - coverage)) - 1 examples, see Notes.
    guarantee : take thresholds, mostly wider ones, with which the coverage is certain to be at least 2 * coverage - 1,
        see Notes.
    reject_label : what `predict` says for "none of these"; "auto" is -1 among numbers, "none of these" among strings.
    temperature : of the probabilities, a number above 0, or "auto": fitted to the examples, each left out.
    store_support : keep the examples. Without them only count, mean and squares of each class are kept: enough for
        "point", "unbiased" and the squared "paper", but not for "bayes", "center-unit", coverage or a fitted
        temperature.
    prior_ratio : the ratio of within- to between-class variance that "bayes", and the temperature, expect before they
        have seen any.
    radius_distance : what the radius of "paper" is a mean of beside the squared measure: "squared" distances, or
        "plain" ones (sphere only).

    Attributes
    ----------
    classes_, counts_ (sums of weights), centers_, radii_ (what the measure subtracts), extents_ (how far each class
    reaches), means_, mean_ (what "center-unit" subtracts), region_, temperature_, thresholds_, n_features_in_.

    Notes
    -----
    `coverage` rests on distances to class means in units of the class's scatter. Each example is scored by the rest of
    its class, and a quantile of the scores of all classes is the threshold; with `class_thresholds`, a class that has
    enough examples goes by its own scores.

    - To be expected: if new vectors come as the examples came, a share `coverage` of them has its class in
      `predict_set`, on average over draws of examples and vectors; in each class, if it has a threshold of its own.
    - Certain, with `guarantee`: a share 2 * coverage - 1 of them, whatever the distribution, since the sets then hold
      those of jackknife+ (Barber et al. 2021). This is over all classes with one threshold, within a class with its
      own. Examples that are alone in their class count as infinitely far.
    - Not promised: the share for the examples at hand, or for vectors that come differently; how many strangers are
      rejected - thresholds of few examples each let most of them in; and nothing is certain with "center-unit", whose
      mean is taken for given.

    Examples
    --------
    >>> from hyperproto import HypersphereClassifier
    >>> X = [[1.0, 0.1], [0.9, 0.2], [1.0, 0.0], [0.1, 1.0]]
    >>> model = HypersphereClassifier().fit(X, ["cat", "cat", "cat", "dog"])
    >>> model.predict([[0.8, 0.3], [0.2, 0.7]]).tolist()
    ['cat', 'dog']
    >>> model.partial_fit([[-1.0, 0.0]], ["cow"]).predict([[-0.9, 0.1]]).tolist()
    ['cow']
    """

    _memory: Memory
    n_features_in_: int
    feature_names_in_: Any

    def __init__(
        self,
        *,
        region: str = "sphere",
        fit_mode: str = "bayes",
        feature_transform: str | None = "unit",
        squared: bool = True,
        coverage: float | None = None,
        class_thresholds: bool = False,
        guarantee: bool = False,
        reject_label: Any = "auto",
        temperature: float | str = "auto",
        store_support: bool = True,
        prior_ratio: float = PRIOR_RATIO,
        radius_distance: str = "squared",
    ) -> None:
        self.region = region
        self.fit_mode = fit_mode
        self.feature_transform = feature_transform
        self.squared = squared
        self.coverage = coverage
        self.class_thresholds = class_thresholds
        self.guarantee = guarantee
        self.reject_label = reject_label
        self.temperature = temperature
        self.store_support = store_support
        self.prior_ratio = prior_ratio
        self.radius_distance = radius_distance

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit a region to the examples of each class; one example is enough, and counts may differ.

        An example of weight w counts as w examples; w need not be whole.
        """
        settings = Settings.of(self._chosen(fitting=True))
        batch = self._batch(X, y, sample_weight, reset=True)
        memory = Memory(batch[0].shape[1], batch[0].dtype, settings.unit, settings.store_support)
        with np.errstate(over="ignore", invalid="ignore"):
            memory.add(*batch)
        if not memory.finite:  # as it is not if any row is not
            assert_all_finite(batch[0], estimator_name=type(self).__name__, input_name="X")
        self._memory = memory
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Add examples, of old classes or of new ones, as if they had been there from the start.

        `classes` is accepted because scikit-learn's own classifiers need it; this one does not.
        """
        if not self.__sklearn_is_fitted__():
            return self.fit(X, y, sample_weight)
        self._settings()  # they may have changed
        self._memory.add(*self._batch(X, y, sample_weight))
        return self

    def forget(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Take examples away as if they had never been there; a class without examples goes with them.

        With `store_support` each must be one of the examples. Without it nobody can tell: what was never added can be
        taken away too, and leaves nonsense.
        """
        check_is_fitted(self)
        self._memory.forget(*self._batch(X, y, sample_weight))
        return self

    def remove_class(self, label: Any) -> Self:
        """Take a class away with all its examples."""
        check_is_fitted(self)
        self._memory.remove(label.item() if isinstance(label, np.generic) else label)
        return self

    def merge(self, other: "HypersphereClassifier") -> Self:
        """Add everything that another classifier was fitted to; where both know a class, their examples join."""
        check_is_fitted(self)
        check_is_fitted(other)
        ours, theirs = Settings.of(self._chosen()), Settings.of(other._chosen())
        for name in ("transform", "unit", "store_support"):
            if getattr(ours, name) != getattr(theirs, name):
                setting = {"transform": "feature_transform", "unit": "region"}.get(name, name)
                raise ConfigError(
                    f"the two classifiers differ in {setting} ({getattr(self, setting)!r} and "
                    f"{getattr(other, setting)!r}), so they do not remember the same things; fit both alike"
                )
        if self.n_features_in_ != other.n_features_in_:
            raise DataError(
                f"this classifier was fitted to vectors of {self.n_features_in_} numbers, the other to "
                f"{other.n_features_in_}; only those of one encoder can be merged"
            )
        self._memory.absorb(other._memory)
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Name the class of each row: the one with the least measure; with a coverage, of those that are plausible."""
        model, X = self._model(), self._rows(X)
        labels = self._labels_and_reject(model.classes) if self.coverage is not None else model.classes
        best = np.empty(len(X), dtype=np.intp)
        for part, rows in model.each_block(X):
            scores = model.scores(rows)
            if self.coverage is not None:
                plausible = model.distance(rows) <= model.thresholds
                scores = np.where(plausible, scores, -np.inf)
                best[part] = np.where(plausible.any(axis=1), scores.argmax(axis=1), len(model.classes))
            else:
                best[part] = scores.argmax(axis=1)
        return labels[best]

    def predict_proba(self, X: Any) -> Floats:
        """The probability of each class (n, n_classes), given that it is one of them."""
        model, X = self._model(), self._rows(X)
        probability = np.empty((len(X), len(model.classes)), X.dtype)
        for part, rows in model.each_block(X):
            power = model.scores(rows) / model.temperature
            power -= power.max(axis=1, keepdims=True)
            np.exp(power, out=power)
            probability[part] = power / power.sum(axis=1, keepdims=True)
        return probability

    def decision_function(self, X: Any) -> Floats:
        """Minus the measure of each class, (n, n_classes); of two classes their difference, (n,)."""
        scores = -self.measure(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def measure(self, X: Any) -> Floats:
        """How far outside each region each row lies (n, n_classes): lower is more likely."""
        model, X = self._model(), self._rows(X)
        return np.concatenate([model.measure(rows) for _, rows in model.each_block(X)])

    def predict_set(self, X: Any) -> NDArray[np.bool_]:
        """Which classes are plausible for each row (n, n_classes): several, one, or none of these. Needs a coverage."""
        model, X = self._model(), self._rows(X)
        thresholds = model.thresholds
        return np.concatenate([model.distance(rows) <= thresholds for _, rows in model.each_block(X)])

    def novelty(self, X: Any) -> Floats:
        """How unlike every class each row is (n,): its least distance to a mean, 1 being usual for an example."""
        model, X = self._model(), self._rows(X)
        return np.concatenate([model.novelty(rows) for _, rows in model.each_block(X)])

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of rows that are given their label; a rejected row is right if its label is the reject label."""
        predicted, y = self.predict(X), np.asarray(plain_labels(y))
        check_consistent_length(predicted, y, sample_weight)
        return float(np.average(predicted == y, weights=sample_weight))

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

    def diagnose(self) -> Diagnosis:
        """Report on every class, and on the examples that look wrong; the examples must have been kept."""
        return diagnose(self._model())

    def save(self, folder: str | PathLike[str]) -> None:
        """Write the classifier to a folder, whole or not at all: a JSON file and a safetensors file, no pickle."""
        memory = self._model().memory
        names = list(self.feature_names_in_) if hasattr(self, "feature_names_in_") else None
        saved = storage.Saved(type(self).__name__, self._parameters(), memory, names, **self._origin())
        storage.write(Path(folder), saved)

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> Self:
        """Read a classifier that `save` wrote; files that were cut or changed are refused."""
        return cls._from_saved(folder, storage.read(Path(folder)))

    @classmethod
    def _from_saved(cls, folder: str | PathLike[str], saved: storage.Saved) -> Self:
        """Make the classifier that was read from a folder."""
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

    def _parameters(self) -> dict[str, Any]:
        """The parameters as `save` writes them."""
        parameters: dict[str, Any] = self.get_params(deep=False)
        return parameters

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

    def __sklearn_is_fitted__(self) -> bool:
        """Whether `fit` or `partial_fit` was called."""
        return hasattr(self, "_memory")

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            check_is_fitted(self)  # which says it in scikit-learn's words, and takes long to find out

    def _model(self) -> Model:
        settings = self._settings()  # first: it knows whether there was a fit
        return Model.of(self._memory, settings)

    def _chosen(self, fitting: bool = False) -> Any:
        """An object with the parameters as attributes; one whose encoder settles some of them says what they are.

        `fitting` asks for those of a new fit.
        """
        return self

    def _settings(self) -> Settings:
        """The settings, checked against what is remembered; quickly, if they are those of the last time."""
        self._check_fitted()
        read, last = Settings.read(self._chosen()), self._memory.last_settings
        if last is not None and last[0] == read:
            checked: Settings = last[1]
            return checked
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

    def _batch(self, X: Any, y: Any, sample_weight: Any, reset: bool = False) -> Batch:
        """Check examples; one that scikit-learn has seen before is recognised quickly."""
        y = plain_labels(y)
        quick = np.asarray(y) if not reset and self._is_plain(X) else None
        if quick is not None and quick.shape == X.shape[:1] and quick.dtype.kind in "iubU":
            y = quick
        else:
            later = reset and sample_weight is None  # `fit` sees from the means whether all rows are finite
            X, y = validate_data(self, X, y, reset=reset, dtype=FLOATS, ensure_all_finite=not later)
        weights = None if sample_weight is None else _weights(sample_weight, len(X))
        return (X, *encode(y), weights)

    def _labels_and_reject(self, classes: NDArray[Any]) -> NDArray[Any]:
        """The labels, and after them what stands for none of these."""
        label = self.reject_label
        if isinstance(label, str) and label == "auto":
            label = "none of these" if any(isinstance(name, str) for name in classes.tolist()) else -1
        if label in classes.tolist():
            raise ConfigError(
                f"reject_label={label!r} is also a class; choose another, so that the two can be told apart"
            )
        return label_array([*classes.tolist(), label])


def _weights(sample_weight: Any, size: int) -> NDArray[np.float64] | None:
    """Check weights, one a row or one for all; None if all are 1. Errors are ValueErrors, as scikit-learn's are."""
    weights = np.asarray(sample_weight, dtype=np.float64)
    weights = np.full(size, weights) if weights.ndim == 0 else weights
    if weights.shape != (size,):
        raise ValueError(f"sample_weight has shape {weights.shape}, and there are {size} rows; give one number a row")
    if not np.isfinite(weights).all() or (weights < 0).any():
        wrong = int(np.flatnonzero(~np.isfinite(weights) | (weights < 0))[0])
        raise ValueError(f"sample_weight[{wrong}] is {weights[wrong]}; a weight is how often a row counts: 0 or more")
    if not weights.any():
        raise ValueError("every sample_weight is zero, so there is nothing to learn from; give one above 0")
    return None if (weights == 1).all() else weights
