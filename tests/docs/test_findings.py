"""Every number of docs/findings.md is that of a file in results."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.docs.markdown import read
from tests.docs.test_numbers import UNEQUAL, content, signed

PAGE = " ".join(read("docs/findings.md").split())
HOME, AWAY = "val", "val_pubmed"
PROTONET, STORED = "episode centres, radii 0 (ProtoNet)", "stored centres, learned radii"
SETTINGS = ("5-way 1~2", "5-way 5~10", "10-way 1~2", "10-way 5~10")


def one(rows: Sequence[dict[str, Any]], **wanted: Any) -> dict[str, Any]:
    [row] = [row for row in rows if all(row.get(key) == value for key, value in wanted.items())]
    return row


def ablation(trained: str, temperature: str, closed_form: str, split: str, shot: Any, file: str = "ablation") -> float:
    rows = content(f"fewrel-cnn-{file}")["results"]
    task = {"split": split, "way": 5, "shot": shot}
    row = one(rows, trained=trained, temperature=temperature, closed_form=closed_form, **task)
    return float(row["accuracy"])


def compared(file: str, label: str, shot: Any, way: int = 5) -> float:
    return float(one(content(file)["results"], label=label, way=way, shot=shot)["accuracy"])


def grid(file: str, setting: str, method: str, fit: str, decided: str) -> dict[str, Any]:
    return one(content(file)["results"], setting=setting, method=method, fit=fit, decided=decided)


def reproduced(file: str, recipe: str, label: str, column: str) -> float:
    rows = [own for row in content(file)["rows"] for own in row["ours"] if own["recipe"].startswith(recipe + " ")]
    [result] = [result for own in rows for result in own["results"] if result["label"].startswith(label)]
    return float(result["columns"][column]["f1"])


def percent(*values: float, digits: int = 1) -> str:
    return " / ".join(f"{100 * value:.{digits}f}" for value in values)


def listed(values: Sequence[float], digits: int = 1) -> str:
    return ", ".join(f"{100 * value:+.{digits}f}" for value in values)


def beats_protonet() -> list[str]:
    def pair(trained: str, temperature: str, closed_form: str, split: str) -> list[float]:
        return [ablation(trained, temperature, closed_form, split, shot) for shot in (1, 5)]

    said = []
    for name, split in (("val_wiki", HOME), ("val_pubmed", AWAY)):
        published = pair(STORED, "1", "eq. 3, plain", split)
        without, learned = (pair(PROTONET, temperature, "point", split) for temperature in ("1", "learned"))
        said.append(f"{name} {percent(*published)} against {percent(*without)} and {percent(*learned)}")
    bayes = {split: pair(PROTONET, "learned", "bayes", split) for split in (HOME, AWAY)}
    said.append(f"val_wiki {percent(*bayes[HOME])}, val_pubmed {percent(*bayes[AWAY])}")
    uneven = [
        percent(ablation(PROTONET, "learned", closed_form, split, UNEQUAL))
        for split in (HOME, AWAY)
        for closed_form in ("bayes", "point")
    ]
    return [*said, f"at shots 1,1,2,5,20: {uneven[0]} against {uneven[1]}, and {uneven[2]} against {uneven[3]}"]


def miniimagenet() -> list[str]:
    run, file = "runs/miniimagenet-conv4-signed-hyperproto", "miniimagenet-signed-runs"
    texts = []
    for words, label in (
        ("ProtoNet", "protonet point unit"),
        ("spheres (`unbiased`)", "hyperproto unbiased unit"),
        ("eq. 3 (both squared)", "hyperproto paper unit"),
    ):
        texts.append(f"{words} {percent(*(compared(file, f'{run} {label}', shot) for shot in (1, 5)), digits=2)}")
    labels = ("protonet point unit", "hyperproto unbiased unit", "hyperproto paper unit")
    uneven = [f"{100 * compared(file, f'{run} {label}', UNEQUAL):.2f}" for label in labels]
    return [f"{', '.join(texts)}; at shots 1,1,2,5,20: {', '.join(uneven)}"]


def entities() -> list[str]:
    file = "fewnerd-minilm-hyperproto"
    bayes = [grid(file, s, "hyperproto", "bayes", "path, O")["less_protonet"] for s in SETTINGS]
    paper = [grid(file, s, "hyperproto", "paper", "path, O")["less_protonet"][0] for s in SETTINGS]
    said = [f"{', '.join(signed(*pair) for pair in bayes)} (5-way 1~2, 5~10; 10-way 1~2, 5~10)"]
    said.append(f"eq. 3 (both squared) {', '.join(signed(value) for value in paper)}")
    columns = [f"INTER {setting}-shot" for setting in SETTINGS]
    variants = []
    for name in ("published", "cone", "gaussian"):
        recipe = f"fewnerd-minilm:hyperproto-{name}"
        values = [reproduced("reproduce-table1-variants", recipe, "as in the paper", column) for column in columns]
        variants.append(percent(*values))
    base = [reproduced("reproduce-table1", "fewnerd-minilm:protonet", "as in the paper", c) for c in columns]
    said.append(f"{', '.join(variants)} against {percent(*base)}")
    for decided, words in (("words", ""), ("path, O", "; ")):
        rows = [
            grid(f"fewnerd-mpnet-hyperproto{'-10way' if s.startswith('10') else ''}", s, "hyperproto", "bayes", decided)
            for s in SETTINGS
        ]
        said.append(words + ", ".join(signed(*row["less_protonet"]) for row in rows))
    return said


def learned_radii() -> list[str]:
    rows = content("fewrel-cnn-ablation")["results"]
    trained = "episode centres, learned radii"
    said = []
    for name, split in (("val_wiki", HOME), ("val_pubmed", AWAY)):
        found = [
            one(rows, trained=trained, temperature="learned", closed_form="point", split=split, way=5, shot=shot)
            for shot in (1, 5)
        ]
        cells = [f"{100 * row['difference']:+.2f} ± {100 * row['difference_ci95']:.2f}" for row in found]
        said.append(f"{name} {' / '.join(cells)}")
    old = [
        grid("fewnerd-minilm-hyperproto", s, "hyperproto", "bayes", "path, O")["sentence"]["f1"]
        - grid("fewnerd-minilm-protonet", s, "hyperproto", "bayes", "path, O")["sentence"]["f1"]
        for s in SETTINGS
    ]
    again = [
        reproduced("reproduce-table1", "fewnerd-minilm:hyperproto", "Bayes fit", f"INTER {s}-shot")
        - reproduced("reproduce-table1", "fewnerd-minilm:protonet", "Bayes fit", f"INTER {s}-shot")
        for s in SETTINGS
    ]
    return [*said, f"{listed(old)} in the four settings; again: {listed(again)}"]


def precision_and_shots() -> list[str]:
    def gain(file: str, setting: str, what: str) -> float:
        own, other = (
            grid(file, setting, method, fit, "words")["sentence"][what]
            for method, fit in (("hyperproto", "bayes"), ("protonet", "point"))
        )
        return float(own - other)

    file, shots = "fewnerd-minilm-hyperproto", "fewnerd-minilm-hyperproto-shots"
    gains = {what: [gain(file, s, what) for s in ("5-way 5~10", "10-way 5~10")] for what in ("precision", "recall")}
    precision, recall = (" and ".join(map(signed, gains[what])) for what in ("precision", "recall"))
    said = [f"precision {precision}, recall {recall}"]
    large = [gain(shots, "5-way 20~40", what) for what in ("precision", "recall")]
    said.append(f"at 5-way 20~40 {signed(large[0])} and {signed(large[1])}")
    f1 = [gain(file, s, "f1") for s in ("5-way 1~2", "5-way 5~10")]
    f1 += [gain(shots, f"5-way {s}", "f1") for s in ("10~20", "15~30", "20~40")]
    return [*said, f"F1 {listed(f1)}"]


def mpnet() -> list[str]:
    own, base = "runs/fewrel-mpnet-hyperproto-published", "runs/fewrel-mpnet-protonet"
    published, protonet = f"{own} hyperproto paper none radius_distance=plain", f"{base} protonet point unit"

    def four(label: str) -> list[float]:
        files = (("fewrel-mpnet-val_wiki", 5), ("fewrel-mpnet-val_wiki-10way", 10))
        return [compared(file, label, shot, way) for file, way in files for shot in (1, 5)]

    def both(values: list[float]) -> str:
        return f"{percent(*values[:2])}, {percent(*values[2:])}"

    away = [
        percent(*(compared("fewrel-mpnet-val_pubmed", label, shot) for shot in (1, 5)))
        for label in (published, protonet)
    ]
    return [f"{both(four(published))} against {both(four(protonet))}; val_pubmed 5-way {away[0]} against {away[1]}"]


def equal_shots() -> list[str]:
    own_rows = [own for row in content("reproduce-table2")["rows"] for own in row["ours"]]
    [results] = [own["results"] for own in own_rows if own["recipe"] == "fewrel-cnn:protonet"]
    point, bayes = (result["columns"] for result in results[:2])
    columns = [f"FewRel 5-way {shot}-shot" for shot in (1, 5)]
    cnn = [bayes[column]["accuracy"] - point[column]["accuracy"] for column in columns]
    rows = [row for row in content("fewrel-minilm")["results"] if row["split"] == "val_wiki" and row["way"] == 5]
    runs = ("runs/fewrel-minilm-hyperproto hyperproto bayes unit", "runs/fewrel-minilm-protonet protonet point unit")
    own, base = ([one(rows, label=label, shot=shot)["accuracy"] for shot in (1, 5)] for label in runs)
    run, file = "runs/miniimagenet-conv4-signed-hyperproto", "miniimagenet-signed-runs"
    labels = (f"{run} hyperproto bayes unit prior_ratio=measured", f"{run} protonet point unit")
    images = [compared(file, labels[0], shot) - compared(file, labels[1], shot) for shot in (1, 5)]
    minilm = [a - b for a, b in zip(own, base, strict=True)]
    said = [f"CNN {signed(cnn[0])} and {signed(cnn[1])}", f"miniImageNet {signed(images[0])} and {signed(images[1])}"]
    return [*said, f"MiniLM {signed(minilm[0])} and {signed(minilm[1]).lstrip('+-')}"]


def stability() -> list[str]:
    rows = [own for row in content("reproduce-table2")["rows"] for own in row["ours"]]

    def deviations(recipe: str) -> tuple[str, str]:
        [found] = [own["results"][0]["columns"] for own in rows if own["recipe"] == f"fewrel-cnn:{recipe}"]
        values = [
            [100 * found[f"{data} 5-way {shot}-shot"]["sd_between_seeds"] for shot in (1, 5)]
            for data in ("FewRel", "FewRel 2.0")
        ]
        home, away = (f"{one:.1f} / {five:.1f}" for one, five in values)
        return home, away

    published, episode, base = map(deviations, ("hyperproto-published", "hyperproto", "protonet"))
    return [
        f"as published {published[0]} at home, {published[1]} on val_pubmed",
        f"centres from the episode {episode[0]}, {episode[1]}",
        f"ProtoNet {base[0]}, {base[1]}",
    ]


def rates() -> list[str]:
    found = {}
    for kind in ("cone", "sphere"):
        for group in content(f"fewrel-cnn-{kind}-rates")["groups"]:
            found[kind, group["settings"]["optim.radius.lr"]] = f"{100 * group['accuracy']:.1f}"
    cones, spheres = ([found.get((kind, rate)) for rate in (0.001, 1, 10)] for kind in ("cone", "sphere"))
    return [f"cones {cones[0]}, ", f", {cones[1]}, {cones[2]}; spheres {spheres[0]}, ", f", {spheres[2]} |"]


def figures() -> list[str]:
    def figure(name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(read(f"results/figures/{name}.json"))
        return found

    growth = figure("memory")["power_of_shots"]
    said = [f"{growth['NNShot']['all_distances']:.2f} and {growth['HyperProto']['all_distances']:.2f}"]
    said.append(f"{growth['NNShot']['kept']:.2f} and {growth['HyperProto']['kept']:.2f} (18 kB)")
    lags = {lag["lag"]: lag for lag in figure("fig6")["correlation"]["block_distance"]["lags"]}
    for lag, words in ((0, "in the same block of 50 steps"), (1, "a block later")):
        low, high = (f"{lags[lag][name]:.2f}" for name in ("low", "high"))
        said.append(f"{words} {lags[lag]['mean']:+.2f} ({low} to {high})")
    gaps = {
        (row["kind"], panel["title"]): (panel["gap"], panel["gap_over_scale"])
        for row in content("distance-gap")["rows"]
        for panel in row["panels"]
    }
    for index, words in ((0, ""), (1, "over the scale of the space ")):
        pairs = [
            f"{gaps[kind, 'HyperProto'][index]:.2f} against {gaps[kind, 'ProtoNet'][index]:.2f}"
            for kind in ("train", "test")
        ]
        said.append(f"{words}{' and '.join(pairs)}")
    said.append(f"before training {gaps['train', 'before training'][0]:.2f}")
    for run in figure("radius")["runs"]:
        found = run["with_scatter"]
        said.append(f"{found['spearman']:.2f} ({found['low']:.2f} to {found['high']:.2f}, {found['classes']} classes)")
    return said


def cost() -> list[str]:
    rows = [row for row in content("leaderboard-images")["results"] if row["track"] == "glyphs"]

    def step(name: str) -> str:
        return f"{next(row['ms_a_step'] for row in rows if row['row'] == name):.0f}"

    def episode(name: str, scored_by: str) -> str:
        own = [row["ms_an_episode"] for row in rows if (row["row"], row["scored_by"]) == (name, scored_by)]
        return f"{sum(own) / len(own):.2f}"

    heads = [episode("hyperproto", "unbiased"), episode("hyperproto", "bayes"), episode("imp", "imp")]
    return [
        f"{step('hyperproto')} against {step('imp')} ms",
        f"{heads[0]} (`unbiased`) or {heads[1]} ms (`bayes`) against {heads[2]} ms",
    ]


@pytest.mark.parametrize(
    "claims",
    [
        beats_protonet,
        miniimagenet,
        entities,
        learned_radii,
        precision_and_shots,
        mpnet,
        equal_shots,
        stability,
        rates,
        figures,
        cost,
    ],
    ids=lambda claims: claims.__name__,
)
def test_the_numbers_of_the_findings_are_those_of_the_files(claims: Callable[[], list[str]]) -> None:
    for said in claims():
        assert said in PAGE
