"""What is cached follows from all the code behind it: a helper that changes makes new vectors and new word pieces."""

import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

from hyperproto.data import Pool
from hyperproto.encoders import ENCODERS, Encoder, Units
from hyperproto.encoders.conv4 import Conv4
from hyperproto.encoders.parts import cache, word_pieces
from hyperproto.encoders.sentence_transformer import SentenceTransformer

ENCODER = """
from foreign_package.helpers import scaled
from hyperproto.encoders.conv4 import Conv4

class Mine(Conv4):
    def forward(self, batch):
        return scaled(super().forward(batch))
"""
HELPERS = """
from dataclasses import replace

def scaled(units):
    from . import constants
    return replace(units, x=constants.FACTOR * units.x)
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package of somebody else: an encoder, a helper, what that one imports when it runs, and a module of no use."""
    folder = tmp_path / "foreign_package"
    folder.mkdir()
    files = {"__init__": "", "encoder": ENCODER, "helpers": HELPERS, "constants": "FACTOR = 2.0\n", "other": "A = 1\n"}
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("HYPERPROTO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "MIN_SECONDS", 0.0)
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "foreign_package"]:
        del sys.modules[name]


def mine() -> type[Conv4]:
    cls: type[Conv4] = import_module("foreign_package.encoder").Mine
    return cls


def test_a_helper_that_changes_changes_the_key_of_cached_vectors(package: Path) -> None:
    encoder = mine()(channels=1, size=16)
    encoder.made_from = "mine", {"channels": 1, "size": 16}
    pool = Pool(np.zeros((3, 16, 16), np.uint8), np.zeros(3, int), ("a",))
    times_encoded = 0

    def encode() -> Units:
        nonlocal times_encoded
        times_encoded += 1
        return encoder.encode_all(pool.items)

    changes = [("helpers", HELPERS), ("helpers", HELPERS.replace("*", "/")), ("constants", "FACTOR = 3.0\n")]
    for number, (module, text) in enumerate(changes, start=1):
        (package / f"{module}.py").write_text(text)
        for _ in range(2):
            cache.cached_units(encoder, pool, None, encode)
        assert times_encoded == number


def test_only_code_that_the_encoder_can_reach_counts(package: Path) -> None:
    before = cache.code_digest(mine())
    assert before is not None
    (package / "other.py").write_text("A = 2\n")
    assert cache.code_digest(mine()) == before
    found = {name for name in cache.source_files(mine()) if name.startswith("foreign_package")}
    assert found == {"foreign_package", *(f"foreign_package.{name}" for name in ("encoder", "helpers", "constants"))}


def test_a_version_and_the_libraries_count_too(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {cache.code_digest(mine())}
    monkeypatch.setattr(mine(), "version", 2, raising=False)
    found.add(cache.code_digest(mine()))
    for library in cache.LIBRARIES:
        monkeypatch.setattr(cache, "version", lambda name: "0" if name == library else version(name))  # noqa: B023 - this round only
        found.add(cache.code_digest(mine()))
    assert len(found) == 2 + len(cache.LIBRARIES)
    assert None not in found


def test_code_without_a_source_file_has_no_digest() -> None:
    nameless = type("Nameless", (Encoder,), {"__module__": "nowhere.at_all"})
    assert cache.code_digest(nameless) is None


@pytest.mark.parametrize(
    ("name", "helpers"),
    [
        ("conv4", {"encoders.base", "encoders.parts.image_networks", "data.pool"}),
        ("relation-cnn", {"encoders.parts.word_pieces", "encoders.parts.word_vectors", "data.formats.relations"}),
        (
            "relation-transformer",
            {"encoders.parts.transformer", "encoders.parts.word_pieces", "encoders.parts.pretrained"},
        ),
        ("token-transformer", {"encoders.parts.transformer", "encoders.parts.word_pieces", "encoders.base"}),
    ],
)
def test_our_encoders_are_keyed_by_their_helpers(name: str, helpers: set[str]) -> None:
    files = cache.source_files(ENCODERS.get(name))
    assert {f"hyperproto.{helper}" for helper in helpers} <= files.keys()
    assert all(path.is_file() for path in files.values())


def test_word_pieces_follow_from_the_code_too(bert: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_pieces, "FEW", 2)
    monkeypatch.setenv("HYPERPROTO_CACHE", str(tmp_path))
    encoder = SentenceTransformer(model=bert)
    for code, kept in (("one", 1), ("one", 1), ("two", 2), (None, 2)):
        monkeypatch.setattr(word_pieces, "code_digest", lambda cls: code)  # noqa: B023 - called in this round only
        encoder.prepare(["anna", "bob", "the king"])
        assert len(list(tmp_path.glob("tokens/*.npz"))) == kept
