"""Columns that are linear combinations of others."""

import numpy as np

# Columns are compared on an evenly spaced sample of rows; dependences found there are verified on all rows.
_FEWEST_ROWS, _ROWS_PER_COLUMN = 2_000, 4
# Wider tables are not checked, because it would take longer than a fit.
_MOST_COLUMNS = 500
# The largest remainder of a column, as a share of its spread, that counts as rounding of a combination of others.
_NOTHING = 1e-6


def dependent_columns(X: np.ndarray) -> list[int]:
    """Return positions of columns that are linear combinations of those before them, exactly except for rounding.

    Rows with missing values are ignored. The result is empty if there are no more complete rows than columns, because then
    columns are always dependent, and for tables of more than 500 columns.

    Parameters
    ----------
    X : array of shape (n, d)
    """
    rows = np.asarray(X, dtype=np.float64)
    rows = rows[~np.isnan(rows).any(axis=1)]
    n, d = rows.shape
    if n <= d + 1 or not 1 < d <= _MOST_COLUMNS:
        return []
    spread = rows.std(axis=0)
    rows = (rows - rows.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    sample = rows[np.linspace(0, n - 1, min(n, max(_FEWEST_ROWS, _ROWS_PER_COLUMN * d))).astype(int)]
    directions = np.empty((len(sample), 0))
    kept: list[int] = []
    dependent: list[int] = []
    for j in range(d):
        rest = sample[:, j]
        for _ in range(2):  # twice, because rounding leaves a part of the projection
            rest = rest - directions @ (directions.T @ rest)
        size = np.linalg.norm(rest)
        if size <= _NOTHING * np.linalg.norm(sample[:, j]) and _follows(rows, kept, j, sample):
            dependent.append(j)
        elif size > 0:
            directions = np.column_stack([directions, rest / size])
            kept.append(j)
    return dependent


def _follows(rows: np.ndarray, others: list[int], j: int, sample: np.ndarray) -> bool:
    """Return whether a column is the same combination of others in all rows as in the sample."""
    if not others:
        return False
    weights = np.linalg.lstsq(sample[:, others], sample[:, j], rcond=None)[0]
    away = rows[:, j] - rows[:, others] @ weights
    return float(np.abs(away).max()) <= 10.0 * _NOTHING * float(np.abs(rows[:, j]).max())
