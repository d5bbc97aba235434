"""Checks that detect data without a solution of LCA before the engine runs, with messages that name the remedy."""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import qr

from vicinal._callers import callers_line
from vicinal._checks import is_positive_definite, shown_columns
from vicinal._lca.steps import COLLAPSE
from vicinal._leave_one_out import mean_of_rows, scatter_of_rows
from vicinal._rows import check_columns_spread, count_twins

_MERGE = "merge twins into weights: X, w = np.unique(X, axis=0, return_counts=True), then fit(X, sample_weight=w)"

# If fewer than this share of the rows are twins, they hardly affect the kernel's width, so there is no warning.
_FEW_TWINS = 0.05


# The smallest variance of a column of ordinary numbers by which their squares can be divided.
_LEAST_VARIANCE = 1e-305


class Remedies(NamedTuple):
    """The remedies that messages recommend, which depend on the method."""

    method: str = "LCA"
    reg_name: str = "reg"
    simpler: str = "use covariance_type='diag', or 'low_rank' with rank=, "  # instead of a full covariance
    merge: str = _MERGE

    @property
    def remedy(self) -> str:
        """The remedy to try first."""
        return f"Pass {self.reg_name} > 0 (a variance, in squared units of the data) or 'auto'"


LCA_REMEDIES = Remedies()


def check_scale(X: np.ndarray, covariance: str, names: Sequence[str] | np.ndarray | None = None) -> None:
    """Raise an error for columns whose variances, or (in float32) inverse scales, cannot be represented.

    Parameters
    ----------
    X : array of shape (n, d)
        Rows of positive weight, without constant columns.
    covariance : str
        The structure of the kernel's covariance, as given to LCA.
    names : array of shape (d,), optional
        Column names for the messages.
    """
    least = 1e-150 if X.dtype == np.float64 else 1e-35
    check_columns_spread(X, names, least=least, some=covariance in ("full", "diag"))


def check_answerable(
    X: np.ndarray,
    covariance: str,
    rank: int | None = None,
    *,
    names: Sequence[str] | np.ndarray | None = None,
    remedies: Remedies = LCA_REMEDIES,
) -> None:
    """Raise an error if the rows span too few dimensions for a covariance of this structure without a penalty.

    Parameters
    ----------
    X : array of shape (n, d)
        Rows of positive weight, without constant columns.
    covariance, rank
        The structure of the kernel's covariance, as given to LCA.
    names : array of shape (d,), optional
        Column names for the messages.
    remedies : Remedies
    """
    n, d = X.shape
    if covariance not in ("full", "low_rank"):
        return
    if covariance == "full" and n <= d:
        raise ValueError(
            f"a full covariance of {d} features needs more than {d} rows, got {n}: the likelihood is "
            f"unbounded. {remedies.remedy}, {remedies.simpler}or reduce the dimension with sklearn.decomposition.PCA."
        )
    needed = d if covariance == "full" or rank is None else rank + 1
    rank, dependent = _rank(X, covariance)
    if rank < needed:
        raise ValueError(
            f"the rows span only {rank} dimensions of {d} and a {covariance.replace('_', '-')} covariance needs "
            f"{needed}: columns depend linearly on each other ({shown_columns(dependent, names)} on the others), or rows "
            "lie so far apart that the differences of the others are lost in rounding, and the likelihood is unbounded. "
            f"{remedies.remedy}, drop these columns (or the far rows), or keep {rank} components of "
            "sklearn.decomposition.PCA."
        )


def is_answerable(X: np.ndarray, covariance: str, rank: int | None = None) -> bool:
    """Return whether the rows span enough dimensions for a covariance of this structure without a penalty."""
    try:
        check_answerable(X, covariance, rank)
    except ValueError:
        return False
    return True


def check_variances(covariance: np.ndarray, names: np.ndarray | None = None) -> None:
    """Raise an error for columns without a variance that can be inverted, because one row has all the weight.

    Columns that vary too little by themselves were found before, by `check_scale`.
    """
    variances = np.diag(covariance)
    lost = variances < _LEAST_VARIANCE
    if lost.any():
        raise ValueError(
            f"{lost.sum()} of {len(lost)} columns ({shown_columns(lost, names)}) have a variance of at most {variances[lost].max():.3g} "
            "under sample_weight, because one row has nearly all of the weight; expected at least "
            f"{_LEAST_VARIANCE:g}. Pass weights that differ by fewer orders of magnitude, or pass reg as a number."
        )


