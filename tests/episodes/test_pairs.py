"""Pairs of sentences: which are positive, how often entities are blank, and what cannot be paired."""

from typing import Any

import numpy as np
import pytest

from hyperproto.data import OUTSIDE, Pool
from hyperproto.data.formats.relations import BLANK, with_blanks
from hyperproto.episodes import Episode, PairSampler
from hyperproto.errors import DataError, EpisodeError


def item(head: str, tail: str, words: str) -> dict[str, Any]:
    return {"tokens": ["h", *words.split(), "t"], "head": [0], "tail": [1 + len(words.split())]} | {
        "head_id": head,
        "tail_id": tail,
    }


ITEMS = [
    item("a", "b", "one"),
    item("a", "b", "two"),
    item("a", "b", "one"),  # the first one's sentence again
    item("b", "a", "three"),  # head and tail exchanged
    item("a", "c", "four"),
    item("d", "b", "five"),
    item("e", "f", "six"),
    item("e", "f", "seven"),
    item("a", "b", "eight"),
]


def pool_of(items: list[dict[str, Any]], labels: list[int] | None = None) -> Pool:
    labels = [OUTSIDE] * len(items) if labels is None else labels
    names = tuple("abc"[: max(labels) + 1])
    return with_blanks(Pool(items, np.array(labels), names, name="few"))


def sides(episode: Episode) -> tuple[int, int]:
    """Which sentences a pair joins."""
    return int(episode.support[0]) // 4, int(episode.query[0]) // 4


def kind_of(a: dict[str, Any], b: dict[str, Any]) -> str:
    shared = (a["head_id"] == b["head_id"]) + (a["tail_id"] == b["tail_id"])
    return ("easy", "hard", "positive")[shared]


def test_pairs_are_half_positive_a_quarter_hard_a_quarter_easy() -> None:
    pairs = PairSampler(pool_of(ITEMS), source="identities").draw(400)
    kinds = [kind_of(*(ITEMS[n] for n in sides(pair))) for pair in pairs]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {"positive": 200, "hard": 100, "easy": 100}
    for pair, kind in zip(pairs, kinds, strict=True):
        assert pair.query_y is not None
        assert (pair.query_y.item() == 0) == (kind == "positive")
        assert pair.query_y.item() in (0, OUTSIDE)
        assert (pair.way, pair.support_y.tolist()) == (1, [0])


@pytest.mark.parametrize("source", ["identities", "labels"])
def test_no_sentence_is_paired_with_itself(source: Any) -> None:
    pool = pool_of(ITEMS, [0, 0, 0, 1, 1, 0, 1, 1, 0])
    for pair in PairSampler(pool, source=source).draw(500):
        a, b = sides(pair)
        assert ITEMS[a]["tokens"] != ITEMS[b]["tokens"]


def test_every_pair_that_can_be_is_drawn() -> None:
    drawn = {sides(pair) for pair in PairSampler(pool_of(ITEMS), source="identities").draw(4000)}
    different = {(a, b) for a in range(9) for b in range(9) if a != b and ITEMS[a]["tokens"] != ITEMS[b]["tokens"]}
    assert drawn == different


def test_partners_are_counted_as_they_are_listed() -> None:
    sampler = PairSampler(pool_of(ITEMS), source="identities")
    for kind in sampler._kinds:
        listed = [len(sampler._partners(n, kind)) for n in range(len(ITEMS))]
        assert sampler._counts(kind).tolist() == listed
    assert sampler.n_positive == 6  # (0 1) (1 2) (0 8) (1 8) (2 8) (6 7)


def test_entities_exchanged_are_no_positive_pair() -> None:
    exchanged = [item("a", "b", "one"), item("b", "a", "two"), item("c", "d", "three"), item("a", "e", "four")]
    message = r"few \(all\): no positive pairs by identities \(4 sentences make 0 positive pairs\); give it a larger"
    with pytest.raises(EpisodeError, match=message):
        PairSampler(pool_of(exchanged), source="identities")


def test_entities_are_blank_with_the_probability_given() -> None:
    pairs = PairSampler(pool_of(ITEMS), source="identities").draw(10_000)
    spelled = np.array([[side[0] % 4 for side in (pair.support, pair.query)] for pair in pairs])
    for entity in (1, 2):
        for side in (0, 1):
            assert np.mean((spelled[:, side] & entity) > 0) == pytest.approx(0.7, abs=0.02)
    assert np.mean(spelled == 3) == pytest.approx(0.49, abs=0.02)
    both = np.mean((spelled[:, 0] == 3) & (spelled[:, 1] == 3))  # the two sides are independent
    assert both == pytest.approx(0.49**2, abs=0.02)


def test_the_same_sentence_is_spelt_differently_at_different_steps() -> None:
    pool = pool_of(ITEMS)
    firsts = [int(pair.support[0]) for pair in PairSampler(pool, source="identities").draw(400)]
    assert {first % 4 for first in firsts if first // 4 == 1} == {0, 1, 2, 3}
    assert all((BLANK in pool.items[n]["tokens"]) == bool(n % 4) for n in firsts)


@pytest.mark.parametrize(("blanks", "spelling"), [(0.0, 0), (1.0, 3)])
def test_never_and_always_blank(blanks: float, spelling: int) -> None:
    for pair in PairSampler(pool_of(ITEMS), source="identities", blanks=blanks).draw(50):
        assert int(pair.support[0]) % 4 == int(pair.query[0]) % 4 == spelling


def test_a_pair_follows_from_seed_and_number() -> None:
    def drawn(seed: int, count: int, start: int = 0) -> list[tuple[int, int]]:
        pairs = PairSampler(pool_of(ITEMS), source="identities", seed=seed).draw(count, start)
        return [(int(pair.support[0]), int(pair.query[0])) for pair in pairs]

    assert drawn(3, 20)[12:] == drawn(3, 8, start=12)
    assert drawn(3, 20) != drawn(4, 20)


def test_pairs_by_label_need_no_identities() -> None:
    plain = [{key: one[key] for key in ("tokens", "head", "tail")} for one in ITEMS]
    labels = [0, 0, 0, 1, 1, 2, 2, OUTSIDE, OUTSIDE]
    pairs = PairSampler(pool_of(plain, labels), source="labels").draw(200)
    same = [labels[a] == labels[b] for a, b in map(sides, pairs)]
    assert same == [True, False] * 100
    assert [pair.query_y.item() == 0 for pair in pairs if pair.query_y is not None] == same
    assert {n for pair in pairs for n in sides(pair)} == set(range(7))  # those without a label are in none
    assert all(pair.classes.tolist() == [labels[sides(pair)[0]]] for pair in pairs)


def test_what_cannot_be_paired_is_refused() -> None:
    plain = [{key: one[key] for key in ("tokens", "head", "tail")} for one in ITEMS]
    with pytest.raises(EpisodeError, match=r'no ids to make pairs by; .* or make pairs by label: source = "lab'):
        PairSampler(pool_of(plain), source="identities")
    with pytest.raises(EpisodeError, match=r"no easy pairs by labels \(9 sentences make 35 positive pairs\)"):
        PairSampler(pool_of(ITEMS, [0] * 9), source="labels")
    with pytest.raises(EpisodeError, match=r"no positive pairs by labels \(0 sentences make 0 positive pairs\)"):
        PairSampler(pool_of(ITEMS), source="labels")
    with pytest.raises(DataError, match="pairs reads sentences with a head and a tail, but the items are"):
        with_blanks(Pool(["a text"], np.array([OUTSIDE]), ()))
