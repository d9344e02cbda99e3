"""Mutations of bytes, texts, JSON and TOML; each a function of a `Random` and nothing else."""

import json
import struct
from collections.abc import Callable
from random import Random
from typing import Any

DEEP = 100_000  # levels of nesting: far more than Python's stack has
NUMBERS: tuple[Any, ...] = (
    0, -1, 1, 2, 2**31 - 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63), 10**30, 10**400, -(10**400), 1e-320,
    1e19, 1e38, 1e155, 1e308, -1e308, 0.5, -0.0, float("nan"), float("inf"), float("-inf"), True, False,
)  # fmt: skip
STRINGS = (
    "", " ", "\0", "\n", "\r\n", "\t", ",", '"', "\ud800", "a\udfffb", "\x1b[31m", "\x7f\x85\u2028", "\ufeff",
    "\u00e9" * 50, "O", "B-", "none of these", "NaN", "-1", "1e999", "[bold]x[/bold]", "[/", "../../etc/passwd",
    "/dev/null", "%s%n{0}", "a" * 70_000, "\u202eabc", "\U0001d518" * 9, "0" * 400, "true", "null",
)  # fmt: skip
ENCODINGS = ("utf-16", "utf-32", "utf-16-le", "latin-1", "utf-8-sig", "cp037")


def extreme_number(random: Random) -> Any:
    return random.choice(NUMBERS)


def extreme_string(random: Random) -> str:
    return random.choice(STRINGS)


def extreme_value(random: Random) -> Any:
    """Draw a value of any JSON type."""
    kind = random.randrange(6)
    if kind == 0:
        return extreme_number(random)
    if kind == 1:
        return extreme_string(random)
    return (None, [], {}, [[[]]], {"": None}, [1, "a", None])[random.randrange(6)]


# Bytes -----------------------------------------------------------------------------------------------------------


def _flip(random: Random, data: bytes) -> bytes:
    place, bit = random.randrange(len(data)), random.randrange(8)
    return data[:place] + bytes([data[place] ^ (1 << bit)]) + data[place + 1 :]


def _flip_late(random: Random, data: bytes) -> bytes:
    """Flip a bit of the second half: behind the head of a file that has one."""
    half = len(data) // 2
    return data[:half] + _flip(random, data[half:])


def _cut(random: Random, data: bytes) -> bytes:
    return data[: random.randrange(len(data))]


def _cut_front(random: Random, data: bytes) -> bytes:
    return data[random.randrange(len(data)) + 1 :]


def _chunk(random: Random, data: bytes) -> tuple[int, int]:
    start = random.randrange(len(data))
    return start, min(len(data), start + 1 + random.randrange(64))


def _remove(random: Random, data: bytes) -> bytes:
    start, end = _chunk(random, data)
    return data[:start] + data[end:]


def _duplicate(random: Random, data: bytes) -> bytes:
    start, end = _chunk(random, data)
    return data[:end] + data[start:end] * random.choice((1, 1, 2, 100)) + data[end:]


def _swap(random: Random, data: bytes) -> bytes:
    (a, b), (c, d) = sorted((_chunk(random, data), _chunk(random, data)))
    b = min(b, c)
    return data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:]


def _zeros(random: Random, data: bytes) -> bytes:
    start, end = _chunk(random, data)
    return data[:start] + bytes(end - start) + data[end:]


def _noise(random: Random, data: bytes) -> bytes:
    start, end = _chunk(random, data)
    return data[:start] + random.randbytes(end - start) + data[end:]


def _insert(random: Random, data: bytes) -> bytes:
    place = random.randrange(len(data))
    return data[:place] + random.choice((b"\0", b"\xff", b"\n", b"\x00" * 4096, b"PK\x03\x04", b'"')) + data[place:]


def _integer(random: Random, data: bytes) -> bytes:
    """Replace eight bytes, which may be a length or an offset, by an extreme."""
    place = random.randrange(max(1, len(data) - 7))
    value = random.choice((0, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1))
    return data[:place] + struct.pack("<Q", value) + data[place + 8 :]


def _other_encoding(random: Random, data: bytes) -> bytes:
    return data.decode("utf-8", "replace").encode(random.choice(ENCODINGS), "replace")


def _nothing_left(random: Random, data: bytes) -> bytes:
    noise = random.randbytes(40)
    return random.choice((b"", b"\0", b"\n", b"\xef\xbb\xbf", b"[" * DEEP, b"{}", b"[]", b"null", noise))


BYTE_MUTATIONS: tuple[Callable[[Random, bytes], bytes], ...] = (
    _flip,
    _flip,
    _flip_late,
    _flip_late,
    _cut,
    _cut_front,
    _remove,
    _duplicate,
    _swap,
    _zeros,
    _noise,
    _insert,
    _integer,
    _other_encoding,
    _nothing_left,
)


def mutate_bytes(random: Random, data: bytes) -> bytes:
    """One to three damages; the result always differs."""
    changed = data
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        if changed:
            changed = random.choice(BYTE_MUTATIONS)(random, changed)
    return changed if changed != data else data + b"\0"


# Text ------------------------------------------------------------------------------------------------------------


