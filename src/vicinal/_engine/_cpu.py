"""The compiled CPU backend: Numba kernels and BLAS tiles, on our own threads.

Few coordinates: whole reductions in one fused kernel (`_kernels`).  Many: BLAS for the products q'z and W V, compiled
passes between them.  Where products would lose digits (`_accuracy`), the fused kernels take differences.
"""

import numpy as np

from vicinal._engine import _kernels as kernels
from vicinal._engine._accuracy import accurate_scatter, robust_centre
from vicinal._engine._tuning import DEFAULT_MEMORY, Blocks
from vicinal._engine._contract import ClassShares, Match, MutualPull, SignedPull, SoftmaxMeans, SoftmaxScatter
from vicinal._engine._pairs import TILE, Pairs, pack, unpack
from vicinal._engine._pool import in_order, one_blas_thread
from vicinal._engine._reference import ReferenceReductions, pull_both_ways
from vicinal._engine._symmetric import mutual_pull_once, pays_to_be_symmetric, softmax_once

_PRODUCT_TILE = 1024  # points in a tile of products
_PRODUCT_ROWS = 128
_PAIRS_IN_BLOCK = 2**23  # at 2 to 20 ns a pair: Ctrl-C is heard within 0.2 s
_LEAST_BLOCKS = 16  # so that few threads share the work evenly

_KEPT_POINTS = 80_000  # up to so many points a hand's exponentials are kept; measured
_ALGEBRA_ROWS = 8192  # rows that are algebra's in float64 at a time


# Below this agreement, exponentials of class mates are lost in the precision; such rows go to the reference.
_LEAST_AGREEMENT = {np.dtype(np.float64): 1e-200, np.dtype(np.float32): 1e-20}


