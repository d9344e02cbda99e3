"""EntityTagger: few-shot tagger of words. torch is imported when there are words to encode."""

import json
from collections import Counter
from collections.abc import Mapping
from os import PathLike, fspath
from pathlib import Path
from threading import RLock
from typing import Any, Self

from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

import hyperproto
from hyperproto.data import Progress
from hyperproto.data.formats.tagged import OUTSIDE_NAME, Line
from hyperproto.errors import ConfigError, DataError, unknown_name
from hyperproto.estimators.attributes import copy_fitted
from hyperproto.estimators.items import encoder_in_words, run_folder, same_vectors
from hyperproto.estimators.sentences import (
    EntitySpan,
    Place,
    Sentences,
    TypeScores,
    bio_tags,
    count_spans,
    places_of,
    read_examples,
    read_sentences,
    scores_of,
)
from hyperproto.estimators.storage import AGAIN, identity_problems, model_lock, read_checked
from hyperproto.estimators.tagging import Answer, Floats, Ready
from hyperproto.files import atomic_write, json_checksum
from hyperproto.registry import Trust, TrustError, trust_names
from hyperproto.registry import trust as trust_files

FORMAT = "hyperproto-tagger/2"
FORMATS = ("hyperproto-tagger/1", FORMAT)  # the first has no names, threshold and reject_rate
FILE = "tagger.json"
SCHEMES_OUT = ("io", "bio")
_CHANGING = RLock()  # one thread at a time changes a tagger, so that no addition is lost


