"""Leave-one-out for Manifold Parzen Windows that leaves the row out of its neighbours' frames as well.

Dropping only a row's own component still leaks information: the row has shaped the frames of the points that have it
among their neighbours, and these points dominate the density at the row.  Without row i, point j keeps its frame
unless i is among its k neighbours; then the (k+1)th neighbour replaces it and the frame is rebuilt.
There are n k such pairs, so the exact result costs one pass over the pairs and n k small decompositions.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache, partial

import numpy as np
from sklearn.model_selection import KFold

from vicinal._density.mixture_density import HeldOutRows
from vicinal._engine import (
    Engine,
    Frames,
    as_engine,
    available_threads,
    in_order,
    one_blas_thread,
    prepare,
    products_are_accurate,
)
from vicinal._mixtures import LOG_2PI, FrameMixture, Replacements, log_weight_of_others, normalised_log_weights
from vicinal._rows import log_weights
from vicinal._scatter import GRAM_RATIO, leading_directions, neighbor_differences, soft_frames


def held_out_log_density(
    X: np.ndarray,
    neighbors: np.ndarray,
    frames: np.ndarray,
    variances: np.ndarray,
    noises: Sequence[float] | np.ndarray,
    *,
    rows: np.ndarray,
    weight: np.ndarray | None = None,
    engine: Engine | str | None = None,
    slack: float = 1.0,
) -> np.ndarray:
    """Return the log-density of training rows under the estimate built without them, shape (noises, len(rows)).

    Parameters
    ----------
    X : array of shape (n, D)
    neighbors : integer array of shape (n, k + 1)
        The k neighbours of each point, and the next one, which replaces a neighbour that is left out.
    frames, variances : arrays of shape (d, n, D) and (d, n)
        From the k neighbours, `local_frames`.
    noises : sequence of float
    rows : integer array
        The rows to score.
    weight : array of shape (n,), optional
    slack : float
        As in `Frames`.
    """
    n, k = len(X), neighbors.shape[1] - 1
    noises = np.atleast_1d(np.asarray(noises, dtype=np.float64))
    place = np.full(n, -1)
    place[rows] = np.arange(len(rows))
    log_shares = normalised_log_weights(log_weights(weight), n)
    # The pairs (j, i): point j has row i as neighbour number `slot`.
    points, slots = np.nonzero((place[neighbors[:, :k]] >= 0) & (log_shares > -np.inf)[:, None])
    left_out = place[neighbors[points, slots]]

    queries = np.arange(len(rows))
    skips = np.concatenate([queries, left_out]), np.concatenate([rows, points])
    problem = prepare(engine, X, log_weights=log_shares)
    log_sums = problem.at(Frames(frames, variances, noises, slack=slack)).log_sums_table(rows, skips=skips)[0]
    if len(points):
        scores = _rebuilt_scores(X, neighbors, points, slots, len(frames), noises, weight, problem.engine, slack)
        scores += log_shares[points]
        order = np.argsort(left_out, kind="stable")
        rebuilt_rows, starts = np.unique(left_out[order], return_index=True)
        rebuilt = np.logaddexp.reduceat(scores[:, order], starts, axis=1)
        log_sums[:, rebuilt_rows] = np.logaddexp(log_sums[:, rebuilt_rows], rebuilt)
    return log_sums - log_weight_of_others(log_shares)[rows] - 0.5 * X.shape[1] * LOG_2PI


def _rebuilt_scores(
    X: np.ndarray,
    neighbors: np.ndarray,
    points: np.ndarray,
    slots: np.ndarray,
    n_components: int,
    noises: np.ndarray,
    weight: np.ndarray | None,
    engine: Engine,
    slack: float,
) -> np.ndarray:
    """Return scores of (x_i, x_j) under C_j rebuilt without i, the neighbour `slot` of point j, shape (noises, pairs)."""
    k, D = neighbors.shape[1] - 1, X.shape[1]
    threads = available_threads(engine.threads)
    batch = int(np.clip(engine.memory_bytes // (threads + 1) // (8 * 6 * k * (D + k)), 1, 1024))
    vacancies = _other_slots(k)

    def work(start: int) -> np.ndarray:
        j, slot = points[start : start + batch], slots[start : start + batch]
        kept = vacancies[slot]
        shares = None
        if weight is not None:
            shares = weight[np.take_along_axis(neighbors[j], kept, axis=1)]
            shares = shares / shares.sum(axis=1, keepdims=True)
        done = np.zeros(len(j), dtype=bool)
        squares, variances = np.empty((n_components, len(j))), np.empty((n_components, len(j)))
        residual = np.empty(len(j))
        if 2 * k < D:
            done = _split_by_gram(
                X, neighbors, j, slot, kept, shares, noises.min() * slack, squares, residual, variances
            )
        left = np.flatnonzero(~done)
        if len(left):
            others = np.take_along_axis(neighbors[j[left]], kept[left], axis=1)
            directions, variances[:, left] = leading_directions(
                neighbor_differences(X, j[left], others, weight), n_components
            )
            difference = X[neighbors[j[left], slot[left]]].astype(np.float64) - X[j[left]]
            for l, direction in enumerate(directions):
                along = (direction * difference).sum(axis=1)
                difference -= along[:, None] * direction
                squares[l, left] = along**2
            residual[left] = (difference**2).sum(axis=1)
        column = noises[:, None, None]
        total = column + variances
        with np.errstate(over="ignore"):  # a component infinitely far from a row has no share in it
            quadratic = (squares / total + np.log(total)).sum(axis=1) + residual / column[:, 0]
        return -0.5 * (quadratic + (D - n_components) * np.log(column[:, 0]))

    with one_blas_thread():
        return np.concatenate(list(in_order(work, range(0, len(points), batch), threads)), axis=1)


def _other_slots(k: int) -> np.ndarray:
    """Return for each vacant slot the other slots of 0 to k, shape (k, k)."""
    return np.arange(k) + (np.arange(k) >= np.arange(k)[:, None])


def _split_by_gram(
    X: np.ndarray,
    neighbors: np.ndarray,
    j: np.ndarray,
    slot: np.ndarray,
    kept: np.ndarray,
    shares: np.ndarray | None,
    noise: float,
    squares: np.ndarray,
    residual: np.ndarray,
    variances: np.ndarray,
) -> np.ndarray:
    """Fill in a batch of pairs from the (k+1) x (k+1) Gram matrix of each point; return where it is accurate.

    With R the rows ``sqrt(a_m) (x_m - x_j)`` of the kept neighbours and ``R R' = U S^2 U'``, the part of the
    left-out difference along direction l is ``u_l' R (x_i - x_j) / s_l``, and ``R (x_i - x_j)`` is a column
    of the Gram matrix, too, so no computation per pair has dimension D.
    """
    once, back = np.unique(j, return_inverse=True)
    rows = X[neighbors[once]].astype(np.float64)
    rows -= X[once, None, :]
    gram = (rows @ rows.transpose(0, 2, 1))[back]
    pair = np.arange(len(j))
    column = np.take_along_axis(gram[pair, slot], kept, axis=1)
    square = gram[pair, slot, slot]
    gram = gram[pair[:, None, None], kept[:, :, None], kept[:, None, :]]
    roots = np.full(kept.shape, kept.shape[1] ** -0.5) if shares is None else np.sqrt(shares)
    values, vectors = np.linalg.eigh(gram * (roots[:, :, None] * roots[:, None, :]))
    d = len(squares)
    values, vectors = values[:, : -d - 1 : -1], vectors[:, :, : -d - 1 : -1]
    good = values[:, -1] > GRAM_RATIO * values[:, 0]
    good &= products_are_accurate(square.max() / noise, np.float64)
    along = np.einsum("pk,pkl->lp", (column * roots)[good], vectors[good])
    variances[:, good] = values[good].T
    squares[:, good] = along**2 / values[good].T
    residual[good] = np.maximum(square[good] - squares[:, good].sum(axis=0), 0.0)
    return good


def fold_log_density(
    X: np.ndarray,
    Z: np.ndarray,
    n_components: int,
    noises: Sequence[float] | np.ndarray,
    *,
    rows: np.ndarray,
    weight: np.ndarray | None = None,
    engine: Engine | str | None = None,
    slack: float = 1.0,
    n_folds: int,
) -> np.ndarray:
    """Return the log-density of training rows under estimates built without their fold, shape (noises, len(rows)).

    This is used for soft neighbourhoods, where every row shapes every frame and rebuilding them for each row would take
    O(n^2) decompositions.  The arguments are those of `held_out_log_density`; Z is as in `soft_frames`.  The folds consist
    of rows of positive weight; a row of weight 0 is in no estimate and is scored under the estimate of all rows.
    """
    scores = np.empty((len(noises), len(rows)))
    for train, places in soft_folds(len(X), rows, weight, n_folds):
        train_weight = None if weight is None else weight[train]
        frames, variances = soft_frames(X[train], Z[train], n_components, train_weight, engine=engine)
        shares = np.full(len(train), 1.0 / len(train)) if train_weight is None else train_weight / train_weight.sum()
        problem = prepare(engine, X[train], log_weights=np.log(shares))
        placed = problem.at(Frames(frames, variances, noises, slack=slack))
        scores[:, places] = placed.log_sums_table(X[rows[places]])[0]
    return scores - 0.5 * X.shape[1] * LOG_2PI


def soft_folds(
    n: int, rows: np.ndarray, weight: np.ndarray | None, n_folds: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the positions of the rows of an estimate, and the places in `rows` of the rows that it scores."""
    counted = np.arange(n) if weight is None else np.flatnonzero(weight)
    folds = KFold(min(n_folds, len(counted)), shuffle=True, random_state=0).split(counted)
    parts = [(counted[train], counted[test]) for train, test in folds]
    parts.append((counted, np.setdiff1d(np.arange(n), counted)))
    for train, test in parts:
        places = np.flatnonzero(np.isin(rows, test))
        if len(places):
            yield train, places


