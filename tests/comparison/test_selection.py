"""Runs, encoders, methods, fits, transforms and options: which candidates they make, and their labels."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from hyperproto.comparison.measure import select
from hyperproto.data import open_pool, training_split
from hyperproto.decisions import make_decision
from hyperproto.encoders.identity import Identity
from hyperproto.errors import ConfigError
from hyperproto.methods import METHODS, make_method
from hyperproto.methods.hyperproto import HyperProto
from hyperproto.training.sources import Candidate, Source, encoder_source
from tests.helpers.predicting import source
from tests.helpers.random_tasks import make_task


def labels(sources: list[Source], methods: list[str], fits: list[str], transforms: list[str]) -> list[str]:
    return [candidate.label for candidate in select(sources, methods, fits, transforms, {})]


def test_every_combination_that_makes_sense() -> None:
    found = labels([source()], ["protonet", "simpleshot", "hyperproto"], ["paper", "bayes"], ["none", "unit"])
    assert found == [
        "protonet point none",
        "protonet point unit",
        "simpleshot point center-unit",
        "hyperproto paper none",
        "hyperproto paper unit",
        "hyperproto bayes none",
        "hyperproto bayes unit",
    ]


def test_what_is_not_said_is_the_default_of_the_source_and_the_method() -> None:
    assert labels([source()], ["hyperproto-cone"], [], []) == ["hyperproto-cone unbiased unit"]
    assert labels([source("a", "hyperproto"), source("b")], ["protonet"], [], []) == [
        "a protonet point unit",
        "b protonet point unit",
    ]
    assert labels([source("a", "hyperproto")], [], ["paper"], []) == ["hyperproto paper unit"]
    trained = source("a", "hyperproto")
    [candidate] = select([trained], [], ["paper"], [], {})
    assert trained.method is not None
    assert candidate.method.log_temperature is trained.method.log_temperature


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([source()], [], [], []), "encoder 'vectors' comes without a method; name one with --method"),
        (([source()], ["protonet"], ["bayes"], []), r"no fit of protonet called 'bayes'\. Known: point"),
        (
            ([source()], ["simpleshot"], [], ["unit"]),
            r"no transform of simpleshot called 'unit'; did you mean 'center-unit'\?",
        ),
        (
            ([source()], ["protonet"], [], ["units"]),
            r"no transform of protonet called 'units'; did you mean 'unit'\?",
        ),
        (
            ([source()], ["protonet", "hyperproto"], ["bays"], []),
            r"fit of protonet or hyperproto called 'bays'; did you mean 'bayes'\?",
        ),
        (
            ([source()], ["protonet", "cosine"], [], ["units"]),
            r"transform of protonet or cosine called 'units'; did you mean",
        ),
        (([source()], ["hyperprot"], [], []), r"no method 'hyperprot'; did you mean 'hyperproto'\?"),
    ],
)
def test_what_makes_no_sense_is_an_error(
    arguments: tuple[list[Source], list[str], list[str], list[str]], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        labels(*arguments)


def test_a_run_keeps_its_own_fit_and_options() -> None:
    own = make_method("hyperproto", feature_shape=(6,), n_classes=3, fit="paper", squared=False)
    options = {"fit": "paper", "squared": False}
    assert isinstance(own, HyperProto)
    torch.nn.init.uniform_(own.radius)
    trained = Source("a", {}, Identity(shape=[6]), "none", own, "hyperproto", options)
    [as_trained] = select([trained], [], [], [], {})
    assert (as_trained.label, as_trained.method.fit) == ("hyperproto paper none", "paper")
    [changed] = select([trained], [], [], [], {"radius_weight": 0.5})
    assert changed.label == "hyperproto paper none radius_weight=0.5"
    assert changed.settings["options"] == {"squared": False, "radius_weight": 0.5}
    assert isinstance(changed.method, HyperProto)
    assert not changed.method.squared
    assert torch.equal(changed.method.radius, own.radius)  # what it learned is still there
    both = select([trained], ["hyperproto", "protonet"], [], [], {"radius_weight": 0.5})
    assert [c.label for c in both] == ["hyperproto paper none radius_weight=0.5", "protonet point none"]
    with pytest.raises(ConfigError, match="the fit is not an option of a method here; use --fit"):
        select([trained], [], [], [], {"fit": "bayes"})
    with pytest.raises(ConfigError, match="called 'radius_wait'"):
        select([trained], ["hyperproto", "protonet"], [], [], {"radius_wait": 0.5})


def test_paper_alone_is_one_reading_of_the_radius_everywhere() -> None:
    squared, plain = source("a", "hyperproto"), source("b", "hyperproto")
    plain = replace(plain, method_options={"radius_distance": "plain"})
    assert labels([squared], [], ["paper", "unbiased"], []) == ["hyperproto paper unit", "hyperproto unbiased unit"]
    [alone, other] = select([plain], [], ["paper", "unbiased"], [], {})
    assert (alone.label, other.label) == ("hyperproto paper unit radius_distance=plain", "hyperproto unbiased unit")
    assert labels([squared, plain], ["hyperproto", "hyperproto-cone"], ["paper"], ["none"]) == [
        "a hyperproto paper none radius_distance=squared",
        "a hyperproto-cone paper none",
        "b hyperproto paper none radius_distance=plain",
        "b hyperproto-cone paper none",
    ]


def test_runs_of_different_methods_each_take_the_fits_they_have() -> None:
    found = labels([source("a", "hyperproto"), source("b", "protonet")], [], ["bayes", "paper"], [])
    assert found == ["a hyperproto bayes unit", "a hyperproto paper unit", "b protonet point unit"]
    with pytest.raises(ConfigError, match=r"no fit of hyperproto called 'papr'; did you mean 'paper'\?"):
        labels([source("a", "hyperproto")], [], ["bayes", "papr"], [])


def test_the_center_of_the_training_data_reaches_the_transform(vectors_file: Path) -> None:
    spec = f"vectors:{vectors_file}"
    pool = open_pool(spec, "train")
    with_training = Source("v", {}, Identity(shape=[8]), "none", train_data=(spec, "train"))
    [candidate] = select([with_training], ["simpleshot"], [], [], {})
    assert candidate.center is not None
    torch.testing.assert_close(candidate.center, torch.from_numpy(pool.items.mean(0)))
    [without] = select([source()], ["simpleshot"], [], [], {})
    assert without.center is None


def test_a_label_names_an_option_only_where_it_counts() -> None:
    options = {"prior_ratio": 0.5, "radius_weight": 0.1}
    candidates = select([source()], ["hyperproto", "protonet"], ["bayes", "paper", "unbiased"], ["unit"], options)
    assert [candidate.label for candidate in candidates] == [
        "hyperproto bayes unit prior_ratio=0.5",
        "hyperproto paper unit radius_weight=0.1",
        "hyperproto unbiased unit",
        "protonet point unit",
    ]


@pytest.mark.parametrize(
    ("method", "option", "value", "fits"),
    [
        ("hyperproto", "radius_weight", 0.5, {"paper"}),
        ("hyperproto", "radius_distance", "plain", {"paper"}),
        ("hyperproto", "one_shot_radius", 0.7, {"paper"}),
        ("hyperproto", "prior_ratio", 3.0, {"bayes"}),
        ("hyperproto", "unit_correlation", 0.5, {"bayes"}),
        ("hyperproto", "count_prior", 1.0, {"bayes", "unbiased", "paper", "point"}),
        ("hyperproto-cone", "mean_of", "raw", {"paper", "point"}),
        ("hyperproto-cone", "one_shot_radius", 0.7, {"paper"}),
        ("hyperproto-gaussian", "one_shot_radius", 0.7, {"paper"}),
    ],
)
def test_labels_name_an_option_with_the_fits_it_counts_with_and_it_does(
    method: str, option: str, value: Any, fits: set[str]
) -> None:
    """Where a label is silent scores are the same; where it names the option they are not."""
    task = make_task(counts=(1, 4, 2))
    task = replace(task, support_offsets=torch.tensor([[0, 3, 7]] * 2))  # two items: their units are alike
    known = METHODS.get(method).fits
    for fit in known:
        [plain] = select([source()], [method], [fit], ["none"], {})
        [changed] = select([source()], [method], [fit], ["none"], {option: value})
        expected = f"{method} {fit} none" + (f" {option}={value}" if fit in fits else "")
        assert changed.label == expected
        scores = [candidate.method(task) for candidate in (plain, changed)]
        assert torch.equal(*scores) == (fit not in fits)
    assert fits <= set(known)


def test_an_option_counts_for_more_than_what_a_run_learned() -> None:
    trained = source("a", "protonet")
    [changed] = select([trained], [], [], [], {"temperature": 0.25})
    assert float(changed.method.log_temperature.exp()) == pytest.approx(0.25)
    assert trained.method is not None
    assert float(trained.method.log_temperature.exp()) == pytest.approx(1.0)


def moves(candidate: Candidate) -> list[float]:
    assert candidate.decision.path is not None
    found: list[float] = candidate.decision.path.transitions.tolist()
    return found


def test_structshot_counts_transitions_in_the_training_data(tmp_path: Path) -> None:
    texts = {"train": "a\tO\nb\tX\nc\tX\n\nd\tO\n", "test": "a\tX\nb\tO\n"}
    for split, text in texts.items():
        (tmp_path / f"{split}.txt").write_text(text)
    encoder, given = Identity(shape=[6]), [0.8, 0.2, 0.9, 0.1, 0.3, 0.6, 0.1]
    for own, name in ((None, None), (make_method("nnshot", feature_shape=(6,)), "nnshot")):
        with_data = Source("here", {}, encoder, "none", own, name, train_data=(f"conll:{tmp_path}", "train"))
        [found] = select([with_data], ["structshot"], [], [], {})
        assert moves(found)[:4] == [1.0, 0.0, 0.0, 1.0]
        [path] = select([with_data], ["nnshot"], [], [], {"path": True, "tau": 0.32})
        assert moves(path) == moves(found)
        [told] = select([with_data], ["structshot"], [], [], {"transitions": given})
        assert moves(told) == pytest.approx(given)
    learned = make_method("structshot", feature_shape=(6,))
    decision = make_decision(learned, {})
    decision.read_labels(open_pool(f"conll:{tmp_path}", "test"))
    run = Source("run", {}, encoder, "none", learned, "structshot", decision=decision)
    [as_learned, changed] = [
        select([run], [], [], [], options)[0] for options in ({"tau": 0.5}, {"transitions": given})
    ]
    assert moves(as_learned)[:2] == [0.0, 1.0]
    assert moves(changed) == pytest.approx(given)
    with pytest.raises(
        ConfigError,
        match=r"structshot finds its transitions in training data, and vectors comes without any here; "
        r"give them: -o transitions=",
    ):
        select([source()], ["structshot"], [], [], {"temperature": 1.0})


def test_a_path_takes_the_temperature_of_the_run_whose_vectors_it_reads() -> None:
    moves = [0.8, 0.2, 0.9, 0.1, 0.3, 0.6, 0.1]
    trained = source("a", "protonet", temperature=0.1)
    [struct] = select([trained], ["structshot"], [], [], {"transitions": moves})
    [nearest, own] = select([trained], ["nnshot", "protonet"], [], [], {})
    assert float(struct.method.log_temperature.exp()) == pytest.approx(0.1)
    assert struct.label == f"structshot point unit temperature=run's transitions={moves}"
    assert struct.settings["options"]["temperature"] == pytest.approx(0.1)
    assert float(nearest.method.log_temperature.exp()) == 1.0  # word by word no temperature counts
    assert nearest.label == "nnshot point unit"
    assert float(own.method.log_temperature.exp()) == pytest.approx(0.1)
    [chosen] = select([trained], ["structshot"], [], [], {"transitions": moves, "temperature": 0.03})
    assert float(chosen.method.log_temperature.exp()) == pytest.approx(0.03)


@pytest.mark.parametrize("transform", ["unit", "center-unit"])
def test_a_path_over_unit_vectors_wants_a_temperature(transform: str) -> None:
    message = rf"structshot decodes paths with probabilities, .* \({transform}\); .* -o temperature=0.05"
    for options in ({}, {"path": True}):
        with pytest.raises(ConfigError, match=message):
            select([source()], ["structshot"], [], [transform], options)


def test_training_data_of_a_ready_encoder(tmp_path: Path, vectors_file: Path) -> None:
    for split in ("train-partial", "dev"):
        (tmp_path / f"{split}.txt").write_text("a\tX\n")
    spec = f"conll:{tmp_path}"
    vectors = open_pool(f"vectors:{vectors_file}", "val")
    assert encoder_source("identity", vectors).train_data == (f"vectors:{vectors_file}", "train")
    assert encoder_source("identity", vectors, spec).train_data == (spec, "train-partial")
    trained = open_pool(f"vectors:{vectors_file}", "train")
    assert encoder_source("identity", trained).train_data is None  # what is reported teaches nothing
    assert encoder_source("identity", vectors, f"conll:{tmp_path}/dev.txt").train_data is None
    assert (training_split(spec), training_split(f"conll:{tmp_path}/dev.txt")) == ("train-partial", None)
