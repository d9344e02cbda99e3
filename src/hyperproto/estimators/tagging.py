"""Encoded examples and method of an `EntityTagger`: everything that is derived from its parameters and examples."""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import pairwise
from math import floor
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any
from warnings import warn

import numpy as np
from numpy.typing import NDArray

from hyperproto.data import OUTSIDE, Pool, Progress
from hyperproto.data.formats.items import text_problem
from hyperproto.data.formats.tagged import OUTSIDE_NAME, Line, split_words
from hyperproto.errors import ConfigError, DataError
from hyperproto.estimators.few_shot import AUTO
from hyperproto.estimators.items import run_folder
from hyperproto.estimators.sentences import EntitySpan, Place, Sentences, places_of
from hyperproto.estimators.text import label_words

if TYPE_CHECKING:
    from hyperproto.encoders import Encoder, Units
    from hyperproto.episodes import Episode
    from hyperproto.estimators.tagger import EntityTagger
    from hyperproto.training.sources import Candidate, Source

Floats = NDArray[np.float32]

TOGETHER = 64  # sentences per episode
# Defaults: among the best without training data on Few-NERD's validation types, with MiniLM frozen and trained
# (results/entities/fewnerd-minilm-*-choices.json).
METHOD, TRANSFORM, OPTIONS = "cosine", "unit", {"path": True, "temperature": 0.05}


@dataclass(frozen=True, eq=False)
class Answer:
    """Tags (n,), scores and probabilities (n, n_classes) of the words of a sentence; class 0 is O."""

    classes: list[str]
    tags: list[str]
    scores: Floats
    probabilities: Floats
    emissions: NDArray[np.float64]  # (n, n_classes) log probabilities of each word that the tags were found by
    moves: tuple[
        NDArray[np.float64], NDArray[np.float64]
    ]  # log probabilities of first classes, and of one after another

    def places(self) -> list[tuple[Place, float]]:
        """Return the entities with their scores; see `span_probabilities`."""
        places = places_of(self.tags)
        if not places:
            return []
        spans = [(first, last, self.classes.index(kind)) for kind, first, last in places]
        return list(zip(places, span_probabilities(self.emissions, *self.moves, spans), strict=True))

    def accepted(self, threshold: float) -> "Answer":
        """Return the answer without entities whose score is below the threshold."""
        tags = [*self.tags]
        for (_, first, last), score in self.places():
            if score < threshold:
                tags[first:last] = [OUTSIDE_NAME] * (last - first)
        return replace(self, tags=tags)

    def spans(self, line: Line) -> list[EntitySpan]:
        """Return the entities of the sentence."""
        found = []
        for (kind, first, last), score in self.places():
            start, end = line.spans[first][0], line.spans[last - 1][1]
            found.append(EntitySpan(kind, line.text[start:end], start, end, score, first, last))
        return found


