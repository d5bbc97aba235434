r"""Shrinkage of RCA towards the raw metric, chosen by cross-validation over chunklets.

With few chunklets and many columns the within-chunklet covariance C is mostly noise, and the metric derived from it can be
worse than the raw metric.  Here C is replaced by

.. math:: C_s = (1 - s) C + s \mu I, \qquad \mu = \mathrm{tr}(C) / d

where s = 1 is the raw metric, and s is chosen by how well held-out rows find their mates (the other rows of their chunklet).
Under M = C_s^{-1} all inner products follow from those of the rows and from the r directions that the chunklets span, so no
d x d matrix is inverted: with C = V diag(l) V',

.. math:: x^T C_s^{-1} y = \frac{1}{s \mu} \Bigl(x^T y - \sum_k a_k (v_k^T x)(v_k^T y)\Bigr), \qquad
          a_k = 1 - \frac{s \mu}{(1 - s) l_k + s \mu}.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh

from vicinal._supervision import ChunkletRows

# Shares of the raw metric that are tried.  0 is not among them: it needs an inverse of C.
SHARES = np.array([0.01, 0.03, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0])
_FOLDS = 5
_QUERIES = 400  # held-out rows that search for their mates, over all folds
_PER_CHUNKLET = 8  # the same for one chunklet, so that a large class does not dominate
_OTHERS = 1000  # rows among which the mates are ranked
_SURE = 1.64  # the required gain in standard errors: the one-sided 5 % point of the normal distribution
# Rows whose lengths differ by less than this share are treated as directions and compared by their cosine.
_UNIT = 1e-3


class ShrinkageChoice(NamedTuple):
    """The share of the raw metric to keep, and (share, score, standard error of score - raw score) of each that was tried."""

    shrinkage: float
    path: np.ndarray


class Fold(NamedTuple):
    """The rows of one fold: training rows, queries, candidates, and the chunklets of the latter two (-1: none)."""

    train: ChunkletRows
    queries: np.ndarray
    found: np.ndarray
    query_ids: np.ndarray
    found_ids: np.ndarray


def choose_raw_shrinkage(X: np.ndarray, entries: ChunkletRows) -> ShrinkageChoice:
    """Choose s by cross-validation over chunklets.

    A held-out row ranks its mates among other rows and scores :math:`1 / \\log_2(1 + rank)`, averaged over its chunklet.
    The chosen share is the one closest to the raw metric whose mean score is within one standard error (of the paired
    differences) of the best.  The raw metric is kept unless the gain is at least 1.64 standard errors, which happens by
    chance in one of twenty cases per share.  With a single chunklet nothing can be held out, and the raw metric is kept.

    Parameters
    ----------
    X : array of shape (n, d)
    entries : ChunkletRows
        The chunklets, sorted by id.
    """
    folds = list(chunklet_folds(entries, len(X)))
    if not folds:
        return ShrinkageChoice(1.0, np.array([[1.0, 0.0, 0.0]]))
    cosine = _are_directions(X)
    centre = np.zeros(X.shape[1]) if cosine else _centre_of(X)
    scores = np.concatenate([_scores_of_shares(X, centre, fold, cosine) for fold in folds])
    mean = scores.mean(axis=0)
    best = int(np.argmax(mean))
    behind = scores[:, [best]] - scores
    error = _standard_error(behind)
    path = np.column_stack([SHARES, mean, np.minimum(_standard_error(scores - scores[:, [-1]]), 1.0)])
    if behind[:, -1].mean() <= _SURE * error[-1]:
        return ShrinkageChoice(1.0, path)
    within = np.flatnonzero(behind.mean(axis=0) <= error)
    return ShrinkageChoice(float(SHARES[within[-1]]), path)


def held_out_score(X: np.ndarray, entries: ChunkletRows, fitted: Callable[[ChunkletRows], np.ndarray]) -> float:
    """Return the same cross-validated score for any linear map ``A = fitted(train)`` of shape (k, d)."""
    cosine, scores = _are_directions(X), []
    for fold in chunklet_folds(entries, len(X)):
        A = fitted(fold.train)
        Q, F = X[fold.queries].astype(np.float64) @ A.T, X[fold.found].astype(np.float64) @ A.T
        products = _Products(Q @ F.T, np.square(Q).sum(axis=1), np.square(F).sum(axis=1))
        scores.append(_mate_scores(products, fold, cosine))
    return float(np.concatenate(scores).mean())


def chunklet_folds(entries: ChunkletRows, n_rows: int) -> Iterator[Fold]:
    """Cut chunklets into folds; the same ones for the same chunklets."""
    rng = np.random.default_rng(0)
    n_chunklets = int(entries.ids.max(initial=-1)) + 1
    order, n_folds = rng.permutation(n_chunklets), min(_FOLDS, n_chunklets)
    others = rng.permutation(n_rows)[:_OTHERS]
    for part in np.array_split(order, n_folds) if n_folds > 1 else []:
        held_out = np.isin(entries.ids, part)
        if len(part) * 2 > _QUERIES // n_folds:
            part = part[: _QUERIES // n_folds // 2]
        asking = np.concatenate([np.flatnonzero(entries.ids == one)[:_PER_CHUNKLET] for one in part])
        queries, ids = entries.rows[asking], entries.ids[asking]
        # Training rows remain among the candidates, because most rows of a corpus are in no chunklet.
        chunklet = np.full(n_rows, -1)
        chunklet[entries.rows] = entries.ids
        more = np.setdiff1d(others, queries)
        numbered = np.unique(entries.ids[~held_out], return_inverse=True)[1]
        yield Fold(
            ChunkletRows(entries.rows[~held_out], numbered),
            queries,
            np.append(queries, more),
            ids,
            np.append(ids, chunklet[more]),
        )


class _Products(NamedTuple):
    """The inner products of queries and rows, and the squares of both."""

    between: np.ndarray
    queries: np.ndarray
    found: np.ndarray


def _scores_of_shares(X: np.ndarray, centre: np.ndarray, fold: Fold, cosine: bool) -> np.ndarray:
    """Return scores of the held-out chunklets (rows) for every share (columns)."""
    Q, F = X[fold.queries] - centre, X[fold.found] - centre
    directions, variances, mu = _spectrum(X, fold.train)
    raw = _Products(Q @ F.T, np.square(Q).sum(axis=1), np.square(F).sum(axis=1))
    if mu == 0.0:  # the chunklets to learn from contain only equal rows
        return np.repeat(_mate_scores(raw, fold, cosine)[:, None], len(SHARES), axis=1)
    q, f = Q @ directions, F @ directions
    reduced = [1.0 - share * mu / ((1.0 - share) * variances + share * mu) for share in SHARES]
    # All shares at once, since each square is read from memory once.
    queries, found = (np.square(part) @ np.transpose(reduced) for part in (q, f))
    return np.column_stack(
        [
            _mate_scores(_Products(raw.between - (q * a) @ f.T, raw.queries - mine, raw.found - theirs), fold, cosine)
            for a, mine, theirs in zip(reduced, queries.T, found.T, strict=True)
        ]
    )


def _spectrum(X: np.ndarray, train: ChunkletRows) -> tuple[np.ndarray, np.ndarray, float]:
    """Return directions V (d, r) and variances of the within-chunklet covariance, and their mean over all d directions."""
    rows = X[train.rows].astype(np.float64)
    starts = np.flatnonzero(np.append(True, train.ids[1:] != train.ids[:-1]))
    sizes = np.diff(np.append(starts, len(train.ids)))
    n, d = rows.shape
    if (sizes == 2).all():  # the two residuals of a pair are one contrast, and half as many rows give the same scatter
        rows = np.sqrt(0.5) * (rows[0::2] - rows[1::2])
    else:
        rows -= np.repeat(np.add.reduceat(rows, starts, axis=0) / sizes[:, None], sizes, axis=0)
    gram = rows @ rows.T / n if len(rows) < d else rows.T @ rows / n
    variances, vectors = eigh(gram)
    kept = variances > 1e-10 * max(variances[-1], 0.0)
    variances, vectors = variances[kept], vectors[:, kept]
    directions = rows.T @ vectors / np.sqrt(n * variances) if len(rows) < d else vectors
    return directions, variances, float(variances.sum() / d)


def _mate_scores(products: _Products, fold: Fold, cosine: bool) -> np.ndarray:
    """Return the mean of ``1 / log2(1 + rank)`` over the mates in each held-out chunklet."""
    if cosine:
        near = products.between / np.sqrt(
            np.maximum(products.found, 1e-300)
        )  # the length of the query does not affect ranks
    else:
        near = products.between - 0.5 * products.found
    n, alike = len(fold.queries), fold.found_ids == fold.query_ids[:, None]
    # The first candidates are the queries themselves; other members of a chunklet do not compete with each other.
    mates = alike[:, :n] & ~np.eye(n, dtype=bool)
    asking, mate = np.nonzero(mates)
    wanted, others = near[asking, mate][:, None], np.where(alike, -np.inf, near)[asking]
    ahead = (others > wanted).sum(axis=1) + 0.5 * (others == wanted).sum(axis=1)
    # The mean over the mates of a row, and over the rows of a chunklet.
    chunklet = np.unique(fold.query_ids, return_inverse=True)[1]
    of_row = np.bincount(asking, 1.0 / np.log2(2.0 + ahead), minlength=n) / np.maximum(mates.sum(axis=1), 1)
    return np.bincount(chunklet, of_row) / np.bincount(chunklet)


def _standard_error(differences: np.ndarray) -> np.ndarray:
    n = len(differences)
    if n == 1:  # the spread cannot be estimated from one chunklet
        return np.full(differences.shape[1], np.inf)
    return differences.std(axis=0, ddof=1) / np.sqrt(n)


def _are_directions(X: np.ndarray) -> bool:
    lengths = np.linalg.norm(X[:: max(len(X) // 1000, 1)], axis=1)
    return bool(np.ptp(lengths) <= _UNIT * lengths.max(initial=0.0))


def _centre_of(X: np.ndarray) -> np.ndarray:
    """Return a centre for distances by products; differences do not depend on it."""
    return X[:: max(len(X) // 1000, 1)].mean(axis=0)
