"""Drift of new unlabelled items against those of the fit: tests with p-values, and the items that explain them.

Scores of an item: its novelty, here the least distance to a class mean in units of the class's scale, and its
confidence, the largest class probability. New items are compared with one of three references:

- items that the caller gives, scored by the same model;
- the unlabelled rows of the fit. The model was fitted to them and is more confident of them than of new rows, so
  confidence is not tested against them;
- the examples, scored by leave-one-out. Their class shares are those of the labelling and not natural, so shares are
  not tested against them. New scores of one class share its mean and scale, which are estimated from few examples. That
  part of the variance does not shrink with the number of new items: the variance due to the reference is multiplied by
  1 + SHARED / (K - 1), with K the mean number of examples of a class. Confidence is smaller with one example less, so
  it is tested only from CONFIDENT examples on.

Both scores depend on the class. Ranks are therefore permuted within the predicted class (a stratified linear rank
test), and a shift of class shares alone changes nothing in these tests. Shares are compared by a permutation test of
Pearson's statistic. All p-values are corrected by Holm's method for the number of tests.

Novel items are clustered by average linkage. Two clusters are joined while the mean squared distance between their
items is at most twice the scatter within the known classes, which is what two items of one class have on average. The
name of a group are the words that are most typical of its texts against all other texts, by the z-score of the log
ratio of frequencies with an informative prior (Monroe et al. 2008).

Permutations assume that reference and new scores are exchangeable. They are for a given reference; for leave-one-out
scores and for unlabelled rows, which the model was fitted to, this is an approximation. Of more than MOST_PERMUTED
values, a rank statistic is compared with the normal distribution.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from textwrap import shorten
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.special import ndtr
from scipy.stats import rankdata

from hyperproto.errors import ConfigError, DataError
from hyperproto.estimators.doctor import left_out_probabilities
from hyperproto.regions.arrays import Doubles, Floats, Indices
from hyperproto.regions.statistics import pooled_scatter
from hyperproto.reports.tables import folded

if TYPE_CHECKING:
    from hyperproto.estimators.snapshot import Snapshot

LEAST_ITEMS = 10  # reference and new items, each, below which a test has no power worth the name
CONFIDENT = 10  # examples of a class, on average, from which confidence is compared with leave-one-out
SHARED = 4.0  # of the variance by common means and scales; chosen by simulation (vectors, and texts of HWU64)
PERMUTATIONS = 999
MOST_PERMUTED = 4000  # values; a rank statistic of more is normal to three digits
LEVEL = 0.05
TAIL = 0.05  # share of the reference that lies beyond the limit of novel items
MOST_AT_ONCE = 1 << 20  # distances in memory at once
MOST_NOVEL = 20  # items that a report lists
LEAST_SIZE = 3  # items of a group
MOST_GROUPED = 2000  # novel items that are clustered: the work grows with their square
MOST_WORDS = 3  # of a name
PRIOR_WORDS = 10.0  # total weight of the prior of a group's word frequencies, in words
TYPICAL = 1.28  # z-score above which a word is typical of a group
WORD = re.compile(r"[^\W\d_]{2,}")
MOST_LISTED = 10  # items, groups and classes in a table
LONGEST = 100  # characters of an item
EXAMPLES, ROWS, GIVEN = "examples, by leave-one-out", "unlabelled rows of the fit", "given reference"
NOT_NATURAL = (
    "shares of classes were not tested: those of labelled examples are not natural; give `reference`, or fit with "
    "unlabelled rows"
)
FITTED = "confidence was not tested: the model was fitted to the unlabelled rows; give `reference`"
TOO_FEW = (
    f"confidence was not tested: leave-one-out lowers that of the examples, unless classes have {CONFIDENT} of them on "
    "average; give `reference`"
)


@dataclass(frozen=True)
class DriftTest:
    """Test of one quantity: its mean in the reference and in the new items, and its p-value.

    `quantity` is "novelty", "confidence" or "class shares"; of the last, the numbers are half the sum of absolute
    differences of shares, 0 for the reference. `p_value` is corrected for the number of tests, `raw_p_value` is not.
    """

    quantity: str
    reference: float
    new: float
    p_value: float
    raw_p_value: float


@dataclass(frozen=True)
class NovelItem:
    """New item that lies far from every class; `rank` is the share of the reference that is at least as novel."""

    index: int  # among the new items, counted from 0
    novelty: float
    rank: float
    nearest: Any  # label of the nearest class
    item: str | None = None  # text or path


@dataclass(frozen=True)
class NovelGroup:
    """Novel items that lie together: indices of the new items, and a suggested name; None without texts."""

    size: int
    indices: tuple[int, ...]  # those nearest to the middle of the group first
    nearest: Any  # label of the class that most of them were assigned to
    name: str | None = None
    texts: tuple[str, ...] = ()  # of the first three


@dataclass(frozen=True)
class Drift:
    """Result of `drift`: `table()` returns text, `to_dict()` data for JSON."""

    against: str  # kind of reference
    reference_items: int
    new_items: int
    tests: tuple[DriftTest, ...]
    novel_share: float  # estimated share of new items beyond what the reference has
    items: tuple[NovelItem, ...]  # most novel first, at most MOST_NOVEL
    groups: tuple[NovelGroup, ...]  # clusters of novel items that look like a new class, largest first
    shares: Mapping[Any, tuple[float, float]] = field(default_factory=dict)  # by label: of the reference, of new items
    notes: tuple[str, ...] = ()

    @property
    def drifted(self) -> bool:
        """True if a corrected p-value is below 5 %."""
        return any(test.p_value < LEVEL for test in self.tests)

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, strings, lists and dictionaries."""
        content = {name: value for name, value in vars(self).items() if name != "shares"}
        content |= {name: [asdict(each) for each in content[name]] for name in ("tests", "items", "groups")}
        shares = [{"label": label, "reference": a, "new": b} for label, (a, b) in self.shares.items()]
        return {"drifted": self.drifted, **content, "shares": shares, "notes": list(self.notes)}

    def table(self, width: int | None = None) -> str:
        """Return lines of text; with `width`, folded to that many columns."""
        return drift_table(self, width)


