"""FewShotClassifier: an item encoder followed by a `HypersphereClassifier`, the base of text and image classifiers."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from hyperproto.errors import DataError
from hyperproto.estimators import storage
from hyperproto.estimators.advice import Advice
from hyperproto.estimators.attributes import FittedAttributes, fitted_attribute
from hyperproto.estimators.hypersphere import HypersphereClassifier
from hyperproto.estimators.items import (
    ItemEncoder,
    combined_transform,
    encoder_in_words,
    run_folder,
    same_vectors,
    short_name,
)
from hyperproto.estimators.labels import plain_label
from hyperproto.estimators.parameters import closed_form
from hyperproto.estimators.snapshot import Snapshot
from hyperproto.progress import progress_bar
from hyperproto.regions import PRIOR_RATIO
from hyperproto.regions.arrays import Floats
from hyperproto.registry import Trust
from hyperproto.registry import trust as trust_files

AUTO = "auto"
HEAD_PARAMETERS = tuple(HypersphereClassifier().get_params(deep=False))


class FewShotClassifier(Advice, FittedAttributes, ClassifierMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
    """Classifier of items: an encoder, and a `HypersphereClassifier` of its vectors, `head_`.

    Every method of `HypersphereClassifier` that takes rows takes items here. Its parameters are parameters here, too.
    The defaults of `feature_transform` and `prior_ratio` are "auto": a run stores its own; see `feature_transform_` and
    `prior_ratio_`. `encoder_` identifies the encoder of the fit, with a checksum of its weights.

    A subclass implements `item_encoder`.
    """

    first_defaults: ClassVar[Mapping[str, Any]] = {}  # parameters that models of version 0.1 do not store
    option_types: ClassVar[Mapping[str, tuple[Any, str]]] = {}  # types of encoder options in a saved model
    encoder: Any
    progress: bool
    cache: bool
    encoder_: Mapping[str, Any]
    head_: HypersphereClassifier
    region: str
    fit_mode: str
    feature_transform: str | None
    coverage: float | None
    reject_rate: float | None = None  # which earlier pickles lack
    precision: float | None = None
    prior_ratio: Any

    def __init__(
        self, *, feature_transform: str | None = AUTO, prior_ratio: float | str = AUTO, **settings: Any
    ) -> None:
        parameters = HypersphereClassifier(**settings).get_params(deep=False)
        parameters |= {"feature_transform": feature_transform, "prior_ratio": prior_ratio}
        for name, value in parameters.items():
            setattr(self, name, value)

    def item_encoder(self) -> ItemEncoder:
        """Return the transformer from items to vectors."""
        raise NotImplementedError

    def head_names(self, names: Any) -> Any:
        """Return class names as the head's `fit` takes them: here a mapping from labels to vectors, unchanged."""
        return names

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        names: Mapping[Any, Any] | None = None,
        unlabelled: Any = None,
        outside: Any = None,
    ) -> Self:
        """Fit a region to the examples of each class; see `HypersphereClassifier.fit`.

        `X`, `unlabelled` and `outside` are items. `names` are vectors or, for texts, texts.
        """
        return self._fit(X, y, sample_weight, names, unlabelled, outside)

    def _fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        names: Any,
        unlabelled: Any,
        outside: Any,
        classes_may_follow: bool = False,
    ) -> Self:
        encoder = self.item_encoder()
        identity = {} if run_folder(self.encoder) is None else encoder.identity
        head = HypersphereClassifier(**self._head_parameters(identity))
        closed_form(head)  # checks the parameters before the long part
        X, items = self._items(X, y)
        others = None if unlabelled is None else encoder.encode(unlabelled, "unlabelled")
        beyond = None if outside is None else encoder.encode(outside, "outside")
        rows = None if X is None else encoder.encode(X)
        given = rows, y, sample_weight, self.head_names(names), others, beyond
        with progress_bar("fit") if self.progress else nullcontext() as show:
            head._fit(*given, items=items, classes_may_follow=classes_may_follow, progress=show)
        self.encoder_ = encoder.identity
        self.head_ = head
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

        `classes` is ignored; scikit-learn's own classifiers need it.
        """
        if not self.__sklearn_is_fitted__():
            return self._fit(X, y, sample_weight, names, unlabelled, outside, classes_may_follow=True)
        head = self._head()
        X, items = self._items(X, y)
        others = None if unlabelled is None else self._vectors(unlabelled, "unlabelled")
        beyond = None if outside is None else self._vectors(outside, "outside")
        rows = None if X is None else self._vectors(X)
        head._partial_fit(rows, y, sample_weight, self.head_names(names), others, beyond, items=items)
        return self

    def forget(self, X: Any, y: Any = None, sample_weight: Any = None, *, outside: Any = None) -> Self:
        """Remove examples, with the same result as a fit without them; see `HypersphereClassifier.forget`."""
        head = self._head()
        X, _ = self._items(X, y)
        beyond = None if outside is None else self._vectors(outside, "outside")
        head.forget(None if X is None else self._vectors(X), y, sample_weight, outside=beyond)
        return self

    def remove_class(self, label: Any) -> Self:
        """Remove a class with all its examples."""
        self._head().remove_class(label)
        return self

    def merge(self, other: "FewShotClassifier") -> Self:
        """Add everything that another classifier with the same encoder was fitted to."""
        check_is_fitted(self)
        check_is_fitted(other)
        theirs = getattr(other, "encoder_", None)
        if theirs is None or not same_vectors(theirs, self.encoder_):
            raise DataError(
                f"this classifier was fitted to vectors of {encoder_in_words(self.encoder_)}, the other to those of "
                f"{encoder_in_words(theirs) if theirs else 'an encoder that it does not name'}; "
                "only classifiers of one encoder can be merged"
            )
        self._head().merge(other._head())
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the likeliest class of each item (n,), or the reject label; see `HypersphereClassifier.predict`."""
        return self._head().predict(self._vectors(X))

    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of each class, given that it is one of them (n, n_classes)."""
        return self._head().predict_proba(self._vectors(X))

    def decision_function(self, X: Any) -> Floats:
        """Return minus the measure of each class (n, n_classes); of two classes the difference (n,)."""
        return self._head().decision_function(self._vectors(X))

    def measure(self, X: Any) -> Floats:
        """Return how far each item lies outside each region (n, n_classes); lower is more likely."""
        return self._head().measure(self._vectors(X))

    def predict_set(self, X: Any) -> NDArray[np.bool_]:
        """Return which classes are plausible for each item (n, n_classes): none, one or several. Needs a coverage."""
        return self._head().predict_set(self._vectors(X))

    def novelty(self, X: Any) -> Floats:
        """Return how unlikely each item is to belong to any class (n,); see `HypersphereClassifier.novelty`."""
        return self._head().novelty(self._vectors(X))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy; a rejected item is right if its label is the reject label."""
        return self._head().score(self._vectors(X), y, sample_weight)

    @property
    def n_features_in_(self) -> int:
        """Length of the vectors."""
        if not self.__sklearn_is_fitted__():
            raise AttributeError("n_features_in_")
        return self.head_.n_features_in_

    @property
    @fitted_attribute
    def feature_transform_(self) -> str:
        """Transform of the encoder's vectors; "auto" is "unit", or "none" for a run, which applies its own."""
        return self._snapshot().parameters["feature_transform"] or "none"

    @property
    @fitted_attribute
    def prior_ratio_(self) -> float:
        """Prior ratio of variances; "auto" is what the run measured on vectors so transformed, or the default."""
        ratio: float = self._snapshot().parameters["prior_ratio"]
        return ratio

    @property
    def examples_(self) -> dict[int, str]:
        """Texts or image paths of the stored examples, by number."""
        return self._head()._state.named_examples()

    def save(self, folder: str | PathLike[str], *, unlabelled: bool = False) -> None:
        """Write the classifier to a folder, atomically: a JSON file and a safetensors file, no pickle.

        The encoder is not written, only its name or run folder and a checksum of its weights; `load` takes a callable
        or module again. Vectors of unlabelled items are written only if `unlabelled` is true; see
        `HypersphereClassifier.save`.
        """
        head = self._head()
        run = run_folder(self.encoder)
        named = fspath(self.encoder) if isinstance(self.encoder, str | PathLike) else None
        parameters = {**self.get_params(deep=False), "encoder": named if run is None else str(run)}
        for name, value in parameters.items():  # as pairs, since the keys of a JSON object are strings
            if isinstance(value, Mapping):
                parameters[name] = [[plain_label(key), text] for key, text in value.items()]
        head._snapshot()  # checks the parameters
        saved = storage.Saved(type(self).__name__, parameters, head._state, None, self.encoder_)
        storage.write(Path(folder), saved, None if unlabelled else lambda: head._snapshot().summarised())

    @classmethod
    def load(
        cls, folder: str | PathLike[str], check_encoder: bool = True, *, encoder: Any = None, trust: Trust = None
    ) -> Self:
        """Read a classifier that `save` wrote; damaged or changed files and an encoder with other weights are refused.

        Parameters
        ----------
        check_encoder : whether to load and check the encoder now instead of at its first use.
        encoder : replacement of the saved encoder: a callable or module, which is not saved, or a run that moved.
        trust : .py files that a run, if that is the encoder, may import.
        """
        trust_files(trust)
        saved = storage.read(Path(folder))
        parameters = {**cls.first_defaults, **saved.parameters, **({} if encoder is None else {"encoder": encoder})}
        cls._check_saved(folder, parameters)
        loaded: Self = storage.construct(cls, folder, replace(saved, parameters=parameters))
        if saved.encoder is None:
            raise DataError(f"the model does not say which encoder made its vectors; {storage.AGAIN}")
        loaded.encoder_ = saved.encoder
        loaded.head_ = HypersphereClassifier(**loaded._head_parameters(saved.encoder))._restore(saved)
        if check_encoder:
            if loaded.encoder is None:
                raise DataError(
                    f"{folder}: was fitted to vectors of {encoder_in_words(loaded.encoder_)}, which is not stored; "
                    f"give it again: {cls.__name__}.load(folder, encoder=...)"
                )
            loaded.check_encoder()
        return loaded

    @classmethod
    def _check_saved(cls, folder: str | PathLike[str], parameters: dict[str, Any]) -> None:
        """Check the types of saved parameters, and make a mapping of names that were saved as pairs."""
        if isinstance(parameters.get("names"), list):
            try:
                parameters["names"] = dict(parameters["names"])
            except (TypeError, ValueError):
                raise DataError(f"{folder}: its names are no pairs of labels and texts; {storage.AGAIN}") from None
        for name, (kinds, words) in cls.option_types.items():
            if name in parameters and not isinstance(parameters[name], kinds):
                raise DataError(f"{folder}: its {name} is {parameters[name]!r:.60}, no {words}; {storage.AGAIN}")

    def check_encoder(self) -> None:
        """Raise a DataError unless the encoder is that of the fit."""
        check_is_fitted(self)
        if self.encoder_.get("name") == "run" and isinstance(self.encoder, str) and run_folder(self.encoder) is None:
            raise DataError(
                f"this classifier was fitted to vectors of {encoder_in_words(self.encoder_)}, and there is no run in "
                f"{self.encoder}; if it moved, say where: load(folder, encoder=...) or set_params(encoder=...)"
            )
        found = self.item_encoder().identity
        if not same_vectors(found, self.encoder_):
            raise DataError(
                f"this classifier was fitted to vectors of {encoder_in_words(self.encoder_)}, but "
                f"{short_name(self.encoder)} is now {encoder_in_words(found)}; use the encoder of the fit, or fit again"
            )

    def _head_parameters(self, identity: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters of the head; `identity`, that of the encoder, decides what "auto" means."""
        found = {name: getattr(self, name) for name in HEAD_PARAMETERS}
        if found["feature_transform"] == AUTO:
            found["feature_transform"] = "none" if identity.get("name") == "run" else "unit"
        if found["prior_ratio"] == AUTO:
            transform = combined_transform(identity, found["feature_transform"])
            found["prior_ratio"] = identity.get("prior_ratio", {}).get(transform, PRIOR_RATIO)
        return found

    def _head(self) -> HypersphereClassifier:
        """Return the head with the current parameters."""
        check_is_fitted(self)
        self.head_.__dict__.update(self._head_parameters(self.encoder_))
        return self.head_

    def _snapshot(self) -> Snapshot:
        return self._head()._snapshot()

    def _items(self, X: Any, y: Any) -> tuple[Any, dict[int, str]]:
        """Return items as a list, checked against the number of labels, and those that are texts or paths, by row."""
        if X is None:
            return None, {}
        items = X if isinstance(X, list | tuple) else self.item_encoder().check(X)
        if len(items):
            check_consistent_length(items, y)
        named = {row: str(fspath(item)) for row, item in enumerate(items) if isinstance(item, str | PathLike)}
        return items, named

    def _named_items(self, X: Any) -> dict[int, str]:
        """Return texts or paths of items, by row."""
        return self._items(X, None)[1]

    def _vectors(self, X: Any, name: str = "X") -> Floats:
        """Encode items after a check of the encoder; messages call them `name`."""
        self.check_encoder()
        vectors: Floats = self.item_encoder().encode(X, name)
        return vectors

    def _rows_of(self, X: Any) -> Floats:
        """Return the checked vectors of items (n, D)."""
        return self._head()._rows_of(self._vectors(X))

    @classmethod
    def _get_param_names(cls) -> list[str]:
        """Return the names of the constructor's own parameters and of those of the head."""
        return sorted({*super()._get_param_names(), *HEAD_PARAMETERS})

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether `fit` or `partial_fit` was called."""
        return hasattr(self, "head_")

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a pickle; version 0.1 had no head, and its state among the attributes."""
        old: dict[str, Any] = {name: state[name] for name in ("_memory", "n_features_in_") if name in state}
        super().__setstate__({name: value for name, value in state.items() if name not in old})
        if old:
            self.head_ = HypersphereClassifier(**self._head_parameters(self.encoder_))
            self.head_.__setstate__({**self.head_.get_params(deep=False), **old})

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """Return the class with the encoder and all parameters that differ from the defaults."""
        defaults = type(self)().get_params(deep=False)
        given = self.get_params(deep=False)
        changed = [name for name in given if name != "encoder" and given[name] != defaults[name]]
        words = [f"encoder={short_name(self.encoder)}", *(f"{name}={given[name]!r}" for name in changed)]
        text = f"{type(self).__name__}({', '.join(words)})"
        return text if len(text) <= N_CHAR_MAX else f"{text[: N_CHAR_MAX - 4]}...)"
