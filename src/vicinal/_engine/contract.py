r"""The contract between the pair engine and its backends, as equations.

Symbols, the same everywhere:

- ``points`` x_j, shape (n, D): the resident rows.  A kernel maps them to ``images`` z_j, shape (n, k).
- ``queries`` q_i: all resident rows, some of them by position, or new rows.
- ``log_weights`` (n,): the log-weight of point j as a neighbour; None means 0.
- ``left_out`` (m,): the position that is excluded from the neighbours of query i, or -1.  Rows are left out by position,
  never by distance, because there may be duplicates.
- ``s_ij``: the score of a pair, -inf where j is left out of i's neighbours.  For one shared metric
  ``s_ij = log_weights_j - |q_i - z_j|^2 / 2``; the other kernel families are in `families.py`.
- ``log_sums_i = log sum_j exp(s_ij)`` and ``p_ij = exp(s_ij - log_sums_i)``: the softmax neighbours of i.  For a query
  without neighbours (all points are left out or have weight 0) the log-sum is -inf and every p_ij is 0: its mean shift and
  its class shares are 0, and it adds nothing to a scatter or a pull.

A backend implements four members: `Backend.at`, and on what that returns `Placed.log_sums`, `Placed.softmax_sums` and
`Placed.candidates`.  Every other reduction is derived from those by shared code: the methods of `Placed`
that are not abstract, and `Placement`.  A backend may override a method if one fused sweep is faster.

Results are float64 NumPy arrays in the original order of the points, for every backend and precision;
log-sums of new rows that are a tensor on a device are a float64 tensor on that device.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np

from vicinal._engine import tuning
from vicinal._engine.accuracy import accurate_scatter, robust_centre
from vicinal._engine.certificates import Certificates
from vicinal._engine.families import Kernel
from vicinal._engine.neighbors import nearest
from vicinal._engine.queries import Queries
from vicinal._engine.row_search import Neighbors
from vicinal._engine.settings import Engine
from vicinal._engine.work.blocks import listed_parts

Array = Any  # an array of some namespace (NumPy, torch)

Space = Literal["images", "rows"]
# Some of the listed pairs, with the images of their queries and points.
ImagesOfPairs = tuple[slice, np.ndarray, np.ndarray]
# The values to which weights are applied: given ones, or the images or rows themselves (centred, with a last column of ones).
Values = np.ndarray | Space


@dataclass(frozen=True)
class Points:
    """The resident rows that a backend receives, once per problem.

    Attributes
    ----------
    rows : array of shape (n, D)
        The rows, centred, in the precision of the pairwise computations.
    log_weights : float64 array of shape (n,), optional
    classes : integer array of shape (n,), optional
        The class of each row, from 0 to n_classes - 1.
    n_classes : int
    tensor : torch.Tensor, optional
        The rows on a device, if the user has passed them as a tensor.
    certificates : Certificates
        The certificates of all sweeps over these rows, including sweeps with other weights or over some of the rows.
    """

    rows: np.ndarray
    log_weights: np.ndarray | None = None
    classes: np.ndarray | None = None
    n_classes: int = 0
    tensor: Any = None
    certificates: Certificates = field(default_factory=Certificates)


class LogSums(NamedTuple):
    """``log_sums`` (m,), and ``log_shares`` (m, n_classes) = log of the sum of p_ij over the points of each class, or None.

    Shares are relative, because the difference of two log-sums of -1e20 has no digits left.
    """

    log_sums: np.ndarray
    log_shares: np.ndarray | None = None


class SoftmaxSums(NamedTuple):
    """The sums with weights ``w_ij = f_i p_ij``, for the queries and for the points; see `Placed.softmax_sums`."""

    log_sums: np.ndarray
    gathered: np.ndarray
    received: np.ndarray


class Scatter(NamedTuple):
    """``log_sums`` (m,) and ``scatter`` (v, v) = sum_ij r_i p_ij (u_i - u_j)(u_i - u_j)'."""

    log_sums: np.ndarray
    scatter: np.ndarray


