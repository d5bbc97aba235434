"""Scatters: sums of outer products of differences, computed without forming the differences."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np

from vicinal._engine import Engine, available_threads, in_order, one_blas_thread, prepare
from vicinal._rows import log_weights

_Job = tuple[int, int, int]  # the size of chunklets, and where their rows begin and end
_JobSums = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


class ChunkletEntries(Protocol):
    """Rows and the chunklet of each, two integer arrays of the same length; `_supervision.ChunkletRows` is one."""

    @property
    def rows(self) -> np.ndarray:
        """Positions of the rows."""

    @property
    def ids(self) -> np.ndarray:
        """The chunklet of each."""


@dataclass(frozen=True)
class ChunkletScatter:
    """The sums over the data that RCA needs; the sums of two data sets can be added.

    Attributes
    ----------
    n_rows : int
        All rows.
    origin, shift : arrays of shape (d,)
        The mean of all rows is ``origin + shift``.  ``origin`` is a point among the data, so ``shift`` is small and
        loses no digits if the data are far from the origin.
    total : array of shape (d, d)
        Scatter of all rows about their mean.
    n_points, n_chunklets : int
        Points in chunklets (``N`` of Eq. 1; a row in two chunklets counts twice) and chunklets.
    within : array of shape (d, d)
        Scatter of the points about the means of their chunklets: ``N`` times Eq. 1.
    fourth : array of shape (d, d)
        Sum over the ``R = N - n_chunklets`` within-chunklet contrasts of ``z_k^2 z_l^2``; see `chunklet_scatter`.
    resolution : float
        Machine epsilon of the data in the precision in which they were passed.
    """

    n_rows: int
    origin: np.ndarray
    shift: np.ndarray
    total: np.ndarray
    n_points: int
    n_chunklets: int
    within: np.ndarray
    fourth: np.ndarray
    resolution: float

    @property
    def n_contrasts(self) -> int:
        """``R = sum(|C_j| - 1)``, the degrees of freedom within chunklets."""
        return self.n_points - self.n_chunklets

    @property
    def mean(self) -> np.ndarray:
        """Mean of all rows."""
        return self.origin + self.shift

    def __add__(self, other: "ChunkletScatter") -> "ChunkletScatter":
        n_rows = self.n_rows + other.n_rows
        apart = (other.origin - self.origin) + (other.shift - self.shift)
        share = other.n_rows / n_rows
        return ChunkletScatter(
            n_rows=n_rows,
            origin=self.origin,
            shift=self.shift + share * apart,
            total=self.total + other.total + np.outer(self.n_rows * share * apart, apart),
            n_points=self.n_points + other.n_points,
            n_chunklets=self.n_chunklets + other.n_chunklets,
            within=self.within + other.within,
            fourth=self.fourth + other.fourth,
            resolution=max(self.resolution, other.resolution),
        )


def chunklet_scatter(X: np.ndarray, entries: ChunkletEntries) -> ChunkletScatter:
    """Return the scatter of rows about the means of their chunklets, and of all rows about their mean.

    With the vicinity ``w_ij = 1[same chunklet] / (2 |C|)`` the scatter ``sum w_ij (x_i - x_j)(x_i - x_j)'``
    is

        within = sum over chunklets C, i in C of (x_i - m_C)(x_i - m_C)',

    so no pairs are formed. This takes O(n d^2) time, and memory for a block of rows and a few (d, d) arrays.

    ``fourth`` is used for Ledoit-Wolf shrinkage.  A chunklet of m points has m - 1 observations with known
    mean zero: its contrasts z_k = sum_i u_ki x_i, where the u_k are any orthonormal basis of the vectors
    that sum to zero (for example the Helmert basis).  ``within = sum z_k z_k'`` holds for any basis, but sums of fourth
    powers depend on it, and hence on the order of the points.  Their mean over all bases does not: with H the centred
    points, S = H'H and v its diagonal,

        mean of sum over contrasts z of z_a^2 z_b^2 = (v_a v_b + 2 S_ab^2) / (m + 1),

    by E (u'Au)(u'Bu) = (tr A tr B + 2 tr AB) / (r (r + 2)) for u uniform on the unit sphere of r = m - 1
    dimensions. For pairs there is one basis and nothing to average.  All of them are kept, and not only their sum
    ``|z|^4``, so that the shrinkage can be found in units of the columns that are known when all rows have been seen.

    Parameters
    ----------
    X : float array of shape (n, d)
    entries : ChunkletEntries
        Sorted by id, as `read_chunklets` gives them.

    Returns
    -------
    ChunkletScatter
    """
    n, d = X.shape
    origin = _amid(X)
    in_chunklet = np.bincount(entries.rows, minlength=n)
    shared = bool((in_chunklet > 1).any())
    # Rows outside chunklets are chunklets of one.  Then total = within + between, and the data are read once;
    # with rows in several chunklets that does not hold, and the total is summed on its own.
    alone = np.arange(n) if shared else np.flatnonzero(in_chunklet == 0)
    del in_chunklet
    most = max(2**17 // d, min(d, 4096), 64)  # rows of a block: 1 MB, but no fewer than columns, for BLAS
    rows, jobs = _by_size(entries, alone, most)
    within, about_origin, moment, fourth = _sum_jobs(X, origin, rows, jobs, most, shared)
    shift = moment / n
    total = about_origin - np.outer(n * shift, shift)
    return ChunkletScatter(
        n_rows=n,
        origin=origin,
        shift=shift,
        total=(total + total.T) / 2,
        n_points=len(entries.rows),
        n_chunklets=int(entries.ids.max(initial=-1)) + 1,
        within=(within + within.T) / 2,
        fourth=fourth,
        resolution=float(np.finfo(X.dtype).eps),
    )


# Points of a chunklet up to which their products are summed pair by pair: a matrix product for each of up to 36 pairs
# costs less than a small one for each chunklet.
_FEW_POINTS = 8


def _amid(X: np.ndarray) -> np.ndarray:
    """Return a point among the rows: a median, which is robust to outliers and exact for constant columns."""
    n_some = min(len(X), 101)
    n_some -= 1 - n_some % 2  # an odd number: the median of a column is one of its values
    return np.median(X[np.linspace(0, len(X) - 1, n_some).astype(np.int64)], axis=0).astype(np.float64)


def _by_size(entries: ChunkletEntries, alone: np.ndarray, most: int) -> tuple[np.ndarray, list[_Job]]:
    """Order rows by the size of their chunklet; cut them into jobs (size, first, last) of `most` rows.

    All chunklets of a job have one size, so a job is one three-dimensional array.  A chunklet of more than
    `most` rows is a job of its own.
    """
    sizes = np.bincount(entries.ids)
    starts = np.cumsum(sizes) - sizes
    order = np.argsort(sizes, kind="stable")
    sizes, starts = sizes[order], starts[order]
    ends = np.cumsum(sizes)
    places = np.repeat(starts - (ends - sizes), sizes)
    rows = entries.rows[np.add(places, np.arange(len(places)), out=places)]
    jobs = [(1, lo, min(lo + most, len(alone))) for lo in range(0, len(alone), most)]
    for size, count in zip(*np.unique(sizes, return_counts=True), strict=True):
        first = len(alone) + int(sizes[sizes < size].sum())
        last = first + int(size * count)
        step = int(size) * max(1, most // int(size))
        jobs += [(int(size), lo, min(lo + step, last)) for lo in range(first, last, step)]
    return np.concatenate([alone, rows]) if len(alone) else rows, jobs


def _sum_jobs(
    X: np.ndarray, origin: np.ndarray, rows: np.ndarray, jobs: list[_Job], most: int, shared: bool
) -> _JobSums:
    """Sum the jobs in up to 16 parts, a number that depends only on the data, so that threads do not change the result."""
    d = X.shape[1]

    def part_sums(part: list[_Job]) -> _JobSums:
        within, about_origin = np.zeros((d, d)), np.zeros((d, d))
        moment, fourth = np.zeros(d), np.zeros((d, d))
        for size, first, last in part:
            here = rows[first:last]
            if size > most:
                scatter, means, quartic = _one_large_chunklet(X, origin, here, most)
            else:
                scatter, means, quartic = _chunklets_of_one_size(X, origin, here, size)
            within += scatter
            fourth += quartic
            if size == 1 or not shared:
                about_origin += scatter
                moment += size * means.sum(axis=0)
                means *= np.sqrt(size)  # a product of one array with itself costs BLAS half
                about_origin += means.T @ means
        return within, about_origin, moment, fourth

    # Each part holds two (d, d) sums: a sixteenth of the data at most, all together.
    n_parts = int(min(16, len(jobs), len(rows) // (32 * d)))
    if n_parts < 2:
        return part_sums(jobs)
    edges = np.linspace(0, len(jobs), n_parts + 1).astype(np.int64)
    parts = [jobs[lo:hi] for lo, hi in pairwise(edges)]
    with one_blas_thread():
        within, about_origin, moment, fourth = np.zeros((d, d)), np.zeros((d, d)), np.zeros(d), np.zeros((d, d))
        for part in in_order(part_sums, parts, min(n_parts, available_threads())):
            within += part[0]
            about_origin += part[1]
            moment += part[2]
            fourth += part[3]
    return within, about_origin, moment, fourth


def _chunklets_of_one_size(
    X: np.ndarray, origin: np.ndarray, rows: np.ndarray, size: int
) -> tuple[np.ndarray | float, np.ndarray, np.ndarray | float]:
    """Return the within scatter, chunklet means (about the origin) and sum of fourth powers of chunklets of one size."""
    d = X.shape[1]
    points = _take(X, rows, origin)
    if size == 1:
        return 0.0, points, 0.0
    chunklets = points.reshape(-1, size, d)
    means = chunklets.sum(axis=1)
    means /= size
    chunklets -= means[:, None]
    return points.T @ points, means, _fourth_moments(chunklets)


def _fourth_moments(chunklets: np.ndarray) -> np.ndarray:
    """Return ``(v v' + 2 S^2) / (m + 1)``, summed over centred chunklets of one size m, shape (c, m, d)."""
    size = chunklets.shape[1]
    if size == 2:
        squares = 2.0 * np.square(chunklets[:, 0])
        return squares.T @ squares
    variances = np.square(chunklets).sum(axis=1)
    fourth = variances.T @ variances
    if size <= _FEW_POINTS:  # S^2 is a sum over pairs of points, and one product for each pair serves all chunklets
        for i in range(size):
            for j in range(i + 1):
                both = chunklets[:, i] * chunklets[:, j]
                fourth += (2.0 if i == j else 4.0) * (both.T @ both)
    else:
        for chunklet in chunklets:
            fourth += 2.0 * np.square(chunklet.T @ chunklet)
    return fourth / (size + 1)


def _one_large_chunklet(
    X: np.ndarray, origin: np.ndarray, rows: np.ndarray, most: int
) -> tuple[np.ndarray | float, np.ndarray, np.ndarray | float]:
    """Return the same for one chunklet of more rows than a block: each block about its own mean, then the means."""
    scatter = np.zeros((X.shape[1], X.shape[1]))
    block_means, block_sizes = [], []
    for first in range(0, len(rows), most):
        points = _take(X, rows[first : first + most], origin)
        mean = points.mean(axis=0)
        points -= mean
        scatter += points.T @ points
        block_means.append(mean)
        block_sizes.append(len(points))
    means, counts = np.array(block_means), np.array(block_sizes)[:, None]
    mean = (counts * means).sum(axis=0, keepdims=True) / len(rows)
    scatter += (counts * (means - mean)).T @ (means - mean)
    variances = np.diag(scatter)
    fourth = (np.outer(variances, variances) + 2.0 * np.square(scatter)) / (len(rows) + 1)
    return scatter, mean, fourth


def _take(X: np.ndarray, rows: np.ndarray, origin: np.ndarray) -> np.ndarray:
    points = np.empty((len(rows), X.shape[1]))
    if X.dtype == points.dtype:
        np.take(X, rows, axis=0, out=points, mode="clip")  # "raise" would go through a second buffer
    else:
        points[:] = X[rows]
    points -= origin
    return points


# -- scatter local to each point ---------------------------------------------------------------------------

# Below this ratio of squared singular values a Gram matrix loses the small ones: relative error eps / ratio.
GRAM_RATIO = 1e-4


def local_frames(
    X: np.ndarray,
    neighbors: np.ndarray,
    n_components: int,
    weight: np.ndarray | None = None,
    *,
    about: np.ndarray | None = None,
    memory: int = 128 * 2**20,
    threads: int = 1,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the leading directions and variances of each point's neighbourhood, by default centred on the point itself.

    Point i has the local scatter ``sum_j a_j (x_j - x_i)(x_j - x_i)'`` over its neighbours j, with ``a_j =
    1/k``, or the neighbours' weights divided by their sum.

    Parameters
    ----------
    X : array of shape (n, D)
    neighbors : integer array of shape (n, k)
        Row i lists the neighbours of point i.
    n_components : int
        d, at most min(k, D).
    weight : array of shape (n,) or (n, k), optional
        Importance of the rows as neighbours, or of the neighbours of each point.
    about : array of shape (n, D), optional
        The centre of each scatter; the default is the point itself.

    Returns
    -------
    frames : array of shape (d, n, D), of X's precision
        Orthonormal directions, the leading one first.
    variances : float64 array of shape (d, n)
        The eigenvalues; 0 where the neighbourhood has fewer directions, and the direction is then arbitrary.

    Notes
    -----
    This takes O(n k D min(k, D)) time and, beyond the result, `memory` bytes.
    """
    n, k = neighbors.shape
    D = X.shape[1]
    frames = np.empty((n_components, n, D), dtype=X.dtype)
    variances = np.empty((n_components, n))
    batch = int(np.clip(memory // (threads + 1) // (8 * 3 * k * (D + k)), 1, 1024))
    about = X if about is None else about

    def work(start: int) -> None:
        part = slice(start, min(start + batch, n))
        rows = neighbor_differences(X, np.arange(part.start, part.stop), neighbors[part], weight, about)
        directions, variances[:, part] = leading_directions(rows, n_components)
        frames[:, part] = directions

    with one_blas_thread():
        for _ in in_order(work, range(0, n, batch), threads):
            pass
    return frames, variances


def neighbor_differences(
    X: np.ndarray,
    points: np.ndarray,
    neighbors: np.ndarray,
    weight: np.ndarray | None = None,
    about: np.ndarray | None = None,
) -> np.ndarray:
    """Return rows ``sqrt(a_j) (x_j - c_i)`` for the neighbours j of some points i, shape (points, k, D).

    The centre c is x, or `about` if it is given.
    """
    rows = X[neighbors].astype(np.float64)
    rows -= (X if about is None else about)[points, None, :]
    if weight is None:
        return rows / np.sqrt(neighbors.shape[1])
    shares = weight[neighbors] if weight.ndim == 1 else weight[points]
    return rows * np.sqrt(shares / shares.sum(axis=1, keepdims=True))[:, :, None]


# Rows whose share of a soft neighbourhood is smaller than this are ignored.
_LEAST_SHARE = 1e-20


def soft_frames(
    X: np.ndarray,
    Z: np.ndarray,
    n_components: int,
    weight: np.ndarray | None = None,
    *,
    engine: Engine | str | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the leading directions and variances of each point's soft neighbourhood, centred on the point itself.

    This is `local_frames` with ``a_j`` proportional to ``weight_j exp(-|z_j - z_i|^2 / 2)`` over all rows but i.
    The weights are relative, so the neighbourhood of an isolated point consists of its nearest rows.

    Parameters
    ----------
    X : array of shape (n, D)
    Z : float64 array of shape (n, p)
        The rows in units of the Gaussian weight's standard deviation.
    engine : None, str or Engine

    Notes
    -----
    The weights take O(n^2 p) time and the frames O(n s D min(s, D)), with s rows of non-negligible weight each.
    """
    n, D = X.shape
    frames = np.empty((n_components, n, D), dtype=X.dtype)
    variances = np.empty((n_components, n))
    problem = prepare(engine, Z, log_weights=log_weights(weight), leave_one_out=True)

    def work(group: tuple[int, np.ndarray, np.ndarray]) -> None:
        i, near, shares = group
        rows = np.zeros((max(len(near), n_components), D))
        rows[: len(near)] = (X[near].astype(np.float64) - X[i]) * np.sqrt(shares)[:, None]
        directions, squares = leading_directions(rows[None], n_components)
        frames[:, i], variances[:, i] = directions[:, 0], squares[:, 0]

    with one_blas_thread():
        # Departure 3 (ManifoldParzen): Weights of the soft neighbourhood are relative to the largest.
        for query, point, shares in problem.at().neighbors_above(_LEAST_SHARE):
            edges = np.flatnonzero(np.diff(query, prepend=-1, append=n))
            groups = ((query[lo], point[lo:hi], shares[lo:hi]) for lo, hi in pairwise(edges))
            for _ in in_order(work, groups, available_threads(problem.engine.threads)):
                pass
    return frames, variances


def leading_directions(rows: np.ndarray, n_components: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the leading right singular vectors (d, b, D) and squared singular values (d, b) of matrices (b, k, D)."""
    b, k, D = rows.shape
    directions = np.empty((n_components, b, D))
    squares = np.empty((n_components, b))
    direct = np.arange(b)
    if 2 * k < D or k > 2 * D:
        # A small eigenproblem, k x k or D x D, instead of a k x D decomposition, if squaring loses no accuracy.
        flat = rows.transpose(0, 2, 1)
        values, vectors = np.linalg.eigh(rows @ flat if k < D else flat @ rows)
        values, vectors = values[:, : -n_components - 1 : -1], vectors[:, :, : -n_components - 1 : -1]
        good = values[:, -1] > GRAM_RATIO * values[:, 0]
        squares[:, good] = values[good].T
        leading = vectors[good].transpose(0, 2, 1)
        if k < D:
            leading = (leading / np.sqrt(values[good])[:, :, None]) @ rows[good]
        directions[:, good] = leading.transpose(1, 0, 2)
        direct = np.flatnonzero(~good)
    if len(direct):
        _, singular, right = np.linalg.svd(rows[direct], full_matrices=False)
        squares[:, direct] = singular[:, :n_components].T ** 2
        directions[:, direct] = right[:, :n_components].transpose(1, 0, 2)
    return directions, squares
