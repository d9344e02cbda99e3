"""Numbers and marks in README, docs and result pages are those of the files that they cite."""

import json
import re
from typing import Any

import pytest

from hyperproto.problems.base import Difference, Mark, best_marks, best_of_draws, paired_difference
from research import leaderboard
from research.intents.page import accuracy_cells, marked
from research.leaderboard_page import page
from tests.docs.markdown import read, result, section, tables

UNEQUAL = [1, 1, 2, 5, 20]


def content(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(result(f"{name}.json"))
    return found


# README, Results: the files of each row, and in each the labels of the four columns (of several, the best).
FILES = {
    "glyphs": ["demo"],
    "miniImageNet": ["miniimagenet-fits"],
    "CUB": ["cub-fits"],
    "FewRel, val_wiki": ["fewrel-minilm", "fewrel-minilm-baselines"],
    "FewRel, val_pubmed": ["fewrel-minilm", "fewrel-minilm-baselines"],
}
UNIT = [["protonet point unit"], ["cosine point unit", "cosine point center-unit"], ["logistic point unit C=1.0"]]
LABELS = {
    "glyphs": [
        ["protonet: protonet point none"],
        ["protonet: cosine point none"],
        ["protonet: logistic point unit C=10.0"],
        ["protonet: hyperproto bayes none prior_ratio=measured"],
    ],
    "miniImageNet": [*UNIT, ["hyperproto bayes unit prior_ratio=8.0"]],
    "CUB": [*UNIT, ["hyperproto bayes unit prior_ratio=8.0"]],
    "FewRel": [
        ["runs/fewrel-minilm-protonet protonet point unit"],
        *UNIT[1:],
        ["runs/fewrel-minilm-hyperproto hyperproto bayes unit"],
    ],
}
INTENTS = ["nearest centroid", "cosine prototypes", "logistic regression, balanced", "hypersphere sphere bayes"]


def of_draws(shots: str) -> tuple[list[float], list[float], list[Mark]]:
    """Mean, interval and mark of each column for CLINC150, whose file has every draw."""
    rows = content("intents-clinc150")["results"]
    keyed = {(r["method"], r["shots"]): r["accuracy"] for r in rows if r["transform"] == "unit"}
    found = [keyed[name, shots] for name in INTENTS]
    marks = best_of_draws([cell["draws"] for cell in found])
    return [cell["mean"] for cell in found], [cell["ci95"] for cell in found], marks


def of_episodes(data: str, shot: Any) -> tuple[list[float], list[float], list[Mark]]:
    """Mean, interval and mark of each column, by the paired differences of the file; of two files there are none."""
    split = data.partition(", ")[2] or "test"
    found = [content(file) for file in FILES[data]]

    def here(row: dict[str, Any]) -> bool:
        return bool(row.get("split", split) == split and row.get("way", 5) == 5 and row["shot"] == shot)

    rows = {row["label"]: row for file in found for row in file["results"] if here(row)}
    chosen = [
        max((rows[label] for label in labels if label in rows), key=lambda row: float(row["accuracy"]))
        for labels in LABELS[data.partition(",")[0]]
    ]
    pairs: dict[tuple[str, str], Difference] = {}
    for file in found:
        for row in file.get("comparisons", []):
            if here(row):
                pairs[row["a"], row["b"]] = row["difference"], row["ci95"]
                pairs[row["b"], row["a"]] = -row["difference"], row["ci95"]
    labels = [row["label"] for row in chosen]
    means = [row["accuracy"] for row in chosen]
    return means, [row["ci95"] for row in chosen], best_marks(means, lambda i, j: pairs.get((labels[i], labels[j])))


def test_the_results_of_the_readme_are_those_of_the_files() -> None:
    [table] = tables(section("README.md", "Results"))
    assert len(table) == 7
    marks = []
    for name, *cells, interval in table[1:]:
        data = name.partition("]")[0].removeprefix("[")
        found = [
            of_draws("5" if shot == 5 else "unequal") if data == "CLINC150" else of_episodes(data, shot)
            for shot in (5, UNEQUAL)
        ]
        columns = [
            [marked(f"{100 * mean:.1f}", mark) for mean, mark in zip(means, own, strict=True)]
            for means, _, own in found
        ]
        assert cells == [" / ".join(pair) for pair in zip(*columns, strict=True)], data
        halves = [half for _, own, _ in found for half in own]
        assert float(interval) == pytest.approx(100 * max(halves), abs=0.05), data
        marks += [mark for _, _, own in found for mark in own]
    assert {"best", "tied", ""} <= set(marks)


KNOWLEDGE = [  # what the files call the rows of the README
    *("cosine prototypes", "logistic regression", "plain"),
    *("logistic regression, name as example", "names", "self-training", "unlabelled", "unlabelled, refined"),
    *("self-training, name as example", "soft k-means prototypes, name as example"),
    *("names + unlabelled", "names + unlabelled, refined"),
]
SETS = ("hwu64", "banking77", "clinc150")
OURS, REFINED, RIVAL = "names + unlabelled", "names + unlabelled, refined", "self-training, name as example"


def test_what_names_and_texts_bring_is_what_the_files_say() -> None:
    [[head, *table], _] = tables(section("README.md", "Names and unlabelled texts"))
    for place, name in enumerate(SETS, start=2):
        assert head[place].endswith(f"][{name}]")
        found = content(f"intents-{name}-knowledge")
        assert [row[place] for row in table] == accuracy_cells(found, KNOWLEDGE, ("1", "5", "unequal")), name
        rows = {(row["method"], row["shots"]): row["accuracy"] for row in found["results"]}
        assert len({len(rows[method, shot]["draws"]) for method in KNOWLEDGE for shot in ("1", "5", "unequal")}) == 1


def draws(name: str, method: str, shot: str) -> Any:
    import numpy as np

    rows = content(f"intents-{name}")["results"]
    [row] = [row for row in rows if (row["method"], row["shots"]) == (method, shot)]
    return np.array(row["accuracy"]["draws"])


def signed(mean: float, half: float | None = None) -> str:
    return f"{100 * mean:+.1f}" + ("" if half is None else f" ± {100 * half:.1f}")


def against(name: str, method: str, other: str, shot: str) -> tuple[float, float]:
    a, b = draws(name, method, shot), draws(name, other, shot)
    common = min(len(a), len(b))
    return paired_difference(a[:common], b[:common])


def test_the_sentences_of_the_readme_are_those_of_the_files() -> None:
    part = section("README.md", "Names and unlabelled texts")
    cases = [(method, shot) for method in (OURS, REFINED) for shot in ("1", "5", "unequal")]
    for row, name in zip(tables(part)[1][1:], SETS, strict=True):
        assert row[1:] == [signed(*against(f"{name}-knowledge", method, RIVAL, shot)) for method, shot in cases]
    text = " ".join(part.split())
    gains = [against(f"{name}-knowledge", OURS, "plain", "1")[0] for name in SETS]
    assert f"give {100 * min(gains):.0f} to {100 * max(gains):.0f} points more" in text
    fewer = [
        draws(f"{name}-knowledge", "plain", "5").mean() - draws(f"{name}-knowledge", OURS, "1").mean() for name in SETS
    ]
    assert f"{100 * min(fewer):.0f} to {100 * max(fewer):.0f} fewer than five examples" in text


EVERY = {  # rows of the table in results/intents/estimators.md, by what the files call them
    "`bayes`": "plain",
    "`bayes`, names": "names",
    "`bayes`, texts": "unlabelled",
    "`bayes`, both": "names + unlabelled",
    "`refine=True`, texts": "unlabelled, refined",
    "`refine=True`, both": "names + unlabelled, refined",
    "`bayes`, name as an example": "name as example",
    "`bayes`, name as an example, texts": "name as example + unlabelled",
    **{
        f"{name}{end}": f"{name}{end.replace('an ', '')}"
        for end in ("", ", name as an example")
        for name in (
            *("cosine prototypes", "logistic regression", "soft k-means prototypes", "self-training"),
            "label spreading",
        )
    },
}
RIVALS = (
    *("`bayes`", "`refine=True`, both", "logistic regression, name as an example"),
    *("soft k-means prototypes, name as an example", "`bayes`, name as an example, texts"),
    "self-training, name as an example",
)


def rows_of_estimators() -> list[str]:
    """The two tables of names and unlabelled texts in results/intents/estimators.md, line by line."""
    shots = ("0", "1", "2", "5", "10", "20", "unequal")
    files = [content(f"intents-{name}-knowledge") for name in SETS]
    cells = [accuracy_cells(file, list(EVERY.values()), shots) for file in files]
    lines = [f"| {' | '.join(row)} |" for row in zip(EVERY, *cells, strict=True)]
    for rival in RIVALS:
        own = [
            " / ".join(signed(*against(f"{name}-knowledge", OURS, EVERY[rival], shot)) for shot in shots[1:])
            for name in SETS
        ]
        lines.append(f"| {rival} | {' | '.join(own)} |")
    return lines


def test_the_tables_of_names_and_texts_are_those_of_the_files() -> None:
    page = section("results/intents/estimators.md", "Names and unlabelled texts")
    for line in rows_of_estimators():
        assert line in page


@pytest.mark.parametrize("name", ["relations", "images", "entities"])
def test_pages_without_paired_marks_mark_nothing(name: str) -> None:
    rows = [line for line in result(f"{name}.md").splitlines() if line.startswith("|")]
    assert [line for line in rows if re.search(r"\*\*\d", line)] == []


POOLS = {  # endings of files
    "absent": "absent", "unequal": "unequal", "out-of-class": "strangers", "few-known": "few-known",
    "by-name": "by-name",
}  # fmt: skip
DATA = {
    "HWU64": "hwu64",
    "BANKING77": "banking77",
    "CLINC150": "clinc150",
    "FewRel val_wiki": "fewrel-val_wiki",
    "FewRel val_pubmed": "fewrel-val_pubmed",
}
SHOTS = ("1", "5", "10", "unequal")


def pool_differences() -> dict[tuple[str, str], list[tuple[float, float] | None]]:
    """Return the gain by unlabelled texts for each pool and data set: without and with names, at each kind of shots."""
    found: dict[tuple[str, str], list[tuple[float, float] | None]] = {}
    for pool, ending in POOLS.items():
        for title, name in DATA.items():
            file = f"{name}-{ending}"
            own: list[tuple[float, float] | None] = [None] * 4
            if pool != "by-name":
                own = [against(file, "unlabelled", "plain", shot) for shot in SHOTS]
            found[pool, title] = own + [against(file, OURS, "names", shot) for shot in SHOTS]
    return found


def test_what_bad_pools_cost_is_what_the_files_say() -> None:
    found = pool_differences()
    text = read("results/intents/estimators.md").partition("### Unlabelled texts that lack classes or hold others")[2]
    for (pool, title), values in found.items():
        cells = " | ".join("-" if value is None else signed(*value).replace("+-", "-") for value in values)
        assert f"| {pool} | {title} | {cells} |".replace("-0.0", "+0.0") in text.replace("-0.0", "+0.0"), (pool, title)
    named = [value[0] for values in found.values() for value in values[4:] if value is not None]
    alone = [values[0][0] for values in found.values() if values[0] is not None]  # one shot, without names
    others = [value[0] for values in found.values() for value in values[1:4] if value is not None]
    many = sum(value < -0.01 for value in alone)
    for document in ("README.md", "results/intents/estimators.md"):
        said = " ".join(read(document).split())
        assert f"up to {-100 * min(alone):.1f} points" in said
        assert f"more than 1.0 in {many} of {len(alone)} cases" in said
        assert f"at most {-100 * min(named):.1f} with names" in said
        assert f"at most {-100 * min(others):.1f} without names from five shots on" in said
    for document in ("README.md", "docs/estimators.md"):  # measured by others, on sets that played no part
        assert "played no part" in " ".join(read(document).split())


@pytest.mark.parametrize("study", ["relations", "images"])
def test_the_leaderboards_are_those_of_their_files(study: str) -> None:
    found = content(f"leaderboard-{study}")
    own = leaderboard.STUDIES[study]
    facts = {key: found[key] for key in ("episodes", "query", "seed")}
    titles = {name: track.title for name, track in own.tracks.items()}
    text = page(found["results"], found["command"], facts, title=own.title, titles=titles, chosen_on=own.chosen_on)
    assert result(f"leaderboard-{study}.md") == text


def test_the_weight_of_proto_adv_is_the_best_on_semeval_and_its_game_is_open() -> None:
    rows = content("proto-adv-choices")["results"]
    best = max(rows, key=lambda row: float(row["accuracy"]))
    assert (best["discriminator"], best["adversary_weight"]) == ("sgd 0.1", 1)
    assert 0.5 <= best["discriminator_accuracy"] < 0.65
    said = " ".join(read("docs/relations.md").split())
    for split, words in (("val_semeval", "on SemEval"), ("val_pubmed", "(five) on val_pubmed")):
        pairs = {row["shot"]: (-row["difference"], row["ci95"]) for row in content(f"proto-adv-{split}")["comparisons"]}
        assert f"{signed(*pairs[5])} {words}" in said


def test_the_released_forms_stand_beside_reconstructions() -> None:
    relations = {(row["track"], row["row"]) for row in content("leaderboard-relations")["results"]}
    assert {("cnn", "metanet"), ("cnn", "metanet-conv"), ("minilm", "gnn")} <= relations
    images = {
        row["row"]: row for row in content("leaderboard-images")["results"] if row["column"] == "test 5-way 1-shot"
    }
    assert images["maml-5way-1shot"]["accuracy"] > images["maml-5way"]["accuracy"] + 0.05
    at_five = [r for r in content("leaderboard-relations")["results"] if r["column"] == "val 5-way 5-shot"]
    assert [r["accuracy"] > 0.6 for r in at_five if (r["track"], r["row"]) == ("minilm", "gnn")] == [True]
