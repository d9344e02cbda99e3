"""HypersphereClassifier: few labelled vectors to a working classifier, scikit-learn style, without torch."""

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import wraps
from numbers import Real
from operator import attrgetter
from os import PathLike
from pathlib import Path
from reprlib import repr as short
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import assert_all_finite, check_array
from sklearn.utils._param_validation import Interval, StrOptions, make_constraint
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d, validate_data

from hyperproto.errors import ConfigError, DataError, NotApplicableError, unknown_name
from hyperproto.estimators import storage
from hyperproto.estimators.conformal import Expected
from hyperproto.estimators.doctor import Diagnosis, diagnose
from hyperproto.estimators.inputs import check_rows, plain_labels, unmasked
from hyperproto.estimators.label_checks import (
    check_name_label,
    check_names,
    warn_of_items,
    warn_of_labels,
    warn_of_one_class,
)
from hyperproto.estimators.memory import LABEL_TYPES, Memory, encode, label_array, unlabelled_rows
from hyperproto.estimators.model import Model
from hyperproto.estimators.onnx_export import export
from hyperproto.estimators.ranges import all_in_range, check_answers, check_numbers, check_range
from hyperproto.heads import RefinedForm
from hyperproto.regions import FIT_MODES, PRIOR_RATIO, REGIONS, ClosedForm, Region
from hyperproto.regions.arrays import Floats, Indices
from hyperproto.regions.sphere import RADIUS_DISTANCES, check_radius_distance
from hyperproto.registry import TRANSFORMS

T = TypeVar("T")
Batch = tuple[Floats, list[Any], Indices, NDArray[np.float64] | None]  # rows, labels, codes, weights


@dataclass(frozen=True)
class Given:
    """What a call gives to be learned from, checked."""

    batch: Batch
    unlabelled: Floats | None
    names: Mapping[Any, Floats]
    declared: Collection[Any]  # labels that are classes also without an example
    items: Mapping[int, str]  # texts or paths of the rows, by position, where they are known

    @property
    def labels(self) -> list[Any]:
        """Labels that are classes after the call: those of examples whose weight is above 0, and the declared ones."""
        _, labels, codes, weights = self.batch
        if weights is not None and labels:
            labels = [labels[code] for code in np.unique(codes[weights > 0])]
        return list(dict.fromkeys([*labels, *self.declared]))


LARGEST = 1e100  # a number that is given: products of larger ones overflow
LIGHTEST, HEAVIEST = 1e-5, 1e9  # between which the largest weight of a call lies: a weight is a number of examples
CARRIED = 1e12  # the largest ratio of two weights: float64 has 16 digits, and sums and squares need some of them
FLOATS = [np.float64, np.float32]  # float32 stays as it is, anything else becomes float64
KINDS = {"fit_mode": "fit mode", "feature_transform": "transform", "radius_distance": "radius_distance"}
GIVE = {
    "coverage": "a share between 0 and 1, such as 0.95, or None",
    "temperature": "'auto' or a number above 0",
    "prior_ratio": "a number above 0",
    **dict.fromkeys(("squared", "class_thresholds", "guarantee", "store_support", "refine"), "True or False"),
}
AUTO_REFINE = 'refine="auto" is deprecated and now means refine=False; set refine=True for a softmax regression'


