"""Methods that use examples without a label at evaluation, against naive loops and scikit-learn."""

from dataclasses import replace
from math import exp
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier
from torch import Tensor
from torch.nn.functional import normalize

from hyperproto.errors import ConfigError
from hyperproto.methods import METHODS, PAD, Method, Task, label_propagation, make_method
from hyperproto.methods.label_propagation import LabelPropagation
from hyperproto.methods.self_training import SelfTraining
from hyperproto.methods.soft_kmeans import SoftKMeans
from hyperproto.regions import Evidence
from hyperproto.testing import check_method

REFINES: dict[str, tuple[str, dict[str, Any]]] = {
    "bd-cspn": ("cosine", {}),
    "label-propagation": ("nearest", {}),
    "self-training": ("logistic", {"C": 10.0}),
    "soft-kmeans": ("protonet", {}),
}
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("bd-cspn", {}),
    ("bd-cspn", {"top": 2, "scale": 3.0}),
    ("label-propagation", {"neighbours": 5}),
    ("label-propagation", {"neighbours": 4, "symmetric": False, "alpha": 0.8}),
    ("self-training", {"threshold": 0.5}),
    ("soft-kmeans", {"scale": 2.0}),
    ("soft-kmeans", {"scale": 2.0, "steps": 3, "squared": False}),
    ("soft-kmeans", {"scale": 2.0, "distractors": True, "radius": 1.5}),
]


def build(name: str, dim: int = 6, **options: Any) -> Method:
    return make_method(name, feature_shape=(dim,), **options).eval()


def blobs(
    counts: tuple[int, ...] = (3, 1, 2),
    each: int = 7,
    dim: int = 6,
    batch: int = 2,
    seed: int = 0,
    noise: float = 0.4,
    pads: int = 0,
    unit: bool = True,
) -> Task:
    """Round classes about random directions, with `each` unlabelled rows and 4 queries of every class."""
    random = torch.Generator().manual_seed(seed)
    way = len(counts)
    means = normalize(torch.randn(batch, way, dim, generator=random), dim=-1)

    def draw(labels: Tensor) -> Tensor:
        x = means[:, labels] + noise * torch.randn(batch, len(labels), dim, generator=random)
        return normalize(x, dim=-1) if unit else x

    labels, query_y = (torch.arange(way).repeat_interleave(torch.tensor(n)) for n in (counts, [4] * way))
    unlabelled = draw(torch.arange(way).repeat(each))
    support, support_y = draw(labels), labels.expand(batch, -1)
    if pads:
        support = torch.cat([support, torch.full((batch, pads, dim), 9.0)], 1)
        support_y = torch.cat([support_y, torch.full((batch, pads), PAD)], 1)
    offsets = torch.arange(len(query_y) + 1).expand(batch, -1)
    classes = torch.arange(way).expand(batch, -1)
    return Task(
        support,
        support_y,
        draw(query_y),
        query_y.expand(batch, -1),
        classes,
        offsets,
        evidence=Evidence(unlabelled=unlabelled),
    )


def own(task: Task, b: int, n: int) -> list[Tensor]:
    """The support of a class."""
    return [x for x, y in zip(task.support[b], task.support_y[b], strict=True) if y == n]


def rows_of(task: Task, b: int) -> Tensor:
    assert task.unlabelled is not None
    return task.unlabelled[b]


def same_up_to_a_term(found: Tensor, expected: Tensor) -> None:
    """Scores agree but for what all classes share."""
    torch.testing.assert_close(found - found[..., :1], expected - expected[..., :1], rtol=1e-3, atol=1e-3)


def naive_soft_kmeans(task: Task, scale: float, steps: int, radius: float | None) -> Tensor:
    scores = torch.empty(*task.query.shape[:2], task.way)
    for b in range(len(scores)):
        rows = rows_of(task, b)
        centers = [torch.stack(own(task, b, n)).mean(0) for n in range(task.way)]
        for _ in range(steps):
            total = [torch.stack(own(task, b, n)).sum(0) for n in range(task.way)]
            size = [float(len(own(task, b, n))) for n in range(task.way)]
            for u in rows:
                each = [exp(-scale * float(((u - c) ** 2).sum())) for c in centers]
                other = 0.0
                if radius is not None:
                    other = exp(-scale * float(((u - rows.mean(0)) ** 2).sum()) / radius**2) / radius
                for n, share in enumerate(each):
                    total[n] = total[n] + share / (sum(each) + other) * u
                    size[n] += share / (sum(each) + other)
            centers = [t / s for t, s in zip(total, size, strict=True)]
        for q, query in enumerate(task.query[b]):
            scores[b, q] = torch.stack([-((query - c) ** 2).sum() for c in centers])
    return scores


