"""Real data sets by name, from a folder of ``.npz`` files; `real_sets.json` describes them.

The folder is ``data_home``, or that in the environment variable ``VICINAL_DATA``. Iris, wine, breast_cancer_wdbc and
balance_scale need no file. Benchmarks, examples and tests load real data by this module as well.
"""

import itertools
import json
import os
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from scipy.ndimage import gaussian_filter
from sklearn import datasets as sklearn_datasets
from sklearn.utils import Bunch

SETS: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
_IN_SCIKIT_LEARN = {"iris": "load_iris", "wine": "load_wine", "breast_cancer_wdbc": "load_breast_cancer"}


def load(
    name: str, data_home: str | PathLike[str] | None = None, *, subset: str = "all", return_X_y: bool = False
) -> Any:
    """Load a data set.

    Parameters
    ----------
    name : str
        One of `SETS`.
    data_home : str or path, optional
        The folder with the files.
    subset : {"all", "train", "test"}, default="all"
        The rows to return of sets that have a split.
    return_X_y : bool, default=False
        Whether to return only ``(data, target)``.

    Returns
    -------
    Bunch
        ``data`` (n, d), in natural units; ``target`` (n,), or None if there are no labels; ``feature_names``, ``target_names``
        (or None), ``DESCR``.  If they apply: ``n_train`` (the first rows are the training rows), ``image_shape``
        (``data[i].reshape(image_shape)`` is upright), and the extra columns that DESCR names.

    Raises
    ------
    FileNotFoundError
        If the set is in no folder. The message states where to get it.
    """
    if name not in SETS:
        raise ValueError(f"name must be one of {', '.join(SETS)}, got {name!r}.")
    about = SETS[name]
    n_train = about.get("n_train")
    if subset != "all" and n_train is None:
        raise ValueError(f"subset={subset!r}: the set {name!r} has no split. Use subset='all'.")
    rows = {"all": slice(None), "train": slice(n_train), "test": slice(n_train, None)}[subset]
    arrays = _arrays(name, about, data_home)
    data, target = arrays["X"][rows], arrays["y"]
    target = target if target is None else target[rows]
    if return_X_y:
        return data, target
    stem = "pixel" if "image_shape" in about else "x"
    classes = about.get("target_names")
    result = Bunch(
        data=data,
        target=target,
        feature_names=list(about.get("feature_names", (f"{stem}{i}" for i in range(data.shape[1])))),
        target_names=None if classes is None else np.array(classes),
        DESCR=about["about"],
    )
    result.update({extra: arrays[extra] for extra in about.get("extras", ()) if extra in arrays})
    if "image_shape" in about:
        result.image_shape = tuple(about["image_shape"])
    if n_train and subset == "all":
        result.n_train = n_train
    return result


def _arrays(name: str, about: dict[str, Any], data_home: str | PathLike[str] | None) -> dict[str, Any]:
    """Return the arrays X (in natural units) and y of a set, and its extra columns."""
    folders = [Path(folder).expanduser() for folder in (data_home, os.environ.get("VICINAL_DATA")) if folder]
    path = next(
        (folder / f"{about['file']}.npz" for folder in folders if (folder / f"{about['file']}.npz").is_file()), None
    )
    if path is None and name == "balance_scale":
        return dict(zip("Xy", make_balance_scale(), strict=True))
    if path is None and name in _IN_SCIKIT_LEARN:
        return dict(zip("Xy", getattr(sklearn_datasets, _IN_SCIKIT_LEARN[name])(return_X_y=True), strict=True))
    if path is None:
        raise FileNotFoundError(
            f"the data set {name!r} needs the file {about['file']}.npz (looked in: {', '.join(map(str, folders)) or 'no folder'}). "
            f"Set the environment variable VICINAL_DATA to the folder that holds it. The data come from {about['where']}; "
            "docs/datasets.md says how to save them."
        )
    with np.load(path, allow_pickle=False) as file:
        stored = {key: file[key] for key in file.files}
    parts = ("X",) if "X" in stored else ("X_train", "X_test")
    X = np.concatenate([stored[part] for part in parts])
    if list(X.shape) != about["shape"]:
        raise ValueError(f"{path} must hold {about['shape']} values in all, got {X.shape}. Rebuild the file.")
    X = np.ascontiguousarray(X, dtype=about.get("dtype", "float64"))
    # Dividing gives the number nearest to a decimal fraction; multiplying by 1e-3 would not.
    arrays: dict[str, Any] = {"X": X / X.dtype.type(about["divisor"]) if "divisor" in about else X, "y": None}
    labels = [stored[part.replace("X", "y")] for part in parts if part.replace("X", "y") in stored]
    if labels:
        y = np.concatenate(labels)
        arrays["y"] = y if y.dtype.kind == "f" else y.astype(np.int64)
    arrays |= {extra: stored[extra] for extra in about.get("extras", ())}
    if "words" in arrays:  # UTF-8 text, one word per line
        arrays["words"] = arrays["words"].tobytes().decode("utf-8").split("\n")
    return arrays


def usps_blurred(
    data_home: str | PathLike[str] | None = None, *, subset: str = "pool", return_X_y: bool = False
) -> Any:
    """Load the USPS digits as the LCA and Manifold Parzen papers prepared them.

    The pixels are in [-1, 1], blurred by a Gaussian of standard deviation 0.75 pixel over a background of -1.  The first 6,291 of the
    7,291 training rows are for training, and the last 1,000 for validation.

    Parameters
    ----------
    data_home, return_X_y
        As in `load`.
    subset : {"pool", "train", "validation", "test", "all"}, default="pool"
        ``"train"`` (6,291 rows), ``"validation"`` (1,000), ``"test"`` (2,007), ``"all"`` (9,298), or
        ``"pool"``: train and test together, the 8,298 rows of the LCA paper's Fig. 4.
    """
    pieces = {
        "pool": np.r_[0:6291, 7291:9298],
        "train": np.arange(6291),
        "validation": np.arange(6291, 7291),
        "test": np.arange(7291, 9298),
        "all": np.arange(9298),
    }
    usps = load("usps", data_home)
    usps.data = blur_images(usps.data[pieces[subset]], usps.image_shape)
    usps.target = usps.target[pieces[subset]]
    return (usps.data, usps.target) if return_X_y else usps


def blur_images(
    X: np.ndarray, image_shape: tuple[int, int], *, sd: float = 0.75, background: float = -1.0
) -> np.ndarray:
    """Blur flattened pictures with a Gaussian; `background` is the shade beyond the border."""
    images = X.reshape(-1, *image_shape)
    return gaussian_filter(images, (0, sd, sd), mode="constant", cval=background).reshape(X.shape)


def make_balance_scale() -> tuple[np.ndarray, np.ndarray]:
    """Return all 625 rows of the balance scale set (UCI), generated by its rule.

    The rows are all combinations of a left weight, left distance, right weight and right distance from 1 to 5, in the order of the UCI
    file; the class says which side goes down, by the torques, weight times distance.  The set is used in the RCA paper's Fig. 10 and the NCA
    paper's Fig. 1.
    """
    X = np.array(list(itertools.product(range(1, 6), repeat=4)), dtype=float)
    return X, (1 + np.sign(X[:, 2] * X[:, 3] - X[:, 0] * X[:, 1])).astype(np.int64)
