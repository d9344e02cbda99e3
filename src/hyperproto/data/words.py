"""Words in forms in which files that were prepared in different ways agree."""

import re
import unicodedata
from collections.abc import Iterable

_NO_LETTER_OR_DIGIT = re.compile(r"[\W_]+")  # accents too, once they stand by themselves


def uncased(word: str) -> str:
    """Lower-case a word and strip its accents; a word that is nothing but accents stays."""
    if word.isascii():
        return word.lower()
    letters = "".join(c for c in unicodedata.normalize("NFD", word.lower()) if not unicodedata.combining(c))
    return letters or word


def sentence_key(tokens: Iterable[str]) -> str:
    """Return the letters and digits of a sentence, without case and accents: the same however it was cut into words."""
    text = unicodedata.normalize("NFD", "".join(tokens).casefold())
    return _NO_LETTER_OR_DIGIT.sub("", text)


class Words(dict[str, str]):
    """Each different word once, as it is or uncased: a million sentences share the memory of their words."""

    def __init__(self, *, uncased: bool = False) -> None:
        super().__init__()
        self.uncased = uncased

    def __missing__(self, word: str) -> str:
        word.encode()  # half a character (a lone surrogate) stops here, not in the middle of a training
        self[word] = found = uncased(word) if self.uncased else word
        return found
