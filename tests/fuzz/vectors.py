"""HypersphereClassifier with hostile arrays, labels, weights and parameters, in sequences of calls."""

import copy
import pickle
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import hyperproto
from hyperproto import HypersphereClassifier
from tests.fuzz.arrays import hostile_array, hostile_labels, hostile_weights
from tests.fuzz.inputs import DIM, QUERIES, Samples
from tests.fuzz.judge import Enough, Silent, Trial, check_finite, check_probabilities
from tests.fuzz.kinds import kind
from tests.fuzz.mutations import extreme_number, extreme_value

SETTINGS: tuple[dict[str, Any], ...] = (
    {}, {}, {}, {"feature_transform": "none"}, {"feature_transform": "none"}, {"feature_transform": "center-unit"},
    {"coverage": 0.8}, {"coverage": 0.5, "class_thresholds": True, "guarantee": True},
    {"fit_mode": "unbiased"}, {"fit_mode": "paper", "feature_transform": "none"}, {"fit_mode": "point"},
    {"region": "gaussian", "fit_mode": "paper"},
    {"region": "gaussian", "fit_mode": "unbiased", "feature_transform": "none"},
    {"region": "cone", "fit_mode": "paper"}, {"region": "point", "fit_mode": "point", "squared": False},
    {"fit_mode": "unbiased", "store_support": False, "temperature": 0.5, "feature_transform": "none"},
    {"fit_mode": "paper", "radius_distance": "plain", "feature_transform": "none"}, {"squared": False},
    {"refine": True}, {"refine": False}, {"refine": True, "feature_transform": "none"}, {"unlabelled_label": "a"},
)  # fmt: skip
SKLEARN = (ValueError, TypeError)  # what scikit-learn's own checks raise
METHODS = (
    "fit", "partial_fit", "forget", "remove_class", "merge", "predict", "predict_proba", "decision_function", "measure",
    "predict_set", "novelty", "score", "diagnose", "drift", "explain", "suggest", "save", "export", "export_onnx",
)  # fmt: skip


def look_at(model: HypersphereClassifier, queries: Any, where: str) -> None:
    """Everything that a user may ask a fitted classifier; all of it is finite."""
    check_probabilities(model.predict_proba(queries), f"{where}, predict_proba")
    check_finite(model.measure(queries), f"{where}, measure")
    check_finite(model.novelty(queries), f"{where}, novelty")
    known = {*map(str, model.classes_.tolist()), "none of these", "-1", "-1.0", str(model.reject_label)}
    if not {*map(str, model.predict(queries).tolist())} <= known:
        raise Silent(f"{where}: a label that is no class")
    check_finite(model.temperature_, f"{where}, temperature_")
    check_finite(model.centers_, f"{where}, centers_")
    check_finite(model.radii_, f"{where}, radii_")


@kind("arrays", *(f"HypersphereClassifier.{name}" for name in METHODS), "HypersphereClassifier", share=200)
def arrays(random: Random, folder: Path, samples: Samples) -> Trial:
    """Fit to good or hostile rows, then call some methods with good or hostile ones."""
    settings = random.choice(SETTINGS)
    good_fit = random.random() < 0.5
    x: Any = samples.vectors if good_fit else hostile_array(random, 6, DIM)
    y = samples.labels if good_fit else hostile_labels(random, 6)
    weights = None if good_fit else hostile_weights(random, 6)
    queries = hostile_array(random, 3, DIM) if good_fit or random.random() < 0.3 else QUERIES
    calls = [random.choice(METHODS) for _ in range(random.randrange(4))]

    def run() -> None:
        model = HypersphereClassifier(**settings).fit(x, y, weights)
        plain = queries if model.n_features_in_ == DIM else np.ones((1, model.n_features_in_))
        for name in calls:
            call(random, model, name, folder, samples)
        look_at(model, plain, "hostile rows")
        copy.copy(model), pickle.loads(pickle.dumps(model)), repr(model)

    return Trial(run, SKLEARN, may_write=("model", "model.onnx", "exported"), words=f"{settings} {['fit', *calls]}")


