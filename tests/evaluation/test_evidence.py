"""What candidates are told besides the support: drawn beside it, given in its space, and named in results."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import hyperproto
from hyperproto.data import Pool, open_pool
from hyperproto.encoders import make_encoder, resolve_encoder
from hyperproto.encoders.class_names import ClassNames, NameEncoder
from hyperproto.encoders.identity import Identity
from hyperproto.episodes import EpisodeSampler, episodes_hash
from hyperproto.errors import ConfigError, EpisodeError
from hyperproto.evaluation import EncodedPool, EvidenceChoice, Predictor, score_episodes
from hyperproto.methods import PAD, Task, gather_task, make_method
from hyperproto.regions import Evidence, Sphere
from tests.helpers.tiny_models import tiny_bert

WORDS = ("river", "king", "queen", "paris", "london")


def blobs_pool(classes: int = 6, each: int = 40, dim: int = 8) -> Pool:
    random = np.random.default_rng(0)
    y = np.repeat(np.arange(classes), each)
    x = 1.5 * random.normal(size=(classes, dim))[y] + random.normal(size=(len(y), dim))
    return Pool(x.astype(np.float32), y, tuple(f"c{n}" for n in range(classes)))


POOL = blobs_pool()


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A table of texts whose labels are words of a small model, and that model."""
    folder = tmp_path_factory.mktemp("texts")
    rows = [
        f"{other} {word} {word} was born,{word}" for word in WORDS for other in ("the", "a", *WORDS) for _ in (0, 1)
    ]
    (folder / "own.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    return f"texts:{folder / 'own.csv'}", f"sentence-transformer:{tiny_bert(folder / 'bert')}"


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("nothing", EvidenceChoice()),
        ("names", EvidenceChoice("prior")),
        ("example+queries", EvidenceChoice("example", "queries")),
        ("unlabelled", EvidenceChoice(None, "unlabelled")),
        ("names+unlabelled", EvidenceChoice("prior", "unlabelled")),
    ],
)
def test_words_are_parsed_and_said(text: str, known: EvidenceChoice) -> None:
    assert EvidenceChoice.parse(text) == known
    assert str(known) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name", "--evidence name: .*'name'.*names"),
        ("names+example", "names are a prior .* or an example, .* each named once; repeat --evidence"),
        ("queries+unlabelled", "each named once; repeat --evidence"),
        ("names+names", "each named once; repeat --evidence"),
        ("nothing+names", "nothing stands alone; repeat --evidence"),
    ],
)
def test_other_words_are_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        EvidenceChoice.parse(text)


@pytest.mark.parametrize("distractors", [0, 7])
def test_items_without_a_label_are_drawn_beside_an_episode(distractors: int) -> None:
    shape: dict[str, Any] = {"way": 4, "shot": [1, 2, 3, 5], "query": 6, "seed": 3}
    plain = EpisodeSampler(POOL, **shape)
    more = EpisodeSampler(POOL, **shape, unlabelled=20, distractors=distractors)
    for n, (one, other) in enumerate(zip(plain.draw(30), more.draw(30), strict=True)):
        for part in ("classes", "support", "support_y", "query", "query_y"):
            assert np.array_equal(getattr(one, part), getattr(other, part))
        assert one.unlabelled is None
        assert other.unlabelled is not None
        inside, outside = np.split(other.unlabelled, [80])
        assert POOL.labels[inside].tolist() == np.repeat(other.classes, 20).tolist()
        assert len({*inside, *other.support, *other.query}) == 80 + len(other.support) + len(other.query)
        assert not {*POOL.labels[outside]} & {*other.classes}
        assert len(outside) == distractors
        again = more.draw(1, start=n)[0].unlabelled  # a pure function of its number
        assert np.array_equal(other.unlabelled, again if again is not None else [])
    assert episodes_hash(POOL, plain.draw(3)) != episodes_hash(POOL, more.draw(3))


def test_every_item_has_the_same_chance_to_be_without_a_label() -> None:
    episodes = EpisodeSampler(POOL, way=6, shot=1, query=1, unlabelled=19).draw(600)
    drawn = np.bincount(np.concatenate([e.unlabelled for e in episodes if e.unlabelled is not None]), minlength=240)
    assert abs(drawn / 600 - 19 / 40).max() < 0.08


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"unlabelled": 30}, r"class 'c0' has 40 instances, but 11 for support and queries and 30 .* need 41; lower"),
        ({"unlabelled": -1}, "numbers of items are at least 0"),
        ({"way": 6, "distractors": 2}, "2 distractors, but 6-way episodes leave none of its 6 classes for them; lower"),
        ({"distractors": 2, "na_rate": 1}, "2 distractors and queries of none of the classes: an item could be both"),
    ],
)
def test_what_cannot_be_drawn_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(EpisodeError, match=message):
        EpisodeSampler(POOL, **{"way": 4, "shot": 1, "query": 10, **settings})


