"""Rows with a low-rank frame plus noise each, for the pairwise computations of Manifold Parzen Windows.

With the squared parts ``t_l = (V_jl'(q - x_j))^2`` of a difference and its residual ``rho = |q - x_j|^2 - sum_l t_l``,

    (q - x_j)' C_j^-1 (q - x_j) = rho / sigma^2 + sum_l t_l / (sigma^2 + v_jl),
    log det C_j                 = (D - d) log sigma^2 + sum_l log(sigma^2 + v_jl).

Only ``rho`` and ``t`` of a pair are needed, and the directions are ordered, so one sweep over the directions gives every
depth d (the first d directions) and every noise sigma^2.  This makes tuning cheap.

::

    log_sums_table        chooses the method per query: products if these are accurate
        |
      _sums               blocks of queries in threads, tiles of points: split, then accumulate
      _sums_in_cache      one depth and noise, few features: a compiled kernel does both at once
                          (either over all points, or over the tiles that matter: `frames/sums.py`, `frames/boxes.py`)
      _screened_sums      one depth and noise, small noise in many dimensions: products only propose the pairs that matter
        |
      _by_products        matrix products         frames/kernels.py   compiled: project, project_by_removal,
      _by_kernel          a kernel on a tile                          take_squares, accumulate, add_tiles
      _tables             constants of a tile     frames/arithmetic.py    the same in array arithmetic (NumPy, torch)

All other reductions are those of `BlockScores`, from blocks of scores (`FrameScorer`).
"""

import math
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from array_api_compat import array_namespace

from vicinal._engine import accuracy, tuning
from vicinal._engine.accuracy import products_are_accurate
from vicinal._engine.contract import Array, LogSums
from vicinal._engine.families import Frames
from vicinal._engine.frames.scores import FrameScorer, Skips, empty_like
from vicinal._engine.frames.sums import Add, Adder, KernelSums, may_skip
from vicinal._engine.frames.tiles import Packed, adder_in_cache, listed_in_tiles, packed_in_tiles
from vicinal._engine.queries import Queries
from vicinal._engine.reference.arrays import BlockScores, blocks_within, like
from vicinal._engine.work.blocks import Blocks, columns_of, listed_parts
from vicinal._engine.work.pool import in_order, one_blas_thread
from vicinal._engine.work.sharing import NOTHING

if TYPE_CHECKING:
    from vicinal._engine.frames.boxes import KernelTiles


# Computes the log-sums of some query rows by one method, without the pairs to skip.
_LogSums = Callable[[np.ndarray, Skips | None], np.ndarray]


