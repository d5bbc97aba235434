"""The counts of `quality.neighbor_purity`: neighbours of the same class by rank, with ties shared."""

import numpy as np

from vicinal._engine import TIED, prepare


def right_neighbors_by_place(X: np.ndarray, y: np.ndarray, k: int) -> np.ndarray:
    """Return, for places 0..k-1, the expected number of rows whose neighbour at that place is of their class.

    ``y`` holds integer codes.  Neighbours at equal distance share their
    places, as if their order were drawn at random.
    """
    # Scaling by a power of two is exact and changes no neighbour; squares then neither overflow nor vanish.
    X = np.ldexp(X, -int(np.frexp(np.abs(X).max())[1]))
    right = np.zeros(k)
    # Neighbours are found by the same search on every CPU backend; "reference" is the one that loads no compiler.
    placed = prepare("reference", X, leave_one_out=True).at()
    for row, neighbor, squares in placed.nearest_with_ties(k):
        twins = squares == 0.0
        if (X[row[twins]] != X[neighbor[twins]]).any():
            raise ValueError(
                "some rows of X differ by so much less than others that the squares of their differences underflow in "
                "float64. Clip the outlying values, or rescale the columns."
            )
        right += _right_by_place(row, neighbor, squares, y, k)
    return right


def _right_by_place(row: np.ndarray, neighbor: np.ndarray, squares: np.ndarray, y: np.ndarray, k: int) -> np.ndarray:
    """Sum over rows of the chance that place 0..k-1 holds a neighbour of the row's class; ties share places.

    ``row, neighbor, squares`` list neighbours, those of a row together, nearest first; every row has at least k, and
    all that tie with its k-th.
    """
    if not len(row):
        return np.zeros(k)
    new_row = np.r_[True, row[1:] != row[:-1]]
    new_group = new_row.copy()
    new_group[1:] |= squares[1:] - squares[:-1] > TIED * squares[1:]
    group = np.cumsum(new_group) - 1
    correct = np.bincount(group, weights=y[row] == y[neighbor]) / np.bincount(group)
    start = np.flatnonzero(new_row)
    place = np.arange(len(row)) - np.repeat(start, np.diff(np.r_[start, len(row)]))
    near = place < k
    return np.bincount(place[near], weights=correct[group[near]], minlength=k)
