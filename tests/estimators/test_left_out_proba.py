"""Leave-one-out probabilities: those of fits without each example, in order of arrival, as cleanlab takes them."""

from typing import Any

import numpy as np
import pytest

from hyperproto import HypersphereClassifier
from tests.estimators.conftest import blobs


@pytest.mark.parametrize(
    "settings", [{}, {"region": "gaussian", "fit_mode": "unbiased"}, {"feature_transform": "none"}]
)
def test_a_row_is_close_to_that_of_a_fit_without_the_example(settings: dict[str, Any]) -> None:
    x, y = blobs((6, 5, 7), dim=4)
    model = HypersphereClassifier(temperature=0.3, **settings).fit(x, y)
    found = model.left_out_proba_
    assert found.shape == (18, 3)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    others = np.arange(18)[:, None] != np.arange(18)
    refitted = [
        HypersphereClassifier(temperature=0.3, **settings).fit(x[kept], y[kept]).predict_proba(x[[i]])[0]
        for i, kept in enumerate(others)
    ]
    assert np.abs(found - refitted).mean() < 0.03
    assert np.abs(found - model.predict_proba(x)).mean() > 1.5 * np.abs(found - refitted).mean()


def test_rows_come_in_order_of_arrival_and_lone_examples_have_none() -> None:
    x, y = blobs((4, 3, 1), dim=4)
    model = HypersphereClassifier().fit(x[:5], y[:5]).partial_fit(x[5:], y[5:])
    found = model.left_out_proba_
    whole = HypersphereClassifier().fit(x, y).left_out_proba_
    np.testing.assert_allclose(found, whole, atol=1e-6)
    alone = y == "c"
    assert np.isnan(found[alone]).all()
    assert np.isfinite(found[~alone]).all()
    order = np.random.default_rng(0).permutation(len(y))
    np.testing.assert_allclose(HypersphereClassifier().fit(x[order], y[order]).left_out_proba_, found[order], atol=1e-6)


@pytest.mark.filterwarnings("ignore:there is only one class")
def test_evidence_one_class_and_no_support() -> None:
    x, y = blobs((4, 3, 2), dim=4)
    more = blobs((6, 6, 6), dim=4, seed=1)[0]
    names = dict(zip("abcd", more, strict=False))
    for refine in (False, True):
        model = HypersphereClassifier(refine=refine).fit(x, y, unlabelled=more, names=names)
        found = model.left_out_proba_
        assert found.shape == (9, 4)
        assert np.isfinite(found).all()
    assert HypersphereClassifier().fit(x, ["a"] * 9).left_out_proba_.tolist() == [[1.0]] * 9
    without = HypersphereClassifier(store_support=False, fit_mode="unbiased").fit(x, y)
    assert not hasattr(without, "left_out_proba_")
    with pytest.raises(AttributeError, match=r"fit again with store_support=True"):
        _ = without.left_out_proba_


@pytest.mark.filterwarnings("ignore:May not flag all label issues")
def test_cleanlab_takes_them() -> None:
    filters = pytest.importorskip("cleanlab.filter")
    random = np.random.default_rng(0)
    x = np.repeat(5 * np.eye(4, 6), [8, 8, 8, 1], axis=0) + random.normal(size=(25, 6))
    y = np.repeat(np.arange(4), [8, 8, 8, 1])
    y[3] = 2
    proba = HypersphereClassifier().fit(x, y).left_out_proba_
    known = ~np.isnan(proba[:, 0])
    assert known.tolist() == [True] * 24 + [False]
    for labels, rows in ((y, proba), (y[known], proba[known])):
        issues = filters.find_label_issues(labels, rows, n_jobs=1)
        assert np.flatnonzero(issues).tolist() == [3]