def call(random: Random, model: HypersphereClassifier, name: str, folder: Path, samples: Samples) -> None:
    """Call a method with hostile arguments; where it refuses them, the model must answer as before."""
    before = model.predict_proba(np.ones((1, model.n_features_in_)))
    try:
        _call(random, model, name, folder, samples)
    except (hyperproto.HyperProtoError, *SKLEARN):
        after = model.predict_proba(np.ones((1, model.n_features_in_)))
        if before.shape != after.shape or not np.array_equal(before, after):
            raise Silent(f"{name}: refused, but the model changed") from None
        raise


def _call(random: Random, model: HypersphereClassifier, name: str, folder: Path, samples: Samples) -> None:
    rows = random.choice((2, 6))
    x, y = hostile_array(random, rows, model.n_features_in_), hostile_labels(random, rows)
    weights = hostile_weights(random, rows)
    others = model, copy.deepcopy(model), HypersphereClassifier(), HypersphereClassifier().fit(np.eye(2), [0, 1])
    labels = (*model.classes_.tolist(), "nobody", None, 3, [], np.nan, {})
    calls: dict[str, Callable[[], Any]] = {
        "fit": lambda: copy.deepcopy(model).fit(x, y, weights),
        "partial_fit": lambda: model.partial_fit(x, y, sample_weight=weights),
        "score": lambda: model.score(x, y, weights),
        "remove_class": lambda: model.remove_class(random.choice(labels)),
        "merge": lambda: model.merge(random.choice(others)),
        "diagnose": lambda: model.diagnose().to_dict(),
        "drift": lambda: model.drift(x, random.choice((None, x))).to_dict(),
        "explain": lambda: [each.to_dict() for each in model.explain(x)],
        "suggest": lambda: model.suggest(x, int(random.choice((1, 5, 0, -1)))),
        "save": lambda: _saved_and_loaded(model, folder / "model"),
        "export": lambda: model.export(folder / "exported", int8=random.random() < 0.2),
        "export_onnx": lambda: model.export_onnx(folder / "model.onnx"),
        "forget": lambda: model.forget(x, y, weights),
    }
    if name == "forget" and random.random() < 0.5:
        model.forget(samples.vectors[:1], samples.labels[:1])
    else:
        calls.get(name, lambda: getattr(model, name)(x))()


def _saved_and_loaded(model: HypersphereClassifier, folder: Path) -> HypersphereClassifier:
    model.save(folder)
    return HypersphereClassifier.load(folder)


@kind("evidence", *(f"HypersphereClassifier.{name}" for name in ("fit", "partial_fit", "forget")), share=60)
def evidence(random: Random, folder: Path, samples: Samples) -> Trial:
    """Names and unlabelled rows, good and hostile, with and without examples, refined or not."""
    refine: Any = random.choice((False, True))
    classes = [*dict.fromkeys(map(str, samples.labels)), "new", 0, None, np.nan, "", extreme_value(random)]
    rows = hostile_array(random, 4, DIM) if random.random() < 0.5 else QUERIES
    names: Any = {}
    for label in random.sample(classes, random.randrange(4)):
        with suppress(TypeError):  # what cannot be a key
            names[label] = random.choice((np.ones(DIM), 1e4 * np.ones(DIM), hostile_array(random, 1, DIM), "a text"))
    names = random.choice((None, names, names, [np.ones(DIM)], 3))
    unlabelled = random.choice((None, rows, rows, hostile_array(random, 4, DIM)))
    transform = random.choice(("unit", "none", "center-unit"))
    alone = random.random() < 0.2

    def run() -> None:
        model = HypersphereClassifier(feature_transform=transform, refine=refine)
        examples = (None, None) if alone else (samples.vectors, samples.labels)
        model.fit(*examples, names=names, unlabelled=unlabelled)
        look_at(model, QUERIES, "evidence")
        model.partial_fit(samples.vectors[:2], samples.labels[:2], unlabelled=unlabelled)
        if unlabelled is not None:
            model.forget(unlabelled, [None] * len(unlabelled))
        look_at(model, QUERIES, "evidence, changed")

    return Trial(run, SKLEARN, words=f"refine={refine} {transform}, names {names!r:.60}")


