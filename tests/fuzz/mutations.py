"""Mutations of bytes, texts, JSON values, arrays and files; each a function of a `Random` and nothing else."""

import io
import json
import struct
import warnings
import zipfile
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

Files = dict[str, bytes]  # by their paths below a folder

DEEP = 100_000  # levels of nesting: far more than Python's stack has
NUMBERS: tuple[Any, ...] = (
    0, -1, 1, 2, 2**31 - 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63), 10**30, 10**400, -(10**400), 1e-320,
    1e19, 1e38, 1e155, 1e308, -1e308, 0.5, -0.0, float("nan"), float("inf"), float("-inf"), True, False,
)  # fmt: skip
STRINGS = (
    "", " ", "\0", "\n", "\r\n", "\t", ",", '"', "\ud800", "a\udfffb", "\x1b[31m", "\x7f\x85\u2028", "\ufeff", "é" * 50, "O",
    "B-", "none of these", "NaN", "-1", "1e999", "[bold]x[/bold]", "[/", "../../etc/passwd", "/dev/null", "%s%n{0}", "a" * 70_000,
    "\u202e" + "abc", "𝔘𝔫𝔦" * 9, "0" * 400, "true", "null",
)  # fmt: skip
ENCODINGS = ("utf-16", "utf-32", "utf-16-le", "latin-1", "utf-8-sig", "cp037")


def extreme_number(random: Random) -> Any:
    return random.choice(NUMBERS)


def extreme_string(random: Random) -> str:
    return random.choice(STRINGS)


def extreme_value(random: Random) -> Any:
    """A value of any type that JSON has."""
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
    return random.choice((b"", b"\0", b"\n", b"\xef\xbb\xbf", b"[" * DEEP, b"{}", b"[]", b"null", random.randbytes(40)))


BYTE_MUTATIONS: tuple[Callable[[Random, bytes], bytes], ...] = (
    _flip, _flip, _flip_late, _flip_late, _cut, _cut_front, _remove, _duplicate, _swap, _zeros, _noise, _insert, _integer,
    _other_encoding, _nothing_left,
)  # fmt: skip


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
    if isinstance(value, dict) and value and random.random() < 0.85:
        key = random.choice(list(value))
        if random.random() < 0.7:
            return {**value, key: _mutate_value(random, value[key])}
        changed = dict(value)
        if random.random() < 0.5:
            del changed[key]
        else:
            changed[random.choice(("", "extra", key.upper() + "_"))] = extreme_value(random)
        return changed
    if isinstance(value, list) and value and random.random() < 0.85:
        place = random.randrange(len(value))
        if random.random() < 0.7:
            return [*value[:place], _mutate_value(random, value[place]), *value[place + 1 :]]
        return random.choice(
            (
                value[:place] + value[place + 1 :],
                [*value, value[place]],
                [*value, extreme_value(random)],
                value[::-1],
                [value],
                value * 50,
            )
        )
    if isinstance(value, int | float) and random.random() < 0.7:
        return extreme_number(random)
    if isinstance(value, str) and random.random() < 0.7:
        return extreme_string(random)
    return extreme_value(random)


def dump_json(value: Any) -> bytes:
    """As a hostile writer would: NaN, surrogates and numbers of 400 digits are written as they are."""
    text = json.dumps(value, default=str)
    return text.encode("utf-8", "surrogatepass")


def mutate_json_file(random: Random, data: bytes) -> bytes:
    """A file of one JSON value: a structural change, nesting without end, or damage to its bytes."""
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
    """A file of a JSON value a line."""
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
    lines = data.decode().split("\n")
    settings = [number for number, line in enumerate(lines) if "=" in line]
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


# Arrays ----------------------------------------------------------------------------------------------------------


