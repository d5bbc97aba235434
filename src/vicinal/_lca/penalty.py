r"""The penalty R of LCA and LCA-Gauss: its validation, and the search of ``reg="auto"``.

The penalty per row is :math:`\frac12 \operatorname{tr}(\Sigma^{-1} R)`, and EM's M-step adds R to the local covariance.
The search tries three families, all in units of the columns: :math:`\nu \operatorname{diag}(C)`, :math:`\nu \hat C` and
:math:`\nu C`, where C is the covariance of the training rows and :math:`\hat C` its shrunk estimate. (Shrinkage helps if
rows are few. If columns are nearly collinear and rows are not so few, it makes the kernel too wide along the narrow
directions: on wdbc it costs a nat per row.) Some of the folds locate the best factor of each family approximately, along a path of
:math:`\nu` in steps of 10; then all folds compare the factors nearby, in steps of the root of 10. Each fit starts from the result
of the previous one and needs only a few passes. The penalty with the largest likelihood of held-out rows is selected.
"""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from sklearn.covariance import ledoit_wolf_shrinkage

from vicinal._callers import callers_line
from vicinal._checks import check_positive, constant_columns, count_twins, shown_columns
from vicinal._density.selection import fixed_folds
from vicinal._lca.steps import CollapseError, Structure
from vicinal._leave_one_out import mean_of_rows, scatter_of_rows

FAMILIES = ("diagonal", "shrunk", "sample")
# Independent of random_state, so that a fit depends only on the data and on the public parameters.
_FOLDS = 5
# A search needs no more rows than these: the chosen factor is close to the one that all rows would give.
_MOST_ROWS = 2000
_STEP = 10.0**0.5
_COARSE_STEP = 10.0
_SCOUTED_ROWS = (
    100  # the minimum number of held-out rows that locate the best factor of a family: those of one fold or more
)
# A family whose best factor is this many nats per row behind that of another on those folds is compared at that factor only.
_HOPELESS = 0.5
# Down to a thousandth (1 percent, along directions that are shrunk as well) of the columns' standard deviations.
_SMALLEST = {"diagonal": 1e-6, "shrunk": 1e-4, "sample": 1e-4}
_LARGEST = 1e4
_GAIN = 1e-3  # nats per row
# The smallest share of the mean variance in a shrunk covariance, which keeps dependent columns regular.
_LEAST_SHRINKAGE = 1e-6
# With at least this many rows per free parameter of the covariance, and this many rows in total, a penalty gains nothing;
# docs/lca.md has the evidence. Skewed columns need the second number, because one row in a hundred can shape the kernel.
PLENTY, _PLENTY_IN_ALL = 25, 2000


def check_reg(reg: Any, n_features: int, name: str = "reg") -> np.ndarray | None:
    """Return the matrix R that a number, a vector of variances or a matrix stands for; None for "auto".

    Parameters
    ----------
    reg : float, array or "auto"
    n_features : int
    name : str
        For the messages.
    """
    if isinstance(reg, str):
        if reg != "auto":
            raise ValueError(f"{name} must be 'auto', a number, a vector of variances or a matrix, got {reg!r}.")
        return None
    if np.ndim(reg) == 0:
        return check_positive(reg, name, strict=False) * np.eye(n_features)
    values = np.asarray(reg)
    if values.dtype.kind not in "iuf":
        raise TypeError(f"{name} must hold numbers, got entries of dtype {values.dtype}.")
    values = values.astype(np.float64)
    if values.shape not in ((n_features,), (n_features, n_features)):
        raise ValueError(
            f"{name} as an array must have shape ({n_features},) or ({n_features}, {n_features}) for {n_features} "
            f"features, got {values.shape}."
        )
    if not np.isfinite(values).all():
        raise ValueError(f"{name} must be finite.")
    if values.ndim == 1:
        if values.min() < 0:
            raise ValueError(f"{name} as a vector holds variances, which must not be negative; got {values.min():g}.")
        return np.diag(values)
    if not np.allclose(values, values.T, rtol=1e-8, atol=1e-300):
        raise ValueError(f"{name} as a matrix must be symmetric. Pass (R + R.T) / 2 if the asymmetry is rounding.")
    return 0.5 * (values + values.T)