def fitted_attribute(derive: Callable[[Any], T]) -> Callable[[Any], T]:
    """Raise an AttributeError where the settings leave an attribute without a value.

    `hasattr` is then False, which `dir`, tab completion and scikit-learn's HTML display rely on.
    """

    @wraps(derive)
    def derive_or_lack(estimator: Any) -> T:
        try:
            return derive(estimator)
        except ConfigError as error:
            raise NotApplicableError(str(error)) from error

    return derive_or_lack


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
    coverage : the share of genuine examples, such as 0.95, whose class is to be among the plausible ones; `predict`
        rejects a row whose likeliest class is not plausible. None rejects nothing.
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
    refine : move the head of "bayes" to a softmax regression that is held to it (see `hyperproto.heads.softmax`);
        slower, and mostly better, above all with unlabelled rows. "auto", an earlier default, is deprecated and means
        False.
    unlabelled_label : the label in `y` of rows that have none, such as -1; None is always one.

    Attributes
    ----------
    classes_, counts_ (sums of weights), centers_, radii_ (what the measure subtracts), extents_ (how far each class
    reaches), means_, mean_ (what "center-unit" subtracts), region_, temperature_, thresholds_, expected_ (left-out
    accuracy, mean size of a plausible set), n_features_in_.

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
        refine: bool | str = False,
        unlabelled_label: Any = None,
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
        self.refine = refine
        self.unlabelled_label = unlabelled_label

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "region": [str],  # a name of `hyperproto.regions.REGIONS`
        "fit_mode": [StrOptions(set(FIT_MODES))],
        "feature_transform": [StrOptions(set(TRANSFORMS)), None],
        "squared": ["boolean"],
        "coverage": [Interval(Real, 0, 1, closed="neither"), None],
        "class_thresholds": ["boolean"],
        "guarantee": ["boolean"],
        "reject_label": "no_validation",
        "temperature": [StrOptions({"auto"}), Interval(Real, 0, None, closed="neither")],
        "store_support": ["boolean"],
        "prior_ratio": [Interval(Real, 0, None, closed="neither")],
        "radius_distance": [StrOptions(set(RADIUS_DISTANCES))],
        "refine": ["boolean", StrOptions({"auto"})],
        "unlabelled_label": "no_validation",
    }
    _memory: Memory
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
    ) -> Self:
        """Fit a region to the examples of each class; one example is enough, and counts may differ.

        An example of weight w counts as w examples; w need not be whole. A row whose label is None, or
        `unlabelled_label`, is an unlabelled one.

        Spheres of fit_mode="bayes" also learn from `names`, a mapping from labels to vectors (D,) of what the classes
        are called, and from `unlabelled` rows (U, D). A label that has a name and no example is a class, too. With
        names for all classes `X` and `y` may be empty, or None.
        """
        return self._fit(X, y, sample_weight, names, unlabelled)

    def _fit(
        self, X: Any, y: Any, sample_weight: Any, names: Any, unlabelled: Any, classes_may_follow: bool = False
    ) -> Self:
        """Fit; a single class is no reason for a warning if others may be added by `partial_fit`."""
        chosen = self._chosen(fitting=True)
        form = _closed_form(chosen)
        if chosen.refine == "auto":
            warnings.warn(AUTO_REFINE, FutureWarning, stacklevel=3)
        given = self._given(X, y, sample_weight, names, unlabelled, reset=True)
        rows = given.batch[0]
        memory = Memory(rows.shape[1], rows.dtype, _scales_rows(chosen, form), self.store_support)
        _check_side(form, given.declared, given.unlabelled)
        memory.checked = (_VALUES(chosen), form)
        with np.errstate(over="ignore", invalid="ignore"):
            self._remember(memory, given)
        if not memory.finite:  # as it is not if any row is not
            assert_all_finite(rows, estimator_name=type(self).__name__, input_name="X")
        if not memory.labels:
            raise DataError("every row is unlabelled, and no class has a name; give a label, or names")
        if self.coverage is None and not classes_may_follow:
            warn_of_one_class(memory.labels)
        self._memory = memory
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
    ) -> Self:
        """Add examples, of old classes or of new ones, as if they had been there from the start; see `fit`.

        `X` and `y` may be None where only `names` or `unlabelled` rows are added. `classes` is accepted because
        scikit-learn's own classifiers need it; this one does not.
        """
        if not self.__sklearn_is_fitted__():
            return self._fit(X, y, sample_weight, names, unlabelled, classes_may_follow=True)
        memory = self._memory
        _, form = self._checked_form(memory)  # parameters may have changed
        given = self._given(X, y, sample_weight, names, unlabelled)
        _check_side(form, given.declared, given.unlabelled)
        self._remember(memory, given)
        return self

    def forget(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Take examples away as if they had never been there; a class without examples goes with them.

        One that was given a name stays, known by that alone. Rows whose label is None, or `unlabelled_label`, are taken
        from the unlabelled ones. With `store_support` each must be one of the examples. Without it nobody can tell:
        what was never added can be taken away too, and leaves nonsense.
        """
        check_is_fitted(self)
        (rows, labels, codes, weights), unlabelled = self._batch(X, y, sample_weight)
        memory = self._memory
        with memory.lock:
            if unlabelled is not None:
                memory.side.without_rows(memory.as_kept(unlabelled))  # all of them or, if one was never there, none
            if weights is not None and not weights.all():
                there = np.flatnonzero(weights)
                present, codes = np.unique(codes[there], return_inverse=True)
                rows, weights, labels = rows[there], weights[there], [labels[i] for i in present]
            if labels:
                memory.forget(rows, labels, codes, weights)
            if unlabelled is not None:
                memory.forget_unlabelled(unlabelled)
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
        ours, theirs = self._chosen(), other._chosen()
        for name, same in (
            ("feature_transform", (ours.feature_transform or "none") == (theirs.feature_transform or "none")),
            ("region", _scales_rows(ours, _closed_form(ours)) == _scales_rows(theirs, _closed_form(theirs))),
            ("store_support", self.store_support == other.store_support),
        ):
            if not same:
                raise ConfigError(
                    f"the two classifiers differ in {name} ({getattr(self, name)!r} and {getattr(other, name)!r}), "
                    "so they do not remember the same things; fit both alike"
                )
        if self.n_features_in_ != other.n_features_in_:
            raise DataError(
                f"this classifier was fitted to vectors of {self.n_features_in_} numbers, the other to "
                f"{other.n_features_in_}; only those of one encoder can be merged"
            )
        labels, known = list(other._memory.labels), dict(self._memory.slot_of)
        self._check_reject_label(self._memory, labels)
        warn_of_labels([label for label in labels if label not in known], known)
        self._memory.absorb(other._memory)
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the likeliest class of each row (n,): the one with the least measure.

        With a coverage a row whose likeliest class is not plausible for it gets the reject label.
        """
        model, X = self._model(), self._rows(X)
        labels = self._labels_and_reject(model.classes.tolist()) if self.coverage is not None else model.classes
        best = np.empty(len(X), dtype=np.intp)
        for part, rows in model.each_block(X):
            scores = model.scores(rows)
            likeliest = scores.argmax(axis=1)
            check_answers(scores[np.arange(len(rows)), likeliest], X, part.start)
            if self.coverage is not None:
                distance = model.distance(rows)
                check_answers(distance, X, part.start)
                plausible = distance[np.arange(len(rows)), likeliest] <= model.thresholds[likeliest]
                likeliest = np.where(plausible, likeliest, len(model.classes))
            best[part] = likeliest
        return labels[best]

    def predict_proba(self, X: Any) -> Floats:
        """The probability of each class (n, n_classes), given that it is one of them."""
        model, X = self._model(), self._rows(X)
        probability = np.empty((len(X), len(model.classes)), X.dtype)
        for part, rows in model.each_block(X):
            power = model.scores(rows) / model.temperature
            most = power.max(axis=1, keepdims=True)
            check_answers(most, X, part.start)
            power -= most
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
        measured = np.concatenate([model.measure(rows) for _, rows in model.each_block(X)])
        check_answers(measured, X)
        return measured

    def predict_set(self, X: Any) -> NDArray[np.bool_]:
        """Which classes are plausible for each row (n, n_classes): several, one, or none of these. Needs a coverage."""
        model, X = self._model(), self._rows(X)
        thresholds = model.thresholds
        plausible = np.empty((len(X), len(model.classes)), dtype=bool)
        for part, rows in model.each_block(X):
            distance = model.distance(rows)
            check_answers(distance, X, part.start)
            plausible[part] = distance <= thresholds
        return plausible

    def novelty(self, X: Any) -> Floats:
        """How unlike every class each row is (n,): its least distance to a mean, 1 being usual for an example."""
        model, X = self._model(), self._rows(X)
        novelty = np.concatenate([model.novelty(rows) for _, rows in model.each_block(X)])
        check_answers(novelty, X)
        return novelty

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of rows that are given their label; a rejected row is right if its label is the reject label."""
        predicted, y = self.predict(X), column_or_1d(plain_labels(y), warn=True)
        check_consistent_length(predicted, y, sample_weight)
        weights = None if sample_weight is None else _weights(sample_weight, len(predicted), LARGEST)
        return float(np.average(predicted == y, weights=weights))

    @property
    @fitted_attribute
    def classes_(self) -> NDArray[Any]:
        """The labels, sorted (N,)."""
        return self._model().classes

    @property
    @fitted_attribute
    def counts_(self) -> Any:
        """Examples of each class, or the sum of their weights (N,)."""
        counts = self._model().moments.count
        whole: NDArray[Any] = counts.astype(np.int64)
        return whole if (counts == whole).all() else counts

    @property
    @fitted_attribute
    def centers_(self) -> NDArray[np.float64]:
        """The centre of each region (N, D), in the whitened space if "bayes"."""
        return np.asarray(self._model().region_in_place.center)

    @property
    @fitted_attribute
    def radii_(self) -> NDArray[np.float64]:
        """What the measure subtracts (N,)."""
        return np.asarray(self._model().region.bias_radius)

    @property
    @fitted_attribute
    def extents_(self) -> NDArray[np.float64]:
        """How far each class reaches (N,)."""
        return np.asarray(self._model().region_with_extent.extent_radius)

    @property
    @fitted_attribute
    def means_(self) -> NDArray[np.float64]:
        """The mean of each class (N, D), after the feature transform."""
        return self._model().means

    @property
    @fitted_attribute
    def mean_(self) -> NDArray[np.float64]:
        """What the feature transform subtracts (D,): 0 but for "center-unit"."""
        model = self._model()
        return model.mean if model.centered else np.zeros(self.n_features_in_)

    @property
    @fitted_attribute
    def region_(self) -> Region:
        """The fitted region."""
        return self._model().region_in_place

    @property
    @fitted_attribute
    def temperature_(self) -> float:
        """The temperature of the probabilities."""
        return self._model().temperature

    @property
    @fitted_attribute
    def thresholds_(self) -> NDArray[np.float64]:
        """The distance from its mean at which each class ends (N,); infinite if too little is known."""
        return self._model().thresholds

    @property
    @fitted_attribute
    def expected_(self) -> Expected:
        """Left-out accuracy, and with a coverage the mean number of plausible classes: see `Expected`."""
        return self._model().expected

    def diagnose(self) -> Diagnosis:
        """Report on every class, and on the examples that look wrong; the examples must have been kept."""
        return diagnose(self._model())

    def save(self, folder: str | PathLike[str], *, unlabelled: bool = False) -> None:
        """Write the classifier to a folder, whole or not at all: a JSON file and a safetensors file, no pickle.

        Unlabelled rows are written only if asked for by `unlabelled`. Without them what they came to is written: the
        classifier that is loaded gives the same answers. Examples may be added to it, but the clusters of unlabelled
        rows stay as they are, no more rows can be added, and a refined head is refined by the examples alone.
        """
        self._model()  # checks the settings
        names = list(self.feature_names_in_) if hasattr(self, "feature_names_in_") else None
        saved = storage.Saved(type(self).__name__, self._parameters(), self._memory, names, self._origin())
        storage.write(Path(folder), saved, None if unlabelled else lambda: self._model().learned())

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
        loaded.n_features_in_ = saved.memory.n_features
        if saved.feature_names is not None:
            loaded.feature_names_in_ = np.array(saved.feature_names, dtype=object)
        loaded._take_origin(saved.encoder)
        loaded._model()  # checks the settings
        return loaded

    def _parameters(self) -> dict[str, Any]:
        """The parameters as `save` writes them."""
        parameters: dict[str, Any] = self.get_params(deep=False)
        return parameters

    def _origin(self) -> Mapping[str, Any] | None:
        """The encoder that made the vectors, as `save` writes it; here it is not known."""
        return None

    def _take_origin(self, encoder: Mapping[str, Any] | None) -> None:
        """Take back what `_origin` gave."""

    def _input(self, X: Any) -> Any:
        """Refuse what cannot be learned from, and bring the rest into a form with a length and positions."""
        return check_rows(X)

    def _named(self, X: Any) -> dict[int, str]:
        """What rows are called, by their positions, where they have names; vectors have none."""
        return {}

    def export_onnx(self, path: str | PathLike[str]) -> None:
        """Write the classifier, feature transform included, as an ONNX graph; see `hyperproto.estimators.onnx_export`.

        The graph takes `x` (n, D) float32 and gives `scores`, `label` (the index of the class; -1 for none of these),
        `probabilities` if there is a temperature, and `plausible` if there is a coverage.
        """
        model = self._model()
        known = self.temperature != "auto" or model.memory.examples is not None
        export(model, Path(path), model.temperature if known else None)

    def __copy__(self) -> Self:
        """A classifier that can be changed without this one: parameters are shared, all that was learned is copied."""
        copied: Self = copy_fitted(self)
        return copied

    def __sklearn_is_fitted__(self) -> bool:
        """Whether `fit` or `partial_fit` was called."""
        return hasattr(self, "_memory")

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            check_is_fitted(self)  # which says it in scikit-learn's words, and takes long to find out

    def _model(self) -> Model:
        """What follows from the memory and the parameters; the same until either changes.

        A reader keeps the model it has got here. A change in another thread makes a new one for the next reader.
        """
        self._check_fitted()
        memory = self._memory
        values, form = self._checked_form(memory)
        model = memory.model
        if model is None or model[0] != values:
            with memory.lock:  # so that no change comes between the snapshot and its place in the memory
                parameters = dict(zip(PARAMETERS, values, strict=True))
                model = memory.model = (values, Model(memory.snapshot(), form, parameters))
        found: Model = model[1]
        return found

    def _chosen(self, fitting: bool = False) -> Any:
        """An object with the parameters as attributes; one whose encoder settles some of them says what they are.

        `fitting` asks for those of a new fit.
        """
        return self

    def _checked_form(self, memory: Memory) -> tuple[tuple[Any, ...], ClosedForm]:
        """The parameters' values and the closed form, checked against the memory; quickly, if none has changed."""
        chosen = self._chosen()
        values, checked = _VALUES(chosen), memory.checked
        if checked is None or checked[0] != values:
            form = _closed_form(chosen)
            if _scales_rows(chosen, form) != memory.unit:
                raise ConfigError(
                    "region or feature_transform was changed after the fit, which kept other vectors; fit again"
                )
            side = memory.side
            _check_side(form, side.declared, side.rows.view if len(side.rows.view) else None)
            checked = memory.checked = (values, form)
        found: tuple[tuple[Any, ...], ClosedForm] = checked
        return found

    def _rows(self, X: Any) -> Floats:
        """Check rows to be judged."""
        self._check_fitted()
        if self._is_plain(X):
            return X  # type: ignore[no-any-return]
        rows: Floats = self._validated(X, reset=False)
        if not self._memory.unit and self._chosen().feature_transform != "center-unit":
            check_range(rows)
        return rows

    def _validated(self, X: Any, *y: Any, **options: Any) -> Any:
        """Check and convert rows, and labels, as scikit-learn does."""
        X = check_rows(X)
        try:
            with np.errstate(invalid="ignore"):  # its sum of large numbers
                return validate_data(self, X, *y, dtype=FLOATS, **options)
        except OverflowError:  # a whole number of more than 308 digits
            check_numbers(X)
            raise

    def _is_plain(self, X: Any) -> bool:
        """Whether rows need no conversion: what scikit-learn's checks find out, for a tenth of the time."""
        return (
            type(X) is np.ndarray
            and X.ndim == 2
            and X.dtype in FLOATS
            and len(X) > 0
            and X.shape[1] == getattr(self, "n_features_in_", -1)
            and not hasattr(self, "feature_names_in_")
            and all_in_range(X)
        )

    def _given(self, X: Any, y: Any, sample_weight: Any, names: Any, unlabelled: Any, reset: bool = False) -> "Given":
        """Check all that is given to be learned from."""
        X = None if X is None else self._input(X)
        others = None if unlabelled is None else self._others(unlabelled, reset)
        nothing = X is None or (hasattr(X, "__len__") and len(X) == 0)
        vectors, declared = self._name_vectors(names, []) if nothing else ({}, ())
        if nothing and (vectors or (others is not None and not reset)):
            if y is not None and len(y):
                raise DataError(f"there are no rows for {len(y)} labels; give one row a label")
            width = self._width(vectors, others, reset)
            empty = np.empty((0, width), np.float64 if others is None else others.dtype)
            batch: Batch = (empty, [], np.empty(0, np.intp), None)
        else:
            batch, found = self._batch(X, y, sample_weight, reset)
            if found is not None:
                others = found if others is None else np.concatenate([found, others])
            vectors, declared = self._name_vectors(names, batch[1])
        if others is not None and others.shape[1] != batch[0].shape[1]:
            raise DataError(
                f"unlabelled rows have {others.shape[1]} numbers, and the examples {batch[0].shape[1]}; "
                "only those of one encoder go together"
            )
        for label, vector in vectors.items():
            if vector.shape != (batch[0].shape[1],):
                raise DataError(
                    f"the name of {label!r} is an array of shape {vector.shape}; a name is a vector of "
                    f"{batch[0].shape[1]} numbers, as the examples are"
                )
        return Given(batch, others, vectors, declared, self._named(X))

    def _width(self, names: Mapping[Any, Floats], rows: Floats | None, reset: bool) -> int:
        """How many numbers a row has, where there are no examples to tell."""
        if not reset:
            return self.n_features_in_
        self.n_features_in_ = len(next(iter(names.values()))) if rows is None else rows.shape[1]
        if hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        return self.n_features_in_

    def _others(self, rows: Any, reset: bool) -> Floats:
        """Check unlabelled rows; their width is looked at beside that of the examples."""
        try:
            found: Floats = check_array(
                check_rows(rows, "unlabelled"), dtype=FLOATS, input_name="unlabelled", estimator=self
            )
        except OverflowError:  # a whole number of more than 308 digits
            raise DataError("unlabelled holds a number that is too large for float64; scale the rows") from None
        return found

    def _name_vectors(self, names: Any, labels: Sequence[Any]) -> tuple[dict[Any, Floats], Collection[Any]]:
        """Check names, and say which of them make a class of a label that has no example. `labels` have examples."""
        if names is None:
            return {}, ()
        if not isinstance(names, Mapping):
            raise DataError(f"names is a {type(names).__name__}; give a mapping from labels to vectors")
        vectors: dict[Any, Floats] = {}
        for given, vector in names.items():
            label = given.item() if isinstance(given, np.generic) else given
            check_name_label(label)
            try:
                found = np.asarray(vector, dtype=np.float64)
            except (TypeError, ValueError, OverflowError):
                raise DataError(
                    f"the name of {label!r} is {short(vector)}; here a name is a vector of numbers, as float64 has"
                ) from None
            if not np.isfinite(found).all():
                raise DataError(f"the name of {label!r} holds a number that is not finite; give another vector")
            vectors[label] = found
        return vectors, vectors.keys()

    def _remember(self, memory: Memory, given: "Given") -> None:
        """Add all that was given, or nothing."""
        with memory.lock:
            memory.check_unlabelled(given.unlabelled)
            labels = given.labels
            check_names(given.declared, {*memory.slot_of, *given.batch[1]} if given.declared else ())
            self._check_reject_label(memory, labels)
            warn_of_labels([label for label in labels if label not in memory.slot_of], memory.slot_of)
            warn_of_items(given.items, *given.batch[1:])
            if given.batch[1]:
                memory.add(*given.batch, given.items)
            if given.names or given.unlabelled is not None:
                memory.inform(given.names, given.declared, given.unlabelled)

    def _batch(self, X: Any, y: Any, sample_weight: Any, reset: bool = False) -> tuple[Batch, Floats | None]:
        """Check examples; one that scikit-learn has seen before is recognised quickly.

        Rows without a label weigh nothing among them, and come a second time behind them.
        """
        y = plain_labels(y)
        quick = None
        if not reset and self._is_plain(X):
            with suppress(ValueError):  # rows of different lengths, which scikit-learn refuses below
                quick = np.asarray(y)
        if quick is not None and quick.shape == X.shape[:1] and quick.dtype.kind in "iubU":
            y = quick
        else:
            later = reset and sample_weight is None  # `fit` sees from the means whether all rows are finite
            X, y = self._validated(X, y, reset=reset, ensure_all_finite=not later)
        weights = None if sample_weight is None else _weights(sample_weight, len(X), HEAVIEST)
        if weights is not None:
            _check_carried(weights)
        missing = unlabelled_rows(y, self.unlabelled_label)
        if missing is None:
            return (X, *encode(y), weights), None
        rows = X[missing]
        assert_all_finite(rows, estimator_name=type(self).__name__, input_name="X")
        labels, found = encode(y[~missing]) if not missing.all() else ([], np.empty(0, np.intp))
        codes = np.zeros(len(y), np.intp)
        codes[~missing] = found
        weights = np.where(missing, 0.0, 1.0 if weights is None else weights)
        return (X, labels, codes, weights), rows

    def _check_reject_label(self, memory: Memory, labels: Sequence[Any]) -> None:
        """Refuse new classes with which the reject label would also be a class; without a coverage it is not used."""
        if self.coverage is not None and any(label not in memory.slot_of for label in labels):
            self._labels_and_reject([*memory.labels, *labels])

    def _labels_and_reject(self, classes: list[Any]) -> NDArray[Any]:
        """Return the labels, and after them what stands for none of these."""
        label = self.reject_label
        if isinstance(label, str) and label == "auto":
            label = "none of these" if any(isinstance(name, str) for name in classes) else -1
        if not isinstance(label, LABEL_TYPES) or label != label:
            raise ConfigError(f"reject_label={label!r}: give a string or a number")
        if label in classes:
            raise ConfigError(
                f"reject_label={label!r} is also a class; choose another, so that the two can be told apart"
            )
        return label_array([*classes, label])


def copy_fitted(estimator: Any, shared: Collection[str] = ()) -> Any:
    """What `copy.copy` gives of an estimator: its parameters and `shared` are the same objects, all else is copied."""
    same = {*estimator.get_params(deep=False), *shared}
    copied = object.__new__(type(estimator))
    vars(copied).update({key: value if key in same else deepcopy(value) for key, value in vars(estimator).items()})
    return copied


def _weights(sample_weight: Any, size: int, heaviest: float) -> NDArray[np.float64] | None:
    """Check weights, one a row or one for all; None if all are 1. Errors are ValueErrors, as scikit-learn's are."""
    weights = np.asarray(unmasked(sample_weight, "sample_weight"), dtype=np.float64)
    weights = np.full(size, weights) if weights.ndim == 0 else weights
    if weights.shape != (size,):
        raise ValueError(f"sample_weight has shape {weights.shape}, and there are {size} rows; give one number a row")
    fits = (weights >= 0) & (weights <= heaviest)
    if not fits.all():
        wrong = int(np.argmin(fits))
        raise ValueError(
            f"sample_weight[{wrong}] is {weights[wrong]}; a weight is how often a row counts: from 0 to {heaviest:g}"
        )
    if not weights.any():
        raise ValueError("every sample_weight is zero, so there is nothing to learn from; give one above 0")
    return None if (weights == 1).all() else weights


def _check_carried(weights: NDArray[np.float64]) -> None:
    """Refuse weights of examples, some of which are above 0, whose sums float64 cannot carry."""
    most, least = int(np.argmax(weights)), int(np.argmin(np.where(weights > 0, weights, np.inf)))
    if weights[most] < LIGHTEST:
        raise ValueError(
            f"the largest sample_weight is {weights[most]:g}; a weight is how often a row counts, and less than "
            f"{LIGHTEST:g} examples tell nothing: multiply all weights by one number"
        )
    if weights[most] > CARRIED * weights[least]:
        raise ValueError(
            f"sample_weight[{most}] is {weights[most]:g} and sample_weight[{least}] is {weights[least]:g}; beyond a "
            f"ratio of {CARRIED:g} the smaller one is lost to rounding: set it to 0"
        )


def _closed_form(chosen: Any) -> ClosedForm:
    """Check the parameters, alone and together, and return how they fit a region."""
    _check_parameters(chosen)
    region = REGIONS[chosen.region]
    options = {name: getattr(chosen, name) for name in region.options(chosen.fit_mode)}
    check_radius_distance(chosen.radius_distance, chosen.squared)
    refined = chosen.refine != "auto" and bool(chosen.refine)
    if refined and not (chosen.fit_mode == "bayes" and chosen.squared):
        raise ConfigError("refine=True is for region='sphere' with fit_mode='bayes' and squared=True")
    form = (RefinedForm if refined else ClosedForm)(region, chosen.fit_mode, options)
    if chosen.radius_distance != "squared" and (chosen.region, chosen.fit_mode) != ("sphere", "paper"):
        raise ConfigError("radius_distance is a reading of eq. 3: only spheres of fit_mode='paper' have such a radius")
    if not chosen.store_support:
        moves = "feature_transform='center-unit' moves them all; use 'unit' or 'none'"
        judges = "coverage judges each of them; use coverage=None"
        for needed, why in (
            (form.needs_examples, form.needs_examples),
            (chosen.feature_transform == "center-unit", moves),
            (chosen.coverage is not None, judges),
        ):
            if needed:
                raise ConfigError(f"store_support=False keeps no examples, but {why}, or set store_support=True")
    return form


def _check_side(form: ClosedForm, declared: Collection[Any], unlabelled: Floats | None) -> None:
    """Refuse names and unlabelled rows where the closed form cannot use them."""
    if form.mode != "bayes" and (declared or unlabelled is not None):
        raise ConfigError(
            "names of classes and unlabelled rows are for region='sphere' with fit_mode='bayes'; "
            f"fit_mode={form.mode!r} cannot use them"
        )
    if unlabelled is not None and not form.options["squared"]:
        raise ConfigError("unlabelled rows go with the squared measure; use squared=True")


def _scales_rows(chosen: Any, form: ClosedForm) -> bool:
    """Whether every vector can be scaled to length 1 as it comes: a cone knows directions only."""
    transform = chosen.feature_transform or "none"
    return transform == "unit" or (transform == "none" and form.region.directions)


def _check_parameters(chosen: Any) -> None:
    """Hold each parameter to its constraints, in our own words."""
    if not isinstance(chosen.region, str) or chosen.region not in REGIONS:
        raise ConfigError(unknown_name("region", str(chosen.region), REGIONS))
    for name in PARAMETERS:
        value, allowed = getattr(chosen, name), HypersphereClassifier._parameter_constraints[name]
        number_wanted = isinstance(value, bool) and "boolean" not in allowed
        too_large = isinstance(value, int) and abs(value) > LARGEST
        if number_wanted or too_large or not any(make_constraint(each).is_satisfied_by(value) for each in allowed):
            names = allowed[0].options if isinstance(allowed[0], StrOptions) and name in KINDS else ()
            told = unknown_name(KINDS[name], str(value), names) if names else f"{name}={value!r}: give {GIVE[name]}"
            raise ConfigError(told)


# The parameters that a model follows from; what stands for "none of these", or for no label, changes nothing in it.
PARAMETERS = tuple(
    name for name in HypersphereClassifier._parameter_constraints if name not in ("reject_label", "unlabelled_label")
)
_VALUES = attrgetter(*PARAMETERS)
