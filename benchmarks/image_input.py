"""The input path of training images (cache, crop, flip), against opening and decoding each file when it is drawn."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from benchmarks.measure import Measurement, in_turns
from hyperproto.data import IntArray, open_pool
from hyperproto.encoders.conv4 import Conv4
from hyperproto.encoders.features import augmented
from hyperproto.recipes import Augmentation

SIZE, PADDING = 84, 8
BATCH = 100


def image_input(quick: bool) -> list[Measurement]:
    """Time batches of augmented floats, ready for the encoder, made from JPEG files of 84 x 84 pixels."""
    repeats = 3 if quick else 20
    with TemporaryDirectory() as folder:
        write_pictures(Path(folder), classes=4 if quick else 20, each=50)
        pool = open_pool(f"folder:{folder}", "all")  # decoded once, here
        files = sorted(Path(folder).glob("*/*.jpg"))
        encoder, config = Conv4(channels=3, size=SIZE), Augmentation(crop=PADDING, flip=True)
        random = np.random.default_rng(0)

        def index() -> IntArray:
            return random.integers(len(pool), size=BATCH)

        def ours() -> Tensor:
            return encoder.centred(augmented(encoder.collate(pool.items, index()), config))

        def plain() -> Tensor:
            return torch.stack([_decode_and_augment(files[i], random) for i in index()])

        times = in_turns(ours, plain, repeats)
        agreement = np.mean([np.array_equal(pool.items[i], _decode(files[i])) for i in range(len(files))])
    detail = {
        "images_per_second": BATCH / min(times.ours),
        "baseline_images_per_second": BATCH / min(times.baseline),
        "agreement": float(agreement),
    }
    return [times.measurement("training images, 84 px", "PIL decodes each file drawn", ">=", 10, **detail)]


def write_pictures(folder: Path, classes: int, each: int) -> None:
    """Fill a folder with class folders of smooth random pictures, as JPEG files of a few kilobytes."""
    random = np.random.default_rng(0)
    for n in range(classes):
        (folder / f"{n:03d}").mkdir()
        for i in range(each):
            rough = Image.fromarray(random.integers(0, 256, (12, 12, 3), dtype=np.uint8))
            rough.resize((SIZE, SIZE), Image.Resampling.BICUBIC).save(folder / f"{n:03d}" / f"{i:03d}.jpg", quality=90)


def _decode(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


def _decode_and_augment(path: Path, random: np.random.Generator) -> Tensor:
    """Open, decode and augment one image, as a loader of single items does."""
    pixels = np.pad(_decode(path), ((PADDING, PADDING), (PADDING, PADDING), (0, 0)))
    top, left = random.integers(2 * PADDING + 1, size=2)
    pixels = pixels[top : top + SIZE, left : left + SIZE]
    if random.random() < 0.5:
        pixels = pixels[:, ::-1]
    return torch.from_numpy(np.ascontiguousarray(pixels)).permute(2, 0, 1).float().sub_(127.5).div_(127.5)
