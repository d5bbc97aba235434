"""Model files without pickle, and the learned map for other tools.

- `save`, `load`: one file holds an estimator of vicinal, bit for bit; reading it executes nothing.
- `describe`, `load_components`: look into a file, or take only the learned matrix.
- `open_rows`: a table of numbers that stays in its files, for data larger than memory.
- `to_numpy`, `to_torch`, `to_faiss`, `to_onnx`, `to_sentence_transformers`: the learned map as arrays, a module of torch, an
  index of faiss, an ONNX model, modules of sentence-transformers.
"""

import json
import os
import warnings
from collections.abc import Callable
from os import PathLike
from typing import Any

import sklearn
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from vicinal._callers import callers_line
from vicinal._model_files.exports import (
    MapStep,
    to_faiss,
    to_numpy,
    to_onnx,
    to_sentence_transformers,
    to_torch,
)
from vicinal._model_files.model_file import parse_model, read_arrays, write_arrays
from vicinal._model_files.reader import Reader
from vicinal._model_files.version_1 import as_version_2
from vicinal._model_files.writer import Writer
from vicinal._row_sources import open_rows
from vicinal._version import __version__

__all__ = [
    "MapStep",
    "describe",
    "load",
    "load_components",
    "open_rows",
    "save",
    "to_faiss",
    "to_numpy",
    "to_onnx",
    "to_sentence_transformers",
    "to_torch",
]


def __dir__() -> list[str]:
    return sorted(__all__)


def save(
    estimator: BaseEstimator, path: str | PathLike[str], *, training_rows: bool = True, key: bytes | None = None
) -> None:
    """Write an estimator, fitted or not, to one file.

    Parameters
    ----------
    estimator : estimator
        One of vicinal's, or a Pipeline of scikit-learn with scalers, PCA and estimators of vicinal.
    path : str or path-like
        The file to write. It is replaced in one step when all bytes are on the disk; whatever goes wrong
        before leaves an old file as it was.
    training_rows : bool, default=True
        False leaves out the training rows of a metric (LCA, LCAGauss): the loaded one transforms and measures
        distances, and says why it has no density. RCA and NCA keep no rows anyway. Densities are made of
        their training rows: for them False is refused.
    key : bytes, optional
        Signs the file (HMAC-SHA256), so that ``load(path, key=key)`` can tell that someone who has the key wrote it.
        Anyone who can check a signature can also make one. At least 16 bytes, as ``secrets.token_bytes(32)`` gives.

    Raises
    ------
    TypeError
        If the estimator holds what a file cannot: a function, a cache (``memory=`` of a Pipeline), an
        object of another library, a parameter that is not of a type that its class documents, an attribute that its
        class does not declare, or a fit that did not finish. The message names the parameter or attribute and the
        remedy.
    OSError
        If the file cannot be written.

    Warns
    -----
    UserWarning
        If the estimator, or one inside it, has a ``callback``. It is left out: `load` gives ``callback=None``.

    Notes
    -----
    The file is a safetensors file with a checksum, so other programs can read its arrays. Time and disk are
    those of the estimator's arrays; arrays that are not contiguous are copied first.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from vicinal import ParzenWindows, io
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> density = ParzenWindows().fit(X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     io.save(density, os.path.join(folder, "density.vicinal"))
    ...     same = io.load(os.path.join(folder, "density.vicinal"))
    >>> same.score(X) == density.score(X)
    True
    """
    if not isinstance(estimator, BaseEstimator):
        got = estimator if isinstance(estimator, type) else type(estimator)
        raise TypeError(
            f"save expected an estimator, got {got.__name__}. "
            "Pass an instance of one of vicinal's estimators, usually a fitted one."
        )
    key = _checked_key(key)
    writer = Writer(training_rows=training_rows)
    tree = {"vicinal": __version__, "sklearn": sklearn.__version__, "estimator": writer.estimator(estimator)}
    write_arrays(path, json.dumps(tree, separators=(",", ":"), allow_nan=False), writer.arrays, key)
    if writer.callbacks:
        warnings.warn(
            f"the model file does not hold {' and '.join(writer.callbacks)}: a file never holds functions. The loaded "
            "estimator has callback=None; set it again with set_params before the next fit.",
            UserWarning,
            stacklevel=callers_line(),
        )