def check_semidefinite(reg: np.ndarray, name: str = "reg") -> None:
    """Raise an error for a penalty that would reward a narrow kernel."""
    scale = np.sqrt(np.maximum(np.diag(reg), 0.0))
    values = np.linalg.eigvalsh(reg / np.outer(*2 * [np.where(scale > 0, scale, 1.0)]))
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


def family_matrix(family: str, X: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
    """Return the matrix of a family at the factor 1, from the training rows."""
    if family != "diagonal":
        return shrunk_covariance(X, weight, None if family == "shrunk" else _LEAST_SHRINKAGE)
    centred = X - mean_of_rows(X, weight)
    return np.diag(np.average(np.square(centred), axis=0, weights=weight))


def least_penalty(X: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
    """Return the penalty that is used if none is needed except in directions in which the rows do not differ."""
    return _SMALLEST["shrunk"] * family_matrix("shrunk", X, weight)


class Fold(Protocol):
    """One split of the rows: fits to its training rows, and scores of its held-out rows."""

    @property
    def n_held_out(self) -> int:
        """The number of held-out rows."""
        ...

    def fit(self, family: str, factor: float, start: Any) -> tuple[Any, float]:
        """Fit with a penalty, from a start (None: the usual one); return its result and the held-out score."""
        ...


class Choice(NamedTuple):
    """The penalty that a search chose: a family and a factor; and the table of all that it tried."""

    family: str
    factor: float
    table: dict[str, np.ndarray]
    at_edge: bool

    def best_of(self, family: str) -> float | None:
        """Return the best factor of one family, or None if none of them has a finite score."""
        mine = self.table["family"] == family
        scores = self.table["mean_test_score"][mine]
        return float(self.table["factor"][mine][scores.argmax()]) if np.isfinite(scores).any() else None


def search(folds: Sequence[Fold], families: Sequence[str], *, largest: float = 1.0) -> Choice:
    """Choose the family and the factor of largest held-out likelihood.

    Parameters
    ----------
    folds : sequence of Fold
    families : sequence of str
    largest : float
        The first factor of a path. If it is the best of its family, larger factors are tried as well.
    """
    n_scouts = 1 + int(np.searchsorted(np.cumsum([fold.n_held_out for fold in folds]), _SCOUTED_ROWS))
    scouted = {family: _scout(folds[:n_scouts], family, largest) for family in families}
    leader = max(score for _, score in scouted.values())
    tried: list[tuple[str, float, np.ndarray]] = []
    for family, (factor, score) in scouted.items():
        hopeless = score < leader - _HOPELESS
        nearby = [factor] if hopeless else [factor * _STEP, factor, factor / _STEP]
        tried.extend((family, f, scores) for f, scores in _compare(folds, family, nearby))
    scores = np.array([values.mean() for _, _, values in tried])
    best = int(np.argmax(scores))
    family, factor, _ = tried[best]
    mine = [(f, s) for (name, f, _), s in zip(tried, scores, strict=True) if name == family]
    table = {
        "family": np.array([name for name, _, _ in tried]),
        "factor": np.array([f for _, f, _ in tried]),
        "mean_test_score": scores,
        "std_test_score": np.array([values.std() if np.isfinite(values).all() else np.inf for _, _, values in tried]),
    }
    before = [s for f, s in mine if f > factor]
    at_edge = factor <= 1.01 * _SMALLEST[family] and bool(before) and scores[best] - before[-1] > 0.05
    return Choice(family, _interpolated(mine, factor), table, at_edge)


def _scout(folds: Sequence[Fold], family: str, largest: float) -> tuple[float, float]:
    """Return the approximate best factor of a family and its mean score, by large steps down (up if the first is the best)."""
    best, score = largest, -np.inf
    for step in (1.0 / _COARSE_STEP, _COARSE_STEP):
        path, factor = _Path(folds, family), largest
        while 0.99 * _SMALLEST[family] <= factor <= 1.01 * _LARGEST:
            reached = path.scores(factor).mean()
            if factor != largest and reached <= score + _GAIN:
                break
            if reached > score:
                best, score = factor, reached
            factor *= step
        if best != largest:
            break
    return best, score


def _compare(folds: Sequence[Fold], family: str, factors: Sequence[float]) -> list[tuple[float, np.ndarray]]:
    """Return factors of one family in decreasing order, with their scores per fold; more follow while the last is the best.

    A single factor is not compared with others.
    """
    factors = [f for f in factors if 0.99 * _SMALLEST[family] <= f <= 1.01 * _LARGEST]
    path = _Path(folds, family)
    tried = [(factor, path.scores(factor)) for factor in factors]
    if len(factors) == 1:
        return tried
    while _mean_at(tried, -1) > _mean_at(tried, -2) + _GAIN and tried[-1][0] / _STEP >= 0.99 * _SMALLEST[family]:
        tried.append((tried[-1][0] / _STEP, path.scores(tried[-1][0] / _STEP)))
    path = _Path(folds, family)
    while _mean_at(tried, 0) > _mean_at(tried, 1) + _GAIN and tried[0][0] * _STEP <= 1.01 * _LARGEST:
        tried.insert(0, (tried[0][0] * _STEP, path.scores(tried[0][0] * _STEP)))
    return tried


def _mean_at(tried: Sequence[tuple[float, np.ndarray]], place: int) -> float:
    return float(tried[place][1].mean())


class _Path:
    """Fits of one family to all folds, each from the end of the one before."""

    def __init__(self, folds: Sequence[Fold], family: str) -> None:
        self._folds, self._family, self._starts = folds, family, [None] * len(folds)

    def scores(self, factor: float) -> np.ndarray:
        """Return the held-out score of each fold at the next factor; -inf where there is no fit."""
        scores = np.full(len(self._folds), -np.inf)
        for f, fold in enumerate(self._folds):
            try:
                self._starts[f], held_out = fold.fit(self._family, factor, self._starts[f])
                scores[f] = held_out if np.isfinite(held_out) else -np.inf
            except (CollapseError, np.linalg.LinAlgError):
                self._starts[f] = None
        return scores


def _interpolated(tried: list[tuple[float, float]], factor: float) -> float:
    """Return the top of the parabola through the best factor of a family and its neighbours, in logarithms."""
    tried = sorted(tried)
    at = [f for f, _ in tried].index(factor)
    if at in (0, len(tried) - 1):
        return factor
    x = np.log([f / factor for f, _ in tried[at - 1 : at + 2]])
    y = np.array([s for _, s in tried[at - 1 : at + 2]])
    if not np.isfinite(y).all():
        return factor
    a, b, _ = np.polyfit(x, y - y[1], 2)
    return factor * float(np.exp(np.clip(-b / (2 * a), x[0], x[2]))) if a < 0 else factor


def split_folds(X: np.ndarray, weight: np.ndarray | None) -> list[tuple[np.ndarray, Any, np.ndarray, Any]]:
    """Return the fixed folds as (training rows, their weights, held-out rows, their weights); equal weights are None.

    Rows that alone make a column vary are never held out: without them the column would have no scale.
    """
    parts = fixed_folds(X, _FOLDS, _MOST_ROWS)
    everyone = np.sort(np.concatenate(parts)) if parts else np.array([], dtype=int)
    folds = []
    for part in parts:
        rest = np.setdiff1d(everyone, part, assume_unique=True)
        constant = constant_columns(X[rest])
        telling = np.any(X[part][:, constant] != X[rest[0], constant], axis=1)
        train, test = np.sort(np.concatenate([rest, part[telling]])), part[~telling]
        if len(test) == 0 or constant_columns(X[train]).any():
            continue
        weights = (None, None) if weight is None else (weight[train], weight[test])
        folds.append((X[train], weights[0], X[test], weights[1]))
    return folds


def choose_penalty(folds: Sequence[Fold], structure: Structure) -> Choice | None:
    """Return the choice for ``reg="auto"``; None without folds, if too few rows differ to hold any out."""
    if not folds:
        return None
    # The other structures depend only on the diagonal of R, or on its trace.
    families = FAMILIES if structure.covariance in ("full", "low_rank") else FAMILIES[:1]
    return search(folds, families)


def warn_at_edge(X: np.ndarray, names: np.ndarray | None, method: str) -> None:
    """Warn that held-out rows favour kernels of width zero, and name the columns that are the likely cause."""
    few = np.array([len(np.unique(column)) < 0.1 * len(X) for column in X.T])
    if not few.any():
        return
    warnings.warn(
        f"{method}: held-out rows score higher the narrower the kernel is, down to the smallest penalty of reg='auto'. "
        f"The table has columns of few distinct values ({shown_columns(few, names)}), on which a density can be made arbitrarily high. Do not compare such scores; "
        "leave such columns out, add noise of one step to them, or pass reg (a variance in squared units of the data).",
        UserWarning,
        stacklevel=callers_line(),
    )
