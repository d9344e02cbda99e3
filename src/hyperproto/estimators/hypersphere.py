"""HypersphereClassifier: few labelled vectors to a working classifier, scikit-learn style, without torch."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_consistent_length

from hyperproto.errors import ConfigError
from hyperproto.estimators.labels import label_array, plain_labels
from hyperproto.estimators.outlets import Outlets
from hyperproto.estimators.updates import Updates
from hyperproto.estimators.vectors import Floats
from hyperproto.regions import PRIOR_RATIO


class HypersphereClassifier(Updates, Outlets, ClassifierMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
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

    def __init__(
        self,
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