def hostile_array(random: Random, rows: int, columns: int) -> Any:
    """An array, or what may be given for one: of any scale, type and shape, with NaN, infinity, objects, nothing."""
    values = np.random.default_rng(random.getrandbits(32))
    x: NDArray[Any] = values.normal(size=(rows, columns))
    kind = random.randrange(22)
    if kind < 6:
        scale = 10.0 ** random.choice((-320, -300, -160, -30, -20, 6, 18, 19, 20, 38, 150, 155, 200, 300, 307))
        x = x * scale
        return _as_float32(x) if random.random() < 0.4 else x
    if kind == 6:
        return x + 10.0 ** random.choice((3, 6, 9, 15, 30, 150))
    if kind == 7:
        x[values.integers(rows), values.integers(columns)] = random.choice((np.nan, np.inf, -np.inf, 1e308, 5e-324))
        return x
    if kind == 8:
        return np.zeros((rows, columns), random.choice((np.float64, np.float32, np.int64, bool, np.uint8)))
    if kind == 9:
        return random.choice((np.empty((0, columns)), np.empty((rows, 0)), np.empty((0, 0)), [], [[]], [[], []]))
    if kind == 10:
        return (x * 10).astype(
            random.choice((np.int8, np.uint64, np.int64, np.float16, np.complex128, "U4", "S4", object))
        )
    if kind == 11:
        return random.choice(
            (x[0], x[0, 0], x[None], x[..., None], np.float64(1.0), 3, None, "text", b"bytes", {}, {"a": 1})
        )
    if kind == 12:
        return x[:, : random.randrange(columns)]
    if kind == 13:
        return [*x.tolist()[:-1], [0.0]]
    if kind == 14:
        mixed = x.astype(object)
        mixed[0, 0] = random.choice((None, "a", 10**400, 2**70, [1], {}, np.nan, b"1", object()))
        return mixed
    if kind == 15:
        return np.asfortranarray(x)
    if kind == 16:
        return np.repeat(x[:1], rows, axis=0)
    if kind == 17:
        return np.full((rows, columns), random.choice((2**62, 2**53 + 1, -(2**63))), np.int64)
    if kind == 18:
        return np.ma.masked_array(x, mask=x > 0)
    if kind == 19:
        return [[10**400] * columns] * rows
    if kind == 20:
        frozen = x.copy()
        frozen.setflags(write=False)
        return frozen
    return x.tolist()


def _as_float32(x: NDArray[Any]) -> NDArray[Any]:
    with np.errstate(all="ignore"):
        return x.astype(np.float32)


def hostile_labels(random: Random, rows: int) -> Any:
    """Labels of any type, number and mixture."""
    kind = random.randrange(14)
    some = [random.randrange(3) for _ in range(rows)]
    if kind < 5:
        return [f"class {n}" for n in some]
    if kind == 5:
        return some
    if kind == 6:
        return [random.choice(("a", 1, None, 2.5, True, (1, 2))) for _ in some]
    if kind == 7:
        return [extreme_string(random) for _ in some]
    if kind == 8:
        return [extreme_number(random) for _ in some]
    if kind == 9:
        return np.array([float(n) for n in some])
    if kind == 10:
        return some[:-1]
    if kind == 11:
        return random.choice(
            ([], None, "a", 3, np.array(some)[:, None], np.array(some, dtype=object), {"a": 1}, np.zeros((rows, 2)))
        )
    if kind == 12:
        return np.array([f"c{n}" for n in some]).astype(random.choice(("U9", "S9", object)))
    return [n + 2**62 for n in some]


def hostile_weights(random: Random, rows: int) -> Any:
    return random.choice(
        (
            None,
            None,
            None,
            [1.0] * rows,
            [0.0] * rows,
            [-1.0] * rows,
            [1e308] * rows,
            [1e-320] * rows,
            [np.nan] * rows,
            [1.0],
            2.0,
            "a",
            [0.5] * rows,
            [[1.0]] * rows,
        )
    )


# npz and zip -----------------------------------------------------------------------------------------------------


