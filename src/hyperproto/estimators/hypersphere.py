"""HypersphereClassifier: a scikit-learn classifier for vectors, fitted in closed form to a few examples per class."""

import warnings
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import assert_all_finite
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d

from hyperproto.errors import ConfigError, DataError
from hyperproto.estimators import storage
from hyperproto.estimators.advice import Advice
from hyperproto.estimators.attributes import FittedAttributes
from hyperproto.estimators.batches import read_batch, read_rows, read_weights
from hyperproto.estimators.derived import derive
from hyperproto.estimators.labels import (
    check_labels,
    plain_label,
    plain_labels,
    warn_of_labels,
    with_reject_label,
)
from hyperproto.estimators.parameters import (
    CONSTRAINTS,
    NAMES,
    check_alike,
    check_evidence,
    closed_form,
    rules_of,
    values_of,
)
from hyperproto.estimators.rejection import rule_of
from hyperproto.estimators.snapshot import Snapshot
from hyperproto.estimators.state import State
from hyperproto.progress import Show, silent
from hyperproto.regions import PRIOR_RATIO, ClosedForm
from hyperproto.regions.arrays import Floats

AUTO_REFINE = 'refine="auto" is deprecated and now means refine=False; set refine=True for a softmax regression'


class HypersphereClassifier(Advice, FittedAttributes, ClassifierMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
    """Few-shot classifier for vectors: each class is a region of the space, fitted in closed form.

    One example per class is enough. Examples and classes can be added (`partial_fit`), removed (`forget`,
    `remove_class`) and merged at any time, with the same result as a new fit. Probabilities are calibrated by
    leave-one-out. With a `coverage`, `reject_rate` or `precision`, or with `outside` items, `predict` rejects rows.

    Parameters
    ----------
    region : "sphere", "point", "cone" or "gaussian".
    fit_mode : closed form: "bayes" (sphere only), "unbiased", "paper" (eq. 3) or "point" (nearest mean).
    feature_transform : "unit" scales rows to length 1; "center-unit" first subtracts the mean of the class means;
        "none" or None leaves rows unchanged.
    squared : whether to measure by squared distance (sphere and point).
    coverage : share of items of the classes, such as 0.95, whose class must be plausible (see Notes).
    reject_rate : share of items of the classes, such as 0.05, that `predict` rejects; needs 1 / reject_rate - 1
        examples. Set one of `coverage`, `reject_rate` and `precision`.
    precision : probability, such as 0.95, with which an answer of `predict` is right; other rows are rejected.
    class_thresholds : give a class its own threshold once it has ceil(1 / (1 - coverage)) - 1 examples.
    guarantee : use wider thresholds with a guaranteed coverage of at least 2 * coverage - 1.
    reject_label : answer of `predict` for "none of these"; "auto": -1 among numbers, "none of these" among strings.
    temperature : softmax temperature, a number above 0, or "auto": fitted by leave-one-out.
    store_support : whether to keep the examples. Without them only counts, means and squares are kept, which is enough
        for "point", "unbiased" and squared "paper", but not for "bayes", "center-unit", a coverage or
        temperature="auto".
    prior_ratio : prior ratio of within-class to between-class variance, for "bayes" and the temperature.
    radius_distance : distances that the radius of "paper" averages: "squared" or "plain" (sphere only).
    refine : whether to refine "bayes" by a softmax regression (see `hyperproto.heads.softmax`); slower, and usually
        more accurate with unlabelled rows. "auto" is deprecated and means False.
    unlabelled_label : label in `y`, besides None, that marks unlabelled rows, such as -1.

    Attributes
    ----------
    classes_, counts_, centers_, radii_, extents_, means_, mean_, region_, temperature_, thresholds_, rejection_,
    risk_coverage_, expected_, n_features_in_. Each is documented as a property.

    Notes
    -----
    A class is plausible for a row if the distance to the class mean, in units of the class's scatter, is at most a
    threshold: a conformal quantile of the leave-one-out distances of the examples, over all classes or within one.

    - Expected: if new rows are drawn like the examples, a share `coverage` of them has its class in `predict_set`, on
      average over draws of examples and rows; within each class, too, if the class has its own threshold.
    - Guaranteed, with `guarantee`: a share of 2 * coverage - 1 for any distribution (jackknife+, Barber et al. 2021).
      Examples that are alone in their class count as infinitely far. Does not hold for "center-unit".
    - Not guaranteed: coverage for one given set of examples or under a shift of distribution, and the share of
      out-of-class rows that is rejected, which is small with few examples; `expected_` estimates it.

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

    def __init__(
        self,
        *,
        region: str = "sphere",
        fit_mode: str = "bayes",
        feature_transform: str | None = "unit",
        squared: bool = True,
        coverage: float | None = None,
        reject_rate: float | None = None,
        precision: float | None = None,
        class_thresholds: bool = False,
        guarantee: bool = False,
        reject_label: Any = "auto",
        temperature: float | str = "auto",
        store_support: bool = True,
        prior_ratio: float = PRIOR_RATIO,
        radius_distance: str = "squared",
        refine: bool | str = False,
        unlabelled_label: Any = None,
    ) -> None:
        self.region = region
        self.fit_mode = fit_mode
        self.feature_transform = feature_transform
        self.squared = squared
        self.coverage = coverage
        self.reject_rate = reject_rate
        self.precision = precision
        self.class_thresholds = class_thresholds
        self.guarantee = guarantee
        self.reject_label = reject_label
        self.temperature = temperature
        self.store_support = store_support
        self.prior_ratio = prior_ratio
        self.radius_distance = radius_distance
        self.refine = refine
        self.unlabelled_label = unlabelled_label

    _parameter_constraints: ClassVar[dict[str, Any]] = CONSTRAINTS
    _state: State
    reject_rate: float | None = None  # which earlier pickles lack
    precision: float | None = None
    n_features_in_: int
    feature_names_in_: Any

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        names: Mapping[Any, Any] | None = None,
        unlabelled: Any = None,
        outside: Any = None,
        progress: Show | None = None,
    ) -> Self:
        """Fit a region to the examples of each class.

        Parameters
        ----------
        X, y : rows (n, D) and their labels. A row whose label is None or `unlabelled_label` is an unlabelled row. Both
            may be None or empty if `names` names all classes.
        sample_weight : how often each row counts; need not be whole.
        names : vectors (D,) of class names or descriptions, by label ("bayes" only). A label that has a name and no
            example is a class, too.
        unlabelled : unlabelled rows (U, D) ("bayes" only).
        outside : rows (O, D) of none of the classes. Without another rule they set the threshold of `predict`.
        progress : callback `(done, total, note)`.

        With unlabelled rows or `refine`, everything that `predict` and `predict_proba` need is computed here, and again
        by each later change. Otherwise it takes little time and is computed when first needed.
        """
        return self._fit(X, y, sample_weight, names, unlabelled, outside, progress=progress)

    def _fit(
        self,
        *given: Any,
        items: Mapping[int, str] | None = None,
        classes_may_follow: bool = False,
        progress: Show | None = None,
    ) -> Self:
        """Fit to the arguments of `fit`, in that order; `items` are texts or paths of rows.

        One class is no reason for a warning if others may follow.
        """
        form, unit = closed_form(self)
        if self.refine == "auto":
            warnings.warn(AUTO_REFINE, FutureWarning, stacklevel=3)
        batch = read_batch(self, *given, items=items, reset=True)
        if batch.has_evidence:
            check_evidence(form, batch.declared, batch.unlabelled)
        check_labels(batch, (), self, first=not classes_may_follow)
        state = State(batch.rows.shape[1], batch.rows.dtype, unit, self.store_support)
        state.checked = values_of(self), form
        with np.errstate(over="ignore", invalid="ignore"):
            state.add(batch)
        if not state.finite:  # which shows whether all rows are finite, in less time
            assert_all_finite(batch.rows, estimator_name=type(self).__name__, input_name="X")
        if not state.labels:
            raise DataError("every row is unlabelled, and no class has a name; give a label, or names")
        self._state = state
        return self._derived(progress) if state.unlabelled.size or self.refine is True else self

    def _derived(self, progress: Show | None = None) -> Self:
        """Compute what takes long after a change, so that no prediction has to."""
        if self._state.unlabelled.size or self.refine is True:
            derive(self._snapshot(), progress or silent)
        return self

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        classes: Any = None,
        sample_weight: Any = None,
        *,
        names: Mapping[Any, Any] | None = None,
        unlabelled: Any = None,
        outside: Any = None,
    ) -> Self:
        """Add examples of old or new classes, with the same result as a fit to all examples; see `fit`.

        `X` and `y` may be None if only `names`, `unlabelled` or `outside` rows are added. `classes` is ignored;
        scikit-learn's own classifiers need it.
        """
        return self._partial_fit(X, y, sample_weight, names, unlabelled, outside)

    def _partial_fit(self, *given: Any, items: Mapping[int, str] | None = None) -> Self:
        """Add the arguments of `fit`, in that order; `items` are texts or paths of rows."""
        if not self.__sklearn_is_fitted__():
            return self._fit(*given, items=items, classes_may_follow=True)
        state = self._state
        form = self._closed_form(state)
        batch = read_batch(self, *given, items=items)
        if batch.has_evidence:
            check_evidence(form, batch.declared, batch.unlabelled)
        with state.lock:
            check_labels(batch, state.slot_of, self)
            state.add(batch)
        return self._derived()

    def forget(self, X: Any, y: Any = None, sample_weight: Any = None, *, outside: Any = None) -> Self:
        """Remove examples, with the same result as a fit without them; a class without examples is removed, too.

        A class that was given a name stays. Rows whose label is None or `unlabelled_label` are removed from the
        unlabelled rows, and `outside` from the out-of-class rows (`X` may then be None). With `store_support`, rows
        that are not among the examples are refused. Without stored examples this is not checked: removing rows that
        were never added corrupts the statistics.
        """
        check_is_fitted(self)
        self._state.forget(read_batch(self, X, y, sample_weight, None, None, outside))
        return self._derived()

    def remove_class(self, label: Any) -> Self:
        """Remove a class with all its examples."""
        check_is_fitted(self)
        self._state.remove(plain_label(label))
        return self._derived()

    def merge(self, other: "HypersphereClassifier") -> Self:
        """Add all that another classifier was fitted to; examples of a shared class are pooled."""
        check_is_fitted(self)
        check_is_fitted(other)
        check_alike(self, other)
        known = dict(self._state.slot_of)
        new = [label for label in other._state.labels if label not in known]
        if new and (rules_of(self) or self._state.outside.size or other._state.outside.size):
            with_reject_label([*known, *new], self.reject_label)
        warn_of_labels(new, known)
        self._state.absorb(other._state)
        return self._derived()

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class with the least measure for each row (n,), or the reject label.

        Rows are rejected if that class is not plausible under a coverage, or by `rejection_`.
        """
        X, model = self._rows_of(X), self._snapshot()
        best = model.best(X)
        if rule_of(model) is None:
            return model.classes[best]
        return with_reject_label(model.classes.tolist(), self.reject_label)[best]

    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of each class, given that it is one of them (n, n_classes)."""
        X = self._rows_of(X)
        return self._snapshot().probabilities(X)

    def decision_function(self, X: Any) -> Floats:
        """Return minus the measure of each class (n, n_classes); of two classes the difference (n,)."""
        scores = -self.measure(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def measure(self, X: Any) -> Floats:
        """Return how far each row lies outside each region (n, n_classes); lower is more likely."""
        X = self._rows_of(X)
        return self._snapshot().measures(X)

    def predict_set(self, X: Any) -> NDArray[np.bool_]:
        """Return which classes are plausible for each row (n, n_classes): none, one or several. Needs a coverage."""
        X = self._rows_of(X)
        return self._snapshot().plausible(X)

    def novelty(self, X: Any) -> Floats:
        """Return how unlikely each row is to belong to any class (n,).

        1 is typical of an example; at 2 no class fits better than another. See `hyperproto.estimators.novelty`.
        """
        X = self._rows_of(X)
        return self._snapshot().novelties(X)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy; a rejected row is right if its label is the reject label."""
        predicted, y = self.predict(X), column_or_1d(plain_labels(y), warn=True)
        check_consistent_length(predicted, y, sample_weight)
        weights = None if sample_weight is None else read_weights(sample_weight, len(predicted))
        return float(np.average(predicted == y, weights=weights))

    def save(self, folder: str | PathLike[str], *, unlabelled: bool = False) -> None:
        """Write the classifier to a folder, atomically: a JSON file and a safetensors file, no pickle.

        Unlabelled rows are written only if `unlabelled` is true. Otherwise a summary of them is written. The loaded
        classifier then gives the same answers and accepts examples, but no more unlabelled rows, and after a change a
        refined head becomes the closed form.
        """
        names = list(self.feature_names_in_) if hasattr(self, "feature_names_in_") else None
        self._snapshot()  # checks the parameters
        saved = storage.Saved(type(self).__name__, self.get_params(deep=False), self._state, names)
        storage.write(Path(folder), saved, None if unlabelled else lambda: self._snapshot().summarised())

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> Self:
        """Read a classifier that `save` wrote; damaged or changed files are refused."""
        saved = storage.read(Path(folder))
        loaded: Self = storage.construct(cls, folder, saved)
        return loaded._restore(saved)

    def _restore(self, saved: storage.Saved) -> Self:
        """Take over the state of a saved classifier."""
        self._state = saved.state
        self.n_features_in_ = saved.state.n_features
        if saved.feature_names is not None:
            self.feature_names_in_ = np.array(saved.feature_names, dtype=object)
        self._snapshot()  # checks the parameters
        return self

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether `fit` or `partial_fit` was called."""
        return hasattr(self, "_state")

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a pickle; version 0.1 called the state `_memory`."""
        if "_memory" in state:
            state = {("_state" if name == "_memory" else name): value for name, value in state.items()}
        super().__setstate__(state)

    def _rows_of(self, X: Any) -> Floats:
        """Validate rows to predict."""
        if not self.__sklearn_is_fitted__():
            check_is_fitted(self)  # raises scikit-learn's error, and takes long to find out
        return read_rows(self, X, self._state.unit or self.feature_transform == "center-unit")

    def _snapshot(self) -> Snapshot:
        """Return the current state with all that is derived from it; cached until state or parameters change.

        Readers keep the snapshot that they got. A change in another thread makes a new one for the next reader.
        """
        if not self.__sklearn_is_fitted__():
            check_is_fitted(self)
        state, values = self._state, values_of(self)
        cached: tuple[Any, Snapshot] | None = state.snapshot
        if cached is None or cached[0] != values:
            parameters = dict(zip(NAMES, values, strict=True))
            form = self._closed_form(state)
            with state.lock:  # no change may come between the snapshot and its place in the cache
                cached = values, Snapshot(**state.frozen(), plain_form=form, parameters=parameters)
                state.snapshot = cached
        return cached[1]

    def _closed_form(self, state: State) -> ClosedForm:
        """Return the closed form after a check of the parameters against the state; cached until one changes."""
        values = values_of(self)
        if state.checked is None or state.checked[0] != values:
            form, unit = closed_form(self)
            if unit != state.unit:
                raise ConfigError(
                    "region or feature_transform was changed after the fit, which kept other vectors; fit again"
                )
            check_evidence(form, state.declared, state.unlabelled.view if state.unlabelled.size else None)
            state.checked = values, form
        found: ClosedForm = state.checked[1]
        return found
