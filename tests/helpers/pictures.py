"""Small image files for the tests of image data sets."""

from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import numpy as np
from PIL import Image


def picture(seed: int, size: tuple[int, int] = (12, 12), mode: str = "RGB") -> Image.Image:
    """A smooth random picture: no codec is far off on it."""
    random = np.random.default_rng(seed)
    small = random.integers(0, 256, (2, 2, 3), dtype=np.uint8)
    return Image.fromarray(small, "RGB").resize(size, Image.Resampling.BILINEAR).convert(mode)


def encoded(image: Image.Image, kind: str = "PNG") -> bytes:
    buffer = BytesIO()
    image.save(buffer, kind)
    return buffer.getvalue()


def write_tree(root: Path, files: dict[str, bytes]) -> Path:
    """Write files below a folder, or into a zip where the name says so."""
    if root.suffix == ".zip":
        root.parent.mkdir(parents=True, exist_ok=True)
        with ZipFile(root, "w") as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        return root
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return root


def class_folders(classes: int, each: int, prefix: str = "class") -> dict[str, bytes]:
    return {f"{prefix}{c:02d}/{i}.png": encoded(picture(100 * c + i)) for c in range(classes) for i in range(each)}
