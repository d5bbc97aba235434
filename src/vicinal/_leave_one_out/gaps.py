r"""Densities of rows with missing values: the known values of a row determine the weights of the other rows, which predict its missing values.

For a mixture :math:`\frac1{n-1} \sum_{j \ne i} N(x; c_j, \Sigma)` of the other rows, a row with known entries o and
missing entries m has

.. math::

    \lambda_{ij} \propto N(x_{i,o}; c_{j,o}, \Sigma_{oo}), \qquad
    \hat x_{ij,m} = c_{j,m} + G (x_{i,o} - c_{j,o}), \qquad
    G = \Sigma_{mo} \Sigma_{oo}^{-1}, \qquad
    \Sigma_{m|o} = \Sigma_{mm} - G \Sigma_{om}.

A pass takes these expectations, then updates the covariance from the expected scatter of the rows about the centres,
to which :math:`\Sigma_{m|o}` is added for the entries that are missing, and then replaces the missing entries of the
centres by :math:`\sum_j \lambda_{ij} \hat x_{ij,m}`. With fixed centres, the update of the covariance is an EM step
and never lowers the leave-one-out likelihood of the known values. Because the centres change, this is an approximation without
such a proof: every pass is scored, and the best one is kept.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import block_diag, cho_solve, cholesky, solve_triangular

from vicinal._categories import Categories
from vicinal._engine import prepare
from vicinal._leave_one_out.moments import mean_of_rows, scatter_of_rows, weight_of_others
from vicinal._leave_one_out.problem import LOG_2PI, EMStatistics, LeaveOneOut, leave_one_out

# The default limits of fits to rows with gaps: the maximum number of passes, and the tolerance in nats per row.
GAP_LIMITS: dict[str, Any] = {"max_iter": 100, "tol": 1e-3}
_GAUSSIAN_PASSES, _UNCHANGED = 30, 1e-9  # and the change of correlations at which they end
# A ridge for the initial covariance, as a share of the variance of each column: two columns may have few common rows.
_RIDGE = 1e-3


class Expectation(NamedTuple):
    """The expectations of each row under the mixture of the other rows.

    scores : (n,), the log-density of the known entries under the mixture of the other rows
    rows : (n, d), missing entries replaced by their expectation
    scatter : (d, d), ``sum_i w_i E (x_i - c_j)(x_i - c_j)'``
    uncertainty : (d, d), ``sum_i w_i Cov(x_i)`` of the missing entries, given the known ones
    masses : (n, coordinates), the weights of the neighbours at each level, for rows with levels
    """

    scores: np.ndarray
    rows: np.ndarray
    scatter: np.ndarray
    uncertainty: np.ndarray
    masses: np.ndarray | None = None


class LevelsOfRows(NamedTuple):
    """The levels of rows and of the centres, as coordinates beside those of the numbers.

    categories : Categories
    codes, point_codes : (m, columns of the table) and (n, columns of the table)
    smoothing : (q,), l
    shares : the kind of shares that the rows have as queries
    """

    categories: Categories
    codes: np.ndarray
    point_codes: np.ndarray
    smoothing: np.ndarray
    shares: str

    @property
    def missing(self) -> np.ndarray:
        """Which levels the rows lack, shape (m, q)."""
        return np.isnan(self.codes[:, self.categories.positions])

    def queries(self, rows: np.ndarray, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows at some positions with their levels beside their numbers, and what their log-sums lack."""
        images, lacking = self.categories.queries(self.codes[positions], self.smoothing, self.shares)
        return np.hstack([rows, images / self.categories.scales(self.smoothing)]), lacking


class Conditional(NamedTuple):
    """The missing entries of rows that lack the same ones, given the others.

    positions : (r,), which rows
    known, missing : positions of the columns
    gain : (|m|, |o|), G
    rest : (|m|, |m|), the conditional covariance of one component
    placed : Placement of the centres by their known entries; None if nothing is known. A query may hold any numbers in
        the missing entries
    residuals : (n, |m|), ``c_jm - G c_jo``
    """

    positions: np.ndarray
    known: np.ndarray
    missing: np.ndarray
    gain: np.ndarray
    rest: np.ndarray
    placed: Any
    residuals: np.ndarray


def check_columns_known(X: np.ndarray, names: Any = None) -> None:
    """Raise an error for columns without any value."""
    empty = np.flatnonzero(np.isnan(X).all(axis=0))
    if len(empty):
        shown = ", ".join(str(j if names is None else names[j]) for j in empty[:5])
        raise ValueError(f"{len(empty)} of {X.shape[1]} columns hold no value at all ({shown}). Drop them.")


