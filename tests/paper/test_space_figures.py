"""What figures 4, 5, 7 and the radii measure: against plain loops, on runs of vectors and of tagged words."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hyperproto.data import Pool, open_pool
from hyperproto.errors import ConfigError, DataError
from hyperproto.paper import radius_figure, space_figures, tsne_figure
from hyperproto.paper.figure import Request
from hyperproto.paper.figures import FIGURES
from hyperproto.paper.radius_figure import correlation
from hyperproto.paper.space_figures import TrainedSpace, described, draw_units
from hyperproto.paper.tsne_figure import gap_of
from hyperproto.training import load_recipe, train
from tests.conftest import write_vectors
from tests.helpers.tagged import random_sentences
from tests.helpers.tiny_words import register, write_conll
from tests.paper.test_drawings import check
from tests.training.conftest import TINY

RECIPE = """
data.spec = "{spec}"
encoder = {{ name = "{encoder}" }}
episodes = {{ way = 4, shot = {shot}, query = 4 }}
optim.encoder = {{ name = "adam", lr = 0.01 }}
training = {{ steps = 4, validate_every = 4, checkpoint_every = 2, log_every = 2 }}
validation = {{ way = 4, shot = 2, query = 4, episodes = 4, split = "{val}" }}
[[row]]
name = "protonet"
method = {{ name = "protonet" }}
episodes.shot = 3
[[row]]
name = "hyperproto"
method = {{ name = "hyperproto", centers = "stored", radius_distance = "plain" }}
optim.radius = {{ name = "adam", lr = 1.0 }}
"""


def quiet(done: int, total: int, note: str = "") -> None:
    """Show nothing."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    exec(TINY, {"__name__": "tiny"})
    folder = tmp_path_factory.mktemp("vectors")
    return trained(folder, f"vectors:{write_vectors(folder / 'vectors.npz')}", "tiny", "val")


@pytest.fixture(scope="module")
def tagged_runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    register()
    folder = tmp_path_factory.mktemp("tagged")
    for seed, split in enumerate(("train", "dev", "test")):
        write_conll(folder / "data" / f"{split}.txt", random_sentences(120, 7, seed=seed, most_runs=3))
    return trained(folder, f"conll:{folder / 'data'}", "tiny-words", "dev")


def trained(folder: Path, spec: str, encoder: str, val: str) -> dict[str, str]:
    (folder / "mine.toml").write_text(RECIPE.format(spec=spec, encoder=encoder, val=val, shot=0))
    rows = ("protonet", "hyperproto")
    return {row: str(train(load_recipe(f"{folder / 'mine.toml'}:{row}"), folder / row).folder) for row in rows}


