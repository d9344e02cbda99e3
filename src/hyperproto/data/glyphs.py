"""`glyphs`: characters of many scripts as 28 x 28 images, 40 a class; generated here, without a download.

The fonts of matplotlib (DejaVu, STIX) contain letters, syllables and digits of fourteen scripts. Each character is
drawn in two to sixteen font faces, then distorted, rotated, thickened, blurred and given noise. A split is a set of
scripts: training uses Latin and Canadian syllabics, among others, and testing Georgian and Arabic. Of several
characters that look alike, one is kept.
"""

import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from warnings import warn

import numpy as np
from numpy.typing import NDArray

from hyperproto.data.pool import Pool, Progress
from hyperproto.errors import ConfigError, unknown_name
from hyperproto.files import cache_dir, read_arrays, write_arrays

Floats = NDArray[np.float64]
Masks = NDArray[np.uint8]

SIDE = 64  # height and width of the canvas of a drawn shape, in pixels
BOX = 42  # longer side of every shape: size does not distinguish characters
FACES = (
    *("DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSans-BoldOblique"),
    *("DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSerif-Italic", "DejaVuSerif-BoldItalic"),
    *("DejaVuSansMono", "DejaVuSansMono-Bold", "DejaVuSansMono-Oblique", "DejaVuSansMono-BoldOblique"),
    *("STIXGeneral", "STIXGeneralBol", "STIXGeneralItalic", "STIXGeneralBolIta"),
)  # the first face has every character of the data set
JUDGES = tuple(face for face in FACES if "Bol" not in face)  # compared to find look-alikes: bold hides differences
POSES = tuple(
    (turn, height, width)  # degrees, and factors of height and width (at most 1, as all shapes have the same size)
    for turn in (0, -8, 8)
    for height, width in ((1.0, 1.0), (0.87, 1.0), (0.75, 1.0), (1.0, 0.87), (1.0, 0.75))
)
ALIKE = 0.92  # two characters of a script are look-alikes from this correlation of blurred shapes on
ALIKE_ABROAD = 0.88  # threshold for characters of different scripts, which were not designed to differ
SOLID = 0.85  # a shape that fills at least this share of its bounding box is only a dot or a bar

_LETTERS = {"Lu", "Ll", "Lo", "Nd"}  # no marks (M*), no modifiers (Lm), no symbols
_NOWHERE = "\u0378"  # a code point without a character: every face draws its missing-glyph box, or nothing


@dataclass(frozen=True, eq=False)
class Glyph:
    """A character of a script, drawn in every font face that has it."""

    char: str
    script: str
    masks: dict[str, Masks]  # face: (SIDE, SIDE), 255 is ink

    def __str__(self) -> str:
        """Return a readable, unique name such as "greek/small omega U+03C9"."""
        name = unicodedata.name(self.char).removeprefix(self.script.upper()).replace(" LETTER ", " ")
        return f"{self.script}/{name.strip(' -').lower()} U+{ord(self.char):04X}"


def distinct_glyphs(scripts: Iterable[str]) -> list[Glyph]:
    """Draw every letter and digit of `scripts`, and keep only the first of characters that look alike."""
    glyphs = draw_glyphs(scripts)
    script = np.array([glyph.script for glyph in glyphs])
    alike = likeness(glyphs) >= np.where(script[:, None] == script, ALIKE, ALIKE_ABROAD)
    kept: list[int] = []
    for index in range(len(glyphs)):
        if not alike[index, kept].any():
            kept.append(index)
    return [glyphs[index] for index in kept]


def draw_glyphs(scripts: Iterable[str]) -> list[Glyph]:
    """Draw the letters and digits of `scripts` in every face, by script and code point."""
    import matplotlib
    from matplotlib.ft2font import FT2Font

    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    paths = {face: folder / f"{face}.ttf" for face in FACES}
    covered = {face: {chr(code) for code in FT2Font(str(path)).get_charmap()} for face, path in paths.items()}
    glyphs = [Glyph(char, script, {}) for script in scripts for char in _letters(covered[FACES[0]], script)]
    for face in FACES:
        here = [glyph for glyph in glyphs if glyph.char in covered[face]]
        for glyph, mask in zip(here, _draw(paths[face], [glyph.char for glyph in here]), strict=True):
            if mask is not None:
                glyph.masks[face] = mask
    return [glyph for glyph in glyphs if FACES[0] in glyph.masks and not _is_solid(glyph.masks[FACES[0]])]


