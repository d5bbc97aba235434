"""Loading of the real data sets from a local folder or through scikit-learn."""

import os
import zipfile
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.ndimage import gaussian_filter
from sklearn import datasets as sklearn_datasets
from sklearn.utils import Bunch

from vicinal._checks import check_array, check_positive
from vicinal._datasets.real_set_table import REAL_SETS, RealSet
from vicinal._datasets.toy_sets import make_balance_scale


def available() -> dict[str, str]:
    """Return the names that `load` accepts, each with a description of one line.

    Returns
    -------
    dict of str to str

    Examples
    --------
    >>> from vicinal.datasets import available
    >>> available()["iris"]
    "Iris, as in Fisher's paper (and scikit-learn), in cm."
    """
    return {name: real_set.about for name, real_set in REAL_SETS.items()}


def load(
    name: str,
    data_home: str | PathLike[str] | None = None,
    *,
    subset: str | None = "all",
    return_X_y: bool = False,
    download_if_missing: bool = True,
) -> Any:
    """Load a real data set of the papers or the benchmarks.

    The sources are tried in this order: the set's ``.npz`` file in ``data_home``; the
    same file in the folder that the environment variable ``VICINAL_DATA`` names;
    scikit-learn itself, or the rule that defines the set (iris, wine, breast cancer,
    balance scale); a download through scikit-learn, if there is such a source (its
    cache is used, and ``data_home`` if given).  A downloaded copy must agree in
    shape and class counts with the set that the papers used.

    Parameters
    ----------
    name : str
        One of `available`.
    data_home : str or path, default=None
        The folder with the files.
    subset : {"all", "train", "test"}, default="all"
        The rows to return of sets that have a split.
    return_X_y : bool, default=False
        Whether to return only ``(data, target)``.
    download_if_missing : bool, default=True
        Whether to allow a download.

    Returns
    -------
    Bunch
        ``data`` (n, d), in natural units; float32 for MNIST, faces by many people, covertype and GloVe.
        ``target`` (n,), or None if there are no labels.  ``feature_names``, ``target_names`` (or None),
        ``DESCR``.  If they apply: ``n_train`` (the first rows are the training rows), ``image_shape``
        (``data[i].reshape(image_shape)`` is upright), and the extra columns that DESCR names.

    Raises
    ------
    FileNotFoundError
        If the set is in no folder and cannot be downloaded. The message states where to get it.

    Examples
    --------
    >>> from vicinal.datasets import load
    >>> wine = load("wine")
    >>> wine.data.shape, wine.feature_names[0]
    ((178, 13), 'alcohol')
    """
    if not isinstance(name, str) or name not in REAL_SETS:
        raise ValueError(f"name must be one of {', '.join(REAL_SETS)}, got {name!r}.")
    real_set = REAL_SETS[name]
    if not isinstance(subset, str) or subset not in ("all", "train", "test"):
        raise ValueError(f"subset must be 'all', 'train' or 'test', got {subset!r}.")
    if subset != "all" and real_set.n_train is None:
        raise ValueError(
            f"subset={subset!r}: the set {name!r} has no split. Use subset='all' and "
            "sklearn.model_selection.train_test_split."
        )
    path = _find_file(real_set, data_home)
    if path is not None:
        arrays = _read_file(path, real_set)
    else:
        arrays = _fetch(name, real_set, data_home, download_if_missing)
        _check_copy(arrays, name, real_set)

    rows = {"all": slice(None), "train": slice(real_set.n_train), "test": slice(real_set.n_train, None)}[subset]
    data, target = arrays["X"][rows], arrays["y"]
    target = target if target is None else target[rows]
    if return_X_y:
        return data, target
    result = Bunch(
        data=data,
        target=target,
        feature_names=_feature_names(real_set),
        target_names=None if real_set.target_names is None else np.array(real_set.target_names),
        DESCR=real_set.about,
    )
    result.update({extra: arrays[extra] for extra in real_set.extras if extra in arrays})
    if real_set.image_shape:
        result.image_shape = real_set.image_shape
    if real_set.n_train and subset == "all":
        result.n_train = real_set.n_train
    return result


