"""Pairs of rows, as row positions."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def check_pairs(pairs: ArrayLike, n_samples: int, name: str) -> np.ndarray:
    """Return an int array (p, 2) of row positions."""
    try:
        pairs = np.asarray(pairs)
    except ValueError as error:
        raise ValueError(
            f"{name} must have shape (p, 2), got rows of different lengths. Pass one pair of row positions per row, "
            "or groups to chunklets_from_groups."
        ) from error
    if pairs.size == 0:
        pairs = np.empty((0, 2), dtype=np.int64)
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise ValueError(f"{name} must have shape (p, 2), got {pairs.shape}. Pass one pair of row positions per row.")
    return check_positions(pairs, n_samples, name)


def check_positions(positions: np.ndarray, n_samples: int, name: str) -> np.ndarray:
    """Return row positions as integers, or raise an error if some are out of range."""
    if positions.size == 0:
        return positions.astype(np.int64)
    if positions.dtype == object and all(
        type(value) is int or isinstance(value, np.integer) for value in positions.flat
    ):
        positions = positions.astype(np.int64)  # nullable integers of pandas
    if positions.dtype.kind not in "iu":
        raise ValueError(
            f"{name} must hold row positions (integers), got {positions.dtype}. Positions count from 0; look "
            "up index labels first, for example with DataFrame.index.get_indexer."
        )
    outside = int(((positions < 0) | (positions >= n_samples)).sum())
    if outside:
        raise ValueError(
            f"{name} must hold row positions 0 to {n_samples - 1}, got {outside} out of range "
            f"({positions.min()} to {positions.max()}). Positions count from 0 and are not DataFrame index "
            "labels."
        )
    return positions.astype(np.int64, copy=False)
