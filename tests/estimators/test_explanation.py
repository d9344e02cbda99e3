"""Explanations: the parts add up to the decision, and agree with every method that they summarise."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hyperproto import FewShotTextClassifier, HypersphereClassifier
from hyperproto.errors import ConfigError
from hyperproto.estimators.explanation import NOT_LINEAR, ONE_CLASS, REFINED, Contributions
from tests.estimators.conftest import IDS, SETTINGS, blobs
from tests.estimators.test_side import LABELS, NAMES, ROWS, TEST, Q, X, Y

EVIDENCE: list[dict[str, Any]] = [{}, {"names": NAMES}, {"unlabelled": ROWS}, {"names": NAMES, "unlabelled": ROWS}]


def log_odds(model: HypersphereClassifier, q: Any) -> Any:
    """Log odds of the likeliest class against the second, by the probabilities."""
    sorted_ = np.sort(np.log(model.predict_proba(q)), axis=1)
    return sorted_[:, -1] - sorted_[:, -2]


@pytest.mark.parametrize("transform", ["unit", "center-unit", "none"])
@pytest.mark.parametrize("given", EVIDENCE, ids=["plain", "names", "rows", "both"])
def test_parts_add_up_to_the_log_odds(given: dict[str, Any], transform: str) -> None:
    model = HypersphereClassifier(feature_transform=transform).fit(X, Y, **given)
    found = model.explain(Q)
    parts = [each.contributions for each in found]
    assert all(parts)
    np.testing.assert_allclose([part.total for part in parts if part], log_odds(model, Q), atol=1e-6)
    assert any(part.name for part in parts if part) == ("names" in given)
    assert any(part.unlabelled for part in parts if part) == ("unlabelled" in given)
    assert any(part.examples for part in parts if part)


@pytest.mark.parametrize("setting", SETTINGS, ids=IDS)
def test_every_setting_has_parts_that_add_up_or_a_reason(setting: dict[str, Any]) -> None:
    x, y = blobs()
    model = HypersphereClassifier(**setting).fit(x, y)
    linear = setting.get("region", "sphere") in ("sphere", "point") and setting.get("squared", True)
    for each, odds in zip(model.explain(x), log_odds(model, x), strict=True):
        if linear:
            assert each.contributions is not None
            assert each.reason == ""
            assert each.contributions.total == pytest.approx(odds, abs=1e-6)
            assert (each.contributions.name, each.contributions.unlabelled) == (0, 0)
        else:
            assert (each.contributions, each.reason) == (None, NOT_LINEAR)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), named=st.booleans(), rows=st.booleans(), far=st.sampled_from([0.0, 1e4]))
def test_each_part_is_its_share_of_the_posterior_mean(seed: int, named: bool, rows: bool, far: float) -> None:
    """Recompute the parts with a loop over classes, from the equations of the module."""
    random = np.random.default_rng(seed)
    way, dim = int(random.integers(2, 5)), 4
    place = random.normal(size=(way, dim))
    y = np.concatenate([np.arange(way), random.integers(0, way, 6)])
    x = place[y] + 0.5 * random.normal(size=(len(y), dim)) + far
    u = place[random.integers(0, way, 30)] + 0.5 * random.normal(size=(30, dim)) + far
    given: dict[str, Any] = {"names": dict(enumerate(place))} if named else {}
    model = HypersphereClassifier(feature_transform="none").fit(x, y, **given, unlabelled=u if rows else None)
    region: Any = model.region_
    origin = model._snapshot().origin
    shift = np.zeros(dim) if origin is None else origin
    k, evidence = float(region.ratio), region.evidence
    g = 0.0 if evidence is None else float(evidence.name_weight)
    names = np.zeros((way, dim)) if not named else np.asarray(evidence.names)
    weight = np.zeros(way) if not rows else evidence.clusters.weight
    cluster = np.zeros((way, dim)) if not rows else evidence.clusters.mean
    count = np.bincount(y)
    means = np.stack([x[y == n].mean(axis=0) - shift for n in range(way)])
    w = (count + weight) / (count + weight + k)
    both = np.stack([(count[n] * means[n] + weight[n] * cluster[n]) / (count[n] + weight[n]) for n in range(way)])
    common = sum(w[n] * both[n] for n in range(way)) / w.sum()
    middle = sum(w[n] * names[n] for n in range(way)) / w.sum()
    for q, each in zip(u, model.explain(u), strict=True):
        a, b = each.likeliest, each.runner_up
        point = region.whiten((q - shift)[None])[0]
        away = point - (model._snapshot().region.center[a] + model._snapshot().region.center[b]) / 2

        def along(part: Any, n: int, away: Any = away) -> float:
            return float(2 * away @ region.whiten(part[None])[0] / (count[n] + weight[n] + k) / model.temperature_)

        assert each.contributions is not None
        expected = Contributions(
            along(count[a] * (means[a] - common), a) - along(count[b] * (means[b] - common), b),
            along(k * g * (names[a] - middle), a) - along(k * g * (names[b] - middle), b),
            along(weight[a] * (cluster[a] - common), a) - along(weight[b] * (cluster[b] - common), b),
            float(region.bias_radius[a] - region.bias_radius[b]) / model.temperature_,
        )
        np.testing.assert_allclose(list(vars(each.contributions).values()), list(vars(expected).values()), atol=1e-5)


def test_it_agrees_with_the_other_methods() -> None:
    model = HypersphereClassifier(coverage=0.7, reject_label="other").fit(X, Y, names=NAMES)
    far = np.concatenate([Q, -3 * Q])
    found = model.explain(far, nearest=2)
    assert [each.label for each in found] == model.predict(far).tolist()
    assert any(each.rejected for each in found)
    assert not all(each.rejected for each in found)
    np.testing.assert_allclose([each.novelty for each in found], model.novelty(far))
    probability = model.predict_proba(far)
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    for row, each in enumerate(found):
        order = np.argsort(-probability[row])
        assert [each.likeliest, each.runner_up] == LABELS[order[:2]].tolist()
        assert each.probability == probability[row].max()
        assert each.runner_up_probability == probability[row][order[1]]
        assert each.rejected == (each.label == "other")
        assert each.distance is not None
        assert each.threshold is not None
        assert each.rejected == (each.distance > each.threshold)
        cosines = unit @ (far[row] / np.linalg.norm(far[row]))
        best = np.argsort(-cosines)[:2]
        assert [near.number for near in each.nearest] == best.tolist()
        assert [near.label for near in each.nearest] == Y[best].tolist()
        found_cosines: list[Any] = [near.similarity for near in each.nearest]
        np.testing.assert_allclose(found_cosines, cosines[best])


def test_numbers_follow_the_examples_after_forget() -> None:
    model = HypersphereClassifier(feature_transform="none").fit(X, Y)
    model.forget(X[:3], Y[:3])
    [near] = model.explain(X[4:5])[0].nearest[:1]
    assert (near.number, near.label, near.similarity) == (4, Y[4], None)
    assert near.distance == pytest.approx(0, abs=1e-6)


def test_a_refined_head_and_one_class_say_why_there_are_no_parts() -> None:
    refined = HypersphereClassifier(refine=True).fit(X, Y, unlabelled=ROWS)
    alone = HypersphereClassifier().partial_fit(X[Y == "a"], Y[Y == "a"])
    assert {(each.contributions, each.reason) for each in refined.explain(Q)} == {(None, REFINED)}
    [each] = alone.explain(Q[:1])
    assert (each.contributions, each.reason, each.runner_up, each.runner_up_probability) == (
        None,
        ONE_CLASS,
        None,
        None,
    )
    assert each.text().startswith("a has probability 100%.")


def test_a_saved_model_explains_alike(tmp_path: Any) -> None:
    for refine in (False, True):
        model = HypersphereClassifier(refine=refine).fit(X, Y, names=NAMES, unlabelled=ROWS)
        model.save(tmp_path / "model")
        loaded = HypersphereClassifier.load(tmp_path / "model")
        for one, other in zip(model.explain(Q), loaded.explain(Q), strict=True):
            assert one.reason == other.reason == (REFINED if refine else "")
            if one.contributions is not None:
                assert other.contributions is not None
                np.testing.assert_allclose([*vars(one.contributions).values()], [*vars(other.contributions).values()])


def test_classes_by_name_alone_and_one_example_each() -> None:
    found = HypersphereClassifier().fit(None, None, names=NAMES).explain(Q)
    assert all(each.nearest == () for each in found)
    assert all(each.contributions and each.contributions.examples == 0 for each in found)
    single = HypersphereClassifier(temperature=0.5).fit(X[:1], Y[:1], names=NAMES).explain(Q)
    for each in single:
        assert each.contributions is not None
        assert len(each.nearest) == 1


def test_without_stored_examples() -> None:
    model = HypersphereClassifier(fit_mode="unbiased", store_support=False, temperature=1.0).fit(X, Y)
    assert all(each.nearest == () and each.contributions for each in model.explain(Q))
    with pytest.raises(ConfigError, match="store_support=False keeps none"):
        HypersphereClassifier(fit_mode="unbiased", store_support=False).fit(X, Y).explain(Q)


@pytest.mark.parametrize("nearest", [-1, 1.5, True])
def test_a_number_of_examples_is_checked(nearest: Any) -> None:
    with pytest.raises(ConfigError, match="give a number of examples, 0 or more"):
        HypersphereClassifier().fit(X, Y).explain(Q, nearest=nearest)


def test_text_and_dict() -> None:
    texts = ["where is my card", "my card has not come", "how do I change my pin"]
    vectors = dict(zip([*texts, "card please"], [[1.0, 0.1], [0.9, 0.2], [0.1, 1.0], [1.0, 0.3]], strict=True))
    encoder = lambda items: np.array([vectors[item] for item in items])  # noqa: E731
    model = FewShotTextClassifier(encoder=encoder, names=None).fit(texts, ["card", "card", "pin"])
    [found] = model.explain(["card please"])
    assert str(found) == found.text()
    assert found.text().startswith("card has probability ")
    assert 'The nearest example is "my card has not come" (card, similarity 1.00).' in found.text()
    assert "Log odds of card against pin: +" in found.text()
    assert "Rejected" not in found.text()
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert data["nearest"][0]["item"] == "my card has not come"
    assert data["contributions"]["examples"] == found.contributions.examples  # type: ignore[union-attr]


def test_a_rejection_names_the_distance_and_an_infinite_threshold_is_no_json_number() -> None:
    model = HypersphereClassifier(coverage=0.7).fit(X, Y)
    rejected = next(each for each in model.explain(-3 * TEST) if each.rejected)
    assert rejected.text().startswith("Rejected: ")
    assert f"{rejected.distance / rejected.threshold:.2f} times as far from its mean" in rejected.text()  # type: ignore[operator]
    with pytest.warns(UserWarning, match="until then some classes accept everything"):
        found = HypersphereClassifier(coverage=0.99).fit(X, Y).explain(Q)[0].to_dict()
    assert found["threshold"] is None