@dataclass(frozen=True, eq=False)
class Ready:
    """Method, encoder and encoded examples.

    The support of every answer is `support`: the examples, then a pseudo-sentence of one word for each description.
    """

    parameters: dict[str, Any]
    source: "Source"
    candidate: "Candidate"
    support: Pool
    units: "Units"
    n_examples: int
    threshold: float | None

    @classmethod
    def of(
        cls,
        tagger: "EntityTagger",
        sentences: Sentences,
        tags: Sentences,
        before: "Ready | None",
        progress: Progress | None = None,
    ) -> "Ready":
        """Make the method and encoder that the parameters select, and encode the examples.

        If the parameters are those of `before`, its encoder and the vectors of its examples are reused.
        """
        from hyperproto.encoders import Units

        parameters = deepcopy(tagger.get_params())
        names = descriptions(tagger.names, tags)
        examples = examples_pool(sentences, tags, names)
        again = before if before is not None and before.parameters == parameters else None
        source = _source(tagger, examples, None if again is None else again.source)
        candidate = _candidate(tagger, source)
        known = {} if again is None or source.encoder is not again.source.encoder else again.rows_of_sentences()
        new = list(dict.fromkeys(each for words in sentences if (each := tuple(words)) not in known))
        parts = [again.units] if again is not None and known else []
        start = len(again.support) if again is not None and known else 0
        if new:
            parts.append(_encode(candidate.encoder, _unlabelled(examples, [[*words] for words in new]), progress))
            known |= {words: n for n, words in enumerate(new, start=start)}
        parts = [Units.concatenated(parts).of_items(np.array([known[tuple(words)] for words in sentences]))]
        support = examples
        if names:
            kinds = [examples.class_names.index(name) for name in names]
            support = _longer(examples, [[name] for name in names.values()], np.array(kinds))
            parts.append(_described(candidate.encoder, examples, list(names.values())))
        units = Units.concatenated(parts)
        ready = cls(parameters, source, candidate, support, units, len(examples), None)
        return replace(ready, threshold=_threshold(tagger, ready))

    def rows_of_sentences(self) -> dict[tuple[str, ...], int]:
        """Return the row of each example in `support`, by its words."""
        return {tuple(words): n for n, words in enumerate(self.support.items[: self.n_examples])}

    @property
    def classes(self) -> list[str]:
        """Labels: O, then the types."""
        return [OUTSIDE_NAME, *self.support.class_names]

    @property
    def identity(self) -> dict[str, Any]:
        """Identity of the encoder, in the form of `ItemEncoder.identity`."""
        from hyperproto.estimators.networks import digest_of

        encoder = self.source.encoder
        name, options = encoder.made_from or (type(encoder).__qualname__, {})
        if self.source.method is not None:  # of a run
            name, options = "run", {"encoder": name, **options}
        return {"name": name, "options": options, "sha256": digest_of(encoder)}

    def answers(self, sentences: Sentences, progress: Progress | None) -> Iterator[Answer]:
        """Yield the answers for other sentences."""
        from hyperproto.encoders import Units
        from hyperproto.evaluation import EncodedPool

        pool = _longer(self.support, sentences, np.full(sum(map(len, sentences)), OUTSIDE))
        queries = _encode(self.candidate.encoder, _unlabelled(self.support, sentences), progress)
        encoded = EncodedPool(pool, self.candidate.encoder, Units.concatenated([self.units, queries]))
        types, support = list(range(pool.n_classes)), np.arange(len(self.support))
        starts = range(len(self.support), len(pool), TOGETHER)
        queried = [np.arange(start, min(start + TOGETHER, len(pool))) for start in starts]
        found = self._labelled(encoded, [_episode(pool, types, support, query) for query in queried], self.classes)
        for answer in found:
            yield answer if self.threshold is None else answer.accepted(self.threshold)

    def left_out(self) -> Iterator[tuple[int, Answer]]:
        """Yield each example with its answer when it is left out of the support.

        Examples without which no type, or no word of O, is left are skipped. Label transitions are those of all
        examples.
        """
        from hyperproto.evaluation import EncodedPool

        encoded = EncodedPool(self.support, self.candidate.encoder, self.units)
        labels, offsets = self.support.labels, self.support.unit_offsets
        owner = np.repeat(np.arange(len(self.support)), np.diff(offsets))
        for row in range(self.n_examples):
            rest = labels[owner != row]
            types = sorted({*rest.tolist()} - {OUTSIDE})
            if not types or not (rest == OUTSIDE).any():
                continue
            support = np.delete(np.arange(len(self.support)), row)
            classes = [OUTSIDE_NAME, *(self.support.class_names[n] for n in types)]
            episode = _episode(self.support, types, support, np.array([row]))
            for answer in self._labelled(encoded, [episode], classes):
                yield row, answer

    def _labelled(self, encoded: Any, episodes: "Sequence[Episode]", classes: list[str]) -> Iterator[Answer]:
        """Yield the answer for each query sentence of each episode."""
        from hyperproto.evaluation import score_episodes

        predictor = self.candidate.predictor
        path, outside = predictor.decision.path, predictor.decision.outside
        way = len(classes)
        moves = np.zeros(way), np.zeros((way, way))
        if path is not None and path.fitted:
            start, then = path.expanded(way - 1)
            moves = start.cpu().numpy(), then.cpu().numpy()
        for task, scores in score_episodes(predictor, encoded, episodes):
            logits = predictor.method.logits(scores)
            labels = predictor.decide(scores, task).cpu().tolist()
            adjusted = outside.added_to(logits, task.query) if outside is not None and outside.fitted else logits
            emissions = adjusted.double().log_softmax(-1).cpu().numpy()
            shown, shares = scores.float().cpu().numpy(), logits.softmax(-1).float().cpu().numpy()
            for row, offsets in enumerate(task.query_offsets.tolist()):
                for first, last in pairwise(offsets):
                    if last > first:
                        tags = [classes[label] for label in labels[row][first:last]]
                        part = row, slice(first, last)
                        yield Answer(classes, tags, shown[part], shares[part], emissions[part], moves)


