"""Relevant Component Analysis of a stream (Bar-Hillel et al. 2005, sec. 7 and Appendix C)."""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils import Tags

from vicinal._checks import check_positive
from vicinal._metric import LinearMetricMixin
from vicinal._rows import check_rows
from vicinal._supervision import ChunkletReport, ChunkletRows, read_chunklets

_START = 0.5  # the initial scale as a share of the whitening scale: ||W|| << 1 in the paper, but a start near the solution saves most steps
_STABLE = 0.5  # the largest change of W along any direction in one automatic step
_RUNAWAY = 1e8  # in units of the initial scale


class OnlineRCA(LinearMetricMixin, BaseEstimator):
    """RCA for streams: a whitening map that is updated after every chunklet (Algorithms 3 and 4).

    For a chunklet with centred points :math:`h_i` and images :math:`y_i = W h_i` the map W is updated by

    .. math:: W \\leftarrow W + \\eta \\sum_i (W - y_i y_i^T W),

    whose fixed point is :math:`W E[h h^T] W^T = I`: W is then RCA's whitening of the within-chunklet
    covariance (Eq. 1) up to a rotation, which changes no distance.  For pairs, Algorithm 3 with h = x_1 -
    x_2 is the same update with half the scale; this class is always on the scale of Algorithm 4, that of
    :class:`RCA`.

    Parameters
    ----------
    step : "auto" or float, default="auto"
        The step size :math:`\\eta`.  "auto" is ``1 / (t + 2 d)`` after t points, which converges: to first order it is
        the exact average over all chunklets.  It is limited to half of the step that would reverse the sign of W, so it
        needs no tuning and does not depend on the units of X.  A constant step keeps adapting to data that drift, at the
        cost of noise in proportion to it.  It must stay well below ``1 / d``.

    Attributes
    ----------
    components_ : array of shape (n_features, n_features)
        The matrix W.
    step_ : float
        The last step size.
    n_chunklets_, n_points_ : int
        The numbers of chunklets and of points in them so far.
    chunklet_report_ : ChunkletReport
        How ``y`` was interpreted in the last call, in counts.
    n_features_in_, feature_names_in_ : int, ndarray of str
        The number of columns of the training rows, and their names if they have names.
    feature_names_in_ : array of shape (n_features,)
        Only when X has string column names.

    See Also
    --------
    RCA : The exact solution for a fixed data set; its ``partial_fit`` gives equal weight to all rows seen.

    Notes
    -----
    A chunklet of m points takes O(m d^2) time; the memory beyond a copy of the block is O(d^2).

    Departures from the paper:

    1. W starts at half the inverse spread of the first chunklets, column by column, instead of a small
       random matrix, so that nothing needs to be tuned to the units of X.
    2. A column has weight zero until two points of a chunklet differ in it.  In the paper its weight grows
       forever.
    3. The automatic step is limited, as described above.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import OnlineRCA
    >>> rng = np.random.default_rng(0)
    >>> online = OnlineRCA()
    >>> for _ in range(100):                                         # a stream of blocks of 20 pairs
    ...     X = np.repeat(rng.normal(size=(20, 3)), 2, axis=0) + rng.normal(size=(40, 3)) * [0.1, 1.0, 10.0]
    ...     _ = online.partial_fit(X, np.arange(40) // 2)
    >>> M = online.get_mahalanobis_matrix()
    >>> print(np.round(1 / np.sqrt(np.diag(M)), 2))                  # sqrt(1/2) of the noise, as Eq. 1 has it
    [0.07 0.72 7.16]
    """

    def __init__(self, step: str | float = "auto") -> None:
        self.step = step

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Reset the estimator, then make one pass over the chunklets of y.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            The training rows.
        y : chunklets
            In any of the forms that :meth:`RCA.fit` takes.

        Returns
        -------
        self
        """
        state, report = self._advance(None, *self._read(X, y, reset=True, min_rows=2))
        if state is None:
            raise ValueError(
                f"{type(self).__name__} needs a chunklet of two or more different points, got none: {report} "
                "Give rows of one group the same id, or pass pairs of row positions."
            )
        return self._keep(state, report)

    def partial_fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Update the map with the chunklets of y, one after the other.

        Ids are local to one call.  The estimator is not fitted until it has seen a chunklet with two different
        points.  A call that fails changes nothing.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            The next rows of the stream.
        y : chunklets
            In any of the forms that :meth:`RCA.fit` takes.

        Returns
        -------
        self
        """
        read = self._read(X, y, reset=not hasattr(self, "_state"), min_rows=1)
        return self._keep(*self._advance(getattr(self, "_state", None), *read))

    def _read(
        self, X: ArrayLike, y: ArrayLike, *, reset: bool, min_rows: int
    ) -> tuple[np.ndarray, ChunkletRows, ChunkletReport]:
        if not (isinstance(self.step, str) and self.step == "auto"):
            if isinstance(self.step, str):
                raise ValueError(f'step must be "auto" or a number greater than 0, got {self.step!r}.')
            check_positive(self.step, "step")
        X = check_rows(self, X, reset=reset, min_rows=min_rows)
        return X, *read_chunklets(y, len(X))

    def _advance(
        self, state: _State | None, X: np.ndarray, entries: ChunkletRows, report: ChunkletReport
    ) -> tuple[_State | None, ChunkletReport]:
        """Return the state after one more block of chunklets (None before W is initialised), and the report."""
        starts = np.flatnonzero(np.diff(entries.ids, prepend=-1))
        chunklets = [_centred(X[rows]) for rows in np.split(entries.rows, starts[1:])] if len(starts) else []
        state = _with_started_columns(state, chunklets, X.shape[1])
        if state is None:
            return None, report
        W, limit, n_points, n_chunklets, step = state
        for H in chunklets:
            m, Y = len(H), H @ W.T
            gram = Y @ Y.T if m <= X.shape[1] else Y.T @ Y
            largest = float(np.trace(gram) if m == 2 else np.linalg.eigvalsh(gram)[-1])
            if self.step == "auto":
                # Departure 3 (OnlineRCA): The automatic step is limited.
                step = min(1.0 / (n_points + 2 * X.shape[1]), _STABLE / m, _STABLE / max(largest, 1e-300))
            else:
                step = float(self.step)
            W = (1.0 + step * m) * W - step * (Y.T @ (Y @ W))  # Algorithm 4
            n_points, n_chunklets = n_points + m, n_chunklets + 1
            if not np.abs(W).max() <= limit:
                self._refuse(overshot=step * largest > 1.0)
        return _State(W, limit, n_points, n_chunklets, step), report

    def _refuse(self, *, overshot: bool) -> None:
        d = self.n_features_in_
        if overshot:
            raise ValueError(
                f"step={self.step!r} diverges: one step reverses the map. A constant step must stay well "
                f"below 1/n_features; try step={min(0.1 / d, float(self.step) / 4):.1g}, or step='auto', which limits itself."
            )
        raise ValueError(
            "The map grows without bound, because points of a chunklet never differ along some direction. Drop "
            "columns that depend on others (for example with sklearn.decomposition.PCA), or use RCA, which "
            "handles them."
        )

    def _keep(self, state: _State | None, report: ChunkletReport) -> Self:
        self._state, self.chunklet_report_ = state, report
        if state is not None:
            self.components_, self.step_ = state.W, state.step
            self.n_points_, self.n_chunklets_ = state.n_points, state.n_chunklets
        return self


