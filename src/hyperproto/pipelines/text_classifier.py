"""FewShotTextClassifier: a handful of labelled texts to a classifier."""

from typing import Any

from hyperproto.pipelines.few_shot import FewShotClassifier
from hyperproto.pipelines.text_encoder import TextEncoder


class FewShotTextClassifier(FewShotClassifier):
    """Classify texts by few examples of each class; no training, new examples and classes at any time.

    Parameters
    ----------
    encoder, max_length, progress, cache : see `TextEncoder`.
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
        encoder: str = "minilm",
        max_length: int = 128,
        progress: bool = False,
        cache: bool = True,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.encoder = encoder
        self.max_length = max_length
        self.progress = progress
        self.cache = cache

    def item_encoder(self) -> TextEncoder:
        """The transformer that reads the texts."""
        return TextEncoder(self.encoder, self.max_length, self.progress, self.cache)