@dataclass(frozen=True, eq=False)
class ItemScores:
    """Scores of items: novelty, confidence and predicted class, each (n,)."""

    novelty: Doubles
    confidence: Doubles
    predicted: Indices

    @classmethod
    def of(cls, model: "Snapshot", X: Floats) -> "ItemScores":
        """Score rows."""
        probabilities = model.probabilities(X)
        return cls(least_distances(model, X), probabilities.max(axis=1), probabilities.argmax(axis=1))

    @classmethod
    def left_out(cls, model: "Snapshot") -> "ItemScores":
        """Score the examples by leave-one-out; those that are alone in their class are omitted."""
        out, conformal = model.conformal.left_out, model.conformal
        index = np.flatnonzero(out.has_siblings & np.isfinite(conformal.scores))
        probabilities = left_out_probabilities(model)[index]
        size = max(1, MOST_AT_ONCE // len(model.classes))
        found = np.empty(len(index))
        for start in range(0, len(index), size):
            part = index[start : start + size]
            relative = np.sqrt(out.squared_distances(part, fair=False)) / conformal.scale
            relative[np.arange(len(part)), out.own(part)] = conformal.scores[part]
            found[start : start + size] = relative.min(axis=1)
        return cls(found, probabilities.max(axis=1), probabilities.argmax(axis=1))


def least_distances(model: "Snapshot", X: Floats) -> Doubles:
    """Return the least distance of each row to a class mean, in units of the class's scale (n,)."""
    found, size = np.empty(len(X)), max(1, MOST_AT_ONCE // len(model.classes))
    for start in range(0, len(X), size):
        distance = model.distance(model.prepare(X[start : start + size]))
        found[start : start + size] = (distance / model.scale).min(axis=1)
    return found


def drift(
    model: "Snapshot",
    new: Floats,
    reference: Floats | None = None,
    items: Mapping[int, str] | None = None,
    examples: Mapping[int, str] | None = None,
) -> Drift:
    """Compare new rows with a reference; `items` and `examples` are texts or paths of new rows and of examples."""
    labels, items = model.classes.tolist(), items or {}
    if len(new) < LEAST_ITEMS:
        raise DataError(f"drift needs {LEAST_ITEMS} new items or more, and there are {len(new)}; collect more of them")
    against, before = _reference(model, reference)
    now = ItemScores.of(model, new)
    classes = before.predicted, now.predicted
    shot = float(model.moments.count[model.has_examples].mean()) if against == EXAMPLES else np.inf
    inflation = 1 + SHARED / max(shot - 1, 1.0)
    tests = [rank_test("novelty", before.novelty, now.novelty, *classes, inflation)]
    shares: dict[Any, tuple[float, float]] = {}
    notes = []
    if len(labels) > 1:
        if against == ROWS:
            notes.append(FITTED)
        elif shot >= CONFIDENT:
            tests.append(rank_test("confidence", before.confidence, now.confidence, *classes, inflation))
        else:
            notes.append(TOO_FEW)
        if against == EXAMPLES:
            notes.append(NOT_NATURAL)
        else:
            counts = [np.bincount(scores.predicted, minlength=len(labels)) for scores in (before, now)]
            tests.append(shares_test(*counts))
            both = zip(counts[0] / counts[0].sum(), counts[1] / counts[1].sum(), strict=True)
            shares = {label: (float(a), float(b)) for label, (a, b) in zip(labels, both, strict=True)}
    ranks = tail_ranks(before.novelty, now.novelty)
    order = np.argsort(-now.novelty, kind="stable")[:MOST_NOVEL]
    novel = tuple(
        NovelItem(i, float(now.novelty[i]), float(ranks[i]), labels[now.predicted[i]], items.get(i))
        for i in order.tolist()
    )
    limit = max(TAIL, 1 / (len(before.novelty) + 1))  # the least rank that there can be
    beyond = float((ranks <= limit).mean())
    groups = group_novel(model, new, np.flatnonzero(ranks <= limit), now.predicted, items, examples or {})
    return Drift(
        against,
        len(before.novelty),
        len(new),
        holm(tests),
        max(0.0, (beyond - limit) / (1 - limit)),
        novel,
        groups,
        shares,
        tuple(notes),
    )


def _reference(model: "Snapshot", given: Floats | None) -> tuple[str, ItemScores]:
    """Return the kind of reference and its scores."""
    rows = model.evidence.unlabelled
    if given is not None:
        kind, found = GIVEN, ItemScores.of(model, given)
    elif rows is not None and len(rows) >= LEAST_ITEMS:
        kind, found = ROWS, ItemScores.of(model, rows)
    elif model.rows is None:
        raise ConfigError(
            "drift compares new items with the examples, and store_support=False keeps none; give `reference`, items "
            "of the time of the fit, or fit again with store_support=True"
        )
    else:
        kind, found = EXAMPLES, ItemScores.left_out(model)
    if len(found.novelty) < LEAST_ITEMS:
        raise DataError(
            f"drift needs {LEAST_ITEMS} items to compare with, and there are {len(found.novelty)} ({kind}; an example "
            "that is alone in its class does not count); give `reference`, or more examples"
        )
    return kind, found


def tail_ranks(reference: Doubles, new: Doubles) -> Doubles:
    """Return the conformal p-value of each new score (m,): (1 + number of reference scores >= it) / (n + 1)."""
    ordered = np.sort(reference)
    above = len(ordered) - np.searchsorted(ordered, new, side="left")
    ranks: Doubles = (1 + above) / (len(ordered) + 1)
    return ranks


def rank_test(
    quantity: str,
    before: Doubles,
    now: Doubles,
    before_class: Indices,
    now_class: Indices,
    inflation: float = 1.0,
) -> DriftTest:
    """Test two-sided whether new scores are shifted, by a linear rank statistic permuted within each class.

    With an `inflation` of the variance due to the reference, or of many values, the normal distribution takes the place
    of permutations.
    Ranks enter by Savage's exponential scores, which weigh the tail of unusual items: high novelty, low confidence.
    """
    values = np.concatenate([before, now])
    values = values if quantity == "novelty" else -values
    strata = np.concatenate([before_class, now_class])
    is_new = np.arange(len(values)) >= len(before)
    weights = -np.log1p(-(rankdata(values) - 0.5) / len(values))
    total = np.bincount(strata)
    added = np.bincount(strata, is_new, len(total))
    mean = np.bincount(strata, weights, len(total)) / np.maximum(total, 1)
    centered = weights - mean[strata]
    square = np.bincount(strata, centered**2, len(total))
    kept = total - added
    shares = (kept + inflation * added) / np.maximum(total, 1)  # 1 without inflation
    variance = (added * kept * square * shares / np.maximum(total * (total - 1), 1)).sum()
    found = centered[is_new].sum()
    if variance <= 1e-12 * max(square.sum(), 1e-300):
        p_value = 1.0
    elif inflation > 1 or len(values) > MOST_PERMUTED:
        p_value = float(2 * ndtr(-abs(found) / np.sqrt(variance)))
    else:
        random = np.random.default_rng(0)
        order = np.argsort(strata, kind="stable")
        sorted_strata, centered, taken = strata[order], centered[order], is_new[order]
        larger, size = 0, max(1, MOST_AT_ONCE // len(values))
        for start in range(0, PERMUTATIONS, size):
            number = min(size, PERMUTATIONS - start)
            keys = sorted_strata + random.random((number, len(values)))  # their order shuffles each stratum
            sums = centered[np.argsort(keys, axis=1)[:, taken]].sum(axis=1)
            larger += int((np.abs(sums) >= abs(found) - 1e-9).sum())
        p_value = (1 + larger) / (1 + PERMUTATIONS)
    return DriftTest(quantity, float(before.mean()), float(now.mean()), p_value, p_value)


def shares_test(before: Indices, now: Indices) -> DriftTest:
    """Test whether counts of predicted classes (N,) come from the same shares, by permuting Pearson's statistic."""
    both = before + now
    shares = before / before.sum(), now / now.sum()
    there = both > 0
    both, size = both[there], int(now.sum())
    expected = both * (size / both.sum())

    def statistic(counts: Any) -> Any:
        """Return sum (counts - expected)^2 / expected, which the counts of the new items determine."""
        return ((counts - expected) ** 2 / expected).sum(axis=-1)

    drawn = np.random.default_rng(0).multivariate_hypergeometric(both, size, PERMUTATIONS, method="marginals")
    larger = int((statistic(drawn) >= statistic(now[there]) - 1e-9).sum())
    p_value = (1 + larger) / (1 + PERMUTATIONS)
    return DriftTest("class shares", 0.0, float(np.abs(shares[0] - shares[1]).sum() / 2), p_value, p_value)


def holm(tests: Sequence[DriftTest]) -> tuple[DriftTest, ...]:
    """Correct p-values for the number of tests (Holm 1979)."""
    corrected, least = list(tests), 0.0
    for place, n in enumerate(sorted(range(len(tests)), key=lambda n: tests[n].raw_p_value)):
        least = max(least, min(1.0, (len(tests) - place) * tests[n].raw_p_value))
        corrected[n] = replace(tests[n], p_value=least)
    return tuple(corrected)


def group_novel(
    model: "Snapshot",
    new: Floats,
    novel: Indices,
    predicted: Indices,
    items: Mapping[int, str],
    examples: Mapping[int, str],
) -> tuple[NovelGroup, ...]:
    """Cluster the rows `novel` of `new` and return the groups, largest first."""
    novel = novel[:MOST_GROUPED]
    moments, labels = model.moments, model.classes.tolist()
    scatter = float(pooled_scatter(moments.squares, moments.count))
    if len(novel) < LEAST_SIZE or scatter <= 0:
        return ()
    rows = model.prepare(new[novel]).astype(np.float64)
    found = []
    for members in clusters(rows, 2 * scatter):
        if len(members) < LEAST_SIZE:
            continue
        away = ((rows[members] - rows[members].mean(axis=0)) ** 2).sum(axis=1)
        own = novel[members[np.argsort(away, kind="stable")]].tolist()
        texts = [items[i] for i in own if i in items]
        others = [text for i, text in items.items() if i not in set(own)] + list(examples.values())
        nearest = labels[int(np.bincount(predicted[own]).argmax())]
        name = typical_words(texts, others) if len(texts) == len(own) else None
        found.append(NovelGroup(len(own), tuple(own), nearest, name, tuple(texts[:3])))
    return tuple(sorted(found, key=lambda group: -group.size))


def clusters(rows: Doubles, most: float) -> list[Indices]:
    """Return indices of the rows in each cluster: mean squared distance between joined clusters at most `most`."""
    squares = np.sum(rows * rows, axis=1)
    apart = np.maximum(squares[:, None] + squares - 2 * rows @ rows.T, 0.0)
    upper = apart[np.triu_indices(len(rows), 1)]
    place = fcluster(linkage(upper, "average"), most, "distance")
    return [np.flatnonzero(place == each) for each in np.unique(place)]


def typical_words(texts: Iterable[str], others: Iterable[str]) -> str | None:
    """Return up to MOST_WORDS words that are typical of `texts` against `others`, joined by spaces; None if none is."""
    own, rest = _count(texts), _count(others)
    both = own + rest
    total, n_own, n_rest = sum(both.values()), sum(own.values()), sum(rest.values())

    def score(word: str) -> float:
        """Return the z-score of the log ratio of the two frequencies of a word."""
        prior = PRIOR_WORDS * both[word] / total
        a, b = own[word] + prior, rest[word] + prior
        odds = np.log(a / (n_own + PRIOR_WORDS)) - np.log(b / (n_rest + PRIOR_WORDS))
        return float(odds / np.sqrt(1 / a + 1 / b))

    best = sorted(own, key=lambda word: (-score(word), word))[:MOST_WORDS] if total > n_own else own.keys()
    chosen = [word for word in best if total == n_own or score(word) > TYPICAL]
    return " ".join(chosen[:MOST_WORDS]) or None


def _count(texts: Iterable[str]) -> Counter[str]:
    """Count in how many texts each word occurs."""
    return Counter(word for text in texts for word in set(WORD.findall(text.lower())))


def drift_table(drift: Drift, width: int | None = None) -> str:
    """Return the text of `Drift.table`."""
    verdict = "drift: a corrected p-value is below 5 %" if drift.drifted else "no drift at 5 %"
    lines = [f"{drift.new_items} new items against {drift.reference_items} ({drift.against}): {verdict}"]
    for test in drift.tests:
        numbers = f"{test.reference:.3f} -> {test.new:.3f}"
        if test.quantity == "class shares":
            numbers = f"{test.new:.0%} of the new items would have to change their class"
        lines.append(f"  {test.quantity}: {numbers}, p = {test.p_value:.3g}")
    lines.append(f"Estimated share of new items that are more novel than the reference: {drift.novel_share:.0%}")
    moved = sorted(drift.shares.items(), key=lambda pair: -abs(pair[1][1] - pair[1][0]))[:MOST_LISTED]
    if moved:
        lines += ["", "Class shares that changed most:"]
        lines += [f"  {label}: {before:.1%} -> {now:.1%}" for label, (before, now) in moved]
    if drift.groups:
        lines += ["", "Groups of novel items, possibly new classes:"]
    for group in drift.groups[:MOST_LISTED]:
        lines.append(f"  {group.size} items near {group.nearest}" + (f": {group.name}" if group.name else ""))
        lines += [f"    {shorten(text, LONGEST, placeholder=' …')}" for text in group.texts]
    lines += ["", "Most novel items:"]
    for item in drift.items[:MOST_LISTED]:
        text = "" if item.item is None else f": {shorten(item.item, LONGEST, placeholder=' …')}"
        lines.append(f"  item {item.index}, {item.novelty:.2f}, nearest {item.nearest}{text}")
    lines += [""] * bool(drift.notes) + [f"Note: {note}" for note in drift.notes]
    return "\n".join(lines if width is None else [folded(line, width, "    ") for line in lines])
