"""The study of the class doctor: its rules on planted wrong labels, and all parts of its result."""

import json

import numpy as np
import pytest

from research import doctor
from research.intents.texts import Intents


@pytest.fixture
def data() -> Intents:
    random = np.random.default_rng(0)
    names = (3 * random.normal(size=(13, 16))).astype(np.float32)
    y = np.repeat(np.arange(13), 30)
    train, test = (names[y] + random.normal(size=(len(y), 16)).astype(np.float32) for _ in range(2))
    return Intents("tiny", "test", [str(n) for n in range(13)], train, y, test, y, test[:0], names)


def test_every_part_is_measured(data: Intents, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "SHOTS", (8,))
    found = doctor.measure(data, 1)
    rules = {row["rule"]: row for row in found["wrong_labels"]}
    assert rules["mislabelled"]["recall"]["mean"] == 1
    assert rules["k-NN"]["recall"]["mean"] > 0.5
    assert rules["self-confidence"]["average_precision"]["mean"] > 0.9
    [overlap] = found["overlaps"]
    assert len(overlap["tenths"]) == 10
    assert abs(overlap["said"] - overlap["measured"]) < 0.2
    [changes] = found["changes"]
    assert changes["splits_found"]["mean"] == doctor.PLANTED
    assert changes["other_merges"]["mean"] == 0
    json.dumps(found, allow_nan=False)


def test_rules_of_confidence_and_of_neighbours() -> None:
    probabilities = np.array([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.05, 0.95], [0.9, 0.1]])
    wrong, own = doctor.confident_rule(probabilities, np.array([0, 0, 0, 1, 1]))
    assert wrong.tolist() == [False, False, True, False, True]
    np.testing.assert_allclose(own, [0.9, 0.8, 0.1, 0.95, 0.1])
    x = np.array([[1, 0], [1, 0.1], [1, 0.3], [0, 1], [0.1, 1.0]])
    assert doctor.neighbour_votes(x, np.array([0, 0, 1, 1, 1]), 1).tolist() == [1, 1, 0, 1, 1]
