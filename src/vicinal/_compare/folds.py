"""One fold of a comparison: fit on its training rows only, score its test rows."""

import time
import warnings
from typing import Any, NamedTuple

import numpy as np
from joblib import hash as hash_of
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from vicinal._compare.learned import images_of
from vicinal._compare.methods import ALL_VARIANCE, WIDE, Method
from vicinal._detect.steps import flat_steps, score_rows
from vicinal._engine import prepare
from vicinal._words import one_line

RECALL_AT = (1, 5, 10)
LONGEST_CURVE = 30
# With fewer training rows than this per dimension, a density can hardly be estimated.
_ROWS_PER_DIMENSION = 4


class Outcome(NamedTuple):
    """The scores of a method on a fold, or the reason why there are none.

    scores : numbers by name, None on failure
    curve : purity of the first k neighbours, for metrics
    failure : the reason
    converged : whether all its parts converged
    seconds : the time for fitting and scoring
    """

    scores: dict[str, float] | None
    curve: np.ndarray | None
    failure: str | None
    converged: bool
    seconds: float


class Rows(NamedTuple):
    """Training and test rows of a fold.

    fit : the training positions that costly methods are fitted to
    known_train, known_test : the rows for densities: the same rows, or rows with NaN for missing values
    judged : the test rows on which densities are evaluated
    """

    X_train: np.ndarray
    X_test: np.ndarray
    y_train: Any
    y_test: Any
    fit: np.ndarray
    known_train: np.ndarray
    known_test: np.ndarray
    judged: np.ndarray


class Fits:
    """Fits of the methods to the rows of one fold, in which a model that a metric and a density share is fitted once.

    LCA is a metric and a density. If both are compared, both pipelines end with the same estimator and pass it the same
    rows, because noise on rounded columns is a function of the rows.
    """

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Any, bool]] = {}

    def of(self, method: Method, X: np.ndarray, y: Any = None) -> tuple[Any, bool]:
        """Return the fitted estimator of a method, and whether it converged."""
        pipeline = method.estimator
        if not (method.shared and isinstance(pipeline, Pipeline) and len(pipeline) > 1):
            return fitted(pipeline, X, y)
        pipeline = clone(pipeline)
        rows = pipeline[:-1].fit_transform(X)
        name, last = pipeline.steps[-1]
        key = hash_of((type(last), last.get_params(), rows))
        if key not in self._kept:
            self._kept[key] = fitted(last, rows)
        model, converged = self._kept[key]
        pipeline.steps[-1] = name, model
        return pipeline, converged


def fitted(estimator: Any, X: np.ndarray, y: np.ndarray | None = None) -> tuple[Any, bool]:
    """Return a fitted clone of an estimator, and whether it converged."""
    estimator = clone(estimator)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        estimator.fit(X) if y is None else estimator.fit(X, y)
    return estimator, not any(issubclass(warning.category, ConvergenceWarning) for warning in caught)


def metric_outcome(method: Method, rows: Rows, n_neighbors: int, n_classes: int | None, fits: Fits) -> Outcome:
    """Return k-nearest-neighbour scores of the test rows among all training rows, under a metric fitted to training rows.

    n_classes : None if the targets are numbers
    fits : Fits
    """
    start = time.perf_counter()
    used = rows.fit if method.costly else slice(None)
    try:
        if n_classes is None and np.ptp(rows.y_train) == 0:
            raise ValueError("the training rows of a fold all have the same target")
        if not np.ptp(rows.X_train[used], axis=0).any():
            raise ValueError("the training rows of a fold are all equal")
        metric, converged = fits.of(method, rows.X_train[used], rows.y_train[used])
        images, queries = images_of(metric, rows.X_train), images_of(metric, rows.X_test)
    except (ValueError, np.linalg.LinAlgError, FloatingPointError) as error:
        return Outcome(None, None, one_line(error), True, time.perf_counter() - start)
    longest = min(len(images), max(n_neighbors, *RECALL_AT, LONGEST_CURVE))
    found = nearest(images, queries, longest)
    if n_classes is None:
        scores, curve = number_scores(rows.y_train[found[:, :n_neighbors]], rows.y_test, rows.y_train), None
    else:
        scores, curve = neighbor_scores(rows.y_train[found], rows.y_test, n_neighbors, n_classes)
    return Outcome(scores, curve, None, converged, time.perf_counter() - start)