def test_distances_are_equation_2_to_spheres_of_equation_3(runs: dict[str, str]) -> None:
    numbers = space_figures.distance_numbers([runs["hyperproto"]], None, 3, quiet)
    [panel] = numbers["panels"]
    assert (panel["split"], panel["method"], len(panel["classes"]), len(panel["instances"])) == (
        "test",
        "hyperproto",
        5,
        25,
    )
    space = TrainedSpace.open(runs["hyperproto"])
    pool = open_pool(space.spec, "test")
    for k, name in enumerate(panel["classes"]):
        units = draw_units(pool, pool.class_names.index(name), 10, 3)
        support = space.vectors(pool, units[:5])
        center = [sum(x[d] for x in support) / 5 for d in range(support.shape[1])]
        radius = sum(math.dist(x, center) for x in support) / 5  # of plain distances: the run reads it so
        for j, other in enumerate(panel["classes"]):
            queries = space.vectors(pool, draw_units(pool, pool.class_names.index(other), 10, 3)[5:])
            for i, x in enumerate(queries):
                assert panel["measure"][5 * j + i][k] == pytest.approx(math.dist(x, center) ** 2 - radius, abs=1e-4)
    values = np.array(panel["normalised"])
    assert (values.min(), values.max()) == (0, 1)
    assert np.corrcoef(values.ravel(), np.ravel(panel["measure"]))[0, 1] == pytest.approx(1)
    own = [np.argmin(row) == n // 5 for n, row in enumerate(panel["measure"])]
    assert panel["nearest_is_own"] == pytest.approx(np.mean(own))
    check(space_figures.draw_distances(numbers), "fig4")
    assert len(space_figures.distance_table(numbers)[1]) == 1


def test_similarities_are_cosines(tagged_runs: dict[str, str]) -> None:
    numbers = space_figures.similarity_numbers([tagged_runs["hyperproto"]], None, 0, quiet)
    [row] = numbers["rows"]
    assert [np.shape(panel["similarity"]) for panel in row["panels"]] == [(25, 25)] * 4
    assert all(len(set(panel["classes"])) == 5 for panel in row["panels"])
    space = TrainedSpace.open(tagged_runs["hyperproto"])
    pool = open_pool(space.spec, "test")
    panel = row["panels"][1]
    units = np.concatenate([draw_units(pool, pool.class_names.index(name), 5, 0) for name in panel["classes"]])
    x = space.vectors(pool, units)
    for i, j in ((0, 0), (3, 17), (24, 2)):
        cosine = float(x[i] @ x[j]) / math.sqrt(float(x[i] @ x[i]) * float(x[j] @ x[j]))
        assert panel["similarity"][i][j] == pytest.approx(cosine, abs=1e-4)
    within = [
        panel["similarity"][i][j] for panel in row["panels"] for i in range(25) for j in range(25)
        if i // 5 == j // 5 and i != j
    ]  # fmt: skip
    assert row["within_classes"] == pytest.approx(np.mean(within), abs=1e-3)
    check(space_figures.draw_similarities(numbers), "fig5")
    assert len(space_figures.similarity_table(numbers)[0]) == 4


def test_a_vector_of_a_word_is_that_of_its_sentence(tagged_runs: dict[str, str]) -> None:
    space = TrainedSpace.open(tagged_runs["hyperproto"])
    pool = open_pool(space.spec, "test")
    units = np.array([40, 3, 41, 3])
    found = space.vectors(pool, units)
    encoder: Any = space.learner.features.encoder
    table = encoder.table.detach().numpy()
    prepared = encoder.prepare(pool.items)
    rows = [row for sentence in prepared for row in sentence]
    np.testing.assert_allclose(found, table[[rows[unit] for unit in units]], rtol=1e-6)


def test_before_training_are_the_weights_that_a_run_began_with(runs: dict[str, str]) -> None:
    trained_space = TrainedSpace.open(runs["protonet"])
    before = TrainedSpace.open(runs["protonet"], trained=False)
    fresh = type(before.learner).build(before.recipe, 8)
    weights = [dict(each.features.named_parameters()) for each in (before.learner, fresh, trained_space.learner)]
    assert all((weights[0][name] == weights[1][name]).all() for name in weights[0])
    assert any((weights[0][name] != weights[2][name]).any() for name in weights[0])


def test_the_gap_is_that_of_a_loop() -> None:
    random = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), 6)
    x = random.normal(size=(4, 3))[labels] + 0.3 * random.normal(size=(24, 3))
    centers = [[sum(x[i][d] for i in range(24) if labels[i] == n) / 6 for d in range(3)] for n in range(4)]
    radii = random.normal(size=4)
    for subtracted in (np.zeros(4), radii):  # the surface in the centre's place: the same
        gaps = []
        for i in range(24):
            far = [math.dist(x[i], centers[n]) - subtracted[n] for n in range(4)]
            gaps.append(sum(far[n] for n in range(4) if n != labels[i]) / 3 - far[labels[i]])
        assert gap_of(x, labels, 4)["gap"] == pytest.approx(sum(gaps) / 24, abs=1e-5)
    wide = gap_of(7 * x, labels, 4)
    assert wide["gap"] == pytest.approx(7 * gap_of(x, labels, 4)["gap"], rel=1e-4)
    assert wide["gap_over_scale"] == pytest.approx(gap_of(x, labels, 4)["gap_over_scale"], abs=1e-5)


def test_maps_of_both_splits_and_all_spaces(runs: dict[str, str]) -> None:
    numbers = tsne_figure.map_numbers([runs["protonet"], runs["hyperproto"]], None, 0, 3, quiet)
    assert [row["split"] for row in numbers["rows"]] == ["train", "test"]
    for row in numbers["rows"]:
        assert [panel["title"] for panel in row["panels"]] == ["before training", "ProtoNet", "HyperProto"]
        assert all(np.shape(panel["places"]) == (15, 2) for panel in row["panels"])
        assert row["instances_a_class"] == 3
    drawing = tsne_figure.draw_maps(numbers)
    check(drawing, "fig7")
    assert drawing.series == ["before training", "ProtoNet", "HyperProto"]
    head, rows = tsne_figure.gap_table(numbers)
    assert rows[2][4] == "5.09"
    assert rows[0][4] == ""
    assert len(head) == len(rows[0]) == 9


def test_more_words_than_there_are_are_not_drawn(tagged_runs: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tsne_figure, "tsne", lambda vectors, seed: vectors[:, :2].astype(float))
    numbers = tsne_figure.map_numbers([tagged_runs["hyperproto"]], None, 0, 10_000, quiet)
    for row in numbers["rows"]:
        pool = open_pool(row["data"], row["split"])
        assert row["instances_a_class"] == np.sort(pool.counts)[-5]