class ScatterAndMeans(NamedTuple):
    """``log_sums`` (m,), the ``scatter`` of the first coordinates of the images, and the ``means`` (m, v) of values over the neighbours."""

    log_sums: np.ndarray
    scatter: np.ndarray
    means: np.ndarray


class Pull(NamedTuple):
    r"""The pull of NCA's signed weights on the images of the points.

    With m_ij the agreement of i and j and ``a_i = sum_j p_ij m_ij`` (``log_agreement = log a``), the weights are

    - objective "accuracy":    ``w_ij = r_i p_ij (a_i - m_ij)``,
    - objective "likelihood":  ``w_ij = r_i (p_ij - p_ij m_ij / a_i)``,

    and ``pull_j = sum_i (w_ij + w_ji)(z_j - z_i)``, shape (n, k), where i runs over the queries only.  The scatter of
    the weights is ``S(w) = Z' pull``; with ``Z = X A'``, ``A S(w) = pull' X``, so that pairwise computations are only
    k-dimensional for any width of X.  Under "accuracy" an ``a_i`` that underflows may be -inf; under "likelihood" it is exact.
    """

    log_sums: np.ndarray
    log_agreement: np.ndarray
    pull: np.ndarray


@dataclass(frozen=True)
class Match:
    """The agreement ``m_ij`` of rows, by one of three rules.

    - ``"class"``: 1 if the integer codes are equal, else 0; shape (n,).
    - ``"gaussian"``: ``exp(-|t_i - t_j|^2 / 2)`` of targets in units of their scale; shape (n, t).
    - ``"dot"``: the inner product of non-negative rows (class probabilities); shape (n, t).
    """

    kind: Literal["class", "gaussian", "dot"]
    values: np.ndarray