def nearest(points: np.ndarray, queries: np.ndarray | None, n_neighbors: int) -> np.ndarray:
    """Return positions of the nearest points of each query, nearest first.

    Without queries, of the other points of each point.
    """
    # All CPU backends find the same neighbours; "reference" is the one that loads no compiler.
    placed = prepare("reference", points, leave_one_out=queries is None).at()
    return placed.nearest(n_neighbors, queries).indices


def neighbor_scores(
    neighbor_labels: np.ndarray, labels: np.ndarray, n_neighbors: int, n_classes: int
) -> tuple[dict[str, float], np.ndarray]:
    """Return the accuracy of the vote of k neighbours, recall@k (the share of neighbours of the same class), and the purity curve.

    neighbor_labels : (m, longest) codes of the neighbours' classes, nearest first; labels : (m,)
    """
    right = neighbor_labels == labels[:, None]
    k = min(n_neighbors, right.shape[1])
    votes = np.zeros((len(labels), n_classes), dtype=np.intp)
    np.add.at(votes, (np.arange(len(labels))[:, None], neighbor_labels[:, :k]), 1)
    # Ties go to the first class, as in scikit-learn's KNeighborsClassifier.
    scores = {"accuracy": float((votes.argmax(axis=1) == labels).mean())}
    for at in RECALL_AT:
        if at <= right.shape[1]:
            scores[f"recall@{at}"] = float(right[:, :at].mean())
    scores["purity"] = float(right[:, :k].mean())
    curve = right.mean(axis=0).cumsum() / np.arange(1, right.shape[1] + 1)
    return scores, curve[:LONGEST_CURVE]


def number_scores(neighbor_values: np.ndarray, values: np.ndarray, training_values: np.ndarray) -> dict[str, float]:
    """Return R² and the mean absolute error of the mean of the neighbours' values.

    R² = 1 - (mean squared error) / (variance of the training values), which is 0 for a constant prediction of the mean.
    The variance of the training rows is used, because that of a test fold could be 0.
    """
    errors = values - neighbor_values.mean(axis=1)
    return {"r2": 1.0 - float((errors**2).mean() / np.var(training_values)), "mean_error": float(np.abs(errors).mean())}


def usable_dimensions(X: np.ndarray) -> int:
    """Return how many principal components of the standardised columns a density can learn from these training rows."""
    correlations = np.atleast_2d(np.cov(StandardScaler().fit_transform(X).T, bias=True))
    eigenvalues = np.linalg.eigvalsh(correlations)
    rank = int((eigenvalues > (1.0 - ALL_VARIANCE) * eigenvalues.sum()).sum())
    return max(1, min(WIDE, len(X) // _ROWS_PER_DIMENSION, rank))


def density_outcome(method: Method, rows: Rows, fits: Fits) -> Outcome:
    """Return the mean log-density of the test rows, in the units of the data, averaged over the noise on rounded columns."""
    start = time.perf_counter()
    try:
        density, converged = fits.of(method, rows.known_train[rows.fit])
        if not rows.judged.any():
            raise ValueError("no held-out row of a fold is complete")
        log_density = _mean_score(density, rows.known_test[rows.judged])
        if not np.isfinite(log_density):
            raise ValueError("its held-out log-likelihood is not finite")
    except (ValueError, np.linalg.LinAlgError, FloatingPointError) as error:
        return Outcome(None, None, one_line(error), True, time.perf_counter() - start)
    return Outcome({"log_likelihood": log_density}, None, None, converged, time.perf_counter() - start)


def _mean_score(density: Any, X: np.ndarray) -> float:
    """Return the mean log-density of rows in the units of the data, by their known values if some are missing."""
    if np.isnan(X).any() and not hasattr(flat_steps(density)[-1], "marginal"):
        raise ValueError("it cannot score rows with missing values")
    return float(score_rows(density, X).mean())
