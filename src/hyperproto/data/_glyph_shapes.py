"""The characters behind the `glyphs` data set: drawn once in every face, and sifted until no two look alike."""

import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Masks = NDArray[np.uint8]

SIDE = 64  # pixels of a drawn shape's canvas
BOX = 42  # the longer side of every shape on it: size is not what tells characters apart
FACES = (
    *("DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSans-BoldOblique"),
    *("DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSerif-Italic", "DejaVuSerif-BoldItalic"),
    *("DejaVuSansMono", "DejaVuSansMono-Bold", "DejaVuSansMono-Oblique", "DejaVuSansMono-BoldOblique"),
    *("STIXGeneral", "STIXGeneralBol", "STIXGeneralItalic", "STIXGeneralBolIta"),
)  # the first has every character of the data set
JUDGES = tuple(face for face in FACES if "Bol" not in face)  # fat strokes hide differences: look-alikes are judged here
POSES = tuple(
    (turn, height, width)  # degrees, and shares of the height and width: nothing grows, since all have the same size
    for turn in (0, -8, 8)
    for height, width in ((1.0, 1.0), (0.87, 1.0), (0.75, 1.0), (1.0, 0.87), (1.0, 0.75))
)
ALIKE = 0.92  # correlation of two softened shapes from which on a reader takes one for the other
ALIKE_ABROAD = 0.88  # the same for two scripts: no reader of both was in mind when they were drawn
SOLID = 0.85  # share of ink in its own bounding box from which on a shape is only a dot or a bar

_LETTERS = {"Lu", "Ll", "Lo", "Nd"}  # no marks (M*), no modifiers (Lm), no symbols
_NOWHERE = "\u0378"  # a code point without a character: every face draws its missing-glyph box, or nothing


@dataclass(frozen=True, eq=False)
class Glyph:
    """A character of a script, as the faces that have it draw it."""

    char: str
    script: str
    masks: dict[str, Masks]  # face: (SIDE, SIDE), 255 is ink

    def __str__(self) -> str:
        """Name it readably and uniquely, as in "greek/small omega U+03C9"."""
        name = unicodedata.name(self.char).removeprefix(self.script.upper()).replace(" LETTER ", " ")
        return f"{self.script}/{name.strip(' -').lower()} U+{ord(self.char):04X}"


def distinct_glyphs(scripts: Iterable[str]) -> list[Glyph]:
    """Draw every letter and digit of `scripts`, and keep the first of those that look alike."""
    glyphs = draw_glyphs(scripts)
    script = np.array([glyph.script for glyph in glyphs])
    alike = likeness(glyphs) >= np.where(script[:, None] == script, ALIKE, ALIKE_ABROAD)
    kept: list[int] = []
    for index in range(len(glyphs)):
        if not alike[index, kept].any():
            kept.append(index)
    return [glyphs[index] for index in kept]


def draw_glyphs(scripts: Iterable[str]) -> list[Glyph]:
    """Draw the letters and digits of `scripts` in every face, script by script, in the order of Unicode."""
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
    """Choose the letters and digits of `script` that are not another character with an accent or a style."""
    prefix = script.upper()
    named = (char for char in chars if unicodedata.name(char, "").startswith(prefix))
    return sorted(
        char for char in named if unicodedata.category(char) in _LETTERS and unicodedata.is_normalized("NFKD", char)
    )


def _draw(font_file: Path, chars: list[str]) -> Iterator[Masks | None]:
    """Draw each of `chars` centred, its longer side BOX pixels; None stands for an empty or missing glyph."""
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
    """Correlate the shapes of each pair in the face, and with the small turn or squeeze, that shows them most alike."""
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


_NORM = 4000  # of a signature


def _soften(masks: Masks) -> Floats:
    """Halve the resolution, blur by one more pixel and cut the empty margin, (n, 24, 24)."""
    half = SIDE // 2
    images: Floats = masks.reshape(-1, half, 2, half, 2).mean((2, 4))
    for axis in (1, 2):
        images = images / 2 + (np.roll(images, 1, axis) + np.roll(images, -1, axis)) / 4
    return np.ascontiguousarray(images[:, 4:-4, 4:-4])


def _signatures(images: Floats) -> NDArray[np.float32]:
    """Centre and scale each image, so that a product of two is their correlation times _NORM squared.

    The entries are whole and the products stay below 2**24, so that float32 sums are exact: in whatever order a
    machine adds, it finds the same look-alikes.
    """
    flat = images.reshape(len(images), -1)
    flat = flat - flat.mean(1, keepdims=True)
    flat *= _NORM / np.linalg.norm(flat, axis=1, keepdims=True)
    whole: NDArray[np.float32] = np.rint(flat).astype(np.float32)
    return whole


def _pose(side: int, turn: float, height: float, width: float) -> tuple[Floats, Floats]:
    """Rows and columns at which to sample a square image to see it `height` times as high, `width` as wide, turned."""
    center = (side - 1) / 2
    rows, cols = np.mgrid[:side, :side] - center
    sin, cos = np.sin(np.deg2rad(turn)), np.cos(np.deg2rad(turn))
    return (cos * rows - sin * cols) / height + center, (sin * rows + cos * cols) / width + center


def sample(images: Floats, which: NDArray[np.int64], rows: Floats, cols: Floats) -> Floats:
    """Read images `which`, (k,), at fractional `rows` and `cols`, each (k, h, w) or (h, w), bilinearly: (k, h, w)."""
    side = images.shape[-1]
    rows, cols = np.clip(rows, 0, side - 1.001), np.clip(cols, 0, side - 1.001)
    top, left = rows.astype(np.int64), cols.astype(np.int64)
    down, right = rows - top, cols - left
    corner = which[:, None, None] * side**2 + top * side + left
    upper = images.take(corner) * (1 - right) + images.take(corner + 1) * right
    lower = images.take(corner + side) * (1 - right) + images.take(corner + side + 1) * right
    mixed: Floats = upper * (1 - down) + lower * down
    return mixed
