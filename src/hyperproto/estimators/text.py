"""FewShotTextClassifier: a handful of labelled texts to a classifier; TextEncoder: texts to vectors."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any, Self

import numpy as np

from hyperproto.data.names import label_text
from hyperproto.errors import ConfigError, DataError
from hyperproto.estimators.inputs import is_missing, item_list
from hyperproto.estimators.items import AUTO, FewShotClassifier, ItemEncoder
from hyperproto.estimators.label_checks import check_name_label
from hyperproto.estimators.storage import AGAIN, Saved
from hyperproto.regions.arrays import Floats


class TextEncoder(ItemEncoder):
    """Texts to vectors by a frozen language model, as its checkpoint's own sentence-transformers files say.

    Pooling, dense layers, scaling to length 1, lower-casing, default prompt and maximum length are read from the
    checkpoint. One without such files is averaged over its last layer.

    Parameters
    ----------
    model : "minilm", "mpnet", "bert", a folder with a checkpoint, or a name on the Hugging Face hub; the folder of a
        run that `hyperproto train` made on texts; a callable, an object with `.encode(texts)` such as a
        `SentenceTransformer`, or a torch module, from a list of texts to (n, D).
    max_length : in word pieces, for a language model by name; of a longer text the beginning is read. "auto": the
        checkpoint's own maximum.
    pooling : "auto": as the checkpoint says. "cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean" or
        "lasttoken": this in place of its own pooling. "plain": the mean of the last layer, and nothing else.
    prompt : put before every text, in place of the checkpoint's default prompt; "" is none.
    prompt_name : the prompt of that name among the checkpoint's own.
    progress : show a bar on standard error.
    cache : keep vectors, the latest in memory, and on disk what took more than ten seconds.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from hyperproto import HypersphereClassifier, TextEncoder
    >>> model = make_pipeline(TextEncoder("minilm"), HypersphereClassifier())
    >>> model.fit(["a fine day", "rain again"], ["good", "bad"]).predict(["sunshine"]).tolist()
    ['good']
    """

    extra = "text"
    chunk = 1 << 16

    def __init__(
        self,
        model: Any = "minilm",
        *,
        max_length: int | str = "auto",
        pooling: str = "auto",
        prompt: str | None = None,
        prompt_name: str | None = None,
        progress: bool = False,
        cache: bool = True,
    ) -> None:
        self.model = model
        self.max_length = max_length
        self.pooling = pooling
        self.prompt = prompt
        self.prompt_name = prompt_name
        self.progress = progress
        self.cache = cache

    def check(self, X: Any, name: str = "X") -> list[str]:
        """Texts are strings with something in them."""
        return check_texts(X, name)

    def read(self, items: Sequence[str], start: int, pixels: tuple[int, int] | None, name: str = "X") -> list[str]:
        """As they are."""
        return list(items)

    def spec(self) -> tuple[str, dict[str, Any]]:
        """A language model that reads whole texts."""
        names = ("max_length", "pooling", "prompt", "prompt_name")
        return "sentence-transformer", {"model": str(self.model), **{name: getattr(self, name) for name in names}}


def check_texts(X: Any, name: str = "X") -> list[str]:
    """Make a list of texts, each a string with something in it; the first that is none is named by its position."""
    if isinstance(X, str):
        raise DataError(f"{name} is a single text; give a list of texts, even if it holds only one")
    texts = item_list(X, name, "text")
    for row, text in enumerate(texts):
        if problem := text_problem(text):
            raise DataError(f"{name}[{row}] {problem}")
    return [str(text) for text in texts]  # NumPy's strings are str, but no plain ones


def text_problem(text: Any) -> str | None:
    """Say what is wrong with a text, if anything is."""
    if is_missing(text):
        return f"is missing ({text!r}); give every row a text"
    if not isinstance(text, str):
        return f"is {text!r} ({type(text).__name__}); a text is a string"
    if not text.strip():
        return f"is an empty text ({text!r}); there is nothing in it to go by"
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return f"is no valid Unicode ({error}); decode it as what it is"
    return None


_OPTION_TYPES: dict[str, tuple[Any, str]] = {
    "max_length": (int | str, "whole number or string"),
    "pooling": (str, "string"),
    "prompt": (str | None, "string or None"),
    "prompt_name": (str | None, "string or None"),
}  # of the encoder's options, as a saved classifier has them


class FewShotTextClassifier(FewShotClassifier):
    """Classify texts by few examples of each class; no training, new examples and classes at any time.

    Parameters
    ----------
    encoder, max_length, pooling, prompt, prompt_name, progress, cache : see `TextEncoder`.
    names : what the classes are called, which counts the more the fewer examples there are, and for nothing where it
        says nothing of them. "auto": the labels themselves, in words (see `label_words`), for fit_mode="bayes". A
        mapping from labels to texts: these; a label in it is a class without any example. None: no names.
    settings : those of `HypersphereClassifier`: region, fit_mode, feature_transform, coverage and so on.

    Examples
    --------
    >>> from hyperproto import FewShotTextClassifier
    >>> model = FewShotTextClassifier().fit(["where is my card?", "I lost my phone"], ["card", "phone"])
    >>> model.partial_fit(["what a lovely day"], ["weather"]).predict(["it will rain"]).tolist()
    ['weather']
    """

    def __init__(
        self,
        *,
        encoder: Any = "minilm",
        max_length: int | str = "auto",
        pooling: str = "auto",
        prompt: str | None = None,
        prompt_name: str | None = None,
        progress: bool = False,
        cache: bool = True,
        names: str | Mapping[Any, str] | None = AUTO,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.names = names
        self.encoder = encoder
        self.max_length = max_length
        self.pooling = pooling
        self.prompt = prompt
        self.prompt_name = prompt_name
        self.progress = progress
        self.cache = cache

    def item_encoder(self) -> TextEncoder:
        """The transformer that reads the texts."""
        own = ("max_length", "pooling", "prompt", "prompt_name", "progress", "cache")
        return TextEncoder(self.encoder, **{name: getattr(self, name) for name in own})

    def _name_vectors(self, names: Any, labels: Sequence[Any]) -> tuple[dict[Any, Floats], Collection[Any]]:
        """Encode what the classes are called: `names` of the call, or else those of the parameter."""
        given = self.names if names is None else names
        if given is None:
            return {}, ()
        if isinstance(given, Mapping):
            texts = {label: text for label, text in given.items() if isinstance(text, str)}
            vectors, _ = super()._name_vectors(
                {label: name for label, name in given.items() if label not in texts}, labels
            )
            declared: Collection[Any] = given.keys()
        elif given == AUTO:
            wanted = labels if (self.region, self.fit_mode) == ("sphere", "bayes") else ()
            texts, vectors, declared = {label: label_words(label) for label in wanted}, {}, ()
            texts = {label: text for label, text in texts.items() if text}
        else:
            raise ConfigError(f"names={given!r}: give 'auto', a mapping from labels to texts, or None")
        for label in declared:
            check_name_label(_plain(label))
        for label, text in texts.items():
            if problem := text_problem(text):
                raise DataError(f"the name of {label!r} {problem}")
        if texts:
            quiet = self.item_encoder().set_params(progress=False)  # a bar is for the items
            encoded = quiet.transform(list(texts.values())).astype(np.float64)
            vectors |= dict(zip((_plain(label) for label in texts), encoded, strict=True))
        return vectors, [_plain(label) for label in declared]

    def _parameters(self) -> dict[str, Any]:
        """As they are; names as pairs, since the keys of a JSON object are strings."""
        names = (
            [[_plain(label), text] for label, text in self.names.items()] if isinstance(self.names, Mapping) else None
        )
        return super()._parameters() | ({} if names is None else {"names": names})

    @classmethod
    def _from_saved(cls, folder: str | PathLike[str], saved: Saved) -> Self:
        """Make the classifier that was read; where it says nothing of pooling or names, it was fitted before them."""
        parameters = {"pooling": "plain", "names": None, **saved.parameters}
        if isinstance(parameters["names"], list):
            try:
                parameters["names"] = dict(parameters["names"])
            except (TypeError, ValueError):
                raise DataError(f"{folder}: its names are no pairs of labels and texts; {AGAIN}") from None
        for name, (kinds, words) in _OPTION_TYPES.items():
            if name in parameters and not isinstance(parameters[name], kinds):
                raise DataError(f"{folder}: its {name} is {parameters[name]!r:.60}, no {words}; {AGAIN}")
        return super()._from_saved(folder, replace(saved, parameters=parameters))


def label_words(label: Any) -> str:
    """A label in words, or "" if it is none: a number, an id, a single letter.

    >>> [label_words(label) for label in ("card_arrival", "CardArrival", "HTTPError", 3, "P131", "n01532829", "b")]
    ['card arrival', 'card arrival', 'HTTP error', '', '', 'house finch', '']
    """
    if not isinstance(label, str):
        return ""
    pieces = label_text(label).split()
    words = [part for piece in pieces for part in (_CAMEL.sub(" ", piece).split() if piece.isalpha() else [piece])]
    if len(words) > len(pieces):  # a word in the middle of a sentence has no capital
        words = [word if word.isupper() else word.lower() for word in words]
    return " ".join(words) if any(len(word) > 1 and word.isalpha() for word in words) else ""


_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def _plain(label: Any) -> Any:
    return label.item() if isinstance(label, np.generic) else label
