r"""The contract between the pair engine and its backends, as equations.

Symbols, the same everywhere:

- ``points`` x_j, shape (n, D): the resident rows.  A kernel maps them to ``images`` z_j, shape (n, k).
- ``queries`` q_i: all resident rows, some of them by position, or new rows.
- ``log_weights`` (n,): the log-weight of point j as a neighbour; None means 0.
- ``left_out`` (m,): the position that query i must not see, or -1.  Rows are left out by position, never by distance,
  because duplicates exist.
- ``s_ij``: the score of a pair, -inf where j is left out of i's neighbours.  For one shared metric
  ``s_ij = log_weights_j - |q_i - z_j|^2 / 2``; the other kernel families are in `_kernels_of_points.py`.
- ``log_sums_i = log sum_j exp(s_ij)`` and ``p_ij = exp(s_ij - log_sums_i)``: the softmax neighbours of i.

A backend implements four members: `Backend.at`, and on what that returns `Placed.log_sums`, `Placed.weighted_sums` and
`Placed.candidates`.  Every other reduction follows from those by algebra that is written once: the methods of `Placed`
that are not abstract, and `_problem.Placement`.  A backend may override a method where one fused sweep is faster.

Results are float64 NumPy arrays in the order of the points as they were given, whatever the backend and the precision.
"""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np

from vicinal._engine._accuracy import accurate_scatter
from vicinal._engine._settings import Engine
from vicinal._engine._tuning import ALGEBRA_ROWS

Array = Any  # an array of some namespace (NumPy, torch)

Of = Literal["images", "rows"]
# What weights are applied to: given values, or the images or rows themselves (centred, with a last column of ones).
Values = np.ndarray | Of


@dataclass(frozen=True)
class Queries:
    """The queries of one call.

    Attributes
    ----------
    positions : integer array of shape (m,), optional
        Resident rows by position.
    rows : array of shape (m, D), optional
        New rows, centred as the points are.  Where both are None, the queries are all resident rows.
    left_out : integer array of shape (m,), optional
        The position that each query must not see, or -1.  None means that nobody is left out.
    """

    positions: np.ndarray | None = None
    rows: np.ndarray | None = None
    left_out: np.ndarray | None = None

    @property
    def are_all(self) -> bool:
        """Whether the queries are all resident rows, in their order."""
        return self.positions is None and self.rows is None

    def take(self, some: np.ndarray, n: int) -> "Queries":
        """Some of the queries; `n` is the number of resident rows."""
        left_out = None if self.left_out is None else self.left_out[some]
        if self.rows is not None:
            return Queries(rows=self.rows[some], left_out=left_out)
        positions = np.arange(n) if self.positions is None else self.positions
        return Queries(positions=positions[some], left_out=left_out)

    def count(self, n: int) -> int:
        """The number of queries, m."""
        if self.rows is not None:
            return len(self.rows)
        return n if self.positions is None else len(self.positions)


@dataclass(frozen=True)
class Points:
    """The resident rows as a backend receives them, once per problem.

    Attributes
    ----------
    rows : array of shape (n, D)
        Centred, in the precision of the pairwise computations.
    log_weights : float64 array of shape (n,), optional
    classes : integer array of shape (n,), optional
        Codes 0 to n_classes - 1.
    n_classes : int
    """

    rows: np.ndarray
    log_weights: np.ndarray | None = None
    classes: np.ndarray | None = None
    n_classes: int = 0


class Softmax(NamedTuple):
    """``log_sums`` (m,); ``means`` (m, v) = sum_j p_ij values_j; ``received`` (n,) = sum_i r_i p_ij, or None."""

    log_sums: np.ndarray
    means: np.ndarray
    received: np.ndarray | None


class Scatter(NamedTuple):
    """``log_sums`` (m,) and ``scatter`` (v, v) = sum_ij r_i p_ij (u_i - u_j)(u_i - u_j)'."""

    log_sums: np.ndarray
    scatter: np.ndarray


