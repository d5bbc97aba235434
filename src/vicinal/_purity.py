"""Right neighbours by rank, exact on any scale and offset, with ties shared: the counting behind neighbor_purity."""

from collections.abc import Iterator

import numpy as np
from sklearn.neighbors import NearestNeighbors
from sklearn.utils import gen_batches

_MEMORY = 128 * 2**20  # bytes of work space beyond the data
_TREE_FEATURES = 15  # a k-d tree prunes well up to about this many columns
_TIE = 1e-12  # squared distances that agree to this relative difference are tied


def right_neighbors_by_place(X, y, k):
    """Return, for places 0..k-1, the expected number of rows whose neighbour at that place is of their class.

    ``y`` holds integer codes.  Neighbours at equal distance share their
    places, as if their order were drawn at random.  A k-d tree settles rows in
    low dimension; what it leaves open, and high dimension, goes by blocks.
    """
    n, d = X.shape
    # Scaling by a power of two is exact and changes no neighbour; squares then neither overflow nor vanish.
    X = np.ldexp(X, -int(np.frexp(np.abs(X).max())[1]))
    right, rows = _count_by_tree(X, y, k) if d <= _TREE_FEATURES else (np.zeros(k), np.arange(n))
    return right + _count_by_blocks(X, y, k, rows) if len(rows) else right


def _count_by_tree(X, y, k):
    """Count right neighbours by a k-d tree; also return the rows it leaves open (a tie runs past place k)."""
    n = len(X)
    reach = min(k + 2, n)  # the row itself, k neighbours, and one more to see a tie at place k
    tree = NearestNeighbors(n_neighbors=reach, algorithm="kd_tree").fit(X)
    right, unsettled = np.zeros(k), []
    for batch in gen_batches(n, max(1, _MEMORY // (64 * reach))):
        rows = np.arange(n)[batch]
        distance, neighbor = tree.kneighbors(X[batch])
        is_self = neighbor == rows[:, None]
        squared = np.where(is_self, -1.0, distance**2)  # sorts first, and is cut off
        order = np.argsort(squared, axis=1, kind="stable")[:, 1:]
        squared = np.take_along_axis(squared, order, axis=1)
        neighbor = np.take_along_axis(neighbor, order, axis=1)
        # With more twins than reach, the row itself may not be found at all.
        settled = is_self.any(axis=1)
        if reach < n:
            settled &= ~_tied(squared[:, k - 1], squared[:, k])
        unsettled.append(rows[~settled])
        members = np.repeat(rows[settled], reach - 1)
        right += _right_by_place(members, neighbor[settled].ravel(), squared[settled].ravel(), y, k)
    return right, np.concatenate(unsettled)


def _count_by_blocks(X, y, k, rows):
    """Count right neighbours of the given rows exactly, by screened brute force.

    With G the squared distances by matrix products, |G - exact| <= err, every
    one of the first k neighbours (and every tie) has G <= (G_(k) + err)(1 + tie) + err,
    where G_(k) is the k-th smallest G: k rows are within G_(k) + err of the truth.
    """
    n, d = X.shape
    Z = X - X.mean(axis=0)
    squares = np.einsum("ij,ij->i", Z, Z)
    # Rounding of the products, of the norms and of the centring, generously.
    error = 4 * (d + 8) * np.finfo(np.float64).eps * (squares + squares.max())
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