def check_representable(covariance: np.ndarray, reg_name: str, passed: Any) -> None:
    """Raise an error for a penalty that is lost in the rounding of the covariance that it should make regular.

    Parameters
    ----------
    covariance : array of shape (d, d)
        The covariance with the penalty.
    reg_name : str
        The parameter.
    passed : object
        The value that the user passed for it.
    """
    if not is_positive_definite(covariance):
        largest = np.diag(covariance).max()
        raise ValueError(
            f"{reg_name}{'' if np.ndim(passed) else f'={passed}'} is too small compared with the variance of the data ({largest:.3g}): with it the "
            f"covariance is still singular in float64. Pass {reg_name} of at least {COLLAPSE * largest:.1g}, "
            "drop columns that depend on each other or far rows, or reduce the dimension with "
            "sklearn.decomposition.PCA."
        )


def _rank(X: np.ndarray, covariance: str) -> tuple[int, np.ndarray]:
    """Return the number of dimensions that the rows span, and which columns depend linearly on columns before them."""
    second_moments = scatter_of_rows(X)
    variances = np.diag(second_moments)
    # Full covariances do not depend on the units of the columns, so neither does the check.
    scale = np.sqrt(variances if covariance == "full" else np.full(X.shape[1], variances.mean()))
    correlations = second_moments / scale / scale[:, None]
    values = np.linalg.eigvalsh(correlations)
    # Rounding of the data themselves: eps relative, squared because these are variances, with room for n
    # and d.
    floor = values[-1] * max(X.shape) * np.finfo(X.dtype).eps ** 2 * 100
    floor = max(floor, values[-1] * X.shape[1] * np.finfo(np.float64).eps)
    rank = int((values > floor).sum())
    dependent = np.zeros(X.shape[1], dtype=bool)
    if rank < X.shape[1]:
        # The remainder of each column after projecting out the columns before it, by modified Gram-Schmidt.
        left = np.abs(np.diag(qr((X - mean_of_rows(X)) / scale, mode="r")[0]))
        dependent[: len(left)] = left**2 / len(X) <= 10 * floor
        dependent[len(left) :] = True
    return rank, dependent


def check_twins(X: np.ndarray, remedies: Remedies = LCA_REMEDIES) -> None:
    """Raise an error if all rows have twins (the likelihood is unbounded without a penalty); warn about many twins."""
    n = len(X)
    twins = count_twins(X)
    if twins == n:
        raise ValueError(
            f"every one of the {n} rows has an exact twin: the leave-one-out likelihood is unbounded, because each "
            f"row lies exactly on its twin, so that a narrower kernel is always better. {remedies.remedy}, or {remedies.merge}."
        )
    if twins > _FEW_TWINS * n:
        warnings.warn(
            f"{twins} of {n} rows have an exact twin, which is at distance zero when the row is left out: the learned kernel "
            f"is too narrow. {remedies.remedy}, or {remedies.merge}.",
            UserWarning,
            stacklevel=callers_line(),
        )


def collapse_message(
    X: np.ndarray, weight: np.ndarray | None, covariance: str, remedies: Remedies = LCA_REMEDIES, *, gaps: bool = False
) -> str:
    """Return the message for a covariance that becomes singular during the fit, perhaps to rows with missing values."""
    if gaps:
        return (
            f"{remedies.method}: with missing values the kernel's covariance collapses: its variance in some direction goes to zero "
            "and the leave-one-out likelihood to infinity. Pass a larger reg (a variance, in squared units of the data), drop "
            "columns that depend on each other, or leave out rows with missing values."
        )
    counted = X if weight is None else X[weight > 0]
    n, d = counted.shape
    twins = count_twins(counted)
    if twins:
        clue = f"{twins} of the {n} rows have an exact twin: {remedies.merge}."
    elif covariance == "full" and n < 2 * d:
        clue = f"With fewer than two rows per feature ({n} < 2 x {d}) a full covariance has no maximum."
    else:
        clue = (
            "Either some combinations of columns take the same value in many rows (rounded, integer or dependent "
            "columns), so that rows differ from their neighbours only in a subspace; or some rows lie a million times "
            "further from each other than from their neighbours. In the latter case, fit each group separately, or drop far rows."
        )
    return (
        f"{remedies.method}: the kernel's covariance collapses: its variance in some direction goes to zero and the "
        f"leave-one-out likelihood to infinity. {clue} Pass a larger {remedies.reg_name} (a variance, in squared units "
        f"of the data), or reg='auto', {remedies.simpler if covariance == 'full' else ''}or drop such columns."
    )