@pytest.mark.parametrize("pads", [0, 2])
@pytest.mark.parametrize(
    ("steps", "options", "radius"),
    [
        (1, {}, None),
        (3, {}, None),
        (1, {"distractors": True, "radius": 1.0}, 1.0),
        (2, {"distractors": True, "radius": 0.7}, 0.7),
    ],
)
def test_soft_kmeans_is_its_formula(steps: int, options: dict[str, Any], radius: float | None, pads: int) -> None:
    task = blobs(pads=pads, unit=False)
    found = build("soft-kmeans", scale=3.0, steps=steps, **options)(task)
    same_up_to_a_term(found, naive_soft_kmeans(task, 3.0, steps, radius))


def test_soft_kmeans_leaves_distractors_out() -> None:
    """Rows between two classes that are nearer to the mean of all rows than to a class move nothing."""
    support = torch.tensor([[[-2.0, 0.0], [2.0, 0.0]]])
    rows = torch.tensor([[[-2.0, 0.5], [2.0, -0.5], [0.1, 3.0], [-0.1, -3.0]]])
    query = torch.tensor([[[-1.9, 0.2]]])
    y = torch.arange(2)[None]
    task = Task(support, y, query, None, y, torch.arange(2)[None], evidence=Evidence(unlabelled=rows))

    def centre(**options: Any) -> Tensor:
        method = build("soft-kmeans", dim=2, scale=5.0, **options)
        assert isinstance(method, SoftKMeans)
        return method._means(task.centred())[0, 0]

    torch.testing.assert_close(centre(distractors=True, radius=1.0), torch.tensor([-2.0, 0.25]), rtol=0.02, atol=0.02)
    assert abs(float(centre()[1])) > 0.5


def naive_bd_cspn(task: Task, scale: float, top: int) -> Tensor:
    scores = torch.empty(*task.query.shape[:2], task.way)
    for b in range(len(scores)):
        support = [[x / x.norm() for x in own(task, b, n)] for n in range(task.way)]
        prototypes = [torch.stack(each).mean(0) for each in support]
        rows = [u / u.norm() for u in rows_of(task, b)]
        shift = torch.stack(prototypes).mean(0) - torch.stack(rows).mean(0)
        moved = [u + shift for u in rows]

        def cosine(a: Tensor, c: Tensor) -> float:
            return float(torch.dot(a, c) / (a.norm() * c.norm()))

        guess = [int(np.argmax([cosine(u, p) for p in prototypes])) for u in moved]
        rectified = []
        for n, prototype in enumerate(prototypes):
            mine = sorted((u for u, g in zip(moved, guess, strict=True) if g == n), key=lambda u: -cosine(u, prototype))
            joined = support[n] + mine[:top]
            weights = np.array([exp(scale * cosine(x, prototype)) for x in joined])
            rectified.append(sum(float(w) * x for w, x in zip(weights / weights.sum(), joined, strict=True)))
        for q, query in enumerate(task.query[b]):
            scores[b, q] = torch.tensor([cosine(query / query.norm() + shift, p) for p in rectified])
    return scores


@pytest.mark.parametrize("top", [2, 8, 100])
@pytest.mark.parametrize("pads", [0, 2])
def test_bd_cspn_is_its_formula(top: int, pads: int) -> None:
    task = blobs(counts=(3, 1, 2, 2), noise=0.6, pads=pads, unit=False)
    found = build("bd-cspn", top=top, scale=7.0)(task)
    torch.testing.assert_close(found, naive_bd_cspn(task, 7.0, top), rtol=1e-4, atol=1e-4)


def test_bd_cspn_has_the_constants_of_the_paper() -> None:
    task = blobs(each=20)
    torch.testing.assert_close(build("bd-cspn")(task), build("bd-cspn", scale=10.0, top=8)(task))