def load(path: str | PathLike[str], *, key: bytes | None = None) -> Any:
    """Read an estimator that `save` wrote.

    Parameters
    ----------
    path : str or path-like
    key : bytes, optional
        Only a file that was signed with this key is loaded, before anything in it is looked at. Without a key, signed
        and unsigned files are loaded alike, and nobody vouches for either.

    Returns
    -------
    estimator
        With the parameters and fitted attributes that were saved, bit for bit.

    Raises
    ------
    ValueError
        If the file is damaged, truncated, not a model file, of a newer format, of an unknown class, if a parameter
        holds what its class does not take or what names a path, a cache or a function, or if the fitted attributes are
        not as their class declares them, or if a key was given and the file is not signed with it: the message says which. No part of a file is executed, and no memory is taken
        for sizes that it only claims.
    FileNotFoundError
        If there is no such file.

    Warns
    -----
    sklearn.exceptions.InconsistentVersionWarning
        If the file holds an estimator of scikit-learn (a scaler in a pipeline) of another version.
    """
    return _read(path, _estimator_of, key)


def describe(path: str | PathLike[str], *, key: bytes | None = None) -> dict[str, Any]:
    """Say what a model file holds, without making the estimator.

    Parameters
    ----------
    path : str or path-like
    key : bytes, optional
        As in `load`.

    Returns
    -------
    dict
        ``"class"``; ``"vicinal"`` and ``"sklearn"``, the versions that wrote it; ``"parameters"`` and
        ``"attributes"``, plain values as they are, others as a short text; ``"arrays"``, dtype and shape by
        name.

    Examples
    --------
    >>> import os, tempfile
    >>> from vicinal import ParzenWindows, io
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     io.save(ParzenWindows(bandwidth=0.5), os.path.join(folder, "density.vicinal"))
    ...     io.describe(os.path.join(folder, "density.vicinal"))["parameters"]
    {'bandwidth': 0.5, 'engine': None}
    """
    return _read(path, _description_of, key)


def load_components(path: str | PathLike[str], *, key: bytes | None = None) -> NDArray[Any]:
    """Read the learned matrix of a metric alone: ``X @ load_components(path).T`` is its ``transform``.

    Parameters
    ----------
    path : str or path-like
    key : bytes, optional
        As in `load`.

    Returns
    -------
    ndarray of shape (n_components, n_features)
    """
    return _read(path, _components_of, key)


def _checked_key(key: Any) -> bytes | None:
    """Return a key that is long enough to be one."""
    if key is None:
        return None
    if not isinstance(key, (bytes, bytearray)):
        raise TypeError(
            f"key must be bytes, got {type(key).__name__}. Make one with secrets.token_bytes(32), and keep it secret; a "
            "text is encoded first."
        )
    if len(key) < 16:
        raise ValueError(f"key must have at least 16 bytes, got {len(key)}. Make one with secrets.token_bytes(32).")
    return bytes(key)


def _read(path: str | PathLike[str], make: Callable[[Any, Any, int], Any], key: Any) -> Any:
    version, text, arrays = read_arrays(path, _checked_key(key))
    try:
        tree, n_characters = parse_model(text), len(text)
        del text  # it was parsed, and memory is counted
        return make(as_version_2(tree) if version == 1 else tree, arrays, n_characters)
    except (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError) as error:
        # The checksum agrees, so this was written on purpose, or by another vicinal.
        reason = str(error) if isinstance(error, ValueError) else f"its description makes no sense ({error!r})."
        reason = reason if len(reason) <= 500 else f"{reason[:500]}…"
        raise ValueError(f"cannot load {os.fspath(path)!r}: {reason}") from error


def _estimator_of(tree: Any, arrays: Any, n_characters: int) -> BaseEstimator:
    reader = Reader(arrays, n_characters)
    estimator = reader.estimator(tree["estimator"])
    reader.warn_of_other_scikit_learn(str(tree["sklearn"]))
    return estimator


def _description_of(tree: Any, arrays: Any, n_characters: int) -> dict[str, Any]:
    estimator = tree["estimator"]
    return {
        "class": estimator["class"],
        "vicinal": tree["vicinal"],
        "sklearn": tree["sklearn"],
        "parameters": {name: _brief(value) for name, value in estimator["parameters"].items()},
        "attributes": {name: _brief(value) for name, value in estimator["attributes"].items()},
        "arrays": {name: {"dtype": str(array.dtype), "shape": array.shape} for name, array in arrays.items()},
    }


def _brief(tree: Any) -> Any:
    """Return a plain value as it is, anything else in a few words."""
    if not isinstance(tree, (dict, list)):
        return tree
    if isinstance(tree, list):
        return f"list of {len(tree)}"
    return {"array": "array {name}", "estimator": "{class}", "record": "{class}"}.get(tree["is"], "{is}").format_map(
        tree
    )


def _components_of(tree: Any, arrays: Any, n_characters: int) -> NDArray[Any]:
    estimator = tree["estimator"]
    attributes = estimator["attributes"]
    if "components_" not in attributes:
        raise ValueError(
            f"its {estimator['class']} has no components_: it is not a fitted metric. Of a pipeline, load the whole and "
            "transform with it."
        )
    return Reader(arrays).value(attributes["components_"])
