"""The classifier with its encoder: what those for texts and for images share."""

from collections.abc import Mapping
from dataclasses import replace
from os import PathLike, fspath
from typing import Any, Self

from sklearn.utils.validation import check_consistent_length, check_is_fitted

from hyperproto.errors import DataError
from hyperproto.estimators import Diagnosis, HypersphereClassifier
from hyperproto.estimators.storage import Saved
from hyperproto.estimators.updates import Batch, Updates
from hyperproto.estimators.vectors import Floats
from hyperproto.pipelines.item_encoder import ItemEncoder


class FewShotClassifier(HypersphereClassifier):
    """A HypersphereClassifier whose rows are items. Whatever takes rows there, takes items here.

    `encoder_` tells which encoder the fit used, with a checksum of its weights: vectors of another mean nothing here.
    """

    encoder: str
    progress: bool
    cache: bool
    encoder_: Mapping[str, Any]
    _items: dict[int, str]  # texts or paths of all examples that came, by their numbers

    def item_encoder(self) -> ItemEncoder:
        """The transformer that reads the items."""
        raise NotImplementedError

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit a region to the examples of each class; one example is enough, and counts may differ."""
        super().fit(X, y, sample_weight)
        self.encoder_ = self.item_encoder().identity
        self._items = named_items(X, 0)
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Add examples, of old classes or of new ones, as if they had been there from the start."""
        first = self._given
        super().partial_fit(X, y, classes, sample_weight)
        self._items |= named_items(X, first)
        return self

    def forget(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Take examples away as if they had never been there; a class without examples goes with them."""
        super().forget(X, y, sample_weight)
        self._items = self.examples_
        return self

    def remove_class(self, label: Any) -> Self:
        """Take a class away with all its examples."""
        super().remove_class(label)
        self._items = self.examples_
        return self

    def merge(self, other: Updates) -> Self:
        """Add everything that another classifier, with the same encoder, was fitted to."""
        check_is_fitted(self)
        check_is_fitted(other)
        theirs = getattr(other, "encoder_", None)
        if theirs != self.encoder_:
            raise DataError(
                f"this classifier was fitted to vectors of {_words(self.encoder_)}, the other to those of "
                f"{_words(theirs) if theirs else 'an encoder that it does not name'}; only those of one can be merged"
            )
        first = self._given
        super().merge(other)
        self._items |= {first + number: item for number, item in getattr(other, "examples_", {}).items()}
        return self

    @property
    def examples_(self) -> dict[int, str]:
        """Texts, or paths of images, of the examples that are kept, by their numbers."""
        check_is_fitted(self)
        support = self._memory.support
        numbers = [] if support is None else support.numbers.tolist()
        return {number: self._items[number] for number in numbers if number in self._items}

    def diagnose(self) -> Diagnosis:
        """Report on every class, and on the examples that look wrong; the examples must have been kept."""
        return replace(super().diagnose(), items=self.examples_)

    @classmethod
    def load(cls, folder: str | PathLike[str], check_encoder: bool = True) -> Self:
        """Read a classifier that `save` wrote; files that were cut or changed are refused, and so are other weights.

        Without `check_encoder` the encoder is loaded, and checked, only when items are to be read.
        """
        loaded = super().load(folder)
        if check_encoder:
            loaded.check_encoder()
        return loaded

    def check_encoder(self) -> None:
        """Make sure that the encoder is the one that the fit used."""
        check_is_fitted(self)
        found = self.item_encoder().identity
        if found != self.encoder_:
            raise DataError(
                f"this classifier was fitted to vectors of {_words(self.encoder_)}, but {self.encoder!r} is now "
                f"{_words(found)}; use the encoder of the fit, or fit again"
            )

    @property
    def _given(self) -> int:
        """How many examples came so far, if they are kept."""
        kept = self._memory.support if self.__sklearn_is_fitted__() else None
        return 0 if kept is None else kept.given

    def _origin(self) -> dict[str, Any]:
        return {"encoder": self.encoder_, "items": self.examples_}

    def _take_origin(self, saved: Saved) -> None:
        self.encoder_ = saved.encoder or {}
        self._items = dict(saved.items or {})

    def _batch(self, X: Any, y: Any, sample_weight: Any, reset: bool = False) -> Batch:
        check_consistent_length(X, y)  # before the long part
        return super()._batch(self._vectors(X, not reset), y, sample_weight, reset)

    def _rows(self, X: Any) -> Floats:
        check_is_fitted(self)
        return super()._rows(self._vectors(X, True))

    def _vectors(self, X: Any, check: bool) -> Floats:
        if check:
            self.check_encoder()
        vectors: Floats = self.item_encoder().transform(X)
        return vectors

    @classmethod
    def _get_param_names(cls) -> list[str]:
        """The settings of the encoder, which the constructor names, and those of the classifier."""
        return sorted({*super()._get_param_names(), *HypersphereClassifier._get_param_names()})


def named_items(X: Any, first: int) -> dict[int, str]:
    """Texts or paths by number, the first being `first`; pixels have no name."""
    return {first + row: str(fspath(item)) for row, item in enumerate(X) if isinstance(item, str | PathLike)}


def _words(identity: Mapping[str, Any]) -> str:
    options = ", ".join(f"{name}={value!r}" for name, value in sorted(identity["options"].items()))
    return f"{identity['name']} ({options}; weights {identity['sha256'][:12]})"
