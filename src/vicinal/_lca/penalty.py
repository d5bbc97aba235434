r"""The penalty of LCA and LCA-Gauss: its validation, and the families of penalties that ``reg="auto"`` tries.

They are made from the training rows, in units of the columns: :math:`\nu \operatorname{diag}(C)`, :math:`\nu \hat C` and
:math:`\nu C`, where C is the covariance of the training rows and :math:`\hat C` its shrunk estimate. (Shrinkage helps if
rows are few. If columns are nearly collinear and rows are not so few, it makes the kernel too wide along the narrow
directions: on wdbc it costs a nat per row.) `penalty_search.py` chooses among them. The variances of rounding are added to each
(`rounding_variances`), so that no kernel is narrower than the resolution of the values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.covariance import ledoit_wolf_shrinkage

from vicinal._checks import (
    check_positive,
    correlation_eigenvalues,
    is_positive_definite,
    shown_columns,
    vector_or_matrix,
)
from vicinal._lca.steps import Penalty, Structure
from vicinal._leave_one_out import mean_of_rows, scatter_of_rows
from vicinal._records import Record
from vicinal._rows import count_twins

FAMILIES = ("diagonal", "sample", "shrunk")
# Down to a thousandth (1 percent, along directions that are shrunk as well) of the columns' standard deviations.
SMALLEST = {"diagonal": 1e-6, "shrunk": 1e-4, "sample": 1e-4}
# The smallest share of the mean variance in a shrunk covariance, which keeps dependent columns regular.
_LEAST_SHRINKAGE = 1e-6
# Columns in which fewer rows repeat a value are measurements.
_FEW_REPEATS = 0.05
# With at least this many rows per free parameter of the covariance, and this many rows in total, a penalty gains nothing;
# benchmarks/defaults.py measures it. Skewed columns need the second number, because one row in a hundred can shape the kernel.
PLENTY, _PLENTY_IN_ALL = 25, 2000


# The penalty of reg="auto", as a share of the covariance of the data. It is not searched, because scores of held-out rows with
# different gaps cannot be compared.
AUTO_SHARE = 0.1


@dataclass(frozen=True, eq=False)
class Shrinkage(Record):
    r"""A penalty of :class:`vicinal.LCA` that draws the kernel's covariance towards a target.

    The penalty per row is :math:`\frac w2 [\operatorname{tr}(\Sigma^{-1} T) + \log \det \Sigma]` (an inverse Wishart prior), and
    EM's M-step is :math:`(S/n + w T) / (1 + w)` with the local covariance S/n. A penalty matrix R can only make the kernel
    wider; this one also makes it narrower where the target is narrower. With a large weight the kernel is the target.
    ``LCA(reg=Shrinkage(target, weight))`` uses it, and ``reg="auto"`` tries it.

    Parameters
    ----------
    target : float or array
        The covariance T, in squared units of the data: a number (that variance for all features), a vector of variances, or a
        matrix. It must be positive definite along the columns that vary; constant columns are kept if the target is greater
        than 0 along them.
    weight : float
        The weight w of the target, greater than 0 and at most 1e150. With 1, the target counts as much as the data.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import LCA, Shrinkage
    >>> X = np.random.default_rng(0).normal(size=(40, 3))
    >>> for weight in (0.1, 1.0, 1000.0):
    ...     lca = LCA(reg=Shrinkage(0.2, weight)).fit(X)
    ...     print(weight, np.diag(lca.covariance_).round(2))
    0.1 [0.37 0.25 0.34]
    1.0 [0.24 0.22 0.26]
    1000.0 [0.2 0.2 0.2]
    """

    target: ArrayLike
    weight: float

    def __post_init__(self) -> None:
        if check_positive(self.weight, "weight") > 1e150:
            raise ValueError(f"weight must be at most 1e150, got {self.weight:g}: the penalty would overflow.")


def check_reg(reg: Any, n_features: int, name: str = "reg") -> Penalty | None:
    """Return the penalty that a number, a vector of variances, a matrix or a `Shrinkage` stands for; None for "auto".

    Parameters
    ----------
    reg : float, array, Shrinkage or "auto"
    n_features : int
    name : str
        For the messages.
    """
    if isinstance(reg, Shrinkage):
        return Penalty(check_matrix(reg.target, n_features, f"{name}.target"), float(reg.weight))
    if isinstance(reg, str) and reg == "auto":
        return None
    forms = "'auto', a number, a vector of variances, a matrix or a vicinal.Shrinkage"
    return Penalty(check_matrix(reg, n_features, name, forms))


def check_matrix(
    given: Any, n_features: int, name: str, forms: str = "a number, a vector of variances or a matrix"
) -> np.ndarray:
    """Return the matrix that a number, a vector of variances or a matrix stands for."""
    if isinstance(given, Record):
        raise ValueError(f"{name} must be {forms}, got {given!r}.")
    values = vector_or_matrix(given, n_features, name, forms)
    if values.ndim == 2:
        return values
    if values.min() < 0:
        raise ValueError(f"{name} as a vector holds variances, which must not be negative; got {values.min():g}.")
    return np.diag(values)


def as_parameter(penalty: Penalty, in_all_columns: Callable[[np.ndarray], np.ndarray] | None = None) -> Any:
    """Return the value of ``reg`` that stands for a penalty: a matrix or a `Shrinkage`, of all columns."""
    matrix = penalty.matrix if in_all_columns is None else in_all_columns(in_all_columns(penalty.matrix).T)
    return matrix if penalty.weight is None else Shrinkage(matrix, penalty.weight)


def check_penalty(penalty: Penalty, active: np.ndarray, names: np.ndarray | None = None, name: str = "reg") -> Penalty:
    """Return a penalty on the columns that a fit sees; raise an error for one that would reward a narrow kernel.

    Parameters
    ----------
    penalty : Penalty
        The penalty on all columns.
    active : integer array
        The columns that the fit sees.
    names : array of str, optional
        The names of these columns.
    name : str
        The parameter, for the messages.
    """
    check_semidefinite(penalty.matrix, name if penalty.weight is None else f"{name}.target")
    penalty = penalty.of_columns(active)
    if penalty.weight is None:
        return penalty
    variances = np.diag(penalty.matrix)
    if not variances.all():
        raise ValueError(
            f"{name}.target must be greater than 0 along every column that varies, got 0 along {shown_columns(variances == 0, names)}: "
            "the kernel would be drawn towards a width of 0. Pass the variances of a kernel, in squared units of the data."
        )
    if not is_positive_definite(penalty.matrix):
        raise ValueError(
            f"{name}.target as a matrix must be positive definite, because the kernel is drawn towards it. Add a small multiple "
            "of its diagonal, or pass a vector of variances."
        )
    return penalty


def check_semidefinite(reg: np.ndarray, name: str = "reg") -> None:
    """Raise an error for a penalty that would reward a narrow kernel."""
    values = correlation_eigenvalues(reg)
    if values[0] < -1e-8 * max(values[-1], 0.0) or np.diag(reg).min() < 0:
        raise ValueError(
            f"{name} as a matrix must be positive semidefinite, because a penalty must not reward narrow kernels."
        )


def free_parameters(structure: Structure, n_features: int) -> int:
    """Return the number of free parameters of a covariance of this structure."""
    d = n_features
    if structure.covariance == "full":
        return d * (d + 1) // 2
    if structure.covariance == "low_rank":
        rank = int(structure.rank or 0)
        return rank * d - rank * (rank - 1) // 2 + 1
    return d if structure.covariance == "diag" else 1


def has_plenty(X: np.ndarray, structure: Structure) -> bool:
    """Return whether there are so many rows that the search is skipped; rows with an exact twin are not counted."""
    enough = max(PLENTY * free_parameters(structure, X.shape[1]), _PLENTY_IN_ALL)
    return len(X) >= enough and len(X) - count_twins(X) >= enough


def shrinkage(X: np.ndarray, weight: np.ndarray | None = None) -> float:
    """Return the weight of the diagonal that Ledoit and Wolf estimate, in units of the columns' standard deviations."""
    rows = X - mean_of_rows(X, weight)
    variances = np.average(np.square(rows), axis=0, weights=weight)
    if not variances.all():  # one row has all the weight: there is nothing to estimate
        return 1.0
    rows = rows / np.sqrt(variances)
    if weight is not None:  # the second moments of these rows are the weighted ones
        rows = rows * np.sqrt(weight * (len(weight) / weight.sum()))[:, None]
    return float(ledoit_wolf_shrinkage(rows, assume_centered=True))