def span_probabilities(
    emissions: NDArray[np.float64],
    start: NDArray[np.float64],
    moves: NDArray[np.float64],
    spans: Sequence[tuple[int, int, int]],
) -> list[float]:
    """Return the probability of each span (first word, one past the last, class) of a sentence.

    It is that of all labellings in which exactly these words are a run of the class: the words next to it have other
    classes. A labelling's weight is the product of the probabilities of its words and of its moves. `emissions` (n, C)
    are log probabilities of words, `start` (C,) of first classes, `moves` (C, C) of a class (row) before another.
    """
    before, after = np.empty_like(emissions), np.zeros_like(emissions)  # forward and backward sums, logarithms
    before[0] = start + emissions[0]
    for word in range(1, len(emissions)):
        before[word] = np.logaddexp.reduce(before[word - 1][:, None] + moves, axis=0) + emissions[word]
    for word in range(len(emissions) - 2, -1, -1):
        after[word] = np.logaddexp.reduce(moves + emissions[word + 1] + after[word + 1], axis=1)
    total = np.logaddexp.reduce(before[-1])
    found = []
    for first, last, kind in spans:
        others = np.arange(len(start)) != kind
        left = start[kind] if first == 0 else np.logaddexp.reduce((before[first - 1] + moves[:, kind])[others])
        inside = emissions[first:last, kind].sum() + (last - first - 1) * moves[kind, kind]
        right = 0.0
        if last < len(emissions):
            right = np.logaddexp.reduce((moves[kind] + emissions[last] + after[last])[others])
        found.append(float(np.exp(min(0.0, left + inside + right - total))))
    return found


def descriptions(names: Any, tags: Sentences) -> dict[str, str]:
    """Return the description of each type that has one: the texts of a mapping or, for "auto", the types in words."""
    if names is None:
        return {}
    if isinstance(names, Mapping):
        found = dict(names)
    elif names == AUTO:
        types = sorted({tag for row in tags for tag in row} - {OUTSIDE_NAME})
        found = {name: text for name in types if (text := label_words(name))}
    else:
        raise ConfigError(f"names={names!r:.60}: give 'auto', a mapping from types to texts, or None")
    for name, text in found.items():
        if not isinstance(name, str) or name in ("", OUTSIDE_NAME):
            raise ConfigError(f"names: {name!r:.60} is no type; a type is a string, and not {OUTSIDE_NAME!r}")
        if problem := text_problem(text):
            raise ConfigError(f"names: the description of {name!r} {problem}")
    return found


def examples_pool(sentences: Sentences, tags: Sentences, names: Mapping[str, str]) -> Pool:
    """Return a pool of annotated sentences; its classes are their types and the described ones."""
    types = sorted({tag for row in tags for tag in row} - {OUTSIDE_NAME} | {*names})
    if not types:
        raise DataError(f"every word is {OUTSIDE_NAME}; mark at least one entity")
    number = {name: n for n, name in enumerate(types)} | {OUTSIDE_NAME: OUTSIDE}
    labels = np.array([number[tag] for row in tags for tag in row], np.int64)
    offsets = np.cumsum([0, *map(len, sentences)])
    return Pool(sentences, labels, tuple(types), name="examples", split="all", offsets=offsets)


def _threshold(tagger: "EntityTagger", ready: Ready) -> float | None:
    """Return the smallest score of an entity that is tagged: as given, or by leaving out each example in turn."""
    given, rate = tagger.threshold, tagger.reject_rate
    for name, value in (("threshold", given), ("reject_rate", rate)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1):
            raise ConfigError(f"{name}={value!r:.60}: give a number from 0 to 1, excluding 1, or None")
    if given is not None and rate is not None:
        raise ConfigError(f"threshold={given!r} and reject_rate={rate!r}: give one of them")
    if rate is None:
        return given
    right = []
    for row, answer in ready.left_out():
        start, end = ready.support.unit_offsets[row : row + 2].tolist()
        truth = set(places_of([ready.classes[label + 1] for label in ready.support.labels[start:end].tolist()]))
        right += [score for place, score in answer.places() if place in truth]
    place = floor(rate * (len(right) + 1))
    if place == 0 and rate > 0:
        warn(
            f"reject_rate={rate}: {len(right)} entities are found when their sentence is left out, and this rate needs "
            f"{int(np.ceil(1 / rate)) - 1}; nothing is rejected: annotate more sentences, or raise the rate",
            stacklevel=5,
        )
    return sorted(right)[place - 1] if place else 0.0


