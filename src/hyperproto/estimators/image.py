"""FewShotImageClassifier, a classifier for images, and ImageEncoder, which turns images into vectors."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from os import PathLike, cpu_count, fspath
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hyperproto.data.formats.images import Decoding, decoder
from hyperproto.errors import ConfigError, DataError
from hyperproto.estimators.few_shot import FewShotClassifier
from hyperproto.estimators.inputs import item_list, unmasked
from hyperproto.estimators.items import ItemEncoder
from hyperproto.files import is_folder, read_bytes

SIDE = 224  # default resolution in pixels


class ImageEncoder(ItemEncoder):
    """Transformer from images to vectors by a frozen network.

    An image is the path of a file or an array of bytes (H, W) or (H, W, 3). Images are cropped to the central square.

    Parameters
    ----------
    model : "efficientnet-lite0", or another encoder of images that is registered with weights of its own; the folder
        of a run that `hyperproto train` made on images; a torch module from RGB floats (n, 3, R, R) between 0 and 1 to
        (n, D); or a callable from a list of images, as given, to (n, D).
    resolution : side in pixels to which images are resized. None: 224, or the resolution of the run.
    progress : whether to show a progress bar on standard error.
    cache : whether to keep recent vectors in memory, and on disk those that took more than ten seconds.
    """

    extra = "efficientnet,images"
    chunk = 256

    def __init__(
        self,
        model: Any = "efficientnet-lite0",
        *,
        resolution: int | None = None,
        progress: bool = False,
        cache: bool = True,
    ) -> None:
        self.model = model
        self.resolution = resolution
        self.progress = progress
        self.cache = cache

    def check(self, X: Any, name: str = "X") -> Sequence[Any]:
        """Return a list of paths and arrays; files are not opened yet."""
        if isinstance(X, str | PathLike):
            raise DataError(f"{name} is a single path; give a list of images, even if it holds only one")
        pixels = isinstance(X, np.ndarray) and X.dtype.kind not in "OU" and X.ndim > 1
        images = list(unmasked(X, name)) if pixels else item_list(X, name, "image")
        for row, image in enumerate(images):
            if problem := image_problem(image):
                raise DataError(f"{name}[{row}] {problem}")
        return images

    def read(
        self, items: Sequence[Any], start: int, pixels: tuple[int, int] | None, name: str = "X"
    ) -> NDArray[np.uint8]:
        """Decode images in parallel to (n, side, side, 3), or (n, side, side) for a network that reads grey images."""
        side, channels = pixels or (self.resolution or SIDE, 3)
        if self.resolution not in (None, side):
            raise ConfigError(
                f"resolution={self.resolution}: this encoder reads images of {side} pixels; leave resolution out"
            )
        decode = decoder(Decoding(size=side, channels=channels, skip_damaged=False))

        def attempt(numbered: tuple[int, Any]) -> NDArray[np.uint8]:
            row, image = numbered
            if isinstance(image, np.ndarray):
                return decode(image)
            try:
                content = read_bytes(Path(image).expanduser())
            except DataError as error:
                raise DataError(f"{name}[{row}], {error}") from None
            try:
                return decode(content)
            except Exception as error:  # decoders raise many types on damaged files
                raise DataError(
                    f"{name}[{row}], {fspath(image)}: cannot be read as an image ({type(error).__name__}: {error}); "
                    "fix the file, or leave it out"
                ) from error

        with ThreadPoolExecutor(cpu_count()) as threads:
            return np.stack(list(threads.map(attempt, enumerate(items, start))))

    def spec(self) -> tuple[str, dict[str, Any]]:
        """Return the name and options of an image encoder."""
        if not isinstance(self.model, str) or is_folder(self.model):
            raise ConfigError(f"{fspath(self.model)}: not the folder of a run, or a run without a config.json")
        side = self.resolution or SIDE
        return self.model, {"channels": 3, "size": side, "resolution": side}

    def module_side(self) -> int:
        """Return the side of the images for a torch module."""
        return self.resolution or SIDE


def image_problem(image: Any) -> str | None:
    """Return what is wrong with an image as far as that shows before it is read, or None."""
    if isinstance(image, str | PathLike):
        return None if fspath(image) else "is an empty path; name a file"
    if not isinstance(image, np.ndarray):
        return f"is {image!r} ({type(image).__name__}); an image is a path, or an array of bytes"
    if image.dtype != np.uint8 or image.ndim not in (2, 3) or (image.ndim == 3 and image.shape[2] != 3):
        return f"is an array of {image.dtype} {image.shape}; an image is one of uint8 (H, W) or (H, W, 3)"
    return None


class FewShotImageClassifier(FewShotClassifier):
    """Few-shot classifier for images: a frozen network and a `HypersphereClassifier` of its vectors, `head_`.

    Nothing is trained. Examples and classes can be added and removed at any time.

    Parameters
    ----------
    encoder, resolution, progress, cache : see `ImageEncoder`.
    settings : parameters of `HypersphereClassifier`: region, fit_mode, feature_transform, coverage and so on.
    """

    def __init__(
        self,
        *,
        encoder: Any = "efficientnet-lite0",
        resolution: int | None = None,
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
        """Return the transformer from images to vectors."""
        return ImageEncoder(self.encoder, resolution=self.resolution, progress=self.progress, cache=self.cache)