class CpuReductions:
    """The reductions of `_contract.PairReductions` on this machine's cores.

    Parameters
    ----------
    memory : int
        Bytes to use beyond the data and the results.
    threads : int
    """

    name = "cpu"

    def __init__(self, memory=DEFAULT_MEMORY, threads=1):
        self.memory = memory
        self.threads = threads

    def log_sums(self, queries, points, *, log_weights=None, left_out=None):
        nothing = np.empty((len(points), 0), dtype=points.dtype)
        return self._softmax(Pairs(queries, points, log_weights, left_out), nothing)[0]

    def softmax_means(self, queries, points, values, *, log_weights=None, left_out=None):
        # Means of centred values, so that an offset costs no digits.
        values = np.asarray(values)
        offset = robust_centre(values)
        pairs = Pairs(queries, points, log_weights, left_out)
        log_sums, means, _ = self._softmax(pairs, values - offset.astype(values.dtype))
        return SoftmaxMeans(log_sums, means + offset.astype(values.dtype))

    def softmax_spread(self, queries, points, values, *, log_weights=None, left_out=None):
        return self._reference().softmax_spread(queries, points, values, log_weights=log_weights, left_out=left_out)

    def class_shares(self, queries, points, classes, n_classes, *, log_weights=None, left_out=None):
        classes = np.asarray(classes)
        order = np.argsort(classes, kind="stable")
        bounds = np.searchsorted(classes[order], np.arange(n_classes + 1))
        pairs = Pairs(queries, points, log_weights, left_out, order)
        log_sums, shares = np.empty(pairs.m), np.empty((pairs.m, n_classes))
        _, scored = pairs.packed()

        def work(rows):
            scores = np.empty((kernels.ROWS, TILE), dtype=pairs.dtype)
            kernels.class_rows(*scored, bounds, rows.start, rows.stop, log_sums, shares, scores)

        self._run(work, pairs)
        return ClassShares(pairs.log_sums(log_sums), shares)

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
        u = queries if query_values is None else query_values
        v = points if point_values is None else point_values
        weights = _row_weights(row_weights, len(queries))
        everyone = np.arange(len(queries))

        def about(rows, centre):
            all_rows = len(rows) == len(everyone)
            q = queries if all_rows else queries[rows]
            pairs = Pairs(
                q, points, log_weights, left_out if all_rows or left_out is None else np.asarray(left_out)[rows]
            )
            same = query_values is None and point_values is None and np.array_equal(centre, pairs.centre)
            ours = pairs.points if same else v - centre.astype(v.dtype)
            theirs = ours if same and q is points else (u if all_rows else u[rows]) - centre.astype(u.dtype)
            r = weights[rows]
            log_sums, means, columns = self._softmax(pairs, ours, r)
            return log_sums, *_scatter_of_sums(theirs, ours, means, r, columns)

        return SoftmaxScatter(*accurate_scatter(about, u, points.dtype))

    def signed_pull(
        self,
        queries,
        points,
        match,
        *,
        objective="accuracy",
        row_weights=None,
        log_weights=None,
        left_out=None,
    ):
        options = {"row_weights": row_weights, "log_weights": log_weights, "left_out": left_out}
        if match.kind != "class":
            return self._reference().signed_pull(queries, points, match, objective=objective, **options)
        order = np.argsort(match.points, kind="stable")
        pairs = Pairs(queries, points, log_weights, left_out, order)
        ordered = match.points[order]
        mates = (
            np.searchsorted(ordered, match.queries, side="left").astype(np.int64),
            np.searchsorted(ordered, match.queries, side="right").astype(np.int64),
        )
        r = _row_weights(row_weights, pairs.m)
        signed = self._signed_by_products if pairs.many(2 * pairs.d) else self._signed_fused
        log_sums, log_agreement, on_queries, gathered = signed(pairs, mates, r, objective == "likelihood")
        on_points = np.empty((pairs.n, pairs.d))
        on_points[order] = gathered[:, -1:] * pairs.points - gathered[:, :-1]
        lost = np.flatnonzero(np.isnan(log_agreement))
        if len(lost):
            options = {
                key: value if value is None or key == "log_weights" else np.asarray(value)[lost]
                for key, value in options.items()
            }
            few = Match("class", match.queries[lost], match.points)
            _, log_agreement[lost], on_queries[lost], more = self._reference().signed_pull(
                queries[lost], points, few, objective=objective, **options
            )
            on_points += more
        return SignedPull(log_sums, log_agreement, on_queries, on_points)

    def mutual_pull(self, points, match, *, objective="accuracy", row_weights=None, log_weights=None):
        options = {"objective": objective, "row_weights": row_weights, "log_weights": log_weights}
        codes = match.points if match.kind == "class" else None
        if codes is None or log_weights is not None or not np.array_equal(codes, match.queries):
            return pull_both_ways(self.signed_pull, points, match, **options)
        order = np.argsort(codes, kind="stable")
        ordered_points = points[order]
        pairs = Pairs(ordered_points, ordered_points, None, np.arange(len(points)))
        r = _row_weights(row_weights, pairs.m)
        ordered = codes[order]
        mates = tuple(np.searchsorted(ordered, ordered, side=side).astype(np.int64) for side in ("left", "right"))
        with one_blas_thread():
            found = mutual_pull_once(
                pairs, mates, r[order], objective == "likelihood", _LEAST_AGREEMENT[pairs.dtype],
                pairs.many(2 * pairs.d), self.threads, self.memory,
            )  # fmt: skip
        log_sums, log_agreement, pull = np.empty(pairs.n), np.empty(pairs.n), np.empty((pairs.n, pairs.d))
        log_sums[order], log_agreement[order], pull[order] = found[:3]
        lost = np.sort(order[found[3]])
        if len(lost):
            few = Match("class", codes[lost], codes)
            again = self.signed_pull(points[lost], points, few, objective=objective, row_weights=r[lost], left_out=lost)
            log_sums[lost], log_agreement[lost] = again.log_sums, again.log_agreement
            pull += again.on_points
            pull[lost] += again.on_queries
        return MutualPull(log_sums, log_agreement, pull)

    # -- running blocks ----------------------------------------------------------------------------------------

    def _reference(self):
        return ReferenceReductions(self.memory, self.threads)

    def _blocks(self, pairs, bytes_a_row=0, hand=kernels.HAND):
        """Blocks of rows in whole hands: short enough to interrupt, enough for the threads, within the memory."""
        rows = min(_PAIRS_IN_BLOCK // pairs.n, -(-pairs.m // _LEAST_BLOCKS))
        if bytes_a_row:
            rows = min(rows, self.memory // (4 * bytes_a_row), _PRODUCT_ROWS)
        rows = max(rows // hand, 1) * hand
        return Blocks(pairs.m, rows)

    def _run(self, work, pairs):
        for _ in in_order(work, self._blocks(pairs), self.threads):
            pass

    def _threads_for(self, bytes_a_partial):
        """Threads such that their partial results, and the total, stay within the memory."""
        return int(min(self.threads, max(self.memory // max(bytes_a_partial, 1) - 2, 1)))

    def _softmax(self, pairs, values, row_weights=None):
        """Log-sums, means of the values and, given row weights, what each point receives."""
        values = np.ascontiguousarray(values, dtype=pairs.dtype)
        many = pairs.many(values.shape[1])
        one_by_one = self._softmax_by_products if many else self._softmax_fused
        sweeps = 1 if row_weights is None else 2
        if not (pairs.symmetric and pays_to_be_symmetric(pairs, sweeps, many)):
            return one_by_one(pairs, values, row_weights)
        with one_blas_thread():
            log_sums, means, received, lost = softmax_once(pairs, values, row_weights, many, self.threads)
        if len(lost):
            weights = None if row_weights is None else row_weights[lost]
            log_sums[lost], means[lost], more = one_by_one(pairs.of(lost), values, weights)
            if received is not None:
                received += more
        return log_sums, means, received

    # -- few coordinates: fused kernels ------------------------------------------------------------------------

    def _softmax_fused(self, pairs, values, row_weights):
        packed, scored = pairs.packed()
        packed_values = packed if values is pairs.points else pack(values)
        n_tiles = len(packed)
        log_sums, means = np.empty(pairs.m), np.empty((pairs.m, values.shape[1]))
        # The exponentials of the rows in hand are kept until the columns can have their shares, while they fit into
        # the cache; beyond, a second sweep makes them anew.
        keep = row_weights is not None and pairs.n < _KEPT_POINTS
        r = row_weights if keep else np.empty(0)

        def work(rows):
            columns = np.zeros((n_tiles if keep else 0, TILE), dtype=pairs.dtype)
            shape = (n_tiles, kernels.HAND, TILE) if keep else (1, kernels.ROWS, TILE)
            kept = np.empty(shape, dtype=pairs.dtype)
            kernels.softmax_rows(*scored, packed_values, r, rows.start, rows.stop, log_sums, means, columns, kept)
            return columns

        def receive(rows):
            columns = np.zeros((n_tiles, TILE), dtype=pairs.dtype)
            queries, points, offsets, _, _, by_products, left_out = scored
            kernels.receiving_rows(
                queries, points, offsets, by_products, left_out, log_sums, row_weights, rows.start, rows.stop, columns
            )
            return columns

        hand = kernels.HAND if keep else kernels.LARGE_HAND
        received = np.zeros(n_tiles * TILE if row_weights is not None else 0)
        for columns in in_order(work, self._blocks(pairs, hand=hand), self.threads):
            if keep:
                received += columns.ravel()
        if row_weights is not None and not keep:
            for columns in in_order(receive, self._blocks(pairs, hand=hand), self.threads):
                received += columns.ravel()
        return pairs.log_sums(log_sums), means, received[: pairs.n]

    def _signed_fused(self, pairs, mates, row_weights, likelihood):
        packed, scored = pairs.packed()
        n_tiles = len(packed)
        log_sums, log_agreement = np.empty(pairs.m), np.empty(pairs.m)
        on_queries = np.empty((pairs.m, pairs.d))

        def work(rows):
            on_points = np.zeros((n_tiles, pairs.d + 1, TILE), dtype=pairs.dtype)
            kept = np.empty((n_tiles, kernels.HAND, TILE), dtype=pairs.dtype)
            kernels.signed_rows(
                *scored, row_weights, *mates, likelihood, _LEAST_AGREEMENT[pairs.dtype], rows.start, rows.stop,
                log_sums, log_agreement, on_queries, on_points, kept,
            )  # fmt: skip
            return on_points

        gathered = np.zeros((n_tiles, pairs.d + 1, TILE))
        threads = self._threads_for(gathered.nbytes)
        for on_points in in_order(work, self._blocks(pairs), threads):
            gathered += on_points
        return pairs.log_sums(log_sums), log_agreement, on_queries, unpack(gathered, pairs.n)

    # -- many coordinates: matrix products ---------------------------------------------------------------------

    def _softmax_by_products(self, pairs, values, row_weights):
        log_sums, means = np.empty(pairs.m), np.empty((pairs.m, values.shape[1]))
        want = row_weights is not None

        def work(rows):
            block = _ProductBlock(pairs, rows, keep=want)
            sums = np.zeros((block.n_rows, values.shape[1]))
            for t, tile in enumerate(block.tiles):
                weights = block.exponentials(t)
                if values.shape[1]:
                    sums *= block.rescale[:, None]
                    sums += weights @ values[tile]
            log_sums[rows] = block.top + np.log(block.total)
            means[rows] = sums / block.total[:, None]
            if not want:
                return None
            columns = np.empty(pairs.n)
            for t, tile in enumerate(block.tiles):
                factors = row_weights[rows] * np.exp(block.shifts[t] - block.top) / block.total
                columns[tile] = factors.astype(pairs.dtype) @ block.kept(t)
            return columns

        received = np.zeros(pairs.n) if want else None
        bytes_a_row = pairs.dtype.itemsize * (pairs.n if want else _PRODUCT_TILE)
        with one_blas_thread():
            blocks = self._blocks(pairs, bytes_a_row)
            for columns in in_order(work, blocks, self._threads_for(bytes_a_row * blocks.rows)):
                if want:
                    received += columns
        return pairs.log_sums(log_sums), means, received

    def _signed_by_products(self, pairs, mates, row_weights, likelihood):
        log_sums, log_agreement = np.empty(pairs.m), np.empty(pairs.m)
        on_queries = np.empty((pairs.m, pairs.d))
        ones = np.ones((pairs.n, 1), dtype=pairs.dtype)
        points_and_one = np.hstack([pairs.points, ones])

        def work(rows):
            block = _ProductBlock(pairs, rows, keep=True)
            mates_from, mates_to = mates[0][rows], mates[1][rows]
            matched = np.zeros(block.n_rows)
            for t, tile in enumerate(block.tiles):
                weights = block.exponentials(t)
                matched *= block.rescale
                kernels.add_matched(weights, mates_from, mates_to, tile.start, matched)
            log_sums[rows] = block.top + np.log(block.total)
            inside, outside = np.empty(block.n_rows), np.empty(block.n_rows)
            queries = pairs.queries[rows]
            kernels.sides_of_rows(
                queries, likelihood, matched, block.total, row_weights[rows], _LEAST_AGREEMENT[pairs.dtype],
                pairs.smallest, inside, outside,
                log_agreement[rows],
            )  # fmt: skip
            queries_and_one = np.hstack([queries, np.ones((block.n_rows, 1), dtype=pairs.dtype)])
            sums = np.zeros((block.n_rows, pairs.d + 1))
            gathered = np.empty((pairs.n, pairs.d + 1), dtype=pairs.dtype)
            for t, tile in enumerate(block.tiles):
                back = np.exp(block.shifts[t] - block.top)
                weights = block.kept(t)
                kernels.scale_sides(weights, mates_from, mates_to, inside * back, outside * back, tile.start)
                sums += weights @ points_and_one[tile]
                np.matmul(weights.T, queries_and_one, out=gathered[tile])
            on_queries[rows] = sums[:, -1:] * queries - sums[:, :-1]
            return gathered

        total = np.zeros((pairs.n, pairs.d + 1))
        threads = self._threads_for(total.nbytes)
        with one_blas_thread():
            for gathered in in_order(work, self._blocks(pairs, pairs.dtype.itemsize * pairs.n), threads):
                total += gathered
        return pairs.log_sums(log_sums), log_agreement, on_queries, total


class _ProductBlock:
    """A block of rows against tiles of points, by matrix products; `keep` holds all tiles' exponentials."""

    def __init__(self, pairs, rows, keep):
        self.pairs, self.rows = pairs, rows
        self.n_rows = rows.stop - rows.start
        self.tiles = [slice(j, min(j + _PRODUCT_TILE, pairs.n)) for j in range(0, pairs.n, _PRODUCT_TILE)]
        held = pairs.n if keep else min(_PRODUCT_TILE, pairs.n)
        self._buffer = np.empty(self.n_rows * held, dtype=pairs.dtype)
        self._keep = keep
        self.top = np.full(self.n_rows, -np.inf)
        self.total = np.zeros(self.n_rows)
        self.rescale = np.ones(self.n_rows)
        self.shifts = np.empty((len(self.tiles), self.n_rows))
        self._offsets = pairs.column_offsets

    def kept(self, t):
        """The (rows, tile) exponentials of tile t, each scaled by its row's top at the time (`shifts`)."""
        tile = self.tiles[t]
        start = self.n_rows * tile.start if self._keep else 0
        return self._buffer[start : start + self.n_rows * (tile.stop - tile.start)].reshape(self.n_rows, -1)

    def exponentials(self, t):
        pairs, tile = self.pairs, self.tiles[t]
        weights = self.kept(t)
        np.matmul(pairs.queries[self.rows], pairs.points[tile].T, out=weights)
        kernels.exponentials_of_products(
            weights, self._offsets[tile], pairs.left_out[self.rows], tile.start,
            self.top, self.total, self.rescale, self.shifts[t],
        )  # fmt: skip
        return weights


def _row_weights(row_weights, m):
    return np.ones(m) if row_weights is None else np.array(row_weights, dtype=np.float64)


def _scatter_of_sums(queries, points, means, row_weights, columns):
    """``sum_ij w_ij (u_i - v_j)(u_i - v_j)' = U'D_row U + V'D_col V - U'WV - (U'WV)'``, and the trace before it cancels.

    In float64, some rows at a time.
    """
    d = means.shape[1]
    scatter, size = np.zeros((d, d)), 0.0
    for rows in Blocks(len(queries), _ALGEBRA_ROWS):
        u = queries[rows].astype(np.float64)
        weighted = u * row_weights[rows, None]
        scatter += weighted.T @ (u - means[rows]) - means[rows].T @ weighted
        size += float(np.vdot(weighted, u))
    for rows in Blocks(len(points), _ALGEBRA_ROWS):
        v = points[rows].astype(np.float64)
        scatter += (v * columns[rows, None]).T @ v
        size += float(columns[rows] @ np.square(v).sum(axis=1))
    return 0.5 * (scatter + scatter.T), size
