"""A short run of the chaos suite: a few kills, two trainers, a reader beside two writers."""

from pathlib import Path

import pytest

from tests.chaos.kills import PROBLEMS, Tally, drafts_after_sweeping, kill_some
from tests.chaos.together import loads_beside_writers, second_trainer
from tests.chaos.victims import VICTIMS, Add, Fit, Lost, Predict, Train
from tests.fuzz.inputs import Samples


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Samples:
    return Samples(tmp_path_factory.mktemp("samples"))


def nothing_wrong(tally: Tally) -> None:
    assert not any(tally.counts[kind] for kind in PROBLEMS), tally.problems


@pytest.mark.slow
@pytest.mark.parametrize("victim", [Fit, Add, Predict, Train])
def test_kills_lose_nothing(victim: type[Fit | Add | Predict | Train], samples: Samples) -> None:
    found = kill_some(victim(samples), kills=2)
    nothing_wrong(found)
    assert found.counts["kills"] >= 2


@pytest.mark.slow
def test_a_second_trainer_is_refused(samples: Samples) -> None:
    nothing_wrong(second_trainer(samples))


@pytest.mark.slow
def test_a_reader_beside_two_writers_never_fails(samples: Samples) -> None:
    found = loads_beside_writers(samples, 100)
    nothing_wrong(found)
    assert found.counts["loads"] == 100


def test_what_is_lost_is_seen(samples: Samples, tmp_path: Path) -> None:
    victim = Add(samples)
    victim.prepare(tmp_path)
    victim.check(tmp_path, (-9, -9))
    with pytest.raises(Lost, match="add reported success, and 0 of its 4 examples are there"):
        victim.check(tmp_path, (0, -9))


def test_drafts_are_swept_and_other_files_stay(tmp_path: Path) -> None:
    (tmp_path / ".model.json.00ff.tmp").write_text("draft")
    (tmp_path / "mine.tmp").write_text("mine")
    assert [path.name for path in drafts_after_sweeping(tmp_path)] == ["mine.tmp"]
    assert not (tmp_path / ".model.json.00ff.tmp").exists()


def test_every_victim_has_a_share() -> None:
    from tests.chaos.__main__ import SHARES

    assert {str(victim.name) for victim in VICTIMS} == {*SHARES}
    assert sum(SHARES.values()) == 100