class _State(NamedTuple):
    W: np.ndarray
    limit: float  # larger entries mean that W diverges
    n_points: int = 0
    n_chunklets: int = 0
    step: float | None = None


def _centred(points: np.ndarray) -> np.ndarray:
    """Return centred points; the first is subtracted first, so that equal points give exact zeros."""
    H = points.astype(np.float64) - points[0]
    return H - H.mean(axis=0)


def _with_started_columns(state: _State | None, chunklets: list[np.ndarray], d: int) -> _State | None:
    """Start W, or columns of it that have been zero so far, at half the inverse spread within chunklets.

    The spread is a median over chunklets, because the map recovers only slowly from an initial value that is far too small (due to
    an outlier).  Few contrasts give a poor estimate, so the logarithm of a column's variance is shrunk towards that of
    the mean variance, with the weight of three additional contrasts.
    """
    if not chunklets:
        return state
    # Departure 1 (OnlineRCA): W starts at half the inverse spread of the first chunklets.
    # Departure 2 (OnlineRCA): A column has weight zero until two points of a chunklet differ in it.
    variances = np.array([np.einsum("ij,ij->j", H, H) / len(H) for H in chunklets])
    variance = np.median(variances, axis=0)
    variance = np.where(variance > 0, variance, variances.mean(axis=0))
    W = np.zeros((d, d)) if state is None else state.W
    new = np.flatnonzero((variance > 0) & ~W.any(axis=0))
    if len(new) == 0:
        return state
    n_contrasts = sum(map(len, chunklets)) - len(chunklets)
    trust = n_contrasts / (n_contrasts + 3.0)
    typical = variance[variance > 0].mean()
    spread = typical ** ((1 - trust) / 2) * np.maximum(variance[new], 1e-12 * typical) ** (trust / 2)
    W = W.copy()
    W[new, new] = _START / spread
    limit = _RUNAWAY * float(np.abs(W).max())
    return _State(W, limit) if state is None else state._replace(W=W, limit=max(limit, state.limit))