def npz(arrays: Mapping[str, Any]) -> bytes:
    """The bytes of an .npz file."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def mutate_npz(random: Random, data: bytes) -> bytes:
    """Change a member, its header or its name; add, drop or double members; or damage the archive."""
    if random.random() < 0.35:
        return mutate_bytes(random, data)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    place = random.randrange(len(members))
    name, content = members[place]
    action = random.randrange(7)
    if action == 0:
        members[place] = name, mutate_bytes(random, content)
    elif action == 1:
        members[place] = random.choice(("z.npy", "a", name.upper(), "../x.npy", "x", "\ud7ff.npy")), content
    elif action == 2:
        del members[place]
    elif action == 3:
        members[place] = name, _npy(hostile_array(random, *_shape_of(content)))
    elif action == 4:
        members.append((name, _npy(hostile_array(random, 3, 4))))
    elif action == 5:
        members[place] = name, _declared(random, content)
    else:
        members[place] = name, _npy(hostile_labels(random, _shape_of(content)[0]))
    return make_zip(members, random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)))


def make_zip(members: list[tuple[str, bytes]], method: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "w", method) as archive:
        warnings.simplefilter("ignore")  # two members of one name are what a damaged archive may have
        for name, content in members:
            archive.writestr(name, content)
    return buffer.getvalue()


def _npy(value: Any) -> bytes:
    buffer = io.BytesIO()
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, OverflowError):
        array = np.zeros(3)
    np.save(buffer, array, allow_pickle=array.dtype.hasobject)
    return buffer.getvalue()


def _shape_of(content: bytes) -> tuple[int, int]:
    """Rows and columns of an array, so that what replaces it may fit."""
    try:
        shape = np.load(io.BytesIO(content)).shape
    except ValueError:
        return 6, 4
    return max(1, shape[0]) if shape else 6, shape[1] if len(shape) > 1 else 4


def _declared(random: Random, content: bytes) -> bytes:
    """A header that declares another shape, order or type than the data have."""
    shape = random.choice(
        (
            "(2**40, 4)",
            "(1000000000, 100)",
            "(-1, 4)",
            "()",
            "(24,)",
            "(0, 8)",
            "(24, 0)",
            "(9223372036854775807,)",
            "None",
            "(24, 8, 1)",
        )
    )
    kind = random.choice(("'<f4'", "'<f8'", "'|O'", "'<U1000000'", "'<i8'", "'|V8'", "'<M8[s]'", "[('a', '<f4')]"))
    header = (
        f"{{'descr': {kind}, 'fortran_order': {random.choice(('False', 'True', '1'))}, 'shape': {shape}, }}".encode()
    )
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + content[128:]


# Safetensors -----------------------------------------------------------------------------------------------------


def mutate_tensors(random: Random, data: bytes) -> bytes:
    """Change the JSON head of a safetensors file (lengths kept right), or its bytes."""
    if random.random() < 0.6:
        return mutate_bytes(random, data)
    size = struct.unpack("<Q", data[:8].ljust(8, b"\0"))[0]
    try:
        head = dump_json(mutate_json(random, json.loads(data[8 : 8 + size])))
    except (ValueError, RecursionError):
        return mutate_bytes(random, data)
    return struct.pack("<Q", len(head)) + head + data[8 + size :]


# Any file --------------------------------------------------------------------------------------------------------

BY_SUFFIX: dict[str, Callable[[Random, bytes], bytes]] = {
    ".json": mutate_json_file, ".jsonl": mutate_json_lines, ".toml": mutate_toml, ".npz": mutate_npz,
    ".safetensors": mutate_tensors, ".csv": mutate_text, ".tsv": mutate_text, ".txt": mutate_text,
    ".conll": mutate_text, ".zip": mutate_npz,
}  # fmt: skip


def mutate_file(random: Random, name: str, data: bytes) -> bytes:
    """Change a file as its suffix suggests; always to other bytes."""
    suffix = name[name.rfind(".") :] if "." in name else ""
    changed = BY_SUFFIX.get(suffix, mutate_bytes)(random, data) if data else b"\0"
    return changed if changed != data else data + b"\0"


def mutate_files(random: Random, files: Files) -> Files:
    """Change one file of several (or two), remove it, or put one in the place of another."""
    changed = dict(files)
    for _ in range(random.choice((1, 1, 1, 2))):
        name = random.choice(sorted(changed))
        action = random.random()
        if action < 0.08 and len(changed) > 1:
            del changed[name]
        elif action < 0.14:
            changed[name] = changed[random.choice(sorted(changed))]
        else:
            changed[name] = mutate_file(random, name, changed[name])
    return changed
