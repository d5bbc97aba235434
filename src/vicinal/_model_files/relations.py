"""Relations between the values of a state, as functions of arrays, for `_model_files/states`.

They allow for rounding, because a file may have been written on another machine. Matrices are compared some rows at a
time, so that a check needs little memory beyond the file.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from vicinal._tables import KINDS, PARTS


def sums_to_one(weights: np.ndarray) -> bool:
    """Return whether the weights sum to one."""
    return bool(abs(weights.sum(dtype=np.float64) - 1.0) <= 1e-4)


def has_widths(spreads: np.ndarray | None) -> bool:
    """Return whether all widths of (median, width) pairs are greater than 0; None is accepted."""
    return spreads is None or bool((spreads[:, 1] > 0).all())


def are_of_constants(variances: Iterable[np.ndarray], densities: Iterable[Any]) -> bool:
    """Return whether only columns that are constant in the density of their class have variances."""
    known = [getattr(density, "_constants", None) for density in densities]
    return all(
        not (variance != 0).any() or (constants is not None and not np.isnan(constants[variance != 0]).any())
        for variance, constants in zip(variances, known, strict=True)
    )


def has_rows(array: np.ndarray) -> bool:
    """Return whether a table has a row and a column."""
    return array.shape[0] > 0 and array.shape[1] > 0


def is_increasing(values: np.ndarray) -> bool:
    """Return whether no value is below the one before."""
    return bool(np.all(values[:-1] <= values[1:]))


def is_symmetric(matrix: np.ndarray) -> bool:
    """Return whether a matrix can be that of sums of squares, as far as its diagonal and its symmetry show."""
    diagonal = np.diag(matrix)
    if np.any(diagonal < 0):
        return False
    scale = np.sqrt(diagonal)
    return _is_close(matrix, lambda rows: matrix.T[rows], 1e-8, scale, least=np.finfo(np.float64).tiny)


def _is_close(matrix: Any, expected: Callable[[slice], Any], share: float, scale: Any, *, least: float = 0.0) -> bool:
    """Return whether a square matrix is the expected one, up to a share of scale_i scale_j.

    `expected` gives some of its rows.
    """
    size = max(1, 2**17 // max(1, len(matrix)))
    # Not sklearn.utils.gen_batches: its checks of two integers take longer than those of a small matrix.
    for rows in (slice(start, start + size) for start in range(0, len(matrix), size)):
        if not np.all(np.abs(matrix[rows] - expected(rows)) <= share * np.multiply.outer(scale[rows], scale) + least):
            return False
    return True


def is_positive_definite(covariances: np.ndarray, kind: str = "full") -> bool:
    """Return whether covariances, or variances if the kind is "diag" or "spherical", are positive definite."""
    if kind in ("diag", "spherical"):
        return bool(np.all(covariances > 0))
    return bool(np.isfinite(np.linalg.cholesky(covariances)).all())


def is_cholesky(lower: np.ndarray, covariance: np.ndarray) -> bool:
    """Return whether a lower triangle is the Cholesky factor of a matrix."""
    scale = np.sqrt(np.diag(covariance))
    triangular = not any(lower[i, i + 1 :].any() for i in range(len(lower))) and bool(np.all(np.diag(lower) > 0))
    return triangular and _is_close(covariance, lambda rows: lower[rows] @ lower.T, 1e-6, scale)


def is_of_active(mixture: Any, constants: np.ndarray | None, n_features: int) -> bool:
    """Return whether a mixture, if it was kept, has the columns whose values are not constant, at least one."""
    n_active = n_features if constants is None else int(np.isnan(constants).sum())
    return n_active > 0 and (not hasattr(mixture, "centres") or mixture.centres.shape[1] == n_active)


def is_gram(precision: np.ndarray, constants: np.ndarray | None, *components: np.ndarray) -> bool:
    """Return whether a matrix is A'A for the stacked rows A of the components, in the columns that vary; others are zero."""
    rows = np.concatenate(components)
    if constants is not None:
        if np.any(rows[:, ~np.isnan(constants)]):
            return False
        rows = rows[:, np.isnan(constants)]
    if precision.shape != 2 * rows.shape[1:]:
        return False
    size = np.linalg.norm(rows, axis=0)
    return bool(np.isfinite(size).all()) and _is_close(precision, lambda some: rows.T[some] @ rows, 1e-6, size)


def are_directions(frames: np.ndarray) -> bool:
    """Return whether vectors are of length one, or zero."""
    return bool(np.all(np.einsum("qnd,qnd->qn", frames, frames, dtype=np.float64) <= 1.001))


def fits_type(covariances: np.ndarray, covariance_type: str, means: np.ndarray) -> bool:
    """Return whether covariances have the shape that a Gaussian mixture of this type has."""
    c, d = means.shape
    return covariances.shape == {"full": (c, d, d), "tied": (d, d), "diag": (c, d), "spherical": (c,)}[covariance_type]


def is_of_mixture(covariance: np.ndarray, mixture: Any) -> bool:
    """Return whether a covariance is that of the mixture, if the mixture was kept."""
    return not hasattr(mixture, "covariance") or np.array_equal(covariance, mixture.covariance)


def has_neighbors(mixture: Any, neighbors: np.ndarray | None, soft_rows: np.ndarray | None, k: int) -> bool:
    """Return whether frames came from nearest neighbours or from a soft neighbourhood, and plain windows from neither."""
    if not hasattr(mixture, "frames"):
        return neighbors is None and soft_rows is None
    if neighbors is None:
        return soft_rows is not None and has_rows(soft_rows)
    return soft_rows is None and k <= neighbors.shape[1] <= k + 1


def is_local_mixture(
    mixture: Any, rows: np.ndarray, neighbors: np.ndarray | None, base: np.ndarray | None, *values: Any
) -> bool:
    """Return whether the mixture of Local LCA has all that its kernels were made from."""
    d, k, noise, shared, _ = values
    if (shared > 0 and base is None) or not noise + shared > 0:
        return False
    if not hasattr(mixture, "frames"):
        return d == 0 and neighbors is None
    if neighbors is None or not d <= k < len(rows) or len(mixture.frames) != d:
        return False
    return neighbors.shape[1] == k


def has_positive_diagonals(factors: np.ndarray, covariance_type: str) -> bool:
    """Return whether Cholesky factors of a Gaussian mixture of this type have positive diagonals, which logarithms require."""
    if covariance_type in ("full", "tied"):
        factors = np.diagonal(factors, axis1=-2, axis2=-1)
    return bool(np.all(factors > 0))


def are_kinds(kinds: np.ndarray) -> bool:
    """Return whether strings are kinds of columns."""
    return set(kinds.tolist()) <= set(KINDS)


def are_same_names(columns: np.ndarray, names: np.ndarray) -> bool:
    """Return whether columns have these names, as strings."""
    return [str(name) for name in columns] == [str(name) for name in names]


def have_steps(lattices: np.ndarray, kinds: np.ndarray) -> bool:
    """Return whether each lattice among some columns has a step that is a number greater than 0."""
    steps = lattices[kinds == "lattice", 0]
    return bool(np.all(np.isfinite(steps) & (steps > 0)))


def are_parts(parts: Iterable[str]) -> bool:
    """Return whether strings are names of outputs of a column."""
    return all(part.startswith("=") or part in PARTS for part in parts)
