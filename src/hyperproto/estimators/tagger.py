"""EntityTagger: few-shot tagger of words. torch is imported when there are words to encode."""

import json
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

import hyperproto
from hyperproto.data import OUTSIDE, Pool, Progress
from hyperproto.data.conll import SCHEMES, io_pool
from hyperproto.data.formats.tagged import OUTSIDE_NAME, Tagged, find_spans, labels_of_sentences
from hyperproto.errors import ConfigError, DataError, unknown_name
from hyperproto.estimators.attributes import copy_fitted
from hyperproto.estimators.items import encoder_in_words, run_folder, same_vectors
from hyperproto.estimators.storage import AGAIN, identity_problems, model_lock, read_checked
from hyperproto.files import atomic_write, is_utf8, json_checksum
from hyperproto.registry import Trust, TrustError, trust_names
from hyperproto.registry import trust as trust_files

if TYPE_CHECKING:
    from hyperproto.encoders import Encoder, Units
    from hyperproto.episodes import Episode
    from hyperproto.training.sources import Candidate, Source

Floats = NDArray[np.float32]
Sentences = list[list[str]]

FORMAT = "hyperproto-tagger/1"
FILE = "tagger.json"
_CHANGING = RLock()  # one thread at a time changes a tagger, so that no addition is lost
TOGETHER = 64  # sentences per episode
# Defaults: among the best without training data on Few-NERD's validation types, with MiniLM frozen and trained
# (results/entities/fewnerd-minilm-*-choices.json).
METHOD, TRANSFORM, OPTIONS = "cosine", "unit", {"path": True, "temperature": 0.05}