@pytest.mark.parametrize(
    ("threshold", "rounds", "expected"), [(0.7, 1, {0, 1}), (0.75, 3, {0, 1, 2, 3}), (0.9, 10, {0}), (0.0, 2, {1})]
)
@pytest.mark.parametrize("dim", [6, 60])  # more rows than coordinates, and fewer
def test_self_training_takes_the_labels_that_scikit_learn_takes(
    threshold: float, rounds: int, expected: set[int], dim: int
) -> None:
    task = blobs(counts=(3, 1, 2), each=12, dim=dim, noise=1.2 / dim**0.5, pads=2, seed=3)
    method = build("self-training", dim, threshold=threshold, rounds=rounds, C=5.0)
    assert isinstance(method, SelfTraining)
    found = method.labelled(task)
    probabilities = method(task).softmax(-1)
    seen = set()
    for b in range(2):
        real = task.support_y[b] >= 0
        rows = rows_of(task, b)
        x = torch.cat([task.support[b][real], rows]).numpy().astype(float)
        y = np.concatenate([task.support_y[b][real].numpy(), np.full(len(rows), -1)])
        base = LogisticRegression(C=5.0, class_weight="balanced", tol=1e-8, max_iter=10_000)
        model = SelfTrainingClassifier(base, threshold=threshold, max_iter=rounds).fit(x, y)
        np.testing.assert_array_equal(found.round[b], np.maximum(model.labeled_iter_[len(x) - len(rows) :], 0))
        np.testing.assert_array_equal(found.label[b], model.transduction_[len(x) - len(rows) :])
        theirs = model.predict_proba(task.query[b].numpy().astype(float))
        assert np.abs(probabilities[b].numpy() - theirs).max() < 0.02
        seen |= set(found.round[b].tolist())
    assert seen >= expected


def test_self_training_stops_where_nothing_is_sure() -> None:
    task = blobs()
    method = build("self-training", threshold=0.999, C=0.1)
    assert isinstance(method, SelfTraining)
    assert (method.labelled(task).label == -1).all()
    torch.testing.assert_close(method(task), build("logistic", C=0.1)(task))