class Placed(Protocol):
    """The resident rows under one kernel, on their device."""

    takes_tensors: ClassVar[bool] = False  # whether `log_sums` takes new rows that are tensors, and returns a tensor
    points: Points
    metric: np.ndarray | None  # the map from rows to images; None if the images are the rows
    expected_share: float = 1.0  # the share of all pairs that a pass over all rows visits
    threads: int = 1
    compiled: ClassVar[bool] = False  # whether compiled kernels are used

    @abstractmethod
    def log_sums(self, queries: Queries, by_class: bool = False) -> LogSums:
        """Return ``log sum_j exp(s_ij)`` and, if requested, the log of each class's share of it."""

    @abstractmethod
    def softmax_sums(
        self,
        queries: Queries,
        factors: np.ndarray | None,
        values: Values | None,
        query_values: Values | None = None,
        own_class: bool = False,
    ) -> SoftmaxSums:
        """Apply the weights ``w_ij = f_i p_ij``, with `factors` f of shape (m,), or None for 1.

        With `own_class`, for queries that are resident rows, p_ij is the softmax over only the points of the query's own
        class; a query without such points has sums of 0 and adds 0.

        ``gathered = sum_j w_ij values_j`` has shape (m, v) and ``received = sum_i w_ij query_values_i`` shape (n, u), of
        values of the points and of the queries; empty (v or u = 0) if None is given.  The weights of a row sum to
        f_i to rounding, however far its neighbours are.
        """

    @abstractmethod
    def candidates(self, queries: Queries, floors: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield, for blocks of queries, pairs (query, point) as two integer arrays: all with scores of at least ``floors_i``.

        There may be more: a margin covers the rounding errors of fast products, and the caller selects by scores in float64.
        The pairs of a query are consecutive; queries may be in any order.  Pairs that are left out, or of weight 0, are
        not listed.
        """

    # -- shared by all backends; a backend overrides these if a fused or symmetric sweep is faster -----------------

    def scatter(self, queries: Queries, row_weights: np.ndarray, space: Space) -> Scatter:
        """Return the log-sums and the pooled scatter of the softmax weights, of the images or of the rows."""
        return Scatter(*self._scatter_by_sums(queries, row_weights, space)[:2])

    def scatter_and_means(
        self, queries: Queries, row_weights: np.ndarray, values: np.ndarray, n_first: int
    ) -> ScatterAndMeans:
        """Return the scatter of the first coordinates of the images, and the means of values (n, v) of the points."""
        return ScatterAndMeans(*self._scatter_by_sums(queries, row_weights, "images", values, n_first))

    def _scatter_by_sums(
        self, queries: Queries, row_weights: np.ndarray, space: Space, values: np.ndarray | None = None, n_first: int | None = None,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
        theirs = self.coordinates(Queries(), space)[:, :n_first]
        mine = theirs if queries.are_all else self.coordinates(queries, space)[:, :n_first]
        ones, d = np.ones((len(mine), 1)), theirs.shape[1]
        means = np.empty((len(mine), 0 if values is None else values.shape[1]))

        def scatter_of(some: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, float]:
            asked, u, r = queries, mine, row_weights
            if some is not None:
                asked, u, r = queries.take(some, len(theirs)), mine[some], row_weights[some]
            # Resident rows are centred already, so no centred copy is needed; a single row is split no further, whatever digits it loses.
            is_centred = some is None and queries.rows is None and len(u) > 1
            centre = np.zeros(d) if is_centred else robust_centre(u)
            if values is None:
                given = space if is_centred else theirs - centre.astype(theirs.dtype)
                sums = self.softmax_sums(asked, r, given, ones[: len(u)])
                gathered = sums.gathered[:, :d]
            else:
                given = np.hstack([theirs - centre.astype(theirs.dtype), values.astype(theirs.dtype, copy=False)])
                sums = self.softmax_sums(asked, None, given, r[:, None])
                means[slice(None) if some is None else some] = sums.gathered[:, d:]
                gathered = r[:, None] * sums.gathered[:, :d]
            r = np.where(sums.log_sums > -np.inf, r, 0.0)
            return sums.log_sums, *_scatter_of_sums(u, theirs, centre, gathered, r, sums.received[:, 0])

        return *accurate_scatter(scatter_of, mine, self.points.rows.dtype), means

    def squares(self, queries: Queries) -> tuple[np.ndarray, np.ndarray]:
        """Return the log-sums and ``sum_j p_ij |z_i - z_j|^2``, (m,), under one shared metric; 0 for a query without neighbours."""
        raise TypeError("squares needs a metric that all points share.")

    def class_pull(self, queries: Queries, row_weights: np.ndarray, likelihood: bool) -> Pull:
        """Return the `Pull` of resident rows towards the rows of their own class.

        With p' the softmax over the class mates, ``p_ij m_ij / a_i = p'_ij``, which is exact even if every p_ij of a
        class mate underflows.  The weights are r (p - p') under "likelihood" and r a (p - p') under "accuracy".
        """
        log_sums, log_agreement = self.class_agreement(queries)
        with np.errstate(under="ignore"):
            factors = row_weights if likelihood else row_weights * np.exp(log_agreement)
        pull = self.softmax_pull(queries, factors) - self.softmax_pull(queries, factors, own_class=True)
        return Pull(log_sums, log_agreement, pull)

    def class_gradient(self, queries: Queries, row_weights: np.ndarray, likelihood: bool) -> Pull:
        """Return the result of `class_pull` with ``pull' X`` in place of the pull, computed on the device of the rows."""
        found = self.class_pull(queries, row_weights, likelihood)
        return found._replace(pull=by_metric(found.pull, self.points.rows, self.metric))

    def class_agreement(self, queries: Queries) -> tuple[np.ndarray, np.ndarray]:
        """Return the log-sums of resident rows, and the log of their own class's share."""
        log_sums, log_shares = self.log_sums(queries, by_class=True)
        assert self.points.classes is not None
        assert log_shares is not None
        codes = self.points.classes if queries.positions is None else self.points.classes[queries.positions]
        return log_sums, log_shares[np.arange(len(codes)), codes]

    def softmax_pull(self, queries: Queries, factors: np.ndarray, own_class: bool = False) -> np.ndarray:
        """Return ``sum_i (w_ij + w_ji)(z_j - z_i)``, shape (n, k), for the weights of `softmax_sums`.

        i runs over the queries, which are resident rows, each once.
        """
        images = self.coordinates(Queries(), "images").astype(np.float64, copy=False)
        sums = self.softmax_sums(queries, factors, "images", "images", own_class)
        pull = sums.received[:, -1:] * images - sums.received[:, :-1]
        mine = slice(None) if queries.positions is None else queries.positions
        pull[mine] += sums.gathered[:, -1:] * images[mine] - sums.gathered[:, :-1]
        return pull

    def class_shares(self, queries: Queries) -> np.ndarray:
        """Return each class's share of the softmax weights, (m, n_classes): those of `log_sums`, to an absolute error."""
        log_shares = self.log_sums(queries, by_class=True).log_shares
        assert log_shares is not None
        with np.errstate(under="ignore"):
            return np.exp(log_shares)

    def nearest(self, queries: Queries, k: int, origin: np.ndarray | None = None) -> Neighbors:
        """Return the k nearest points of positive weight under a shared metric; see `neighbors.nearest`."""
        return nearest(self, queries, k, origin)

    def pair_scores(self, queries: Queries) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        """Return a function of listed pairs (query, point) that computes their ``s_ij`` in float64, from differences.

        This is the score of one shared metric; placements of other kernel families override it.
        """
        images_of = self.float64_pairs(queries)
        log_weights = self.points.log_weights

        def scores(query: np.ndarray, point: np.ndarray) -> np.ndarray:
            found = np.empty(len(query))
            for part, mine, theirs in images_of(query, point):
                difference = np.subtract(mine, theirs, dtype=np.float64)
                found[part] = -0.5 * np.einsum("ij,ij->i", difference, difference)
            return found if log_weights is None else found + log_weights[point]

        return scores

    @property
    def n_coordinates(self) -> int:
        """The number of coordinates of an image."""
        return self.points.rows.shape[1] if self.metric is None or self.metric.ndim == 1 else len(self.metric)

    def float64_pairs(self, queries: Queries) -> Callable[[np.ndarray, np.ndarray], Iterator[ImagesOfPairs]]:
        """Return a function of listed pairs (query, point) that yields parts of them, with their images.

        Images are in float64. Rows to which no metric is applied are yielded as they are, for arithmetic in float64.
        Rows that are in no listed pair are not mapped, unless all images are small.
        """
        n, k = len(self.points.rows), self.n_coordinates
        if self.metric is None:
            return self._rows_of_pairs(queries)
        images: np.ndarray | None = None
        map_all = queries.count(n) >= tuning.MAPPED_FROM_QUERIES and 8 * n * k <= tuning.LISTED_BYTES
        if map_all and not self.holds_float64_images:
            images = self.float64_images(Queries())

        def images_of(query: np.ndarray, point: np.ndarray) -> Iterator[ImagesOfPairs]:
            for part in listed_parts(len(query), k):
                if images is not None and queries.are_all:
                    yield part, images[query[part]], images[point[part]]
                    continue
                asked, place = np.unique(query[part], return_inverse=True)
                mine = self.float64_images(queries.take(asked, n))[place]
                if images is not None:
                    yield part, mine, images[point[part]]
                else:
                    listed, place = np.unique(point[part], return_inverse=True)
                    yield part, mine, self.float64_images(Queries(positions=listed))[place]

        return images_of

    @property
    def holds_float64_images(self) -> bool:
        """Whether `float64_images` only looks them up."""
        return False

    def _rows_of_pairs(self, queries: Queries) -> Callable[[np.ndarray, np.ndarray], Iterator[ImagesOfPairs]]:
        """`float64_pairs` if the images are the rows themselves: a copy of all of them in float64 would gain no digits."""
        rows, given = self.points.rows, self.coordinates(queries, "rows")

        def rows_of(query: np.ndarray, point: np.ndarray) -> Iterator[ImagesOfPairs]:
            for part in listed_parts(len(query), rows.shape[1], most=tuning.GATHERED_BYTES):
                yield part, given[query[part]], rows[point[part]]

        return rows_of

    def float64_images(self, queries: Queries) -> np.ndarray:
        """Return the images of the queries in float64, for any working precision."""
        return to_images(self.coordinates(queries, "rows").astype(np.float64, copy=False), self.metric)

    def coordinates(self, queries: Queries, space: Space) -> np.ndarray:
        """Return the images or the rows of the queries, as a NumPy array in the working precision."""
        rows = self.points.rows if queries.rows is None else queries.rows
        rows = rows if queries.positions is None else rows[queries.positions]
        return rows if space == "rows" else to_images(rows, self.metric)


class Backend(Protocol):
    """The resident rows on one backend."""

    name: ClassVar[str]

    def __init__(self, points: Points, engine: Engine) -> None: ...

    def at(self, kernel: Kernel) -> Placed:
        """Place the rows under a kernel: a metric of shape (k, D), a record of `families.py`, or None (as they are)."""
        ...


def to_images(rows: np.ndarray, metric: np.ndarray | None) -> np.ndarray:
    """Return rows mapped by a matrix (k, D), by a vector (D,) that is a diagonal, or not at all, in their own precision.

    The map itself is done in float64: a metric may cancel most of a row, and then float32 products would keep few of
    the image's digits.
    """
    if metric is None:
        return rows
    with np.errstate(over="ignore"):  # an image that overflows is infinitely far away and has weight 0
        if metric.ndim == 1:
            return (rows * metric).astype(rows.dtype, copy=False)
        images = np.empty((*rows.shape[:-1], len(metric)), dtype=rows.dtype)
        for start in range(0, len(rows), tuning.ALGEBRA_ROWS):
            part = slice(start, start + tuning.ALGEBRA_ROWS)
            images[part] = rows[part].astype(np.float64, copy=False) @ metric.T
    return images


def by_metric(pull: np.ndarray, rows: np.ndarray, metric: np.ndarray | None) -> np.ndarray:
    """``pull' X``: the pull on the images as a gradient with respect to the metric; its diagonal if the metric is diagonal."""
    if metric is not None and metric.ndim == 1:
        return np.einsum("ij,ij->j", pull, rows)
    if rows.dtype == np.float32:  # a float64 copy of wide rows would cost more than all pairwise computations
        return (pull.T.astype(np.float32) @ rows).astype(np.float64)
    return pull.T @ rows


def finite(log_weights: np.ndarray) -> np.ndarray:
    """Return log-weights with 0 for points of weight 0, whose share is 0 in any case."""
    return np.where(log_weights > -np.inf, log_weights, 0.0)


def _scatter_of_sums(
    u: np.ndarray,
    v: np.ndarray,
    centre: np.ndarray,
    gathered: np.ndarray,
    row_weights: np.ndarray,
    received: np.ndarray,
) -> tuple[np.ndarray, float]:
    """``U'D_row U + V'D_col V - U'WV - (U'WV)'`` about a centre, and its trace before the terms cancel.

    `gathered` is W (V - centre).  In float64, some rows at a time.
    """
    d = gathered.shape[1]
    scatter, size = np.zeros((d, d)), 0.0
    for start in range(0, len(u), tuning.ALGEBRA_ROWS):
        rows = slice(start, start + tuning.ALGEBRA_ROWS)
        mine = u[rows].astype(np.float64) - centre
        weighted = mine * row_weights[rows, None]
        scatter += mine.T @ (weighted - gathered[rows]) - gathered[rows].T @ mine
        size += float(np.vdot(weighted, mine))
    for start in range(0, len(v), tuning.ALGEBRA_ROWS):
        rows = slice(start, start + tuning.ALGEBRA_ROWS)
        theirs = v[rows].astype(np.float64) - centre
        scatter += (theirs * received[rows, None]).T @ theirs
        size += float(received[rows] @ np.square(theirs).sum(axis=1))
    return 0.5 * (scatter + scatter.T), size
