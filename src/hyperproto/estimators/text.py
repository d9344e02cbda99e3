"""FewShotTextClassifier, a classifier for texts, and TextEncoder, which turns texts into vectors."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from hyperproto.data.formats.items import checked_texts, refuse_single_text, text_problem
from hyperproto.data.names import label_text
from hyperproto.errors import ConfigError, DataError, unknown_name
from hyperproto.estimators.batches import Names, name_vectors
from hyperproto.estimators.few_shot import AUTO, FewShotClassifier
from hyperproto.estimators.inputs import item_list
from hyperproto.estimators.items import ItemEncoder, Network
from hyperproto.estimators.labels import check_name_label, plain_label

LONG = ("truncate", "windows", "typical")  # readings of a text that is longer than the network reads


class TextEncoder(ItemEncoder):
    """Transformer from texts to vectors by a frozen language model.

    Pooling, dense layers, scaling to length 1, lower-casing, default prompt and maximum length follow the checkpoint's
    sentence-transformers files. Without such files the last layer is averaged.

    Parameters
    ----------
    model : "minilm", "mpnet", "bert", a folder with a checkpoint, or a name on the Hugging Face hub; the folder of a
        run that `hyperproto train` made on texts; or a callable, an object with `.encode(texts)` such as a
        `SentenceTransformer`, or a torch module, from a list of texts to (n, D).
    max_length : maximum length in tokens of a language model given by name; longer texts are truncated. "auto": the
        checkpoint's own maximum.
    pooling : "auto": the checkpoint's. "cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean" or "lasttoken"
        replace it. "plain": the mean of the last layer without any later step.
    prompt : text put before every text instead of the checkpoint's default prompt; "" for none.
    prompt_name : name of one of the checkpoint's prompts.
    long : reading of texts longer than `max_length`, by language models given by name or run. "truncate": the first
        tokens. "windows": overlapping windows of that length, and the mean of their vectors. "typical": the vector of
        the window closest to that mean.
    progress : whether to show a progress bar on standard error.
    cache : whether to keep recent vectors in memory, and on disk those that took more than ten seconds.

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
    long = LONG[0]  # of pickles that were made before it was a parameter

    def __init__(
        self,
        model: Any = "minilm",
        *,
        max_length: int | str = "auto",
        pooling: str = "auto",
        prompt: str | None = None,
        prompt_name: str | None = None,
        long: str = "truncate",
        progress: bool = False,
        cache: bool = True,
    ) -> None:
        self.model = model
        self.max_length = max_length
        self.pooling = pooling
        self.prompt = prompt
        self.prompt_name = prompt_name
        self.long = long
        self.progress = progress
        self.cache = cache

    def check(self, X: Any, name: str = "X") -> list[str]:
        """Return a list of texts; see `check_texts`."""
        return check_texts(X, name)

    def read(self, items: Sequence[str], start: int, pixels: tuple[int, int] | None, name: str = "X") -> list[str]:
        """Return the texts unchanged."""
        return list(items)

    def network(self) -> Network:
        """Return the network; one that reads long texts in windows if `long` asks for it."""
        if self.long not in LONG:
            raise ConfigError(unknown_name("reading of long texts called", str(self.long), LONG))
        found = super().network()
        if self.long == LONG[0]:
            return found
        try:
            from hyperproto.estimators.networks import LongTextNetwork
        except ImportError as error:
            raise ConfigError(f"encoders run on torch ({error}); pip install 'hyperproto[{self.extra}]'") from error
        return LongTextNetwork.of(found, self.long)

    def spec(self) -> tuple[str, dict[str, Any]]:
        """Return the name and options of a sentence encoder."""
        names = ("max_length", "pooling", "prompt", "prompt_name")
        return "sentence-transformer", {"model": str(self.model), **{name: getattr(self, name) for name in names}}


def check_texts(X: Any, name: str = "X") -> list[str]:
    """Return a list of texts; refuse anything that is not a non-empty string, naming its position."""
    refuse_single_text(X, name)
    return checked_texts(item_list(X, name, "text"), name)


