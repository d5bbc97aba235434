"""Scores of densities, clusterings and metrics.

Every score is exact and is a plain function of arrays:

- `negative_log_likelihood`: the score of a density on held-out rows, with its standard error.
- `clustering_accuracy`: the share of rows in the right cluster, under the best assignment of classes to clusters.
- `balanced_rand_score`: the Rand index with equal weights for matches and mismatches.
- `neighbor_purity`: the share of the first k neighbours that have the same class, for comparing metrics.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment
from sklearn.metrics.cluster import contingency_matrix, pair_confusion_matrix

from vicinal._checks import check_integer
from vicinal._purity import right_neighbors_by_place
from vicinal._rows import check_array
from vicinal._supervision import code_labels

__all__ = [
    "NegativeLogLikelihood",
    "balanced_rand_score",
    "clustering_accuracy",
    "negative_log_likelihood",
    "neighbor_purity",
]


def __dir__() -> list[str]:
    return sorted(__all__)


class NegativeLogLikelihood(NamedTuple):
    """The result of `negative_log_likelihood`.

    Attributes
    ----------
    mean : float
        The mean of ``-log p(x)`` over rows, in nats.
    standard_error : float
        The standard error of that mean.
    """

    mean: float
    standard_error: float


def negative_log_likelihood(log_density: ArrayLike) -> NegativeLogLikelihood:
    r"""Return the average negative log-likelihood of a density, with its standard error.

    .. math:: \mathrm{NLL} = -\frac1n \sum_i \log p(x_i), \qquad
              \mathrm{SE} = \sqrt{\frac{1}{n(n-1)} \sum_i \bigl(\log p(x_i) + \mathrm{NLL}\bigr)^2}

    Lower is better.  To compare two models, use the standard error of their
    *difference*: pass ``log_density_a - log_density_b`` of the same rows.

    Parameters
    ----------
    log_density : array-like of shape (n,)
        Log-densities in nats, as ``score_samples`` returns them.

    Returns
    -------
    NegativeLogLikelihood
        ``(mean, standard_error)``.  With a single row, the standard error is
        ``inf``, because it cannot be estimated.  A row of zero density
        (``-inf``) makes both infinite.

    Examples
    --------
    >>> from vicinal.quality import negative_log_likelihood
    >>> score = negative_log_likelihood([-1.0, -2.0, -3.0])
    >>> score.mean, round(score.standard_error, 4)
    (2.0, 0.5774)
    """
    values = check_array(log_density, ensure_2d=False, ensure_all_finite=False, ensure_min_samples=0)
    if values.ndim != 1 or not values.size:
        raise ValueError(
            f"log_density must hold one number per row, expected shape (n,) with n >= 1, got {values.shape}. "
            "Pass the output of score_samples."
        )
    values = values.astype(np.float64)
    unusable = int((np.isnan(values) | (values == np.inf)).sum())
    if unusable:
        raise ValueError(
            f"log_density must not be NaN or +inf, got {unusable} such entries. A density is infinite or "
            "undefined there. Check the model's bandwidth, or drop those rows."
        )
    if np.isneginf(values).any():
        return NegativeLogLikelihood(np.inf, np.inf)
    # Scaled by the largest entry, so that squares of 1e200 do not overflow.
    scale = float(np.abs(values).max()) or 1.0
    values = values / scale
    mean = -float(values.mean()) * scale + 0.0  # + 0.0 turns -0.0 into 0.0
    if len(values) == 1:
        return NegativeLogLikelihood(mean, np.inf)
    return NegativeLogLikelihood(mean, float(values.std(ddof=1)) * scale / len(values) ** 0.5)


def clustering_accuracy(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    r"""Return the share of rows in the right cluster, under the best one-to-one assignment of classes to clusters.

    .. math:: \frac1n \max_P \operatorname{tr}(E P)

    with :math:`E` the confusion matrix and :math:`P` the permutations of the
    cluster labels (LCA paper, sec. 6.1, where the maximum is misprinted as a
    minimum and the result multiplied by 100).  If the numbers of clusters
    and classes differ, the surplus ones are not assigned and their rows
    count as wrong.

    Parameters
    ----------
    y_true, y_pred : array-like of shape (n,)
        Classes and clusters; the labels may be of any type and need not agree.

    Returns
    -------
    float
        Between 0 and 1.

    Notes
    -----
    The table takes O(n log n) time, and the best permutation is cubic in the number of clusters.

    Examples
    --------
    >>> from vicinal.quality import clustering_accuracy
    >>> clustering_accuracy(["a", "a", "b", "b"], [1, 1, 0, 1])
    0.75
    """
    true, predicted = _two_labelings(y_true, y_pred)
    table = contingency_matrix(true, predicted)
    # Departure 1 (quality): Clustering accuracy is the largest trace. The paper prints a minimum, times 100.
    rows, columns = linear_sum_assignment(table, maximize=True)
    return float(table[rows, columns].sum() / len(true))


def balanced_rand_score(y_true: ArrayLike, y_pred: ArrayLike, *, balance: str = "predicted") -> float:
    r"""Return the Rand index with weights of one half each for pairs within and between clusters.

    .. math:: \tfrac12 P\bigl(c_i = c_j \mid \hat c_i = \hat c_j\bigr)
              + \tfrac12 P\bigl(c_i \ne c_j \mid \hat c_i \ne \hat c_j\bigr)

    over the pairs :math:`i \ne j`, for classes :math:`c` and clusters
    :math:`\hat c`: the probability that the clustering and the classes agree
    on whether two points belong together, if the pair is drawn with equal
    probability from one cluster or from two (RCA paper, sec. 8.3 and note 8,
    after Xing et al., 2002).  The plain Rand index of many clusters is close
    to one for any clustering, because nearly all pairs are in different clusters.

    Parameters
    ----------
    y_true, y_pred : array-like of shape (n,)
        Classes and clusters; the labels may be of any type and need not agree.
    balance : {"predicted", "true"}, default="predicted"
        The partition by which pairs are balanced, which the RCA paper does not specify.
        ``"predicted"`` is the formula above; ``"true"`` swaps the roles,
        so that it is the balanced accuracy of the decision "same class?".

    Returns
    -------
    float
        Between 0 and 1.  If the balancing partition has no pair of one kind
        (one cluster only, or all clusters of one point), the other kind has all the weight.

    Notes
    -----
    The score is computed from the contingency table in O(n log n), without forming pairs.

    Examples
    --------
    >>> from vicinal.quality import balanced_rand_score
    >>> y_true, y_pred = [0, 0, 0, 1, 1, 2], [0, 0, 1, 1, 1, 2]
    >>> round(balanced_rand_score(y_true, y_pred), 4)
    0.6591
    >>> balanced_rand_score(y_true, y_true)
    1.0
    """
    if not isinstance(balance, str) or balance not in ("predicted", "true"):
        raise ValueError(f"balance must be 'predicted' or 'true', got {balance!r}.")
    true, predicted = _two_labelings(y_true, y_pred)
    if len(true) < 2:
        raise ValueError("balanced_rand_score compares pairs: expected at least 2 rows, got 1. Add rows.")
    # agreement[s, t]: ordered pairs together (1) or apart (0) by the balancing (s), by the other (t)
    # Departure 3 (quality): The balanced Rand score is balanced by either partition.
    pair = (predicted, true) if balance == "predicted" else (true, predicted)
    agreement = pair_confusion_matrix(*pair)
    shares = [int(agreement[kind, kind]) / int(agreement[kind].sum()) for kind in (0, 1) if agreement[kind].any()]
    return sum(shares) / len(shares)


def neighbor_purity(X: ArrayLike, y: ArrayLike, n_neighbors: int) -> NDArray[Any]:
    r"""Return the cumulative neighbour purity: the share of the first k neighbours of the same class, for k = 1 .. n_neighbors.

    .. math:: \mathrm{purity}(k) = \frac1n \sum_i \frac1k \sum_{j \in N_k(i)} 1[y_j = y_i]

    where :math:`N_k(i)` are the k rows nearest to row i in Euclidean distance,
    without row i itself (RCA paper, sec. 8).  To evaluate a learned metric, pass ``metric.transform(X)``.

    Parameters
    ----------
    X : array-like of shape (n, d)
        Rows.
    y : array-like of shape (n,)
        Their classes, of any type.
    n_neighbors : int
        The largest k, at most n - 1.

    Returns
    -------
    ndarray of shape (n_neighbors,)
        Entry ``k - 1`` is the purity of the first k neighbours, between 0 and 1.

    Notes
    -----
    A row is excluded from its own neighbours by its index, never by a distance
    of zero, so an exact twin is a neighbour like any other.  Neighbours at equal
    distance share their ranks, as if the curve were averaged over random
    orders, so the order of the rows has no effect.

    The result is exact for any scale and offset: the pair engine's searches (a
    k-d tree up to 10 columns, matrix products beyond) only *select* candidates,
    whose distances are then computed from differences. If rounding could affect
    the neighbours of a row, it is searched again with more candidates.  The cost
    is O(n^2 d) at worst; the memory beyond the data is about 128 MB and two copies of X.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from vicinal.quality import neighbor_purity
    >>> X, y = load_iris(return_X_y=True)
    >>> neighbor_purity(X, y, n_neighbors=3).round(3)
    array([0.96 , 0.953, 0.951])
    """
    X = check_array(X, dtype=np.float64, ensure_min_samples=2, input_name="X")
    n = len(X)
    y = code_labels(y, n_rows=n).codes
    k = check_integer(n_neighbors, "n_neighbors")
    if k > n - 1:
        raise ValueError(f"n_neighbors={k} needs at least {k + 1} rows, got {n}. Lower n_neighbors or add data.")
    # Departure 2 (quality): Neighbours at equal distance share their places.
    right = right_neighbors_by_place(X, y, k)
    return np.cumsum(right) / np.arange(1, k + 1) / n


def _two_labelings(y_true: ArrayLike, y_pred: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    true, predicted = code_labels(y_true, "y_true").codes, code_labels(y_pred, "y_pred").codes
    if len(true) != len(predicted):
        raise ValueError(
            f"y_true and y_pred must label the same rows, got {len(true)} and {len(predicted)} labels. "
            "Pass one label per row in both."
        )
    return true, predicted
