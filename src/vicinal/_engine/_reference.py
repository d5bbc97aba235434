"""The reference backend: each reduction in plain array-namespace arithmetic, a block of rows at a time.

It is what the compiled backend is tested against, what small problems run (nobody waits for a compiler on 200 rows),
and, on torch tensors, the torch engine.
"""

import math

import numpy as np
from array_api_compat import array_namespace, device, is_numpy_namespace

from vicinal._engine._accuracy import accurate_scatter, products_are_accurate, robust_centre
from vicinal._engine._blocks import DEFAULT_MEMORY, Blocks
from vicinal._engine._contract import ClassShares, MutualPull, SignedPull, SoftmaxMeans, SoftmaxScatter
from vicinal._engine._pool import in_order


class ReferenceReductions:
    """The reductions of `_contract.PairReductions`, for arrays of any namespace.

    Parameters
    ----------
    memory : int
        Bytes to use beyond the data and the results.
    threads : int
        Threads over blocks of rows (NumPy releases the GIL in its loops).
    """

    name = "reference"

    def __init__(self, memory=DEFAULT_MEMORY, threads=1):
        self.memory = memory
        self.threads = threads

    def _run(self, work, queries, points):
        """Yield (rows, work(rows)) for blocks of rows, in order; five arrays of a block live at once in a thread."""
        itemsize = 8 if "64" in str(points.dtype) else 4
        pairs = self.memory // (10 * itemsize)
        pairs = min(pairs, 2**18) if is_numpy_namespace(array_namespace(points)) else pairs
        threads = int(min(self.threads, max(self.memory // (10 * itemsize * pairs), 1)))
        blocks = Blocks.for_pairs(queries.shape[0], points.shape[0], pairs)
        return zip(blocks, in_order(work, blocks, threads), strict=True)

    def log_sums(self, queries, points, *, log_weights=None, left_out=None):
        pairs = _Pairs(queries, points, log_weights, left_out)
        log_sums = np.empty(queries.shape[0])
        for rows, sums in self._run(lambda rows: _log_sum_exp(pairs.scores(rows)), pairs.queries, points):
            log_sums[rows] = _numpy(sums)
        return log_sums

    def softmax_means(self, queries, points, values, *, log_weights=None, left_out=None):
        pairs = _Pairs(queries, points, log_weights, left_out)
        values = _like(values, points)
        log_sums, means = np.empty(queries.shape[0]), np.empty((queries.shape[0], values.shape[1]))

        def work(rows):
            sums, weights = pairs.softmax(rows)
            return sums, weights @ values

        for rows, (sums, block) in self._run(work, pairs.queries, points):
            log_sums[rows], means[rows] = _numpy(sums), _numpy(block)
        return SoftmaxMeans(log_sums, means)

    def softmax_spread(self, queries, points, values, *, log_weights=None, left_out=None):
        pairs = _Pairs(queries, points, log_weights, left_out)
        values = _like(values, points)
        total = np.zeros((points.shape[0], values.shape[1]))
        for _, part in self._run(lambda rows: pairs.softmax(rows)[1].T @ values[rows], pairs.queries, points):
            total += _numpy(part)
        return total

    def class_shares(self, queries, points, classes, n_classes, *, log_weights=None, left_out=None):
        one_hot = np.eye(n_classes)[np.asarray(classes)]
        return ClassShares(*self.softmax_means(queries, points, one_hot, log_weights=log_weights, left_out=left_out))

    def softmax_scatter(
        self,
        queries,
        points,
        *,
        query_values=None,
        point_values=None,
        row_weights=None,
        log_weights=None,
        left_out=None,
    ):
        u = _numpy(queries if query_values is None else query_values)
        v = points if point_values is None else _like(point_values, points)
        weights = np.ones(len(u)) if row_weights is None else np.asarray(row_weights, dtype=np.float64)

        def about(some, centre):
            skip = None if left_out is None else np.asarray(left_out)[some]
            pairs = _Pairs(queries if len(some) == len(u) else queries[some], points, log_weights, skip)
            theirs, r = u[some] - centre, weights[some]
            ours = v - _like(centre, v)[None, :]
            columns, means, log_sums = np.zeros(points.shape[0]), np.empty_like(theirs), np.empty(len(some))
            factors = _like(r, points)

            def work(rows):
                sums, softmax = pairs.softmax(rows)
                return sums, softmax @ ours, factors[rows] @ softmax

            for rows, (sums, block, received) in self._run(work, pairs.queries, points):
                log_sums[rows], means[rows] = _numpy(sums), _numpy(block)
                columns += _numpy(received)
            ours = _numpy(ours)
            weighted = theirs * r[:, None]
            scatter = weighted.T @ (theirs - means) - means.T @ weighted + (ours * columns[:, None]).T @ ours
            size = float(np.vdot(weighted, theirs) + columns @ np.square(ours).sum(axis=1))
            return log_sums, 0.5 * (scatter + scatter.T), size

        return SoftmaxScatter(*accurate_scatter(about, u, _dtype(points)))

    def signed_pull(
        self, queries, points, match, *, objective="accuracy", row_weights=None, log_weights=None, left_out=None
    ):
        pairs = _Pairs(queries, points, log_weights, left_out)
        agreement = _Agreement(match, points)
        m, (n, d) = queries.shape[0], points.shape
        r = _like(np.ones(m) if row_weights is None else row_weights, points)
        q, z = pairs.queries, pairs.points
        log_sums, log_agreement = np.empty(m), np.empty(m)
        on_queries, on_points = np.empty((m, d)), np.zeros((n, d))

        def work(rows):
            weights, sums, agreed = _signed_weights(pairs.scores(rows), agreement.block(rows), objective)
            weights = weights * r[rows, None]
            pull = weights.sum(1)[:, None] * q[rows] - weights @ z
            return sums, agreed, pull, weights.sum(0)[:, None] * z - weights.T @ q[rows]

        for rows, (sums, agreed, pull, back) in self._run(work, queries, points):
            log_sums[rows], log_agreement[rows], on_queries[rows] = _numpy(sums), _numpy(agreed), _numpy(pull)
            on_points += _numpy(back)
        return SignedPull(log_sums, log_agreement, on_queries, on_points)

    def mutual_pull(self, points, match, *, objective="accuracy", row_weights=None, log_weights=None):
        options = {"objective": objective, "row_weights": row_weights, "log_weights": log_weights}
        return pull_both_ways(self.signed_pull, points, match, **options)


def pull_both_ways(signed_pull, points, match, **options):
    """`MutualPull` by a backend's `signed_pull`."""
    found = signed_pull(points, points, match, left_out=np.arange(points.shape[0]), **options)
    return MutualPull(found.log_sums, found.log_agreement, found.on_queries + found.on_points)


class _Pairs:
    """Scores of blocks of rows against all points, centred, by products where these are accurate."""

    def __init__(self, queries, points, log_weights, left_out):
        self.queries, self.points = _centred(queries, points)
        self.log_weights = None if log_weights is None else _like(log_weights, points)
        self.left_out = None if left_out is None else np.asarray(left_out)
        self.query_squares = (self.queries**2).sum(1)
        self.point_squares = (self.points**2).sum(1)
        largest = max(float(self.query_squares.max()), float(self.point_squares.max()))
        self.by_products = products_are_accurate(largest, _dtype(points))

    def scores(self, rows):
        q = self.queries[rows]
        if self.by_products:
            squares = self.query_squares[rows, None] + self.point_squares[None, :] - 2.0 * (q @ self.points.T)
            squares = squares.clip(0)
        else:
            squares = (q[:, :1] - self.points[None, :, 0]) ** 2
            for k in range(1, self.points.shape[1]):
                squares += (q[:, k, None] - self.points[None, :, k]) ** 2
        scores = -0.5 * squares if self.log_weights is None else self.log_weights[None, :] - 0.5 * squares
        if self.left_out is not None:
            skip = self.left_out[rows]
            hit = np.flatnonzero(skip >= 0)
            scores[hit, skip[hit]] = -math.inf
        return scores

    def softmax(self, rows):
        log_sums, weights, _ = _softmax(self.scores(rows))
        return log_sums, weights


class _Agreement:
    """Blocks of the match matrix m_ij."""

    def __init__(self, match, like):
        # Codes are compared where the points are: a matrix of matches made elsewhere would have to travel.
        dtype = array_namespace(like).int64 if match.kind == "class" else like.dtype
        self.queries, self.points = _like(match.queries, like, dtype), _like(match.points, like, dtype)
        self.kind, self.dtype = match.kind, like.dtype
        if match.kind == "gaussian":
            self.pairs = _Pairs(self.queries, self.points, None, None)

    def block(self, rows):
        if self.kind == "class":
            same = self.queries[rows, None] == self.points[None, :]
            return array_namespace(same).astype(same, self.dtype)
        if self.kind == "dot":
            return self.queries[rows] @ self.points.T
        return _exp(self.pairs.scores(rows))


def _signed_weights(scores, agreement, objective):
    """The weights of `_contract.SignedPull` for a block, without the row weights; log-sums; log-agreement."""
    xp = array_namespace(scores)
    log_sums, softmax, below = _softmax(scores)
    with np.errstate(divide="ignore"):
        log_match = xp.log(agreement)
    # Of scores relative to the row's largest: beside scores of 1e16 a log-agreement would round to 0.
    log_matched = _log_sum_exp(below + log_match)
    log_agreement = log_matched - xp.log(_exp(below).sum(1))
    if objective == "accuracy":
        return softmax * (_exp(log_agreement)[:, None] - agreement), log_sums, log_agreement
    # In the log domain: p_ij m_ij / a_i stays a softmax even where every p_ij m_ij underflows.
    finite = xp.where(xp.isfinite(log_matched), log_matched, xp.zeros_like(log_matched))
    return softmax - _exp(below + log_match - finite[:, None]), log_sums, log_agreement


# -- small helpers ---------------------------------------------------------------------------------------------


def _exp(x):
    xp = array_namespace(x)
    with np.errstate(under="ignore"):
        return xp.exp(x)


def _below_top(scores):
    """Each row's largest score (0 for a row of -inf), and the scores below it."""
    xp = array_namespace(scores)
    top = xp.max(scores, axis=1)
    top = xp.where(xp.isfinite(top), top, xp.zeros_like(top))
    return top, scores - top[:, None]


def _log_sum_exp(scores):
    """Row log-sum-exp, max-shifted; -inf for a row of -inf."""
    top, below = _below_top(scores)
    with np.errstate(divide="ignore"):
        return top + array_namespace(scores).log(_exp(below).sum(1))


def _softmax(scores):
    """Row log-sum-exp, softmax, and the scores below the largest; zeros for a row of -inf.

    The weights are divided by their sum, not taken from the log-sum: beside scores of 1e16 that one has lost how many
    neighbours there are, and weights would sum to their number.
    """
    top, below = _below_top(scores)
    weights = _exp(below)
    total = weights.sum(1)
    with np.errstate(divide="ignore"):
        log_sums = top + array_namespace(scores).log(total)
    return log_sums, weights / total.clip(1e-300 if "64" in str(scores.dtype) else 1e-30)[:, None], below


def _centred(queries, points):
    """Shift both by one point amid the rows: distances do not change, rounding errors shrink."""
    sample = _numpy(points[:: max(points.shape[0] // 200, 1)])
    centre = _like(robust_centre(sample), points)[None, :]
    return (queries - centre, points - centre)


def _dtype(array):
    """The NumPy dtype of an array of any namespace."""
    return np.dtype(str(array.dtype).removeprefix("torch."))


def _like(array, like, dtype=None):
    """`array` as an array of the namespace and device of `like`, and of its dtype (or another)."""
    xp, dtype = array_namespace(like), dtype or like.dtype
    if is_numpy_namespace(xp):
        return np.asarray(array, dtype=dtype)
    return xp.asarray(array if hasattr(array, "cpu") else np.array(array), dtype=dtype, device=device(like))


def _numpy(array):
    """`array` as float64 NumPy."""
    return np.asarray(array.cpu() if hasattr(array, "cpu") else array, dtype=np.float64)
