"""FewShotImageClassifier: a handful of labelled images to a classifier."""

from typing import Any

from hyperproto.pipelines.few_shot import FewShotClassifier
from hyperproto.pipelines.image_encoder import ImageEncoder


class FewShotImageClassifier(FewShotClassifier):
    """Classify images by few examples of each class; no training, new examples and classes at any time.

    Parameters
    ----------
    encoder, resolution, progress, cache : see `ImageEncoder`.
    settings : those of `HypersphereClassifier`: region, fit_mode, feature_transform, coverage and so on.
    """

    def __init__(
        self,
        encoder: str = "efficientnet-lite0",
        resolution: int = 224,
        progress: bool = False,
        cache: bool = True,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.encoder = encoder
        self.resolution = resolution
        self.progress = progress
        self.cache = cache

    def item_encoder(self) -> ImageEncoder:
        """The transformer that reads the images."""
        return ImageEncoder(self.encoder, self.resolution, self.progress, self.cache)