def usps_blurred(
    data_home: str | PathLike[str] | None = None,
    *,
    subset: str | None = "pool",
    return_X_y: bool = False,
    download_if_missing: bool = True,
) -> Any:
    """Load the USPS digits as the LCA and Manifold Parzen papers prepared them.

    The pixels are in [-1, 1], blurred by a Gaussian of standard deviation 0.75 pixel
    over a background of -1.  The first 6,291 of the 7,291 training rows are for
    training, and the last 1,000 for validation.

    Parameters
    ----------
    data_home, return_X_y, download_if_missing
        As in `load`.
    subset : {"pool", "train", "validation", "test", "all"}, default="pool"
        ``"train"`` (6,291 rows), ``"validation"`` (1,000), ``"test"`` (2,007), ``"all"`` (9,298), or
        ``"pool"``: train and test together, the 8,298 rows of the LCA paper's Fig. 4.

    Returns
    -------
    Bunch
        As from ``load("usps")``.
    """
    pieces = {
        "pool": np.r_[0:6291, 7291:9298],
        "train": np.arange(6291),
        "validation": np.arange(6291, 7291),
        "test": np.arange(7291, 9298),
        "all": np.arange(9298),
    }
    if not isinstance(subset, str) or subset not in pieces:
        raise ValueError(f"subset must be one of {', '.join(pieces)}, got {subset!r}.")
    usps = load("usps", data_home, download_if_missing=download_if_missing)
    usps.data = blur_images(usps.data[pieces[subset]], usps.image_shape)
    usps.target = usps.target[pieces[subset]]
    usps.DESCR += " Blurred by a Gaussian of standard deviation 0.75 pixel."
    del usps["n_train"]
    return (usps.data, usps.target) if return_X_y else usps


def blur_images(
    X: ArrayLike, image_shape: tuple[int, int], *, sd: float = 0.75, background: float = -1.0
) -> NDArray[Any]:
    """Blur flattened pictures with a Gaussian.

    Parameters
    ----------
    X : array-like of shape (n, height * width)
        The pictures, one per row.
    image_shape : (height, width)
        Their shape.
    sd : float, default=0.75
        Standard deviation of the Gaussian, in pixels.
    background : float, default=-1.0
        Shade beyond the border.

    Returns
    -------
    ndarray of shape (n, height * width)

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal.datasets import blur_images
    >>> dot = np.full((1, 25), -1.0)
    >>> dot[0, 12] = 1.0
    >>> float(blur_images(dot, (5, 5))[0, 12].round(3))
    -0.434
    """
    X = check_array(X, dtype=[np.float64, np.float32], input_name="X")
    sd = check_positive(sd, "sd", strict=False)
    height, width = image_shape
    if height * width != X.shape[1]:
        raise ValueError(f"image_shape={height, width} needs {height * width} columns, got {X.shape[1]} in X.")
    images = X.reshape(-1, height, width)
    return gaussian_filter(images, (0, sd, sd), mode="constant", cval=background).reshape(X.shape)


# --- files ------------------------------------------------------------------------------------------------


def _folders(data_home: str | PathLike[str] | None) -> list[Path]:
    """Return the folders to search: the argument, then the environment variable."""
    given = [data_home, os.environ.get("VICINAL_DATA")]
    return [Path(folder).expanduser() for folder in given if folder]


def _find_file(real_set: RealSet, data_home: str | PathLike[str] | None) -> Path | None:
    paths = [folder / f"{real_set.file}.npz" for folder in _folders(data_home)]
    return next((path for path in paths if path.is_file()), None)