def same_up_to_a_number(found: torch.Tensor, expected: torch.Tensor, atol: float) -> None:
    """Scores (Q, N) that rank the classes of each query alike, at the same distances."""
    parts = (x - x.mean(1, keepdim=True) for x in (found, expected))
    torch.testing.assert_close(*parts, atol=atol, rtol=1e-3)


def scores(
    known: EvidenceChoice, shot: Any = 2, transform: str = "none", **options: Any
) -> tuple[list[Any], torch.Tensor]:
    method = make_method("hyperproto", feature_shape=(8,), **options)
    encoder = Identity(shape=[8])
    predictor = Predictor.of(method, encoder, transform, evidence=known)
    episodes = EpisodeSampler(POOL, way=4, shot=shot, query=3, unlabelled=9).draw(5)
    found = score_episodes(predictor, EncodedPool.encode(encoder, POOL), episodes)
    return episodes, torch.cat([s for _, s in found])


@pytest.mark.parametrize("transform", ["none", "unit"])
@pytest.mark.parametrize("rows", ["unlabelled", "queries"])
def test_rows_reach_the_closed_form_in_the_space_of_the_support(rows: Any, transform: str) -> None:
    episodes, found = scores(EvidenceChoice(None, rows), transform=transform)
    items = torch.from_numpy(POOL.items)
    items = items / items.norm(dim=1, keepdim=True) if transform == "unit" else items
    for episode, own in zip(episodes, found, strict=True):
        more = items[episode.unlabelled if rows == "unlabelled" else episode.query]
        sphere = Sphere.fit(
            items[episode.support], torch.from_numpy(episode.support_y), 4, evidence=Evidence(unlabelled=more)
        )
        expected = -sphere.measure(items[episode.query])
        same_up_to_a_number(own, expected, atol=1e-3)
    _, plain = scores(EvidenceChoice(), transform=transform)
    assert not torch.allclose(found, plain)


def test_rows_that_nobody_is_told_of_change_nothing() -> None:
    episodes, found = scores(EvidenceChoice())
    bare = [replace(episode, unlabelled=None) for episode in episodes]
    encoder = Identity(shape=[8])
    predictor = Predictor.of(make_method("hyperproto", feature_shape=(8,)), encoder)
    assert torch.equal(
        found, torch.cat([s for _, s in score_episodes(predictor, EncodedPool.encode(encoder, POOL), bare)])
    )


def test_a_name_is_one_more_example() -> None:
    task = Task(
        support=torch.arange(6.0).view(1, 3, 2),
        support_y=torch.tensor([[0, 1, PAD]]),
        query=torch.zeros(1, 1, 2),
        query_y=None,
        classes=torch.tensor([[4, 2, 0]]),
        query_offsets=torch.tensor([[0, 1]]),
        support_offsets=torch.tensor([[0, 1, 2, 2]]),
        evidence=Evidence(torch.tensor([[[7.0, 7.0], [0.0, 0.0], [9.0, 9.0]]]), torch.tensor([[True, False, True]])),
    )
    more = task.with_names_as_examples()
    assert more.support_y.tolist() == [[0, 1, PAD, 0, PAD, 2]]
    assert more.support[0, 3:].tolist() == [[7, 7], [0, 0], [9, 9]]
    assert more.support_offsets is not None
    assert more.support_offsets.tolist() == [[0, 1, 2, 2, 3, 4, 5]]
    assert more.names is None


