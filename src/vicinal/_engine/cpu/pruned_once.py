r"""Pruned scatters of all rows, in which each pair is computed once for both of its rows.

As in `cpu/once.py`, the sums ``Z = K b`` come from one half sweep, and the scatter from a second, with the weights
``b_i b_j K_ij (f_i + f_j)`` of both directions.  The second sweep takes only the pairs that the first one took.

A pair may be skipped if it is negligible for both of its rows, so every row needs a lower bound on its sum beforehand.  There
are three such bounds, each computed with the help of the one before: from the row's own tile, from the tiles that are next to
it in the spatial order, and from all tiles that matter.

Exponentials are raised by one number for all rows.  Rows whose sums would underflow (far outliers) are set aside, and
the caller computes them row by row.
"""

from typing import NamedTuple

import numpy as np

from vicinal._engine import accuracy, tuning
from vicinal._engine.accuracy import scatter_is_accurate
from vicinal._engine.cpu import pruned_once_kernels as kernels
from vicinal._engine.cpu.pruned_group import _TANGENT
from vicinal._engine.cpu.received import GivenNumbers
from vicinal._engine.plan.boxes import SLACK
from vicinal._engine.plan.tiles import Tiles
from vicinal._engine.tuning import PRUNED_TILE, TILE_SPAN
from vicinal._engine.work.blocks import Blocks, cut_by_cost
from vicinal._engine.work.pool import in_order, summed, summed_and_listed
from vicinal._engine.work.sharing import NOTHING, Filled, Touched, WithItem

_POWER = 2.0  # products of differences: a pair at the distance u counts u^2 times as much
# The share of the rows that may be set aside.
_MOST_ASIDE = 0.05


class HalfScatter(NamedTuple):
    """``log_sums`` (n,), ``scatter`` (v, v), the largest certificate, the shares of pairs that were visited and taken, and the
    positions of the rows that were set aside, whose log-sums are missing and which add nothing to the scatter."""

    log_sums: np.ndarray
    scatter: np.ndarray
    certificate: float
    shares: tuple[float, float]
    aside: np.ndarray


class _TakenPiece(NamedTuple):
    """Pairs of tiles that were taken for the row tiles from..to: the other tiles, their number for each row tile, the
    rows concerned (`alive`), and the numbers of pairs whose distances and whose exponentials were computed."""

    row_tiles: tuple[int, int]
    tile_of: np.ndarray
    alive: np.ndarray
    counts: np.ndarray
    pairs: tuple[int, int]


class _Taken(NamedTuple):
    """The pairs that were taken, piece by piece, and the levels with which pairs were compared."""

    levels: np.ndarray
    pieces: list[_TakenPiece]


