"""Whether matrix products are accurate enough: products of coordinates for distances, and of values for scatters."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

Number = float | np.ndarray

FLOAT64, FLOAT32 = np.dtype(np.float64), np.dtype(np.float32)

# |q - z|^2 = |q|^2 + |z|^2 - 2 q'z errs by about eps * max|z|^2.  The error is absolute in the exponent of a weight,
# hence relative in the weight: these are the largest errors we accept before falling back to differences.
PRODUCT_TOLERANCE = {FLOAT64: 2e-11, FLOAT32: 2e-4}


def products_are_accurate(largest_square_norm: Number, dtype: DTypeLike) -> Any:
    """Return whether |q|^2 + |z|^2 - 2 q'z is accurate enough for coordinates of these square norms."""
    dtype = np.dtype(dtype)
    return float(np.finfo(dtype).eps) * largest_square_norm <= PRODUCT_TOLERANCE[dtype]


def largest_accurate_square(dtype: DTypeLike) -> float:
    """Return the largest square norm of coordinates for which products are accurate."""
    return PRODUCT_TOLERANCE[np.dtype(dtype)] / float(np.finfo(dtype).eps)


# Coordinates of images up to this size keep enough digits in float64 for scores to err by no more than 1e-11.
FARTHEST_IMAGE = 1e4

# The difference of two log-sums, as that of all points and of those of a class, has enough digits up to this size.
LARGEST_LOG_SUM = {FLOAT64: 1e5, FLOAT32: 1e3}
# The same if the two log-sums come from separate sweeps, each with its own rounding.
LARGEST_LOG_SUM_OF_SWEEPS = {FLOAT64: 1e4, FLOAT32: 1e2}
# Pairs this many nats below a row's log-sum cannot change a sum in float64.
NEGLIGIBLE_NATS = 45.0
# Products with errors below this many nats can still determine which pairs matter.
LARGEST_SCREENED_ERROR = 100.0
# Rounding errors of images in float32 above this share of a kernel's width affect log-sums.
VISIBLE_ROUNDING = 1e-3

# -- exponentials under a common shift --

# How far scores may be raised: the exponential, times any number of rows, does not overflow.
MOST_RAISE = {FLOAT64: 600.0, FLOAT32: 40.0}
# The sum of a row under the shift below which terms may have been lost: such rows are computed with their own maximum.
SMALLEST_SUM = {FLOAT64: 1e-270, FLOAT32: 1e-24}
# How far below the shift the sum of a row may be if pairs are skipped.
DEEPEST = {FLOAT64: 350.0, FLOAT32: 40.0}
# Scores above the shift of their row by more than this are cut there, so that exponentials do not overflow; a row with a larger sum than this is
# shifted again, so that its values do not.
LARGEST_EXPONENT = {FLOAT64: 600.0, FLOAT32: 80.0}
LARGEST_TOTAL = {FLOAT64: 1e30, FLOAT32: 1e12}
# Log-sums of this size have too few digits for the levels of scores: such rows are computed without skipping pairs.
FARTHEST_LOG_SUM = {FLOAT64: 1e12, FLOAT32: 1e4}
# Below this share of a softmax, the exponentials behind it may have been lost.
LEAST_SHARE = {FLOAT64: 1e-200, FLOAT32: 1e-20}
# Log-weights within this range can be shared out to both rows of a pair, and removed from the scores again.
WIDEST_LOG_WEIGHTS = {FLOAT64: 200.0, FLOAT32: 20.0}

# -- skipped pairs --

# The default limits on the relative contribution of skipped pairs to a sum, and the largest value that the user may set.
DEFAULT_ERROR = {FLOAT64: 1e-12, FLOAT32: 1e-7}
LARGEST_ERROR = 0.1

# -- ties --


# Squared distances that agree to this relative difference are tied: 0.3 - 0.2 and 0.2 - 0.1 are the same distance.
TIED = 1e-12
# Directions that agree to this squared distance are the same one: unit vectors round by 1e-16 per coordinate.
SAME_DIRECTION = 1e-27


def product_error(largest_squares: Number, n_dims: int, dtype: DTypeLike) -> Any:
    """Return a generous bound on the error of a score by products, ``q'z - |q|^2/2 - |z|^2/2``, for these square norms."""
    return 2.0 * (n_dims + 8) * float(np.finfo(dtype).eps) * largest_squares