def _read_file(path: Path, real_set: RealSet) -> dict[str, Any]:
    """Read the arrays of a file and bring them to their natural units."""
    try:
        with np.load(path, allow_pickle=False) as file:
            stored = {key: file[key] for key in file.files}
    except (AttributeError, EOFError, ValueError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is not a readable .npz archive ({error}). Rebuild the file.") from error
    parts = ("X",) if real_set.n_train is None or "X" in stored else ("X_train", "X_test")
    missing = [key for key in (*parts, *real_set.extras) if key not in stored]
    if missing:
        raise ValueError(
            f"{path} must hold the arrays {', '.join(missing)}, got {', '.join(stored)}. Rebuild the file."
        )
    X = np.concatenate([stored[part] for part in parts])
    if X.shape != real_set.shape:
        raise ValueError(f"{path} must hold {real_set.shape} values in all, got {X.shape}. Rebuild the file.")
    arrays = {extra: stored[extra] for extra in real_set.extras}
    arrays["X"] = _in_units(X, real_set)
    labels = [stored[part.replace("X", "y")] for part in parts if part.replace("X", "y") in stored]
    arrays["y"] = _as_target(np.concatenate(labels)) if labels else None
    if "words" in arrays:  # UTF-8 text, one word per line
        arrays["words"] = arrays["words"].tobytes().decode("utf-8").split("\n")
    return arrays


def _in_units(X: np.ndarray, real_set: RealSet) -> np.ndarray:
    X = np.ascontiguousarray(X, dtype=real_set.dtype)  # column-major files become row-major
    # Dividing gives the number nearest to a decimal fraction; multiplying by 1e-3 would not.
    return X if real_set.divisor == 1 else X / X.dtype.type(real_set.divisor)


def _as_target(y: np.ndarray) -> np.ndarray:
    return y if y.dtype.kind == "f" else y.astype(np.int64)


def _feature_names(real_set: RealSet) -> list[str]:
    if real_set.feature_names:
        return list(real_set.feature_names)
    stem = "pixel" if real_set.image_shape else "x"
    return [f"{stem}{i}" for i in range(real_set.shape[1])]


# --- scikit-learn and downloads ---------------------------------------------------------------------------

_IN_SCIKIT_LEARN = {"iris": "load_iris", "wine": "load_wine", "breast_cancer_wdbc": "load_breast_cancer"}


def _fetch(
    name: str, real_set: RealSet, data_home: str | PathLike[str] | None, download_if_missing: bool
) -> dict[str, np.ndarray]:
    """Return the arrays X and y from scikit-learn or a download."""
    if name == "balance_scale":
        X, y = make_balance_scale()
        return {"X": X, "y": y}
    if name in _IN_SCIKIT_LEARN:
        X, y = getattr(sklearn_datasets, _IN_SCIKIT_LEARN[name])(return_X_y=True)
        return {"X": X, "y": y.astype(np.int64)}
    fetch = {"covertype": _fetch_covertype, "olivetti_faces": _fetch_olivetti}.get(name)
    if fetch is None and real_set.openml is not None:
        fetch = _fetch_openml
    if fetch is None or not download_if_missing:
        raise FileNotFoundError(_how_to_get(name, real_set, data_home))
    try:
        return fetch(real_set, data_home)
    except OSError as error:  # no network, or the server is down
        problem = f"the download failed ({error}). "
        raise FileNotFoundError(problem + _how_to_get(name, real_set, data_home)) from error


def _how_to_get(name: str, real_set: RealSet, data_home: str | PathLike[str] | None) -> str:
    looked = ", ".join(map(str, _folders(data_home))) or "no folder, none was given"
    arrays = ["X", "y"] if real_set.n_train is None else ["X_train", "y_train", "X_test", "y_test"]
    return (
        f"the data set {name!r} needs the file {real_set.file}.npz (looked in: {looked}). Set the "
        "environment variable VICINAL_DATA, or pass data_home=, to the folder that holds it. The data come "
        f"from {real_set.where}; save them with numpy.savez as {', '.join([*arrays, *real_set.extras])} "
        f"({real_set.shape[0]} rows in all, {real_set.shape[1]} columns)."
    )


def _fetch_openml(real_set: RealSet, data_home: str | PathLike[str] | None) -> dict[str, np.ndarray]:
    bunch = sklearn_datasets.fetch_openml(
        data_id=real_set.openml,
        as_frame=False,
        data_home=data_home,
        parser="pandas" if find_spec("pandas") else "liac-arff",
    )
    codes = real_set.openml_labels
    assert codes is not None  # the set is on OpenML
    unknown = sorted({str(label) for label in bunch.target} - set(codes))
    if unknown:
        raise ValueError(f"OpenML set {real_set.openml} holds unknown labels {unknown}; expected {sorted(codes)}.")
    X = np.asarray(bunch.data, dtype=real_set.dtype)
    # Missing values are zeros in our copies (breast_cancer_original).
    return {"X": np.nan_to_num(X, nan=0.0), "y": np.array([codes[str(label)] for label in bunch.target])}


def _fetch_covertype(real_set: RealSet, data_home: str | PathLike[str] | None) -> dict[str, np.ndarray]:
    bunch = sklearn_datasets.fetch_covtype(data_home=data_home)
    return {
        "X": np.ascontiguousarray(bunch.data[:, :10], dtype=real_set.dtype),
        "y": bunch.target.astype(np.int64),
        "wilderness": bunch.data[:, 10:14].argmax(axis=1).astype(np.uint8),
        "soil": bunch.data[:, 14:54].argmax(axis=1).astype(np.uint8),
    }


def _fetch_olivetti(real_set: RealSet, data_home: str | PathLike[str] | None) -> dict[str, np.ndarray]:
    bunch = sklearn_datasets.fetch_olivetti_faces(data_home=data_home)
    return {"X": bunch.data.astype(real_set.dtype), "y": bunch.target.astype(np.int64)}


def _check_copy(arrays: dict[str, np.ndarray], name: str, real_set: RealSet) -> None:
    """Raise an error if a copy is not the set that the papers used, but another version or a split in another order."""
    X, y = arrays["X"], arrays["y"]
    counts = None
    if real_set.counts is not None:
        codes, sizes = np.unique(y[: real_set.n_train], return_counts=True)
        counts = dict(zip(codes.tolist(), sizes.tolist(), strict=True))
    if X.shape != real_set.shape or len(y) != len(X) or counts != real_set.counts:
        raise ValueError(
            f"the downloaded copy of {name!r} is not the set that the papers used: expected shape "
            f"{real_set.shape} and class counts {real_set.counts}, got {X.shape} and {counts}. Build "
            f"{real_set.file}.npz from {real_set.where} and set VICINAL_DATA to its folder."
        )
