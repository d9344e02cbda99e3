"""Attributes of fitted classifiers, shared by those of vectors, texts and images."""

from abc import abstractmethod
from collections.abc import Callable, Collection
from copy import deepcopy
from functools import wraps
from os import PathLike
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from hyperproto.errors import ConfigError, NotApplicableError
from hyperproto.estimators.conformal import Expected
from hyperproto.estimators.labels import with_reject_label
from hyperproto.estimators.onnx_export import export
from hyperproto.estimators.rejection import RejectionRule, RiskCoverage, risk_coverage, rule_of
from hyperproto.estimators.snapshot import Snapshot
from hyperproto.regions import Region

T = TypeVar("T")


def fitted_attribute(derive: Callable[[Any], T]) -> Callable[[Any], T]:
    """Turn a ConfigError of an attribute into an AttributeError.

    `hasattr` is then False for attributes without a value under the current settings. `dir`, tab completion and
    scikit-learn's HTML display rely on that.
    """

    @wraps(derive)
    def derive_or_raise(estimator: Any) -> T:
        try:
            return derive(estimator)
        except ConfigError as error:
            raise NotApplicableError(str(error)) from error

    return derive_or_raise


def copy_fitted(estimator: Any, shared: Collection[str] = ()) -> Any:
    """Copy an estimator for `copy.copy`: parameters and `shared` attributes are shared, all others are copied."""
    same = {*estimator.get_params(deep=False), *shared}
    copied = object.__new__(type(estimator))
    vars(copied).update({key: value if key in same else deepcopy(value) for key, value in vars(estimator).items()})
    return copied


class FittedAttributes:
    """Attributes and exports that derive from the snapshot of a fitted classifier."""

    coverage: float | None
    reject_label: Any

    @abstractmethod
    def _snapshot(self) -> Snapshot:
        """Return the current state with all that is derived from it."""

    @property
    @fitted_attribute
    def classes_(self) -> NDArray[Any]:
        """Class labels, sorted (N,)."""
        return self._snapshot().classes

    @property
    @fitted_attribute
    def answers_(self) -> NDArray[Any]:
        """Labels that `predict` may return: the classes and, if rows are rejected, the reject label."""
        model = self._snapshot()
        classes = model.classes
        return classes if rule_of(model) is None else with_reject_label(classes.tolist(), self.reject_label)

    @property
    @fitted_attribute
    def counts_(self) -> Any:
        """Number of examples of each class, or the sum of their weights (N,)."""
        counts = self._snapshot().moments.count
        whole: NDArray[Any] = counts.astype(np.int64)
        return whole if (counts == whole).all() else counts

    @property
    @fitted_attribute
    def centers_(self) -> NDArray[np.float64]:
        """Centre of each region (N, D); of "bayes" in the whitened space."""
        return np.asarray(self._snapshot().region_in_place.center)

    @property
    @fitted_attribute
    def radii_(self) -> NDArray[np.float64]:
        """Radius that the measure of each class subtracts (N,)."""
        return np.asarray(self._snapshot().region.bias_radius)

    @property
    @fitted_attribute
    def extents_(self) -> NDArray[np.float64]:
        """Distance to which each class extends (N,)."""
        return np.asarray(self._snapshot().region_with_extent.extent_radius)

    @property
    @fitted_attribute
    def means_(self) -> NDArray[np.float64]:
        """Mean of each class after the feature transform (N, D)."""
        return self._snapshot().means

    @property
    @fitted_attribute
    def mean_(self) -> NDArray[np.float64]:
        """Vector that "center-unit" subtracts (D,); 0 for other transforms."""
        model = self._snapshot()
        return model.mean if model.centered else np.zeros(model.class_moments.mean.shape[1])

    @property
    @fitted_attribute
    def region_(self) -> Region:
        """Fitted region, for rows after the feature transform."""
        return self._snapshot().region_in_place

    @property
    @fitted_attribute
    def temperature_(self) -> float:
        """Softmax temperature of `predict_proba`."""
        return self._snapshot().temperature

    @property
    @fitted_attribute
    def thresholds_(self) -> NDArray[np.float64]:
        """Largest distance to its mean at which each class is plausible (N,); infinite with too few examples."""
        return self._snapshot().thresholds

    @property
    @fitted_attribute
    def rejection_(self) -> RejectionRule:
        """Rule by which `predict` rejects rows, with its threshold; see `RejectionRule`."""
        return self._snapshot().rejection

    @property
    @fitted_attribute
    def risk_coverage_(self) -> RiskCoverage:
        """Leave-one-out precision against the share answered, for every threshold; see `RiskCoverage`."""
        return risk_coverage(self._snapshot())

    @property
    @fitted_attribute
    def expected_(self) -> Expected:
        """Leave-one-out accuracy, and what is rejected; see `Expected`."""
        return self._snapshot().expected

    def export_onnx(self, path: str | PathLike[str]) -> None:
        """Write the classifier, feature transform included, as an ONNX graph; see `hyperproto.estimators.onnx_export`.

        The graph takes vectors `x` (n, D) float32 and returns `scores`, `label` (index of the class; -1 for none of
        these), `name` (the label itself), `probabilities` if there is a temperature, and `plausible` if there is a
        coverage.
        """
        model = self._snapshot()
        fixed = model.parameters["temperature"] != "auto"
        export(model, Path(path), model.temperature if fixed or model.rows is not None else None, self.answers_)

    def export(self, folder: str | PathLike[str], *, int8: bool = False) -> None:
        """Write a classifier of texts or vectors, with its encoder, for `hyperproto.ExportedClassifier`.

        `int8` stores the encoder's weights in 8 bits: a quarter of the size, and slightly other answers.
        """
        from hyperproto.estimators.export import export_classifier  # which imports the classifiers

        export_classifier(self, folder, int8=int8)

    def __copy__(self) -> Self:
        """Return a classifier that shares the parameters and copies all that was learned."""
        copied: Self = copy_fitted(self)
        return copied
