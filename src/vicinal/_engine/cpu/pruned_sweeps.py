r"""Pruned work: sums over only those pairs that can matter, with a certificate for the skipped pairs.

A row's sum ``Z_i = sum_j exp(s_ij)`` is summed over the pairs that are visited, and the certificate ``c_i`` bounds the
rest: ``Z_i - Z^_i <= c_i Z^_i``.  The requested results determine how pairs are weighted before they are skipped:

- ``power`` p: pairs at the distance u count ``max(1, u)^p`` times as much, for sums of differences (p = 1) and of their
  products (p = 2);
- values that lie far from the typical ones count as many times as much (`tiles.far_values`).
"""

from typing import Literal, NamedTuple

import numpy as np

from vicinal._engine import tuning
from vicinal._engine.accuracy import scatter_is_accurate
from vicinal._engine.cpu import pruned_kernels as kernels
from vicinal._engine.cpu.received import ReceivedTiles
from vicinal._engine.plan.tiles import Masses, QueryGroups, Tiles
from vicinal._engine.tuning import PRUNED_TILE, QUERY_GROUP
from vicinal._engine.work.blocks import Blocks, cut_by_cost
from vicinal._engine.work.pool import summed_and_listed
from vicinal._engine.work.sharing import Filled, WithItem, shared_by

# Only sums, values of pairs as well, or the scatter of all rows, in which each pair may be computed once.
Work = Literal["sums", "values", "scatter"]


class Shares(NamedTuple):
    """The share of all pairs whose distances were computed, and of those whose exponentials were."""

    visited: float
    taken: float


class PrunedSums(NamedTuple):
    """``log_sums`` (m,), ``means`` (m, v), ``entropies`` (m,) or empty, what the points of tiles received (n_tiles, u,
    TILE), and the certificate of each row (m,)."""

    log_sums: np.ndarray
    means: np.ndarray
    entropies: np.ndarray
    received: np.ndarray
    certificates: np.ndarray

    @property
    def certificate(self) -> float:
        """The largest certificate of any row."""
        return float(self.certificates.max(initial=0.0))


class PrunedScatter(NamedTuple):
    """``log_sums`` (m,), ``scatter`` (v, v), and the certificate of each row (m,)."""

    log_sums: np.ndarray
    scatter: np.ndarray
    certificates: np.ndarray

    @property
    def certificate(self) -> float:
        """The largest certificate of any row."""
        return float(self.certificates.max(initial=0.0))


class _Visited(NamedTuple):
    """The results of the kernel, in the order of the query groups; empty if they were not requested."""

    log_sums: np.ndarray
    certificates: np.ndarray
    means: np.ndarray
    entropies: np.ndarray
    columns: np.ndarray
    shares: np.ndarray
    scatter: np.ndarray
    size: float


