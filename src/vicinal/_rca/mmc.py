"""Xing et al.'s metric from similar and dissimilar pairs (NIPS 2002), with a certified distance from the maximum."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import eigh
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator
from sklearn.utils import Tags

from vicinal._checks import check_callback, check_choice, check_integer, check_positive
from vicinal._fit_loops import Callback, FitPath, Reason, Recorder, warn_if_not_converged
from vicinal._metric import LinearMetricMixin, range_basis, rank_tolerance, whitening
from vicinal._rows import check_columns_spread, check_rows
from vicinal._supervision import check_pairs, read_partition


class MMC(LinearMetricMixin, BaseEstimator):
    """Learn a metric that keeps similar pairs close and dissimilar pairs far apart (Xing et al., 2002).

    Over matrices :math:`M \\succeq 0`,

    .. math:: \\max_M \\; \\frac1{|D|} \\sum_{(i,j) \\in D} \\sqrt{(x_i - x_j)^T M (x_i - x_j)}
              \\quad\\text{with}\\quad \\frac1{|S|} \\sum_{(i,j) \\in S} (x_i - x_j)^T M (x_i - x_j) = 1,

    where S are the pairs within chunklets and D are pairs that are known (or assumed) to be dissimilar.  This is Eq. 8
    of the RCA paper up to the scale of M.  The problem is concave, and every iterate has an upper bound on the distance
    from the maximum (``gap_``), which proves convergence.

    Parameters
    ----------
    structure : {"full", "diag"}, default="full"
        The form of the metric. With "diag", one weight per column is learned.
    max_iter : int, default=500
        The maximum number of iterations.
    gap_tol : float, default=1e-3
        The fit stops when the objective is provably within this share of its maximum.
    callback : callable, optional
        Called as ``callback(parameters, n_iter)`` after each iteration, with a flattened matrix A, ``M = A.T @ A``, with one
        row for each dimension that the rows of X span, and the number of iterations. It may raise StopIteration: the
        fit then ends, warns that it has not converged, and keeps the last matrix. Model files do not contain it.

    Attributes
    ----------
    components_ : array of shape (n_components, n_features)
        ``M = components_.T @ components_``.  M often has low rank; directions of weight zero have no row
        here.
    gap_ : float
        A bound on the relative distance from the maximum.
    objectives_ : array of shape (n_iter,)
        The mean distance of dissimilar pairs, one entry per iteration; the last belongs to ``components_``.
    n_iter_ : int
        The number of iterations.
    converged_ : bool
        Whether the gap fell below `gap_tol`.
    chunklet_report_ : ChunkletReport
        How ``y`` was interpreted, in counts.
    n_features_in_, feature_names_in_ : int, ndarray of str
        The number of columns of the training rows, and their names if they have names.
    feature_names_in_ : array of shape (n_features,)
        Only when X has string column names.

    See Also
    --------
    RCA : Uses similar pairs only, in closed form; often as good, and always faster.

    Notes
    -----
    Without ``cannot_link`` an iteration costs O(n^2 d) time, in blocks.

    Departures from the paper:

    1. In the coordinates that whiten the similar pairs (RCA's), their constraint is ``tr B = 1``, and a step
       that never lowers the objective replaces Xing's gradient ascent with alternating projections.  The problem and its
       maximum are the same.
    2. Means over pairs replace sums, which only changes the scale.
    3. Along directions in which no similar pair differs, the problem has no maximum. There, similar pairs are
       assumed to differ by the smallest positive eigenvalue of their scatter, as in :class:`RCA`.

    References
    ----------
    E. Xing, A. Ng, M. Jordan, S. Russell.  Distance metric learning with application to clustering with
    side-information.  NIPS 2002.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from vicinal.companions import MMC
    >>> X, y = load_iris(return_X_y=True)
    >>> mmc = MMC().fit(X, y)
    >>> mmc.converged_, len(mmc.components_)
    (True, 4)
    """

    def __init__(
        self, *, structure: str = "full", max_iter: int = 500, gap_tol: float = 1e-3, callback: Callback | None = None
    ) -> None:
        self.structure = structure
        self.max_iter = max_iter
        self.gap_tol = gap_tol
        self.callback = callback

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def fit(self, X: ArrayLike, y: ArrayLike, cannot_link: ArrayLike | None = None) -> Self:
        """Learn the metric.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            The training rows.
        y : chunklets, as in :meth:`RCA.fit`
            All pairs within a chunklet are similar.  Chunklets that share a row are merged.
        cannot_link : array-like of shape (q, 2), default=None
            Row positions of dissimilar pairs.  None uses all pairs that are not within one chunklet, including rows
            in no chunklet, as Xing et al. did.

        Returns
        -------
        self
        """
        check_choice(self.structure, "structure", ("full", "diag"))
        max_iter = check_integer(self.max_iter, "max_iter")
        gap_tol = check_positive(self.gap_tol, "gap_tol")
        check_callback(self.callback)
        X = check_rows(self, X, reset=True, min_rows=2)
        chunklets, report = read_partition(y, len(X))
        if report.n_chunklets == 0:
            raise ValueError(
                f"MMC needs a chunklet of two or more points, got none: {report} Give rows of one group the "
                "same id, or pass pairs of row positions."
            )
        check_columns_spread(X)
        rows = X.astype(np.float64) - X[0]  # constant columns become zeros exactly, offsets cost no digits
        rows -= rows.mean(axis=0)
        frame = self._frame(rows, chunklets, float(np.finfo(X.dtype).eps))
        Z = rows @ frame.T
        if cannot_link is None:
            sum_of_distances = partial(_distances_of_all_others, Z, chunklets)
        else:
            left, right = check_pairs(cannot_link, len(X), "cannot_link").T
            sum_of_distances = partial(_distances_of_pairs, Z[left] - Z[right])
        record = Recorder.of(self, lambda at: at[0].T @ frame)
        path = _ascend(sum_of_distances, Z.shape[1], self.structure == "diag", record, max_iter, gap_tol)
        L, self.gap_ = path.parameters
        self.objectives_, self.n_iter_, self.converged_ = path.objectives, path.n_iter, path.converged
        self.components_ = _root(L, self.structure == "diag") @ frame
        self.chunklet_report_ = report
        warn_if_not_converged("MMC", path, remedy="Raise max_iter or gap_tol")
        return self

    def _frame(self, rows: np.ndarray, chunklets: np.ndarray, resolution: float) -> np.ndarray:
        """Return a map under which the mean scatter of similar pairs is the identity (diagonal: one in each column)."""
        alike, total = _mean_square_difference(rows, chunklets), rows.T @ rows / len(rows)
        tolerance = rank_tolerance(len(total), resolution)
        basis = range_basis(np.diag(np.diag(total)) if self.structure == "diag" else total, tolerance=tolerance)
        if basis is not None and basis.shape[1] == 0:
            raise ValueError(f"All {len(rows)} rows of X are equal, so there is no variance to learn from.")
        if self.structure == "diag":
            varies = np.diag(total) > 0
            square = np.diag(alike)
            positive = square > 64.0 * resolution**2 * np.diag(total)
            if positive.any():
                # Departure 3 (MMC): Directions in which no similar pair differs are filled as in RCA.
                square = np.where(positive, square, square[positive].min())
                return np.diag(1.0 / np.sqrt(square))[varies]
        else:
            frame = whitening(alike, total, basis=basis, tolerance=tolerance, resolution=resolution)
            if frame is not None:
                return frame.components
        raise ValueError(
            "The chunklets contain only equal points, so there are no differences within chunklets to "
            "learn from. Pass chunklets of rows that belong together but are not equal."
        )


def _mean_square_difference(rows: np.ndarray, chunklets: np.ndarray) -> np.ndarray:
    """Return the mean of (x_i - x_j)(x_i - x_j)' over pairs within chunklets: sum over C of |C| times its scatter."""
    inside = np.flatnonzero(chunklets >= 0)
    ids = chunklets[inside]
    sizes = np.bincount(ids)
    means = np.stack([np.bincount(ids, column) for column in rows[inside].T], axis=1) / sizes[:, None]
    centred = (rows[inside] - means[ids]) * np.sqrt(sizes[ids])[:, None]
    # Departure 2 (MMC): Means over pairs replace sums.
    return centred.T @ centred / (sizes * (sizes - 1) / 2).sum()


def _ascend(
    sum_of_distances: Callable[[np.ndarray, float], tuple[float, np.ndarray]],
    d: int,
    diagonal: bool,
    record: Recorder,
    max_iter: int,
    gap_tol: float,
) -> FitPath:
    """Maximise the mean distance g(B) over B = L L' with tr B = 1, from B = I / d (RCA's metric).

    With G = dg/dB the step ``L <- G L / |G L|`` never lowers g.  By Cauchy-Schwarz ``|L_new' h| >= (L'
    h).(L_new' h) / |L' h|``; summed over pairs h the right side is linear in L_new with gradient 2 G L,
    hence largest at L_new ~ G L. As g is concave in B, the maximum is at most ``g + (largest eigenvalue of
    G) - <G, B>``: the gap. The parameters of the path are L and its gap.
    """
    L = np.eye(d) / np.sqrt(d)
    objective, G = sum_of_distances(L, 0.0)
    if not objective > 0:
        raise ValueError(
            "MMC needs dissimilar pairs, got none (or only pairs of equal rows). Leave some rows out of the "
            "chunklets, give more than one chunklet, or pass cannot_link."
        )
    nearest = 1e-9 * objective  # below this, the root is replaced by its tangent, so that G stays finite
    with record:
        while True:
            G = np.diag(np.diag(G)) if diagonal else G
            largest = eigh(G, eigvals_only=True, subset_by_index=[d - 1, d - 1])[0]
            gap = max(0.0, float(largest - np.vdot(G @ L, L)) / objective)
            record.add((L, gap), objective, keep=True)
            record.iterated((L, gap))
            if gap <= gap_tol:
                raise record.end(Reason.CONVERGED, f"the maximum is within a share of {gap:.2g} (gap_tol={gap_tol:g})")
            if len(record.objectives) == max_iter:
                left = f"the objective may still rise by a share of {gap:.2g} (gap_tol={gap_tol:g})"
                raise record.end(Reason.LIMIT, f"after max_iter={max_iter} iterations {left}")
            # Departure 1 (MMC): A step that never lowers the objective replaces gradient ascent.
            L = G @ L
            L /= np.linalg.norm(L)
            objective, G = sum_of_distances(L, nearest)
    return record.path()


def _root(L: np.ndarray, diagonal: bool) -> np.ndarray:
    """Return rows A with ``A' A = L L'``; directions without weight are dropped."""
    if diagonal:
        return L.T[np.diag(L) ** 2 > np.finfo(np.float64).eps * np.diag(L).max() ** 2]
    weights, directions = eigh(L @ L.T)
    kept = weights > np.finfo(np.float64).eps * weights[-1]
    return (np.sqrt(weights[kept]) * directions[:, kept]).T[::-1]


def _distances_of_pairs(differences: np.ndarray, L: np.ndarray, nearest: float) -> tuple[float, np.ndarray]:
    """Return the mean distance over given pairs and its gradient with respect to B = L L'."""
    distances = np.linalg.norm(differences @ L, axis=1)
    weights = _inverse(distances, nearest)
    n_pairs = max(len(distances), 1)
    return float(distances.sum()) / n_pairs, (differences * weights[:, None]).T @ differences / (2 * n_pairs)


def _distances_of_all_others(
    Z: np.ndarray, chunklets: np.ndarray, L: np.ndarray, nearest: float
) -> tuple[float, np.ndarray]:
    """Return the same over all pairs that are not within one chunklet; each pair is counted twice.

    ``sum over pairs of w_ij (z_i - z_j)(z_i - z_j)' = Z' (D - W) Z``, with D the row sums of W: no
    difference is formed.
    """
    n = len(Z)
    images = Z @ L
    block = max(1, 2**22 // n)
    total, G = 0.0, np.zeros((Z.shape[1], Z.shape[1]))
    sizes = np.bincount(chunklets[chunklets >= 0])
    n_ordered = max(n * (n - 1) - int((sizes * (sizes - 1)).sum()), 1)
    for first in range(0, n, block):
        here = slice(first, first + block)
        distances = cdist(images[here], images)
        alike = (chunklets[here, None] == chunklets) & (chunklets[here, None] >= 0)
        distances[alike] = 0.0
        weights = _inverse(distances, nearest)
        weights[alike] = 0.0
        weights[np.arange(len(weights)), np.arange(first, first + len(weights))] = 0.0
        total += float(distances.sum())
        G += (Z[here] * weights.sum(axis=1)[:, None]).T @ Z[here] - Z[here].T @ (weights @ Z)
    return total / n_ordered, (G + G.T) / (2 * n_ordered)


def _inverse(distances: np.ndarray, nearest: float) -> np.ndarray:
    """Return 1 / distance, as if no distance were below `nearest`; 0 for distance 0 when that is 0."""
    with np.errstate(divide="ignore"):
        weights = 1.0 / np.maximum(distances, nearest)
    weights[np.isinf(weights)] = 0.0
    return weights
