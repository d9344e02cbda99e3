"""Measure methods on episodes: what is selected, which episodes, and every result on them.

tasks.open() -> Pool, lists of episodes       selection.candidates(pool) -> Candidates       measure() -> Results
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from hyperproto.comparison.selection import select
from hyperproto.data import Pool, open_pool
from hyperproto.encoders import Encoder
from hyperproto.episodes import Episode, episodes_hash, load_fewnerd_episodes
from hyperproto.episodes.episode_files import shots_in_name
from hyperproto.episodes.greedy import RULES, Rule
from hyperproto.errors import ConfigError, unknown_name
from hyperproto.evaluation import EncodedPool, EvidenceChoice, Rejection, Result, measure_episodes
from hyperproto.evaluation.predictor import check_names
from hyperproto.evaluation.scoring import check_shape, encoded_for
from hyperproto.problems import make_sampler, problem_of
from hyperproto.problems.tagging import Convention
from hyperproto.progress import Show, noted
from hyperproto.training.sources import Candidate, encoder_source, run_source

SHOTS = 5  # where none are given
EPISODES = 1000
UNLABELLED = 50  # items of each class, where none are given
MOST_EPISODES = 1_000_000  # more say nothing new, and do not fit into memory

Shots = int | tuple[int, ...]  # examples of every class, or of each


@dataclass(frozen=True)
class Selection:
    """What is measured; an empty list stands for the default of each run or method."""

    runs: Sequence[str] = ()
    encoders: Sequence[str] = ()
    methods: Sequence[str] = ()
    fits: Sequence[str] = ()
    transforms: Sequence[str] = ()
    options: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # of the methods: the values of each to compare
    known: Sequence[str] = ()  # what candidates are told besides the support: see `evaluation.EvidenceChoice`
    names: str | None = None  # the source of names that are told; None: labels

    @property
    def told(self) -> list[EvidenceChoice]:
        """What candidates are told, each once."""
        told = list(dict.fromkeys(map(EvidenceChoice.parse, self.known))) or [EvidenceChoice()]
        if self.names is not None and all(known.names is None for known in told):
            raise ConfigError(f"--names {self.names}, but nobody is told of names; add --know names, or --know example")
        return told

    def candidates(self, pool: Pool, data: str | None = None) -> list[Candidate]:
        """Every combination that makes sense, with encoders that read such a pool.

        Training data are those of the run or, for an encoder, of `data`.
        """
        sources = [run_source(run, pool) for run in self.runs]
        sources += [encoder_source(spec, pool, data) for spec in self.encoders]
        found: dict[str, Candidate] = {}
        for values in product(*self.options.values()):
            options = dict(zip(self.options, values, strict=True))
            chosen = self.methods, self.fits, self.transforms, options, self.told, self.names or "labels"
            for candidate in select(sources, *chosen):
                found.setdefault(candidate.label, candidate)  # an option that changes nothing here makes no other row
        return list(found.values())


@dataclass(frozen=True, eq=False)
class Drawn:
    """A list of episodes, and what results say of them."""

    settings: dict[str, Any]
    episodes: list[Episode]


@dataclass(frozen=True, kw_only=True)
class Tasks:
    """Which episodes methods are measured on: drawn from data, or read from a file of episodes."""

    data: str
    split: str = "test"
    shots: Sequence[Shots] = ()  # a list of episodes for each; none: 5
    way: int = 5
    query: int | None = None  # None: what is usual with such data
    episodes: int | None = None  # None: 1,000, or all of a file
    seed: int = 0
    nota_share: float = 0.0
    na_rate: int = 0
    threshold_data: str | None = None
    threshold_split: str | None = None
    unlabelled: int | None = None  # items of each class without a label; None: 50, where they are told
    strangers: int = 0  # items of other classes among them
    rule: str | None = None  # of K~2K episodes
    least_spans: int | None = None
    episode_file: Path | None = None  # Few-NERD's episodes, drawn by others

    @property
    def nota(self) -> dict[str, Any]:
        """How many queries are of none of the classes: empty if none is."""
        asked = {"nota_share": self.nota_share, "na_rate": self.na_rate}
        return {name: value for name, value in asked.items() if value}

    @property
    def k2k(self) -> dict[str, Any]:
        """How K~2K episodes are drawn, as far as that was said."""
        asked = {"rule": _checked_rule(self.rule), "least_spans": self.least_spans}
        return {name: value for name, value in asked.items() if value is not None}

    def open(self, progress: Show | None = None) -> tuple[Pool, list[Drawn]]:
        """Open the data and draw the episodes for each kind of shots, or read those of a file."""
        shots = [checked_shots(shot) for shot in self.shots]
        k2k = self.k2k
        if self.episode_file is None:
            pool = open_pool(self.data, self.split, noted(progress, f"items of {self.data} {self.split}"))
            return pool, self.draw(pool)
        if self.nota or k2k:
            raise ConfigError(f"{self.episode_file}: its episodes are as they are; leave out how they should be drawn")
        shot = shots_in_name(self.episode_file)
        if shot is None and len(shots) == 1 and isinstance(shots[0], int):
            shot = shots[0]
        pool, episodes = load_fewnerd_episodes(self.episode_file, shot)
        episodes = episodes[: self.episodes]
        shape = {"way": episodes[0].way - 1, "shot": shot, "query": None, "episodes": len(episodes), "seed": None}
        return pool, [Drawn({**shape, "episode_file": self.episode_file.name}, episodes)]

    def for_known(self, known: Sequence[EvidenceChoice]) -> "Tasks":
        """The same with items without a label where these are told, and the shots checked: names may stand alone."""
        if all(told.names is None for told in known):
            for shot in self.shots:
                _check_shown(shot)
        if any(told.rows == "unlabelled" for told in known):
            return replace(self, unlabelled=UNLABELLED if self.unlabelled is None else self.unlabelled)
        if self.unlabelled is not None or self.strangers:
            raise ConfigError(
                "--unlabelled and --strangers say how many items come without a label, but nobody is told of them; add "
                "--know unlabelled"
            )
        return self

    def draw(self, pool: Pool) -> list[Drawn]:
        """Draw the episodes for each kind of shots; what is asked for twice comes once."""
        count = EPISODES if self.episodes is None else self.episodes
        if not 1 <= count <= MOST_EPISODES:
            raise ConfigError(f"--episodes {count}: draw at least 1 and at most {MOST_EPISODES:,}")
        shape: dict[str, Any] = {"way": self.way, "seed": self.seed, **self.nota, **self.k2k}
        if self.unlabelled is not None:
            shape |= {"unlabelled": self.unlabelled, "strangers": self.strangers}
        drawn = []
        for given in dict.fromkeys(self.shots or [SHOTS]):
            shot = checked_shots(given)
            sampler = make_sampler(pool, shot=shot, query=self.query, **shape)
            settings = {**shape, "shot": shot, "query": sampler.query, "episodes": count}
            drawn.append(Drawn(settings, sampler.draw(count)))
        return drawn

    def threshold_pool(self, pool: Pool, progress: Show | None = None) -> Pool | None:
        """Open the data that thresholds are chosen on: not those that are reported. None where nothing is rejected."""
        if not self.nota:
            if self.threshold_data or self.threshold_split:
                raise ConfigError(
                    "--threshold-data and --threshold-split choose when a query is of none of the classes, but every "
                    "query is of one; add --nota-share or --na-rate"
                )
            return None
        data, split = self.threshold_data or self.data, self.threshold_split or "val"
        other = open_pool(data, split, noted(progress, f"items of {data} {split}"))
        if other.digest == pool.digest:
            raise ConfigError(
                f"thresholds would be chosen on {other}, the very data that are reported; name other data with "
                "--threshold-data, or another split with --threshold-split"
            )
        return other


def measure(selection: Selection, tasks: Tasks, progress: Show | None = None) -> list[list[Result]]:
    """Score every candidate: a list of results for each kind of shots."""
    tasks = tasks.for_known(selection.told)
    pool, drawn = tasks.open(progress)
    other = tasks.threshold_pool(pool, progress)
    chosen_on = [None] * len(drawn) if other is None else tasks.draw(other)
    candidates = selection.candidates(pool, tasks.data)
    if other is not None:
        _check_readers(candidates, pool, other)
    encoded: dict[Encoder, EncodedPool] = {}  # every encoder reads a pool once, for all kinds of shots
    encoded_other: dict[Encoder, EncodedPool] = {}
    groups = []
    for here, there in zip(drawn, chosen_on, strict=True):
        rejection = None
        if other is not None and there is not None:
            rejection = Rejection(other, there.episodes, encoded_other)
        groups.append(evaluate_candidates(candidates, pool, here.episodes, here.settings, encoded, progress, rejection))
    return groups


def evaluate_candidates(
    candidates: Sequence[Candidate],
    pool: Pool,
    episodes: Sequence[Episode],
    settings: dict[str, Any],
    encoded: dict[Encoder, EncodedPool] | None = None,
    progress: Show | None = None,
    rejection: Rejection | None = None,
    convention: Convention = "sentence",
) -> list[Result]:
    """Score every candidate on the same episodes; each encoder encodes the pool once.

    With `rejection`, for episodes with queries of none of the classes, a candidate may reject queries: by its novelty,
    at the threshold that is best for it on the episodes named there. Accuracies are then those with NOTA.

    Where words are tagged, results are F1 of exact spans; `convention` says which one comes first.
    """
    encoded = {} if encoded is None else encoded
    unlabelled: dict[str, Any] = {key: settings[key] for key in ("unlabelled", "strangers") if key in settings}
    settings = {key: value for key, value in settings.items() if key not in unlabelled}
    settings = {**settings, "data": pool.name, "split": pool.split, "episode_hash": episodes_hash(pool, episodes)}
    if rejection is not None:
        settings |= rejection.settings()
    settings |= problem_of(pool).settings(convention=convention)
    for candidate in candidates:
        check_shape(candidate.method, episodes)
        check_names(candidate.method, candidate.names)
    results = []
    scored = "episodes scored" + (f" by {len(candidates)} candidates" if len(candidates) > 1 else "")
    for number, candidate in enumerate(candidates):
        start = time.perf_counter()
        encoding = noted(progress, f"items of {pool.split} encoded")
        vectors = encoded_for(candidate.method, candidate.encoder, pool, encoded, encoding)

        def report(done: int, total: int, number: int = number) -> None:
            if progress is not None:
                progress(number * total + done, len(candidates) * total, scored)

        own = {"method": candidate.method_name, "fit": candidate.method.fit, "transform": candidate.transform}
        own |= candidate.evidence.settings(unlabelled)
        threshold = None if rejection is None else rejection.threshold(candidate.predictor)
        how = {"shots": settings.get("shot"), "threshold": threshold, "convention": convention}
        measured = measure_episodes(candidate.predictor, vectors, episodes, report, **how)
        seconds = time.perf_counter() - start
        own_settings = {**candidate.settings, **own, **settings}
        parts = measured.values, measured.metrics, seconds, measured.others, measured.metric
        results.append(Result(candidate.label, own_settings, *parts))
    return results


def checked_shots(shot: Shots) -> int | list[int]:
    """Refuse what is no number of examples, or 0; several, one for each class, become a list."""
    several = list(shot) if isinstance(shot, tuple | list) else [shot]
    if not several or any(isinstance(k, bool) or not isinstance(k, int) for k in several):
        raise ConfigError(f"--shot {shot!r}: write one number (5), or one for each class (1,1,2,5,20)")
    if min(several) < 0:
        raise ConfigError(f"--shot {','.join(map(str, several))}: numbers of examples are at least 0")
    return several[0] if len(several) == 1 else several


def _check_shown(shot: Shots) -> None:
    """Refuse classes without an example, where nobody is told their names."""
    several = checked_shots(shot)
    if min(several if isinstance(several, list) else [several]) < 1:
        words = ",".join(map(str, several)) if isinstance(several, list) else several
        raise ConfigError(
            f"--shot {words}: unseen classes are fitted to their support; give each at least 1 example, or tell names "
            "(--know names)"
        )


def _checked_rule(name: str | None) -> Rule | None:
    """Read the name of a rule of K~2K sampling."""
    for rule in RULES:
        if name == rule:
            return rule
    if name is not None:
        raise ConfigError(f"--rule: {unknown_name('rule', name, RULES)}")
    return None


def _check_readers(candidates: Sequence[Candidate], pool: Pool, other: Pool) -> None:
    """Make sure that encoders made for one pool read the other as well."""
    for cls in {type(candidate.encoder) for candidate in candidates}:
        made, needed = cls.options_for(pool), cls.options_for(other)
        if made != needed:
            raise ConfigError(
                f"{cls.__name__} reads {pool} as {made}, but {other}, which thresholds are to be chosen on, as "
                f"{needed}; name data of the same kind with --threshold-data"
            )
