"""Overlapping windows of texts that are longer than a language model reads, and the vector of such a text."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]


def window_starts(length: int, room: int) -> NDArray[np.int64]:
    """Return the starts of windows of `room` tokens in a text of `length`: every half window, the last at its end."""
    last = max(0, length - room)
    return np.append(np.arange(0, last, max(1, room // 2)), last)


def text_windows(
    tokenizer: Any, texts: Sequence[str], room: int, prompt: str = "", lower_case: bool = False
) -> list[list[str]]:
    """Return the windows of each text: the text itself if it has at most `room` tokens, prompt included.

    Windows are parts of the text, each of at most `room` tokens with the prompt. Two tokens are left free: a word may
    need more of them at the beginning of a text than within one. `tokenizer` is one of the `tokenizers` library.
    """
    read = [text.lower() if lower_case else text for text in texts]
    *found, before = tokenizer.encode_batch([*read, prompt], add_special_tokens=False)
    room -= len(before.ids)
    return [
        [text] if len(each.ids) <= room else _cut(text, each.offsets, each.word_ids, max(1, room - 2))
        for text, each in zip(texts, found, strict=True)
    ]


def _cut(text: str, offsets: list[tuple[int, int]], words: list[int | None], room: int) -> list[str]:
    """Return windows of at most `room` tokens; those inside a word longer than a quarter of a window cut it."""
    begins = np.array([0, *(n for n in range(1, len(words)) if words[n] != words[n - 1]), len(words)])
    last = max(0, len(offsets) - room)
    windows = []
    for place in window_starts(len(offsets), room).tolist():
        if place == last:  # this window must reach the end: it starts at a later word
            start = int(begins[begins.searchsorted(place, "left")])
        else:
            start = int(begins[begins.searchsorted(place, "right") - 1])
        start = start if abs(start - place) <= room // 4 else place
        stop = start + room
        end = int(begins[begins.searchsorted(min(stop, len(offsets)), "right") - 1])
        end = end if stop - end <= room // 4 or stop > len(offsets) else stop
        windows.append(text[offsets[start][0] : offsets[end - 1][1]])
    return [window for window in windows if window.strip()] or [text]


def pooled_windows(x: Vectors, how: str) -> Vectors:
    """Return the vector of a text from those of its windows (n, D): their mean, or the one closest to it."""
    length = np.linalg.norm(x, axis=1)
    unit = x / np.maximum(length, np.finfo(np.float32).tiny)[:, None]
    mean: Vectors = x.mean(0)
    if how == "typical":
        closest: Vectors = x[int(np.argmax(unit @ mean))]
        return closest
    return mean / np.linalg.norm(mean) if np.allclose(length, 1, atol=1e-3) and mean.any() else mean
