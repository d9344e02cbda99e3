"""What classifiers of texts and of images share: a frozen network as a transformer, and the classifier behind it."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from hyperproto.errors import ConfigError, DataError
from hyperproto.estimators.diagnosis import Diagnosis
from hyperproto.estimators.hypersphere import Batch, HypersphereClassifier
from hyperproto.estimators.storage import Saved
from hyperproto.progress import progress_bar
from hyperproto.regions.arrays import Floats

if TYPE_CHECKING:
    from hyperproto.estimators.networks import Ready


class ItemEncoder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
    """Items to vectors (n, D), float32. There is nothing to fit.

    The network belongs to the process, not to the object: clones share it, and a pickle holds only the settings.
    """

    extra: ClassVar[str]  # of the package: what to install
    chunk: ClassVar[int]  # items that are read at once
    progress: bool
    cache: bool

    def fit(self, X: Any, y: Any = None) -> Self:
        """Look whether these are items; nothing is learned."""
        self.check(X)
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Encode items: those of like length together, and each that was seen lately not again."""
        items = self.check(X)
        ready = self._ready()
        vectors = np.empty((len(items), ready.size), np.float32)
        with progress_bar("encode") if self.progress else nullcontext() as show:
            for start in range(0, len(items), self.chunk):
                part = slice(start, start + self.chunk)
                move = None if show is None else (lambda done, _, start=start: show(start + done, len(items)))
                vectors[part] = ready.vectors(self.read(items[part], start), self.cache, move)
        return vectors

    @property
    def identity(self) -> dict[str, Any]:
        """What the vectors follow from: the encoder's name, its options, and a checksum of its weights."""
        return self._ready().identity

    def check(self, X: Any) -> Sequence[Any]:
        """Refuse what is no list of items, or an item that cannot be one."""
        raise NotImplementedError

    def read(self, items: Sequence[Any], start: int) -> Any:
        """Items as the network takes them; `start` is the position of the first."""
        raise NotImplementedError

    def spec(self) -> tuple[str, dict[str, Any]]:
        """The name and the options of the network."""
        raise NotImplementedError

    @property
    def _n_features_out(self) -> int:
        return self._ready().size

    def _ready(self) -> "Ready":
        try:
            from hyperproto.estimators.networks import ready
        except ImportError as error:
            raise ConfigError(f"encoders run on torch ({error}); pip install 'hyperproto[{self.extra}]'") from error
        name, options = self.spec()
        return ready(name, tuple(sorted(options.items())))

    def __sklearn_is_fitted__(self) -> bool:
        """Always: there is nothing to fit."""
        return True

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that items are no rows of numbers, and that no fit is needed."""
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.no_validation = True
        tags.input_tags.two_d_array = False
        return tags


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

    def merge(self, other: HypersphereClassifier) -> Self:
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
