"""The counting behind `quality.neighbor_purity`: right neighbours by place, exact, with ties shared.

scikit-learn's neighbour searches propose candidates, differences measure
them, and an error bound decides whether a row is settled.  Rows that are not
(ties past the last place; distances lost in the rounding of matrix products)
go through a slower search that admits every candidate the bound allows.
"""

from collections.abc import Iterator

import numpy as np
from sklearn.neighbors import NearestNeighbors
from sklearn.utils import gen_batches

_MEMORY = 128 * 2**20  # bytes of work space beyond the data
_TREE_FEATURES = 10  # a k-d tree prunes real data well up to about here; beyond, matrix products win
_SLACK = 8  # candidates beyond k: the row itself, and room for a tie at place k
_TIE = 1e-12  # squared distances that agree to this relative difference are tied


def right_neighbors_by_place(X, y, k):
    """Return, for places 0..k-1, the expected number of rows whose neighbour at that place is of their class.

    ``y`` holds integer codes.  Neighbours at equal distance share their
    places, as if their order were drawn at random.
    """
    # Scaling by a power of two is exact and changes no neighbour; squares then neither overflow nor vanish.
    X = np.ldexp(X, -int(np.frexp(np.abs(X).max())[1]))
    Z = X - X.mean(axis=0)
    squares = np.einsum("ij,ij->i", Z, Z)
    # Error of |z_i|^2 + |z_j|^2 - 2 z_i z_j: products, norms and the centring, generously.
    error = 4 * (X.shape[1] + 8) * np.finfo(np.float64).eps * (squares + squares.max())
    right, rows = _count_by_search(X, Z, error, y, k)
    return right + _count_by_blocks(X, Z, squares, error, y, k, rows) if len(rows) else right


def _count_by_search(X, Z, error, y, k):
    """Count right neighbours with scikit-learn's search; also return the rows that it leaves open.

    Every row that is not a candidate of i is at least ``last - error`` away,
    in squares: the candidates' k-th distance must be clearly below that.
    """
    n, d = X.shape
    reach = min(k + _SLACK, n)
    if d <= _TREE_FEATURES:  # works with differences: no error
        data, error, algorithm = X, np.zeros(n), "kd_tree"
    else:
        data, algorithm = Z, "brute"
    search = NearestNeighbors(n_neighbors=reach, algorithm=algorithm, n_jobs=-1).fit(data)
    right, left_open = np.zeros(k), []
    for batch in gen_batches(n, max(1, _MEMORY // (64 * reach))):
        rows = np.arange(n)[batch]
        distance, candidate = search.kneighbors(data[batch])
        last = distance[:, -1] ** 2
        row = np.repeat(rows[:, None], reach, axis=1)
        squared = _squared_distances(X, row.ravel(), candidate.ravel()).reshape(row.shape)
        is_self = candidate == rows[:, None]
        squared[is_self] = np.inf
        kth = np.partition(squared, k - 1, axis=1)[:, k - 1]
        settled = (reach == n) | (kth * (1 + 2 * _TIE) < last - error[batch])
        left_open.append(rows[~settled])
        kept = settled[:, None] & ~is_self
        right += _right_by_place(row[kept], candidate[kept], squared[kept], y, k)
    return right, np.concatenate(left_open)


def _count_by_blocks(X, Z, squares, error, y, k, rows):
    """Count right neighbours of the given rows exactly, by screened brute force.

    With G the squared distances by matrix products, |G - exact| <= err, every
    one of the first k neighbours (and every tie) has G <= (G_(k) + err)(1 + tie) + err,
    where G_(k) is the k-th smallest G: k rows are within G_(k) + err of the truth.
    """
    n = len(X)
    right = np.zeros(k)
    for batch in gen_batches(len(rows), max(1, _MEMORY // (24 * n))):
        block = rows[batch]
        G = Z[block] @ Z.T
        G *= -2
        G += squares
        G += squares[block, None]
        G[np.arange(len(block)), block] = np.inf  # self-exclusion, by index
        kth = np.partition(G, k - 1, axis=1)[:, k - 1]
        screened = ((kth + error[block]) * (1 + 2 * _TIE) + error[block])[:, None] >= G
        for part in _batches_by_count(screened.sum(axis=1), _MEMORY // 256):
            row, neighbor = np.nonzero(screened[part])
            row = block[part][row]
            right += _right_by_place(row, neighbor, _squared_distances(X, row, neighbor), y, k)
    return right


def _right_by_place(row, neighbor, squared, y, k):
    """Sum over rows of the chance that place 0..k-1 holds a neighbour of the row's class; ties share places.

    ``row, neighbor, squared`` list candidate pairs, those of a row together;
    every row has at least k, and all that tie with its k-th.
    """
    if not len(row):
        return np.zeros(k)
    order = np.lexsort((squared, row))
    row, neighbor, squared = row[order], neighbor[order], squared[order]
    new_row = np.r_[True, row[1:] != row[:-1]]
    new_group = new_row.copy()
    new_group[1:] |= ~_tied(squared[:-1], squared[1:])
    group = np.cumsum(new_group) - 1
    correct = np.bincount(group, weights=y[row] == y[neighbor]) / np.bincount(group)
    start = np.flatnonzero(new_row)
    place = np.arange(len(row)) - np.repeat(start, np.diff(np.r_[start, len(row)]))
    near = place < k
    return np.bincount(place[near], weights=correct[group[near]], minlength=k)


def _tied(smaller, larger):
    return larger - smaller <= _TIE * larger


def _squared_distances(X, row, neighbor):
    """Squared distances of listed pairs, from differences: no cancellation."""
    squared = np.empty(len(row))
    for part in gen_batches(len(row), max(1, _MEMORY // (32 * X.shape[1]))):
        difference = X[row[part]] - X[neighbor[part]]
        squared[part] = np.einsum("ij,ij->i", difference, difference)
        if np.any(difference[squared[part] == 0.0]):
            raise ValueError(
                "X holds rows that differ by so much less than others that the squares of their differences are lost in "
                "float64. Clip the outlying values, or rescale the columns."
            )
    return squared


def _batches_by_count(counts, limit) -> Iterator[slice]:
    """Cut consecutive rows into slices whose counts sum to at most ``limit`` (one row at least)."""
    start, total = 0, 0
    for stop, count in enumerate(counts):
        if total + count > limit and stop > start:
            yield slice(start, stop)
            start, total = stop, 0
        total += count
    yield slice(start, len(counts))
