"""`glyphs`: characters of many scripts as 28 x 28 images, 40 instances a class; made here, nothing to download.

The fonts that matplotlib brings along (DejaVu, STIX) hold letters, syllables and digits of fourteen scripts. Each is
drawn in two to sixteen faces, then bent, turned, thickened, blurred and speckled. A split is a set of *scripts*: what
was learned on Latin and Canadian syllabics is tried on Georgian and Arabic. Of characters that look the same one stays.
"""

from importlib.metadata import version
from pathlib import Path
from warnings import warn

import numpy as np
from numpy.typing import NDArray

from hyperproto.data._glyph_shapes import SIDE, Floats, Glyph, distinct_glyphs, sample
from hyperproto.data.pool import Pool, Progress
from hyperproto.errors import ConfigError, unknown_name
from hyperproto.files import cache_dir, read_arrays, write_arrays

SUMMARY = (
    "characters of fourteen scripts, 28 x 28 pixels, 40 instances each, split by script; glyphs:SEED for other images"
)
GLYPHS_VERSION = 1  # raise it whenever a byte of the data changes: old caches are then left alone
SCRIPTS = {  # a script is the first words of its characters' Unicode names; of look-alikes the first here stays
    "test": ("georgian", "arabic", "hebrew", "nko"),
    "val": ("armenian", "lao", "ogham", "tifinagh"),
    "train": ("digit", "latin", "greek", "cyrillic", "coptic", "old italic", "canadian syllabics"),
}
SPLITS = ("train", "val", "test")
INSTANCES = 40
SIZE = 28

Images = NDArray[np.uint8]
Arrays = dict[str, NDArray[np.generic]]


def splits(argument: str = "") -> tuple[str, ...]:
    """Name the splits."""
    return SPLITS


def load(split: str, argument: str = "", progress: Progress | None = None) -> Pool:
    """Return a split of the data set; the first call takes seconds, later ones read the cache.

    `argument` is a seed, 0 unless given: the classes are the same for every seed, their images are not.
    `progress(done, total)` counts classes while they are made.
    """
    if split not in SPLITS:
        raise ConfigError(unknown_name("split", split, SPLITS))
    seed = int(argument or 0) if argument.isdecimal() or not argument else -1
    if not 0 <= seed < 2**64:
        raise ConfigError(f"glyphs:{argument}: the seed must be from 0 to 2**64 - 1")
    try:
        path = _cache_file(seed)
        arrays = read_arrays(path, (split, f"{split}_names")) or _make(path, seed, progress)
    except ImportError as error:
        raise ConfigError(
            f"glyphs draws its images with Pillow and matplotlib ({error}); pip install 'hyperproto[images,plots]'"
        ) from error
    names = tuple(arrays[f"{split}_names"].tolist())
    labels = np.repeat(np.arange(len(names)), INSTANCES)
    return Pool(arrays[split], labels, names, name=f"glyphs:{argument}".rstrip(":"), split=split)


def _cache_file(seed: int) -> Path:
    drawn_by = f"pillow{version('pillow')}-matplotlib{version('matplotlib')}"
    return cache_dir() / f"glyphs-v{GLYPHS_VERSION}-{drawn_by}-seed{seed}.npz"


def _make(path: Path, seed: int, progress: Progress | None) -> Arrays:
    arrays = generate(seed, progress)
    try:
        write_arrays(path, arrays)
    except OSError as error:
        warn(f"glyphs cannot be kept in {path} ({error}); set HYPERPROTO_CACHE to another folder", stacklevel=3)
    return arrays


def generate(seed: int, progress: Progress | None = None) -> Arrays:
    """Make every split: under its name the images, (n_classes * INSTANCES, SIZE, SIZE), and the class names."""
    glyphs = distinct_glyphs(script for scripts in SCRIPTS.values() for script in scripts)
    images = np.empty((len(glyphs), INSTANCES, SIZE, SIZE), np.uint8)
    for done, glyph in enumerate(glyphs):
        if progress:
            progress(done, len(glyphs))
        images[done] = distort(glyph, seed)
    if progress:
        progress(len(glyphs), len(glyphs))
    arrays: Arrays = {}
    for split in SPLITS:
        chosen = np.array([glyph.script in SCRIPTS[split] for glyph in glyphs])
        arrays[split] = images[chosen].reshape(-1, SIZE, SIZE)
        arrays[f"{split}_names"] = np.array([str(glyph) for glyph in glyphs])[chosen]
    return arrays


