"""The choice of parameters by held-out rows, for all methods: folds, paths of candidates, tables of results, warnings.

::

      Selection                       the options of users
      fixed_folds, held_out_splits    folds that depend on nothing but the rows; equal rows are never separated
      top_of_parabola                 between the candidates of a path
      paired_gain                     whether the best candidate is ahead of a simple one by more than chance
      score_table, search_results     what users see of it
      warn_at_smallest                the best candidate is the last of its path
"""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import rankdata
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedGroupKFold, check_cv

from vicinal._callers import callers_line
from vicinal._checks import check_choice, check_integer
from vicinal._records import Record
from vicinal._rows import constant_columns

CRITERIA = ("log_likelihood", "error", "conditional_log_likelihood")
_LEAST_DISTINCT = 5  # the minimum number of rows from which some can be held out


@dataclass(frozen=True, eq=False)
class Selection(Record):
    r"""Options of the search by which :class:`vicinal.ManifoldParzen` and :class:`vicinal.LocalLCA` choose their parameters.

    Every combination of the grids is fitted to the training rows of each split and evaluated on the rows that the split
    holds out; frames are built from training rows only, so that no information leaks. A parameter of the estimator that is
    a number is a grid with this single value. The grids of "auto" below are those of ManifoldParzen; LocalLCA also tries 80
    neighbours (and 160) and all directions, and does not try every combination.

    Parameters
    ----------
    criterion : {"log_likelihood", "error", "conditional_log_likelihood"}, default="log_likelihood"
        The score of held-out rows: the mean log-density; or, with one density per class (``fit`` then needs y), the
        error, or the mean of :math:`\log P(c | x)` (minus the ANCLL of the paper). Greater scores are better, so the error
        is stored with a minus sign.
    cv : int, splitter or iterable of (train, test), default=5
        An int is the number of folds. These do not depend on a random state, never separate equal rows, and are
        stratified by class for the classification criteria. Other values are as in
        :class:`~sklearn.model_selection.GridSearchCV`. For a single validation set, pass
        :class:`~sklearn.model_selection.PredefinedSplit` or ``[(train, test)]``.
    n_components : "auto" or sequence of int, default="auto"
        Numbers of local directions. "auto" is 0, 1, 2, 4, 8, ... up to the number of features or 32.
    n_neighbors : "auto" or sequence of int, default="auto"
        Numbers of neighbours. "auto" is 5, 10, 20, 40, limited to numbers smaller than the smallest training part (or class).
    noise : "auto" or sequence of float, default="auto"
        Variances. "auto" is 16 values in geometric progression, from far below the distance of nearest neighbours to
        the variance of the data.
    max_rows : int or None, default=2048
        The maximum number of held-out rows that are scored, over all splits; None is all. The cost of a search is
        proportional to it.

    Examples
    --------
    >>> from vicinal import ManifoldParzen, Selection
    >>> ManifoldParzen(selection=Selection(cv=3)).set_params(selection__n_neighbors=[6, 12]).selection
    Selection(criterion='log_likelihood', cv=3, n_components='auto', n_neighbors=[6, 12], noise='auto', max_rows=2048)
    """

    criterion: str = "log_likelihood"
    cv: Any = 5
    n_components: Any = "auto"
    n_neighbors: Any = "auto"
    noise: Any = "auto"
    max_rows: int | None = 2048

    def __post_init__(self) -> None:
        check_choice(self.criterion, "criterion", CRITERIA)
        for name in ("n_components", "n_neighbors", "noise"):
            values = getattr(self, name)
            if isinstance(values, str) and values != "auto":
                raise ValueError(f"{name} must be 'auto' or a sequence of values, got {values!r}.")
            if not isinstance(values, str) and np.size(values) == 0:
                raise ValueError(f"{name} must hold at least one value, got none.")
        if isinstance(self.cv, int):
            check_integer(self.cv, "cv", least=2)
        if self.max_rows is not None:
            check_integer(self.max_rows, "max_rows")

    @property
    def classifies(self) -> bool:
        """Whether there is one density per class, from which rows are held out."""
        return self.criterion != "log_likelihood"

    def splits(
        self, X: np.ndarray, codes: np.ndarray, weight: np.ndarray | None = None
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return the positions of the training and of the held-out rows of each split; none if too few rows differ.

        Parameters
        ----------
        X : array of shape (n, d)
            The training rows.
        codes : integer array of shape (n,)
            The class of each row; all zero without classes.
        weight : array of shape (n,), optional
            Rows of weight 0 are not part of the folds. Splits that the user passes include all rows; those of weight 0 are left out.
        """
        everyone = np.arange(len(X))
        counted = everyone if weight is None or not isinstance(self.cv, int) else np.flatnonzero(weight)
        if not isinstance(self.cv, int):
            parts = check_cv(self.cv, codes if self.classifies else None, classifier=self.classifies).split(X, codes)
        elif self.classifies:
            groups = np.unique(X[counted], axis=0, return_inverse=True)[1].ravel()
            folds = StratifiedGroupKFold(self.cv, shuffle=True, random_state=0)
            parts = folds.split(X[counted], codes[counted], groups)
        else:
            parts = ((np.delete(everyone[: len(counted)], part), part) for part in fixed_folds(X[counted], self.cv))
        # Lists, ranges and masks become arrays of positions.
        splits = [(counted[np.asarray(train)], counted[np.asarray(test)]) for train, test in parts]
        most = len(counted) if self.max_rows is None else -(-self.max_rows // max(len(splits), 1))
        splits = [(train, _some(test, most)) for train, test in splits]
        if weight is None:
            return splits
        return [(train[weight[train] > 0], test[weight[test] > 0]) for train, test in splits]


def _some(positions: np.ndarray, most: int) -> np.ndarray:
    """Return at most this many of the positions, the same ones each time."""
    if len(positions) <= most:
        return positions
    return np.sort(np.random.default_rng(0).choice(positions, most, replace=False))


def held_out_splits(
    X: np.ndarray, weight: np.ndarray | None = None, n_folds: int = 5, most_rows: int | None = None
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the positions of the training rows and of the held-out rows of the fixed folds of rows of positive weight.

    Rows that alone make a column vary are never held out: without them the column would have no scale. With `most_rows`, at most so
    many rows are in the folds, and the others are neither trained on nor held out.
    """
    counted = np.arange(len(X)) if weight is None else np.flatnonzero(weight)
    parts = [counted[part] for part in fixed_folds(X[counted], n_folds, most_rows)]
    splits, everyone = [], np.sort(np.concatenate(parts)) if parts else counted
    for part in parts:
        rest = np.setdiff1d(everyone, part, assume_unique=True)
        constant = constant_columns(X[rest])
        is_needed = np.any(X[part][:, constant] != X[rest[0], constant], axis=1)
        train, test = np.sort(np.append(rest, part[is_needed])), part[~is_needed]
        if len(test):
            splits.append((train, test))
    return splits


def fixed_folds(X: np.ndarray, n_folds: int = 5, most_rows: int | None = None) -> list[np.ndarray]:
    """Return the positions of the rows of each fold, at most `most_rows` in total; equal rows are never separated.

    The folds depend only on the set of rows and on the order of the values in each column, and not on the order of the
    rows, on units, or on a random state. There are no folds if fewer than 5 rows differ.
    """
    distinct, of_row, counts = np.unique(X, axis=0, return_inverse=True, return_counts=True)
    if len(distinct) < _LEAST_DISTINCT:
        return []
    n_folds = min(n_folds, len(distinct))
    order = np.random.default_rng(0).permutation(len(distinct))
    last = np.cumsum(counts[order])
    kept = len(distinct)
    if most_rows is not None:
        kept = max(int(np.searchsorted(last, most_rows, side="right")), n_folds)
    fold_of = np.full(len(distinct), -1)
    fold_of[order[:kept]] = np.minimum((last[:kept] - 1) * n_folds // last[kept - 1], n_folds - 1)
    folds = [np.flatnonzero(fold_of[of_row.ravel()] == f) for f in range(n_folds)]
    return [fold for fold in folds if len(fold)]


def top_of_parabola(places: np.ndarray, scores: np.ndarray) -> float:
    """Return the place of the top of the parabola through the best score and its neighbours; the best place if there is none.

    Parameters
    ----------
    places : array of shape (n,)
        In increasing order.
    scores : array of shape (n,)
    """
    best = int(np.argmax(scores))
    if best in (0, len(places) - 1):
        return float(places[best])
    x, y = places[best - 1 : best + 2] - places[best], scores[best - 1 : best + 2] - scores[best]
    if not np.isfinite(y).all():
        return float(places[best])
    a, b, _ = np.polyfit(x, y, 2)
    return float(places[best] + np.clip(-b / (2 * a), x[0], x[2])) if a < 0 else float(places[best])


def paired_gain(
    first: np.ndarray, second: np.ndarray, weight: np.ndarray | None = None, units: np.ndarray | None = None
) -> tuple[float, float]:
    """Return how far the first scores of held-out rows are ahead of the second ones, in the mean, and its standard error.

    With `units`, codes from 0 of groups of rows that are not independent, the error is that of a mean over groups; it is infinite if
    there is only one of them.
    """
    gains, weight = first - second, np.ones(len(first)) if weight is None else weight
    mean = np.average(gains, weights=weight)
    residuals = weight * (gains - mean)
    if units is not None:
        residuals = np.bincount(units, residuals)[np.unique(units)]
        n = len(residuals)
        residuals = residuals * np.sqrt(n / (n - 1)) if n > 1 else np.array([np.inf])
    return float(mean), float(np.linalg.norm(residuals) / weight.sum())


def score_table(columns: dict[str, Any], scores: np.ndarray) -> dict[str, np.ndarray]:
    """Return candidates and the mean and deviation of their scores, of shape (candidates, folds); infinite where one is not finite."""
    known, deviations = np.isfinite(scores).all(axis=1), np.full(len(scores), np.inf)
    with np.errstate(over="ignore"):
        deviations[known] = scores[known].std(axis=1)
    table = {name: np.array(column) for name, column in columns.items()}
    return {**table, "mean_test_score": scores.mean(axis=1), "std_test_score": deviations}


def search_results(params: list[dict[str, Any]], scores: np.ndarray) -> dict[str, Any]:
    """Return the scores of candidates, of shape (splits, candidates), as GridSearchCV's ``cv_results_``."""
    results: dict[str, Any] = {"params": params}
    results |= {f"param_{name}": np.array([candidate[name] for candidate in params]) for name in params[0]}
    results |= {f"split{s}_test_score": split for s, split in enumerate(scores)}
    results |= score_table({}, scores.T)
    results["rank_test_score"] = rankdata(-results["mean_test_score"], method="min").astype(int)
    return results


def warn_at_smallest(method: str, value: float, candidates: str, remedy: str) -> None:
    """Warn that a search chose the smallest of its candidates."""
    warnings.warn(
        f"{method}: the search chose {value:.3g}, the smallest {candidates}, and a smaller one may score better. Check for "
        "dependent columns, columns of few distinct values and rows that almost repeat others, or pass "
        f"{remedy}.",
        ConvergenceWarning,
        stacklevel=callers_line(),
    )
