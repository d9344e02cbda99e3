"""FewShotImageClassifier: a handful of labelled images to a classifier; ImageEncoder: images to vectors."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from os import PathLike, cpu_count, fspath
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hyperproto.data.image_files import Decoding, decoder
from hyperproto.errors import DataError
from hyperproto.estimators.items import FewShotClassifier, ItemEncoder


class ImageEncoder(ItemEncoder):
    """Images to vectors by a frozen network.

    An image is the path of a file, or an array of bytes (H, W) or (H, W, 3). Of one that is not square the middle is
    taken.

    Parameters
    ----------
    model : "efficientnet-lite0", or another encoder of images that is registered with weights of its own.
    resolution : in pixels; every image is brought to that size.
    progress : show a bar on standard error.
    cache : keep vectors, the latest in memory, and on disk what took more than ten seconds.
    """

    extra = "efficientnet,images"
    chunk = 256

    def __init__(
        self, model: str = "efficientnet-lite0", resolution: int = 224, progress: bool = False, cache: bool = True
    ) -> None:
        self.model = model
        self.resolution = resolution
        self.progress = progress
        self.cache = cache

    def check(self, X: Any) -> Sequence[Any]:
        """Images are paths or arrays; whether the files can be read is seen when they are."""
        if isinstance(X, str | PathLike):
            raise DataError("X is a single path; give a list of images, even if it holds only one")
        if isinstance(X, np.ndarray) and X.dtype != object and X.ndim > 1:
            X = list(X)
        for row, image in enumerate(X):
            if problem := image_problem(image):
                raise DataError(f"X[{row}] {problem}")
        return list(X)

    def read(self, items: Sequence[Any], start: int) -> NDArray[np.uint8]:
        """Decode images, in parallel, to (n, resolution, resolution, 3)."""
        decode = decoder(Decoding(size=self.resolution, channels=3, skip_damaged=False))

        def attempt(numbered: tuple[int, Any]) -> NDArray[np.uint8]:
            row, image = numbered
            if isinstance(image, np.ndarray):
                return decode(image)
            try:
                return decode(Path(image).expanduser().read_bytes())
            except Exception as error:  # whatever a decoder makes of damage
                raise DataError(
                    f"X[{row}], {fspath(image)}: cannot be read as an image ({type(error).__name__}: {error}); "
                    "mend it, or leave it out"
                ) from error

        with ThreadPoolExecutor(cpu_count()) as threads:
            return np.stack(list(threads.map(attempt, enumerate(items, start))))

    def spec(self) -> tuple[str, dict[str, Any]]:
        """A network for images of this size."""
        return self.model, {"channels": 3, "size": self.resolution, "resolution": self.resolution}


def image_problem(image: Any) -> str | None:
    """Say what is wrong with an image, if that can be seen before it is read."""
    if isinstance(image, str | PathLike):
        return None if fspath(image) else "is an empty path; name a file"
    if not isinstance(image, np.ndarray):
        return f"is {image!r} ({type(image).__name__}); an image is a path, or an array of bytes"
    if image.dtype != np.uint8 or image.ndim not in (2, 3) or (image.ndim == 3 and image.shape[2] != 3):
        return f"is an array of {image.dtype} {image.shape}; an image is one of uint8 (H, W) or (H, W, 3)"
    return None


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
