"""The search for neighbours, directions and noise of Manifold Parzen Windows, which shares work between candidates."""

import numbers
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp
from sklearn.model_selection import ParameterGrid

from vicinal._checks import check_integer
from vicinal._engine import Engine, Frames, Work, available_threads, prepare, resolved_engine
from vicinal._local.grid import N_NOISES, SLACK, auto_noises, check_grid, check_noise
from vicinal._local.kernels import nearest_neighbors
from vicinal._mixtures import LOG_2PI, frame_work
from vicinal._scatter import local_frames
from vicinal._search import Selection, search_results, warn_at_smallest

_NEIGHBORS = (5, 10, 20, 40)  # values of "auto"


class SearchResult(NamedTuple):
    """The result of a search: the best parameters, their mean score, the table of all, and the backend that was used."""

    params: dict[str, Any]
    score: float
    results: dict[str, Any]
    engine: str


class ParameterSearch:
    """The search over neighbours, directions and noise for the value "auto" in `ManifoldParzen`.

    It computes the scores of a :class:`~sklearn.model_selection.GridSearchCV` over the same grid with a fraction of the
    work: in each split, neighbours are found once (for the largest k), frames are computed once per k (with the largest d),
    and one pass over the pairs gives the scores of all d and all noises of a k.

    For each split and k: O(n k D min(k, D)) for the frames and O(m n d D) for the projections of m held-out rows, with
    the largest d, then O(d) per pair and noise, and one exponential per pair, d and noise. Memory O(n d D).

    Parameters
    ----------
    selection : Selection
    n_components, n_neighbors, noise : "auto", a number or a sequence
        The grids; "auto" is that of `Selection`.
    engine
        As in `ManifoldParzen`.
    """

    def __init__(
        self,
        selection: "Selection",
        n_components: int | Sequence[int] | str,
        n_neighbors: int | Sequence[int] | str,
        noise: float | Sequence[float] | str,
        *,
        engine: Engine | str | None,
    ) -> None:
        self.n_components, self.n_neighbors, self.noise = n_components, n_neighbors, noise
        self.selection, self.engine = selection, engine

    def run(
        self, X: np.ndarray, Z: np.ndarray, weight: np.ndarray | None, classes: np.ndarray, codes: np.ndarray
    ) -> SearchResult | None:
        """Score every point of the grid on held-out rows; return None if too few rows differ to hold any out.

        Parameters
        ----------
        X : array of shape (n, D)
        Z : array of shape (n, p)
            The rows in coordinates in which the distances between neighbours are Euclidean.
        weight : array of shape (n,), optional
        classes : array
            The class labels, for the messages.
        codes : integer array of shape (n,)
            The class of each row; all zero without classes.
        """
        if weight is not None and isinstance(self.selection.cv, int):
            # Rows of weight 0 are not part of the folds; splits that the user passes include all rows.
            counted = np.flatnonzero(weight)
            X, Z, weight, codes = X[counted], Z[counted], weight[counted], codes[counted]
        splits = self.selection.splits(X, codes)
        if not splits:
            return None
        data = _Data(X, Z, codes, weight, codes.max() + 1)
        smallest = self._check_splits(data, splits, classes)
        engine = resolved_engine(self.engine, self.work(*X.shape))
        grid = self._grid(data, smallest, engine)
        scores = np.stack([self._split_scores(data, train, test, grid, engine) for train, test in splits])
        results = _results(grid, scores)
        best = int(np.argmax(results["mean_test_score"]))
        self._warn_if_noises_end_too_early(results, best, grid["noise"])
        return SearchResult(results["params"][best], float(results["mean_test_score"][best]), results, engine.kind)

    def work(self, n_samples: int, n_features: int) -> Work:
        """Return the pair work of the search: every k of every split is one pass, for all depths and noises together."""
        neighbors = _NEIGHBORS if isinstance(self.n_neighbors, str) else np.ravel(self.n_neighbors)
        components = _powers(n_features) if isinstance(self.n_components, str) else np.ravel(self.n_components)
        n_noises = N_NOISES if isinstance(self.noise, str) else np.size(self.noise)
        cv, most = self.selection.cv, self.selection.max_rows
        folds = int(cv) if isinstance(cv, numbers.Integral) else 5
        held_out = -(-n_samples // folds)
        shape = int(max(components)), n_samples - held_out, n_features
        scored = held_out if most is None else min(held_out, -(-most // folds))
        return frame_work(scored, shape, len(components) * n_noises, len(neighbors) * folds)

    def _warn_if_noises_end_too_early(self, results: dict[str, Any], best: int, noises: list[float]) -> None:
        """Warn if the smallest noise of "auto" is the best by more than a thousandth of a nat."""
        scores = results["mean_test_score"][best:]
        if (
            isinstance(self.noise, str)
            and not self.selection.classifies
            and results["params"][best]["noise"] == noises[0]
            and scores[0] - scores[2] >= 1e-3  # the noise varies fastest, so these have the same d and k
        ):
            remedy = "selection=Selection(noise=...) with smaller values"
            warn_at_smallest("ManifoldParzen", noises[0], "of noise='auto'", remedy)

    def _check_splits(self, data: "_Data", splits: list[tuple[np.ndarray, np.ndarray]], classes: np.ndarray) -> int:
        """Raise an error if a training part lacks a class; return the smallest number of rows of a part (or class)."""
        smallest = len(data.X)
        for s, (train, test) in enumerate(splits):
            if len(train) == 0 or len(test) == 0:
                raise ValueError(f"cv must give training and test rows, got {len(train)} and {len(test)} in split {s}.")
            if len(data.alive(test)) == 0:
                raise ValueError(
                    f"the test rows of split {s} all have weight 0, so it has no score. Drop rows of weight 0, or use "
                    "other folds."
                )
            counts = np.bincount(data.codes[data.alive(train)], minlength=data.n_classes)
            if counts.min() == 0:
                missing = classes.tolist()[np.argmin(counts)] if data.n_classes > 1 else "the data"
                raise ValueError(f"class {missing!r} has no training rows in split {s}. Use stratified folds.")
            smallest = min(smallest, int(counts.min()))
        return smallest

    def _grid(self, data: "_Data", smallest: int, engine: Engine) -> dict[str, list[Any]]:
        """Return the values of d, k and the noise, in increasing order."""
        D = data.X.shape[1]
        if isinstance(self.n_neighbors, str):
            neighbors = [k for k in _NEIGHBORS if k < smallest] or [max(smallest - 1, 1)]
        else:
            neighbors = [check_integer(k, "n_neighbors") for k in np.ravel(self.n_neighbors)]
        if isinstance(self.n_components, str):
            components = _powers(min(D, max(neighbors)))
        else:
            components = [check_integer(d, "n_components", least=0) for d in np.ravel(self.n_components)]
        if isinstance(self.noise, str):
            noises = auto_noises(data.X, data.weight, engine)
        else:
            noises = [check_noise(noise, data.X.dtype) for noise in np.ravel(self.noise)]
        check_grid(components, neighbors, D, smallest, "split and class")
        return {
            "n_components": sorted(set(components)),
            "n_neighbors": sorted(set(neighbors)),
            "noise": sorted(set(noises)),
        }

    def _split_scores(
        self, data: "_Data", train: np.ndarray, test: np.ndarray, grid: dict[str, list[Any]], engine: Engine
    ) -> np.ndarray:
        """Return the score of every (d, k, noise) of the grid on one split; NaN where d > k."""
        depths, neighbors, noises = grid["n_components"], grid["n_neighbors"], grid["noise"]
        scores = np.full((len(depths), len(neighbors), len(noises)), np.nan)
        train = data.alive(train)
        parts = [train[data.codes[train] == c] for c in range(data.n_classes)]
        weights = [np.ones(len(p)) if data.weight is None else data.weight[p] for p in parts]
        priors = np.array([w.sum() for w in weights]) / sum(w.sum() for w in weights)
        nearest = [nearest_neighbors(data.Z[p], max(neighbors), engine=engine) if max(depths) else None for p in parts]
        test_weights = None if data.weight is None else data.weight[test]
        for column, k in enumerate(neighbors):
            depths_of_k = [d for d in depths if d <= k]
            # Joint log-densities of the test rows with each class, shape (classes, depths, noises, test
            # rows).
            joint = np.stack(
                [
                    _log_density(data, p, w, near, k, depths_of_k, noises, test, engine) + np.log(prior)
                    for p, w, near, prior in zip(parts, weights, nearest, priors, strict=True)
                ]
            )
            terms = self._criterion(joint, data.codes[test])
            scores[: len(depths_of_k), column] = np.average(terms, axis=-1, weights=test_weights)
        return scores

    def _criterion(self, joint: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Return the term of each test row, greater is better, shape (depths, noises, test rows)."""
        if not self.selection.classifies:
            return joint[0]
        if self.selection.criterion == "error":
            return -(np.argmax(joint, axis=0) != codes).astype(float)
        joint_of_class = np.take_along_axis(joint, codes[None, None, None, :], axis=0)[0]
        # If every density is 0 (a distance in units of the noise overflows), nothing is known about the class.
        return joint_of_class - np.maximum(logsumexp(joint, axis=0), np.finfo(float).min)


class _Data:
    """The rows, their images in which neighbours are found, their classes and weights."""

    def __init__(
        self, X: np.ndarray, Z: np.ndarray, codes: np.ndarray, weight: np.ndarray | None, n_classes: int
    ) -> None:
        self.X, self.Z, self.codes, self.weight, self.n_classes = X, Z, codes, weight, n_classes

    def alive(self, rows: np.ndarray) -> np.ndarray:
        """Return those of some positions whose rows have positive weight."""
        return rows if self.weight is None else rows[self.weight[rows] > 0]


def _log_density(
    data: _Data,
    part: np.ndarray,
    weights: np.ndarray,
    near: np.ndarray | None,
    k: int,
    depths: list[int],
    noises: list[float],
    test: np.ndarray,
    engine: Engine,
) -> np.ndarray:
    """Return the log-density of the test rows under one class, shape (depths, noises, test rows)."""
    X, deepest = data.X[part], depths[-1]
    frames, variances = np.empty((0, *X.shape), dtype=X.dtype), np.empty((0, len(X)))
    if deepest:
        assert near is not None
        options: dict[str, Any] = {"memory": engine.memory_bytes, "threads": available_threads(engine.threads)}
        shares = None if data.weight is None else weights
        frames, variances = local_frames(X, near[:, :k], deepest, shares, **options)
    problem = prepare(engine, X, log_weights=np.log(weights / weights.sum()))
    placed = problem.at(Frames(frames, variances, noises, depths, SLACK[X.dtype]))
    return placed.log_sums_table(data.X[test]) - 0.5 * X.shape[1] * LOG_2PI


def _powers(most: int) -> list[int]:
    """Return 0 and the powers of two up to 32 or `most`: the depths of "auto"."""
    return [0, *(2**e for e in range(6) if 2**e <= most)]


def _results(grid: dict[str, list[Any]], scores: np.ndarray) -> dict[str, Any]:
    """Return scores (splits, d, k, noise) as GridSearchCV's ``cv_results_``, in the order of ParameterGrid."""
    params = [p for p in ParameterGrid(grid) if p["n_components"] <= p["n_neighbors"]]
    tried = np.less_equal.outer(grid["n_components"], grid["n_neighbors"])
    flat = scores[:, tried].reshape(len(scores), -1)
    return search_results(params, flat)