def _letters(chars: Iterable[str], script: str) -> list[str]:
    """Return the letters and digits of `script`, without accented or styled variants of other characters."""
    prefix = script.upper()
    named = (char for char in chars if unicodedata.name(char, "").startswith(prefix))
    return sorted(
        char for char in named if unicodedata.category(char) in _LETTERS and unicodedata.is_normalized("NFKD", char)
    )


def _draw(font_file: Path, chars: list[str]) -> Iterator[Masks | None]:
    """Draw each character centred, its longer side BOX pixels; yield None for an empty or missing glyph."""
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.truetype(str(font_file), 96, layout_engine=ImageFont.Layout.BASIC)

    def draw(char: str) -> Image.Image | None:
        left, top, right, bottom = font.getbbox(char)
        image = Image.new("L", (int(right - left), int(bottom - top)))
        ImageDraw.Draw(image).text((-left, -top), char, fill=255, font=font)
        return image.crop(ink) if (ink := image.getbbox()) else None

    missing = draw(_NOWHERE)
    for char in chars:
        image = draw(char)
        if image is None or image == missing:
            yield None
            continue
        width, height = (max(1, round(BOX * side / max(image.size))) for side in image.size)
        top, left = (SIDE - height) // 2, (SIDE - width) // 2
        mask = np.zeros((SIDE, SIDE), np.uint8)
        small = image.resize((width, height), Image.Resampling.BILINEAR)
        mask[top : top + height, left : left + width] = np.asarray(small)
        yield mask


def _is_solid(mask: Masks) -> bool:
    inked = mask > 127
    return bool(np.count_nonzero(inked) > SOLID * np.count_nonzero(inked.any(0)) * np.count_nonzero(inked.any(1)))


def likeness(glyphs: list[Glyph]) -> NDArray[np.float32]:
    """Return the largest correlation of each pair of characters over faces and small rotations or squeezes."""
    alike = np.zeros((len(glyphs), len(glyphs)), np.float32)
    for face in JUDGES:
        index = [i for i, glyph in enumerate(glyphs) if face in glyph.masks]
        if not index:
            continue
        images = _soften(np.stack([glyphs[i].masks[face] for i in index]))
        still = _signatures(images)
        here = np.zeros((len(index), len(index)), np.float32)
        for turn, height, width in POSES if face == FACES[0] else POSES[:1]:
            rows, cols = _pose(images.shape[-1], turn, height, width)
            moved = _signatures(sample(images, np.arange(len(images)), rows, cols))
            np.maximum(here, moved @ still.T, out=here)
        pairs = np.ix_(index, index)
        alike[pairs] = np.maximum(alike[pairs], np.maximum(here, here.T))
    return alike / np.float32(_NORM**2)


_NORM = 4000  # norm of a signature


def _soften(masks: Masks) -> Floats:
    """Halve the resolution, blur by one more pixel and cut off the empty margin: (n, 24, 24)."""
    half = SIDE // 2
    images: Floats = masks.reshape(-1, half, 2, half, 2).mean((2, 4))
    for axis in (1, 2):
        images = images / 2 + (np.roll(images, 1, axis) + np.roll(images, -1, axis)) / 4
    return np.ascontiguousarray(images[:, 4:-4, 4:-4])


def _signatures(images: Floats) -> NDArray[np.float32]:
    """Centre and scale each image, so that the dot product of two is their correlation times _NORM squared.

    Entries are whole numbers and sums stay below 2**24, so float32 arithmetic is exact in any order of addition, and
    every machine finds the same look-alikes.
    """
    flat = images.reshape(len(images), -1)
    flat = flat - flat.mean(1, keepdims=True)
    flat *= _NORM / np.linalg.norm(flat, axis=1, keepdims=True)
    whole: NDArray[np.float32] = np.rint(flat).astype(np.float32)
    return whole


def _pose(side: int, turn: float, height: float, width: float) -> tuple[Floats, Floats]:
    """Return rows and columns at which to sample a square image to scale it by `height` and `width` and rotate it."""
    center = (side - 1) / 2
    rows, cols = np.mgrid[:side, :side] - center
    sin, cos = np.sin(np.deg2rad(turn)), np.cos(np.deg2rad(turn))
    return (cos * rows - sin * cols) / height + center, (sin * rows + cos * cols) / width + center


