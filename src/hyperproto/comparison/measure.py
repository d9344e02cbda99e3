"""Measure methods on episodes: runs x encoders x methods x options -> candidates -> results on the same episodes.

Selection.candidates(pool) -> Candidates      Tasks.open() -> pool, lists of episodes      measure() -> Results
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, Unpack

from hyperproto.data import Pool, open_pool
from hyperproto.encoders import Encoder
from hyperproto.encoders.class_names import NameEncoder
from hyperproto.episodes import Episode, episodes_hash, load_fewnerd_episodes
from hyperproto.episodes.episode_files import shots_in_name
from hyperproto.episodes.greedy import RULES
from hyperproto.episodes.sampler import SHOT
from hyperproto.errors import ConfigError, unknown_name
from hyperproto.evaluation import (
    EncodedPool,
    EvidenceChoice,
    Rejection,
    Result,
    check_names,
    check_shape,
    encoded_for,
    measure_episodes,
)
from hyperproto.methods import METHODS, Method
from hyperproto.options import EpisodeOptions, SamplerOptions, Shots, changed, complete
from hyperproto.problems import make_sampler, problem_of
from hyperproto.problems.tagging import Convention
from hyperproto.progress import Show, noted
from hyperproto.registry import keywords
from hyperproto.training.sources import (
    READING,
    Candidate,
    Source,
    check_choices,
    encoder_source,
    make_candidate,
    run_source,
    transforms_of,
)

EPISODES = 1000  # where none are given
UNLABELLED = 50  # items of each class, where none are given
MOST_EPISODES = 1_000_000  # more say nothing new, and do not fit into memory
NO_EVIDENCE = EvidenceChoice()  # besides the support


@dataclass(frozen=True)
class Selection:
    """Runs, encoders, methods and options to measure; an empty list stands for the default of each run or method."""

    runs: Sequence[str] = ()
    encoders: Sequence[str] = ()
    methods: Sequence[str] = ()
    fits: Sequence[str] = ()
    transforms: Sequence[str] = ()
    options: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # of the methods: the values of each to compare
    known: Sequence[str] = ()  # evidence besides the support, as `EvidenceChoice.parse` reads it
    names: str | None = None  # the source of class names, where these are evidence; None: labels

    @cached_property
    def evidence(self) -> list[EvidenceChoice]:
        """Evidence besides the support, each choice once."""
        found = list(dict.fromkeys(map(EvidenceChoice.parse, self.known))) or [NO_EVIDENCE]
        if self.names is not None and all(each.names is None for each in found):
            raise ConfigError(
                f"--names {self.names}, but names are no evidence here; add --evidence names, or --evidence example"
            )
        return found

    def candidates(self, pool: Pool, data: str | None = None) -> list[Candidate]:
        """Return every combination that makes sense, with encoders that read such a pool.

        Training data are those of the run or, for an encoder, of `data`.
        """
        sources = [run_source(run, pool) for run in self.runs]
        sources += [encoder_source(spec, pool, data) for spec in self.encoders]
        found: dict[str, Candidate] = {}
        for values in product(*self.options.values()):
            options = dict(zip(self.options, values, strict=True))
            chosen = self.methods, self.fits, self.transforms, options, self.evidence, self.names or "labels"
            for candidate in select(sources, *chosen):
                found.setdefault(candidate.label, candidate)  # an option that changes nothing here makes no other row
        return list(found.values())


def select(
    sources: Sequence[Source],
    methods: Sequence[str],
    fits: Sequence[str],
    transforms: Sequence[str],
    options: dict[str, Any],
    evidence: Sequence[EvidenceChoice] = (NO_EVIDENCE,),
    names_of: str = "labels",
) -> list[Candidate]:
    """Make every combination that makes sense; an empty list stands for the default of each source or method.

    Each method takes the fits, transforms, options and evidence that it supports; what none of them supports is an
    error. `names_of` is the source of class names, where these are evidence.
    """
    wanted = [(source, name) for source in sources for name in methods or [source.own_method]]
    if fits or transforms or options:
        check_choices(list(dict.fromkeys(name for _, name in wanted)), fits, transforms, options)
    candidates: list[Candidate] = []
    for source, name in wanted:
        for fit, transform in _supported(name, fits, transforms):
            made = make_candidate(source, name, fit, transform, options)
            if len(sources) > 1:
                made = replace(made, label=f"{source.label} {made.label}")
            candidates += [
                _with_evidence(made, each, names_of)
                for each in evidence
                if each == NO_EVIDENCE or each.serves(made.method)
            ]
    for each in evidence:
        if not any(candidate.evidence == each for candidate in candidates):
            raise ConfigError(
                f"--evidence {each}: none of the methods has a use for it; hyperproto with --fit bayes has, and every "
                "method of vectors takes names as an example (--evidence example)"
            )
    return _with_readings(candidates)


def _supported(name: str, fits: Sequence[str], transforms: Sequence[str]) -> Iterable[tuple[str | None, str | None]]:
    """Return the pairs of fit and transform that a method supports; None stands for its default."""
    if not fits and not transforms:
        return [(None, None)]
    cls: type[Method] = METHODS.get(name)
    own_fits: Sequence[str | None] = [fit for fit in fits if fit in cls.fits]
    own_transforms: Sequence[str | None] = [each for each in transforms if each in transforms_of(cls)]
    return product(own_fits or [None], own_transforms or [None])


def _with_readings(candidates: list[Candidate]) -> list[Candidate]:
    """Name the default reading of eq. 3 in labels too, if another reading is compared with it."""
    if not any(f"{READING}=" in candidate.label for candidate in candidates):
        return candidates
    return [
        replace(each, label=f"{each.label} {READING}=squared")
        if each.method.fit == "paper"
        and READING in keywords(METHODS.get(each.method_name))
        and f"{READING}=" not in each.label
        else each
        for each in candidates
    ]


def _with_evidence(candidate: Candidate, evidence: EvidenceChoice, names_of: str) -> Candidate:
    """Return the candidate with evidence besides the support."""
    if evidence == NO_EVIDENCE:
        return candidate
    more: dict[str, Any] = {"evidence": evidence, "label": f"{candidate.label} + {evidence}"}
    if evidence.names is not None:
        names = NameEncoder(names_of)
        used = {"names": {**names.settings, "use": evidence.names}}
        more |= {"names": names, "settings": {**candidate.settings, **used}}
    return replace(candidate, **more)


@dataclass(frozen=True, eq=False)
class Drawn:
    """A list of episodes, and the settings that results state for them."""

    settings: dict[str, Any]
    episodes: list[Episode]


class Tasks:
    """Episodes that methods are measured on: drawn from data, or read from a file of episodes.

    `shots` holds one or several numbers of shots, with a list of episodes for each; none: the option `shot`.
    """

    def __init__(self, data: str, shots: Sequence[Shots] = (), **settings: Unpack[EpisodeOptions]) -> None:
        self.data = data
        self.options = options = complete(EpisodeOptions, settings)
        given = shots or ([] if options["shot"] is None else [options["shot"]])
        self.shots = [tuple(shot) if isinstance(shot, list) else shot for shot in given]
        self.episode_file = None if options["episode_file"] is None else Path(options["episode_file"])
        if options["rule"] not in (None, *RULES):
            raise ConfigError(f"--rule: {unknown_name('rule', str(options['rule']), RULES)}")

    def open(self, progress: Show | None = None) -> tuple[Pool, list[Drawn]]:
        """Open the data and draw the episodes for each number of shots, or read those of a file."""
        shots = [checked_shots(shot) for shot in self.shots]
        if self.episode_file is None:
            split = self.options["split"]
            pool = open_pool(self.data, split, noted(progress, f"items of {self.data} {split}"))
            return pool, self.draw(pool)
        if {*changed(SamplerOptions, self.options)} - {"way", "shot", "query", "seed"}:
            raise ConfigError(f"{self.episode_file}: its episodes are as they are; leave out how they should be drawn")
        shot = shots_in_name(self.episode_file)
        if shot is None and len(shots) == 1 and isinstance(shots[0], int):
            shot = shots[0]
        pool, episodes = load_fewnerd_episodes(self.episode_file, shot)
        episodes = episodes[: self.options["episodes"]]
        shape = {"way": episodes[0].way - 1, "shot": shot, "query": None, "episodes": len(episodes), "seed": None}
        return pool, [Drawn({**shape, "episode_file": self.episode_file.name}, episodes)]

    def for_evidence(self, evidence: Sequence[EvidenceChoice]) -> "Tasks":
        """Return the tasks with unlabelled items where these are evidence; refuse 0 shots where names are none."""
        if all(each.names is None for each in evidence):
            for shot in self.shots:
                _check_shown(shot)
        unlabelled = self.options["unlabelled"]
        if any(each.rows == "unlabelled" for each in evidence):
            count = UNLABELLED if unlabelled is None else unlabelled
            return Tasks(self.data, self.shots, **complete(EpisodeOptions, {**self.options, "unlabelled": count}))
        if unlabelled is not None or self.options["distractors"]:
            raise ConfigError(
                "--unlabelled and --distractors say how many items come without a label, but these are no evidence "
                "here; add --evidence unlabelled"
            )
        return self

    def draw(self, pool: Pool) -> list[Drawn]:
        """Draw the episodes for each number of shots; equal ones are drawn once."""
        options = self.options
        count = EPISODES if options["episodes"] is None else options["episodes"]
        if not 1 <= count <= MOST_EPISODES:
            raise ConfigError(f"--episodes {count}: draw at least 1 and at most {MOST_EPISODES:,}")
        shape: dict[str, Any] = {"way": options["way"], "seed": options["seed"], **changed(SamplerOptions, options)}
        recorded = {key: value for key, value in shape.items() if key not in ("shot", "query", "distractors")}
        if options["unlabelled"] is not None:
            recorded["strangers"] = options["distractors"]  # its name in files of results
        drawn = []
        for given in dict.fromkeys(self.shots or [SHOT]):
            shot = checked_shots(given)
            sampler = make_sampler(pool, **{**shape, "shot": shot})
            settings = {**recorded, "shot": shot, "query": sampler.query, "episodes": count}
            drawn.append(Drawn(settings, sampler.draw(count)))
        return drawn

    def threshold_pool(self, pool: Pool, progress: Show | None = None) -> Pool | None:
        """Open the data that thresholds are chosen on: not those that are reported. None where nothing is rejected."""
        options = self.options
        if not options["nota_share"] and not options["na_rate"]:
            if options["threshold_data"] or options["threshold_split"]:
                raise ConfigError(
                    "--threshold-data and --threshold-split choose when a query is of none of the classes, but every "
                    "query is of one; add --nota-share or --na-rate"
                )
            return None
        data, split = options["threshold_data"] or self.data, options["threshold_split"] or "val"
        other = open_pool(data, split, noted(progress, f"items of {data} {split}"))
        if other.digest == pool.digest:
            raise ConfigError(
                f"thresholds would be chosen on {other}, the very data that are reported; name other data with "
                "--threshold-data, or another split with --threshold-split"
            )
        return other


def measure(selection: Selection, tasks: Tasks, progress: Show | None = None) -> list[list[Result]]:
    """Score every candidate: a list of results for each kind of shots."""
    tasks = tasks.for_evidence(selection.evidence)
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


def checked_shots(shot: Any) -> int | list[int]:
    """Refuse what is no number of examples, or 0; several, one for each class, become a list."""
    several = list(shot) if isinstance(shot, tuple | list) else [shot]
    if not several or any(isinstance(k, bool) or not isinstance(k, int) for k in several):
        raise ConfigError(f"--shot {shot!r}: write one number (5), or one for each class (1,1,2,5,20)")
    if min(several) < 0:
        raise ConfigError(f"--shot {','.join(map(str, several))}: numbers of examples are at least 0")
    return several[0] if len(several) == 1 else several


def _check_shown(shot: Shots) -> None:
    """Refuse classes without an example where their names are no evidence."""
    several = checked_shots(shot)
    if min(several if isinstance(several, list) else [several]) < 1:
        words = ",".join(map(str, several)) if isinstance(several, list) else several
        raise ConfigError(
            f"--shot {words}: unseen classes are fitted to their support; give each at least 1 example, or use "
            "their names (--evidence names)"
        )


def _check_readers(candidates: Sequence[Candidate], pool: Pool, other: Pool) -> None:
    """Make sure that encoders made for one pool read the other as well."""
    for cls in {type(candidate.encoder) for candidate in candidates}:
        made, needed = cls.options_for(pool), cls.options_for(other)
        if made != needed:
            raise ConfigError(
                f"{cls.__name__} reads {pool} as {made}, but {other}, which thresholds are to be chosen on, as "
                f"{needed}; name data of the same kind with --threshold-data"
            )