def _source(tagger: "EntityTagger", examples: Pool, before: "Source | None") -> "Source":
    """Return the source of vectors, a run or a named encoder (that of `before`); the examples are its training data."""
    from hyperproto.training.sources import encoder_source, run_source

    if not isinstance(tagger.encoder, str | PathLike):
        raise ConfigError(
            f"encoder {tagger.encoder!r} ({type(tagger.encoder).__name__}) is not valid; give the name of an encoder "
            "or the folder of a run"
        )
    folder = run_folder(tagger.encoder)
    if folder is not None:
        source = run_source(str(folder), examples)
    else:
        source = before or encoder_source(fspath(tagger.encoder), examples, examples)
    return replace(source, train_data=examples)


def _candidate(tagger: "EntityTagger", source: "Source") -> "Candidate":
    """Return the encoder with the selected method, closed form and transform."""
    from hyperproto.training.sources import check_choices, make_candidate

    if not isinstance(tagger.options, Mapping | None):
        raise ConfigError(f"options={tagger.options!r}: give a mapping of names to values, such as {{'path': True}}")
    for name in ("method", "fit_mode", "feature_transform"):
        if not isinstance(value := getattr(tagger, name), str | None):
            raise ConfigError(f"{name}={value!r}: give a name, or None")
    method, options, transform = tagger.method, dict(tagger.options or {}), tagger.feature_transform
    if method is None and (source.method is None or tagger.fit_mode is None):
        method, transform, options = METHOD, transform or TRANSFORM, {**OPTIONS, **options}
    name = source.own_method if method is None else method
    fits, transforms = ([] if each is None else [each] for each in (tagger.fit_mode, transform))
    check_choices([name], fits, transforms, options)
    return make_candidate(source, name, tagger.fit_mode, transform, options)


def _encode(encoder: "Encoder", pool: Pool, progress: Progress | None) -> "Units":
    """Encode the words of a pool, one vector per word."""
    units = encoder.encode_all(encoder.prepare(pool.items), progress)
    if not np.array_equal(units.offsets, pool.unit_offsets):
        raise ConfigError(f"{type(encoder).__qualname__} does not give a vector for each word; name one that does")
    return units


def _described(encoder: "Encoder", examples: Pool, texts: Sequence[str]) -> "Units":
    """Return the vector of each description: the mean over its words, read as a sentence."""
    from hyperproto.encoders import Units

    words = [[text[start:end] for start, end in split_words(text)] for text in texts]
    units = _encode(encoder, _unlabelled(examples, words), None)
    offsets = units.offsets.tolist()
    means = [units.x[start:end].mean(0, keepdim=True) for start, end in pairwise(offsets)]
    return Units.concatenated([Units.one_each(mean) for mean in means])


def _unlabelled(examples: Pool, sentences: Sentences) -> Pool:
    """Return a pool of sentences without labels, with the classes of the examples."""
    offsets = np.cumsum([0, *map(len, sentences)])
    return replace(examples, items=sentences, labels=np.full(offsets[-1], OUTSIDE), offsets=offsets)


def _longer(pool: Pool, sentences: Sentences, labels: NDArray[np.int64]) -> Pool:
    """Return a pool followed by further sentences with the labels of their words."""
    items: Any = [*pool.items, *sentences]
    return replace(
        pool, items=items, labels=np.concatenate([pool.labels, labels]), offsets=np.cumsum([0, *map(len, items)])
    )


def _episode(pool: Pool, types: list[int], support: NDArray[np.int64], query: NDArray[np.int64]) -> "Episode":
    """Return an episode of some types with given support and query sentences."""
    from hyperproto.episodes import Episode
    from hyperproto.episodes.episode import token_classes, token_labels

    return Episode(token_classes(pool, types), support, token_labels(pool, types, support), query, None)