@kind("scales", "HypersphereClassifier.fit", "HypersphereClassifier.predict", share=60)
def scales(random: Random, folder: Path, samples: Samples) -> Trial:
    """Scale vectors by a power of two, which scales all distances alike: the same answers, or an error."""
    settings: dict[str, Any] = random.choice(
        (
            {},
            {"fit_mode": "unbiased"},
            {"fit_mode": "paper"},
            {"region": "cone", "fit_mode": "paper"},
            {"feature_transform": "none", "fit_mode": "point"},
            {"feature_transform": "none", "fit_mode": "paper"},
            {"feature_transform": "none"},
        )
    )
    dtype = random.choice((np.float32, np.float64))
    power = random.choice((-1030, -700, -520, -140, -70, 60, 63, 64, 100, 120, 500, 515, 520, 800, 1015))
    if dtype is np.float32 and abs(power) > 120:
        power = random.choice((-120, 60, 64, 100, 120))
    unscaled = samples.vectors.astype(dtype)
    # What the smallest numbers lose in rounding is no defect: only whole powers that keep all bits are compared.
    scaled, queries = np.ldexp(unscaled, power), np.ldexp(QUERIES.astype(dtype), power)
    exact = np.array_equal(np.ldexp(scaled, -power), unscaled) and bool(np.isfinite(scaled).all())

    def run() -> None:
        if not exact:
            raise Enough
        expected = HypersphereClassifier(**settings).fit(unscaled, samples.labels).predict(QUERIES.astype(dtype))
        model = HypersphereClassifier(**settings).fit(scaled, samples.labels)
        found = model.predict(queries)
        check_probabilities(model.predict_proba(queries), f"vectors of 2**{power}")
        if found.tolist() != expected.tolist():
            raise Silent(f"vectors scaled by a power of two get other labels ({settings}, {np.dtype(dtype)})")

    return Trial(run, SKLEARN, words=f"{settings} 2**{power} {np.dtype(dtype)}")


@kind("offsets", "HypersphereClassifier.fit", "HypersphereClassifier.predict", share=20)
def offsets(random: Random, folder: Path, samples: Samples) -> Trial:
    """Without a transform, spheres and Gaussians do not know where the origin is: an offset changes no label."""
    settings: dict[str, Any] = random.choice(
        ({}, {"fit_mode": "unbiased"}, {"fit_mode": "point"}, {"region": "gaussian", "fit_mode": "unbiased"})
    )
    offset = 2.0 ** random.choice((8, 12, 16, 20, 23))
    # Multiples of 2**-10, so that adding the offset loses nothing.
    x, queries = np.round(samples.vectors * 1024) / 1024, np.round(QUERIES * 1024) / 1024

    def run() -> None:
        expected = HypersphereClassifier(feature_transform="none", **settings).fit(x, samples.labels)
        moved = HypersphereClassifier(feature_transform="none", **settings).fit(x + offset, samples.labels)
        gap = abs(moved.predict_proba(queries + offset) - expected.predict_proba(queries)).max()
        if not gap < 1e-3:
            raise Silent(f"an offset of 2**20 or so moves probabilities ({settings})")

    return Trial(run, SKLEARN, words=f"{settings} + {offset}")


@kind("parameters", "HypersphereClassifier", share=40)
def parameters(random: Random, folder: Path, samples: Samples) -> Trial:
    """Parameters of the wrong type and value, also set after the fit."""
    names = sorted(HypersphereClassifier().get_params())
    wrong = {random.choice(names): _wrong(random) for _ in range(random.choice((1, 1, 2)))}
    later = random.random() < 0.4

    def run() -> None:
        model = HypersphereClassifier(**({} if later else wrong)).fit(samples.vectors, samples.labels)
        if later:
            model.set_params(**wrong)
        look_at(model, QUERIES, f"parameters {sorted(wrong)}")

    return Trial(run, SKLEARN, words=f"{wrong!r}"[:200])


def _wrong(random: Random) -> Any:
    return random.choice(
        (
            extreme_value(random),
            extreme_number(random),
            "auto",
            "bayes",
            "none",
            "gaussian",
            "cone",
            0.5,
            None,
            [],
            np.float32(0.5),
            np.nan,
            b"unit",
            {"a": 1},
            1e-320,
            1e308,
        )
    )
