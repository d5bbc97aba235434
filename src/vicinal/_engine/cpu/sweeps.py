"""A sweep over strips of rows and tiles of points, by the fused kernels or with matrix products from BLAS."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from vicinal._engine.cpu import sweep_kernels as kernels
from vicinal._engine.cpu.pairs import CompiledPairs
from vicinal._engine.cpu.parts import ROWS, TILE

Mates = tuple[np.ndarray, np.ndarray]  # where the class mates of each row begin and end
Factors = tuple[np.ndarray, np.ndarray]  # by which exponentials are multiplied: inside the class of a row and outside


class Terms(NamedTuple):
    """What a sweep adds up: a kernel, the width of the sums of a row, and what the kernel takes of all points."""

    kernel: Callable[..., None]
    width: int
    values: np.ndarray | None = None  # (n_tiles, v, TILE)
    weights: np.ndarray | None = None  # (n_tiles, TILE)
    factors: Factors | None = None  # of whole tiles


class Strip(NamedTuple):
    """Consecutive rows, and what a kernel takes of them."""

    rows: slice
    values: np.ndarray | None = None  # (m, u), which the points receive
    weights: np.ndarray | None = None  # (m,), which the points receive if they receive one number
    mates: Mates | None = None
    factors: Factors | None = None
    bounds: np.ndarray | None = None  # the shifts of the rows, instead of those of the pairs
    kept: np.ndarray | None = None  # (n_tiles, rows in whole ROWS, TILE)
    given: int = kernels.NOTHING  # what is kept already

    @property
    def height(self) -> int:
        """The number of rows."""
        return int(self.rows.stop - self.rows.start)


class Sweep:
    """Sums of exponentials of scores.

    Parameters
    ----------
    pairs : CompiledPairs
    by_products : bool
        Whether BLAS computes the products of coordinates and of values.
    once : bool
        Whether the rows are the points, and each pair is visited once for both of them.
    """

    def __init__(self, pairs: CompiledPairs, by_products: bool, once: bool) -> None:
        self.pairs, self.by_products, self._once = pairs, by_products, once
        self._none = np.empty((0, 0), dtype=pairs.dtype)

    def buffer(self, n_rows: int, n_tiles: int) -> np.ndarray:
        """Return a place for the scores of a strip."""
        return np.empty((n_tiles, in_whole(n_rows, ROWS), TILE), dtype=self.pairs.dtype)

    def visit(self, terms: Terms, strip: Strip, tiles: slice, of_columns: np.ndarray, least: float = 0.0) -> np.ndarray:
        """Return the sums of a strip over some tiles (m, width), beginning from `least`, and add what the points receive to `of_columns`."""
        of_rows = np.full((in_whole(strip.height, ROWS), terms.width), least)
        by_tile = self._by_products if self.by_products else self._fused
        by_tile(terms, strip, tiles, of_rows, of_columns)
        return of_rows[: strip.height]

    def _fused(self, terms: Terms, strip: Strip, tiles: slice, of_rows: np.ndarray, of_columns: np.ndarray) -> None:
        kept = self.buffer(ROWS, 1) if strip.kept is None else strip.kept
        self._run(terms, strip, strip.height, self.pairs.queries(strip.rows), kept, tiles, of_rows, of_columns)

    def _by_products(
        self, terms: Terms, strip: Strip, tiles: slice, of_rows: np.ndarray, of_columns: np.ndarray
    ) -> None:
        pairs, wide = self.pairs, strip.values is not None
        images = pairs.queries(strip.rows)
        # Scores that are kept are all made before the kernel takes them; if pairs are visited once, tiles have different numbers of rows.
        step = 1 if self._once or strip.kept is None else tiles.stop - tiles.start
        buffer = self.buffer(strip.height, 1)
        given = kernels.PRODUCTS if strip.given == kernels.NOTHING else strip.given
        alone, plain = strip._replace(values=None, given=given), terms._replace(values=None)
        for t in range(tiles.start, tiles.stop, step):
            height, later, to = strip.height, strip.height, min(t + step, tiles.stop)
            if self._once:  # rows of later tiles do not meet this one, and those of its own give nothing to it
                height = min((t + 1) * TILE - strip.rows.start, height)
                later = min(t * TILE - strip.rows.start, height)
            here = slice(t - tiles.start, to - tiles.start)
            scores = buffer if strip.kept is None else strip.kept[here]
            if self._once:
                scores = scores[:, : in_whole(height, ROWS)]
            if strip.given == kernels.NOTHING:
                np.matmul(images[:height], pairs.points.packed[t:to], out=scores[:, :height])
            columns = of_columns[here]
            self._run(
                plain, alone, height, images[:height], scores, slice(t, to), of_rows,
                columns[:, :0] if wide else columns,
            )  # fmt: skip
            if terms.values is not None:
                for place in range(to - t):
                    of_rows[:height, : terms.values.shape[1]] += scores[place, :height] @ terms.values[t + place].T
            if strip.values is not None and later > 0:
                for place in range(to - t):
                    columns[place] += strip.values[:later].T @ scores[place, :later]

    def _run(
        self, terms: Terms, strip: Strip, height: int, images: np.ndarray, kept: np.ndarray, tiles: slice, of_rows: np.ndarray,
        of_columns: np.ndarray,
    ) -> None:  # fmt: skip
        """Call the kernel for the first rows of a strip."""
        pairs, nothing, nobody = self.pairs, self._none, np.empty(0, dtype=np.int64)
        rows = slice(strip.rows.start, strip.rows.start + height)
        n_tiles = len(pairs.points.packed)
        values = np.empty((n_tiles, 0, TILE), dtype=pairs.dtype) if terms.values is None else terms.values
        ends = (nobody, nobody) if strip.mates is None else strip.mates
        none = nothing.ravel()
        terms.kernel(
            images, pairs.points.packed, pairs.offsets, pairs.bounds(rows) if strip.bounds is None else strip.bounds,
            pairs.accurate, pairs.left_out[rows], kept, strip.given, nothing if strip.values is None else strip.values, values,
            nothing if terms.weights is None else terms.weights, np.ones(height) if strip.weights is None else strip.weights,
            *ends, *(strip.factors or (none, none)), *(terms.factors or (none, none)), rows.start if self._once else -1,
            tiles.start, tiles.stop, of_rows, of_columns,
        )  # fmt: skip


def class_factors(
    matched: np.ndarray,
    totals: np.ndarray,
    row_weights: np.ndarray,
    likelihood: bool,
    least_agreement: float,
    smallest: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the factors of rows' exponentials inside and outside their classes (`Pull`), and log a_i, from their sums.

    Under "likelihood" a row whose class mates are too far for this precision gets factors of zero and log-agreement NaN.
    A row without neighbours has no agreement and no pull.
    """
    with np.errstate(all="ignore"):
        agreement = matched / totals
        inside = row_weights * (1.0 - 1.0 / agreement if likelihood else agreement - 1.0) / totals
        outside = row_weights * (1.0 if likelihood else agreement) / totals
        log_agreement = np.log(agreement)
    lost = (agreement < least_agreement) | (matched < smallest) if likelihood else np.zeros(len(totals), dtype=bool)
    log_agreement[lost], log_agreement[totals == 0.0] = np.nan, -np.inf
    zero = lost | (totals == 0.0)
    return np.where(zero, 0.0, inside), np.where(zero, 0.0, outside), log_agreement


def in_whole(number: int, unit: int) -> int:
    """Return the least multiple of a unit that is not smaller than a number."""
    return -(-number // unit) * unit