class Pull(NamedTuple):
    r"""What the signed weights of NCA pull on the images of the points.

    With m_ij the agreement of i and j and ``a_i = sum_j p_ij m_ij`` (``log_agreement = log a``), the weights are

    - objective "accuracy":    ``w_ij = r_i p_ij (a_i - m_ij)``,
    - objective "likelihood":  ``w_ij = r_i (p_ij - p_ij m_ij / a_i)``,

    and ``pull_j = sum_i (w_ij + w_ji)(z_j - z_i)``, shape (n, k), where i runs over the queries only.  The scatter of
    the weights is ``S(w) = Z' pull``; with ``Z = X A'``, ``A S(w) = pull' X``: only k-dimensional pair work, however
    wide X is.  Under "accuracy" an ``a_i`` that underflows may come as -inf; under "likelihood" it is exact.
    """

    log_sums: np.ndarray
    log_agreement: np.ndarray
    pull: np.ndarray


@dataclass(frozen=True)
class Match:
    """Who agrees with whom: the closed set of rules for ``m_ij``.

    - ``"class"``: 1 if the integer codes are equal, else 0; shape (n,).
    - ``"gaussian"``: ``exp(-|t_i - t_j|^2 / 2)`` of targets in units of their scale; shape (n, t).
    - ``"dot"``: the inner product of non-negative rows (class probabilities); shape (n, t).
    """

    kind: Literal["class", "gaussian", "dot"]
    values: np.ndarray


