"""Each column of a row given the others, in any mixture.

With P_j the inverse of a component's covariance, q the squared distance of a row x from its centre c_j and ``g = P_j (x - c_j)``,
the squared distance in all columns but k is ``q - g_k^2 / P_kk``, and the covariance of those columns has the determinant
``|C_j| P_kk``.  Under the component, column k given the others is Gaussian with mean ``x_k - g_k / P_kk`` and variance
``1 / P_kk``.  All columns of m rows therefore cost O(m n D) if the components share P, after O(n D^2), and O(m n D^2) if
they do not.  If components have frames, no matrix P_j is formed: its row k is computed for all components at once.
Broad Gaussians beside the components are further components.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp, ndtr

from vicinal._engine import as_engine, products_are_accurate, robust_centre
from vicinal._mixtures.base import LOG_2PI, Mixture, check_log_density, log_weight_of_others
from vicinal._mixtures.frame_mixture import FrameMixture
from vicinal._mixtures.mixed_mixture import MixedMixture
from vicinal._mixtures.shared_mixture import SharedMixture

# For squared distances above this, q - g_k^2 / P_kk has too few digits; such rows are conditioned one by one.
_LARGEST_SQUARE = 1e8
_NEGLIGIBLE = 1e-7  # components with a smaller share do not change a quantile noticeably
_HALVINGS = 28


class Conditionals(NamedTuple):
    """What a density says of each column of m rows given the row's other columns.

    surprises : (m, d), ``-log p(x_k | the other columns)``
    quantiles : (s, m, d), of the same densities; for a column of levels, the code of the likeliest level
    levels : by the position of a column of levels, the probability of each level, and of all that the training rows lack (m, K + 1)
    """

    surprises: np.ndarray
    quantiles: np.ndarray
    levels: dict[int, np.ndarray]


class Replacements(NamedTuple):
    """Components with another covariance for some rows: for row ``rows[p]``, component ``components[p]`` is that of `mixture` at p.

    The mixture has one component per pair; its weights are not used.
    """

    rows: np.ndarray
    components: np.ndarray
    mixture: Any  # FrameMixture

    def of_rows(self, positions: np.ndarray) -> "Replacements | None":
        """Return those of some rows, by their places among these; None if there are none."""
        place = np.full(int(max(self.rows.max(initial=-1), positions.max(initial=-1))) + 1, -1)
        place[positions] = np.arange(len(positions))
        pairs = np.flatnonzero(place[self.rows] >= 0)
        if not len(pairs):
            return None
        parts = self.mixture
        chosen = parts.centres[pairs], parts.frames[:, pairs], parts.variances[:, pairs], parts.noise
        return Replacements(place[self.rows[pairs]], self.components[pairs], FrameMixture(*chosen, engine=parts.engine))


class _Block(NamedTuple):
    """Some rows: their scores (m, n), and for column k the pulls g (m, n) and the diagonals P_kk, one, (n,) or (m, n).

    The `factors` (m, n) of columns of levels are logarithms, which the scores contain. Further components may follow the n.
    """

    rows: slice
    scores: np.ndarray
    column: Callable[[int], tuple[np.ndarray, Any]]
    factors: dict[int, np.ndarray]


def column_conditionals(
    mixture: Mixture,
    X: np.ndarray,
    left_out: np.ndarray | None = None,
    shares: tuple[float, ...] = (),
    replaced: Replacements | None = None,
) -> Conditionals:
    """Condition each column of each row on the row's other columns.

    Parameters
    ----------
    mixture : Mixture
    X : array of shape (m, d)
    left_out : integer array of shape (m,), optional
        The component to leave out for each row.
    shares : tuple of float
        The probabilities of the quantiles; by default none are computed.
    replaced : Replacements, optional
        Components that have other covariances for some rows.
    """
    m, d = X.shape
    X = np.asarray(X, dtype=np.float64)
    results = Conditionals(np.empty((m, d)), np.empty((len(shares), m, d)), {})
    blocks = _without(_replaced(_blocks(mixture, X, left_out), mixture, X, replaced), left_out)
    for rows, scores, column, factors in _beside_broad(blocks, mixture, X, left_out):
        total = logsumexp(scores, axis=1)
        for k, factor in factors.items():
            others = scores - factor
            known = logsumexp(others, axis=1)
            results.surprises[rows, k] = known - total
            if shares:
                weights = np.exp(others - known[:, None])[:, : len(mixture.centres)]
                _store_levels(results, k, rows, mixture, weights, left_out)
        for k in np.setdiff1d(np.arange(d), list(factors)):
            pull, precision = column(k)
            others = scores + 0.5 * pull**2 / precision - 0.5 * np.log(precision)
            known = logsumexp(others, axis=1)
            results.surprises[rows, k] = known - total + 0.5 * LOG_2PI
            if shares:
                means = X[rows, k, None] - pull / precision
                weights = np.exp(others - known[:, None])
                results.quantiles[:, rows, k] = _quantiles(means, weights, precision**-0.5, shares)
        far = np.flatnonzero(scores.max(axis=1) < -_LARGEST_SQUARE)
        for i in np.arange(m)[rows][far]:
            _condition_one(mixture, X, i, left_out, shares, replaced, results)
    return results


def _store_levels(
    results: Conditionals, k: int, rows: slice, mixture: Any, weights: np.ndarray, left_out: np.ndarray | None
) -> None:
    """Store the probabilities of the levels of a column, from the weights of the components given the other columns."""
    probabilities = mixture.level_shares(k, weights, None if left_out is None else left_out[rows])
    results.levels.setdefault(k, np.empty((results.surprises.shape[0], probabilities.shape[1])))[rows] = probabilities
    results.quantiles[:, rows, k] = probabilities[:, :-1].argmax(axis=1)


def scores_with_replacements(
    mixture: FrameMixture, X: np.ndarray, left_out: np.ndarray, replaced: Replacements
) -> np.ndarray:
    """Return the log-density of each row without one component and with the covariances that others have for it, shape (m,).

    Parameters
    ----------
    mixture : FrameMixture
    X : array of shape (m, d)
    left_out : integer array of shape (m,)
        The component to leave out for each row.
    replaced : Replacements
    """
    X = np.asarray(X, dtype=np.float64)
    skips = np.append(np.arange(len(X)), replaced.rows), np.append(left_out, replaced.components)
    sums = mixture.placement(len(X)).log_sums_table(X, skips=skips)[0, 0]
    parts = _Frames(replaced.mixture)
    scores, _ = parts.pairs((X[replaced.rows] - replaced.mixture.centres) @ parts.units.T)
    scores += mixture.log_weights[replaced.components] - 0.5 * X.shape[1] * np.log(mixture.noise)
    np.logaddexp.at(sums, replaced.rows, scores)
    log_norm = -0.5 * X.shape[1] * LOG_2PI
    return check_log_density(sums + log_norm - log_weight_of_others(mixture.log_weights)[left_out])


# -- scores and pulls of all components ---------------------------------------------------------------------------------


def _blocks(mixture: Mixture, X: np.ndarray, left_out: np.ndarray | None) -> Iterator[_Block]:
    if isinstance(mixture, MixedMixture):
        return _mixed_blocks(mixture, X, left_out)
    if isinstance(mixture, SharedMixture):
        return _shared_blocks(mixture, X)
    return _frame_blocks(mixture, X)


def _mixed_blocks(mixture: MixedMixture, X: np.ndarray, left_out: np.ndarray | None) -> Iterator[_Block]:
    """Yield the scores of the numbers times the factors of the levels."""
    numbers, positions = mixture.categories.numbers, mixture.categories.positions
    for block in _shared_blocks(mixture.of_numbers, X[:, numbers], len(positions)):
        factors = mixture.log_factors(X[block.rows], None if left_out is None else left_out[block.rows])

        def column(k: int, block: _Block = block) -> tuple[np.ndarray, Any]:
            return block.column(int(np.searchsorted(numbers, k)))

        by_column = dict(zip(positions.tolist(), factors, strict=True))
        yield _Block(block.rows, block.scores + factors.sum(axis=0), column, by_column)


def _row_blocks(mixture: Mixture, m: int, n_levels: int = 0) -> Iterator[slice]:
    """Return some rows at a time, within the engine's memory."""
    step = max(as_engine(mixture.engine).memory_bytes // (8 * (10 + n_levels) * len(mixture.centres)), 1)
    return (slice(start, min(start + step, m)) for start in range(0, m, step))


def _shared_blocks(mixture: SharedMixture, X: np.ndarray, n_levels: int = 0) -> Iterator[_Block]:
    """Yield scores ``log w_j - q_ij / 2`` of components that share P."""
    units = mixture.kernel_units
    units = np.diag(units) if units.ndim == 1 else units
    precision = units.T @ units
    centre = robust_centre(mixture.centres)
    centres, queries = mixture.centres.astype(np.float64) - centre, X - centre
    images, query_images = centres @ units.T, queries @ units.T
    squares, of_centres, of_queries = np.square(images).sum(axis=1), centres @ precision, queries @ precision
    for rows in _row_blocks(mixture, len(X), n_levels):
        distances = squares + np.square(query_images[rows]).sum(axis=1)[:, None] - 2.0 * query_images[rows] @ images.T

        def column(k: int, rows: slice = rows) -> tuple[np.ndarray, Any]:
            return of_queries[rows, k, None] - of_centres[None, :, k], precision[k, k]

        yield _Block(rows, mixture.log_weights - 0.5 * np.maximum(distances, 0.0), column, {})


class _Frames:
    """Components with frames in coordinates ``z = A x`` in which the covariance of each is ``I + sum_l v_l V_l V_l'``.

    ``P_j = A' (I - sum_l V_l V_l' + sum_l V_l V_l' / (1 + v_l)) A``: written as a sum of two positive parts, it keeps its digits
    however large the variances are.
    """

    def __init__(self, mixture: FrameMixture) -> None:
        units = mixture.kernel_units
        self.units = np.diag(units) if units.ndim == 1 else units
        self.frames = mixture.frames.astype(np.float64, copy=False)
        self.shrunk = 1.0 / (1.0 + mixture.variances / mixture.noise)
        self.log_dets = -0.5 * np.log(self.shrunk).sum(axis=0)

    def slopes(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return row k of each ``P_j A^-1`` (n, D), and P_kk (n,)."""
        axis = self.units[:, k]
        along = self.frames @ axis
        rest = axis - np.einsum("ln,lnk->nk", along, self.frames)
        shrunk = along * self.shrunk
        precision = np.einsum("nk,nk->n", rest, rest) + (along * shrunk).sum(axis=0)
        return rest + np.einsum("ln,lnk->nk", shrunk, self.frames), precision

    def pairs(self, differences: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return half the squares of ``z - c_j`` (n, D), less the log-norms, with the sign of a score (n,), and the pulls (n, D)."""
        along = np.einsum("lnk,nk->ln", self.frames, differences)
        rest = differences - np.einsum("ln,lnk->nk", along, self.frames)
        shrunk = along * self.shrunk
        scores = -0.5 * (np.square(rest).sum(axis=1) + (along * shrunk).sum(axis=0)) - self.log_dets
        return scores, (rest + np.einsum("ln,lnk->nk", shrunk, self.frames)) @ self.units


def _frame_blocks(mixture: Any, X: np.ndarray) -> Iterator[_Block]:
    """Yield scores with the determinants of components that have frames."""
    parts, origin = _Frames(mixture), robust_centre(mixture.centres)
    centres, queries = ((rows.astype(np.float64) - origin) @ parts.units.T for rows in (mixture.centres, X))
    squares, query_squares = np.square(centres).sum(axis=1), np.square(queries).sum(axis=1)
    if not products_are_accurate(max(squares.max(), query_squares.max(initial=0.0)), np.float64):
        yield from _far_frame_blocks(mixture.log_weights, parts, centres, queries)
        return
    offsets, gains = np.einsum("lnk,nk->ln", parts.frames, centres), 1.0 - parts.shrunk
    for rows in _row_blocks(mixture, len(X)):
        block_rows = queries[rows]
        distances = squares + query_squares[rows, None] - 2.0 * block_rows @ centres.T
        for frame, offset, gain in zip(parts.frames, offsets, gains, strict=True):
            distances -= gain * (block_rows @ frame.T - offset) ** 2

        def column(k: int, block_rows: np.ndarray = block_rows) -> tuple[np.ndarray, Any]:
            slopes, precision = parts.slopes(k)
            return block_rows @ slopes.T - np.einsum("nk,nk->n", slopes, centres), precision

        yield _Block(rows, mixture.log_weights - parts.log_dets - 0.5 * np.maximum(distances, 0.0), column, {})


def _far_frame_blocks(
    log_weights: np.ndarray, parts: _Frames, centres: np.ndarray, queries: np.ndarray
) -> Iterator[_Block]:
    """Yield the same row by row from differences, where rows are so far apart in units of the noise that products lose digits."""
    precisions = np.stack([parts.slopes(k)[1] for k in range(centres.shape[1])], axis=1)
    for i, query in enumerate(queries):
        scores, pulls = parts.pairs(query - centres)

        def column(k: int, pulls: np.ndarray = pulls) -> tuple[np.ndarray, Any]:
            return pulls[None, :, k], precisions[:, k]

        yield _Block(slice(i, i + 1), (log_weights + scores)[None], column, {})


def _replaced(
    blocks: Iterator[_Block], mixture: Mixture, X: np.ndarray, replaced: Replacements | None
) -> Iterator[_Block]:
    """Yield blocks with the components that have other covariances for their rows."""
    if replaced is None:
        yield from blocks
        return
    parts = _Frames(replaced.mixture)
    differences = (X[replaced.rows] - replaced.mixture.centres) @ parts.units.T
    scores, pulls = parts.pairs(differences)
    scores += mixture.log_weights[replaced.components]
    precisions = np.stack([parts.slopes(k)[1] for k in range(X.shape[1])], axis=1)
    for block in blocks:
        chosen = np.flatnonzero((replaced.rows >= block.rows.start) & (replaced.rows < block.rows.stop))
        pairs = replaced.rows[chosen] - block.rows.start, replaced.components[chosen]
        block.scores[pairs] = scores[chosen]

        def column(
            k: int, block: _Block = block, pairs: Any = pairs, chosen: np.ndarray = chosen
        ) -> tuple[np.ndarray, Any]:
            pull, precision = block.column(k)
            pull, precision = np.array(pull), np.array(np.broadcast_to(precision, pull.shape))
            pull[pairs], precision[pairs] = pulls[chosen, k], precisions[chosen, k]
            return pull, precision

        yield _Block(block.rows, block.scores, column, {})


def _without(blocks: Iterator[_Block], left_out: np.ndarray | None) -> Iterator[_Block]:
    """Yield blocks without the component that each row leaves out."""
    for block in blocks:
        if left_out is not None:
            block.scores[np.arange(len(block.scores)), left_out[block.rows]] = -np.inf
        yield block


def _beside_broad(
    blocks: Iterator[_Block], mixture: Any, X: np.ndarray, left_out: np.ndarray | None
) -> Iterator[_Block]:
    """Yield blocks with the broad Gaussians as further components."""
    background = mixture.background
    if background is None:
        yield from blocks
        return
    has_levels = isinstance(mixture, MixedMixture)
    numbers = mixture.categories.numbers if has_levels else np.arange(X.shape[1])
    log_det = 0.5 * np.linalg.slogdet(mixture.covariance)[1] + 0.5 * len(numbers) * LOG_2PI
    for block in blocks:
        rows, leaves = X[block.rows], None if left_out is None else left_out[block.rows]
        weights = None if leaves is None else np.exp(mixture.log_weights[leaves])
        broad = background.terms(rows[:, numbers], mixture.covariance, weights)
        of_kernels = block.scores + background.log_shares[0]
        if leaves is not None:
            of_kernels -= mixture._log_others[leaves, None]
        of_broad, factors = background.log_shares[1:] + broad.log_densities + log_det, block.factors
        if has_levels:
            drawn = mixture.broad_log_factors(rows, leaves)
            of_broad = of_broad + drawn.sum(axis=0)[:, None]
            wide = [np.tile(part[:, None], of_broad.shape[1]) for part in drawn]
            factors = {
                k: np.hstack([factor, part]) for (k, factor), part in zip(block.factors.items(), wide, strict=True)
            }

        def column(k: int, block: _Block = block, broad: Any = broad) -> tuple[np.ndarray, Any]:
            pull, precision = block.column(k)
            place = int(np.searchsorted(numbers, k))
            pulls, precisions = broad.pulls[:, :, place], broad.precisions[:, :, place]
            return np.hstack([pull, pulls]), np.hstack([np.broadcast_to(precision, pull.shape), precisions])

        yield _Block(block.rows, np.hstack([of_kernels, of_broad]), column, factors)


# -- one row, and quantiles ---------------------------------------------------------------------------------------------


def _condition_one(
    mixture: Any,
    X: np.ndarray,
    i: int,
    left_out: np.ndarray | None,
    shares: tuple[float, ...],
    replaced: Replacements | None,
    results: Conditionals,
) -> None:
    """Condition one row by the mixture's own conditionals, for rows so far away that the fast formula loses all digits."""
    remaining = np.ones(len(mixture.centres), dtype=bool)
    if left_out is not None:
        remaining[left_out[i]] = False
    rest: Any = mixture.only(remaining)
    if replaced is not None:
        chosen = np.flatnonzero(replaced.rows == i)
        rest.frames, rest.variances = mixture.frames.copy(), mixture.variances.copy()
        rest.frames[:, replaced.components[chosen]] = replaced.mixture.frames[:, chosen]
        rest.variances[:, replaced.components[chosen]] = replaced.mixture.variances[:, chosen]
    for k in range(X.shape[1]):
        others = np.delete(np.arange(X.shape[1]), k)
        one: Any = rest._conditional(others, X[i, others], np.array([k]), None) if len(others) else rest
        results.surprises[i, k] = -one.scores_of(X[i : i + 1, k : k + 1])[0]
        weights = np.exp(one.log_weights)
        if one.background is not None:
            weights = weights * np.exp(one.background.log_shares[0])
        if shares and isinstance(one, MixedMixture):
            _store_levels(results, k, slice(i, i + 1), mixture, weights[None], left_out)
        elif shares:
            means, variances = one.centres[:, 0].astype(np.float64), _variances_of(one)
            if one.background is not None:
                broad = one.background
                wide = broad.widths * (broad.spread[0, 0] + one.covariance[0, 0])
                means = np.append(means, np.tile(broad.mean, len(wide)))
                weights, variances = np.append(weights, np.exp(broad.log_shares[1:])), np.append(variances, wide)
            results.quantiles[:, i, k] = _quantiles(means[None], weights[None], np.sqrt(variances), shares)[:, 0]


def _variances_of(mixture: Any) -> np.ndarray:
    """Return the variance of each component of a mixture in one dimension, shape (n,)."""
    if isinstance(mixture, SharedMixture):
        return np.full(len(mixture.centres), mixture.covariance[0, 0])
    return mixture.covariances[:, 0, 0]


def _quantiles(means: np.ndarray, weights: np.ndarray, sd: Any, shares: tuple[float, ...]) -> np.ndarray:
    """Return quantiles (s, m) of Gaussian mixtures with these means (m, n), weights and standard deviations."""
    sd = np.broadcast_to(sd, means.shape)
    most = int((weights > _NEGLIGIBLE).sum(axis=1).max())
    if most < weights.shape[1]:
        kept = np.argpartition(-weights, most - 1, axis=1)[:, :most]
        means, weights, sd = (np.take_along_axis(table, kept, 1) for table in (means, weights, sd))
    weights = weights / weights.sum(axis=1, keepdims=True)
    counted = np.where(weights > _NEGLIGIBLE, means, np.nan)
    answer = np.empty((len(shares), len(means)))
    for s, share in enumerate(shares):
        low, high = np.nanmin(counted - 9.0 * sd, axis=1), np.nanmax(counted + 9.0 * sd, axis=1)
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            below = (weights * ndtr((middle[:, None] - means) / sd)).sum(axis=1) < share
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        answer[s] = 0.5 * (low + high)
    return answer