class PlacedFrames(BlockScores):
    """Rows under `Frames`, on any backend; the name of the backend determines whether kernels, NumPy or torch are used."""

    def __init__(self, backend: Any, kernel: Frames) -> None:
        self._backend, self.points, self.metric = backend, backend.points, None
        rows = self.points.rows
        self.noises = np.atleast_1d(np.asarray(kernel.noise, dtype=np.float64))
        self.depths = np.array([len(kernel.frames)] if kernel.depths is None else kernel.depths, dtype=np.int64)
        self.shape = len(self.depths), len(self.noises)
        self._slack, self.certificate = kernel.slack, 0.0
        self._variances = np.asarray(kernel.variances[: self.depths[-1]], dtype=np.float64)
        self._log_weights = self.points.log_weights
        frames = np.ascontiguousarray(kernel.frames[: self.depths[-1]], dtype=rows.dtype)
        self._host_frames = frames
        # The device of the products, for torch.
        to_device = backend.to_device if backend.name == "torch" else np.asarray
        self._rows = self._images = backend.rows if backend.name == "torch" else rows
        self._frames = to_device(frames)
        with np.errstate(over="ignore"):  # where squares overflow, products are not used
            squares = np.square(rows).sum(axis=1)
            self._offsets = to_device(np.einsum("lnk,nk->ln", frames, rows))
        self._squares = to_device(squares)
        self._largest = float(_square_norms(rows).max())
        # Close to the size of the scores, so that the digits of float32 represent their differences.
        self._shift = np.zeros(self.shape)
        self._shift = self._constants(slice(0, len(rows))).max(axis=2)
        self._shift[self._shift == -np.inf] = 0.0

    # -- the contract ------------------------------------------------------------------------------------------------

    def log_sums(self, queries: Queries, by_class: bool = False) -> LogSums:
        """See the contract; for one depth and noise."""
        if by_class:
            return super().log_sums(queries, by_class)
        self._check_is_one_kernel()
        return LogSums(self.log_sums_table(queries)[0, 0])

    def log_sums_table(self, queries: Queries, skips: tuple[Any, Any] | None = None) -> np.ndarray:
        """Return the log-sums under every depth and noise, shape (depths, noises, m).

        Parameters
        ----------
        skips : two integer arrays, optional
            Pairs (query, point) to leave out, beside ``queries.left_out``.

        Notes
        -----
        O(m n d D) once, then O(m n d) per noise and one exponential per pair, depth and noise.
        """
        rows = self.coordinates(queries, "rows")
        m = len(rows)
        left_out = Skips.of(queries, m, skips)
        result, self.certificate = np.empty((*self.shape, m)), 0.0
        for picked, sums in self._ways(rows):
            everyone = len(picked) == m
            some = left_out if left_out is None or everyone else left_out.take(picked)
            result[:, :, picked] = sums(rows if everyone else rows[picked], some)
        self.points.certificates.add(self.certificate)
        return result

    def pair_scores(self, queries: Queries) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        """See the contract; directions are removed from the difference one by one, so that no digits cancel."""
        self._check_is_one_kernel()
        rows = self.coordinates(queries, "rows")
        return lambda query, point: self._scores_by_removal(rows, query, point) + self._shift[0, 0]

    def candidates(self, queries: Queries, floors: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """See the contract; tiles of points that cannot reach the floors are skipped."""
        rows = self.coordinates(queries, "rows")
        if not self._may_skip(len(rows)):
            yield from super().candidates(queries, floors)
            return
        self._check_is_one_kernel()
        with one_blas_thread():
            yield from listed_in_tiles(self, self._kernel_tiles, rows, Skips.of(queries, len(rows)), floors)

    def _scorer(self, queries: Queries, listing: bool = False) -> FrameScorer:
        self._check_is_one_kernel()
        rows = self.coordinates(queries, "rows")
        return FrameScorer(self, rows, Skips.of(queries, len(rows)), listing)

    def _check_is_one_kernel(self) -> None:
        if self.shape != (1, 1):
            raise ValueError(
                f"this reduction needs Frames of one depth and one noise, got {self.shape[0]} and {self.shape[1]}. Place "
                "a single depth and noise, or use log_sums_table."
            )

    # -- the method for a query -------------------------------------------------------------------------------------

    def _ways(self, rows: np.ndarray) -> list[tuple[np.ndarray, _LogSums]]:
        """Return groups of queries, with the functions that compute their log-sums.

        Distances by products err by eps times the square norms, in units of the noise.  This is decided query by query,
        so that one far query does not slow the others.
        """
        n_features = rows.shape[1]
        compiled = self._backend.name == "cpu"
        single = self.shape == (1, 1)
        few = compiled and n_features <= tuning.FRAME_FEATURES_FEW
        accurate = self.are_accurate(rows)
        screened = ~accurate & (self.product_errors(rows) < accuracy.LARGEST_SCREENED_ERROR)
        if not single or few or self._backend.name == "torch":
            screened[:] = False
        best: _LogSums
        if compiled and single and n_features <= tuning.FRAME_FEATURES_IN_CACHE:
            best = self._sums_in_cache
        else:
            best = self._sums_by("project" if few else "products")
        ways = (
            (accurate, best),
            (screened, self._screened_sums),
            (~accurate & ~screened, self._sums_by("project_by_removal")),
        )
        return [(np.flatnonzero(chosen), sums) for chosen, sums in ways if chosen.any()]

    def _sums_by(self, how: str) -> _LogSums:
        return lambda rows, skips: self._sums(rows, skips, how)

    def are_accurate(self, rows: np.ndarray) -> np.ndarray:
        """Return whether scores by products are accurate, for each of some query rows."""
        with np.errstate(over="ignore"):  # if the quotient overflows, products are not accurate
            sizes = self._largest_squares(rows) / (self.noises.min() * self._slack)
        return products_are_accurate(sizes, rows.dtype)

    def product_errors(self, rows: np.ndarray) -> np.ndarray:
        """Return a bound on the error of scores by products, in nats: rounding of d + 1 dot products of D terms."""
        with np.errstate(over="ignore"):
            sizes = self._largest_squares(rows) / self.noises.min()
            terms = math.sqrt(rows.shape[1]) * (2.0 + math.sqrt(len(self._variances)))
            return float(np.finfo(rows.dtype).eps) * terms * sizes

    def _largest_squares(self, rows: np.ndarray) -> np.ndarray:
        return np.maximum(_square_norms(rows), self._largest)

    @property
    def arithmetic(self) -> Any:
        """The compiled kernels, which are imported at the first use because importing Numba is slow, or the functions on arrays."""
        compiled = self._backend.name == "cpu"
        return import_module("vicinal._engine.frames.kernels" if compiled else "vicinal._engine.frames.arithmetic")

    # -- log-sums ----------------------------------------------------------------------------------------------------

    def _sums(self, queries: np.ndarray, skips: Skips | None, how: str) -> np.ndarray:
        """Log-sums of queries that all use the same method, shape (depths, noises, m)."""
        rows, tile = self._block_shape(how, len(queries))
        return self._over_points(like(queries, self._rows), skips, partial(self._adder, how, tile), rows)

    def _sums_in_cache(self, queries: np.ndarray, skips: Skips | None) -> np.ndarray:
        """Log-sums for one depth and noise and few features: a compiled kernel that writes nothing to memory."""
        rows = int(np.clip(tuning.COMPILED_BLOCK_PAIRS // len(self.points.rows), 64, 4 * tuning.FRAME_ROWS))
        return self._over_points(queries, skips, partial(adder_in_cache, self), rows)

    def _over_points(self, queries: Array, skips: Skips | None, adder: Adder, n_rows: int) -> np.ndarray:
        """Log-sums over the tiles of points that matter if these are few enough, otherwise over all points."""
        sums = KernelSums(self.shape, queries, skips, adder)
        tiles = self._kernel_tiles if self._may_skip(len(queries)) else None
        with one_blas_thread():
            found, certificate = sums.over_points(tiles, n_rows, self._backend.threads)
        self.certificate = max(self.certificate, certificate)
        return found + self._shift[:, :, None]

    def _may_skip(self, m: int) -> bool:
        """Return whether tiles of points may be skipped for m queries."""
        return self._backend.name == "cpu" and may_skip(self._backend.engine, self.points.rows, m)

    @cached_property
    def expected_share(self) -> float:  # type: ignore[override]
        """The share of the tiles that a pass over all rows visits, for one kernel."""
        rows = self.points.rows
        if self.shape != (1, 1) or not self._may_skip(len(rows)):
            return 1.0
        own = np.arange(len(rows))
        adder = partial(self._adder, "products", tuning.FRAME_TILE)
        if rows.shape[1] <= tuning.FRAME_FEATURES_IN_CACHE:
            adder = partial(adder_in_cache, self)
        order = self._kernel_tiles.order_of(rows)
        sums = KernelSums(self.shape, rows, Skips(own, own, len(own)), adder).take(order)
        share = sums.expected_share(self._kernel_tiles)
        return share if share <= tuning.KERNELS_VISITED else 1.0

    @cached_property
    def _kernel_tiles(self) -> "KernelTiles":
        from vicinal._engine.frames.boxes import KernelTiles  # compiled

        def kernels(positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            variances = np.vstack([np.zeros(len(positions)), self._variances[:, positions]])
            widest = np.maximum.accumulate(variances)[self.depths][:, None] + self.noises[:, None]
            constants = self._constants(positions)
            return constants.reshape(-1, len(positions)), widest.reshape(-1, len(positions))

        error = self._backend.engine.error_in(self.points.rows.dtype)
        return KernelTiles(np.ascontiguousarray(self.points.rows), kernels, error, self._backend.threads)

    def _adder(self, how: str, tile: int, q: Array, pairs: Any, tops: Array, totals: Array) -> Add:
        """Return a function that adds points to the sums of a block of queries, by products or a kernel, some points at a time."""
        arithmetic = self.arithmetic

        def add(tiles: np.ndarray | None) -> None:
            n = len(self.points.rows)
            positions = None if tiles is None else self._kernel_tiles.positions(tiles)
            for start in range(0, n if positions is None else len(positions), tile):
                part = slice(start, min(start + tile, n)) if positions is None else positions[start : start + tile]
                if how == "products":
                    residuals, squares = self._by_products(q, part, arithmetic.take_squares)
                else:
                    residuals, squares = self._by_kernel(q, part, getattr(arithmetic, how))
                if pairs is not None:
                    here, columns = columns_of(part, pairs[1])
                    residuals[:, pairs[0][here], columns] = math.inf
                arithmetic.accumulate(residuals, squares, *self._tables(part, q), self.depths, tops, totals)

        return add

    @cached_property
    def packed(self) -> Packed:
        """The points in tiles that fit the cache: packed once, at the first use."""
        (n, n_features), d = self.points.rows.shape, len(self._variances)
        size = min(n, max(tuning.FRAME_CACHE // (8 * n_features * (d + 1)) // 16 * 16, 64), tuning.FRAME_TILE)
        return packed_in_tiles(self, np.arange(n), size)

    @cached_property
    def packed_in_order(self) -> Packed:
        """The points in the tiles that may be skipped."""
        return packed_in_tiles(self, self._kernel_tiles.order, tuning.KERNEL_TILE)

    def _screened_sums(self, queries: np.ndarray, skips: Skips | None) -> np.ndarray:
        """Log-sums if products are not accurate: products only propose the pairs that matter, which are computed by removal.

        A pair whose score lies 40 nats and twice the error below the best cannot change the sum.  In many dimensions few
        pairs are left.
        """
        pairs = FrameScorer(self, queries, skips, listing=True)
        margins = accuracy.NEGLIGIBLE_NATS + 2.0 * self.product_errors(queries)

        def work(block: slice) -> np.ndarray:
            scores = pairs.scores(block)
            least = scores.max(axis=1) - margins[block]
            query, point = np.nonzero((scores >= least[:, None]) & (scores > -np.inf))
            sums = np.full(len(scores), -np.inf)
            some, starts = np.unique(query, return_index=True)
            if len(some):
                exact = self._scores_by_removal(queries[block], query, point)
                sums[some] = np.logaddexp.reduceat(exact, starts)
            return sums

        blocks, threads = self._blocks(len(queries))
        with one_blas_thread():
            parts = list(in_order(work, blocks, threads, NOTHING))
        return np.concatenate(parts)[None, None] + self._shift[0, 0]

    def _blocks(self, m: int) -> tuple[Blocks, int]:
        return blocks_within(self._backend, m, 10 + len(self._variances))

    def _block_shape(self, how: str, m: int) -> tuple[int, int]:
        """Queries in a block and points in a tile: within the memory and, for a compiled kernel, the cache."""
        (n, D), d = self.points.rows.shape, len(self._variances)
        compiled = self._backend.name == "cpu"
        numbers = d + self.shape[0] + 6  # per pair
        tile, copied = tuning.FRAME_TILE, d + 1  # rows and frames of a tile
        if how == "products":
            copied = 2  # rows, and one frame at a time
            if not compiled:  # few queries are combined with many points at a time, because a call of NumPy costs as much as 1,000 numbers
                tile = max(tile, tuning.ARRAY_BLOCK_PAIRS // 4 // min(m, tuning.FRAME_ROWS))
        elif compiled:
            tile = min(tile, max(tuning.FRAME_CACHE // (8 * D * (d + 1)) // 16 * 16, 64))
        else:
            numbers += 3 * D
            tile = min(tile, max(2**20 // (8 * D), 1))
        memory = self._backend.memory // (self._backend.threads + 1)
        tile = min(tile, n)
        rows = (memory - 8 * tile * D * copied) // (8 * tile * numbers)
        return int(np.clip(rows, 1, tuning.FRAME_ROWS)), tile

    # -- a block of queries and a tile of points ----------------------------------------------------------------------

    def _constants(self, tile: slice | np.ndarray) -> np.ndarray:
        """log w_j - log det C_j / 2, less the shift, shape (depths, noises, T)."""
        D = self.points.rows.shape[1]
        log_det = np.zeros((len(self.noises), len(self.points.rows[tile])))
        log_weights = 0.0 if self._log_weights is None else self._log_weights[tile]
        constants, l = [], 0
        for depth in self.depths:
            while l < depth:
                log_det += np.log(self.noises[:, None] + self._variances[l, tile])
                l += 1
            constants.append(log_weights - 0.5 * ((D - depth) * np.log(self.noises)[:, None] + log_det))
        return np.stack(constants) - self._shift[:, :, None]

    @cached_property
    def _constants_of_all(self) -> np.ndarray:
        """The constants of all points for one depth and noise, which are only n numbers."""
        return self._constants(slice(0, len(self.points.rows)))

    def _tables(self, tile: slice | np.ndarray, q: Array) -> list[Array]:
        """1 / lambda (noises, d, T), constants (depths, noises, T) and 1 / sigma^2 (noises,) of a tile."""
        inverse_variances = 1.0 / (self.noises[:, None, None] + self._variances[None, :, tile])
        constants = self._constants_of_all[:, :, tile] if self.shape == (1, 1) else self._constants(tile)
        tables = []
        for values in (inverse_variances, constants, 1.0 / self.noises):
            tables.append(empty_like(values.shape, q))
            tables[-1][...] = values if isinstance(q, np.ndarray) else array_namespace(q).asarray(values)
        return tables

    def _by_products(
        self, q: Array, tile: slice | np.ndarray, take_squares: Callable[..., None]
    ) -> tuple[Array, Array]:
        """Residuals (depths, R, T) and squares (d, R, T) by matrix products."""
        points = self._rows[tile]
        residuals = empty_like((self.shape[0], len(q), len(points)), q)
        squares = empty_like((len(self._variances), len(q), len(points)), q)
        left = q @ points.T
        left *= -2.0
        left += (q * q).sum(1)[:, None]
        left += self._squares[None, tile]
        l = 0
        for m, depth in enumerate(self.depths):
            while l < depth:
                array_namespace(q).matmul(q, self._frames[l, tile].T, out=squares[l])
                take_squares(squares[l], self._offsets[l, tile], left)
                l += 1
            residuals[m] = left.clip(0)
        return residuals, squares

    def _by_kernel(self, q: Array, tile: slice | np.ndarray, project: Callable[..., None]) -> tuple[Array, Array]:
        """Return the same by a kernel on tiles whose last axis is the points: its inner loops run over them.

        In q's precision.
        """
        points = _last_axes_swapped(like(self._rows[tile], q))
        frames = _last_axes_swapped(like(self._frames[:, tile], q))
        residuals = empty_like((self.shape[0], len(q), points.shape[1]), q)
        squares = empty_like((len(frames), len(q), points.shape[1]), q)
        offsets = empty_like((len(frames), points.shape[1]), q)
        offsets[...] = self._offsets[:, tile]
        project(q, points, frames, offsets, self.depths, residuals, squares)
        return residuals, squares

    def _scores_by_removal(self, rows: np.ndarray, query: np.ndarray, point: np.ndarray) -> np.ndarray:
        """Return scores of listed pairs in float64, less the shift, of the one depth and noise."""
        scores = np.empty(len(query))
        noise, points = self.noises[0], self.points.rows
        for part in listed_parts(len(query), 2 * rows.shape[1]):
            i, j = query[part], point[part]
            left = rows[i].astype(np.float64) - points[j]
            quadratic = np.zeros(len(i))
            with np.errstate(over="ignore"):  # a point infinitely far from a query has weight 0
                for frame, variance in zip(self._host_frames, self._variances, strict=True):
                    direction = frame[j]
                    along = np.einsum("pk,pk->p", direction, left)
                    left -= along[:, None] * direction
                    quadratic += along**2 / (noise + variance[j])
                quadratic += np.einsum("pk,pk->p", left, left) / noise
            scores[part] = -0.5 * quadratic
        return scores + self._constants_of_all[0, 0, point]


def _square_norms(rows: np.ndarray) -> np.ndarray:
    return np.square(rows, dtype=np.float64).sum(axis=1)


def _last_axes_swapped(array: Array) -> Array:
    """Return a contiguous copy with the last two axes swapped."""
    swapped = array.swapaxes(-1, -2)
    return np.ascontiguousarray(swapped) if isinstance(array, np.ndarray) else swapped.contiguous()