class Placed(Protocol):
    """The resident rows under one kernel, where they live."""

    points: Points
    metric: np.ndarray | None  # what maps rows to images; None where the images are the rows

    @abstractmethod
    def log_sums(self, queries: Queries, by_class: bool = False) -> np.ndarray:
        """Return ``log sum_j exp(s_ij)``, shape (m,); by class, the sums over each class, shape (m, n_classes)."""

    @abstractmethod
    def weighted_sums(
        self,
        queries: Queries,
        shifts: np.ndarray,
        factors: np.ndarray,
        values: Values | None,
        spread: Values | None = None,
    ) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Apply the weights ``w_ij = f_i exp(s_ij - shifts_i)``.

        `factors` f has shape (m,), or (m, 2) to hold one factor for points of the query's own class and one for the
        others (for queries that are resident rows).  `shifts` are no less than the row's largest score, so that no
        weight overflows.

        Return ``sum_j w_ij values_j``, shape (m, v), and ``sum_i w_ij spread_i``, shape (n, u), of values of the
        points and of the queries; None where None is given.
        """

    @abstractmethod
    def candidates(
        self, queries: Queries, k: int | None = None, floors: np.ndarray | None = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield, for consecutive blocks of queries, pairs (query, point) as two integer arrays.

        With `k`, the pairs of each query contain its k best scores and all that tie with the k-th; with `floors`
        (m,), all scores of at least ``floors_i``.  There may be more: a margin covers the rounding errors of fast
        products, and the caller decides by scores in float64.  A query's pairs come together.  Pairs that are left
        out are not listed.
        """

    # -- written once; a backend overrides these where one fused sweep is faster -----------------------------------

    def softmax(self, queries: Queries, values: Values, row_weights: np.ndarray | None = None) -> Softmax:
        """Return the log-sums, the softmax means of the values and, given row weights r, what each point receives."""
        log_sums = self.log_sums(queries)
        ones = np.ones(len(log_sums))
        means, _ = self.weighted_sums(queries, log_sums, ones, values)
        assert means is not None
        if row_weights is None:
            return Softmax(log_sums, means, None)
        _, received = self.weighted_sums(queries, log_sums, row_weights, None, ones[:, None])
        assert received is not None
        return Softmax(log_sums, means, received[:, 0])

    def scatter(self, queries: Queries, row_weights: np.ndarray, of: Of) -> Scatter:
        """Return the log-sums and the pooled scatter of the softmax weights, of the images or of the rows."""
        mine, theirs = self.coordinates(queries, of), self.coordinates(Queries(), of)

        def about(some: np.ndarray, centre: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
            everyone = len(some) == len(mine)
            asked = queries if everyone else queries.take(some, len(theirs))
            r = row_weights if everyone else row_weights[some]
            u = mine if everyone else mine[some]
            found = self.softmax(asked, theirs - centre.astype(theirs.dtype), r)
            return found.log_sums, *_scatter_of_sums(u, theirs, centre, found.means, r, found.received)

        return Scatter(*accurate_scatter(about, mine, self.points.rows.dtype))

    def class_pull(self, queries: Queries, row_weights: np.ndarray, likelihood: bool) -> Pull:
        """Return the `Pull` of resident rows towards the rows of their own class."""
        by_class = self.log_sums(queries, by_class=True)
        log_sums = log_sum_exp(by_class)
        assert self.points.classes is not None
        codes = self.points.classes if queries.positions is None else self.points.classes[queries.positions]
        mates = by_class[np.arange(len(by_class)), codes]
        with np.errstate(invalid="ignore"):  # a query that sees nobody agrees with nobody
            log_agreement = np.where(mates > -np.inf, mates - log_sums, -np.inf)
        if not likelihood:
            agreement = np.exp(log_agreement)
            factors = np.stack([row_weights * (agreement - 1.0), row_weights * agreement], axis=1)
            return Pull(log_sums, log_agreement, self.softmax_pull(queries, log_sums, factors))
        # In the log domain: the softmax over the mates alone exists even where every p_ij of theirs underflows.
        pull = self.softmax_pull(queries, log_sums, np.stack([row_weights, row_weights], axis=1))
        reached = np.flatnonzero(mates > -np.inf)
        only = np.stack([row_weights[reached], np.zeros(len(reached))], axis=1)
        pull -= self.softmax_pull(queries.take(reached, len(pull)), mates[reached], only)
        return Pull(log_sums, log_agreement, pull)

    def softmax_pull(self, queries: Queries, shifts: np.ndarray, factors: np.ndarray) -> np.ndarray:
        """Return ``sum_i (w_ij + w_ji)(z_j - z_i)``, shape (n, k), for the weights of `weighted_sums`.

        i runs over the queries, which are resident rows.
        """
        images = self.coordinates(Queries(), "images").astype(np.float64, copy=False)
        gathered, received = self.weighted_sums(queries, shifts, factors, "images", "images")
        assert gathered is not None and received is not None
        pull = received[:, -1:] * images - received[:, :-1]
        mine = slice(None) if queries.positions is None else queries.positions  # positions are distinct
        pull[mine] += gathered[:, -1:] * images[mine] - gathered[:, :-1]
        return pull

    def coordinates(self, queries: Queries, of: Of) -> np.ndarray:
        """The images or the rows of the queries, as a NumPy array in the working precision."""
        rows = self.points.rows if queries.rows is None else queries.rows
        rows = rows if queries.positions is None else rows[queries.positions]
        return rows if of == "rows" else to_images(rows, self.metric)


class Backend(Protocol):
    """The resident rows on one kind of machine."""

    name: ClassVar[str]

    def __init__(self, points: Points, engine: Engine) -> None: ...

    def at(self, kernel: Any) -> Placed:
        """Place the rows under a kernel: a metric of shape (k, D), a record of `_families.py`, or None (as they are)."""
        ...


def to_images(rows: np.ndarray, metric: np.ndarray | None) -> np.ndarray:
    """Rows mapped by a matrix (k, D), by a vector (D,) that is a diagonal, or not at all, in their own precision."""
    if metric is None:
        return rows
    metric = np.asarray(metric).astype(rows.dtype, copy=False)
    return rows * metric if metric.ndim == 1 else rows @ metric.T


def log_sum_exp(scores: np.ndarray) -> np.ndarray:
    """The log-sum-exp of each row, shifted by its maximum; -inf for a row of -inf."""
    top = scores.max(axis=1)
    shift = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore", under="ignore"):
        return shift + np.log(np.exp(scores - shift[:, None]).sum(axis=1))


def _scatter_of_sums(u, v, centre, means, row_weights, received):
    """``U'D_row U + V'D_col V - U'WV - (U'WV)'`` about a centre, and its trace before the terms cancel.

    `means` are those of the values less the centre.  In float64, some rows at a time.
    """
    d = means.shape[1]
    scatter, size = np.zeros((d, d)), 0.0
    for start in range(0, len(u), ALGEBRA_ROWS):
        rows = slice(start, start + ALGEBRA_ROWS)
        mine = u[rows].astype(np.float64) - centre
        weighted = mine * row_weights[rows, None]
        scatter += weighted.T @ (mine - means[rows]) - means[rows].T @ weighted
        size += float(np.vdot(weighted, mine))
    for start in range(0, len(v), ALGEBRA_ROWS):
        rows = slice(start, start + ALGEBRA_ROWS)
        theirs = v[rows].astype(np.float64) - centre
        scatter += (theirs * received[rows, None]).T @ theirs
        size += float(received[rows] @ np.square(theirs).sum(axis=1))
    return 0.5 * (scatter + scatter.T), size
