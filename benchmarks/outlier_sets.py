"""Labelled sets for `outliers.py`: some classes of a real table are normal, and rows of its other classes are outliers."""

import sys
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))  # the loader of real sets stands in `papers`
from papers.real_sets import load

MOST_ROWS = 1000  # normal rows per draw
MOST_ROWS_OF_PIXELS = 500  # some detectors take minutes with more rows of hundreds of columns


class Source(NamedTuple):
    """The normal and the unusual classes of a table.

    `group` is the class of clustered outliers. Scattered outliers come from all classes that are not normal, if there
    are several (`classes`). Columns are standardised, except pixels, which have a common unit.
    """

    name: str
    usual: tuple
    group: int
    pixels: bool = False
    classes: int = 2


# The method was chosen on other classes of these tables and of those below: on draws of random normal and unusual classes.
CHOSEN_ON = (
    Source("wine", (1,), 0),
    Source("glass", (1, 2), 7),
    Source("breast_cancer_wdbc", (1,), 0, classes=1),
    Source("pendigits", (0, 1, 2, 3), 6),
    Source("letter", (0, 1, 2), 17),
    Source("satimage", (1, 7), 5),
    Source("covertype", (2,), 4),
    Source("mnist", (1,), 7, pixels=True),
)
# An earlier version of the method was chosen on the sets above; these were held out then, too.
HELD_OUT = (
    Source("ionosphere", (1,), 0, classes=1),
    Source("vehicle", (0, 1), 3),
    Source("image_segmentation", (0, 3, 4), 2),
    Source("pima_diabetes", (0,), 1, classes=1),
    Source("breast_cancer_original", (0,), 1, classes=1),
    Source("sonar", (0,), 1, classes=1),
    Source("optdigits", (3, 8), 9, pixels=True),
    Source("usps", (0, 2, 6), 4, pixels=True),
    Source("iris", (0, 1), 2, classes=1),
)


class Draw(NamedTuple):
    """One labelled set: rows to train on, new rows, and which of them are outliers."""

    training: np.ndarray
    is_outlier: np.ndarray  # for the training rows; all False in a clean fit
    new: np.ndarray
    new_is_outlier: np.ndarray


def draw(source, *, share, clustered, clean, seed):
    """Return a labelled set.

    Parameters
    ----------
    source : Source
    share : float
        The share of outliers among the rows that are scored.
    clustered : bool
        Whether outliers come from one class or from all classes that are not normal.
    clean : bool
        Whether the training rows contain no outliers. If so, half of the normal rows are used for training, and the
        other half is scored together with the outliers; otherwise all rows are used for both.
    seed : int
    """
    X, y = load(source.name, return_X_y=True)
    X = np.asarray(X, dtype=np.float64)
    # Python's hash cannot be used, because it differs from process to process.
    rng = np.random.default_rng([seed, zlib.crc32(source.name.encode()), int(100 * share), clustered, clean])
    usual = rng.permutation(np.flatnonzero(np.isin(y, source.usual)))
    usual = usual[: MOST_ROWS_OF_PIXELS if source.pixels else MOST_ROWS]
    others = np.flatnonzero(y == source.group if clustered else ~np.isin(y, source.usual))
    training = usual[: len(usual) // 2] if clean else usual
    judged = usual[len(training) :] if clean else usual
    count = min(max(round(share / (1.0 - share) * len(judged)), 2), len(others))
    outliers = rng.choice(others, count, replace=False)
    if clean:
        new = np.r_[judged, outliers]
    else:
        new = training = rng.permutation(np.r_[judged, outliers])
    rows, new_rows = _prepared(X[training], X[new], source.pixels)
    return Draw(rows, np.isin(training, outliers), new_rows, np.isin(new, outliers))


def _prepared(rows, new_rows, pixels):
    if pixels:
        scale = np.abs(rows).max()
        return rows / scale, new_rows / scale
    varying = np.ptp(rows, axis=0) > 0
    centre, scale = rows[:, varying].mean(axis=0), rows[:, varying].std(axis=0)
    return (rows[:, varying] - centre) / scale, (new_rows[:, varying] - centre) / scale
