"""A problem under one kernel, with every sum over pairs that the estimators need."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import ArrayLike

from vicinal._engine import accuracy, tuning
from vicinal._engine.accuracy import (
    TIED,
    robust_centre,
)
from vicinal._engine.contract import Match, Placed, Pull, Scatter, ScatterAndMeans, Space, by_metric, finite, to_images
from vicinal._engine.families import Frames, Kernel
from vicinal._engine.neighbors import ListedPairs, groups_of_queries, listed_pairs, nearest_with_ties
from vicinal._engine.queries import Queries
from vicinal._engine.reference.arrays import like
from vicinal._engine.row_search import Neighbors
from vicinal._engine.work.blocks import Blocks, listed_parts
from vicinal._tensors import as_host, on_device

if TYPE_CHECKING:
    from vicinal._engine.frames.placed import PlacedFrames
    from vicinal._engine.problem import Problem


class Means(NamedTuple):
    """``log_sums`` (m,) and ``means`` (m, v) over the softmax neighbours."""

    log_sums: np.ndarray
    means: np.ndarray


class Squares(NamedTuple):
    """``log_sums`` (m,) and ``total`` = sum_ij r_i p_ij |z_i - z_j|^2, the trace of the scatter of the images."""

    log_sums: np.ndarray
    total: float


class Placement:
    """The rows of a problem under one kernel, which computes sums over pairs.

    All methods take ``queries``: None for all resident rows, an integer array for some of them by position (each
    position once), or a table of new rows.  Resident rows are left out of their own sums if the problem was prepared so;
    for new rows, ``left_out`` may give a position that is excluded for each, or -1.
    """

    def __init__(self, problem: Problem, placed: Placed, kernel: Kernel = None) -> None:
        self.problem, self.placed, self.kernel = problem, placed, kernel
        self.shared = not isinstance(kernel, Frames)  # whether one metric is shared by all points

    def log_sums(self, queries: ArrayLike | None = None, left_out: ArrayLike | None = None) -> np.ndarray:
        """Return ``log sum_j exp(s_ij)``, shape (m,); a tensor if the queries are a tensor on a device."""
        asked = self.problem.queries(queries, left_out)
        if on_device(asked.rows) and not self.placed.takes_tensors:
            found = self.placed.log_sums(replace(asked, rows=as_host(asked.rows))).log_sums
            return like(found, asked.rows, array_namespace(asked.rows).float64)
        log_sums = self.placed.log_sums(asked).log_sums
        given = self.problem.given_rows
        if not self.shared or given is None or given.dtype != np.float64 or on_device(asked.rows):
            return log_sums
        return self._with_far_rows(asked, log_sums, given, None if asked.rows is None else np.asarray(queries))

    def _with_far_rows(
        self, asked: Queries, log_sums: np.ndarray, given: np.ndarray, new: np.ndarray | None
    ) -> np.ndarray:
        """Return log-sums, with those of queries whose images have lost digits from differences of the rows as given.

        An image at a distance of 1e10 from the centre is rounded to 1e-6, and so is its distance from a neighbour, although the
        difference of both rows is exact.
        """
        is_far = np.isfinite(log_sums)
        for part, images in self._images_in_parts(asked):
            is_far[part] &= np.abs(images).max(axis=1) > accuracy.FARTHEST_IMAGE
        far = np.flatnonzero(is_far)
        if not len(far):
            return log_sums
        points = self.problem.points
        positions = far if asked.positions is None else asked.positions[far]
        rows = given[positions] if new is None else new[far]
        some = _some(asked, far, self.problem.n_points)
        for query, point, scores in listed_pairs(self.placed, some, log_sums[far] - accuracy.NEGLIGIBLE_NATS):
            for part in listed_parts(len(query), 2 * self.problem.n_features):
                images = to_images(rows[query[part]] - given[point[part]], self.placed.metric)
                scores[part] = -0.5 * np.einsum("ij,ij->i", images, images)
            if points.log_weights is not None:
                scores += points.log_weights[point]
            starts, counts = groups_of_queries(query)
            largest = np.maximum.reduceat(scores, starts)
            with np.errstate(under="ignore"):
                total = np.add.reduceat(np.exp(scores - np.repeat(largest, counts)), starts)
            log_sums[far[query[starts]]] = largest + np.log(total)
        return log_sums

    @property
    def expected_share(self) -> float:
        """The share of all pairs that a pass over all rows is expected to visit, counted on a sample of rows."""
        return self.placed.expected_share

    def log_sums_table(
        self,
        queries: ArrayLike | None = None,
        left_out: ArrayLike | None = None,
        skips: tuple[ArrayLike, ArrayLike] | None = None,
    ) -> np.ndarray:
        """Return the log-sums under every depth and noise of `Frames`, shape (depths, noises, m).

        Parameters
        ----------
        skips : two integer arrays, optional
            Further pairs (query, point) to exclude, in addition to ``left_out``; any number per query.
        """
        placed = cast("PlacedFrames", self.placed)
        return placed.log_sums_table(self.problem.queries(queries, left_out), skips)

    def class_shares(self, queries: ArrayLike | None = None, left_out: ArrayLike | None = None) -> np.ndarray:
        """Return each class's share of the softmax neighbours, shape (m, n_classes)."""
        return self.placed.class_shares(self.problem.queries(queries, left_out))

    def class_log_shares(self, queries: ArrayLike | None = None, left_out: ArrayLike | None = None) -> np.ndarray:
        """Return the logarithms of `class_shares`, to a relative error; -inf for a class without a point."""
        asked, points = self.problem.queries(queries, left_out), self.problem.points
        log_sums, log_shares = self.placed.log_sums(asked, by_class=True)
        assert log_shares is not None
        assert points.classes is not None
        weights = np.zeros(len(points.classes)) if points.log_weights is None else points.log_weights
        are_lost = (log_shares < np.log(accuracy.LEAST_SHARE[points.rows.dtype])) & (log_sums > -np.inf)[:, None]
        for code in np.flatnonzero(are_lost.any(axis=0)):
            # A share that underflows beside those of the other classes is the quotient of two sums.
            of_class = np.where(points.classes == code, weights, -np.inf)
            if not np.isfinite(of_class).any():
                continue
            lost = np.flatnonzero(are_lost[:, code])
            alone = self.problem.reweighted(of_class).at(self.kernel).placed
            sums = alone.log_sums(_some(asked, lost, len(weights))).log_sums
            log_shares[lost, code] = sums - log_sums[lost]
        return log_shares

    def softmax_means(
        self, values: ArrayLike, queries: ArrayLike | None = None, left_out: ArrayLike | None = None
    ) -> Means:
        """Return the log-sums and the softmax means of values (n, v) of the points; 0 for a query without neighbours."""
        centred, offset = _centred_values(values)
        asked = self.problem.queries(queries, left_out)
        found = self.placed.softmax_sums(asked, None, centred)
        return Means(found.log_sums, found.gathered + np.where(found.log_sums > -np.inf, 1.0, 0.0)[:, None] * offset)

    def mean_shifts(self, queries: ArrayLike | None = None, left_out: ArrayLike | None = None) -> Means:
        """Return the log-sums and ``sum_j p_ij (z_j - q_i)``, shape (m, k): from an image to its neighbours' mean.

        The shift of a query without neighbours is 0.
        """
        asked = self.problem.queries(queries, left_out)
        found = self.placed.softmax_sums(asked, None, "images")
        for part, mine in self._images_in_parts(asked):
            # The last column is the sum of the weights: 1, or 0 for a query without neighbours.
            found.gathered[part, :-1] -= found.gathered[part, -1:] * mine
        return Means(found.log_sums, found.gathered[:, :-1])

    def _images_in_parts(self, asked: Queries) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield the images of the queries, some at a time."""
        n = self.problem.n_points
        for part in Blocks(asked.count(n), tuning.ALGEBRA_ROWS):
            yield part, self.placed.coordinates(asked.take(np.arange(part.start, part.stop), n), "images")

    def scatter(
        self,
        row_weights: ArrayLike | None = None,
        queries: ArrayLike | None = None,
        left_out: ArrayLike | None = None,
        *,
        space: Space = "images",
    ) -> Scatter:
        """Return the log-sums and the pooled scatter ``sum_ij r_i p_ij (u_i - u_j)(u_i - u_j)'``.

        Parameters
        ----------
        row_weights : array of shape (m,), optional
        space : {"images", "rows"}
            The meaning of u: the images under the metric, or the rows themselves.
        """
        asked = self.problem.queries(queries, left_out)
        return self.placed.scatter(asked, _weights(row_weights, asked.count(self.problem.n_points)), space)

    def scatter_and_means(
        self, values: ArrayLike, row_weights: ArrayLike | None = None, *, n_first: int | None = None
    ) -> ScatterAndMeans:
        """Return the scatter of all resident rows, of the first coordinates of their images, and the means of values (n, v) as `softmax_means`.

        Where a scatter takes two sweeps, the first of them gives the means.
        """
        centred, offset = _centred_values(values)
        asked = self.problem.queries(None, None)
        found = self.placed.scatter_and_means(
            asked,
            _weights(row_weights, self.problem.n_points),
            centred,
            self.placed.n_coordinates if n_first is None else n_first,
        )
        return found._replace(means=found.means + np.where(found.log_sums > -np.inf, 1.0, 0.0)[:, None] * offset)

    def squares(self, row_weights: ArrayLike | None = None, queries: ArrayLike | None = None) -> Squares:
        """Return the log-sums and ``sum_ij r_i p_ij |z_i - z_j|^2``, the trace of the scatter of the images."""
        asked = self.problem.queries(queries, None)
        log_sums, squares = self.placed.squares(asked)
        return Squares(log_sums, float(_weights(row_weights, len(squares)) @ squares))

    def pull(
        self, row_weights: ArrayLike | None = None, queries: ArrayLike | None = None, *, objective: str = "accuracy"
    ) -> Pull:
        """Return the `Pull` of the resident rows towards those that they agree with, by the problem's match.

        ``p_ij m_ij / a_i`` is a softmax again: under Gaussian matches the one in coordinates augmented by the targets,
        under dot matches a mixture of one softmax per target column.
        """
        asked = self.problem.queries(queries, None)
        r = _weights(row_weights, asked.count(self.problem.n_points))
        likelihood = objective == "likelihood"
        if self.problem.given_match.kind == "class":
            return self.placed.class_pull(asked, r, likelihood)
        parts = self._gaussian_parts if self.problem.given_match.kind == "gaussian" else self._dot_parts
        log_sums, log_parts, placed = parts(asked)
        log_agreement = np.logaddexp.reduce(log_parts, axis=1)
        with np.errstate(under="ignore"):
            factors = r if likelihood else r * np.exp(log_agreement)
            reached = np.where(log_agreement > -np.inf, log_agreement, 0.0)
            shares = factors[:, None] * np.exp(log_parts - reached[:, None])
        pull = self.placed.softmax_pull(asked, factors)
        for share, part in zip(shares.T, placed, strict=True):
            some = np.flatnonzero(share > 0)
            if len(some):
                pull -= part.softmax_pull(_some(asked, some, self.problem.n_points), share[some])[:, : pull.shape[1]]
        return Pull(log_sums, log_agreement, pull)

    def _gaussian_parts(self, asked: Queries) -> tuple[np.ndarray, np.ndarray, list[Placed]]:
        """Return the log-sums, the log of the agreeing points' share (m, 1), and the placement that weights them."""
        log_sums = self.placed.log_sums(asked).log_sums
        placed = (
            self.problem.with_targets()
            .at(_beside_targets(self.placed.metric, self.problem.given_match, self.problem.n_features))
            .placed
        )
        matched = placed.log_sums(asked).log_sums
        with np.errstate(invalid="ignore"):
            log_parts = np.where(matched > -np.inf, matched - log_sums, -np.inf)
        is_far = np.isfinite(matched) & (np.abs(log_sums) > accuracy.LARGEST_LOG_SUM[self.problem.points.rows.dtype])
        log_parts[is_far] = self._matches_of_far_rows(asked, np.flatnonzero(is_far))
        return log_sums, np.minimum(log_parts, 0.0)[:, None], [placed]

    def _matches_of_far_rows(self, asked: Queries, far: np.ndarray) -> np.ndarray:
        """Return the log of the agreeing points' share of some queries, from scores relative to the largest one."""
        scores_of, positions = self.placed.pair_scores(asked), np.arange(self.problem.n_points)
        targets, log_matches = self.problem.given_match.values, np.empty(len(far))
        own_targets = targets if asked.positions is None else targets[asked.positions]
        for number, query in enumerate(far):
            scores = scores_of(np.full(len(positions), query), positions)
            if asked.left_out is not None and asked.left_out[query] >= 0:
                scores[asked.left_out[query]] = -np.inf
            scores -= scores.max()
            matches = -0.5 * np.square(own_targets[query] - targets).sum(axis=1)
            log_matches[number] = np.logaddexp.reduce(scores + matches) - np.logaddexp.reduce(scores)
        return log_matches

    def _dot_parts(self, asked: Queries) -> tuple[np.ndarray, np.ndarray, list[Placed]]:
        """Return the same for each column of the targets, (m, t): ``m_ij = sum_c t_ic t_jc``."""
        targets = self.problem.given_match.values
        mine = targets if asked.positions is None else targets[asked.positions]
        placed = [problem.at(self.placed.metric).placed for problem in self.problem.by_target_column()]
        log_sums, means, _ = self.placed.softmax_sums(asked, None, targets)
        with np.errstate(divide="ignore"):
            log_means, log_mine = np.log(np.maximum(means, 0.0)), np.log(mine)
        for c, part in enumerate(placed):
            # A mean that underflows in the softmax of all points is exact as the quotient of two sums.
            underflowed = np.flatnonzero(
                (means[:, c] < accuracy.LEAST_SHARE[self.problem.points.rows.dtype]) & (mine[:, c] > 0)
            )
            if len(underflowed):
                sums = part.log_sums(_some(asked, underflowed, self.problem.n_points)).log_sums
                with np.errstate(invalid="ignore"):
                    log_means[underflowed, c] = np.where(sums > -np.inf, sums - log_sums[underflowed], -np.inf)
        return log_sums, log_mine + log_means, placed

    def log_agreement(self, queries: ArrayLike | None = None) -> np.ndarray:
        """Return ``log a_i`` of the resident rows, shape (m,), as `pull` does, but in fewer sweeps."""
        asked = self.problem.queries(queries, None)
        if self.problem.given_match.kind == "class":
            return self.placed.class_agreement(asked)[1]
        parts = self._gaussian_parts if self.problem.given_match.kind == "gaussian" else self._dot_parts
        return np.logaddexp.reduce(parts(asked)[1], axis=1)

    def gradient(
        self, row_weights: ArrayLike | None = None, queries: ArrayLike | None = None, *, objective: str = "accuracy"
    ) -> Pull:
        """Return the `Pull` with ``pull' X`` (k, D), that is ``A S(w)``, in place of the pull itself."""
        if self.problem.given_match.kind == "class":
            asked = self.problem.queries(queries, None)
            r = _weights(row_weights, asked.count(self.problem.n_points))
            return self.placed.class_gradient(asked, r, objective == "likelihood")
        found = self.pull(row_weights, queries, objective=objective)
        return found._replace(pull=self.by_metric(found.pull))

    def by_metric(self, pull: np.ndarray) -> np.ndarray:
        """Return ``pull' X`` (k, D) for a pull (n, k) on the images; its diagonal if the metric is diagonal."""
        return by_metric(pull, self.problem.points.rows, self.placed.metric)

    @property
    def images(self) -> np.ndarray:
        """The images of the resident rows, centred, in the working precision."""
        return self.placed.coordinates(Queries(), "images")

    def perplexities(self, queries: ArrayLike | None = None, left_out: ArrayLike | None = None) -> np.ndarray:
        """Return the effective number of neighbours of each query, ``exp(H(p_i))``, shape (m,); 1 for one without any.

        ``H_i = log_sums_i + sum_j p_ij (|z_i - z_j|^2 / 2 - log_weights_j)``.  If every point has its own kernel, or log-sums are so large
        that rounding would hide the entropy, the pairs that matter are listed and their scores are computed from differences.
        """
        asked, n = self.problem.queries(queries, left_out), self.problem.n_points
        if not self.shared:
            return self._listed_perplexities(asked)
        log_sums, squares = self.placed.squares(asked)
        entropies = log_sums + 0.5 * squares
        weights = self.problem.points.log_weights
        if weights is not None:
            entropies -= self.placed.softmax_sums(asked, None, finite(weights)[:, None]).gathered[:, 0]
        most = n - (0 if asked.left_out is None else (asked.left_out >= 0).astype(int))
        answer = np.clip(np.exp(np.clip(entropies, 0.0, 700.0)), 1.0, np.maximum(most, 1))
        far = np.flatnonzero(np.isfinite(log_sums) & (np.abs(log_sums) > accuracy.LARGEST_LOG_SUM[accuracy.FLOAT64]))
        if len(far):
            answer[far] = self._listed_perplexities(_some(asked, far, n))
        return answer

    def _listed_perplexities(self, asked: Queries) -> np.ndarray:
        floors = self.placed.log_sums(asked).log_sums - accuracy.NEGLIGIBLE_NATS
        answer = np.ones(asked.count(self.problem.n_points))
        for query, _, scores in listed_pairs(self.placed, asked, floors=floors):
            starts, counts = groups_of_queries(query)
            some = query[starts]
            below = scores - np.repeat(np.maximum.reduceat(scores, starts), counts)
            with np.errstate(under="ignore"):
                weights = np.exp(below)
                total = np.add.reduceat(weights, starts)
                answer[some] = np.exp(np.log(total) - np.add.reduceat(weights * below, starts) / total)
        return answer

    def neighbors_above(
        self, least: float, queries: ArrayLike | None = None, left_out: ArrayLike | None = None
    ) -> Iterator[ListedPairs]:
        """Yield, for blocks of queries, the pairs with ``p_ij >= least``: queries, points and p, grouped by query.

        The weights of a query are normalised over the pairs that are listed.
        """
        asked = self.problem.queries(queries, left_out)
        floors = self.placed.log_sums(asked).log_sums + np.log(least)
        for query, point, scores in listed_pairs(self.placed, asked, floors=floors):
            starts, counts = groups_of_queries(query)
            weights = np.exp(scores - np.repeat(np.maximum.reduceat(scores, starts), counts))
            yield query, point, weights / np.repeat(np.add.reduceat(weights, starts), counts)

    def within(
        self, radius: float | np.ndarray, queries: ArrayLike | None = None, left_out: ArrayLike | None = None
    ) -> Iterator[ListedPairs]:
        """Yield, for blocks of queries, the pairs at a distance of at most `radius`, grouped by query.

        The radius is one number, or one per query.  Three arrays per block: queries, points and squared distances.
        """
        self._check_is_shared("within")
        asked = self.problem.queries(queries, left_out)
        squares = np.full(asked.count(self.problem.n_points), np.square(radius))
        for query, point, scores in listed_pairs(self._by_distance, asked, floors=-0.5 * squares):
            near = -2.0 * scores <= squares[query] * (1.0 + TIED)
            yield query[near], point[near], -2.0 * scores[near]

    def _check_is_shared(self, verb: str) -> None:
        if not self.shared:
            raise TypeError(f"{verb} is for a metric that all points share. List neighbours with neighbors_above.")

    def nearest(
        self, k: int, queries: ArrayLike | None = None, left_out: ArrayLike | None = None, *, by: str = "distance"
    ) -> Neighbors:
        """Return the k nearest points of each query, exactly: nearest first, ties in the order of the points.

        Parameters
        ----------
        k : int
            At most the number of points that are not left out for a query.
        by : {"distance", "product"}
            The smallest Euclidean distance of the images, or their largest inner product.
        """
        self._check_is_shared("nearest")
        asked = self.problem.queries(queries, left_out)
        origin = to_images(self.problem.centre[None], self.placed.metric)[0] if by == "product" else None
        return self._by_distance.nearest(asked, k, origin)

    @cached_property
    def _by_distance(self) -> Placed:
        """The placement without the weights of its points, except for points of weight 0: scores depend only on distance."""
        if self.problem.points.log_weights is None:
            return self.placed
        weights = _presence(self.problem.points.log_weights)
        return self.problem.reweighted(weights).at(self.placed.metric).placed

    def nearest_with_ties(
        self, k: int, queries: ArrayLike | None = None, left_out: ArrayLike | None = None
    ) -> Iterator[ListedPairs]:
        """Yield, for blocks of queries, each query's k nearest points and all that tie with the k-th.

        Three arrays per block: queries, points and squared distances, those of a query together, nearest first.
        """
        self._check_is_shared("nearest_with_ties")
        return nearest_with_ties(self._by_distance, self.problem.queries(queries, left_out), k)


