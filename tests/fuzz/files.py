"""Mutations of files by their suffix: archives and tensors here, texts as `mutations` has them."""

import hashlib
import io
import json
import struct
import warnings
import zipfile
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import numpy as np

from hyperproto.data.formats.images import DAMAGED_ZIP
from tests.fuzz.arrays import hostile_array, hostile_labels
from tests.fuzz.mutations import (
    dump_json,
    mutate_bytes,
    mutate_json,
    mutate_json_file,
    mutate_json_lines,
    mutate_text,
    mutate_toml,
)

Files = dict[str, bytes]  # by their paths below a folder


def npz(arrays: Mapping[str, Any]) -> bytes:
    """Return the bytes of an .npz file."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def mutate_npz(random: Random, data: bytes) -> bytes:
    """Change a member, its header or its name; add, drop or double members; or damage the archive."""
    if random.random() < 0.35:
        return mutate_bytes(random, data)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    except DAMAGED_ZIP:  # it was changed before
        return mutate_bytes(random, data)
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
    """Write a header with another shape, order or type than the data have."""
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


def sealed(head: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a JSON file of ours with a valid checksum, as a forger would compute it."""
    digest = hashlib.sha256(json.dumps(head, sort_keys=True).encode()).hexdigest()
    return {**head, "checksum": digest}


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