class PrunedSweeps:
    """Sums over the pairs that matter.

    Parameters
    ----------
    tiles : Tiles
    error : float
        The largest certificate of a row, above 0.
    threads : int

    Attributes
    ----------
    shares : Shares
        The shares of the last sweep.
    """

    def __init__(self, tiles: Tiles, error: float, threads: int) -> None:
        self.tiles, self._error, self._threads = tiles, error, threads
        self.shares = Shares(1.0, 1.0)
        # The pieces of the last sweep and the pairs of each; and, for the sample, tiles and the pairs of a nearby row.
        self._visited: tuple[list[tuple[int, int]], np.ndarray] = [], np.empty((0, 2))
        self._sampled: tuple[np.ndarray, np.ndarray] | None = None

    # -- sweeps ----------------------------------------------------------------------------------------------------

    def sums(
        self, query_groups: QueryGroups, *, power: float = 0.0, values: np.ndarray | None = None, relative: bool = False,
        factors: np.ndarray | None = None, query_values: np.ndarray | None = None, query_images: bool = False,
        entropies: bool = False,
    ) -> PrunedSums:  # fmt: skip
        """Return log-sums and the other requested results, in the order in which the queries were given.

        Parameters
        ----------
        values : array of shape (n, v), optional
            Values of the points, whose means are requested.
        relative : bool
            Whether the means of ``z_j - q_i`` are requested instead.
        factors : array of shape (m,), optional
            The factors of the weights with which the points receive values.
        query_values : array of shape (m, u), optional
        query_images : bool
            Whether points receive ``q_i - c``, with c the centre of their tile, and 1.
        entropies : bool
            Whether the entropies of the softmax weights are requested.
        """
        tiles, m = self.tiles, len(query_groups.order)
        packed = tiles.packed[:, :0] if values is None else tiles.pack(values)
        packed = tiles.packed if relative else np.ascontiguousarray(packed)
        given = np.empty((m, 0)) if query_values is None else query_values[query_groups.order]
        given = np.ascontiguousarray(given, dtype=tiles.dtype)
        found = self._visit(
            query_groups, tiles.masses(values), power, packed, relative=relative, query_values=given, query_images=query_images,
            factors=factors, n_columns=tiles.k + 1 if query_images else given.shape[1], n_means=packed.shape[1],
            entropies=entropies,
        )  # fmt: skip
        return PrunedSums(
            query_groups.given(found.log_sums), query_groups.given(found.means),
            query_groups.given(found.entropies) if entropies else found.entropies, found.columns, query_groups.given(found.certificates),
        )  # fmt: skip

    def scatter(
        self, query_groups: QueryGroups, row_weights: np.ndarray, values: tuple[np.ndarray, np.ndarray] | None = None
    ) -> PrunedScatter:
        """Return the scatter of the images, or of values of the points (n, v) and of the queries (m, v)."""
        found, size = self._scatter(query_groups, row_weights, values, direct=False)
        if scatter_is_accurate(found.scatter, size, self.tiles.dtype):
            return found
        return self._scatter(query_groups, row_weights, values, direct=True)[0]

    def _scatter(
        self,
        query_groups: QueryGroups,
        row_weights: np.ndarray,
        values: tuple[np.ndarray, np.ndarray] | None,
        direct: bool,
    ) -> tuple[PrunedScatter, float]:
        tiles = self.tiles
        about: tuple[np.ndarray, np.ndarray | None]
        if values is None:
            of_points, about = tiles.packed, (tiles.centres, None)
        else:
            of_points, middles = tiles.centred(values[0])
            about = middles, np.ascontiguousarray(values[1][query_groups.order], dtype=tiles.dtype)
        found = self._visit(
            query_groups, tiles.masses(), 2.0, of_points, factors=row_weights, about=about, direct=direct, n_columns=1,
            n_scatter=of_points.shape[1],
        )  # fmt: skip
        scatter, size = found.scatter + np.tril(found.scatter, -1).T, found.size
        for t in range(0, tiles.n_tiles, 64):
            some = slice(t, t + 64)
            weights = found.columns[some].reshape(-1)
            if not weights.any():  # a few queries reach few tiles
                continue
            y = of_points[some].transpose(0, 2, 1).reshape(-1, len(scatter)).astype(np.float64)
            scatter += (y * weights[:, None]).T @ y
            size += float(weights @ np.square(y).sum(axis=1))
        scatter = 0.5 * (scatter + scatter.T)
        return PrunedScatter(query_groups.given(found.log_sums), scatter, query_groups.given(found.certificates)), size

    def add_pull(self, query_groups: QueryGroups, factors: np.ndarray, pull: np.ndarray) -> float:
        """Add to the pull (n, k) of the points: ``sum_i f_i p_ij (z_j - q_i)``, and the opposite for the queries, which are points.

        Return the largest certificate of any row.
        The pull is in the order in which the points were given.  Sums over the neighbours of points and of queries are as large as
        the rows, so no other array of that size is allocated here.
        """
        tiles = self.tiles
        found = self._visit(
            query_groups, tiles.masses(), 1.0, tiles.packed, relative=True, query_images=True, factors=factors,
            n_columns=tiles.k + 1, n_means=tiles.k,
        )  # fmt: skip
        for part in Blocks(tiles.n, tuning.ALGEBRA_ROWS):
            t, j = tiles.at(part)
            received = found.columns[t, :, j]
            pull[tiles.order[part]] += received[:, -1:] * tiles.packed[t, :, j] - received[:, :-1]
        places = query_groups.places
        for part in Blocks(len(query_groups.order), tuning.ALGEBRA_ROWS):
            mine = tiles.order[part if places is None else places[part]]
            pull[mine] -= factors[query_groups.order[part], None] * found.means[part]
        return float(found.certificates.max(initial=0.0))

    def class_shares(self, query_groups: QueryGroups, codes: np.ndarray, n_classes: int) -> tuple[np.ndarray, float]:
        """Each class's share of the softmax weights (m, n_classes), and the largest certificate of any row."""
        tiles = self.tiles
        packed = np.zeros((tiles.n_tiles, PRUNED_TILE), dtype=np.int64)
        packed[tiles.tile_at, np.arange(tiles.n) - tiles.starts[tiles.tile_at]] = codes[tiles.order]
        nothing = np.ascontiguousarray(tiles.packed[:, :0])
        found = self._visit(query_groups, tiles.masses(), 0.0, nothing, codes=packed, n_classes=n_classes)
        return query_groups.given(found.shares), float(found.certificates.max(initial=0.0))

    def _visit(
        self, query_groups: QueryGroups, masses: Masses, power: float, values: np.ndarray, *, relative: bool = False,
        query_values: np.ndarray | None = None, query_images: bool = False, factors: np.ndarray | None = None,
        codes: np.ndarray | None = None, about: tuple[np.ndarray, np.ndarray | None] | None = None, direct: bool = False,
        n_means: int = 0, n_columns: int = 0, n_classes: int = 0, n_scatter: int = 0, entropies: bool = False,
    ) -> _Visited:  # fmt: skip
        """Run the kernel on pieces of the blocks, which depend only on the data, and add the results in a tree."""
        tiles, m, n_blocks = self.tiles, len(query_groups.order), len(query_groups.blocks) - 1
        # Distances of boxes are rounded down by more than the distances of pairs are rounded up.
        shrink = 1.0 - (2 * tiles.k + 16) * float(np.finfo(tiles.dtype).eps)
        plan = (*tiles.boxes, tiles.heaviest, masses.of_tiles, shrink)
        rule = (float(self._error), power, masses.log_unit, masses.log_all, float(tiles.n))
        none, blocks = np.empty((0, 0), dtype=tiles.dtype), query_groups.blocks
        f = np.ones(m) if factors is None else np.ascontiguousarray(factors[query_groups.order], dtype=np.float64)
        given = none if query_values is None else query_values
        classes = np.empty((0, 0), dtype=np.int64) if codes is None else codes
        log_sums, certificates, means = np.empty(m), np.zeros(m), np.empty((m, n_means))
        entropy, shares = np.empty(m if entropies else 0), np.zeros((m, n_classes))

        def rows_of(piece: tuple[int, int]) -> slice:
            return slice(int(blocks[piece[0]]), int(blocks[piece[1]]))

        def work(piece: tuple[int, int]) -> WithItem:
            mine, own = rows_of(piece), slice(*piece)
            images = tiles.images_of(query_groups, mine)
            asked = (
                images, query_groups.left_out[mine], query_groups.home[mine], blocks[piece[0] : piece[1] + 1] - mine.start,
                query_groups.first_tiles[own], query_groups.last_tiles[own], tiles.points, plan, masses.heavy, rule,
            )  # fmt: skip
            centres, of_queries = (none, none) if about is None else about
            wanted = (
                values, relative, given[mine], query_images, f[mine], classes,
                (centres, images if of_queries is None else of_queries[mine]), direct,
            )  # fmt: skip
            counts, scatter, size = np.zeros(2, dtype=np.int64), np.zeros((n_scatter, n_scatter)), np.zeros(1)
            found = tuple(array[mine] for array in (log_sums, certificates, means, entropy, shares))
            received = ReceivedTiles(tiles.n_tiles, n_columns)
            while received.progress[0] < piece[1] - piece[0]:
                kernels.visit_groups(
                    *asked, *wanted, *found, scatter, size, counts, received.columns, received.slots, received.progress
                )
                received.make_room()
            return WithItem(received.sums(scatter, size), counts)

        costs = self._costs(query_groups)
        pieces = (
            cut_by_cost(costs, tuning.PIECES if n_blocks < tuning.MANY_BLOCKS else tuning.MANY_PIECES)
            if n_blocks
            else [(0, 0)]
        )
        filled = Filled((log_sums, certificates, means, entropy, shares), rows_of)
        of_pieces = np.array([costs[slice(*piece)].sum() for piece in pieces])
        sums, counts = summed_and_listed(work, pieces, self._threads, filled, of_pieces)
        assert sums is not None
        columns, scatter, size = sums
        self._visited = pieces, np.array(counts)
        self.shares = Shares(*(self._visited[1].sum(axis=0) / max(float(m) * tiles.n, 1.0)))
        return _Visited(log_sums, certificates, means, entropy, columns, shares, scatter, float(size[0]))

    def _costs(self, query_groups: QueryGroups) -> np.ndarray:
        """Return how many pairs each block of queries is expected to visit, as a sample of nearby rows did.

        Without a sample, return all pairs that it may visit.
        """
        blocks, tiles = query_groups.blocks, query_groups.last_tiles - query_groups.first_tiles
        pairs = PRUNED_TILE * tiles.astype(np.float64)
        if self._sampled is not None:
            pairs = np.interp(query_groups.home[blocks[:-1]], *self._sampled)
        return np.diff(blocks) * pairs

    # -- the gate --------------------------------------------------------------------------------------------------

    def expected_shares(self) -> Shares:
        """Return the shares of a sweep of all rows, counted on a sample of query groups."""
        tiles = self.tiles
        step = max(tiles.n // (tuning.SAMPLED_GROUPS * QUERY_GROUP), 1)
        places = (np.arange(0, max(tiles.n // QUERY_GROUP, 1), step) * QUERY_GROUP)[:, None] + np.arange(QUERY_GROUP)
        positions = tiles.order[places[places < tiles.n]]
        sample = tiles.some_rows(positions, positions, block=QUERY_GROUP)
        with shared_by(None):  # so few rows take less time than a request to a worker
            self.sums(sample, power=2.0)
        pieces, counts = self._visited
        first, last = sample.blocks[np.array(pieces).T]
        self._sampled = sample.home[first], counts.sum(axis=1) / (last - first)
        return self.shares

    @staticmethod
    def saves_time(n_coordinates: int, shares: Shares, work: Work, halves: bool) -> bool:
        """Return whether pruned work with these shares is clearly less than a dense pass.

        Parameters
        ----------
        n_coordinates : int
            The number of coordinates of the images.
        shares : Shares
        work : {"sums", "values", "scatter"}
            The requested result.
        halves : bool
            Whether a dense pass would compute each pair once for both of its rows.
        """
        dense, visited, taken = (
            fixed + per_coordinate * n_coordinates
            for fixed, per_coordinate in (tuning.DENSE_COST[work], tuning.VISITED_COST[work], tuning.TAKEN_COST[work])
        )
        return shares.visited * visited + shares.taken * taken <= tuning.PRUNED_SAVING * dense * (
            1.0 if halves else 2.0
        )