def _some(asked: Queries, some: np.ndarray, n: int) -> Queries:
    """Return some of the queries; the same object for all of them, so that symmetry can be used."""
    return asked if len(some) == asked.count(n) else asked.take(some, n)


def _centred_values(values: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Return values less an offset, so that their means lose no digits to it, and the offset."""
    given = np.asarray(values)
    real = given.dtype if given.dtype.kind == "f" else np.dtype(np.float64)
    offset = robust_centre(given).astype(real)
    return given.astype(real, copy=False) - offset, offset


def _weights(row_weights: ArrayLike | None, m: int) -> np.ndarray:
    return np.ones(m) if row_weights is None else np.array(row_weights, dtype=np.float64)


def _beside_targets(metric: np.ndarray | None, match: Match, n_features: int) -> np.ndarray:
    """Return the metric of rows with their targets: ``diag(A, I)``."""
    n_targets = match.values.shape[1]
    metric = np.ones(n_features) if metric is None else np.asarray(metric)
    if metric.ndim == 1:
        return np.append(metric, np.ones(n_targets))
    both = np.zeros((len(metric) + n_targets, n_features + n_targets))
    both[: len(metric), :n_features] = metric
    both[len(metric) :, n_features:] = np.eye(n_targets)
    return both


def _presence(log_weights: np.ndarray | None) -> np.ndarray | None:
    """Log-weights that only remove points: 0, or -inf where they are -inf; None if all points are present."""
    if log_weights is None or np.isfinite(log_weights).all():
        return None
    return np.where(log_weights > -np.inf, 0.0, -np.inf)