def mutate_text(random: Random, data: bytes) -> bytes:
    """Replace a word, a number or a line of a text file by an extreme one, or damage its bytes."""
    if random.random() < 0.4:
        return mutate_bytes(random, data)
    lines = data.split(b"\n")
    place = random.randrange(len(lines))
    action = random.randrange(5)
    if action == 0:
        lines.insert(place, lines[random.randrange(len(lines))])
    elif action == 1:
        del lines[place]
    elif action == 2:
        other = random.randrange(len(lines))
        lines[place], lines[other] = lines[other], lines[place]
    else:
        separator = random.choice((b",", b"\t", b" ", b"=", b'"'))
        parts = lines[place].split(separator)
        new = extreme_string(random) if random.random() < 0.5 else str(extreme_number_text(random))
        parts[random.randrange(len(parts))] = new.encode("utf-8", "surrogatepass")
        lines[place] = separator.join(parts)
    return b"\n".join(lines)


def extreme_number_text(random: Random) -> str:
    number = extreme_number(random)
    return "1" + "0" * 400 if number == 10**400 else "-1" + "0" * 400 if number == -(10**400) else str(number)


# JSON ------------------------------------------------------------------------------------------------------------


def mutate_json(random: Random, value: Any, times: int = 1) -> Any:
    """Swap types, drop, double and add keys, replace values by extremes; `value` itself stays as it is."""
    for _ in range(times):
        value = _mutate_value(random, value)
    return value


def _mutate_value(random: Random, value: Any) -> Any:
    if random.random() < 0.85:
        if isinstance(value, dict) and value:
            return _mutate_dict(random, value)
        if isinstance(value, list) and value:
            return _mutate_list(random, value)
    if random.random() < 0.7:
        if isinstance(value, int | float):
            return extreme_number(random)
        if isinstance(value, str):
            return extreme_string(random)
    return extreme_value(random)


def _mutate_dict(random: Random, value: dict[str, Any]) -> dict[str, Any]:
    key = random.choice(list(value))
    action = random.random()
    if action < 0.7:
        return {**value, key: _mutate_value(random, value[key])}
    if action < 0.85:
        return {name: content for name, content in value.items() if name != key}
    return {**value, random.choice(("", "extra", key.upper() + "_")): extreme_value(random)}


def _mutate_list(random: Random, value: list[Any]) -> list[Any]:
    place = random.randrange(len(value))
    if random.random() < 0.7:
        return [*value[:place], _mutate_value(random, value[place]), *value[place + 1 :]]
    shorter, longer = value[:place] + value[place + 1 :], [*value, value[place]]
    return random.choice((shorter, longer, [*value, extreme_value(random)], value[::-1], [value], value * 50))


def dump_json(value: Any) -> bytes:
    """As a hostile writer would: NaN, surrogates and numbers of 400 digits are written as they are."""
    text = json.dumps(value, default=str)
    return text.encode("utf-8", "surrogatepass")


def mutate_json_file(random: Random, data: bytes) -> bytes:
    """Mutate a JSON file: a structural change, very deep nesting, or damage to its bytes."""
    kind = random.random()
    if kind < 0.25:
        return mutate_bytes(random, data)
    if kind < 0.3:
        return random.choice((b"[" * DEEP + b"]" * DEEP, b'{"a":' * DEEP + b"1" + b"}" * DEEP))
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):  # it is damaged already
        return mutate_bytes(random, data)
    return dump_json(mutate_json(random, value, random.choice((1, 1, 2, 3))))


def mutate_json_lines(random: Random, data: bytes) -> bytes:
    """Mutate a file with a JSON value a line."""
    if random.random() < 0.3:
        return mutate_text(random, data)
    lines = data.split(b"\n")
    place = random.randrange(len(lines))
    if lines[place]:
        lines[place] = mutate_json_file(random, lines[place])
    return b"\n".join(lines)


# TOML ------------------------------------------------------------------------------------------------------------


def mutate_toml(random: Random, data: bytes) -> bytes:
    """Replace a value, drop, double or add a line, nest without end, or damage the bytes."""
    if random.random() < 0.2:
        return mutate_bytes(random, data)
    lines = data.decode("utf-8", "replace").split("\n")
    settings = [number for number, line in enumerate(lines) if "=" in line] or [0]
    place = random.choice(settings)
    key = lines[place].partition("=")[0]
    action = random.randrange(8)
    if action <= 3:
        lines[place] = f"{key}= {toml_value(random)}"
    elif action == 4:
        del lines[place]
    elif action == 5:
        lines.insert(place, lines[random.choice(settings)])
    elif action == 6:
        lines.insert(
            random.randrange(len(lines)),
            random.choice(("[extra]", "[[row]]", "row = 1", "[data]", "a.b.c = 1", "table = []")),
        )
    else:
        lines[place] = f"{key}= {'[' * (DEEP if random.random() < 0.2 else 40)}"
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def toml_value(random: Random) -> str:
    kind = random.randrange(5)
    if kind == 0:
        return extreme_number_text(random).replace("True", "true").replace("False", "false")
    if kind == 1:
        return json.dumps(extreme_string(random))
    return random.choice(
        (
            "[]",
            "{}",
            "[1, 2]",
            '"identity"',
            '"protonet"',
            "1979-05-27",
            "'''",
            "{name = 1}",
            "[[]]",
            '""',
            "nan",
            "inf",
        )
    )
