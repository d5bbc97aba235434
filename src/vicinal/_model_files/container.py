"""The container of a model file: named arrays and one string with a checksum, read and written in one pass.

A model file is a valid `safetensors <https://github.com/huggingface/safetensors>`_ file, so that the arrays can be read by other
programs. It has three additions: the text that describes the estimator, a checksum, and a fixed position of the checksum::

    8 bytes     n, the length of the header, little-endian
    n bytes     {"__metadata__":{"sha256":"<64 hex digits>","format":"vicinal-model","version":"1",
                 "model":"..."},"<array name>":{"dtype":"F64","shape":[2,3],"data_offsets":[0,48]},...}
                 and spaces
    the rest    the arrays: C order, little-endian, one after the other without gaps

The digest covers every other byte of the file, so every changed bit is detected. Sizes are compared with the size of the file before
anything is allocated. The container is our own and not the package safetensors, because that one copies the arrays once more, has no
checksum, and parses headers of up to 100 MB.
"""

import hashlib
import json
import math
import os
import stat
from os import PathLike
from typing import Any, NoReturn

import numpy as np

from vicinal._model_files.replacing import replacing

FORMAT, VERSION = "vicinal-model", 1
LONGEST_HEADER = 2**20
MOST_CONTAINERS = 100_000  # lists and objects of a header; small ones take most memory for their length

_PREFIX = b'{"__metadata__":{"sha256":"'
DIGEST_AT = 8 + len(_PREFIX)
DIGEST_END = DIGEST_AT + 64
_DTYPES = {
    "BOOL": "|b1", "U8": "|u1", "I8": "|i1", "U16": "<u2", "I16": "<i2", "F16": "<f2", "U32": "<u4",
    "I32": "<i4", "F32": "<f4", "U64": "<u8", "I64": "<i8", "F64": "<f8",
}  # fmt: skip
_NAMES = {np.dtype(dtype): name for name, dtype in _DTYPES.items()}


def write_arrays(path: str | PathLike[str], model: str, arrays: dict[str, np.ndarray]) -> None:
    """Write a string and named arrays (of the dtypes above), replacing `path` completely or not at all."""
    # The widest entries come first, so that every array is aligned without gaps, which the format does not allow.
    names = sorted(arrays, key=lambda name: -arrays[name].dtype.itemsize)
    metadata = {"sha256": "0" * 64, "format": FORMAT, "version": str(VERSION), "model": model}
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name in names:
        start, end = end, end + arrays[name].nbytes
        dtype, shape = _NAMES[arrays[name].dtype], list(arrays[name].shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":"))
    text += " " * (-(8 + len(text)) % 64)
    if len(text) > LONGEST_HEADER:
        raise ValueError(
            f"the model has too many parts to save: their description has {len(text) / 2**20:.1f} MB, at most "
            f"{LONGEST_HEADER // 2**20} MB are allowed. Long lists take up this space; use arrays instead."
        )
    head = bytearray(len(text).to_bytes(8, "little") + text.encode("ascii"))
    data = [np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8).data for name in names]
    head[DIGEST_AT:DIGEST_END] = _checksum(head, data)
    with replacing(path) as file:
        file.write(head)
        for part in data:
            file.write(part)


def _checksum(head: bytes | bytearray, data: list[Any]) -> bytes:
    """Return the digits of the checksum: of all bytes but these digits."""
    checksum = hashlib.sha256(memoryview(head)[:DIGEST_AT])
    for part in (memoryview(head)[DIGEST_END:], *data):
        checksum.update(part)
    return checksum.hexdigest().encode("ascii")


def read_arrays(path: str | PathLike[str]) -> tuple[str, dict[str, np.ndarray]]:
    """Return the text and the named arrays of a model file; raise a ValueError with the reason if it is not valid.

    The arrays are views of one buffer, to which nothing else refers.
    """
    head, data = _read_verified(path)
    header = parse_json(str(memoryview(head)[8:], "ascii", "replace"))
    del head  # the header was parsed, and memory is counted
    return _model_in(header.pop("__metadata__")), _arrays_in(header, data)


