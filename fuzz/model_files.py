"""Damaged and forged model files raise a ValueError, or can be loaded and used without a crash, within the limits of memory and time.

Three in ten cases change bytes of a file and leave its checksum as it is. The others change the decoded description or an
array, and repair the checksum, as a forger would; some of them repeat a part many times.
If a file can be loaded, all methods of the estimator are called; they may raise any exception, but must not end the process.
"""

import copy
import json
import sys
import time
import tracemalloc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import model_file_fits as fits
import numpy as np
import sklearn
from sklearn.base import BaseEstimator

from fuzz.harness import Bad, Case, damaged
from vicinal import io
from vicinal._model_files import container
from vicinal._model_files.codec import Writer
from vicinal._model_files.container import write_arrays

CASES = 100_000
UNTIMED = 20  # the first cases import packages and compile kernels
MB = 2**20
_FOLDER = TemporaryDirectory(prefix="vicinal-campaign-")
_PATH = Path(_FOLDER.name) / "model.vicinal"
NUMBERS = [0, 1, -1, 2, 7, 2**31, 2**63, -(2**40), 10**30, 0.5, -0.0, 1e-310, 1e308, -1e150]
TEXTS = [
    "",
    "auto",
    "LCA",
    "ParzenWindows",
    "sklearn.KMeans",
    "Engine",
    "/tmp/x",
    "os.system",
    "cuda",
    "\x00",
    "é" * 50,
]
CLASSES = ["ParzenWindows", "LCA", "SharedMixture", "FrameMixture", "sklearn.StandardScaler", "ChunkletReport", "NCA"]


class Source(NamedTuple):
    """A file to start from: its description, arrays and bytes."""

    tree: dict
    arrays: dict
    raw: bytes


@cache
def _source(name: str) -> Source:
    """Return the file of a fit."""
    writer = Writer()
    tree = {"vicinal": "0", "sklearn": sklearn.__version__, "estimator": writer.estimator(fits.fitted(name))}
    write_arrays(_PATH, json.dumps(tree), writer.arrays)
    return Source(tree, writer.arrays, _PATH.read_bytes())


def check(case: Case) -> str:
    """Load and use one changed file."""
    name = str(case.choice(list(fits.FITS)))
    source = _source(name)
    if case.chance(0.3):
        case.what, data = "bytes", _changed_bytes(case, source.raw)
        _PATH.write_bytes(data)
    else:
        case.what = name.partition(":")[0]
        tree, arrays = copy.deepcopy(source.tree), dict(source.arrays)
        with _deep_trees():
            for _ in range(int(case.rng.geometric(0.8))):
                _change(case, tree, arrays)
            if not _write(tree, arrays):
                return "could not be written"
        data = _PATH.read_bytes()
    case.text = f"{name}: {case.text}"
    loaded = _loaded(case, len(data))
    if case.chance(0.2):
        _describe(len(data))
    if loaded is None:
        return "a ValueError"
    if case.what == "bytes" and data != source.raw:
        raise Bad("a file with another content than was written was loaded")
    with np.errstate(all="ignore"):
        fits.answers(loaded)
    return "loaded and used"


