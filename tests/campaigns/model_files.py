"""Damaged and forged model files: what loads works, what does not is a ValueError, within the limits of memory and time.

Three in ten cases change bytes of a file and leave its checksum as it is. The others change the decoded description or an
array, and repair the checksum, as a forger would; what loads is then asked everything that the estimator can be asked.
"""

import copy
import json
import time
import tracemalloc
import warnings
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import model_file_fits as fits
import numpy as np
import sklearn
from sklearn.base import BaseEstimator

from campaigns.harness import Bad, Case, damaged
from vicinal import io
from vicinal._model_files.model_file import write_arrays
from vicinal._model_files.writer import Writer

CASES = 100_000
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


@cache
def _source(name: str) -> tuple[dict, dict, dict, bytes]:
    """The description and arrays of a fit, what it answers, and its file."""
    estimator, writer = fits.fitted(name), Writer()
    tree = {"vicinal": "0", "sklearn": sklearn.__version__, "estimator": writer.estimator(estimator)}
    write_arrays(_PATH, json.dumps(tree), writer.arrays)
    return tree, writer.arrays, _answers(estimator), _PATH.read_bytes()


def check(case: Case) -> str:
    """One mutation of one file."""
    name = str(case.choice(list(fits.FITS)))
    tree, arrays, expected, raw = _source(name)
    if case.chance(0.3):
        case.what, data = "bytes", _changed_bytes(case, raw)
        _PATH.write_bytes(data)
    else:
        case.what = name.partition(":")[0]
        tree, arrays = copy.deepcopy(tree), dict(arrays)
        for _ in range(int(case.rng.geometric(0.8))):
            _change(case, tree, arrays)
        try:
            write_arrays(_PATH, json.dumps(tree), arrays)
        except (KeyError, ValueError, TypeError):
            return "could not be written"
        data = _PATH.read_bytes()
    case.text, case.files = f"{name}: {case.text}", {"vicinal": data}
    loaded = _loaded(case, len(data))
    if loaded is None:
        return "a ValueError"
    if case.what == "bytes" and data != raw:
        raise Bad("a file with another content than was written was loaded")
    _use(loaded, expected)
    return "loaded and works"


def _loaded(case: Case, size: int) -> BaseEstimator | None:
    """What the file holds, or None where it is refused; at what price."""
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


def _use(loaded: BaseEstimator, expected: dict) -> None:
    """What loads works: no error but those that say what is wrong with a value."""
    if any(answer is not None for answer in expected.values()) and not _is_fitted(loaded):
        return
    for asked, answer in _answers(loaded).items():
        fine = ("ValueError", "NotFittedError", expected[asked])
        if isinstance(answer, str) and answer not in fine:
            raise Bad(f"{asked} of what was loaded raises {answer}")


def _is_fitted(estimator: BaseEstimator) -> bool:
    return any(name.endswith("_") and not name.startswith("_") for name in vars(estimator))


def _answers(estimator: BaseEstimator) -> dict:
    with np.errstate(all="ignore"):
        return fits.answers(estimator)


def _changed_bytes(case: Case, raw: bytes) -> bytes:
    if case.chance(0.1):
        case.text = "another length of the header"
        return int(case.rng.integers(2**63)).to_bytes(8, "little") + raw[8:]
    return damaged(case, raw)


def _places(tree: object) -> list[tuple]:
    """Every (container, key) of a tree."""
    found = []
    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in pairs:
        found += [(tree, key), *_places(value)]
    return found


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
    kind = str(
        case.choice(["number", "text", "delete", "swap", "copy", "wrap", "class", "none", "array", "key", "bool"])
    )
    case.text += f" {kind} at {key!r}"
    if kind == "delete":
        del container[key]
    elif kind == "swap":
        container[key], other[other_key] = copy.deepcopy(other[other_key]), copy.deepcopy(container[key])
    elif kind == "copy":
        container[key] = copy.deepcopy(other[other_key])
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


def _changed_array(case: Case, array: np.ndarray) -> np.ndarray:
    kind = str(case.choice(["value", "value", "values", "row", "shape", "dtype", "scale", "order", "empty", "noise"]))
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
    return np.ascontiguousarray(array)