def _read_verified(path: str | PathLike[str]) -> tuple[bytes, np.ndarray]:
    """Return the length and header, and the data, once the checksum agrees."""
    # Checked before opening, because opening a named pipe would block.
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
        raise ValueError(f"it is {kind}. Pass the path of a file written by vicinal.io.save.")
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(DIGEST_END)
        length = int.from_bytes(head[:8], "little")
        if head[8:DIGEST_AT] != _PREFIX[: len(head[8:DIGEST_AT])] or size < 8:
            raise ValueError("it is not a model file. Pass a file written by vicinal.io.save.")
        if length > LONGEST_HEADER:
            raise ValueError(f"it is damaged: its header claims {length} bytes, at most {LONGEST_HEADER} are allowed.")
        n_bytes = size - 8 - length
        if length < DIGEST_END or n_bytes < 0:
            raise ValueError(f"it is truncated or damaged: it has {size} bytes, and its header needs {8 + length}.")
        if n_bytes > _physical_memory():
            gigabytes = [f"{number / 2**30:.1f} GB" for number in (n_bytes, _physical_memory())]
            raise ValueError(f"it holds {gigabytes[0]} of arrays, and this machine has {gigabytes[1]} of memory.")
        head += file.read(8 + length - len(head))
        data = np.empty(n_bytes, dtype=np.uint8)
        if (file.readinto(data.data) if n_bytes else 0) != n_bytes or len(head) != 8 + length or file.read(1):
            raise ValueError("it changed while it was read. Try again when no other process writes it.")
    if _checksum(head, [data.data]) != head[DIGEST_AT:DIGEST_END]:
        raise ValueError(
            "its checksum does not agree with its contents: it is damaged or truncated. Copy it again from "
            "the original, or fit and save again."
        )
    return head, data


def _physical_memory() -> float:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return math.inf


def parse_json(text: str) -> dict[str, Any]:
    """Parse the text of a header or of a model, strictly: no repeated keys, no NaN, no endless nesting."""
    if not text.isascii():
        raise ValueError("its description holds characters that are not ASCII. vicinal.io.save writes no such file.")
    if text.count("[") + text.count("{") > MOST_CONTAINERS:
        raise ValueError(f"its description has more than {MOST_CONTAINERS:,} lists and objects.")
    try:
        tree = json.loads(text, object_pairs_hook=_without_repeats, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("its header is nested too deeply.") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"its header is not valid JSON: {error}.") from None
    if not isinstance(tree, dict):
        raise ValueError("its header is not a JSON object.")
    return tree


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    by_name = dict(pairs)
    if len(by_name) < len(pairs):
        raise ValueError("its header repeats a name.")
    return by_name


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"its header holds {name}, which is not JSON.")


def _model_in(metadata: Any) -> str:
    """Return the description of the model, or raise an error if the file has another format."""
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ValueError("its metadata are not strings by name.")
    if metadata.get("format") != FORMAT:
        raise ValueError(f"its format is {_short(metadata.get('format'))}, expected {FORMAT!r}.")
    version = metadata.get("version", "")
    if version != str(VERSION):
        raise ValueError(
            f"it has format version {_short(version)}, and this version of vicinal reads {VERSION}. Install a newer one."
        )
    if "model" not in metadata:
        raise ValueError("it has no description of a model.")
    return metadata["model"]


def _arrays_in(header: dict[str, Any], data: np.ndarray) -> dict[str, np.ndarray]:
    """Return the arrays by name; together they must make up the data exactly, one after the other."""
    arrays, end = {}, 0
    for name, entry in header.items():
        if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
            raise ValueError(f"the array {_short(name)} is not described by dtype, shape and data_offsets.")
        if not isinstance(entry["dtype"], str) or entry["dtype"] not in _DTYPES:
            raise ValueError(f"the array {_short(name)} has the unknown dtype {_short(entry['dtype'])}.")
        dtype, shape = np.dtype(_DTYPES[entry["dtype"]]), _checked_shape(entry["shape"])
        start, end = end, end + math.prod(shape) * dtype.itemsize
        if entry["data_offsets"] != [start, end] or end > len(data):
            raise ValueError(f"the array {_short(name)} of shape {_short(entry['shape'])} does not fit the file.")
        # `write_arrays` keeps arrays aligned, as compiled code requires; the reader copies those that another writer has not aligned.
        arrays[name] = data[start:end].view(dtype).reshape(shape)
        if dtype.kind == "b" and arrays[name].size and data[start:end].max() > 1:
            raise ValueError(f"the array {_short(name)} holds booleans that are neither true nor false.")
    if end != len(data):
        raise ValueError(f"it holds {len(data)} bytes of data, and its arrays need {end}.")
    return arrays


def _checked_shape(shape: Any) -> tuple[int, ...]:
    """Return a list of sizes as a tuple; raise an error for shapes that NumPy cannot hold."""
    whole = isinstance(shape, list) and all(type(size) is int and size >= 0 for size in shape)
    if not whole or len(shape) > 32 or math.prod(max(size, 1) for size in shape) >= 2**56:
        raise ValueError(f"an array has the impossible shape {_short(shape)}.")
    return tuple(shape)


def _short(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 80 else text[:77] + "..."
