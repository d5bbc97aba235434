"""Log-sums over Gaussians that each have their own low-rank frame: the pair work of Manifold Parzen Windows.

Component j has mean x_j and covariance ``C_j = sigma^2 I + sum_l v_jl V_jl V_jl'``, with orthonormal
directions V_jl.  With the squared parts ``t_l = (V_jl'(q - x_j))^2`` and the residual
``rho = |q - x_j|^2 - sum_l t_l``,

    (q - x_j)' C_j^-1 (q - x_j) = rho / sigma^2 + sum_l t_l / (sigma^2 + v_jl),
    log det C_j                 = (D - d) log sigma^2 + sum_l log(sigma^2 + v_jl).

Of a pair only ``rho`` and ``t`` are needed, and the directions are ordered: one sweep over the directions
serves every depth d (the first d directions) and every noise sigma^2.  This is what makes tuning cheap.

::

    frame_log_sums        which way each query goes: by products where these are accurate
        |
      _sums               blocks of queries in threads, tiles of points: split, then accumulate
      _sums_in_cache      one depth and noise, few features: both at once
      _screened_sums      one depth and noise, small noise in many dimensions: products only screen
        |
      _Components         by_products: GEMM       _frame_kernels.py   compiled: project, project_by_removal,
                          by_kernel: a kernel                         take_squares, accumulate, add_tile
                          tables: constants       _frame_arrays.py    in array arithmetic (NumPy, torch)
"""

import copy
import math
from importlib import import_module

import numpy as np
from array_api_compat import array_namespace, is_numpy_namespace

from vicinal._density.mixture import LOG_2PI
from vicinal._engine._accuracy import products_are_accurate
from vicinal._engine._blocks import Blocks
from vicinal._engine._choice import _choose, as_engine
from vicinal._engine._pool import available_threads, in_order, one_blas_thread
from vicinal._manifold_parzen.frame_arrays import take_squares

_TILE = 512  # points in a tile
_ROWS = 256  # queries in a block, at most
_CACHE = 2**18  # bytes of a tile and its frames that a compiled kernel sweeps again and again
# Up to this many features compiled kernels beat matrix products, which write every projection to memory: for
# one depth and noise, where nothing else is written either, and for several.
_IN_CACHE_FEATURES = 96
_FEW_FEATURES = 16
# Products that err by less than this many nats still tell which pairs matter.
_SCREEN = 100.0


class Skips:
    """Pairs to leave out: for each query, components by index.

    Parameters
    ----------
    queries, components : integer arrays of the same length
        The pairs.
    n_queries : int
    """

    def __init__(self, queries, components, n_queries):
        queries, components = np.asarray(queries, dtype=np.int64), np.asarray(components, dtype=np.int64)
        order = np.argsort(queries, kind="stable")
        self.queries, self.components = queries[order], components[order]
        self.n_queries = n_queries

    def block(self, rows):
        """Positions in the block and components of the pairs of a slice of queries."""
        start, stop = np.searchsorted(self.queries, [rows.start, rows.stop])
        return self.queries[start:stop] - rows.start, self.components[start:stop]

    def take(self, picked):
        """The pairs of some queries, renumbered."""
        position = np.full(self.n_queries, -1)
        position[picked] = np.arange(len(picked))
        kept = position[self.queries] >= 0
        return Skips(position[self.queries[kept]], self.components[kept], len(picked))