def naive_graph(rows: Tensor, k: int, symmetric: bool) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Who is among whose nearest, itself counted and left out."""
    x = rows.double()
    distance = ((x[:, None] - x[None]) ** 2).sum(-1)
    graph = np.zeros((len(x), len(x)))
    for i, row in enumerate(distance):
        others = sorted((j for j in range(len(x)) if j != i), key=lambda j: float(row[j]))
        graph[i, others[: k - 1]] = 1
    return np.maximum(graph, graph.T) if symmetric else graph


@pytest.mark.parametrize("pads", [0, 2])
@pytest.mark.parametrize(
    ("symmetric", "k", "alpha"), [(False, 4, 0.2), (False, 6, 0.7), (True, 4, 0.2), (True, 6, 0.9)]
)
def test_label_propagation_is_scikit_learns(symmetric: bool, k: int, alpha: float, pads: int) -> None:
    task = blobs(counts=(3, 1, 2), each=10, noise=0.5, pads=pads, unit=False)
    method = build("label-propagation", neighbours=k, alpha=alpha, symmetric=symmetric)
    assert isinstance(method, LabelPropagation)
    found, scores = method.shares(task), method(task)
    for b in range(2):
        real = task.support_y[b] >= 0
        rows = rows_of(task, b)
        x = torch.cat([task.support[b][real], rows]).double()
        y = np.concatenate([task.support_y[b][real].numpy(), np.full(len(rows), -1)])

        def kernel(a: Any, c: Any, x: Tensor = x) -> Any:
            if len(c) == len(x):
                return naive_graph(x, k, True)
            near = torch.cdist(torch.from_numpy(c), torch.from_numpy(a)).argsort(-1)[:, :k]  # (Q, k)
            return torch.zeros(len(c), len(a)).scatter(1, near, 1.0).T.double().numpy()

        options = {"alpha": alpha, "max_iter": 2000, "tol": 1e-12}
        model = LabelSpreading(kernel=kernel if symmetric else "knn", n_neighbors=k, **options).fit(x.numpy(), y)
        theirs = model.predict_proba(task.query[b].double().numpy())
        np.testing.assert_allclose(found[b], theirs, atol=1e-6)
        np.testing.assert_allclose(scores[b].exp(), theirs, atol=1e-5)


@pytest.mark.parametrize("symmetric", [False, True])
def test_labels_spread_to_the_closed_form(symmetric: bool) -> None:
    task = blobs(counts=(2, 1, 2), each=8, batch=1, unit=False)
    x = torch.cat([task.support[0], rows_of(task, 0)]).double()
    graph = torch.from_numpy(naive_graph(x, 5, symmetric))
    degree = graph.sum(0).clamp(min=1).sqrt()
    given = torch.zeros(len(x), 3).double()
    given[:5] = torch.eye(3).double()[task.support_y[0]]
    spread = torch.linalg.inv(torch.eye(len(x)).double() - 0.6 * graph / degree / degree[:, None]) @ given
    spread = spread / spread.sum(-1, keepdim=True)
    near = torch.cdist(task.query[0].double(), x).argsort(-1)[:, :5]
    method = build("label-propagation", neighbours=5, alpha=0.6, symmetric=symmetric)
    assert isinstance(method, LabelPropagation)
    torch.testing.assert_close(method.shares(task)[0], spread[near].mean(1), rtol=1e-6, atol=1e-9)


def test_where_no_label_reaches_the_nearest_example_decides() -> None:
    """Two far groups of rows, one without a label: its queries go to the nearest support example."""
    support = torch.tensor([[[0.0], [1.0]]])
    rows = torch.tensor([[[0.1], [0.2], [0.9], [1.1], [50.0], [50.1], [50.2], [50.3]]])
    y = torch.arange(2)[None]
    query = torch.tensor([[[0.15], [1.05], [50.15]]])
    task = Task(support, y, query, None, y, torch.arange(4)[None], evidence=Evidence(unlabelled=rows))
    method = build("label-propagation", dim=1, neighbours=3)
    assert isinstance(method, LabelPropagation)
    assert (method.shares(task)[0, 2] == 0).all()
    found = method(task)[0]
    assert found.isfinite().all()
    assert found.argmax(-1).tolist() == [0, 1, 1]


def test_a_neighbourhood_is_no_larger_than_a_class() -> None:
    """Thirty neighbours among 21 rows of 3 classes would be all of them, and every query alike."""
    task = blobs(counts=(1, 1, 1), each=6)
    torch.testing.assert_close(build("label-propagation")(task), build("label-propagation", neighbours=7)(task))
    with_pads = blobs(counts=(1, 1, 1), each=6, pads=9)
    torch.testing.assert_close(build("label-propagation")(with_pads), build("label-propagation")(task))


def test_the_graph_is_made_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    task = blobs(pads=1)
    method = build("label-propagation", neighbours=4)
    whole = method(task)
    monkeypatch.setattr(label_propagation, "BLOCK_BYTES", 1000)
    torch.testing.assert_close(method(task), whole)


@pytest.mark.parametrize("name", REFINES)
def test_without_unlabelled_rows_each_is_what_it_refines(name: str) -> None:
    task = blobs(pads=2)
    base, options = REFINES[name]
    assert METHODS.get(name).uses_evidence == {"unlabelled"}
    assert METHODS.get(name).traits >= {"any-way", "any-shot", "unequal-shots", "equivariant", "untrained"}
    expected = build(base, **options)(task.with_evidence(unlabelled=None))
    torch.testing.assert_close(build(name)(task.with_evidence(unlabelled=None)), expected)
    empty = task.with_evidence(unlabelled=torch.empty(2, 0, 6))
    torch.testing.assert_close(build(name)(empty), expected)


def test_bd_cspn_is_cosine_of_vectors_of_length_one() -> None:
    task = blobs(unit=False).with_evidence(unlabelled=None)
    expected = build("cosine")(replace(task, support=normalize(task.support, dim=-1)))
    torch.testing.assert_close(build("bd-cspn")(task), expected)


@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_padding_and_the_other_episodes_change_nothing(name: str, options: dict[str, Any]) -> None:
    method = build(name, **options)
    task, padded = blobs(), blobs(pads=3)
    torch.testing.assert_close(method(padded), method(task), rtol=1e-4, atol=1e-4)
    one = replace(
        task,
        **{name: getattr(task, name)[:1] for name in ("support", "support_y", "query", "query_y", "classes")},
        query_offsets=task.query_offsets[:1],
        evidence=Evidence(unlabelled=rows_of(task, 0)[None]),
    )
    torch.testing.assert_close(method(one), method(task)[:1], rtol=1e-4, atol=1e-4)
    few = replace(task, query=task.query[:, :1], query_y=None, query_offsets=torch.arange(2).expand(2, -1))
    torch.testing.assert_close(method(few), method(task)[:, :1], rtol=1e-4, atol=1e-4)  # queries do not see each other


@pytest.mark.parametrize(("name", "options"), VARIANTS)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), classes=st.permutations(range(3)), copies=st.integers(0, 3))
def test_orders_of_rows_and_of_classes_do_not_matter(
    name: str, options: dict[str, Any], seed: int, classes: list[int], copies: int
) -> None:
    """Nor where some rows are there more than once, or are copies of the support or of queries."""
    task = blobs(seed=seed, each=5)
    assert task.unlabelled is not None
    again = [task.unlabelled[:, :2]] * copies + [task.support[:, :copies], task.query[:, :copies]]
    task = task.with_evidence(unlabelled=torch.cat([task.unlabelled, *again], 1))
    assert task.unlabelled is not None
    order = torch.randperm(task.unlabelled.shape[1], generator=torch.Generator().manual_seed(seed))
    new = torch.tensor(classes).argsort()  # the new label of each class
    shuffled = replace(task, support_y=new[task.support_y]).with_evidence(unlabelled=task.unlabelled[:, order])
    method = build(name, **options)
    scores = method(task)
    assert scores.isfinite().all()
    torch.testing.assert_close(method(shuffled), scores[..., classes], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", REFINES)
def test_unlabelled_rows_help_at_one_shot(name: str) -> None:
    task = blobs(counts=(1,) * 5, each=30, dim=16, batch=30, noise=0.3)
    base, options = REFINES[name]
    alone, helped = (
        float((method(task).argmax(-1) == task.query_y).float().mean())
        for method in (build(base, 16, **options), build(name, 16))
    )
    assert helped > alone + 0.03, f"{alone:.3f} without, {helped:.3f} with unlabelled rows"


@pytest.mark.parametrize(("name", "options"), [("soft-kmeans", {"distractors": True}), ("bd-cspn", {"top": 1}),
                                                ("label-propagation", {"symmetric": False})])  # fmt: skip
def test_variants_keep_the_contract(name: str, options: dict[str, Any]) -> None:
    check_method(METHODS.get(name), **options)


@pytest.mark.parametrize(("name", "options"), [("bd-cspn", {}), ("self-training", {}), ("soft-kmeans", {"scale": 2.0})])
def test_gradients_reach_unlabelled_vectors(name: str, options: dict[str, Any]) -> None:
    task = blobs(noise=0.8)
    assert task.unlabelled is not None
    task.support.requires_grad_()
    task.unlabelled.requires_grad_()
    torch.autograd.backward(build(name, **options).train().loss(task)["cls"])
    for x in (task.support, task.unlabelled):
        assert x is not None
        assert x.grad is not None
        assert x.grad.isfinite().all()
        assert x.grad.abs().sum() > 0


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("soft-kmeans", {"scale": 0.0}, r"scale 0\.0 must be a number above 0, such as 1\.0"),
        ("soft-kmeans", {"radius": -1.0}, r"radius -1\.0 must be a number above 0, such as 1\.0"),
        ("soft-kmeans", {"steps": 0}, "steps 0 must be at least 1"),
        ("bd-cspn", {"scale": -2.0}, r"scale -2\.0 must be a number above 0, such as 10\.0"),
        ("bd-cspn", {"top": 0}, "top 0 must be at least 1"),
        ("self-training", {"threshold": 1.0}, r"threshold 1\.0 must be a probability, from 0 to below 1"),
        ("self-training", {"rounds": 0}, "rounds 0 must be at least 1"),
        ("self-training", {"C": -1.0}, r"C -1\.0 must be above 0"),
        ("label-propagation", {"neighbours": 0}, "neighbours 0 must be at least 1"),
        ("label-propagation", {"alpha": 1.0}, r"alpha 1\.0 must be between 0 and 1, such as 0\.2"),
    ],
)
def test_wrong_options_are_refused(name: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        build(name, **options)


def test_a_graph_does_not_learn() -> None:
    with pytest.raises(ConfigError, match=r"label-propagation cannot be trained with \[unlabelled\].*leave it out"):
        build("label-propagation").loss(blobs())
    assert build("label-propagation").loss(blobs().with_evidence(unlabelled=None))["cls"] > 0


def test_no_class_wins_what_the_support_does_not_have() -> None:
    """A class without support takes no unlabelled rows."""
    task = blobs(counts=(2, 2), each=6)
    wider = replace(task, classes=torch.arange(3).expand(2, -1))
    for name in ("soft-kmeans", "bd-cspn"):
        method = build(name)
        torch.testing.assert_close(method(wider)[..., :2], method(task))
