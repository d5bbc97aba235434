"""The waist: what every backend of the pair engine answers, as equations.

Symbols, the same everywhere:

- ``queries`` q_i, shape (m, d); ``points`` z_j, shape (n, d): scaled coordinates.
- ``log_weights`` (n,): what point j weighs as a neighbour; None means 0.
- ``left_out`` (m,): the column that query i must not see, or -1; None means nobody is left out.  Leave-one-out on the
  points themselves is ``left_out = arange(n)``: by row index, never by distance, because duplicates exist.
- ``s_ij = -|q_i - z_j|^2 / 2 + log_weights_j``, and -inf where j is left out.
- ``p_ij = exp(s_ij - log_sums_i)`` with ``log_sums_i = log sum_j exp(s_ij)``: the softmax neighbours of i.
- ``row_weights`` r_i (m,): how much query i counts as a term; None means 1.

All results are float64 NumPy arrays, whatever the engine and the precision of the input.
"""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

Array = Any  # an array of some namespace (NumPy, torch)


class SoftmaxMeans(NamedTuple):
    """``log_sums`` (m,) and ``means`` (m, v) = sum_j p_ij values_j."""

    log_sums: np.ndarray
    means: np.ndarray


class ClassShares(NamedTuple):
    """``log_sums`` (m,) and ``shares`` (m, n_classes) = sum of p_ij over the points j of each class."""

    log_sums: np.ndarray
    shares: np.ndarray


class SoftmaxScatter(NamedTuple):
    """``log_sums`` (m,) and ``scatter`` (v, v) = sum_ij r_i p_ij (u_i - v_j)(u_i - v_j)'."""

    log_sums: np.ndarray
    scatter: np.ndarray


class SignedPull(NamedTuple):
    """The signed weights of NCA, applied to the coordinates.

    With m_ij the agreement of i and j and ``a_i = sum_j p_ij m_ij`` (so ``log_agreement = log a``), the weights are

    - objective "accuracy":    ``w_ij = r_i p_ij (a_i - m_ij)``,
    - objective "likelihood":  ``w_ij = r_i (p_ij - p_ij m_ij / a_i)``,

    and ``on_queries_i = sum_j w_ij (q_i - z_j)``, ``on_points_j = sum_i w_ij (z_j - q_i)``.  When the queries are the
    points, the scatter of the weights is ``S(w) = Z' (on_queries + on_points)``; in general, with ``Z = X A'``,
    ``A S(w) = on_queries' X_queries + on_points' X_points``: only d-dimensional pair work, however wide X is.
    Under "accuracy", an ``a_i`` that underflows may come as log-agreement -inf; under "likelihood" it is exact.
    """

    log_sums: np.ndarray
    log_agreement: np.ndarray
    on_queries: np.ndarray
    on_points: np.ndarray


class MutualPull(NamedTuple):
    """`SignedPull` of points on themselves, each left out of its own neighbours: ``pull = on_queries + on_points``."""

    log_sums: np.ndarray
    log_agreement: np.ndarray
    pull: np.ndarray


@dataclass(frozen=True)
class Match:
    """Who agrees with whom: the closed set of rules for ``m_ij``.

    - ``"class"``: 1 if the integer codes are equal, else 0; ``queries`` (m,), ``points`` (n,).
    - ``"gaussian"``: ``exp(-|t_i - t_j|^2 / 2)`` of targets in units of their scale; (m, t), (n, t).
    - ``"dot"``: the inner product of non-negative rows (class probabilities); (m, t), (n, t).
    """

    kind: Literal["class", "gaussian", "dot"]
    queries: np.ndarray
    points: np.ndarray


class PairReductions(Protocol):
    """What a backend must answer; symbols as above."""

    def log_sums(self, queries, points, *, log_weights=None, left_out=None) -> np.ndarray:
        """Return ``log sum_j exp(s_ij)``, shape (m,)."""
        ...

    def softmax_means(self, queries, points, values, *, log_weights=None, left_out=None) -> SoftmaxMeans:
        """Return the log-sums and ``W V``: the softmax means of the values, shape (n, v)."""
        ...

    def softmax_spread(self, queries, points, values, *, log_weights=None, left_out=None) -> np.ndarray:
        """Return ``W' U``: ``sum_i p_ij values_i`` for values of the queries (m, v); shape (n, v)."""
        ...

    def class_shares(self, queries, points, classes, n_classes, *, log_weights=None, left_out=None) -> ClassShares:
        """Return the log-sums and each class's share of the softmax neighbours."""
        ...

    def softmax_scatter(
        self,
        queries,
        points,
        *,
        query_values=None,
        point_values=None,
        row_weights=None,
        log_weights=None,
        left_out=None,
    ) -> SoftmaxScatter:
        """Return the log-sums and the pooled scatter of the softmax weights.

        The scatter is that of the values u_i, v_j, which default to the coordinates themselves.
        """
        ...

    def signed_pull(
        self,
        queries,
        points,
        match: Match,
        *,
        objective="accuracy",
        row_weights=None,
        log_weights=None,
        left_out=None,
    ) -> SignedPull:
        """Return what the signed weights of NCA pull on the queries and on the points."""
        ...

    def mutual_pull(
        self, points, match: Match, *, objective="accuracy", row_weights=None, log_weights=None
    ) -> MutualPull:
        """Return what the signed weights of NCA pull on the points among themselves."""
        ...
