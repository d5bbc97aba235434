"""Model files without pickle, and exports of the learned map to other tools.

- `save`, `load`: write an estimator of vicinal to one file and restore it bit for bit; reading a file executes no code.
- `describe`, `load_components`: inspect a file, or read only the learned matrix.
- `open_rows`: open a table of numbers that stays in its files, for data larger than memory.
- `to_numpy`, `to_torch`, `to_faiss`, `to_onnx`, `to_sentence_transformers`: export the learned map as arrays, a torch
  module, a faiss index, an ONNX model, or sentence-transformers modules.
"""

from os import PathLike
from typing import Any

from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from vicinal._files import open_rows
from vicinal._model_files.exports import (
    MapStep,
    to_faiss,
    to_numpy,
    to_onnx,
    to_sentence_transformers,
    to_torch,
)
from vicinal._model_files.model_file import components_of, description_of, read, read_model, write_model

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
    write_model(estimator, path, training_rows=training_rows)


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
    return read_model(path).estimator


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
    return read(path, description_of)


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
    return read(path, components_of)