def frame_log_sums(
    queries,
    points,
    frames,
    variances,
    noises,
    depths=None,
    *,
    log_weights=None,
    skips=None,
    engine=None,
    slack=1.0,
):
    """Return ``log sum_j exp(log_weights_j) N(q_i; x_j, C_j)``, shape (depths, noises, m).

    Parameters
    ----------
    queries : array of shape (m, D)
    points : array of shape (n, D)
    frames : array of shape (d, n, D)
        Orthonormal directions of each point, the leading one first.
    variances : array of shape (d, n)
        Variance along each direction beyond the noise, v >= 0.
    noises : float or sequence of float
        Variances sigma^2 > 0.
    depths : increasing sequence of int, optional
        Numbers of leading directions to keep; the default is all.
    log_weights : array of shape (n,), optional
        None is 0 for all; -inf removes a component.
    skips : Skips, optional
    engine : None, str or Engine
    slack : float
        Matrix products are allowed an error this many times larger than usual: comparing noises needs fewer
        digits than reporting densities.

    Notes
    -----
    O(m n d D) once, then O(m n d) a noise and an exponential a pair, depth and noise; the engine's memory.
    """
    engine = as_engine(engine)
    real = np.dtype(engine.precision or points.dtype)
    noises = np.atleast_1d(np.asarray(noises, dtype=np.float64))
    depths = np.array([len(frames)] if depths is None else depths, dtype=np.int64)
    centre = points.mean(axis=0, dtype=np.float64)
    points = np.ascontiguousarray(points - centre, dtype=real)
    queries = np.ascontiguousarray(queries - centre, dtype=real)
    frames = np.ascontiguousarray(frames[: depths[-1]], dtype=real)
    components = _Components(points, frames, variances[: depths[-1]], noises, depths, log_weights)

    (m, D), n = queries.shape, len(points)
    kind, _ = _choose(engine, m, n, (len(frames) + 1) * D + 8 * len(noises) * len(depths))
    # Distances by products err by eps times the square norms, in units of the noise; decided query by query,
    # so that one far query does not slow the others.
    largest = np.maximum(_square_norms(queries), _square_norms(points).max())
    with np.errstate(over="ignore"):  # where the quotient overflows, products are not accurate
        accurate = np.array([products_are_accurate(size / (noises.min() * slack), real) for size in largest])
        error = _product_error(largest / noises.min(), D, len(frames), real)
    few = kind == "cpu" and D <= _FEW_FEATURES
    single = len(depths) == len(noises) == 1 and kind != "torch"
    screen = ~accurate & (error < _SCREEN) & (single and not few)
    ways = (
        (accurate, _way_of_accurate(D, single, kind)),
        (screen, "screen"),
        (~accurate & ~screen, "project_by_removal"),
    )
    result = np.empty((len(depths), len(noises), m))
    for chosen, how in ways:
        picked = np.flatnonzero(chosen)
        if len(picked) == 0:
            continue
        some = skips if skips is None or len(picked) == m else skips.take(picked)
        if how == "in_cache":
            result[0, 0, picked] = _sums_in_cache(components, queries[picked], some, engine)
        elif how == "screen":
            result[0, 0, picked] = _screened_sums(components, queries[picked], some, error[picked], engine)
        else:
            result[:, :, picked] = _sums(components, queries[picked], some, kind, engine, how)
    return result


def _way_of_accurate(n_features, single, kind):
    if kind == "cpu" and single and n_features <= _IN_CACHE_FEATURES:
        return "in_cache"
    return "project" if kind == "cpu" and n_features <= _FEW_FEATURES else "products"


def _product_error(square_norms, n_features, n_directions, real):
    """How far a score by products may be off: rounding of d + 1 dot products of D terms, in units of the noise."""
    return np.finfo(real).eps * math.sqrt(n_features) * (2.0 + math.sqrt(n_directions)) * square_norms


def _square_norms(rows):
    return np.square(rows, dtype=np.float64).sum(axis=1)