def test_radii_against_scatter_and_size(tagged_runs: dict[str, str], runs: dict[str, str]) -> None:
    numbers = radius_figure.radius_numbers([tagged_runs["hyperproto"], runs["hyperproto"]], 0, 30, quiet)
    tagged, vectors = numbers["runs"]
    space = TrainedSpace.open(tagged_runs["hyperproto"])
    method: Any = space.learner.method
    learned = method.radius.detach().double().numpy()[:, 0]
    np.testing.assert_allclose(tagged["radius"], (learned - learned.mean())[:-1], atol=1e-5)
    assert tagged["radius_of_O"] == pytest.approx(learned[-1] - learned.mean(), abs=1e-5)
    pool = open_pool(space.spec, "train")
    assert tagged["size"] == pool.counts.tolist()
    x = space.vectors(pool, draw_units(pool, 2, 30, 0, items_once=False))
    mean = x.mean(axis=0)
    assert tagged["scatter"][2] == pytest.approx(sum(math.dist(v, mean) ** 2 for v in x) / (len(x) - 1), rel=1e-4)
    assert vectors["with_size"] is None  # all are equally large
    assert vectors["radius_of_O"] is None
    check(radius_figure.draw_radii(numbers), "radius")
    assert [row[1] for row in radius_figure.radius_table(numbers)[1]] == ["scatter", "size"] * 2


def test_rank_correlation() -> None:
    a = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    found = correlation(a, a**3) or {}
    assert found["spearman"] == 1
    ranks = np.array([2.0, 1.0, 4.0, 3.0, 6.0, 5.0])
    found = correlation(a, ranks) or {}
    assert found["spearman"] == pytest.approx(1 - 6 * 6 / (6 * 35), abs=1e-4)  # 1 - 6 sum d^2 / (n (n^2 - 1))
    assert found["low"] < found["spearman"] < found["high"]
    assert correlation(a, np.ones(6)) is None


def test_instances_are_described() -> None:
    words = Pool([["in", "New", "York", "now"]], np.array([-1, 0, 0, -1]), ("city",), offsets=np.array([0, 4]))
    assert described(words, np.array([2])) == [{"class": "city", "text": "in New [York] now"}]
    relation = {"tokens": ["Anna", "Bell", "sang", "it"], "head": [0, 1], "tail": [3]}
    relations = Pool([relation], np.array([0]), ("P0",))
    assert described(relations, np.array([0]))[0]["text"] == "[Anna Bell] sang [it]"
    images = Pool(np.zeros((1, 4, 4), np.uint8), np.array([0]), ("alphabet/a U+0041",))
    [one] = described(images, np.array([0]))
    assert one["class"] == "alphabet/a"
    assert one["image"].startswith("data:image/png;base64,")
    colours = Pool(np.zeros((1, 4, 4, 3), np.uint8), np.array([0]), ("n01532829",))
    [one] = described(colours, np.array([0]))
    assert (one["class"], one["image"][:23]) == ("house finch", "data:image/jpeg;base64,")
    texts = Pool(["a text" * 200], np.array([0]), ("a",))
    assert len(described(texts, np.array([0]))[0]["text"]) == space_figures.LONGEST
    long = Pool([["x"] * 900 + ["here"]], np.array([-1] * 900 + [0]), ("a",), offsets=np.array([0, 901]))
    assert described(long, np.array([900]))[0]["text"].endswith("x [here]")
    vectors = Pool(np.zeros((1, 3)), np.array([0]), ("a",), name="mine")
    assert described(vectors, np.array([0]))[0]["text"] == "mine (all) item 0"


def test_mistakes_are_said(runs: dict[str, str], tagged_runs: dict[str, str], make_blobs: Any) -> None:
    both = [runs["protonet"], tagged_runs["hyperproto"]]
    with pytest.raises(ConfigError, match="fig7 compares runs on the same data, and these are of conll:"):
        tsne_figure.map_numbers(both, None, 0, 8, quiet)
    with pytest.raises(ConfigError, match="protonet learns no radius; name a run of hyperproto, hyperproto-cone or"):
        radius_figure.radius_numbers([runs["protonet"]], 0, 5, quiet)
    with pytest.raises(DataError, match="0 classes have 99 instances, but 5 are drawn; name another --split"):
        space_figures.draw_classes(make_blobs(), 5, 99, 0)
    with pytest.raises(ConfigError, match="its encoder cannot read blobs"):
        TrainedSpace.open(runs["protonet"]).vectors(make_blobs(dim=3), np.array([0]))


def test_of_all_runs_each_figure_takes_its_own(
    runs: dict[str, str], tagged_runs: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tsne_figure, "tsne", lambda vectors, seed: vectors[:, :2].astype(float))
    given = [runs["protonet"], tagged_runs["protonet"], runs["hyperproto"]]

    def measured(name: str, folders: list[str], alone: bool = False) -> Any:
        return FIGURES[name].measure(Request(tmp_path, folders, samples=6, alone=alone), quiet)

    assert [panel["run"] for panel in measured("fig4", given)["panels"]] == given[1:]  # of vectors that of hyperproto
    assert [panel["run"] for panel in measured("fig4", given[:2], alone=True)["panels"]] == given[:2]
    assert [row["run"] for row in measured("fig5", given)["rows"]] == given[1:]
    panels = measured("fig7", given)["rows"][0]["panels"]
    assert [panel["run"] for panel in panels] == [given[2], given[0], given[2]]  # before training, then both
    assert [run["run"] for run in measured("radius", given)["runs"]] == [given[2]]
    with pytest.raises(ConfigError, match="radius looks into runs of hyperproto, its cone or its Gaussian: name one"):
        measured("radius", given[:2])