def conditionals(
    X: np.ndarray,
    centres: np.ndarray,
    covariance: np.ndarray,
    log_weights: np.ndarray | None,
    engine: Any,
    levels: LevelsOfRows | None = None,
) -> Iterator[Conditional]:
    """Yield for each pattern of missing values its rows, and the conditional distribution of the missing entries."""
    d, gaps_of_rows, points = X.shape[1], np.isnan(X), centres
    if levels is not None:
        gaps_of_rows = np.hstack([gaps_of_rows, levels.missing])
        points = np.hstack([centres, levels.categories.indicators(levels.point_codes)])
    patterns, pattern_of = np.unique(gaps_of_rows, axis=0, return_inverse=True)
    pattern_of = pattern_of.reshape(-1)
    # The centres are placed once. A map that is zero for the missing columns uses only the known ones.
    n_queries = -(-len(X) // len(patterns))
    problem = prepare(engine, points, log_weights=log_weights, n_queries=n_queries, passes=len(patterns))
    for p, gaps in enumerate(patterns):
        positions = np.flatnonzero(pattern_of == p)
        known, missing = np.flatnonzero(~gaps[:d]), np.flatnonzero(gaps[:d])
        cross = covariance[np.ix_(missing, known)]
        if gaps.all():
            yield Conditional(positions, known, missing, cross, covariance, None, centres)
            continue
        factor = cholesky(covariance[np.ix_(known, known)], lower=True) if len(known) else np.zeros((0, 0))
        gain = cho_solve((factor, True), cross.T).T if cross.size else cross
        rest = covariance[np.ix_(missing, missing)] - gain @ cross.T
        units = np.zeros((len(known), d))
        if len(known):
            units[:, known] = solve_triangular(factor, np.eye(len(known)), lower=True)
        residuals = np.ascontiguousarray(centres[:, missing] - centres[:, known] @ gain.T)
        rest = 0.5 * (rest + rest.T)
        if levels is None:
            yield Conditional(positions, known, missing, gain, rest, problem.at(units), residuals)
            continue
        # A level is a coordinate as well. A row that lacks it is at the origin, and as far from all points, given their weights.
        weights = levels.categories.point_weights(levels.point_codes, levels.smoothing, ~gaps[d:])
        reweighted = problem.reweighted(weights if log_weights is None else log_weights + weights)
        kernel = block_diag(units, np.diag(levels.categories.scales(levels.smoothing)))
        yield Conditional(positions, known, missing, gain, rest, reweighted.at(kernel), residuals)


def expect(
    X: np.ndarray,
    centres: np.ndarray,
    covariance: np.ndarray,
    weight: np.ndarray | None,
    engine: Any,
    levels: LevelsOfRows | None = None,
) -> Expectation:
    """Return the expectations of all rows under the mixtures of the others.

    Parameters
    ----------
    X : array of shape (n, d)
        NaN where a value is missing.
    centres : array of shape (n, d)
    covariance : array of shape (d, d)
    weight : array of shape (n,) or None
    engine : None, str or Engine
    levels : LevelsOfRows, optional
    """
    n, d = X.shape
    w = np.ones(n) if weight is None else weight
    with np.errstate(divide="ignore"):
        log_weights = None if weight is None else np.log(weight)
    log_others = np.log(weight_of_others(w))
    # First and second moments of the centres over the neighbours of a row are sufficient. They are taken about a common
    # centre, so that an offset costs no digits.
    offset = mean_of_rows(centres, weight)
    about = centres - offset
    first, second = np.tril_indices(d)
    shown = np.zeros((n, 0)) if levels is None else levels.categories.indicators(levels.point_codes)
    moments = np.hstack([about, about[:, first] * about[:, second], shown])
    end, masses = d + len(first), np.zeros(shown.shape)
    scores, rows, scatter, uncertainty = np.zeros(n), np.array(X), np.zeros((d, d)), np.zeros((d, d))
    known_rows = np.where(np.isnan(X), offset, X)
    for part in conditionals(X, centres, covariance, log_weights, engine, levels):
        chosen, o, m = part.positions, part.known, part.missing
        mass = w[chosen].sum()
        if part.placed is None:
            rows[chosen] = offset
            scatter += mass * covariance
            uncertainty += mass * (covariance + scatter_of_rows(centres, weight))
            masses[chosen] = mean_of_rows(shown, weight)
            continue
        queries = np.ascontiguousarray(X[np.ix_(chosen, o)])
        query_rows, lacking = (
            (known_rows[chosen], 0.0) if levels is None else levels.queries(known_rows[chosen], chosen)
        )
        sums, expected = part.placed.softmax_means(moments, query_rows, chosen)
        log_det = np.linalg.slogdet(covariance[np.ix_(o, o)])[1]
        scores[chosen] = sums + lacking - log_others[chosen] - 0.5 * (len(o) * LOG_2PI + log_det)
        masses[chosen] = expected[:, end:]
        means, products = expected[:, :d], np.empty((d, d))
        products[first, second] = products[second, first] = w[chosen] @ expected[:, d:end]
        away = queries - offset[o]
        cross = (w[chosen, None] * away).T @ means[:, o]
        known_scatter = (w[chosen, None] * away).T @ away - cross - cross.T + products[np.ix_(o, o)]
        scatter[np.ix_(o, o)] += known_scatter
        if len(m):
            lifted = part.gain @ known_scatter
            scatter[np.ix_(m, o)] += lifted
            scatter[np.ix_(o, m)] += lifted.T
            scatter[np.ix_(m, m)] += lifted @ part.gain.T + mass * part.rest
            rows[np.ix_(chosen, m)] = offset[m] + means[:, m] + (away - means[:, o]) @ part.gain.T
            between = products - (w[chosen, None] * means).T @ means
            lift = np.zeros((len(m), d))
            lift[:, o], lift[:, m] = -part.gain, np.eye(len(m))
            uncertainty[np.ix_(m, m)] += lift @ between @ lift.T + mass * part.rest
    scatter, uncertainty = 0.5 * (scatter + scatter.T), 0.5 * (uncertainty + uncertainty.T)
    return Expectation(scores, rows, scatter, uncertainty, None if levels is None else masses)


def gaussian_start(X: np.ndarray, weight: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return rows whose missing entries are their expectation under the Gaussian of the known ones, and its covariance.

    This makes at most 30 passes of EM for a Gaussian with missing values, with a small ridge.
    """
    n, d = X.shape
    w = np.ones(n) if weight is None else weight
    gaps = np.isnan(X)
    known_weight = np.where(gaps, 0.0, w[:, None])
    centre = (known_weight * np.nan_to_num(X)).sum(axis=0) / np.maximum(known_weight.sum(axis=0), 1e-300)
    variance = (known_weight * np.square(np.nan_to_num(X) - centre * ~gaps)).sum(axis=0) / np.maximum(
        known_weight.sum(axis=0), 1e-300
    )
    ridge = np.diag(_RIDGE * np.where(variance > 0, variance, 1.0))
    covariance, rows = np.diag(variance) + ridge, np.where(gaps, centre, X)
    patterns, pattern_of = np.unique(gaps, axis=0, return_inverse=True)
    members = [np.flatnonzero(pattern_of.reshape(-1) == p) for p in range(len(patterns))]
    for _ in range(_GAUSSIAN_PASSES):
        added = np.zeros((d, d))
        for missing, chosen in zip(patterns, members, strict=True):
            m, o = np.flatnonzero(missing), np.flatnonzero(~missing)
            if not len(m):
                continue
            cross = covariance[np.ix_(m, o)]
            gain = np.linalg.solve(covariance[np.ix_(o, o)], cross.T).T
            rows[np.ix_(chosen, m)] = centre[m] + (X[np.ix_(chosen, o)] - centre[o]) @ gain.T
            added[np.ix_(m, m)] += w[chosen].sum() * (covariance[np.ix_(m, m)] - gain @ cross.T)
        centre, last = mean_of_rows(rows, weight), covariance
        covariance = scatter_of_rows(rows, weight) + added / w.sum() + ridge
        scale = np.sqrt(np.diag(covariance))
        if np.all(np.abs(covariance - last) <= _UNCHANGED * np.outer(scale, scale)):
            break
    return rows, 0.5 * (covariance + covariance.T)


class IncompleteRows(NamedTuple):
    """The leave-one-out problem of rows with gaps: a pass also fills in the gaps of the centres again."""

    known: np.ndarray  # (n, d), NaN where a value is missing
    weight: np.ndarray | None  # (n,)
    rows: np.ndarray  # (n, d), the centres of the kernels: the rows with their gaps filled in
    covariance: np.ndarray  # (d, d), of the data, with a small ridge
    engine: Any

    @classmethod
    def of(cls, X: np.ndarray, weight: np.ndarray | None, engine: Any, names: Any = None) -> "IncompleteRows":
        """Return the problem of rows whose gaps are filled in under a Gaussian; raise for columns without any value."""
        check_columns_known(X, names)
        known = X.astype(np.float64)
        return cls(known, weight, *gaussian_start(known, weight), engine)

    @property
    def mass(self) -> float:
        """The sum of the weights."""
        return float(len(self.known) if self.weight is None else self.weight.sum())

    def mean(self, scores: np.ndarray) -> float:
        """Return the (weighted) mean of numbers per row."""
        return float(scores.sum() if self.weight is None else self.weight @ scores) / self.mass

    def expect(self, covariance: np.ndarray) -> Expectation:
        """Return the expectations of all rows under the kernels of the others."""
        return expect(self.known, self.rows, covariance, self.weight, self.engine)

    def em_statistics(self, metric: np.ndarray) -> EMStatistics:
        """Return the log-likelihood of the known values per row, and the expected scatter in the frame of the metric."""
        inverse = np.linalg.inv(metric)
        expectation = self.expect(inverse @ inverse.T)
        scatter = metric @ (expectation.scatter / self.mass) @ metric.T
        return EMStatistics(self.mean(expectation.scores), scatter, self._replace(rows=expectation.rows))

    def complete(self) -> LeaveOneOut:
        """Return the problem of the rows with their gaps filled in."""
        return leave_one_out(self.rows, self.weight, self.engine)


def narrowed(covariance: np.ndarray, n: int) -> np.ndarray:
    """Return the covariance of the data times Scott's factor, as the initial kernel."""
    return covariance * n ** (-2.0 / (len(covariance) + 4))