def _sums(components, queries, skips, kind, engine, how):
    """`frame_log_sums` of queries that all go the same way."""
    # Compiled kernels are loaded only when they are wanted: Numba takes a while to import.
    arithmetic = import_module(
        "vicinal._manifold_parzen.frame_kernels" if kind == "cpu" else "vicinal._manifold_parzen.frame_arrays"
    )
    threads = 1 if kind == "torch" else available_threads(engine.threads)
    if kind == "torch":
        components, queries = components.on_torch(engine.device, queries)
    n = len(components.points)
    rows, tile = _block_shape(components, kind, how, engine.memory_bytes // (threads + 1))

    def work(block):
        q = queries[block]
        tops = _empty((*components.shape, len(q)), q, float64=True)
        totals = _empty((*components.shape, len(q)), q, float64=True)
        tops[...], totals[...] = -math.inf, 0.0
        pairs = None if skips is None else skips.block(block)
        for start in range(0, n, tile):
            part = slice(start, min(start + tile, n))
            if how == "products":
                residuals, squares = components.by_products(q, part, arithmetic.take_squares)
            else:
                residuals, squares = components.by_kernel(q, part, getattr(arithmetic, how))
            if pairs is not None:
                here = (pairs[1] >= part.start) & (pairs[1] < part.stop)
                residuals[:, pairs[0][here], pairs[1][here] - start] = math.inf
            arithmetic.accumulate(residuals, squares, *components.tables(part, q), components.depths, tops, totals)
        tops, totals = (np.asarray(a.cpu() if kind == "torch" else a) for a in (tops, totals))
        with np.errstate(divide="ignore"):  # a query that saw no component has log 0
            return np.where(tops == -np.inf, 0.0, tops) + np.log(totals)

    with one_blas_thread():
        parts = list(in_order(work, Blocks(len(queries), rows), threads))
    return np.concatenate(parts, axis=2) + components.shift[:, :, None]


def _sums_in_cache(components, queries, skips, engine):
    """Log-sums for one depth and noise and few features: a compiled kernel that writes nothing to memory."""
    from vicinal._manifold_parzen.frame_kernels import add_tile

    (n, D), d = components.points.shape, len(components.frames)
    tile = min(n, max(_CACHE // (8 * D * (d + 1)) // 16 * 16, 64), _TILE)
    half_precision = 0.5 / components.noises[0]

    def work(block):
        q = queries[block]
        tops, totals = np.full(len(q), -np.inf), np.zeros(len(q))
        pairs = (np.empty(0, dtype=np.int64),) * 2 if skips is None else skips.block(block)
        for start in range(0, n, tile):
            part = slice(start, min(start + tile, n))
            inverse_variances, constants, _ = components.tables(part, q)
            here = (pairs[1] >= part.start) & (pairs[1] < part.stop)
            starts = np.searchsorted(pairs[0][here], np.arange(len(q) + 1))
            gains = half_precision - 0.5 * inverse_variances[0]
            add_tile(
                q, _last_axes_swapped(components.points[part]), _last_axes_swapped(components.frames[:, part]),
                np.ascontiguousarray(components.offsets[:, part]), gains.astype(q.dtype), constants[0, 0],
                half_precision, starts, pairs[1][here] - start, tops, totals,
            )  # fmt: skip
        with np.errstate(divide="ignore"):  # a query that saw no component has log 0
            return np.where(tops == -np.inf, 0.0, tops) + np.log(totals)

    parts = list(in_order(work, Blocks(len(queries), 4 * _ROWS), available_threads(engine.threads)))
    return np.concatenate(parts) + components.shift[0, 0]


def _screened_sums(components, queries, skips, error, engine):
    """Log-sums where products are not accurate: they only screen, and the pairs that matter are done by removal.

    A pair whose score lies 40 nats and twice the error below the best cannot change the sum.  In many
    dimensions few pairs are left.
    """
    threads = available_threads(engine.threads)
    n = len(components.points)
    rows, tile = _block_shape(components, "cpu", "products", engine.memory_bytes // (threads + 1))

    def work(block):
        q, margin = queries[block], 40.0 + 2.0 * error[block]
        pairs = None if skips is None else skips.block(block)
        top = np.full(len(q), -np.inf)
        found = []
        for start in range(0, n, tile):
            part = slice(start, min(start + tile, n))
            residuals, squares = components.by_products(q, part, take_squares)
            inverse_variances, constants, precisions = components.tables(part, q)
            scores = constants[0, 0] - 0.5 * precisions[0] * residuals[0]
            for square, inverse in zip(squares, inverse_variances[0], strict=True):
                square *= inverse
                square *= 0.5
                scores -= square
            if pairs is not None:
                here = (pairs[1] >= part.start) & (pairs[1] < part.stop)
                scores[pairs[0][here], pairs[1][here] - start] = -np.inf
            top = np.maximum(top, scores.max(axis=1))
            near = (scores >= (top - margin)[:, None]) & (scores > -np.inf)
            i, j = np.nonzero(near)
            found.append((i, j + start, scores[i, j]))
        i, j, scores = (np.concatenate(parts) for parts in zip(*found, strict=True))
        kept = scores >= (top - margin)[i]
        return components.sums_by_removal(q, i[kept], j[kept])

    with one_blas_thread():
        parts = list(in_order(work, Blocks(len(queries), rows), threads))
    return np.concatenate(parts) + components.shift[0, 0]


def _block_shape(components, kind, how, memory):
    """Queries in a block and points in a tile: within the memory and, for a compiled kernel, the cache."""
    (n, D), d = components.points.shape, len(components.frames)
    numbers = d + components.shape[0] + 6  # a pair
    tile = min(_TILE, n)
    if how != "products":
        if kind == "cpu":
            tile = min(tile, max(_CACHE // (8 * D * (d + 1)) // 16 * 16, 64))
        else:
            numbers += 3 * D
            tile = min(tile, max(2**20 // (8 * D), 1))
    rows = (memory - 8 * tile * D * (d + 1)) // (8 * tile * numbers)
    return int(np.clip(rows, 1, _ROWS)), tile


class _Components:
    """The components, and how a block of queries sees a tile of them."""

    def __init__(self, points, frames, variances, noises, depths, log_weights):
        self.points, self.frames = points, frames
        self.variances = np.asarray(variances, dtype=np.float64)
        self.noises, self.depths, self.shape = noises, depths, (len(depths), len(noises))
        self.log_weights = np.zeros(len(points)) if log_weights is None else np.asarray(log_weights, dtype=np.float64)
        self.offsets = np.einsum("lnk,nk->ln", frames, points)
        self.square_norms = np.square(points).sum(axis=1)
        # Close to the scores' own size, so that float32 spends its digits on their differences.
        self.shift = np.zeros(self.shape)
        self.shift = self._constants(slice(0, len(points))).max(axis=2)
        self.shift[self.shift == -np.inf] = 0.0

    def on_torch(self, device, queries):
        """The components and the queries on a torch device."""
        import torch

        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        moved = copy.copy(self)
        for name in ("points", "frames", "offsets", "square_norms"):
            setattr(moved, name, torch.tensor(getattr(self, name), device=device))
        return moved, torch.tensor(queries, device=device)

    def _constants(self, tile):
        """log w_j - (D log 2 pi + log det C_j) / 2, less the shift, shape (depths, noises, T)."""
        D = self.points.shape[1]
        log_det = np.zeros((len(self.noises), len(self.log_weights[tile])))
        constants, l = [], 0
        for depth in self.depths:
            while l < depth:
                log_det += np.log(self.noises[:, None] + self.variances[l, tile])
                l += 1
            flat = D * LOG_2PI + (D - depth) * np.log(self.noises)[:, None]
            constants.append(self.log_weights[tile] - 0.5 * (flat + log_det))
        return np.stack(constants) - self.shift[:, :, None]

    def tables(self, tile, like):
        """1 / lambda (noises, d, T), constants (depths, noises, T) and 1 / sigma^2 (noises,) of a tile."""
        inverse_variances = 1.0 / (self.noises[:, None, None] + self.variances[None, :, tile])
        tables = []
        for values in (inverse_variances, self._constants(tile), 1.0 / self.noises):
            tables.append(_empty(values.shape, like))
            tables[-1][...] = values if isinstance(like, np.ndarray) else array_namespace(like).asarray(values)
        return tables

    def by_products(self, q, tile, take_squares):
        """Residuals (depths, R, T) and squares (d, R, T) by matrix products."""
        points = self.points[tile]
        residuals = _empty((self.shape[0], len(q), len(points)), q)
        squares = _empty((len(self.frames), len(q), len(points)), q)
        left = q @ points.T
        left *= -2.0
        left += (q * q).sum(1)[:, None]
        left += self.square_norms[None, tile]
        l = 0
        for m, depth in enumerate(self.depths):
            while l < depth:
                array_namespace(q).matmul(q, self.frames[l, tile].T, out=squares[l])
                take_squares(squares[l], self.offsets[l, tile], left)
                l += 1
            residuals[m] = left.clip(0)
        return residuals, squares

    def by_kernel(self, q, tile, project):
        """The same by a kernel on tiles whose last axis is the points: its inner loops run over them."""
        points = _last_axes_swapped(self.points[tile])
        frames = _last_axes_swapped(self.frames[:, tile])
        residuals = _empty((self.shape[0], len(q), points.shape[1]), q)
        squares = _empty((len(frames), len(q), points.shape[1]), q)
        offsets = _empty(self.offsets[:, tile].shape, q)
        offsets[...] = self.offsets[:, tile]
        project(q, points, frames, offsets, self.depths, residuals, squares)
        return residuals, squares

    def sums_by_removal(self, q, i, j):
        """Log-sums of the queries over the pairs (i, j) only, of the one depth and noise; -inf without a pair."""
        scores = np.empty(len(i))
        noise, D = self.noises[0], q.shape[1]
        batch = max(2**21 // D, 1)
        for start in range(0, len(i), batch):
            some, points = i[start : start + batch], j[start : start + batch]
            left = q[some].astype(np.float64) - self.points[points]
            quadratic = np.zeros(len(some))
            for frame, variance in zip(self.frames, self.variances, strict=True):
                direction = frame[points]
                along = np.einsum("pk,pk->p", direction, left)
                left -= along[:, None] * direction
                quadratic += along**2 / (noise + variance[points])
            quadratic += np.einsum("pk,pk->p", left, left) / noise
            scores[start : start + batch] = -0.5 * quadratic
        scores += self._constants(slice(None))[0, 0, j]
        sums = np.full(len(q), -np.inf)
        order = np.argsort(i, kind="stable")
        some, starts = np.unique(i[order], return_index=True)
        if len(some):
            sums[some] = np.logaddexp.reduceat(scores[order], starts)
        return sums


def _empty(shape, like, float64=False):
    """A new array of the namespace, device and dtype of `like`."""
    xp = array_namespace(like)
    options = {} if is_numpy_namespace(xp) else {"device": like.device}
    return xp.empty(shape, dtype=xp.float64 if float64 else like.dtype, **options)


def _last_axes_swapped(array):
    """A contiguous copy with the last two axes swapped."""
    swapped = array.swapaxes(-1, -2)
    return np.ascontiguousarray(swapped) if isinstance(array, np.ndarray) else swapped.contiguous()
