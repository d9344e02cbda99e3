"""A frozen network as a scikit-learn transformer: what those for texts and for images share."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin

from hyperproto.errors import ConfigError
from hyperproto.reports.progress import progress_bar

if TYPE_CHECKING:
    from hyperproto.pipelines.ready import Ready


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
            from hyperproto.pipelines.ready import ready
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
