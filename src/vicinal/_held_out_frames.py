"""Leave-one-out for Manifold Parzen Windows that leaves the row out of its neighbours' frames as well.

Dropping only a row's own component still leaks: the row has shaped the frames of the points that have it among their
neighbours, and those are the points that explain it.  Without row i, point j keeps its frame unless i is among its k
neighbours; then the (k+1)th neighbour takes its place and the frame is rebuilt.  These are n k pairs in all, so the
exact answer costs one pass over the pairs and n k small decompositions.
"""

import numpy as np
from sklearn.model_selection import KFold

from vicinal._engine._choice import as_engine
from vicinal._engine._pool import available_threads, in_order, one_blas_thread
from vicinal._frame_sums import _LOG_2PI, Skips, frame_log_sums
from vicinal._scatter import leading_directions, neighbor_differences, soft_frames


def held_out_log_density(
    X, neighbors, frames, variances, noises, *, rows=None, weight=None, engine=None, slack=1.0
):
    """Log-density of training rows under the estimate built without them, shape (noises, len(rows)).

    Parameters
    ----------
    X : array of shape (n, D)
    neighbors : integer array of shape (n, k + 1)
        The k neighbours of each point and the one that would take a vacant place.
    frames, variances : arrays of shape (d, n, D) and (d, n)
        From the k neighbours, `local_frames`.
    noises : sequence of float
    rows : integer array, optional
        The rows to score; the default is all.
    weight : array of shape (n,), optional
    """
    n, k = len(X), neighbors.shape[1] - 1
    rows = np.arange(n) if rows is None else rows
    noises = np.atleast_1d(np.asarray(noises, dtype=np.float64))
    place = np.full(n, -1)
    place[rows] = np.arange(len(rows))
    with np.errstate(divide="ignore"):
        log_weights = np.zeros(n) if weight is None else np.log(weight)
    # The pairs (j, i): point j has row i as neighbour number `slot`.
    points, slots = np.nonzero((place[neighbors[:, :k]] >= 0) & (log_weights > -np.inf)[:, None])
    left_out = place[neighbors[points, slots]]
    order = np.argsort(left_out, kind="stable")
    points, slots, left_out = points[order], slots[order], left_out[order]

    skips = Skips(np.concatenate([np.arange(len(rows)), left_out]), np.concatenate([rows, points]), len(rows))
    log_sums = frame_log_sums(
        X[rows],
        X,
        frames,
        variances,
        noises,
        log_weights=log_weights,
        skips=skips,
        engine=engine,
        slack=slack,
    )[0]
    scores = (
        _rebuilt_scores(X, neighbors, points, slots, len(frames), noises, weight, engine)
        + log_weights[points]
    )
    some, starts = np.unique(left_out, return_index=True)
    if len(some):
        log_sums[:, some] = np.logaddexp(log_sums[:, some], np.logaddexp.reduceat(scores, starts, axis=1))
    total = n if weight is None else weight.sum()
    return log_sums - np.log(total - (1.0 if weight is None else weight[rows]))


def _rebuilt_scores(X, neighbors, points, slots, n_components, noises, weight, engine):
    """log N(x_i; x_j, C_j rebuilt without i) of the pairs (j, i = neighbour `slot` of j), shape (noises, pairs)."""
    k, D = neighbors.shape[1] - 1, X.shape[1]
    engine = as_engine(engine)
    threads = available_threads(engine.threads)
    batch = int(np.clip(engine.memory_bytes // (threads + 1) // (8 * 4 * k * (D + k)), 1, 1024))
    others = np.arange(k) + (np.arange(k) >= np.arange(k)[:, None])  # slots 0..k without the vacant one
    column = noises[:, None]

    def work(start):
        j, slot = points[start : start + batch], slots[start : start + batch]
        kept = np.take_along_axis(neighbors[j], others[slot], axis=1)
        directions, variances = leading_directions(neighbor_differences(X, j, kept, weight), n_components)
        left = X[neighbors[j, slot]].astype(np.float64) - X[j]
        exponent = D * _LOG_2PI + (D - n_components) * np.log(column)
        for direction, variance in zip(directions, variances, strict=True):
            along = (direction * left).sum(axis=1)
            left -= along[:, None] * direction
            exponent = exponent + along**2 / (column + variance) + np.log(column + variance)
        return -0.5 * (exponent + (left**2).sum(axis=1) / column)

    with one_blas_thread():
        parts = list(in_order(work, range(0, len(points), batch), threads))
    return np.concatenate(parts, axis=1) if parts else np.zeros((len(noises), 0))


def fold_log_density(X, Z, n_components, noises, *, rows, weight=None, engine=None, slack=1.0, n_folds=5):
    """Log-density of training rows under estimates built without their fold, shape (noises, len(rows)).

    For soft neighbourhoods, where every row shapes every frame and rebuilding them for each row would be O(n^2)
    decompositions.  Arguments as in `held_out_log_density`; Z as in `soft_frames`.
    """
    threads = available_threads(as_engine(engine).threads)
    scores = np.empty((len(noises), len(rows)))
    for train, test in KFold(min(n_folds, len(X)), shuffle=True, random_state=0).split(X):
        if weight is not None:
            train = train[weight[train] > 0]
        asked = np.flatnonzero(np.isin(rows, test))
        if len(asked) == 0:
            continue
        some = None if weight is None else weight[train]
        frames, variances = soft_frames(X[train], Z[train], n_components, some, threads=threads)
        shares = np.full(len(train), 1.0 / len(train)) if weight is None else some / some.sum()
        scores[:, asked] = frame_log_sums(
            X[rows[asked]],
            X[train],
            frames,
            variances,
            noises,
            log_weights=np.log(shares),
            engine=engine,
            slack=slack,
        )[0]
    return scores
