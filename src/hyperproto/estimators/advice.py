"""Methods of fitted classifiers that advise their user, shared by those of vectors, texts and images."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hyperproto.estimators.doctor import Diagnosis, diagnose
from hyperproto.estimators.snapshot import Snapshot
from hyperproto.regions.arrays import Floats


class Advice:
    """Methods that explain a fitted classifier to its user."""

    @abstractmethod
    def _snapshot(self) -> Snapshot:
        """Return the current state with all that is derived from it."""

    @abstractmethod
    def _rows_of(self, X: Any) -> Floats:
        """Return the checked vectors of rows or items (n, D)."""

    @property
    def examples_(self) -> Mapping[int, str]:
        """Texts or image paths of the stored examples, by number; rows of vectors have none."""
        return {}

    def diagnose(self) -> Diagnosis:
        """Report on each class and on suspicious examples; needs `store_support`."""
        return replace(diagnose(self._snapshot()), items=self.examples_)
