"""Model files without pickle, and exports of the learned map to other tools.

- `save`, `load`: write an estimator of vicinal to one file and restore it bit for bit; reading a file executes no code.
- `describe`, `load_components`: inspect a file, or read only the learned matrix.
- `open_rows`: open a table of numbers that stays in its files, for data larger than memory.
- `to_numpy`, `to_torch`, `to_faiss`, `to_onnx`, `to_sentence_transformers`: export the learned map as arrays, a torch
  module, a faiss index, an ONNX model, or sentence-transformers modules.
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
from vicinal._files import open_rows
from vicinal._model_files.codec import Reader, Writer
from vicinal._model_files.container import parse_json, read_arrays, write_arrays
from vicinal._model_files.exports import (
    MapStep,
    to_faiss,
    to_numpy,
    to_onnx,
    to_sentence_transformers,
    to_torch,
)
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


def save(estimator: BaseEstimator, path: str | PathLike[str], *, training_rows: bool = True) -> None:
    """Write an estimator, fitted or not, to one file.

    Parameters
    ----------
    estimator : estimator
        An estimator of vicinal, or a Pipeline of scikit-learn with scalers, PCA and estimators of vicinal.
    path : str or path-like
        The file to write. It is replaced in one step when all bytes are on the disk; if anything fails before, an
        existing file is not changed.
    training_rows : bool, default=True
        False leaves out the training rows of a metric (LCA, LCAGauss). The loaded estimator can transform rows and compute
        distances, and raises an explanatory error when its density is used. RCA and NCA keep no rows in any case.
        Densities consist of their training rows, so False is an error for them.

    Raises
    ------
    TypeError
        If the estimator holds something that cannot be saved: a function, a cache (``memory`` of a Pipeline), an
        object of another library, a parameter of a type that its class does not document, an attribute that its
        class does not declare, or an unfinished fit. The message names the parameter or attribute and the remedy.
    OSError
        If the file cannot be written.

    Warns
    -----
    UserWarning
        If the estimator, or one inside it, has a ``callback``. It is left out, and `load` returns ``callback=None``.

    Notes
    -----
    The file is a safetensors file with a checksum, so other programs can read its arrays. Time and disk space are
    proportional to the estimator's arrays; arrays that are not contiguous are copied first.

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
    writer = Writer(training_rows=training_rows)
    tree = {"vicinal": __version__, "sklearn": sklearn.__version__, "estimator": writer.estimator(estimator)}
    write_arrays(path, json.dumps(tree, separators=(",", ":"), allow_nan=False), writer.arrays)
    if writer.callbacks:
        warnings.warn(
            f"the model file does not contain {' and '.join(writer.callbacks)}, because a file never contains functions. The loaded "
            "estimator has callback=None; set it again with set_params before the next fit.",
            UserWarning,
            stacklevel=callers_line(),
        )


def load(path: str | PathLike[str]) -> Any:
    """Read an estimator that `save` wrote.

    Parameters
    ----------
    path : str or path-like
        The model file.

    Returns
    -------
    estimator
        The estimator with the saved parameters and fitted attributes, bit for bit.

    Raises
    ------
    ValueError
        If the file is damaged, truncated, not a model file, of a newer format or of an unknown class; if a parameter
        has a value that its class does not accept, or names a path, a cache or a function; or if the fitted attributes do
        not agree with the declaration of their class. The message states the problem. No part of a file is executed, and no
        memory is allocated for sizes that are not in the file.
    FileNotFoundError
        If there is no such file.

    Warns
    -----
    sklearn.exceptions.InconsistentVersionWarning
        If the file holds an estimator of scikit-learn (a scaler in a pipeline) of another version.
    """
    return _read(path, _estimator_of)


def describe(path: str | PathLike[str]) -> dict[str, Any]:
    """Describe the contents of a model file without creating the estimator.

    Parameters
    ----------
    path : str or path-like
        The model file.

    Returns
    -------
    dict
        ``"class"``; ``"vicinal"`` and ``"sklearn"``, the versions that wrote it; ``"parameters"`` and
        ``"attributes"``, with values other than plain ones as a short text; ``"arrays"``, the dtype and shape by
        name.

    Examples
    --------
    >>> import os, tempfile
    >>> from vicinal import ParzenWindows, io
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     io.save(ParzenWindows(bandwidth=0.5), os.path.join(folder, "density.vicinal"))
    ...     io.describe(os.path.join(folder, "density.vicinal"))["parameters"]
    {'bandwidth': 0.5, 'categorical_features': 'from_dtype', 'max_categories': 32, 'engine': None}
    """
    return _read(path, _description_of)


def load_components(path: str | PathLike[str]) -> NDArray[Any]:
    """Read only the learned matrix of a metric: ``X @ load_components(path).T`` is its ``transform``.

    Parameters
    ----------
    path : str or path-like
        The model file.

    Returns
    -------
    ndarray of shape (n_components, n_features)
    """
    return _read(path, _components_of)


def _read(path: str | PathLike[str], make: Callable[[Any, Any], Any]) -> Any:
    try:
        text, arrays = read_arrays(path)
        return make(parse_json(text), arrays)
    except FileNotFoundError:
        raise
    except MemoryError:
        raise ValueError(f"cannot load {os.fspath(path)!r}: the model does not fit into memory.") from None
    except OSError as error:
        raise ValueError(f"cannot load {os.fspath(path)!r}: {error.strerror or error}.") from error
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        # The checksum agrees, so this was written on purpose, or by another vicinal.
        reason = str(error) if isinstance(error, ValueError) else f"its description is not valid ({error!r})."
        reason = reason if len(reason) <= 500 else f"{reason[:500]}…"
        raise ValueError(f"cannot load {os.fspath(path)!r}: {reason}") from error


def _estimator_of(tree: Any, arrays: Any) -> BaseEstimator:
    reader = Reader(arrays)
    estimator = reader.estimator(tree["estimator"])
    reader.warn_of_other_scikit_learn(str(tree["sklearn"]))
    return estimator


def _description_of(tree: Any, arrays: Any) -> dict[str, Any]:
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


def _components_of(tree: Any, arrays: Any) -> NDArray[Any]:
    estimator = tree["estimator"]
    attributes = estimator["attributes"]
    if "components_" not in attributes:
        raise ValueError(
            f"its {estimator['class']} has no components_, so it is not a fitted metric. If it is a pipeline, load it and use "
            "its transform."
        )
    return Reader(arrays).value(attributes["components_"])