def shrunk_covariance(X: np.ndarray, weight: np.ndarray | None = None, share: float | None = None) -> np.ndarray:
    """Return the covariance of the rows, shrunk towards its diagonal in units of the columns' standard deviations.

    Parameters
    ----------
    X : array of shape (n, d)
        No column may be constant.
    weight : array of shape (n,), optional
    share : float, optional
        The weight of the diagonal; the default is the estimate of Ledoit and Wolf.
    """
    covariance = scatter_of_rows(X, weight)
    scale = np.sqrt(np.diag(covariance))
    share = max(shrinkage(X, weight), _LEAST_SHRINKAGE) if share is None else share
    covariance = (1.0 - share) * 0.5 * (covariance + covariance.T)
    covariance[np.diag_indices(len(scale))] += share * scale**2
    return covariance


def rounding_variances(X: np.ndarray) -> np.ndarray:
    """Return what rounding adds to the squared distances of rows along each column, shape (d,).

    Rows that lie on a lattice, or that repeat a value, reward kernels without width: the density of such values can be made arbitrarily
    high, and a row beside them then costs thousands of nats. If values of a column repeat, its resolution h is the median
    distance of the repeated ones from the nearest other value. Two values that were rounded to a step h differ by two errors of
    variance h^2 / 12 more than they seem to, and under a kernel of this variance no cell of width h has a density above 1 / h. Columns
    of measurements hardly repeat values: h is 0. Rows that repeat completely are counted once, because they tie in every column.
    """
    rows = np.unique(X, axis=0)
    variances = np.zeros(X.shape[1])
    for k, column in enumerate(rows.T.astype(np.float64)):
        values, counts = np.unique(column, return_counts=True)
        if len(values) < 2 or len(values) > (1.0 - _FEW_REPEATS) * len(column):
            continue
        gaps = np.append(np.append(np.inf, np.diff(values)), np.inf)
        nearest = np.minimum(gaps[:-1], gaps[1:])
        variances[k] = np.median(np.repeat(nearest, np.where(counts > 1, counts, 0))) ** 2 / 6.0
    return variances