def test_names_reach_methods(texts: tuple[str, str]) -> None:
    data, encoder = texts
    given: dict[str, Any] = {"split": "all", "encoder": encoder, "query": 4, "episodes": 6}
    know = ["nothing", "names", "example", "names+unlabelled", "example+queries"]
    found = hyperproto.compare(
        data, methods=["cosine", "hyperproto"], fits=["bayes", "paper"], evidence=know, unlabelled=3, shots=1, **given
    ).results
    told = {(r.settings["method"], r.settings["fit"], r.settings.get("knows", "nothing")): r for r in found}
    assert {key[2] for key in told if key[:2] == ("hyperproto", "bayes")} == {*know}
    assert {key[2] for key in told if key[:2] == ("hyperproto", "paper")} == {"nothing", "example"}
    assert {key[2] for key in told if key[0] == "cosine"} == {"nothing", "example"}
    both = told["hyperproto", "bayes", "names+unlabelled"].settings
    assert both["names"] == {"source": "labels", "encoder": "same", "use": "prior"}
    assert (both["unlabelled"], both["strangers"]) == (3, 0)
    assert "unlabelled" not in told["cosine", "point", "nothing"].settings
    assert len({result.label for result in found}) == len(found)
    assert len({result.settings["episode_hash"] for result in found}) == 1


def test_names_are_the_labels_read_as_items_are(texts: tuple[str, str]) -> None:
    data, spec = texts
    pool = open_pool(data, "all")
    encoder = make_encoder(*resolve_encoder(spec, {}, pool)).eval()
    episodes = EpisodeSampler(pool, way=3, shot=2, query=4).draw(3)
    encoded = EncodedPool.encode(encoder, pool)
    method = make_method("hyperproto", feature_shape=encoder.feature_shape)
    predictor = Predictor.of(method, encoder, "unit", names=NameEncoder("labels"), evidence=EvidenceChoice("prior"))
    found = torch.cat([s for _, s in score_episodes(predictor, encoded, episodes)])
    unit = torch.nn.functional.normalize
    for episode, own in zip(episodes, found, strict=True):
        with torch.no_grad():
            names = unit(encoder.read_texts([pool.class_names[c] for c in episode.classes]))
        support, query = (unit(encoded.units.x[part]) for part in (episode.support, episode.query))
        sphere = Sphere.fit(support, torch.from_numpy(episode.support_y), 3, evidence=Evidence(names))
        expected = -sphere.measure(query)
        same_up_to_a_number(own, expected, atol=1e-4)


def test_no_example_at_all_ranks_by_the_cosine_to_names(texts: tuple[str, str]) -> None:
    data, spec = texts
    given: dict[str, Any] = {
        "split": "all",
        "encoder": spec,
        "query": 4,
        "episodes": 6,
        "shots": 0,
        "transforms": "unit",
    }
    prior, example = (
        hyperproto.compare(data, methods=name, evidence=know, **given).results[0]
        for name, know in (("hyperproto", "names"), ("cosine", "example"))
    )
    assert np.array_equal(prior.values, example.values)
    with pytest.raises(ConfigError, match=r"--shot 0: .* at least 1 example, or use their names \(--evidence names\)"):
        hyperproto.compare(data, methods="cosine", **given)


def test_what_makes_no_sense_is_refused(texts: tuple[str, str], tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", x=POOL.items, y=np.array((*WORDS, "bob"))[POOL.labels])
    data = f"vectors:{tmp_path / 'own.npz'}"
    given: dict[str, Any] = {"split": "all", "encoder": "identity", "method": "cosine"}
    with pytest.raises(ConfigError, match=r"--evidence names: none of the methods has a use for it; hyperproto with"):
        hyperproto.evaluate(data, evidence="names", **given)
    with pytest.raises(ConfigError, match="but these are no evidence here; add --evidence unlabelled"):
        hyperproto.evaluate(data, unlabelled=3, **given)
    with pytest.raises(ConfigError, match="--names labels, but names are no evidence here; add --evidence names, or"):
        hyperproto.evaluate(data, names="labels", **given)
    with pytest.raises(ConfigError, match="Identity does not read plain texts"):
        hyperproto.evaluate(data, evidence="example", shot=1, query=2, **given)


def test_names_of_another_space_are_refused() -> None:
    encoder = Identity(shape=[8])
    units = EncodedPool.encode(encoder, POOL).units
    task = gather_task(units, EpisodeSampler(POOL, way=2, shot=1, query=1).draw(1))
    predictor = Predictor.of(make_method("cosine", feature_shape=(8,)), encoder, evidence=EvidenceChoice("example"))
    texts = ("a", "b", "c", "d", "e", "f")
    predictor.class_names = ClassNames(texts, {}, lambda texts: torch.zeros(len(texts), 5), frozen=True)
    with pytest.raises(ConfigError, match=r"vectors of 5 numbers, but the items of shape \(8,\)"):
        predictor.named(task)
