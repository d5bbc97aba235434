r"""Sums over the pairs that a plan lists, for all rows (each pair once, for both of its rows) or for any queries.

A first sweep gives the sums ``Z_i``, in two parts: over the tiles next to each row, and over all others that its sum so far does not exclude.
A second one, over the pairs that the first one took, applies weights ``b_i E_ij (f_i + g_j)``: with f = r / Z those of a softmax, and with
``f = g = r / (b Z)``, if each pair is visited once, those of both directions.

Each row is shifted by a lower bound on its log-sum, and if each pair is visited once, all rows by one number.  Rows for which the shift is
too small or too large are returned as `again`, with sums of 0.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from vicinal._engine import accuracy, tuning
from vicinal._engine.contract import finite
from vicinal._engine.cpu import listed_kernels as kernels
from vicinal._engine.cpu.listed_kernels import Levels, Values, Visits
from vicinal._engine.plan.plan import Plan, Planner, even_pieces
from vicinal._engine.plan.tiles import TiledQueries, Tiles
from vicinal._engine.tuning import PRUNED_TILE
from vicinal._engine.work.blocks import Blocks
from vicinal._engine.work.pool import in_order, one_blas_thread, summed_and_listed
from vicinal._engine.work.sharing import Filled, Touched, WithItem

# The share of the rows that may be returned as `again` because their sums would underflow under the common shift.
_MOST_AGAIN = 0.05
_ROUNDS = 32  # sweeps of rows whose sums are too large, each under better shifts


class Shares(NamedTuple):
    """The share of all pairs whose distances were computed, and of those whose exponentials were."""

    visited: float
    taken: float


class Sums(NamedTuple):
    """Of the queries at their places: ``log_sums`` (m,), ``means`` (m, v), and which must be computed in another way; the largest certificate,
    the shares of the pairs, the totals under the shifts, these, and the two plans."""

    log_sums: np.ndarray
    means: np.ndarray
    again: np.ndarray
    certificate: float
    shares: Shares
    totals: np.ndarray
    shifts: np.ndarray
    phases: "list[_Phase]"


@dataclass(eq=False)
class _Phase:
    """A plan, the lower bounds behind its levels, and the fours of rows that took each of its tiles."""

    plan: Plan
    low: np.ndarray
    groups: np.ndarray


class Weighted(NamedTuple):
    """What the weights give: to the queries at their places (m, v + 1), to the points at their places (n, u), to the scatter (v, v), and the
    trace of its terms before they cancel."""

    of_rows: np.ndarray
    of_points: np.ndarray
    scatter: np.ndarray
    size: float


class Listed:
    """The pairs of queries and points that matter.

    Parameters
    ----------
    points : Tiles
    queries : TiledQueries
    error : float
        The largest certificate of a row, above 0.
    threads : int
    power : float
        See `plan/plan.py`.
    log_weights : array of shape (n,), optional
        The log-weights of the points, in the order in which they were given.
    once : bool
    far_values : array of shape (n, v), optional
        Values of the points whose means are wanted, if means err relative to the size of typical values.
    """

    def __init__(
        self, points: Tiles, queries: TiledQueries, error: float, threads: int, *, power: float = 0.0, once: bool = False,
        log_weights: np.ndarray | None = None, far_values: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        self.points, self.queries, self._threads, self.once = points, queries, threads, once
        self._planner = Planner(points, queries, error, threads, power, far_values, once)
        self._of_points = None if log_weights is None else log_weights[points.order]
        # The log-weights of the rows, if each pair is visited once; the largest of them is divided out.
        self._log_weights = np.zeros(queries.tiles.n)
        if once and self._of_points is not None:
            self._log_weights = self._of_points - float(self._of_points.max())
        self._weights = np.exp(self._log_weights)

    @staticmethod
    def can_be_once(log_weights: np.ndarray | None, dtype: np.dtype) -> bool:
        """Return whether weights are equal enough for each pair to be visited once."""
        if log_weights is None:
            return True
        return bool(np.isfinite(log_weights).all() and np.ptp(log_weights) <= accuracy.WIDEST_LOG_WEIGHTS[dtype])

    # -- sums --------------------------------------------------------------------------------------------------------

    @one_blas_thread()
    def sums(self, values: np.ndarray | None = None, *, shifts_of_images: bool = False, squares: bool = False) -> Sums:
        """Return the sums of the queries, with the means of values of the points (n, v), of ``z_j - q_i``, or of ``|z_j - q_i|^2``."""
        tiles, points = self.queries.tiles, self.points
        m, most = tiles.n, accuracy.LARGEST_TOTAL[tiles.dtype]
        low = self._lower_bounds()
        shifts, again = self._shifts(low)
        low = np.where(again, -np.inf, low)
        given = self._of_means(values, shifts_of_images)
        if squares and self._of_points is not None:
            given = given._replace(factors=self._in_tiles(finite(self._of_points), 0.0))
        width = given.of_points.shape[1] + (2 if squares else 1)
        counts, column_width = np.zeros(2), width if self.once else 0
        phases: list[_Phase] = []
        sums, total = np.zeros((m, width)), np.zeros(m)
        for number in range(2):  # the nearest tiles, and all others that matter
            plan = self._planner.beyond(low, phases[0].plan) if number else self._planner.near()
            levels = self._levels(low, shifts)
            more, columns, groups, _, _ = self._sweep(plan, levels, given, width, column_width, counts, squares)
            sums += more
            for part in Blocks(points.n if self.once else 0, tuning.PRODUCT_BLOCK):  # the queries are the points
                t, j = points.at(part)
                sums[part] += columns[t, :, j] / self._weights[part, None]
            del more, columns
            phases.append(_Phase(plan, low, groups))
            for _ in range(_ROUNDS):
                overflown = (sums[:, -1] > most) & ~again
                if self.once or not overflown.any():
                    break
                low = np.where(overflown, np.log(np.where(overflown, sums[:, -1], 1.0)) + shifts - 1e-3, low)
                shifts = np.where(overflown, low, shifts)
                renewed = np.zeros((0, width))
                for phase in phases:
                    fours, redone = phase.plan.only(overflown, tiles)
                    phase.low = np.where(redone, low, phase.low)
                    levels = self._levels(phase.low, shifts)
                    more, _, better, _, _ = self._sweep(fours, levels, given, width, 0, counts, squares)
                    renewed = renewed + more[redone] if len(renewed) else more[redone]
                    phase.groups = (phase.groups & ~fours.groups) | better
                sums[redone] = renewed
            total = sums[:, -1]
            if number == 0:
                with np.errstate(divide="ignore"):
                    low = np.maximum(low, np.log(total) + shifts - 1e-3)
        again |= (low > -np.inf) & ~((total > 0.0) & (total <= most))
        with np.errstate(divide="ignore", invalid="ignore"):
            log_sums = np.where(again, -np.inf, np.log(total) + shifts)
        sums[again] = 0.0
        total = np.where(again | ~(total > 0.0), np.inf, total)
        sums /= total[:, None]
        means = sums[:, :-1]
        if shifts_of_images:
            self._subtract_images(means, sums[:, -1])
        if squares:
            means = np.where(log_sums > -np.inf, -2.0 * (means.T + shifts), 0.0).T.clip(0.0)
        certificate = self._planner.certificate(np.where(again, -np.inf, low), log_sums)
        shares = Shares(*(counts / max(float(m) * points.n, 1.0)))
        return Sums(log_sums, means, again, certificate, shares, total, shifts, phases)

    def _of_means(self, values: np.ndarray | None, of_images: bool) -> Values:
        """Return the values whose means are wanted, in tiles."""
        tiles, points, given = self.queries.tiles, self.points, self._nothing()
        if of_images:
            packed, middles, row_middles = points.packed, points.centres, tiles.centres
        elif values is not None:
            packed, v = points.pack(values), values.shape[1]
            middles, row_middles = (np.zeros((of_tiles.n_tiles, v), tiles.dtype) for of_tiles in (points, tiles))
        else:
            return given
        given = given._replace(of_points=packed, middles=middles, row_middles=row_middles)
        if self.once and self._of_points is not None:
            packed = packed * self._in_tiles(self._weights, 0.0)[:, None]
        return given._replace(of_rows=packed) if self.once else given

    def _subtract_images(self, means: np.ndarray, mass: np.ndarray) -> None:
        """Subtract the images of the queries, about the centres of their tiles."""
        tiles = self.queries.tiles
        for part in Blocks(tiles.n, tuning.ALGEBRA_ROWS):
            t, j = tiles.at(part)
            means[part, : tiles.k] -= mass[part, None] * tiles.packed[t, :, j]

    def _lower_bounds(self) -> np.ndarray:
        """Return lower bounds on the log-sums, from the home tile of each row."""
        queries, points, low = self.queries, self.points, np.empty(self.queries.tiles.n)

        def work(piece: tuple[int, int]) -> None:
            kernels.lower_bounds(
                queries.tiles.points, points.points, points.log_mass, queries.home, queries.first_tiles, queries.last_tiles,
                queries.left_out, *piece, low,
            )  # fmt: skip

        for _ in in_order(work, even_pieces(queries.tiles.n_tiles), self._threads):
            pass
        return low

    def _shifts(self, low: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the shifts of the rows, and which rows no shift suits."""
        dtype, has_neighbors = self.points.dtype, low > -np.inf
        if not self.once:
            return np.where(has_neighbors, low, 0.0), has_neighbors & (np.abs(low) > accuracy.FARTHEST_LOG_SUM[dtype])
        if not has_neighbors.any():
            return np.zeros(len(low)), np.ones(len(low), dtype=bool)
        heaviest = float(self.points.heaviest.max())
        raised = float(min(-np.quantile(low[has_neighbors], _MOST_AGAIN), accuracy.MOST_RAISE[dtype] - heaviest))
        return np.full(len(low), -raised), ~(low > -raised - accuracy.DEEPEST[dtype])

    def _levels(self, low: np.ndarray, shifts: np.ndarray) -> Levels:
        """Return the levels of the rows and, if each pair is visited once, of the points."""
        levels, dtype = self._planner.levels(low) + self._log_weights, self.points.dtype
        of_points = np.full((1, PRUNED_TILE), np.inf, dtype=dtype)
        if self.once:
            of_points = self._in_tiles(levels, np.inf)
        return Levels(levels, shifts, self._log_weights, self._weights, of_points, self._planner.masses.heavy)

    def _in_tiles(self, of_points: np.ndarray, padding: float) -> np.ndarray:
        """Return one number for each point at its place as (n_tiles, PRUNED_TILE)."""
        tiles, padded = self.points, np.full((self.points.n_tiles, PRUNED_TILE), padding, dtype=self.points.dtype)
        padded[tiles.tile_at, np.arange(tiles.n) - tiles.starts[tiles.tile_at]] = of_points
        return padded

    # -- weights -----------------------------------------------------------------------------------------------------

    def softmax_factors(self, sums: Sums, factors: np.ndarray) -> np.ndarray:
        """Return the factors f of the weights ``factors_i p_ij``, for factors in the order in which the queries were given."""
        f: np.ndarray = factors[self.queries.tiles.order] / (self._weights * sums.totals)
        return f

    def pull(self, sums: Sums, f: np.ndarray, positions: np.ndarray | None) -> np.ndarray:
        """Return ``sum_i (w_ij + w_ji)(z_j - z_i)`` of the points in their given order, for queries that are points, at some positions."""
        points, tiles = self.points, self.queries.tiles
        values = Values(points.packed, points.centres, tiles.packed, tiles.centres, f, self._both(f))
        found = self._weighted(sums, values, points.k + 1, points.k + 1)
        pull = np.zeros((points.n, points.k))
        for part in Blocks(points.n, tuning.ALGEBRA_ROWS):
            t, j = points.at(part)
            received = found.of_points[part]
            pull[points.order[part]] += received[:, -1:] * points.packed[t, :, j] - received[:, :-1]
        positions = tiles.order if positions is None else positions[tiles.order]
        for part in Blocks(tiles.n, tuning.ALGEBRA_ROWS):
            t, j = tiles.at(part)
            gathered = found.of_rows[part]
            pull[positions[part]] += gathered[:, -1:] * tiles.packed[t, :, j] - gathered[:, :-1]
        return pull

    def received(self, sums: Sums, f: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return what the points, in their given order, receive of values of the queries (m, u): (n, u)."""
        tiles, points, width = self.queries.tiles, self.points, values.shape[1]
        given = self._nothing()._replace(
            middles=np.zeros((points.n_tiles, width), dtype=tiles.dtype), of_rows=tiles.pack(values),
            row_middles=np.zeros((tiles.n_tiles, width), dtype=tiles.dtype), row_factors=f, factors=self._both(f),
        )  # fmt: skip
        found = self._weighted(sums, given, 1, width + 1)
        received = np.empty((points.n, width))
        received[points.order] = found.of_points[:, :-1]
        return received

    def scatter(
        self, sums: Sums, f: np.ndarray, values: tuple[np.ndarray, np.ndarray] | None = None, n_first: int | None = None
    ) -> tuple[np.ndarray, float]:
        """Return the scatter of the images, of their first coordinates, or of values of the points (n, v) and the queries (m, v), and its
        trace before terms cancel."""
        points, tiles = self.points, self.queries.tiles
        of_points, middles = (np.ascontiguousarray(part[:, :n_first]) for part in (points.packed, points.centres))
        of_rows, row_middles = (np.ascontiguousarray(part[:, :n_first]) for part in (tiles.packed, tiles.centres))
        if values is not None:
            of_points, middles = of_rows, row_middles = points.centred(values[0])
            if not self.once:
                of_rows, row_middles = tiles.centred(values[1])
        found = self._weighted(
            sums, Values(of_points, middles, of_rows, row_middles, f, self._both(f)), 1, 1, scatters=True
        )
        scatter, size = found.scatter, found.size
        with one_blas_thread():
            for packed, of_tiles, mass in ((of_points, points, found.of_points), (of_rows, tiles, found.of_rows)):
                for part in Blocks(of_tiles.n, tuning.PRODUCT_BLOCK):
                    t, j = of_tiles.at(part)
                    y = packed[t, :, j].astype(np.float64)
                    heavy = y * mass[part, -1:]
                    scatter += heavy.T @ y
                    size += float(np.vdot(heavy, y))
        return 0.5 * (scatter + scatter.T), size

    def _both(self, f: np.ndarray) -> np.ndarray:
        """Return the factors g of the points, in tiles: those of the rows, if each pair is visited once."""
        return self._in_tiles(f, 0.0) if self.once else np.zeros((1, PRUNED_TILE), dtype=self.points.dtype)

    def _nothing(self) -> Values:
        """Return no values."""
        points, tiles, dtype = self.points, self.queries.tiles, self.points.dtype
        return Values(
            np.empty((points.n_tiles, 0, PRUNED_TILE), dtype), np.empty((points.n_tiles, 0), dtype),
            np.empty((tiles.n_tiles, 0, PRUNED_TILE), dtype), np.empty((tiles.n_tiles, 0), dtype), np.empty(0),
            np.zeros((1, PRUNED_TILE), dtype),
        )  # fmt: skip

    @one_blas_thread()
    def _weighted(self, sums: Sums, values: Values, width: int, column_width: int, scatters: bool = False) -> Weighted:
        """Apply weights to the pairs that were taken, of those that reach the levels of the last plan."""
        near, beyond = (phase.plan.taken(phase.groups) for phase in sums.phases)
        levels = self._levels(sums.phases[-1].low, sums.shifts)
        of_rows, of_points, _, scatter, size = self._sweep(
            near.joined(beyond), levels, values, width, column_width, np.zeros(2), scatters=scatters
        )
        return Weighted(of_rows, self.points.by_place(of_points), scatter, float(size[0]))

    # -- sweeps ------------------------------------------------------------------------------------------------------

    def _sweep(
        self, plan: Plan, levels: Levels, values: Values, width: int, column_width: int, counts: np.ndarray, squares: bool = False,
        scatters: bool = False,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
        """Return what a plan gives to the queries (m, width) and to the points (n_tiles, column_width, PRUNED_TILE), the fours of rows that took each of its
        tiles, the scatter and its size; add the numbers of pairs whose distances and whose exponentials were computed to the counts."""
        points, queries, once = self.points, self.queries.tiles, self.once
        left_out, of_rows = self.queries.left_out, np.zeros((queries.n, width))
        v = values.of_points.shape[1] if scatters else 0
        highest = accuracy.LARGEST_EXPONENT[points.dtype]

        def part(first: int, last: int) -> tuple[Touched, np.ndarray, np.ndarray]:
            here = slice(plan.starts[first], plan.starts[last])
            touched = np.zeros(points.n_tiles if column_width else 0, dtype=bool)
            lines = np.zeros(here.stop - here.start, dtype=np.int32)
            if column_width:
                touched[plan.tiles[here]] = True
                lines = (np.cumsum(touched, dtype=np.int32) - 1)[plan.tiles[here]]
            touched = np.flatnonzero(touched)
            columns = np.zeros((len(touched), column_width, PRUNED_TILE))
            groups, number = np.zeros(here.stop - here.start, dtype=np.uint16), np.zeros(2, dtype=np.int64)
            scatter, size = np.zeros((v, v)), np.zeros(1)
            visits = Visits(
                plan.starts[first : last + 1] - plan.starts[first], plan.tiles[here], plan.groups[here], lines
            )  # fmt: skip
            kernels.sweep(
                queries.points, points.points, visits, levels, values, once, squares, highest, left_out, first, last, of_rows, columns,
                groups, number, scatter, size,
            )  # fmt: skip
            length = points.n_tiles if column_width else 0
            return Touched((columns, scatter, size), touched.astype(np.uint32), length), groups, number

        def rows_of(piece: tuple[int, int]) -> slice:
            return slice(int(queries.starts[piece[0]]), int(queries.starts[piece[1]]))

        def work(piece: tuple[int, int]) -> WithItem:
            of_rows[rows_of(piece)] = 0.0
            total: Any = None
            taken, number = [], np.zeros(2, dtype=np.int64)
            for first, last in self._parts(plan, piece, column_width):
                given, groups, counted = part(first, last)
                total = given if total is None else given.add_to(total)
                taken.append(groups)
                number += counted
            return WithItem(total, (np.concatenate(taken), number))

        costs = plan.costs()
        pieces = plan.pieces(costs)
        of_pieces = np.array([costs[slice(*piece)].sum() for piece in pieces], dtype=np.float64)
        sums, items = summed_and_listed(work, pieces, self._threads, Filled((of_rows,), rows_of), of_pieces)
        assert sums is not None
        counts += np.sum([number for _, number in items], axis=0)
        columns, scatter, size = sums
        if not column_width:
            columns = np.zeros((points.n_tiles, 0, PRUNED_TILE))
        return of_rows, columns, np.concatenate([groups for groups, _ in items]), scatter, size

    def _parts(self, plan: Plan, piece: tuple[int, int], column_width: int) -> list[tuple[int, int]]:
        """Return a piece, in halves as often as what it gives to the points takes too much memory."""
        (first, last), most = piece, tuning.RECEIVED_BYTES // (8 * max(column_width, 1) * PRUNED_TILE)
        tiles = plan.tiles[plan.starts[first] : plan.starts[last]]
        if last - first == 1 or column_width == 0 or len(tiles) <= most or len(np.unique(tiles)) <= most:
            return [piece]
        middle = (first + last) // 2
        return [part for half in ((first, middle), (middle, last)) for part in self._parts(plan, half, column_width)]