def score_error(
    by_products: bool,
    squares: np.ndarray,
    largest: float,
    heaviest: float,
    n_dims: int,
    dtype: DTypeLike,
    least: np.ndarray,
) -> Any:
    """Return a bound on the difference between scores and those in float64.

    Parameters
    ----------
    by_products : bool
        Whether distances were computed from products; otherwise, from differences.
    squares : array of shape (m,)
        Square norms of the queries.
    largest, heaviest : float
        The largest square norm of a point, and the largest size of a log-weight.
    least : array of shape (m,)
        The scores for which the error of differences is bounded: those of at least `least`.
    """
    if by_products:
        return product_error(squares + largest + heaviest, n_dims, dtype)
    # A distance errs by its own rounding, and in float32 by that of the images: those of the query, and of points that
    # are within the distance of it.
    with np.errstate(invalid="ignore"):
        half = np.where(np.isfinite(least), np.abs(least), 0.0) + heaviest
    reach = np.sqrt(2.0 * half)
    return 4.0 * float(np.finfo(dtype).eps) * (n_dims * half + (np.sqrt(squares) + reach) * reach)


def robust_centre(points: np.ndarray) -> np.ndarray:
    """Return a central point of most rows, shape (d,), float64: the median of about 200 of them.

    A mean would reduce rounding errors as well, but one row at 1e20 would move it so far that subtracting it would
    round every other row away.
    """
    return np.median(_some_columns(points), axis=1)


def round_centre(points: np.ndarray) -> np.ndarray:
    """Return the robust centre with few digits: rows from which it is subtracted, and hence distances, lose no digits.

    It is rounded to multiples of a power of two below the spread of the column, which is as good a centre.
    """
    some = _some_columns(points)
    centre = np.median(some, axis=1)
    spread = np.median(np.abs(some - centre[:, None]), axis=1)
    step = np.where(spread > 0, np.ldexp(1.0, np.frexp(spread)[1] - 1), 1.0)
    with np.errstate(over="ignore"):
        rounded = np.rint(centre / step) * step
    return np.where((spread > 0) & np.isfinite(rounded), rounded, centre)


def _some_columns(points: np.ndarray) -> np.ndarray:
    """Return the columns of about 200 rows, in float64 and contiguous, which makes medians twice as fast."""
    return np.ascontiguousarray(points[:: max(len(points) // 200, 1)].astype(np.float64).T)


# sum_ij w_ij (u_i - v_j)(u_i - v_j)' is assembled from products of u and v, whose rounding errors are eps times their
# size: the largest share of the scatter's trace that may be lost.
SCATTER_TOLERANCE = {FLOAT64: 1e-11, FLOAT32: 2e-4}


def scatter_is_accurate(scatter: np.ndarray, size: Number, dtype: DTypeLike) -> Any:
    """Return whether a scatter (or each of a stack of them) assembled from terms of trace `size` kept its digits."""
    trace = np.trace(scatter, axis1=-2, axis2=-1)
    return float(np.finfo(dtype).eps) * size <= SCATTER_TOLERANCE[np.dtype(dtype)] * trace


def accurate_scatter(
    scatter_of: Callable[[np.ndarray | None], tuple[np.ndarray, np.ndarray, float]],
    values: np.ndarray,
    dtype: DTypeLike,
) -> tuple[np.ndarray, np.ndarray]:
    """Sum a scatter over groups of rows, each about a centre close enough to it.

    Rows whose neighbours are near compared with the extent of the data (clusters far apart) lose digits in products
    about a common centre.  Such rows are split at the widest gap of their values, until the extent of a group is small
    enough; a group of a single row is exact.

    Parameters
    ----------
    scatter_of : callable
        ``log_sums, scatter, size = scatter_of(rows)``: for these queries only (None for all), about a centre of theirs,
        with the trace of the terms before they cancel.
    values : array of shape (m, v)
        Values of the queries.
    dtype : dtype of the products
    """
    log_sums = np.empty(len(values))
    total = np.zeros((values.shape[1], values.shape[1]))
    groups: list[np.ndarray | None] = [None]
    while groups:
        rows = groups.pop()
        sums, scatter, size = scatter_of(rows)
        if len(sums) > 1 and not scatter_is_accurate(scatter, size, dtype):
            parts = _split_at_widest_gap(values, np.arange(len(values)) if rows is None else rows)
            if parts is not None:
                groups.extend(parts)
                continue
        log_sums[slice(None) if rows is None else rows] = sums
        total += scatter
    return log_sums, total


def _split_at_widest_gap(values: np.ndarray, rows: np.ndarray) -> list[np.ndarray] | None:
    """Return two groups of rows, on either side of the widest gap between consecutive values of a column.

    Return None if all are equal.
    """
    mine = values[rows].astype(np.float64)
    order = np.argsort(mine, axis=0)
    gaps = np.diff(np.take_along_axis(mine, order, axis=0), axis=0)
    place, column = np.unravel_index(np.argmax(gaps), gaps.shape)
    if not gaps[place, column] > 0:
        return None
    ordered = rows[order[:, column]]
    return [np.sort(ordered[: place + 1]), np.sort(ordered[place + 1 :])]
