"""Methods of fitted classifiers that advise their user, shared by those of vectors, texts and images."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike, fspath
from typing import Any

from hyperproto.errors import ConfigError
from hyperproto.estimators.attributes import fitted_attribute
from hyperproto.estimators.doctor import Diagnosis, diagnose, left_out_probabilities
from hyperproto.estimators.drift import Drift, drift
from hyperproto.estimators.explanation import NEAREST, Explanation, explain
from hyperproto.estimators.snapshot import Snapshot
from hyperproto.estimators.suggestion import Suggestion, suggest
from hyperproto.regions.arrays import Doubles, Floats


class Advice:
    """Methods that explain a fitted classifier to its user."""

    reject_label: Any

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

    @property
    @fitted_attribute
    def left_out_proba_(self) -> Doubles:
        """Class probabilities of the stored examples by leave-one-out, in order of arrival (n, n_classes).

        Rows of examples that are alone in their class are NaN, since none of their class is left to compare with.
        With unlabelled rows or `refine`, five-fold cross-validation takes the place of leave-one-out, as for the
        temperature. Needs `store_support`.
        """
        return left_out_probabilities(self._snapshot())

    def diagnose(self) -> Diagnosis:
        """Report on each class and on suspicious examples; needs `store_support`."""
        return replace(diagnose(self._snapshot()), items=self.examples_)

    def explain(self, X: Any, *, nearest: int = NEAREST) -> list[Explanation]:
        """Explain the answer for each row or item, with the `nearest` stored examples.

        An explanation holds the two likeliest classes, the distance against the threshold if the classifier rejects,
        the novelty, and the parts that examples, class names and unlabelled rows have in the decision. `str` of it is
        a short text.
        """
        if isinstance(nearest, bool) or not isinstance(nearest, int) or nearest < 0:
            raise ConfigError(f"nearest={nearest!r}: give a number of examples, 0 or more")
        X = self._rows_of(X)
        return explain(self._snapshot(), X, self.reject_label, self.examples_, nearest)

    def suggest(self, pool: Any, n: int = 10) -> list[Suggestion]:
        """Suggest `n` rows or items of a pool to label next, the most useful first.

        They are uncertain, stand for many items of the pool, and differ from each other and from the examples. An item
        that may be of a new class is marked, and so is one from which on more labels hardly help (`enough`).
        """
        rows = self._rows_of(pool)
        listed = pool if isinstance(pool, Sequence) or getattr(pool, "ndim", 2) == 1 else [None] * len(rows)
        items = [fspath(item) if isinstance(item, str | PathLike) else None for item in listed]
        return suggest(self._snapshot(), rows, items, n)

    def drift(self, new: Any, reference: Any = None) -> Drift:
        """Compare new unlabelled rows or items with those of the fit: shifts with p-values, and what explains them.

        New items are compared with `reference`, unlabelled items of the time of the fit, if they are given; else with
        the unlabelled rows of the fit; else with the examples by leave-one-out. See `hyperproto.estimators.drift`.
        """
        rows = self._rows_of(new)
        before = None if reference is None else self._rows_of(reference)
        return drift(self._snapshot(), rows, before, self._named_items(new), self.examples_)

    def _named_items(self, X: Any) -> Mapping[int, str]:
        """Return texts or paths of items, by row."""
        return {}
