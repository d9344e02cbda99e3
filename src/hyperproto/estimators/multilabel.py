"""MultiLabelClassifier: a classifier for rows, texts or images that may carry several labels, or none."""

from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path
from threading import RLock
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from hyperproto.data.formats.items import label_array
from hyperproto.errors import ConfigError, DataError, NotApplicableError, unknown_name
from hyperproto.estimators.batches import name_vectors, validated
from hyperproto.estimators.hypersphere import HypersphereClassifier
from hyperproto.estimators.image import ImageEncoder
from hyperproto.estimators.inputs import check_answers, check_range, check_rows, unit_rows
from hyperproto.estimators.items import ItemEncoder, encoder_in_words, run_folder, same_vectors
from hyperproto.estimators.label_sets import (
    LabelledRows,
    LabelSets,
    check_separator,
    read_label_sets,
    read_labelled,
    write_labelled,
)
from hyperproto.estimators.labels import check_names, plain_label, warn_of_labels
from hyperproto.estimators.text import TextEncoder, encode_names
from hyperproto.heads.label_regions import ExpectedLabels, LabelRegions
from hyperproto.regions.arrays import Doubles, Floats
from hyperproto.registry import Trust
from hyperproto.registry import trust as trust_files

AUTO = "auto"
TRANSFORMS = ("unit", "none")
ENCODERS: dict[str, type[ItemEncoder]] = {cls.__name__: cls for cls in (TextEncoder, ImageEncoder)}
_CHANGING = RLock()  # one thread at a time changes a classifier, so that no addition is lost


class MultiLabelClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
    """Few-shot classifier whose items carry any number of labels: a region for each label, fitted in closed form.

    `predict` gives the labels whose probability is above a threshold; an item for which none is, has no label.
    Probabilities are independent of each other and calibrated by leave-one-out (see `hyperproto.heads.label_regions`).
    All work is done by `fit` and the other methods that change the classifier. Its examples are stored as vectors.

    Parameters
    ----------
    encoder : None for rows of numbers. For texts a `TextEncoder`, or what it takes as its model, such as "minilm". For
        images an `ImageEncoder`.
    threshold : probability above which a label is predicted. "auto": as many labels as the examples carry would be
        predicted by leave-one-out.
    feature_transform : "unit" scales vectors to length 1, "none" leaves them unchanged. "auto": "none" for a run, which
        has a transform of its own, else "unit".
    separator : text between two labels of a cell in the tables that the command line reads and writes.
    progress : whether to show a progress bar on standard error while items are encoded.

    Attributes
    ----------
    classes_, counts_, threshold_, expected_, n_features_in_. Each is documented as a property.

    Examples
    --------
    >>> from hyperproto import MultiLabelClassifier
    >>> X = [[1.0, 0.1], [0.1, 1.0], [0.9, 0.0], [0.0, 0.8], [0.7, 0.7], [-1.0, -0.9]]
    >>> y = [["sun"], ["wind"], ["sun"], ["wind"], ["sun", "wind"], []]
    >>> model = MultiLabelClassifier().fit(X, y)
    >>> model.predict([[1.0, 0.0], [0.8, 0.9], [-0.9, -1.0]])
    [['sun'], ['sun', 'wind'], []]
    """

    _fit: tuple[LabelledRows, LabelRegions]  # one attribute, so that a reader sees both of one moment
    encoder_: Mapping[str, Any] | None
    n_features_in_: int
    feature_names_in_: Any

    def __init__(
        self,
        *,
        encoder: Any = None,
        threshold: float | str = AUTO,
        feature_transform: str = AUTO,
        separator: str = "|",
        progress: bool = False,
    ) -> None:
        self.encoder = encoder
        self.threshold = threshold
        self.feature_transform = feature_transform
        self.separator = separator
        self.progress = progress

    def fit(self, X: Any, y: Any, *, names: Any = AUTO, unlabelled: Any = None) -> Self:
        """Fit a region to the examples of each label.

        Parameters
        ----------
        X : rows (n, D), texts or images.
        y : labels of each row: a list of lists or sets of labels, or an indicator matrix (n, L) of 0 and 1, an array, a
            sparse matrix or a frame whose columns are the labels. In lists, [] is a row without any label, which is an
            example for "none of these", and None an unlabelled row.
        names : names or descriptions of labels, by label, as texts (with an encoder of texts) or vectors (D,). A label
            with a name needs no example. "auto": for texts, the labels themselves, in words. None: no names.
        unlabelled : items whose labels are not known. Used as `FewShotTextClassifier` uses them.
        """
        self._check_parameters()
        sets = read_label_sets(y, ())
        rows, sets, unlabelled = self._encoded(X, sets, unlabelled, reset=True)
        empty = LabelledRows(rows[:0], sets.member[:0, :0], (), sets.indicator)
        state = self._added(empty, rows, sets, names, unlabelled)
        self._change(state)
        self.encoder_ = None if self.encoder is None else self.item_encoder().identity
        return self

    def partial_fit(
        self, X: Any, y: Any = None, classes: Any = None, *, names: Any = AUTO, unlabelled: Any = None
    ) -> Self:
        """Add examples of old or new labels, with the same result as a fit to all examples; see `fit`.

        An indicator matrix needs a column for each of `classes_`, in their order. `X` and `y` may be None if only
        `names` or `unlabelled` items are added. `classes` is ignored; scikit-learn's own classifiers need it.
        """
        if not self.__sklearn_is_fitted__():
            return self.fit(X, y, names=names, unlabelled=unlabelled)
        self.check_encoder()
        with _CHANGING:
            state = self._fitted()
            sets = read_label_sets([] if X is None else y, state.labels)
            rows, sets, unlabelled = self._encoded(X, sets, unlabelled)
            self._change(self._added(state, rows, sets, names, unlabelled))
        return self

    def forget(self, X: Any, y: Any) -> Self:
        """Remove examples, with the same result as a fit without them.

        An example is found by its vector and its labels; None as labels removes an unlabelled item. A label without
        examples is removed, too, unless it was given a name.
        """
        check_is_fitted(self)
        self.check_encoder()
        with _CHANGING:
            state = self._fitted()
            sets = read_label_sets(y, state.labels)
            _check_known(sets.labels, state.labels)
            rows, sets, unlabelled = self._encoded(X, sets, None)
            self._change(state.without(rows, sets, unlabelled))
        return self

    def remove_class(self, label: Any) -> Self:
        """Remove a label; its examples keep their other labels, and stay as examples of none if they had no other."""
        check_is_fitted(self)
        with _CHANGING:
            label, state = plain_label(label), self._fitted()
            _check_known([label], state.labels)
            self._change(state.selected([each != label for each in state.labels]))
        return self

    def predict(self, X: Any) -> Any:
        """Return the labels of each item in the form of `y`: lists of labels, or an indicator matrix (n, L)."""
        found = self.decision_function(X) > 0
        if self._fitted().indicator:
            return found.astype(np.int64)
        labels = self._fitted().labels
        return [[labels[place] for place in np.flatnonzero(row)] for row in found]

    def predict_proba(self, X: Any) -> Doubles:
        """Return the probability of each label (n, L); they do not sum to 1."""
        found: Doubles = expit(self._logits(X))
        return found

    def decision_function(self, X: Any) -> Doubles:
        """Return the logit of each label's probability minus that of the threshold (n, L); above 0 is predicted."""
        self._check_parameters()
        logits = self._logits(X)
        return logits - (self._fit[1].threshold if self.threshold == AUTO else logit(self.threshold))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the subset accuracy, the share of items all of whose labels are right, as scikit-learn does."""
        found = self.decision_function(X) > 0
        sets, labels = read_label_sets(y, self._fitted().labels), self._fitted().labels
        check_consistent_length(found, sets.member)
        every = [*labels, *(label for label in sets.labels if label not in labels)]
        predicted = LabelSets(found, labels).aligned(every)
        return float(accuracy_score(sets.aligned(every), predicted, sample_weight=sample_weight))

    @property
    def classes_(self) -> NDArray[Any]:
        """Labels (L,): sorted, or in the order of the indicator matrix."""
        return label_array(self._fitted().labels)

    @property
    def counts_(self) -> NDArray[np.int64]:
        """Number of examples that carry each label (L,)."""
        counts: NDArray[np.int64] = self._fitted().member.sum(axis=0)
        return counts

    @property
    def threshold_(self) -> float:
        """Probability above which a label is predicted."""
        self._fitted()
        return float(expit(self._fit[1].threshold)) if self.threshold == AUTO else float(self.threshold)

    @property
    def expected_(self) -> ExpectedLabels:
        """Leave-one-out F1 of the examples at the threshold "auto"; see `ExpectedLabels`."""
        self._fitted()
        return self._fit[1].expected

    def item_encoder(self) -> ItemEncoder:
        """Return the transformer from items to vectors."""
        if isinstance(self.encoder, ItemEncoder):
            return self.encoder
        return TextEncoder(self.encoder, progress=self.progress)

    @property
    def item_kind(self) -> str:
        """Kind of items: "vector", "text" or "image"."""
        if self.encoder is None:
            return "vector"
        return "image" if isinstance(self.encoder, ImageEncoder) else "text"

    def check_encoder(self) -> None:
        """Raise a DataError unless the encoder is that of the fit."""
        check_is_fitted(self)
        if self.encoder_ is None:
            return
        found = self.item_encoder().identity
        if not same_vectors(found, self.encoder_):
            raise DataError(
                f"this classifier was fitted to vectors of {encoder_in_words(self.encoder_)}, but the encoder is now "
                f"{encoder_in_words(found)}; use the encoder of the fit, or fit again"
            )

    def save(self, folder: str | PathLike[str]) -> None:
        """Write the classifier to a folder, atomically: a JSON file and a safetensors file, no pickle.

        Vectors of the examples and of unlabelled items are written, the items themselves are not. Of the encoder only
        the name or run folder, the settings and a checksum of the weights are written.
        """
        state = self._fitted()
        encoder, own = self.encoder, None
        if isinstance(encoder, ItemEncoder):
            own = {"kind": type(encoder).__name__, **encoder.get_params(deep=False)}
            encoder = own.pop("model")
        run = run_folder(encoder)
        stored = fspath(encoder) if isinstance(encoder, str | PathLike) else None
        names = list(self.feature_names_in_) if hasattr(self, "feature_names_in_") else None
        head = {
            "kind": type(self).__name__,
            "parameters": {**self.get_params(deep=False), "encoder": stored if run is None else str(run)},
            "item_encoder": own,
            "encoder": self.encoder_,
            "unit": self._unit(),
            "feature_names": names,
        }
        write_labelled(Path(folder), state, head)

    @classmethod
    def load(
        cls, folder: str | PathLike[str], check_encoder: bool = True, *, encoder: Any = None, trust: Trust = None
    ) -> Self:
        """Read a classifier that `save` wrote; damaged files and an encoder with other weights are refused.

        `encoder` replaces the saved one: a callable or module, which is not saved, or a run that moved. `trust` names
        .py files that a run may import. `check_encoder` is whether to load the encoder now.
        """
        trust_files(trust)
        head, state = read_labelled(Path(folder))
        parameters = dict(head["parameters"])
        if encoder is not None:
            parameters["encoder"] = encoder
        own = head["item_encoder"]
        try:
            if own is not None and not isinstance(encoder, ItemEncoder):
                kind = ENCODERS[own["kind"]]
                settings = {name: value for name, value in own.items() if name != "kind"}
                parameters["encoder"] = kind(parameters["encoder"], **settings)
            loaded = cls(**parameters)
        except (KeyError, TypeError) as error:
            raise DataError(f"{folder}: was saved by another version of hyperproto ({error}); use that one") from None
        loaded._check_parameters()
        loaded._change(state)
        loaded.encoder_ = head["encoder"]
        loaded.n_features_in_ = state.rows.shape[1]
        if head["feature_names"] is not None:
            loaded.feature_names_in_ = np.array(head["feature_names"], dtype=object)
        if check_encoder and loaded.encoder_ is not None:
            if loaded.encoder is None:
                raise DataError(
                    f"{folder}: was fitted to vectors of {encoder_in_words(loaded.encoder_)}, which is not stored; "
                    f"give it again: {cls.__name__}.load(folder, encoder=...)"
                )
            loaded.check_encoder()
        return loaded

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether `fit` or `partial_fit` was called."""
        return "_fit" in vars(self)

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that y is a matrix of labels."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        tags.classifier_tags.multi_class = False
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = False
        tags.input_tags.two_d_array = tags.input_tags.two_d_array and self.encoder is None
        return tags

    def __getattr__(self, name: str) -> Any:
        """Explain that a method of other classifiers has no meaning here."""
        if not name.startswith("_") and hasattr(HypersphereClassifier, name):
            raise NotApplicableError(f"a multi-label classifier has no `{name}`; see the documentation of its methods")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _fitted(self) -> LabelledRows:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet; call fit first")
        return self._fit[0]

    def _check_parameters(self) -> None:
        value: Any = self.threshold
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (value == AUTO or (number and 0 < value < 1)):
            raise ConfigError(f"threshold={value!r}: give a probability between 0 and 1, or 'auto'")
        if self.feature_transform not in (*TRANSFORMS, AUTO):
            raise ConfigError(f"feature_transform={self.feature_transform!r}: give 'unit', 'none' or 'auto'")
        check_separator(self.separator)

    def _unit(self) -> bool:
        """Return whether vectors are scaled to length 1."""
        if self.feature_transform != AUTO:
            return self.feature_transform == "unit"
        return self.encoder is None or run_folder(getattr(self.encoder, "model", self.encoder)) is None

    def _encoded(
        self, X: Any, sets: LabelSets, unlabelled: Any, reset: bool = False
    ) -> tuple[Floats, LabelSets, Floats | None]:
        """Return the vectors of labelled items with their labels, and those of unlabelled ones."""
        rows = self._vectors(X, reset=reset)
        check_consistent_length(rows, sets.member)
        others = None if unlabelled is None else self._vectors(unlabelled, "unlabelled")
        if sets.missing is not None:
            more = rows[sets.missing]
            others = more if others is None else np.concatenate([more, others])
            rows = rows[~sets.missing]
            sets = replace(sets, member=sets.member[~sets.missing], missing=None)
        return rows, sets, others

    def _vectors(self, X: Any, name: str = "X", reset: bool = False) -> Floats:
        """Return the checked vectors of rows or items, scaled as the transform says."""
        if X is None:
            return np.empty((0, self.n_features_in_))
        if self.encoder is not None:
            X = self.item_encoder().encode(X, name)
        rows: Floats = validated(self, check_rows(X, name), reset=reset)
        if self._unit():
            return unit_rows(rows)
        check_range(rows, name=name)
        return rows

    def _added(
        self, state: LabelledRows, rows: Floats, sets: LabelSets, names: Any, unlabelled: Floats | None
    ) -> LabelledRows:
        """Return the state with more examples, after a check of labels and names."""
        new = [label for label in sets.labels if label not in state.labels]
        encoder = None if self.encoder is None else self.item_encoder()
        vectors, declared = _named(encoder, names, new, rows.shape[1])
        check_names(declared, {*state.labels, *sets.labels})
        warn_of_labels(new, state.labels)
        if self._unit():
            vectors = {label: unit_rows(vector[None])[0] for label, vector in vectors.items()}
        return state.added(rows, sets, vectors, declared, unlabelled)

    def _change(self, state: LabelledRows) -> None:
        """Replace the state; an error changes nothing."""
        self._fit = state, state.fitted()

    def _logits(self, X: Any) -> Doubles:
        """Return the logits of the probabilities (n, L)."""
        check_is_fitted(self)
        self.check_encoder()
        rows = self._vectors(X)
        with np.errstate(over="ignore", invalid="ignore"):
            logits = self._fit[1].logits(rows)
        check_answers(logits, rows)
        return logits


def _check_known(labels: Sequence[Any], known: Sequence[Any]) -> None:
    """Refuse labels that are not among the known ones."""
    for label in labels:
        if label not in known:
            raise DataError(unknown_name("label", str(label), map(str, known)))


def _named(
    encoder: ItemEncoder | None, names: Any, labels: Sequence[Any], size: int
) -> tuple[dict[Any, Doubles], Collection[Any]]:
    """Return the vectors of names (D,), by label, and the labels that need no example; see `fit`."""
    declared: Collection[Any]
    if isinstance(encoder, TextEncoder):
        found, declared = encode_names(copy(encoder), names, labels)
    else:
        found = {} if isinstance(names, str) and names == AUTO else name_vectors(names)
        declared = found.keys()
    for label, vector in found.items():
        if vector.shape != (size,):
            raise DataError(
                f"the name of {label!r} is an array of shape {vector.shape}; a name is a vector of {size} numbers, as "
                "the examples are"
            )
    return {label: vector.astype(np.float64) for label, vector in found.items()}, declared