class PrunedHalves:
    """Half sweeps over points in tiles, none of which is wide.

    Parameters
    ----------
    tiles : Tiles
    log_weights : array of shape (n,), optional
        In the order in which the points were given.
    left_out : bool
        Whether every row leaves itself out.
    error : float
    threads : int
    """

    def __init__(
        self, tiles: Tiles, log_weights: np.ndarray | None, left_out: bool, error: float, threads: int
    ) -> None:
        self._tiles, self._error, self._threads = tiles, error, threads
        places = np.arange(tiles.n, dtype=np.int64)
        self._left_out = places if left_out else np.full(tiles.n, -1, dtype=np.int64)
        self._heaviest = 0.0 if log_weights is None else float(log_weights.max())
        self._log_weights = np.empty(0) if log_weights is None else log_weights[tiles.order] - self._heaviest
        self._masses = tiles.masses()
        # Distances of boxes are rounded down by more than the distances of pairs are rounded up.
        shrink = 1.0 - (2 * tiles.k + 16) * float(np.finfo(tiles.dtype).eps)
        self._plan = (*tiles.boxes, tiles.heaviest, self._masses.of_tiles, shrink)

    @staticmethod
    def can_be_used(tiles: Tiles, log_weights: np.ndarray | None) -> bool:
        """Return whether half sweeps can be used: products are accurate within tiles, and weights are not too unequal."""
        if tiles.wide.any():
            return False
        if log_weights is None:
            return True
        return bool(np.isfinite(log_weights).all() and np.ptp(log_weights) <= accuracy.WIDEST_LOG_WEIGHTS[tiles.dtype])

    def scatter(
        self, row_weights: np.ndarray, values: tuple[np.ndarray, np.ndarray] | None = None
    ) -> HalfScatter | None:
        """Return the scatter of the images, or of values in tiles relative to the middles of the tiles; None if digits would be lost.

        Row weights are in the order in which the points were given.
        """
        tiles = self._tiles
        low = self._lower_bounds()
        raised, aside = self._raise(low)
        if aside.mean() > _MOST_ASIDE:
            return None
        sums, near = self._sums(low, aside, raised, 0, tuning.NEXT_TILES)
        with np.errstate(divide="ignore"):
            better = np.maximum(low, np.log(sums) - raised - 1e-3)
        more, far = self._sums(better, aside, raised, tuning.NEXT_TILES, tiles.n_tiles)
        sums += more
        factors = np.zeros(tiles.n)
        weights = np.exp(self._log_weights) if len(self._log_weights) else 1.0
        np.divide(row_weights[tiles.order], weights * sums, out=factors, where=~aside)
        scatter, size = self._scatter((near, far), factors, raised, values)
        if not scatter_is_accurate(scatter, size, tiles.dtype):
            return None
        with np.errstate(divide="ignore"):
            log_sums = np.log(sums) - raised
        certificate = self._certificate(better, log_sums, aside)
        given = np.empty(tiles.n)
        given[tiles.order] = log_sums
        pairs = np.sum([piece.pairs for taken in (near, far) for piece in taken.pieces], axis=0)
        shares = float(pairs[0]) / tiles.n**2, float(pairs[1]) / tiles.n**2
        return HalfScatter(given, scatter, certificate, shares, tiles.order[aside])

    # -- which pairs to visit --------------------------------------------------------------------------------------

    def _lower_bounds(self) -> np.ndarray:
        """Return lower bounds on the log-sums, from the tile of each row."""
        tiles, low = self._tiles, np.empty(self._tiles.n)

        def work(piece: tuple[int, int]) -> None:
            mine = slice(int(tiles.starts[piece[0]]), int(tiles.starts[piece[1]]))
            images = tiles.images(mine)
            starts = tiles.starts[piece[0] : piece[1] + 1] - mine.start
            kernels.lower_bounds(
                images, self._left_out[mine], tiles.tile_at[mine], tiles.points, self._plan, starts, low[mine]
            )

        for _ in in_order(work, _even_pieces(tiles.n_tiles), self._threads):
            pass
        return low

    def _raise(self, low: np.ndarray) -> tuple[float, np.ndarray]:
        """Return how far scores are raised, and which rows would underflow even so."""
        dtype, seen = self._tiles.dtype, low[low > -np.inf]
        if len(seen) == 0:
            return 0.0, np.ones(len(low), dtype=bool)
        most = accuracy.MOST_RAISE[dtype] - self._heaviest
        raised = float(min(-np.quantile(seen, _MOST_ASIDE), most))
        return raised, ~(low > -raised - accuracy.DEEPEST[dtype])

    def _levels(self, low: np.ndarray, aside: np.ndarray) -> np.ndarray:
        """Return the levels T_i + log b_i that a score plus the log-weight of its row must reach to matter to a row."""
        known = np.log(0.5 * self._error / self._tiles.n) - SLACK + low
        # The zero of s + p ((heaviest - s) / 64 + _TANGENT / 2) minus the known bound, with p the power.
        levels = (known - _POWER * (self._heaviest / 64.0 + 0.5 * _TANGENT)) / (1.0 - _POWER / 64.0)
        if len(self._log_weights):
            levels += self._log_weights
        return np.where(aside, np.inf, levels)

    def _radii(self, low: np.ndarray, aside: np.ndarray) -> np.ndarray:
        """Return the squared distances beyond which tiles are within the error of all rows of a tile."""
        tiles, masses = self._tiles, self._masses
        least = np.minimum.reduceat(np.where(aside, np.inf, low), tiles.starts[:-1])
        rule = (float(self._error), _POWER, masses.log_unit, masses.log_all)
        radius = np.empty(tiles.n_tiles)

        def work(piece: tuple[int, int]) -> None:
            kernels.radii(tiles.centres, self._plan, rule, least, *piece, radius)

        for _ in in_order(work, _even_pieces(tiles.n_tiles), self._threads):
            pass
        return radius

    def _certificate(self, low: np.ndarray, log_sums: np.ndarray, aside: np.ndarray) -> float:
        """Return the largest certificate of any row, relative to its lower bound: half of the error for boxes, half for scores."""
        tiles = self._tiles
        least = np.minimum.reduceat(np.where(aside, np.inf, low), tiles.starts[:-1])[tiles.tile_at]
        with np.errstate(invalid="ignore"):
            shares = np.exp(least - log_sums) + np.exp(low - log_sums)
        return 1.03 * 0.5 * self._error * float(np.where(aside, 0.0, shares).max(initial=0.0))

    # -- sweeps ----------------------------------------------------------------------------------------------------

    def _sums(
        self, low: np.ndarray, aside: np.ndarray, raised: float, from_offset: int, to_offset: int
    ) -> tuple[np.ndarray, _Taken]:
        """Return the sums of the rows over tiles within a range of offsets in the order, and the pairs that were taken."""
        tiles = self._tiles
        levels = self._levels(low, aside)
        radius = np.full(tiles.n_tiles, np.inf) if from_offset == 0 else self._radii(low, aside)
        widest = np.maximum.reduceat(radius, np.arange(0, tiles.n_tiles, TILE_SPAN))
        listed = (radius, widest, from_offset, to_offset)
        counts = np.zeros(tiles.n_tiles, dtype=np.int64)

        def count(piece: tuple[int, int]) -> None:
            kernels.count_later(tiles.centres, self._plan, *listed, *piece, counts)

        for _ in in_order(count, _even_pieces(tiles.n_tiles), self._threads):
            pass
        n_pieces = tuning.PIECES if tiles.n_tiles < tuning.MANY_BLOCKS else tuning.MANY_PIECES
        pieces = cut_by_cost(counts, n_pieces)
        sums, starts, to_points = np.zeros(tiles.n), tiles.starts, GivenNumbers(tiles.n_tiles)

        def work(piece: tuple[int, int]) -> WithItem:
            mine = slice(*piece)
            most = int(counts[mine].sum())
            given, found = to_points.zeros(), np.zeros(tiles.n_tiles + 2, dtype=np.int64)
            tile_of, alive = np.empty(most, dtype=np.int64), np.empty(most, dtype=np.uint16)
            kernels.half_sums(
                tiles.centres, self._left_out, levels, self._log_weights, tiles.points, self._plan, raised, *listed,
                *piece, sums, given.ravel(), tile_of, alive, found,
            )  # fmt: skip
            n_taken = int(found[mine].sum())
            visited = int(found[-2]), int(found[-1])
            # Only these copies are kept or sent.
            taken = _TakenPiece(
                piece, tile_of[:n_taken].astype(np.int32), alive[:n_taken].copy(), found[mine].copy(), visited
            )
            return WithItem(to_points.sums(given, taken.tile_of), taken)

        filled = Filled((sums,), lambda piece: slice(int(starts[piece[0]]), int(starts[piece[1]])))
        costs = PRUNED_TILE**2 * np.add.reduceat(counts, [first for first, _ in pieces]).astype(np.float64)
        columns, taken = summed_and_listed(work, pieces, self._threads, filled, costs)
        assert columns is not None
        weights = np.exp(self._log_weights) if len(self._log_weights) else 1.0
        return sums + columns[0].ravel()[: tiles.n] / weights, _Taken(levels, taken)

    def _scatter(
        self,
        taken: tuple[_Taken, ...],
        factors: np.ndarray,
        raised: float,
        values: tuple[np.ndarray, np.ndarray] | None,
    ) -> tuple[np.ndarray, float]:
        """Return the scatter of the pairs that were taken, and its trace before terms cancel."""
        tiles = self._tiles
        packed, middles = (tiles.packed, tiles.centres) if values is None else values
        v = packed.shape[1]
        levels, masses = [part.levels for part in taken], GivenNumbers(tiles.n_tiles)

        def work(item: tuple[int, _TakenPiece]) -> Touched:
            which, piece = item
            mass, of_tiles, trace = masses.zeros(), np.zeros((v, v)), np.zeros(1)
            counts = np.zeros(tiles.n_tiles, dtype=np.int64)
            counts[slice(*piece.row_tiles)] = piece.counts
            kernels.half_scatter(
                tiles.centres, self._left_out, levels[which], self._log_weights, tiles.points, raised, packed, middles, factors,
                piece.tile_of.astype(np.int64), piece.alive.copy(), counts, *piece.row_tiles, mass.ravel(), of_tiles, trace,
            )  # fmt: skip
            reached = np.concatenate([piece.tile_of, np.arange(*piece.row_tiles)])
            return masses.sums(mass, reached, of_tiles, trace)

        items = [(which, piece) for which, part in enumerate(taken) for piece in part.pieces]
        costs = np.array([piece.pairs[1] for _, piece in items], dtype=np.float64)  # pairs that were taken
        found = summed(work, items, self._threads, NOTHING, costs)
        assert found is not None
        mass, scatter, size = found[0], found[1], float(found[2][0])
        for some in Blocks(tiles.n_tiles, 64):
            y = packed[some].transpose(0, 2, 1).reshape(-1, v).astype(np.float64)
            weights = mass[some].ravel()
            scatter += (y * weights[:, None]).T @ y
            size += float(weights @ np.square(y).sum(axis=1))
        return 0.5 * (scatter + scatter.T), size


def _even_pieces(n_tiles: int) -> list[tuple[int, int]]:
    """Tiles in pieces of work for the threads."""
    step = max(-(-n_tiles // tuning.PIECES), 1)
    return [(first, min(first + step, n_tiles)) for first in range(0, n_tiles, step)]
