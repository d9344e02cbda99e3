"""What can be made again, damaged: caches of images, vectors, tokens and glyphs, and downloads that were cut."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np

import hyperproto
from tests.fuzz.files import mutate_file
from tests.fuzz.inputs import Samples
from tests.fuzz.judge import Enough, Silent, Trial, same
from tests.fuzz.kinds import kind, write_files
from tests.fuzz.mutations import mutate_bytes, mutate_json_file


@kind("glyphs", "data glyphs", "check_data", share=1)
def glyphs(random: Random, folder: Path, samples: Samples) -> Trial:
    """Damage the cache of the built-in data: the file must be made again."""
    seed = random.choice(("", "", "1", "-1", "a", str(2**64), str(2**63), "0" * 400, "\uff11"))
    small = {"test": ("ogham",), "val": ("ogham",), "train": ("ogham",)}

    def run() -> None:
        from hyperproto.data import glyphs as module

        with patch.object(module, "SCRIPTS", small):
            first = hyperproto.open_pool(f"glyphs:{seed}".rstrip(":"), "test").digest
            [path] = (folder / "cache").glob("glyphs*.npz")
            path.write_bytes(mutate_bytes(random, path.read_bytes()))
            if hyperproto.open_pool(f"glyphs:{seed}".rstrip(":"), "test").digest != first:
                raise Silent("glyphs: a damaged cache was used")

    return Trial(run, words="glyphs")


@kind("image-cache", "data folder", share=12)
def image_cache(random: Random, folder: Path, samples: Samples) -> Trial:
    """Damage decoded images in the cache: the file must be made again, or refused."""
    write_files(folder / "data", {name: content for name, content in samples.pictures.items() if name < "class02"})

    def run() -> None:
        first = hyperproto.open_pool(f"folder:{folder / 'data'},size=12", "all").digest
        path = random.choice(sorted(path for path in (folder / "cache").rglob("*") if path.is_file()))
        path.write_bytes(mutate_file(random, path.name, path.read_bytes()))
        if hyperproto.open_pool(f"folder:{folder / 'data'},size=12", "all").digest != first:
            raise Silent("image cache: a damaged file was used")

    return Trial(run, words="image cache")


@kind("vector-cache", "TextEncoder", share=6)
def vector_cache(random: Random, folder: Path, samples: Samples) -> Trial:
    """Vectors in the cache: a damaged file is made again, or refused."""

    def run() -> None:
        from hyperproto.data import Pool
        from hyperproto.encoders.parts import cache

        encoder = text_encoder(samples)
        pool = Pool(["a king", "the river"], np.zeros(2, np.int64), ("",))

        def encode() -> Any:
            return encoder.encode_all(encoder.prepare(pool.items))

        with patch.object(cache, "MIN_SECONDS", -1.0):
            first = cache.cached_units(encoder, pool, None, encode).x.numpy()
            _damage_cache(random, folder)
            again = cache.cached_units(encoder, pool, None, encode).x.numpy()
        if not same(again, first):
            raise Silent("vector cache: a damaged file was used")

    return Trial(run, words="vector cache")


@kind("token-cache", "TextEncoder", share=6)
def token_cache(random: Random, folder: Path, samples: Samples) -> Trial:
    """Tokenised texts in the cache."""

    def run() -> None:
        from hyperproto.encoders.parts import word_pieces

        encoder = text_encoder(samples)
        with patch.object(word_pieces, "FEW", 0):
            first = encoder.prepare(["a king met", "the river"])
            _damage_cache(random, folder)
            again = encoder.prepare(["a king met", "the river"])
        if not same(arrays_in(again), arrays_in(first)):
            raise Silent("token cache: a damaged file was used")

    return Trial(run, words="token cache")


_ENCODERS: dict[Path, Any] = {}


def text_encoder(samples: Samples) -> Any:
    from hyperproto.encoders import make_encoder

    if samples.bert not in _ENCODERS:
        _ENCODERS[samples.bert] = make_encoder(
            "sentence-transformer", {"model": str(samples.bert), "max_length": 16}
        ).eval()
    return _ENCODERS[samples.bert]


def _damage_cache(random: Random, folder: Path) -> None:
    files = sorted(path for path in (folder / "cache").rglob("*.npz"))
    if not files:
        raise Enough
    path = random.choice(files)
    path.write_bytes(mutate_bytes(random, path.read_bytes()))


def arrays_in(value: Any) -> list[Any]:
    """Every array of a dataclass, at any depth."""
    if isinstance(value, np.ndarray):
        return [value]
    return (
        [array for field in fields(value) for array in arrays_in(getattr(value, field.name))]
        if is_dataclass(value)
        else []
    )


class _Response:
    """What a server may answer."""

    def __init__(self, random: Random, body: bytes, asked: dict[str, str]) -> None:
        part = "Range" in asked and random.random() < 0.7
        start = int(asked["Range"][6:-1]) if part else 0
        self.status_code = 206 if part else random.choice((200, 200, 200, 200, 206, 404, 416, 429, 500, 999))
        self.reason = "as it is"
        rest = body[start:]
        self.body = random.choice((rest, rest, rest, rest[: len(rest) // 2], rest + b"more", b"", rest[::-1]))
        length = random.choice(
            (str(len(self.body)), str(len(rest)), "-1", "many", "", "1e3", "9" * 400, "0", str(2**63))
        )
        ranges = random.choice(
            (f"bytes {start}-{len(body) - 1}/{len(body)}", "bytes 0-0/1", "x", "", f"bytes {start}-/*")
        )
        self.headers = {
            "Content-Length": length,
            "ETag": random.choice(('"a"', "W/x", "", '"b"')),
            "Content-Range": ranges,
        }
        for name in [name for name in self.headers if random.random() < 0.2]:
            del self.headers[name]

    def iter_content(self, size: int) -> Iterator[bytes]:
        yield from (self.body[start : start + 7] for start in range(0, len(self.body), 7))

    def __enter__(self) -> "_Response":
        return self

    def __exit__(self, *_: object) -> None:
        pass


@kind("download", "data get", share=30)
def download(random: Random, folder: Path, samples: Samples) -> Trial:
    """Download from a faulty server, or resume with damaged notes: the published bytes, or an error."""
    from hyperproto.data import get

    body = b"the published file, whole" * 3
    published = get.Download("http://127.0.0.1:9/data.bin", "data.bin", f"sha256:{hashlib.sha256(body).hexdigest()}")
    notes = json.dumps({"url": published.url, "validator": '"a"', "total": len(body)}).encode()
    target = folder / "data"
    if random.random() < 0.7:
        damaged = mutate_json_file(random, notes) if random.random() < 0.8 else notes
        write_files(target, {"data.bin.part.json": damaged})
    if random.random() < 0.7:
        write_files(target, {"data.bin.part": random.choice((body[:20], b"", body, body + b"x", b"something else"))})

    def answer(url: str, headers: dict[str, str], **_: Any) -> _Response:
        return _Response(random, body, headers)

    def run() -> None:
        served = patch.multiple(get, DOWNLOADS={"omniglot": (published,)}, PAUSES=(0.0, 0.0))
        with served, patch("requests.get", answer):
            get.get("omniglot", target)
        if (target / "data.bin").read_bytes() != body:
            raise Silent("data get: another file than the published one")

    return Trial(run, words="data get", may_write=("data",))