def rows_held_out_of_frames(mixture: FrameMixture, neighbors: np.ndarray, rows: np.ndarray) -> Iterator[HeldOutRows]:
    """Yield rows with the estimate without each of them, whose frames are those of `held_out_log_density`.

    Parameters
    ----------
    mixture : FrameMixture
        Its centres are the training rows.
    neighbors : integer array of shape (n, k + 1)
    rows : integer array
        The positions of the rows.
    """
    k, (d, n, D) = neighbors.shape[1] - 1, mixture.frames.shape
    # Each row is in k vicinities on average; all of their frames and neighbours are held at a time.
    step = max(as_engine(mixture.engine).memory_bytes // (8 * 4 * k * (k + d) * D), 1)
    pairs = neighbors[:, :k].ravel()
    points_of = np.argsort(pairs, kind="stable")
    starts = np.searchsorted(pairs[points_of], np.arange(n + 1))

    @lru_cache(maxsize=1)  # the frames of some rows at a time
    def replaced(start: int) -> Replacements | None:
        slots_of = [points_of[starts[i] : starts[i + 1]] for i in rows[start : start + step]]
        queries, flat = np.repeat(np.arange(len(slots_of)), [len(flat) for flat in slots_of]), np.concatenate(slots_of)
        is_counted = mixture.log_weights[flat // k] > -np.inf
        return _rebuilt_components(mixture, neighbors, queries[is_counted], flat[is_counted])

    for start in range(0, len(rows), step):
        positions = np.arange(start, min(start + step, len(rows)))
        yield HeldOutRows(positions, mixture, rows[positions], replaced=partial(replaced, start))


def _rebuilt_components(
    mixture: FrameMixture, neighbors: np.ndarray, queries: np.ndarray, flat: np.ndarray
) -> Replacements | None:
    """Return the components that have a query among their neighbours, rebuilt without it; None if there are none.

    Parameters
    ----------
    queries : integer array of shape (pairs,)
    flat : integer array of shape (pairs,)
        The places of the queries in ``neighbors[:, :k]``.
    """
    if not len(flat):
        return None
    X, k = mixture.centres, neighbors.shape[1] - 1
    weight = None if np.ptp(mixture.log_weights) == 0 else np.exp(mixture.log_weights)
    points, slots = flat // k, flat % k
    others = np.take_along_axis(neighbors[points], _other_slots(k)[slots], axis=1)
    frames, variances = leading_directions(neighbor_differences(X, points, others, weight), len(mixture.frames))
    rebuilt = FrameMixture(X[points], frames, variances, mixture.noise, engine=mixture.engine)
    return Replacements(queries, points, rebuilt)


def rows_held_out_of_soft_frames(
    mixture: FrameMixture, Z: np.ndarray, rows: np.ndarray, n_folds: int
) -> Iterator[HeldOutRows]:
    """Yield rows with the estimates without their folds, as `fold_log_density` scores them."""
    X, engine = mixture.centres, mixture.engine
    weight = None if np.ptp(mixture.log_weights) == 0 else np.exp(mixture.log_weights)
    for train, places in soft_folds(len(X), rows, weight, n_folds):
        train_weight = None if weight is None else weight[train]
        frames, variances = soft_frames(X[train], Z[train], len(mixture.frames), train_weight, engine=engine)
        log_shares = mixture.log_weights[train]
        without = FrameMixture(X[train], frames, variances, mixture.noise, log_shares, engine)
        yield HeldOutRows(places, without, made_from=train)