class FewShotTextClassifier(FewShotClassifier):
    """Few-shot classifier for texts: a frozen language model and a `HypersphereClassifier` of its vectors, `head_`.

    Nothing is trained. Examples and classes can be added and removed at any time.

    Parameters
    ----------
    encoder, max_length, pooling, prompt, prompt_name, long, progress, cache : see `TextEncoder`.
    names : class names or descriptions, used as prior means. Their weight falls with the number of examples, and is 0
        if they do not predict where the examples lie. "auto": the labels in words (see `label_words`), for
        fit_mode="bayes". A mapping from labels to texts: a label in it needs no example. None: no names.
    settings : parameters of `HypersphereClassifier`: region, fit_mode, feature_transform, coverage and so on.

    Examples
    --------
    >>> from hyperproto import FewShotTextClassifier
    >>> model = FewShotTextClassifier().fit(["where is my card?", "I lost my phone"], ["card", "phone"])
    >>> model.partial_fit(["what a lovely day"], ["weather"]).predict(["it will rain"]).tolist()
    ['weather']
    """

    long = LONG[0]  # of pickles that were made before it was a parameter
    first_defaults = {"pooling": "plain", "names": None}  # noqa: RUF012 # declared in the parent
    option_types = {  # noqa: RUF012
        "max_length": (int | str, "whole number or string"),
        "pooling": (str, "string"),
        "prompt": (str | None, "string or None"),
        "prompt_name": (str | None, "string or None"),
        "long": (str, "string"),
    }

    def __init__(
        self,
        *,
        encoder: Any = "minilm",
        max_length: int | str = "auto",
        pooling: str = "auto",
        prompt: str | None = None,
        prompt_name: str | None = None,
        long: str = "truncate",
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
        self.long = long
        self.progress = progress
        self.cache = cache

    def item_encoder(self) -> TextEncoder:
        """Return the transformer from texts to vectors."""
        own = ("max_length", "pooling", "prompt", "prompt_name", "long", "progress", "cache")
        return TextEncoder(self.encoder, **{name: getattr(self, name) for name in own})

    def head_names(self, names: Any) -> Callable[[Sequence[Any]], Names]:
        """Return a function from the labels of a call to the vectors of their names.

        `names` of the call take the place of the parameter of that name.
        """
        given = self.names if names is None else names
        return lambda labels: self._encode_names(given, labels)

    def _encode_names(self, names: Any, labels: Sequence[Any]) -> Names:
        """Return the vectors of names by label, and the labels that are classes without any example."""
        wanted = labels if (self.region, self.fit_mode) == ("sphere", "bayes") else ()
        return encode_names(self.item_encoder(), names, wanted)


def encode_names(encoder: TextEncoder, names: Any, labels: Sequence[Any]) -> Names:
    """Return the vectors of names by label, and the labels that are classes without any example.

    `names` is a mapping from labels to texts or vectors, "auto" (the `labels` in words), or None.
    """
    if names is None:
        return {}, ()
    declared: Collection[Any] = ()
    vectors: dict[Any, Any] = {}
    if isinstance(names, Mapping):
        texts = {label: text for label, text in names.items() if isinstance(text, str)}
        vectors = name_vectors({label: name for label, name in names.items() if label not in texts})
        declared = names.keys()
    elif names == AUTO:
        texts = {label: text for label in labels if (text := label_words(label))}
    else:
        raise ConfigError(f"names={names!r}: give 'auto', a mapping from labels to texts, or None")
    for label in declared:
        check_name_label(plain_label(label))
    for label, text in texts.items():
        if problem := text_problem(text):
            raise DataError(f"the name of {label!r} {problem}")
    if texts:
        quiet = encoder.set_params(progress=False)  # the progress bar is for the items
        encoded = quiet.transform(list(texts.values())).astype(np.float64)
        vectors |= dict(zip(map(plain_label, texts), encoded, strict=True))
    return vectors, [plain_label(label) for label in declared]


def label_words(label: Any) -> str:
    """Return a label as words, or "" if it has none: a number, an id, a single letter.

    >>> [label_words(label) for label in ("card_arrival", "CardArrival", "HTTPError", 3, "P131", "n01532829", "b")]
    ['card arrival', 'card arrival', 'HTTP error', '', '', 'house finch', '']
    """
    if not isinstance(label, str):
        return ""
    pieces = label_text(label).split()
    words = [part for piece in pieces for part in (_CAMEL.sub(" ", piece).split() if piece.isalpha() else [piece])]
    if len(words) > len(pieces):  # camel case: capitals mark words, not names
        words = [word if word.isupper() else word.lower() for word in words]
    return " ".join(words) if any(len(word) > 1 and word.isalpha() for word in words) else ""


_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
