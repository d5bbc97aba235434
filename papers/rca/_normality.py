"""Are classes Gaussian, and does one metric make all of them rounder (sec. 9.2)? Mardia's tests, and condition numbers."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import chi2, norm
from sklearn.utils import check_array


class MardiaTest(NamedTuple):
    """The result of `mardia_test`.

    Attributes
    ----------
    skewness, kurtosis : float
        Mardia's measures.
    skewness_statistic, kurtosis_statistic : float
        Their test statistics.
    skewness_p_value, kurtosis_p_value : float
        The p-values of the tests; a small one shows that the rows are not Gaussian.
    n_dimensions : int
        The number of dimensions that the rows span.
    """

    skewness: float
    skewness_statistic: float
    skewness_p_value: float
    kurtosis: float
    kurtosis_statistic: float
    kurtosis_p_value: float
    n_dimensions: int


def mardia_test(X: ArrayLike, *, small_sample: bool = False) -> MardiaTest:
    r"""Compute Mardia's (1970) tests of multivariate normality, by skewness and by kurtosis.

    With :math:`g_{ij} = (x_i - \bar x)^T S^{-1} (x_j - \bar x)` and S the covariance (divided by n),

    .. math:: b_1 = \frac1{n^2} \sum_{ij} g_{ij}^3, \qquad b_2 = \frac1n \sum_i g_{ii}^2.

    For Gaussian rows in d dimensions :math:`n b_1 / 6` is about chi-squared with d(d+1)(d+2)/6 degrees of
    freedom, and :math:`(b_2 - d(d+2)) / \sqrt{8 d (d+2) / n}` about standard normal.  RCA is the
    maximum-likelihood metric if the classes are Gaussian (RCA paper, sec. 9.2); test each class separately.

    Parameters
    ----------
    X : array-like of shape (n, d)
        Rows of one class.
    small_sample : bool, default=False
        Whether to correct the skewness statistic for few rows (Mardia, 1974).

    Returns
    -------
    MardiaTest
        ``n_dimensions`` is the rank of the data, which ignores constant and dependent columns.

    Notes
    -----
    The cost is O(n d min(n, d^2)); pairs are processed in blocks.  The result does not change under affine maps of X.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from papers.rca._normality import mardia_test
    >>> X, y = load_iris(return_X_y=True)
    >>> test = mardia_test(X[y == 0])
    >>> round(test.skewness_p_value, 3), round(test.kurtosis_p_value, 3)
    (0.177, 0.195)
    """
    X = np.asarray(check_array(X, dtype=np.float64, ensure_min_samples=3, input_name="X"))
    n = len(X)
    white = _white_rows(X)
    d = white.shape[1]
    if d == 0:
        raise ValueError(f"All {n} rows of X are equal, so there is no shape to test. Check how X was made.")
    if n < d + 2:
        raise ValueError(
            f"mardia_test needs at least {d + 2} rows for {d} dimensions, got {n}: with fewer rows the statistics are constant. "
            "Add rows or reduce the dimension, for example with PCA."
        )
    squares = np.einsum("ij,ij->i", white, white)
    kurtosis = float(np.mean(squares**2))
    if n <= d * d:
        cubes = sum(float(((white[a : a + 256] @ white.T) ** 3).sum()) for a in range(0, n, 256)) / n**2
    else:  # the same sum by third moments: sum over abc of (mean of z_a z_b z_c)^2
        cubes = sum(float((((white * column[:, None]).T @ white / n) ** 2).sum()) for column in white.T)
    factor = (d + 1) * (n + 1) * (n + 3) / (n * ((n + 1) * (d + 1) - 6)) if small_sample else 1.0
    skew_statistic = factor * n * cubes / 6
    kurtosis_statistic = (kurtosis - d * (d + 2)) / np.sqrt(8 * d * (d + 2) / n)
    return MardiaTest(
        cubes,
        skew_statistic,
        float(chi2.sf(skew_statistic, d * (d + 1) * (d + 2) / 6)),
        kurtosis,
        float(kurtosis_statistic),
        float(2 * norm.sf(abs(kurtosis_statistic))),
        d,
    )


class ConditionNumbers(NamedTuple):
    """The result of `condition_numbers`.

    Attributes
    ----------
    classes : ndarray of shape (n_classes,)
        The classes in sorted order.
    before, after : ndarray of shape (n_classes,)
        The condition number of the covariance of each class, before and after the metric.
    """

    classes: np.ndarray
    before: np.ndarray
    after: np.ndarray


def condition_numbers(X: ArrayLike, y: ArrayLike, metric: Any = None) -> ConditionNumbers:
    """Return the ratio of the largest to the smallest eigenvalue of each class's covariance, before and after a metric.

    A metric that suits all classes makes each of them rounder, so that their condition numbers fall (RCA paper,
    sec. 9.2).

    Parameters
    ----------
    X : array-like of shape (n, d)
        The rows.
    y : array-like of shape (n,)
        Classes, of any type.
    metric : fitted estimator with ``transform``, default=None
        None leaves ``after`` equal to ``before``.

    Returns
    -------
    ConditionNumbers
        ``inf`` for a class whose covariance is singular (too few rows, constant or dependent columns).

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from vicinal import RCA
    >>> from papers.rca._normality import condition_numbers
    >>> X, y = load_iris(return_X_y=True)
    >>> classes, before, after = condition_numbers(X, y, RCA().fit(X, y))
    >>> before.round(1), after.round(1)
    (array([26.2, 49.8, 20.3]), array([11.9,  4.1,  3.1]))
    """
    X = np.asarray(check_array(X, dtype=np.float64, input_name="X"))
    classes, codes = np.unique(np.asarray(y), return_inverse=True)
    images = X if metric is None else np.asarray(metric.transform(X))
    before, after = (
        np.array([_condition_number(rows[codes == code]) for code in range(len(classes))]) for rows in (X, images)
    )
    return ConditionNumbers(classes, before, after)


def _condition_number(rows: NDArray[Any]) -> float:
    centred = rows - rows[0]
    centred -= centred.mean(axis=0)
    singular = np.linalg.svd(centred, compute_uv=False)
    if len(rows) <= rows.shape[1] or singular[-1] <= singular[0] * max(rows.shape) * np.finfo(np.float64).eps:
        return np.inf
    return float((singular[0] / singular[-1]) ** 2)


def _white_rows(X: NDArray[Any]) -> NDArray[Any]:
    """Return centred rows in coordinates of unit variance; directions without variance are dropped."""
    centred = X - X[0]  # exact zeros for constant columns
    centred -= centred.mean(axis=0)
    largest = np.abs(centred).max(axis=0)
    centred = centred[:, largest > 8 * np.finfo(np.float64).eps * np.abs(X).max(axis=0)]
    centred /= np.sqrt(np.einsum("ij,ij->j", centred, centred))
    left, singular, _ = np.linalg.svd(centred, full_matrices=False)
    rank = int((singular > max(X.shape) * np.finfo(np.float64).eps * singular.max(initial=0)).sum())
    return left[:, :rank] * np.sqrt(len(X))