class EntityTagger(BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
    """Few-shot tagger: labels the words of sentences after a few annotated ones; nothing is trained.

    A sentence is a list of words, and each word has a tag: a type, or "O" for none. BIO and BIOES tags are read as IO.
    A few-shot method, such as prototypes or regions, fits each type and O to its words.

    Parameters
    ----------
    encoder : "minilm" or another language model by its name, or the folder of a run that `hyperproto train` made on
        tagged sentences.
    method : name of a few-shot method. None: cosine prototypes on vectors of length 1 with Viterbi decoding, at a
        temperature chosen on Few-NERD's validation types; for a run with a `fit_mode`, the run's own method.
    fit_mode : closed form of the method, such as "bayes"; None: its default.
    feature_transform : "none", "unit" or "center-unit"; None: "unit", or that of the named run or method.
    options : further options of the method and the decision, such as {"path": True, "tau": 0.3}. Label transitions, the
        centre and the model of O are estimated from the examples instead of training data.
    scheme : scheme of the tags: "auto", "io", "bio" or "bioes".

    Attributes
    ----------
    classes_ : "O", then the types in alphabetical order.
    sentences_, tags_ : examples, with IO tags.
    encoder_ : name, options and weight checksum of the encoder.

    Examples
    --------
    >>> from hyperproto import EntityTagger
    >>> sentences = [["Marie", "Curie", "worked", "in", "Paris"], ["The", "mayor", "of", "Berlin", "met", "Angela"]]
    >>> tags = [["person", "person", "O", "O", "city"], ["O", "O", "O", "city", "O", "person"]]
    >>> EntityTagger().fit(sentences, tags).predict([["Albert", "moved", "to", "Rome"]])
    [['person', 'O', 'O', 'city']]
    """

    classes_: list[str]
    sentences_: Sentences
    tags_: Sentences
    encoder_: Mapping[str, Any]

    def __init__(
        self,
        *,
        encoder: str | PathLike[str] = "minilm",
        method: str | None = None,
        fit_mode: str | None = None,
        feature_transform: str | None = None,
        options: Mapping[str, Any] | None = None,
        scheme: str = "auto",
    ) -> None:
        self.encoder = encoder
        self.method = method
        self.fit_mode = fit_mode
        self.feature_transform = feature_transform
        self.options = options
        self.scheme = scheme

    def fit(self, X: Any, y: Any) -> Self:
        """Fit to annotated sentences: `X` is a list of lists of words, `y` their tags in the same shape."""
        trust_names([self.method])  # named by the user; `load` asks before it imports what a saved tagger names
        return self._take(*self._examples(X, y))

    def partial_fit(self, X: Any, y: Any) -> Self:
        """Add annotated sentences of old or new types, with the same result as a fit to all sentences."""
        if not self.__sklearn_is_fitted__():
            return self.fit(X, y)
        sentences, tags = self._examples(X, y)
        with _CHANGING:
            return self._take([*self.sentences_, *sentences], [*self.tags_, *tags])

    def predict(self, X: Any, *, progress: Progress | None = None) -> Sentences:
        """Return the tag of each word, "O" or a type, for each sentence; with `path`, by Viterbi decoding."""
        return [[found.classes[label] for label in found.labels] for found in self._answers(X, progress)]

    def predict_proba(self, X: Any, *, progress: Progress | None = None) -> list[Floats]:
        """Return the probability of each class for each word, one array (n_words, n_classes) per sentence.

        This is a softmax for each word by itself, without the label transitions that `predict` may use.
        """
        return [found.probabilities for found in self._answers(X, progress)]

    def decision_function(self, X: Any, *, progress: Progress | None = None) -> list[Floats]:
        """Return the method's scores, one array (n_words, n_classes) per sentence; higher is more likely."""
        return [found.scores for found in self._answers(X, progress)]

    def entities(self, X: Any, *, progress: Progress | None = None) -> list[list[tuple[str, int, int]]]:
        """Return the entities of each sentence as (type, first word, one past the last word), counted from 0."""
        entities = []
        for found in self._answers(X, progress):
            numbers = np.array([OUTSIDE if label == 0 else label for label in found.labels])  # 0 is O
            spans = find_spans(numbers, np.array([0, len(numbers)]))
            places = zip(spans.label.tolist(), spans.start.tolist(), spans.end.tolist(), strict=True)
            entities.append([(found.classes[label], start, end) for label, start, end in places])
        return entities

    def save(self, folder: str | PathLike[str]) -> None:
        """Write examples, parameters and the identity of the encoder, but not the encoder, to tagger.json."""
        check_is_fitted(self)
        run = run_folder(self.encoder)
        content = {
            "format": FORMAT,
            "hyperproto": hyperproto.__version__,
            "parameters": {**self.get_params(), "encoder": fspath(self.encoder) if run is None else str(run)},
            "encoder": self.encoder_,
            "sentences": self.sentences_,
            "tags": self.tags_,
        }
        try:
            text = json.dumps({**content, "checksum": json_checksum(content)}, indent=1, ensure_ascii=False).encode()
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"options={self.options!r} cannot be written as JSON ({error}); use plain values"
            ) from None
        with model_lock(folder), atomic_write(Path(folder) / FILE) as file:
            file.write(text + b"\n")

    @classmethod
    def load(
        cls, folder: str | PathLike[str], *, encoder: str | PathLike[str] | None = None, trust: Trust = None
    ) -> Self:
        """Read a tagger that `save` wrote; changed files and an encoder with other weights are refused.

        `encoder` replaces the saved one, such as a run that moved. `trust` names .py files that the tagger or its run
        may import.
        """
        trust_files(trust)
        saved = read_checked(Path(folder) / FILE, FORMAT, "tagger")
        try:
            loaded = cls(**{**saved["parameters"], **({} if encoder is None else {"encoder": encoder})})
            sentences, tags = check_examples(saved["sentences"], saved["tags"])
            for problem in identity_problems(saved["encoder"]):
                raise DataError(problem)
        except (DataError, KeyError, TypeError) as error:
            raise DataError(f"{Path(folder) / FILE}: no saved tagger is like that ({error}); {AGAIN}") from None
        if saved["encoder"]["name"] == "run" and run_folder(loaded.encoder) is None:
            raise DataError(
                f"{folder}: was fitted to vectors of {encoder_in_words(saved['encoder'])}, and there is no run in "
                f"{loaded.encoder}; if it moved, say where: {cls.__name__}.load(folder, encoder=...)"
            )
        try:
            loaded._take(sentences, tags)
        except TrustError as error:
            raise TrustError(f"{Path(folder) / FILE}: {error}") from None
        if not same_vectors(loaded.encoder_, saved["encoder"]):
            raise DataError(
                f"{folder}: was fitted to vectors of {encoder_in_words(saved['encoder'])}, but {loaded.encoder!r} is "
                f"now {encoder_in_words(loaded.encoder_)}; use the encoder of the fit, or fit again"
            )
        return loaded

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether there are examples."""
        return hasattr(self, "sentences_")

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """Return the class with the encoder and all parameters that differ from the defaults."""
        defaults = type(self)().get_params()
        changed = [f"{key}={value!r}" for key, value in self.get_params().items() if value != defaults[key]]
        given = [f"encoder={fspath(self.encoder)!r}", *(each for each in changed if not each.startswith("encoder="))]
        return f"{type(self).__name__}({', '.join(given)})"

    def __copy__(self) -> Self:
        """Return an independent copy that shares the encoder."""
        copied: Self = copy_fitted(self, shared=("_ready",))
        return copied

    def __getstate__(self) -> dict[str, Any]:
        """Return parameters and examples; the network is loaded again."""
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_ready"}

    def _examples(self, X: Any, y: Any) -> tuple[Sentences, Sentences]:
        """Check annotated sentences; return their words and IO tags."""
        if self.scheme not in ("auto", "io", *SCHEMES):
            raise ConfigError(unknown_name("scheme of tags called", str(self.scheme), ("auto", "io", *SCHEMES)))
        sentences, tags = check_examples(X, y)
        pool = io_pool(_ListedSentences.of(sentences, tags), self.scheme, name="examples", split="all")
        return sentences, labels_of_sentences(pool)

    def _take(self, sentences: Sentences, tags: Sentences) -> Self:
        """Fit to these examples; an error changes nothing."""
        pool = io_pool(_ListedSentences.of(sentences, tags), "io", name="examples", split="all")
        if not pool.n_classes:
            raise DataError(f"every word is {OUTSIDE_NAME}; mark at least one entity")
        try:
            ready = _Ready.of(self, pool, getattr(self, "_ready", None))
        except ImportError as error:
            raise ConfigError(f"encoders run on torch ({error}); pip install 'hyperproto[text]'") from error
        self._ready = ready
        self.sentences_, self.tags_ = sentences, tags
        self.classes_ = [*ready.classes]
        self.encoder_ = ready.identity
        return self

    def _answers(self, X: Any, progress: Progress | None) -> "list[_Answer]":
        check_is_fitted(self)
        sentences = check_sentences_of_words(X, "X", "words")
        ready: _Ready | None = getattr(self, "_ready", None)
        if ready is None or ready.parameters != self.get_params():
            with _CHANGING:
                ready = self._take(self.sentences_, self.tags_)._ready  # after unpickling or a change of parameters
        return list(ready.answers(sentences, progress)) if sentences else []


@dataclass(frozen=True, eq=False)
class _Answer:
    """Labels (n,), scores and probabilities (n, n_classes) of the words of a sentence."""

    classes: list[str]
    labels: list[int]
    scores: Floats
    probabilities: Floats


@dataclass(frozen=True, eq=False)
class _Ready:
    """Method, encoder and encoded examples: everything that is derived from parameters and examples."""

    parameters: dict[str, Any]
    source: "Source"
    candidate: "Candidate"
    examples: Pool
    units: "Units"

    @classmethod
    def of(cls, tagger: EntityTagger, examples: Pool, before: "_Ready | None") -> "_Ready":
        """Make the method and encoder that the parameters select, and encode the examples.

        If the parameters are those of `before`, its encoder and the vectors of its examples are reused.
        """
        from hyperproto.encoders import Units

        parameters = deepcopy(tagger.get_params())
        again = before if before is not None and before.parameters == parameters else None
        source = _source(tagger, examples, None if again is None else again.source)
        candidate = _candidate(tagger, source)
        known = []
        if again is not None and source.encoder is again.source.encoder:
            known = [again.units] * (examples.items[: len(again.examples)] == again.examples.items)
        new = examples.items[len(known[0].offsets) - 1 :] if known else examples.items
        fresh = [_encode(candidate.encoder, _with_sentences(examples, new, alone=True), None)] if new else []
        return cls(parameters, source, candidate, examples, Units.concatenated([*known, *fresh]))

    @property
    def classes(self) -> list[str]:
        """Labels: O, then the types."""
        return [OUTSIDE_NAME, *self.examples.class_names]

    @property
    def identity(self) -> dict[str, Any]:
        """Identity of the encoder, in the form of `ItemEncoder.identity`."""
        from hyperproto.estimators.networks import digest_of

        encoder = self.source.encoder
        name, options = encoder.made_from or (type(encoder).__qualname__, {})
        if self.source.method is not None:  # of a run
            name, options = "run", {"encoder": name, **options}
        return {"name": name, "options": options, "sha256": digest_of(encoder)}

    def answers(self, sentences: Sentences, progress: Progress | None) -> Iterator[_Answer]:
        """Yield the answers for other sentences."""
        from hyperproto.encoders import Units
        from hyperproto.evaluation import EncodedPool

        pool = _with_sentences(self.examples, sentences)
        queries = _encode(self.candidate.encoder, _with_sentences(self.examples, sentences, alone=True), progress)
        encoded = EncodedPool(pool, self.candidate.encoder, Units.concatenated([self.units, queries]))
        lengths = iter([len(words) for words in sentences])
        for labels, scores, probabilities in _labelled(self.candidate, encoded, _episodes(pool, len(self.examples))):
            start = 0
            while start < len(labels):
                part = slice(start, start + next(lengths))
                yield _Answer(self.classes, labels[part].tolist(), scores[part], probabilities[part])
                start = part.stop


def _source(tagger: EntityTagger, examples: Pool, before: "Source | None") -> "Source":
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


def _candidate(tagger: EntityTagger, source: "Source") -> "Candidate":
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


def _labelled(candidate: "Candidate", encoded: Any, episodes: "Sequence[Episode]") -> Iterator[Any]:
    """Yield labels (n,), scores and probabilities (n, n_classes) of the query words of each episode."""
    from hyperproto.evaluation import score_episodes

    predictor = candidate.predictor
    for task, scores in score_episodes(predictor, encoded, episodes):
        labels = predictor.decide(scores, task).cpu().numpy()
        probabilities = predictor.method.logits(scores).softmax(-1).float().cpu().numpy()
        for row, end in enumerate(task.query_offsets[:, -1].tolist()):
            yield labels[row, :end], scores[row, :end].float().cpu().numpy(), probabilities[row, :end]


def _encode(encoder: "Encoder", pool: Pool, progress: Progress | None) -> "Units":
    """Encode the words of a pool, one vector per word."""
    units = encoder.encode_all(encoder.prepare(pool.items), progress)
    if not np.array_equal(units.offsets, pool.unit_offsets):
        raise ConfigError(f"{type(encoder).__qualname__} does not give a vector for each word; name one that does")
    return units


def _with_sentences(examples: Pool, sentences: Sentences, alone: bool = False) -> Pool:
    """Return a pool of the examples followed by sentences without labels, or of these `alone`."""
    items = sentences if alone else [*examples.items, *sentences]
    offsets = np.cumsum([0, *map(len, items)])
    unknown = np.full(sum(map(len, sentences)), OUTSIDE)
    labels = unknown if alone else np.concatenate([examples.labels, unknown])
    return replace(examples, items=items, labels=labels, offsets=offsets)


def _episodes(pool: Pool, n_examples: int) -> "list[Episode]":
    """Return episodes whose support is all examples, and whose queries are the other sentences in turn."""
    from hyperproto.episodes import Episode
    from hyperproto.episodes.episode import token_classes, token_labels

    types = list(range(pool.n_classes))
    support = np.arange(n_examples)
    examples = token_classes(pool, types), support, token_labels(pool, types, support)
    starts = range(n_examples, len(pool), TOGETHER)
    return [Episode(*examples, np.arange(start, min(start + TOGETHER, len(pool))), None) for start in starts]


class _ListedSentences(Tagged):
    """Sentences given as lists; messages name positions in the lists."""

    @classmethod
    def of(cls, sentences: Sentences, tags: Sentences) -> "_ListedSentences":
        """Return tagged sentences with the tags encoded as numbers."""
        flat = [tag for row in tags for tag in row]
        names = {name: number for number, name in enumerate(dict.fromkeys(flat))}
        lengths = [len(words) for words in sentences]
        offsets = np.cumsum([0, *lengths])
        sentence = np.repeat(np.arange(len(sentences)), lengths)
        return cls(Path("y"), sentences, np.array([names[tag] for tag in flat]), tuple(names), offsets, sentence)

    def place_of(self, label: int) -> str:
        """Return the position of the first sentence with this label."""
        return f"{self.path}[{self.line_of(label)}]"


def check_examples(X: Any, y: Any) -> tuple[Sentences, Sentences]:
    """Return lists of words and of their tags; refuse words without a tag."""
    sentences, tags = check_sentences_of_words(X, "X", "words"), check_sentences_of_words(y, "y", "tags")
    if len(sentences) != len(tags):
        raise DataError(f"X has {len(sentences)} sentences, but y tags of {len(tags)}; give each word a tag")
    for row, (words, its) in enumerate(zip(sentences, tags, strict=True)):
        if len(words) != len(its):
            raise DataError(f"X[{row}] has {len(words)} words, but y[{row}] {len(its)} tags; give each word a tag")
    return sentences, tags


def check_sentences_of_words(X: Any, name: str, words: str) -> Sentences:
    """Return lists of lists of strings; messages call them `name` and the strings `words`."""
    if isinstance(X, str) or not hasattr(X, "__iter__"):
        raise DataError(f"{name} is {X!r}; give a list of sentences, each a list of {words}")
    sentences: Sentences = []
    for row, sentence in enumerate(X):
        if isinstance(sentence, str) or not hasattr(sentence, "__iter__"):
            raise DataError(f"{name}[{row}] is {sentence!r}; a sentence is a list of {words}")
        sentences.append(list(sentence))
        if not sentences[-1]:
            raise DataError(f"{name}[{row}] holds no {words}; leave empty sentences out")
        for place, word in enumerate(sentences[-1]):
            if not isinstance(word, str) or not word:
                raise DataError(f"{name}[{row}][{place}] is {word!r}; each of the {words} is a string, and not empty")
            if not is_utf8(word):
                raise DataError(
                    f"{name}[{row}][{place}] is {word!r}, which holds half a character; correct or remove it"
                )
        sentences[-1] = [str(word) for word in sentences[-1]]  # NumPy's strings are a subclass of str
    return sentences