def family_matrix(family: str, X: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
    """Return the matrix of a family at the factor 1, from the training rows."""
    if family != "diagonal":
        return shrunk_covariance(X, weight, None if family == "shrunk" else _LEAST_SHRINKAGE)
    centred = X - mean_of_rows(X, weight)
    return np.diag(np.average(np.square(centred), axis=0, weights=weight))


class Form(NamedTuple):
    """A penalty of a family, as a function of the training rows: added, or with the weight of a `Shrinkage`."""

    family: str
    factor: float
    weight: float | None = None

    def with_matrix(self, matrix: np.ndarray, rounding: np.ndarray) -> Penalty:
        """Return the penalty, given the matrix of the family, and the variances of rounding, below which no kernel falls."""
        least = rounding if self.weight is None else rounding * (1.0 + 1.0 / self.weight)
        return Penalty(self.factor * matrix + np.diag(least), self.weight)

    def of_rows(self, X: np.ndarray, weight: np.ndarray | None) -> Penalty:
        """Return the penalty for some training rows."""
        return self.with_matrix(family_matrix(self.family, X, weight), rounding_variances(X))


NO_PENALTY = Form("diagonal", 0.0)  # the paper's plain estimator
# The penalty that is used if none is needed except in directions in which the rows do not differ.
LEAST_PENALTY = Form("shrunk", SMALLEST["shrunk"])