class EntityTagger(BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
    """Few-shot tagger: labels the words of sentences after a few annotated ones; nothing is trained.

    A sentence is a text, annotated by spans (start, end, type) of characters, or a list of words with a tag for each: a
    type, or "O" for none. Texts are split into runs of letters, digits and underscores, and single punctuation marks.
    BIO and BIOES tags are read as IO. A few-shot method, such as prototypes or regions, fits each type and O to its
    words.

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
    scheme : scheme of the given tags: "auto", "io", "bio" or "bioes".
    names : descriptions of types. The mean vector of a description's words is one more example of its type. A mapping
        from types to texts: a type in it needs no annotated entity. "auto": the types in words. None: no descriptions.
    threshold : smallest score of an entity; the words of others are tagged O. None: every entity is tagged.
    reject_rate : share of right entities that may be lost by rejection, such as 0.05: the threshold is chosen by
        leaving out each annotated sentence in turn.

    Attributes
    ----------
    classes_ : "O", then the types in alphabetical order.
    sentences_, tags_ : examples: words, with IO tags.
    threshold_ : threshold in use, or None.
    encoder_ : name, options and weight checksum of the encoder.

    Examples
    --------
    >>> from hyperproto import EntityTagger
    >>> sentences = [["Marie", "Curie", "worked", "in", "Paris"], ["The", "mayor", "of", "Berlin", "met", "Angela"]]
    >>> tags = [["person", "person", "O", "O", "city"], ["O", "O", "O", "city", "O", "person"]]
    >>> tagger = EntityTagger().fit(sentences, tags)
    >>> tagger.predict([["Albert", "moved", "to", "Rome"]])
    [['person', 'O', 'O', 'city']]
    >>> [(span.type, span.text, span.start) for span in tagger.spans(["Albert moved to Rome."])[0]]
    [('person', 'Albert', 0), ('city', 'Rome', 16)]
    """

    classes_: list[str]
    sentences_: Sentences
    tags_: Sentences
    encoder_: Mapping[str, Any]
    names = threshold = reject_rate = None  # of pickles that were made before they were parameters

    def __init__(
        self,
        *,
        encoder: str | PathLike[str] = "minilm",
        method: str | None = None,
        fit_mode: str | None = None,
        feature_transform: str | None = None,
        options: Mapping[str, Any] | None = None,
        scheme: str = "auto",
        names: Mapping[str, str] | str | None = None,
        threshold: float | None = None,
        reject_rate: float | None = None,
    ) -> None:
        self.encoder = encoder
        self.method = method
        self.fit_mode = fit_mode
        self.feature_transform = feature_transform
        self.options = options
        self.scheme = scheme
        self.names = names
        self.threshold = threshold
        self.reject_rate = reject_rate

    def fit(self, X: Any, y: Any, *, progress: Progress | None = None) -> Self:
        """Fit to annotated sentences: texts with spans (start, end, type), or lists of words with a tag for each."""
        trust_names([self.method])  # named by the user; `load` asks before it imports what a saved tagger names
        return self._take(*read_examples(X, y, self.scheme), progress)

    def partial_fit(self, X: Any, y: Any, *, progress: Progress | None = None) -> Self:
        """Add annotated sentences of old or new types, with the same result as a fit to all sentences."""
        if not self.__sklearn_is_fitted__():
            return self.fit(X, y, progress=progress)
        sentences, tags = read_examples(X, y, self.scheme)
        with _CHANGING:
            return self._take([*self.sentences_, *sentences], [*self.tags_, *tags], progress)

    def forget(self, X: Any, y: Any) -> Self:
        """Remove annotated sentences, with the same result as a fit without them.

        Each must have been added with the same words and tags. A type without examples and description is removed, too.
        """
        check_is_fitted(self)
        sentences, tags = read_examples(X, y, self.scheme)
        with _CHANGING:
            rest = list(zip(self.sentences_, self.tags_, strict=True))
            for row, example in enumerate(zip(sentences, tags, strict=True)):
                if example not in rest:
                    known = "it has other tags there" if example[0] in self.sentences_ else "there is no such sentence"
                    raise DataError(f"X[{row}] is not among the examples ({known}); remove only what was added")
                rest.remove(example)
            return self._take([words for words, _ in rest], [its for _, its in rest])

    def remove_class(self, label: str) -> Self:
        """Remove a type: from now on its annotated words are O, as those of any type that is not asked for."""
        check_is_fitted(self)
        with _CHANGING:
            if label not in self.classes_[1:]:
                raise DataError(f"there is no type {label!r}; the types are {', '.join(self.classes_[1:])}")
            if isinstance(self.names, Mapping) and label in self.names:
                raise ConfigError(f"{label!r} has a description; take it out of names first: set_params(names=...)")
            tags = [[OUTSIDE_NAME if tag == label else tag for tag in row] for row in self.tags_]
            return self._take(self.sentences_, tags)

    def predict(self, X: Any, *, scheme: str = "io", progress: Progress | None = None) -> Sentences:
        """Return the tag of each word, "O" or a type, for each sentence; with `path`, by Viterbi decoding.

        `scheme` "bio" puts B- before the type of an entity's first word and I- before that of the others.
        """
        if scheme not in SCHEMES_OUT:
            raise ConfigError(unknown_name("scheme of predicted tags called", str(scheme), SCHEMES_OUT))
        found = [answer.tags for _, answer in self._answers(X, progress)]
        return found if scheme == "io" else [bio_tags(tags) for tags in found]

    def predict_proba(self, X: Any, *, progress: Progress | None = None) -> list[Floats]:
        """Return the probability of each class for each word, one array (n_words, n_classes) per sentence.

        This is a softmax for each word by itself, without the label transitions that `predict` may use.
        """
        return [answer.probabilities for _, answer in self._answers(X, progress)]

    def decision_function(self, X: Any, *, progress: Progress | None = None) -> list[Floats]:
        """Return the method's scores, one array (n_words, n_classes) per sentence; higher is more likely."""
        return [answer.scores for _, answer in self._answers(X, progress)]

    def entities(self, X: Any, *, progress: Progress | None = None) -> list[list[Place]]:
        """Return the entities of each sentence as (type, first word, one past the last word), counted from 0."""
        return [places_of(answer.tags) for _, answer in self._answers(X, progress)]

    def spans(self, X: Any, *, progress: Progress | None = None) -> list[list[EntitySpan]]:
        """Return the entities of each sentence with their text, characters, words and scores; see `EntitySpan`."""
        return [answer.spans(line) for line, answer in self._answers(X, progress)]

    def score(self, X: Any, y: Any) -> float:
        """Return the micro F1 of exact spans: an entity is right if its words and its type are."""
        counts = self._counts(X, y)
        return scores_of(sum(counts.values(), Counter())).f1

    def f1_by_type(self, X: Any, y: Any) -> dict[str, TypeScores]:
        """Return F1, precision, recall and the number of true entities of each type that is annotated or predicted."""
        return {kind: scores_of(count) for kind, count in self._counts(X, y).items()}

    def _counts(self, X: Any, y: Any) -> dict[str, Counter[str]]:
        check_is_fitted(self)
        _, truth = read_examples(X, y, self.scheme)
        return count_spans(truth, self.predict(X))

    @property
    def threshold_(self) -> float | None:
        """Smallest score of an entity that is tagged; None if every entity is."""
        if not self.__sklearn_is_fitted__():
            raise AttributeError("threshold_")
        return self._current().threshold

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
        saved = read_checked(Path(folder) / FILE, FORMATS, "tagger")
        try:
            loaded = cls(**{**saved["parameters"], **({} if encoder is None else {"encoder": encoder})})
            sentences, tags = _words_and_tags(saved["sentences"], saved["tags"])
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

    def _take(self, sentences: Sentences, tags: Sentences, progress: Progress | None = None) -> Self:
        """Fit to these examples; an error changes nothing."""
        try:
            ready = Ready.of(self, sentences, tags, getattr(self, "_ready", None), progress)
        except ImportError as error:
            raise ConfigError(f"encoders run on torch ({error}); pip install 'hyperproto[text]'") from error
        self._ready = ready
        self.sentences_, self.tags_ = sentences, tags
        self.classes_ = [*ready.classes]
        self.encoder_ = ready.identity
        return self

    def _current(self) -> Ready:
        """Return what follows from the parameters and examples; made again after unpickling or a change of them."""
        ready: Ready | None = getattr(self, "_ready", None)
        if ready is None or ready.parameters != self.get_params():
            with _CHANGING:
                ready = self._take(self.sentences_, self.tags_)._ready
        return ready

    def _answers(self, X: Any, progress: Progress | None) -> list[tuple[Line, Answer]]:
        """Return the words and the answer of each sentence."""
        check_is_fitted(self)
        lines = read_sentences(X)
        ready = self._current()
        found = ready.answers([line.words for line in lines], progress) if lines else ()
        return list(zip(lines, found, strict=True))


def _words_and_tags(sentences: Any, tags: Any) -> tuple[Sentences, Sentences]:
    """Check saved examples: lists of words, with IO tags."""
    if any(isinstance(words, str) for words in sentences):
        raise DataError("its sentences are no lists of words")
    return read_examples(sentences, tags, "io")
