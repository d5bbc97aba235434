"""The sums of RCA over the partitions of a Dask collection: no process holds all rows.

::

      each partition      one task: the sums of all of its rows, and of the chunklets that lie in it alone
      large chunklets     of more rows than columns per partition: count, mean and scatter of each part, which are merged
      small chunklets     in several partitions: their rows are sent to one of `_MEETINGS` tasks, which has whole chunklets

The tasks depend on the partitions and the chunklets, never on the workers, and sums are added in the order of the partitions.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import dask
import numpy as np

from vicinal._engine.dask.cluster import computed
from vicinal._rows import check_magnitude, check_rows
from vicinal._rows.dask import partitions, table_of
from vicinal._scatter import ChunkletScatter, chunklet_scatter
from vicinal._supervision import ChunkletReport, ChunkletRows, read_chunklets

_MEETINGS = 16  # the maximum number of tasks that collect small chunklets


class LargeRows(NamedTuple):
    """Rows of large chunklets, by position; None means all positions of a partition."""

    rows: np.ndarray | None
    ids: np.ndarray  # the number of all large chunklets


class Share(NamedTuple):
    """The request to a partition, with positions within the partition and integers of few bytes."""

    alone: ChunkletRows  # chunklets that lie entirely in it
    large: LargeRows  # its part of large chunklets
    small: list[ChunkletRows]  # its rows of small chunklets, by meeting


class PartSums(NamedTuple):
    """The result of a partition."""

    sums: ChunkletScatter
    counts: np.ndarray  # (c,), for the large chunklets
    means: np.ndarray  # (c, d)
    scatters: np.ndarray  # (c, d, d)
    low: np.ndarray  # (d,), the smallest values
    high: np.ndarray


def sums_of_collection(estimator: Any, X: Any, y: Any, *, reset: bool) -> tuple[ChunkletScatter, ChunkletReport]:
    """Return the sums of a collection and the report on its chunklets; raise an error for columns that RCA cannot use.

    Parameters
    ----------
    estimator : RCA
        Receives the names and the number of columns if `reset`; otherwise X must have its columns.
    X : Dask array or dataframe
    y : chunklets, as in `RCA.fit`, or labels as a Dask collection aligned with X
    """
    parts, lengths, y = partitions(X, y)
    check_rows(estimator, table_of(X), reset=reset)  # names and number of the columns, from a row of zeros
    entries, report = read_chunklets(y, int(sum(lengths)))
    d = estimator.n_features_in_
    shares, n_large, n_meetings = _shares(entries, np.asarray(lengths), d)
    kept = [i for i, length in enumerate(lengths) if length]
    summed = dask.delayed(_sums_of_part, pure=True, name="vicinal.rca_sums")
    sent = dask.delayed(_rows_of_meetings, pure=True, nout=n_meetings, name="vicinal.rca_rows")
    met = dask.delayed(_sums_of_meeting, pure=True, name="vicinal.rca_meeting")
    tasks = [summed(parts[i], shares[i].alone, shares[i].large, n_large, i) for i in kept]
    if n_meetings:
        rows = [sent(parts[i], shares[i].small, i) for i in kept]
        ids = [np.concatenate([shares[i].small[b].ids for i in kept]) for b in range(n_meetings)]
        tasks += [met([part[b] for part in rows], ids[b]) for b in range(n_meetings)]
    results = computed(tasks)
    part_sums: list[PartSums] = results[: len(kept)]
    total = part_sums[0].sums
    for part in part_sums[1:]:
        total = total + part.sums
    for sums in results[len(kept) :]:
        total = total + sums
    if n_large:
        large = _merged(
            [part.counts for part in part_sums],
            [part.means for part in part_sums],
            [part.scatters for part in part_sums],
        )
        total = total + _without_rows(*large, total.resolution)
    extremes = np.array(
        [np.min([part.low for part in part_sums], axis=0), np.max([part.high for part in part_sums], axis=0)]
    )
    estimator._check_columns(extremes, total)
    return total, report


def _shares(entries: ChunkletRows, lengths: np.ndarray, d: int) -> tuple[list[Share], int, int]:
    """Return the request to each partition, the number of large chunklets, and the number of tasks for small ones."""
    starts = np.concatenate([[0], np.cumsum(lengths)])
    of_part = np.searchsorted(starts, entries.rows, side="right") - 1
    n_chunklets = int(entries.ids.max(initial=-1)) + 1
    sizes = np.bincount(entries.ids, minlength=n_chunklets)
    by_part = np.argsort(of_part, kind="stable")
    edges = np.searchsorted(of_part[by_part], np.arange(len(lengths) + 1))
    n_parts = np.zeros(n_chunklets, dtype=np.int64)
    for first, last in pairwise(edges):
        n_parts[np.unique(entries.ids[by_part[first:last]])] += 1
    spans = n_parts > 1
    is_large = spans & (sizes > d * n_parts)
    is_small = spans & ~is_large
    n_meetings = min(_MEETINGS, int(np.count_nonzero(is_small)))
    large_id, small_id = np.cumsum(is_large) - 1, np.cumsum(is_small) - 1
    shares = []
    for start, length, (first, last) in zip(starts[:-1], lengths, pairwise(edges), strict=True):
        mine = by_part[first:last]
        rows, ids = entries.rows[mine] - start, entries.ids[mine]
        alone, large, small = ~spans[ids], is_large[ids], is_small[ids]
        own = np.unique(ids[alone], return_inverse=True)[1]
        meeting = small_id[ids] % max(n_meetings, 1)
        shares.append(
            Share(
                _in_few_bytes(rows[alone], own),
                _large_by_row(rows[large], large_id[ids[large]], length),
                [_in_few_bytes(rows[some], ids[some]) for some in (small & (meeting == b) for b in range(n_meetings))],
            )
        )
    return shares, int(np.count_nonzero(is_large)), n_meetings


def _in_few_bytes(rows: np.ndarray, ids: np.ndarray) -> ChunkletRows:
    """Return chunklets as integers of the smallest sufficient size."""
    return ChunkletRows(*(array.astype(np.min_scalar_type(~array.max(initial=0))) for array in (rows, ids)))  # signed


def _large_by_row(rows: np.ndarray, ids: np.ndarray, length: int) -> LargeRows:
    order = np.argsort(rows, kind="stable")
    in_order = _in_few_bytes(rows[order], ids[order])
    return LargeRows(None if np.array_equal(in_order.rows, np.arange(length)) else in_order.rows, in_order.ids)


def _as_rows(part: Any, i: int) -> np.ndarray:
    """Return a partition as numbers; raise an error that names the partition for anything else, and for gaps."""
    rows = _as_numbers(part, i)
    if not np.isfinite(rows).all():
        raise ValueError(
            f"partition {i} of X contains NaN or infinity, and RCA needs finite numbers. Drop or fill such rows, for example "
            "with dropna()."
        )
    check_magnitude(rows)
    return rows


def _as_numbers(part: Any, i: int) -> np.ndarray:
    """Return a partition in float64 or float32, with the checks of a table in memory if it has any other dtype."""
    from vicinal._rca.rca import RCA

    rows = np.ascontiguousarray(part)
    if rows.dtype in (np.dtype(np.float64), np.dtype(np.float32)):
        return rows
    try:
        return check_rows(RCA(), part, reset=True)
    except ValueError as error:
        raise ValueError(f"partition {i} of X: {error}") from None


def _sums_of_part(part: Any, alone: ChunkletRows, large: LargeRows, n_large: int, i: int) -> PartSums:
    rows = _as_rows(part, i)
    d = rows.shape[1]
    counts, means, scatters = np.zeros(n_large), np.zeros((n_large, d)), np.zeros((n_large, d, d))
    order = np.argsort(large.ids, kind="stable")
    edges = np.searchsorted(large.ids[order], np.arange(n_large + 1))
    for c in range(n_large):
        some = order[edges[c] : edges[c + 1]]
        if len(some):
            some = some if large.rows is None else large.rows[some]
            points = rows[some].astype(np.float64)
            counts[c], means[c] = len(points), points.mean(axis=0)
            points -= means[c]
            scatters[c] = points.T @ points
    with np.errstate(over="ignore", invalid="ignore"):
        return PartSums(chunklet_scatter(rows, alone), counts, means, scatters, rows.min(axis=0), rows.max(axis=0))


def _rows_of_meetings(part: Any, small: list[ChunkletRows], i: int) -> tuple[np.ndarray, ...]:
    rows = _as_numbers(part, i)
    return tuple(rows[some.rows] for some in small)


def _sums_of_meeting(rows: list[np.ndarray], ids: np.ndarray) -> ChunkletScatter:
    """Return the sums of chunklets that are complete in this task; their rows are counted by their partitions."""
    points, order = np.concatenate(rows), np.argsort(ids, kind="stable")
    codes = np.unique(ids[order], return_inverse=True)[1]
    with np.errstate(over="ignore", invalid="ignore"):
        sums = chunklet_scatter(points, ChunkletRows(order, codes))
    return _without_rows(sums.n_points, sums.n_chunklets, sums.within, sums.fourth, sums.resolution)


def _merged(
    counts: Sequence[np.ndarray], means: Sequence[np.ndarray], scatters: Sequence[np.ndarray]
) -> tuple[int, int, np.ndarray, np.ndarray]:
    """Return points, chunklets, within scatter and fourth moments of chunklets that are known in parts.

    Parameters
    ----------
    counts, means, scatters : sequences of arrays of shape (c,), (c, d) and (c, d, d)
        The statistics of the points of each chunklet in each part; scatters are about the means of the parts.
    """
    count, mean, scatter = counts[0].copy(), means[0].copy(), scatters[0].copy()
    for more, at, about in zip(counts[1:], means[1:], scatters[1:], strict=True):
        both = np.maximum(count + more, 1.0)
        apart = np.where((count > 0)[:, None], at - mean, 0.0)
        scatter += about + (count * more / both)[:, None, None] * apart[:, :, None] * apart[:, None, :]
        mean = np.where((count > 0)[:, None], mean + (more / both)[:, None] * apart, at)
        count += more
    variances = np.diagonal(scatter, axis1=1, axis2=2)
    fourth = variances[:, :, None] * variances[:, None, :] + 2.0 * np.square(scatter)
    fourth /= (count + 1.0)[:, None, None]
    return int(count.sum()), len(count), scatter.sum(axis=0), fourth.sum(axis=0)


def _without_rows(
    n_points: int, n_chunklets: int, within: np.ndarray, fourth: np.ndarray, resolution: float
) -> ChunkletScatter:
    """Return the sums of chunklets alone, to be added to those of the rows."""
    d = len(within)
    none, nowhere = np.zeros((d, d)), np.zeros(d)
    return ChunkletScatter(0, nowhere, nowhere, none, n_points, n_chunklets, within, fourth, resolution)