@contextmanager
def _deep_trees() -> Iterator[None]:
    """Let this program copy and write what is nested more deeply than Python usually recurses; loading has no such help."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(50_000)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def _write(tree: dict, arrays: dict) -> bool:
    """Write a file without the limits of `save`, as a forger would; return whether this was possible."""
    limit, container.LONGEST_HEADER = container.LONGEST_HEADER, 2**60
    try:
        write_arrays(_PATH, json.dumps(tree), arrays)
    except (KeyError, ValueError, TypeError, RecursionError):
        return False
    finally:
        container.LONGEST_HEADER = limit
    return True


def _describe(size: int) -> None:
    """Check that `describe` returns a result or raises a ValueError."""
    began = time.process_time()
    for look in (io.describe, io.load_components):
        try:
            look(_PATH)
        except ValueError as error:
            if not str(error).startswith("cannot load"):
                raise
    if time.process_time() - began > 2 * (2.0 + 2.0 * size / (10 * MB)):
        raise Bad(f"describing {size} bytes took {time.process_time() - began:.1f} s")


def _loaded(case: Case, size: int) -> BaseEstimator | None:
    """Return the estimator of the file, or None if it is refused, and check the memory and time of loading."""
    measured = case.chance(0.05)
    if measured:
        tracemalloc.start()
    began = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return io.load(_PATH)
    except ValueError as error:
        if not str(error).startswith("cannot load"):
            raise
        return None
    finally:
        seconds = time.process_time() - began
        if measured:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            if peak > 3 * size + 32 * MB:
                raise Bad(f"loading {size} bytes took {peak / MB:.0f} MB")
        elif seconds > 2.0 + 2.0 * size / (10 * MB):
            raise Bad(f"loading {size} bytes took {seconds:.1f} s")


def _changed_bytes(case: Case, raw: bytes) -> bytes:
    if case.chance(0.1):
        case.text = "another length of the header"
        return int(case.rng.integers(2**63)).to_bytes(8, "little") + raw[8:]
    return damaged(case, raw)


def _places(tree: object) -> list[tuple]:
    """Every (container, key) of a tree, each before those within it."""
    found: list[tuple] = []
    waiting = _keys(tree)
    while waiting:
        container, key = waiting.pop()
        found.append((container, key))
        waiting += _keys(container[key])
    return found


def _keys(value: object) -> list[tuple]:
    """(value, key) for each key of a dict or list, the last one first."""
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [(value, key) for key in keys][::-1]


def _change(case: Case, tree: dict, arrays: dict) -> None:
    """Change something in the description, or in an array."""
    if arrays and case.chance(0.4):
        name = str(case.choice(sorted(arrays)))
        arrays[name] = _changed_array(case, arrays[name])
        case.text += f" array {name}"
        return
    places = _places(tree["estimator"])
    container, key = places[int(case.rng.integers(len(places)))]
    other, other_key = places[int(case.rng.integers(len(places)))]
    kinds = ["number", "text", "delete", "swap", "copy", "wrap", "class", "none", "array", "key", "bool"]
    kind = "many" if case.chance(0.02) else str(case.choice(kinds))
    case.text += f" {kind} at {key!r}"
    if kind == "delete":
        del container[key]
    elif kind == "swap":
        container[key], other[other_key] = copy.deepcopy(other[other_key]), copy.deepcopy(container[key])
    elif kind == "copy":
        container[key] = copy.deepcopy(other[other_key])
    elif kind == "many":
        container[key] = _repeated(case, container[key])
    elif kind == "wrap":
        container[key] = case.choice([[container[key]], {"is": "tuple", "items": [container[key]]}])
    elif kind == "array" and arrays:
        container[key] = {"is": "array", "name": str(case.choice(sorted(arrays)))}
    elif kind == "key" and isinstance(container, dict):
        container[str(case.choice([str(other_key), "memory", "__class__", "engine"]))] = container.pop(key)
    else:
        container[key] = {
            "number": case.choice(NUMBERS), "text": case.choice(TEXTS), "class": case.choice(CLASSES),
            "bool": case.chance(0.5),
        }.get(kind)  # fmt: skip


def _repeated(case: Case, value: object) -> object:
    """Return a value that takes few bytes in a file and might take much memory or time."""
    many = int(10.0 ** case.rng.uniform(1, 5))
    kind = str(case.choice(["list", "nested", "text", "wide text", "keys", "names", "digits"]))
    case.text += f" ({kind}, {many} times)"
    if kind == "nested":
        for _ in range(min(many, 2000)):
            value = [value]
        return value
    if kind == "keys":  # keys with the same hash
        return {"is": "dict", "items": [[i * (2**61 - 1), 1.0] for i in range(min(many, 30_000))]}
    if kind == "names":
        return {str(i): None for i in range(many)}
    return {"list": [value] * max(1, min(many, 10**7 // max(len(json.dumps(value)), 1))), "text": "a" * many * 50,
            "wide text": "\U0001f600" * many, "digits": 10 ** min(many, 4000)}[kind]  # fmt: skip


def _changed_array(case: Case, array: np.ndarray) -> np.ndarray:
    kind = str(
        case.choice(
            ["value", "value", "values", "row", "shape", "dtype", "scale", "order", "empty", "no columns", "noise"]
        )
    )
    case.text += f" {kind} of"
    array = array.copy()
    special = case.choice([np.nan, np.inf, -np.inf, 0.0, -1.0, 1e300, -1e300, 1e-300, 2.0, 1e9])
    with np.errstate(all="ignore"):
        special = np.asarray(special).astype(array.dtype)
    if kind == "value" and array.size:
        array.flat[int(case.rng.integers(array.size))] = special
    elif kind == "values":
        array[...] = special
    elif kind == "row" and array.ndim:
        array = array[int(case.rng.integers(2)) : max(len(array) - int(case.rng.integers(2)), 0)]
    elif kind == "shape":
        array = case.choice([array.ravel(), array[None], array.T, array.reshape(-1, 1)])
    elif kind == "dtype":
        with np.errstate(all="ignore"):
            array = array.astype(str(case.choice(["<f4", "<f8", "<i8", "<i4", "|b1", "|u1", "<f2"])))
    elif kind == "scale" and array.dtype.kind == "f":
        with np.errstate(all="ignore"):
            array = array * array.dtype.type(case.choice([-1, 0, 1e-200, 1e20, 1e150, 1.0001]))
    elif kind == "noise" and array.dtype.kind == "f":
        with np.errstate(all="ignore"):
            array = (array + 10.0 ** case.rng.uniform(-9, 3) * case.rng.normal(size=array.shape)).astype(array.dtype)
    elif kind == "order" and array.ndim:
        array = case.rng.permutation(array)
    elif kind == "empty" and array.ndim:
        array = array[:0]
    elif kind == "no columns" and array.ndim > 1:
        array = array[..., :0]
    return np.ascontiguousarray(array)