def distort(glyph: Glyph, seed: int) -> Images:
    """Make the INSTANCES images of `glyph`: a pure function of its shapes and the seed."""
    draws = uniforms(seed, ord(glyph.char), (INSTANCES, 10 + 2 * _KNOTS**2 + SIZE**2))
    pose, bends, speckles = np.split(draws, (10, 10 + 2 * _KNOTS**2), axis=1)
    knobs = _LOW + (_HIGH - _LOW) * pose
    turn, slant, stretch, size, shift_y, shift_x, weight, softness, strength, noise = knobs.T[:, :, None, None]

    # Where in the drawn shape each pixel of the image looks: wobble and shift, then turn, slant and scale.
    wobble = _BASIS @ (2 * bends - 1).reshape(INSTANCES, 2, _KNOTS, _KNOTS) @ _BASIS.T  # (INSTANCES, 2, SIZE, SIZE)
    grid = np.arange(SIZE) - (SIZE - 1) / 2
    rows = grid[:, None] - shift_y + _WOBBLE * wobble[:, 0]
    cols = grid[None, :] - shift_x + _WOBBLE * wobble[:, 1]
    sin, cos = np.sin(turn), np.cos(turn)
    rows, cols = (cos * rows - sin * cols) * stretch / size, (sin * rows + cos * cols) / (stretch * size)
    cols = cols + slant * rows

    fields = np.stack([_distances(mask > 127) for mask in glyph.masks.values()])
    faces = np.arange(INSTANCES) % len(fields)
    center = (SIDE - 1) / 2
    depth = size / _ZOOM * sample(fields, faces, center + _ZOOM * rows, center + _ZOOM * cols)
    ink = np.clip(0.5 + (depth + weight) / softness, 0, 1)  # a stroke's edge, moved by weight and blurred by softness
    ink = strength * ink + noise * (2 * speckles.reshape(ink.shape) - 1)
    images: Images = np.rint(255 * np.clip(ink, 0, 1)).astype(np.uint8)
    return images


def uniforms(seed: int, stream: int, shape: tuple[int, ...]) -> Floats:
    """Draw numbers from 0 to 1 that depend on nothing but the arguments, in this and every later NumPy.

    A bit generator's raw bits are promised to stay; the distributions of `Generator` are not.
    """
    bits = np.random.Philox(key=(stream << 64) | seed).random_raw(int(np.prod(shape)))
    return (bits >> np.uint64(11)).astype(np.float64).reshape(shape) * 2.0**-53


def _distances(inked: NDArray[np.bool_]) -> Floats:
    """Distance of each pixel to the nearest edge, positive in the ink: bends and thickens without jagged edges."""
    from scipy.ndimage import distance_transform_edt

    inside, outside = distance_transform_edt(inked), distance_transform_edt(~inked)
    return np.asarray(np.where(inked, inside - 0.5, 0.5 - outside), np.float64)


_ZOOM = SIDE / SIZE  # pixels of a shape per pixel of an image
_WOBBLE = 1.1  # how far, in pixels of the image, a knot moves at most
_KNOTS = 4
_BASIS = np.exp(-0.5 * (np.arange(SIZE)[:, None] / (SIZE - 1) * (_KNOTS - 1) - np.arange(_KNOTS)) ** 2 / 0.6**2)
_BASIS /= _BASIS.sum(1, keepdims=True)  # (SIZE, _KNOTS): how much of each knot's move a row or column follows

_LOW, _HIGH = np.transpose(
    [
        (-0.2, 0.2),  # turn, radians: 11 degrees; more would make one Canadian syllable of another
        (-0.2, 0.2),  # slant
        (0.92, 1.09),  # stretch: up to 1.19 times wider than high, or higher than wide
        (0.85, 1.1),  # size
        (-2.0, 2.0),  # shift down, pixels
        (-2.0, 2.0),  # shift right, pixels
        (-0.3, 0.5),  # weight: pixels added on each side of a stroke
        (0.8, 2.4),  # softness: width of an edge in pixels
        (0.75, 1.0),  # strength of the ink
        (0.02, 0.2),  # noise
    ]
)
