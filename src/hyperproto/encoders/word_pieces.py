"""Words to word pieces: each different word is tokenised once, and tokenised texts are cached on disk."""

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from hyperproto.data import IntArray
from hyperproto.encoders.base import Encoder, offsets_of, rows_between
from hyperproto.encoders.code_digest import code_digest
from hyperproto.encoders.ragged import Ragged
from hyperproto.files import cache_dir, read_arrays, write_arrays


@dataclass(frozen=True, eq=False)
class Spelling:
    """Texts of words, spelled in pieces: all texts, and all their words, in a row."""

    pieces: Ragged  # of each text
    texts: IntArray  # (n_texts + 1,) which words are whose
    words: IntArray  # (n_words + 1,) where the pieces of each word begin

    def places(self, bounds: IntArray) -> IntArray:
        """Turn spans of each text's words, (n_texts, n_spans, 2), into spans of its pieces."""
        first = self.texts[:-1, None, None]
        places: IntArray = self.words[first + bounds] - self.words[first]
        return places


def spell(tokenizer: Any, texts: Sequence[Sequence[str]], nothing: int | None = None) -> Spelling:
    """Spell each different word once: the same, since a tokenizer that is given words looks at one at a time.

    It is several times as fast. `nothing` is the piece of a word that the tokenizer makes nothing of; without it, such
    a word has none.
    """
    known: dict[str, int] = {}
    words = Ragged.of([known.setdefault(word, len(known)) for word in text] for text in texts)
    empty = [] if nothing is None else [nothing]
    spellings = Ragged.of(found.ids or empty for found in tokenised(tokenizer, list(known)))
    starts, ends = spellings.offsets[words.flat], spellings.offsets[words.flat + 1]
    places = offsets_of(ends - starts)
    return Spelling(Ragged(spellings.flat[rows_between(starts, ends)], places[words.offsets]), words.offsets, places)


def tokenised(tokenizer: Any, texts: list[str]) -> Any:
    """Tokenise texts in one call, without what opens and closes a text."""
    return tokenizer.backend_tokenizer.encode_batch(texts, add_special_tokens=False)


Arrays = dict[str, NDArray[Any]]

TOKENS_VERSION = 2  # raise it whenever the layout of the files, or what belongs to their keys, changes
FEW = 2000  # items: so few are tokenised as fast as they are looked up


def cached_tokens(
    reader: type[Encoder],
    texts: Sequence[Any],
    settings: object,
    tokenizer: Any,
    names: Sequence[str],
    make: Callable[[], Arrays],
) -> Arrays:
    """Return what `make` returns, arrays of these `names`, from the cache folder where it was made before.

    The key holds all that the arrays follow from: the texts and settings (both as JSON), the tokenizer as it stands,
    and the code of the encoder that reads them. A damaged file is made again; a folder that cannot be written to costs
    only the time.
    """
    code = None if len(texts) < FEW else code_digest(reader)
    if code is None:
        return make()
    path = cache_dir() / "tokens" / f"{_key(code, texts, settings, tokenizer)}.npz"
    arrays = read_arrays(path, names)
    if arrays is None:
        arrays = make()
        with suppress(OSError):
            write_arrays(path, arrays)
    return arrays


def _key(code: str, texts: Sequence[Any], settings: object, tokenizer: Any) -> str:
    digest = hashlib.sha256(json.dumps([TOKENS_VERSION, code, settings]).encode())
    digest.update(tokenizer.backend_tokenizer.to_str().encode())
    encode = json.JSONEncoder().encode
    for text in texts:
        digest.update(encode(text).encode())
    return digest.hexdigest()[:24]
