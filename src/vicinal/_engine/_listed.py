"""Sums over listed neighbours: for steps that use a few neighbours of a few rows, and must not map all other rows.

The softmax of a row runs only over its list; otherwise these are the sums of `_placement.Placement`.
"""

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from scipy.sparse import csc_array

from vicinal._engine._contract import Match, Points, Pull, by_metric, listed_parts, to_images


class Listed:
    """Some resident rows and their listed neighbours; make one with `Problem.listed`."""

    def __init__(self, points: Points, match: Match | None, queries: np.ndarray, neighbors: np.ndarray) -> None:
        self.points, self.match = points, match
        self.queries = np.asarray(queries)
        self.absent = np.asarray(neighbors) < 0
        # An absent neighbour is represented by the row itself: a difference of 0, and a score of -inf.
        self.neighbors = np.where(self.absent, self.queries[:, None], neighbors)

    def at(self, metric: np.ndarray | None) -> "ListedPlacement":
        """Place the rows that are queries or listed, and no others, under a metric of shape (k, D) or (D,), or None."""
        return ListedPlacement(self, None if metric is None else np.asarray(metric, dtype=np.float64))


class ListedPlacement:
    """The rows of a `Listed` under one metric."""

    def __init__(self, listed: Listed, metric: np.ndarray | None) -> None:
        self.listed, self.metric = listed, metric
        both = np.concatenate([listed.queries, listed.neighbors.ravel()])
        self._touched, places = np.unique(both, return_inverse=True)
        places = places.ravel()
        self._own = places[: len(listed.queries)]
        self._others = places[len(listed.queries) :].reshape(listed.neighbors.shape)

    @cached_property
    def _rows(self) -> np.ndarray:
        return self.listed.points.rows[self._touched]

    @cached_property
    def _images(self) -> np.ndarray:
        return to_images(self._rows.astype(np.float64, copy=False), self.metric)

    def _parts(self) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
        """Slices of the queries, with differences (m, k, d) to their neighbours and the scores (m, k)."""
        points, neighbors = self.listed.points, self.listed.neighbors
        for part in listed_parts(len(neighbors), neighbors.shape[1] * self._images.shape[1]):
            difference = self._images[self._own[part], None, :] - self._images[self._others[part]]
            scores = -0.5 * np.einsum("ijk,ijk->ij", difference, difference)
            if points.log_weights is not None:
                scores += points.log_weights[neighbors[part]]
            scores[self.listed.absent[part]] = -np.inf
            yield part, difference, scores

    def log_sums(self) -> np.ndarray:
        """Return ``log sum_j exp(s_ij)`` over the listed neighbours, shape (m,)."""
        found = [top + log_total for top, _, log_total in (_softmax(scores) for _, _, scores in self._parts())]
        return np.concatenate(found) if found else np.empty(0)

    def gradient(self, row_weights: np.ndarray | None = None, *, objective: str = "accuracy") -> Pull:
        """Return the `Pull` of the listed neighbours, with ``pull' X`` in place of the pull itself.

        A row none of whose neighbours agrees with it has a log-agreement of -inf and is not pulled.
        """
        m = len(self.listed.queries)
        r = np.ones(m) if row_weights is None else np.asarray(row_weights, dtype=np.float64)
        log_sums, log_agreement = np.empty(m), np.empty(m)
        n_dims = self._images.shape[1]
        pull = np.zeros((len(self._images), n_dims))
        for part, difference, scores in self._parts():
            top, p, log_total = _softmax(scores)
            # Relative to the row's largest score, because with scores of 1e16 a log-agreement would round to 0.
            with np.errstate(divide="ignore"):
                agreement = np.log(self._agreement(part))
            shift, matched, log_matched = _softmax(scores - top[:, None] + agreement)
            log_sums[part] = top + log_total
            log_agreement[part] = log_a = shift + log_matched - np.where(np.isfinite(log_total), log_total, 0.0)
            with np.errstate(under="ignore"):
                factors = r[part] * (np.exp(log_a) if objective == "accuracy" else np.isfinite(log_a))
            pulls = (factors[:, None] * (p - matched))[:, :, None] * difference
            _add_rows(pull, self._own[part], pulls.sum(axis=1))
            _add_rows(pull, self._others[part].ravel(), -pulls.reshape(-1, n_dims))
        return Pull(log_sums, log_agreement, by_metric(pull, self._rows, self.metric))

    def _agreement(self, part: slice) -> np.ndarray:
        """m_ij of the queries and their neighbours."""
        match = self.listed.match
        assert match is not None
        mine, theirs = match.values[self.listed.queries[part]], match.values[self.listed.neighbors[part]]
        if match.kind == "class":
            return (theirs == mine[:, None]).astype(np.float64)
        if match.kind == "dot":
            return np.einsum("it,ijt->ij", mine, theirs)
        with np.errstate(under="ignore"):
            return np.exp(-0.5 * ((mine[:, None, :] - theirs) ** 2).sum(-1))


def _softmax(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return each row's largest score (0 for a row of -inf), the softmax, and the log of the sum below the largest score."""
    top = scores.max(axis=1)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(under="ignore", divide="ignore"):
        e = np.exp(scores - top[:, None])
        total = e.sum(axis=1)
        return top, e / np.where(total > 0, total, 1.0)[:, None], np.log(total)


def _add_rows(sums: np.ndarray, places: np.ndarray, rows: np.ndarray) -> None:
    """``sums[places] += rows`` if places repeat: a product with a sparse matrix of ones, which is fast."""
    n = len(places)
    sums += csc_array((np.ones(n), places, np.arange(n + 1)), shape=(len(sums), n)) @ rows