def sample(images: Floats, which: NDArray[np.int64], rows: Floats, cols: Floats) -> Floats:
    """Interpolate images[which], `which` of shape (k,), bilinearly at `rows` and `cols`, (k, h, w) or (h, w).

    Return an array (k, h, w).
    """
    side = images.shape[-1]
    rows, cols = np.clip(rows, 0, side - 1.001), np.clip(cols, 0, side - 1.001)
    top, left = rows.astype(np.int64), cols.astype(np.int64)
    down, right = rows - top, cols - left
    corner = which[:, None, None] * side**2 + top * side + left
    upper = images.take(corner) * (1 - right) + images.take(corner + 1) * right
    lower = images.take(corner + side) * (1 - right) + images.take(corner + side + 1) * right
    mixed: Floats = upper * (1 - down) + lower * down
    return mixed


SUMMARY = (
    "characters of fourteen scripts, 28 x 28 pixels, 40 instances each, split by script; glyphs:SEED for other images"
)
GLYPHS_VERSION = 1  # increase it with any change of the data, so that old cache files are not read
SCRIPTS = {  # a script is the first words of its characters' Unicode names; the first of several look-alikes is kept
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
    """Return the names of the splits."""
    return SPLITS


def load(split: str, argument: str = "", progress: Progress | None = None) -> Pool:
    """Return a split of the data set; the first call takes seconds, later ones read the cache.

    `argument` is the seed of the images (default 0); the classes are the same for every seed.
    `progress(done, total)` counts generated classes.
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
    """Generate all splits: for each, the images (n_classes * INSTANCES, SIZE, SIZE) and the class names."""
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
    """Return INSTANCES distorted images of `glyph`: a pure function of its shapes and the seed."""
    draws = uniforms(seed, ord(glyph.char), (INSTANCES, 10 + 2 * _KNOTS**2 + SIZE**2))
    pose, bends, speckles = np.split(draws, (10, 10 + 2 * _KNOTS**2), axis=1)
    knobs = _LOW + (_HIGH - _LOW) * pose
    turn, slant, stretch, size, shift_y, shift_x, weight, softness, strength, noise = knobs.T[:, :, None, None]

    # Position in the drawn shape that each pixel samples: wobble and shift, then rotation, slant and scale.
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
    ink = np.clip(0.5 + (depth + weight) / softness, 0, 1)  # edge of a stroke, moved by weight, blurred by softness
    ink = strength * ink + noise * (2 * speckles.reshape(ink.shape) - 1)
    images: Images = np.rint(255 * np.clip(ink, 0, 1)).astype(np.uint8)
    return images


def uniforms(seed: int, stream: int, shape: tuple[int, ...]) -> Floats:
    """Draw numbers from 0 to 1 that depend only on the arguments, in every version of NumPy.

    NumPy guarantees the raw bits of its bit generators across versions, but not the distributions of `Generator`.
    """
    bits = np.random.Philox(key=(stream << 64) | seed).random_raw(int(np.prod(shape)))
    return (bits >> np.uint64(11)).astype(np.float64).reshape(shape) * 2.0**-53


def _distances(inked: NDArray[np.bool_]) -> Floats:
    """Return the signed distance of each pixel to the nearest edge, positive inside the ink.

    Distorting and thickening distances gives smooth edges.
    """
    from scipy.ndimage import distance_transform_edt

    inside, outside = distance_transform_edt(inked), distance_transform_edt(~inked)
    return np.asarray(np.where(inked, inside - 0.5, 0.5 - outside), np.float64)


_ZOOM = SIDE / SIZE  # pixels of a shape per pixel of an image
_WOBBLE = 1.1  # largest displacement of a knot, in pixels of the image
_KNOTS = 4
_BASIS = np.exp(-0.5 * (np.arange(SIZE)[:, None] / (SIZE - 1) * (_KNOTS - 1) - np.arange(_KNOTS)) ** 2 / 0.6**2)
_BASIS /= _BASIS.sum(1, keepdims=True)  # (SIZE, _KNOTS): weight of each knot's displacement for a row or column

_LOW, _HIGH = np.transpose(
    [
        (-0.2, 0.2),  # rotation in radians: 11 degrees; more would turn one Canadian syllable into another
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
