"""Conversion of labels, groups and pairs to chunklets.

A *chunklet* is a set of two or more rows that are known to share a class, although the class may be unknown (Bar-Hillel
et al. 2005, sec. 2).  Labels, groups and pairs are converted to one of

- an integer array with one entry per row, -1 for a row in no chunklet (the result of the public functions);
- :class:`ChunkletRows`, positions and ids side by side, for chunklets that share rows (independent teachers).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence, ValuesView
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from vicinal._callers import callers_line
from vicinal._checks import check_integer
from vicinal._supervision.labels import check_length, check_pairs, check_positions, code_groups
from vicinal._tensors import as_host


class ChunkletRows(NamedTuple):
    """Chunklets as row positions and chunklet ids, entry by entry; a row may be in several chunklets.

    Attributes
    ----------
    rows : ndarray of int
        The position of a row, for each entry.
    ids : ndarray of int
        The chunklet of that row.
    """

    rows: np.ndarray
    ids: np.ndarray


@dataclass(frozen=True)
class ChunkletReport:
    """How labels, groups or pairs were interpreted, in counts.

    Attributes
    ----------
    n_samples : int
        Rows in the data.
    n_chunklets : int
        Chunklets with two or more points.
    n_points : int
        Points in them (``N`` of Eq. 1); a row in two chunklets counts twice.
    n_leftover : int
        Rows in no chunklet, singletons included.
    n_singletons : int
        Labels or groups with only one row, which contain no information.
    n_self_pairs : int
        Repetitions of a row inside one pair or group; ignored.
    n_shared : int
        Rows named by two or more pairs or groups.
    n_conflicts : int
        Contradictions: ``cannot_link`` pairs inside one chunklet, chunklets that hold two labels.
    """

    n_samples: int
    n_chunklets: int
    n_points: int
    n_leftover: int
    n_singletons: int = 0
    n_self_pairs: int = 0
    n_shared: int = 0
    n_conflicts: int = 0

    @property
    def degrees_of_freedom(self) -> int:
        """``R = sum(|C_j| - 1)``: independent contrasts within chunklets (Algorithm 2, step 1)."""
        return self.n_points - self.n_chunklets

    def __str__(self) -> str:
        parts = [
            f"{self.n_chunklets} chunklets hold {self.n_points} points (R = {self.degrees_of_freedom})",
            f"{self.n_leftover} of {self.n_samples} rows are in none",
        ]
        for count, what in (
            (self.n_singletons, "singletons"),
            (self.n_self_pairs, "self-pairs ignored"),
            (self.n_shared, "rows named more than once"),
            (self.n_conflicts, "conflicts"),
        ):
            if count:
                parts.append(f"{count} {what}")
        return "; ".join(parts) + "."


def chunklets_from_labels(y: ArrayLike) -> NDArray[Any]:
    """Turn full or partial labels into chunklets: rows with the same label share one.

    Parameters
    ----------
    y : array-like of shape (n,)
        Integers, strings, booleans, dates or a pandas column (categories too).  -1, "-1", None, NaN,
        ``pd.NA`` and masked entries mean "not labelled".  Integers below -1 raise an error, because they may mean either.

    Returns
    -------
    chunklets : int array of shape (n,)
        Ids 0, 1, ... in the order of first appearance; -1 for rows without a label and for labels that occur
        once (a chunklet has at least two points).

    Examples
    --------
    >>> from vicinal import chunklets_from_labels
    >>> chunklets_from_labels(["cat", None, "dog", "cat", "dog", "emu"])
    array([ 0, -1,  1,  0,  1, -1])
    """
    entries, report = _from_codes(code_groups(y))
    return as_array(entries, report.n_samples)


def chunklets_from_pairs(
    pairs: ArrayLike, n_samples: int, *, cannot_link: ArrayLike | None = None, labels: ArrayLike | None = None
) -> NDArray[Any]:
    """Turn pairs of rows that belong together into chunklets, by transitive closure (sec. 2).

    Parameters
    ----------
    pairs : array-like of shape (p, 2)
        Row positions.  A row paired with itself contains no information; it is ignored and counted.
    n_samples : int
        Number of rows of the data.
    cannot_link : array-like of shape (q, 2), default=None
        Pairs of rows that do not belong together.  They create no chunklets; pairs that contradict the closure are counted.
    labels : array-like of shape (n_samples,), default=None
        Classes of some rows (-1, None or NaN elsewhere).  They create no chunklets either; chunklets that
        contain two labels are counted.

    Returns
    -------
    chunklets : int array of shape (n_samples,)
        Ids 0, 1, ... in the order of first appearance, -1 for rows in no pair.

    Warns
    -----
    UserWarning
        If ``cannot_link`` or ``labels`` contradict the chunklets, with counts.

    Notes
    -----
    The chunklets are the connected components of a graph with n_samples nodes and p edges, which takes O(n_samples + p)
    time and memory.

    Examples
    --------
    >>> from vicinal import chunklets_from_pairs
    >>> chunklets_from_pairs([[4, 1], [1, 2], [0, 5], [3, 3]], n_samples=7)
    array([ 0,  1,  1, -1,  1,  0, -1])
    """
    return _read_pairs(pairs, n_samples, cannot_link, labels)[0]


def _read_pairs(
    pairs: ArrayLike, n_samples: int, cannot_link: ArrayLike | None, labels: ArrayLike | None
) -> tuple[np.ndarray, ChunkletReport]:
    """Return the chunklets of pairs, and the report on them; warns about contradictions."""
    n_samples = check_integer(n_samples, "n_samples")
    entries, report = _from_edges(check_pairs(pairs, n_samples, "pairs"), n_samples)
    chunklets, conflicts = as_array(entries, n_samples), []
    if cannot_link is not None:
        left, right = check_pairs(cannot_link, n_samples, "cannot_link").T
        together = (left == right) | ((chunklets[left] == chunklets[right]) & (chunklets[left] >= 0))
        inside = int(together.sum())
        if inside:
            conflicts.append((inside, f"{inside} of {len(left)} cannot_link pairs fall inside one chunklet"))
    if labels is not None:
        codes = code_groups(labels, "labels")
        check_length(codes, n_samples, "labels")
        mixed = _count_mixed(chunklets, codes)
        if mixed:
            conflicts.append((mixed, f"{mixed} of {report.n_chunklets} chunklets join different labels"))
    if conflicts:
        report = replace(report, n_conflicts=sum(count for count, _ in conflicts))
        warnings.warn(
            "; ".join(text for _, text in conflicts)
            + ". A single wrong pair merges two whole groups: check the pairs for "
            "rows that do not belong together, and drop them.",
            UserWarning,
            stacklevel=callers_line(),
        )
    return chunklets, report


def chunklets_from_groups(groups: Any, n_samples: int) -> NDArray[Any]:
    """Turn lists of rows that belong together into chunklets; lists that share a row are merged.

    Parameters
    ----------
    groups : sequence or mapping of sequences of int
        Row positions of each group, for example the result of ``DataFrame.groupby(...).indices``.
    n_samples : int
        Number of rows of the data.

    Returns
    -------
    chunklets : int array of shape (n_samples,)
        Ids 0, 1, ... in the order of first appearance, -1 for rows in no group or in a group of one row.

    Examples
    --------
    >>> from vicinal import chunklets_from_groups
    >>> chunklets_from_groups([[0, 1, 2], [3, 5], [5, 6], [4]], n_samples=8)
    array([ 0,  0,  0,  1, -1,  1,  1, -1])
    """
    n_samples = check_integer(n_samples, "n_samples")
    return as_array(_from_groups(groups, n_samples, "groups")[0], n_samples)


def read_chunklets(y: ArrayLike | None, n_samples: int, *, name: str = "y") -> tuple[ChunkletRows, ChunkletReport]:
    """Read chunklets in any of the accepted forms.

    Return ``(ChunkletRows, ChunkletReport)``; entries are sorted by id, ids are 0 ... C-1 and every chunklet
    has at least two different rows.  The forms are:

    - one label per row (array, list, pandas column, one-column table): :func:`chunklets_from_labels`;
    - a tuple ``(rows, ids)``: used directly, chunklets may share rows;
    - a table of integers with two or more columns, each row of it a pair or group: closure;
    - a list or mapping of lists of row positions: closure.
    """
    if y is None:
        raise ValueError(
            f"this method requires {name} to be passed, but the target {name} is None. Pass chunklets: one id per row (-1 "
            "for none), lists of row positions, or pairs."
        )
    y = tuple(map(as_host, y)) if isinstance(y, tuple) else as_host(y)
    if isinstance(y, tuple) and len(y) == 2 and all(map(_is_listlike, y)):
        return _from_rows_and_ids(*y, n_samples, name)
    if _looks_like_labels(y, n_samples):
        raise ValueError(
            f"{name} looks like labels (one-hot, or all in one row), which would merge the wrong rows if they were read as row "
            "positions. Pass one label per row: y.argmax(axis=1) for one-hot rows, y.ravel() for a single row."
        )
    if isinstance(y, (Mapping, ValuesView)) or (isinstance(y, (list, tuple)) and len(y) and all(map(_is_listlike, y))):
        return _from_groups(y, n_samples, name)
    table = np.asarray(y)
    if table.ndim == 1 and table.dtype == object and len(table) and all(map(_is_listlike, table)):
        return _from_groups(list(table), n_samples, name)
    if table.ndim == 2 and table.shape[1] == 2:
        return _from_edges(check_pairs(table, n_samples, name), n_samples)
    if table.ndim == 2 and table.shape[1] > 2:
        return _from_groups(list(table), n_samples, name)
    codes = code_groups(y, name)
    check_length(codes, n_samples, name, "Pass one id per row (-1 for none), or lists of row positions.")
    return _from_codes(codes)


def read_partition(y: ArrayLike | None, n_samples: int, *, name: str = "y") -> tuple[np.ndarray, ChunkletReport]:
    """Read chunklets as one id per row (-1 for none), merging those that share a row, and return a report as well."""
    entries, report = read_chunklets(y, n_samples, name=name)
    entries, report = _join_shared(entries, report)
    return as_array(entries, n_samples), report


def as_array(entries: ChunkletRows, n_samples: int) -> np.ndarray:
    """Return chunklets that share no row as one id per row, numbered by first appearance; -1 elsewhere."""
    n_chunklets = _n_chunklets(entries)
    first = np.empty(n_chunklets, dtype=np.int64)
    first[entries.ids[::-1]] = entries.rows[::-1]  # the first row of each chunklet is written last, so it is kept
    number = np.empty(n_chunklets, dtype=np.int64)
    number[np.argsort(first)] = np.arange(n_chunklets)
    chunklets = np.full(n_samples, -1)
    chunklets[entries.rows] = number[entries.ids]
    return chunklets


def merge_shared(entries: ChunkletRows, n_samples: int) -> ChunkletRows:
    """Join chunklets that share a row: the transitive closure over all of them."""
    same = entries.ids[1:] == entries.ids[:-1]
    return _from_edges(np.column_stack([entries.rows[:-1][same], entries.rows[1:][same]]), n_samples)[0]


def _join_shared(entries: ChunkletRows, report: ChunkletReport) -> tuple[ChunkletRows, ChunkletReport]:
    if report.n_points == report.n_samples - report.n_leftover:  # no row is in two chunklets
        return entries, report
    entries = merge_shared(entries, report.n_samples)
    return entries, replace(report, n_chunklets=_n_chunklets(entries), n_points=len(entries.rows))


def _n_chunklets(entries: ChunkletRows) -> int:
    return int(entries.ids.max(initial=-1)) + 1


# Readers: each returns (ChunkletRows, ChunkletReport), entries sorted by id and then by row.


def _from_codes(codes: np.ndarray) -> tuple[ChunkletRows, ChunkletReport]:
    rows = np.flatnonzero(codes >= 0)
    return _collect(rows, codes if len(rows) == len(codes) else codes[rows], len(codes))


def _from_edges(edges: np.ndarray, n_samples: int) -> tuple[ChunkletRows, ChunkletReport]:
    left, right = edges.T
    graph = coo_array((np.ones(len(edges), dtype=np.int8), (left, right)), shape=(n_samples, n_samples))
    component = connected_components(graph, directed=False)[1]
    self_pairs = left == right
    named = np.bincount(edges[~self_pairs].ravel(), minlength=n_samples)
    rows = np.flatnonzero(named)
    entries, report = _collect(rows, component[rows], n_samples)
    return entries, replace(report, n_self_pairs=int(self_pairs.sum()), n_shared=int((named > 1).sum()))


def _from_groups(groups: Iterable[Any], n_samples: int, name: str) -> tuple[ChunkletRows, ChunkletReport]:
    if not isinstance(groups, Iterable):
        raise TypeError(
            f"{name} must hold lists of row positions, got {type(groups).__name__}. Pass one list per group, for "
            "example [[0, 1], [2, 5, 6]]."
        )
    groups = list(groups.values() if isinstance(groups, Mapping) else groups)
    parts = [np.asarray(list(group) if isinstance(group, (set, frozenset)) else group) for group in groups]
    for k, part in enumerate(parts):
        if part.ndim != 1 or (len(part) and part.dtype.kind not in "iu"):
            raise ValueError(
                f"{name} must hold lists of row positions (integers), got {part.dtype} of shape {part.shape} "
                f"as group {k}. Pass one label per row if these are labels."
            )
    rows = np.concatenate([np.empty(0, dtype=np.int64), *(part for part in parts if len(part))])
    ids = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    return _join_shared(*_from_rows_and_ids(rows, ids, n_samples, name))


def _from_rows_and_ids(
    rows: np.ndarray, ids: np.ndarray, n_samples: int, name: str
) -> tuple[ChunkletRows, ChunkletReport]:
    rows = np.asarray(rows)
    codes = code_groups(ids, f"the ids of {name}")
    if rows.shape != codes.shape:
        raise ValueError(
            f"{name}=(rows, ids) needs as many rows as ids, got {rows.shape} and {codes.shape}. Pass a list, "
            "not a tuple, if these are two groups of row positions."
        )
    rows = check_positions(rows, n_samples, name)[codes >= 0]
    codes = codes[codes >= 0]
    order = np.lexsort((rows, codes))
    rows, codes = rows[order], codes[order]
    repeated = np.zeros(len(rows), dtype=bool)
    repeated[1:] = (rows[1:] == rows[:-1]) & (codes[1:] == codes[:-1])
    rows, codes = rows[~repeated], codes[~repeated]
    entries, report = _collect(rows, codes, n_samples)
    named = np.bincount(rows, minlength=n_samples)
    return entries, replace(report, n_self_pairs=int(repeated.sum()), n_shared=int((named > 1).sum()))


def _collect(rows: np.ndarray, codes: np.ndarray, n_samples: int) -> tuple[ChunkletRows, ChunkletReport]:
    """Drop singletons, number the rest 0 ... C-1, sort entries by id (a counting sort, O(entries))."""
    sizes = np.bincount(codes)
    kept = sizes >= 2
    n_chunklets = int(kept.sum())
    if int(sizes[kept].sum()) < len(rows):
        inside = kept[codes]
        rows, codes = rows[inside], codes[inside]
    # There may be many more rows than fit into memory with all their columns, so copies of the entries are small and few.
    small = np.int32 if max(n_samples, len(rows)) < 2**31 else np.int64
    is_used = np.zeros(n_samples, dtype=bool)
    is_used[rows] = True
    n_leftover = n_samples - np.count_nonzero(is_used)
    positions = (np.cumsum(kept) - 1).astype(small)[codes], rows.astype(small)
    by_id = coo_array((np.ones(len(rows), dtype=bool), positions), shape=(n_chunklets, n_samples)).tocsr()
    entries = ChunkletRows(by_id.indices.astype(np.int64), np.repeat(np.arange(n_chunklets), sizes[kept]))
    n_singletons = int((sizes == 1).sum())
    return entries, ChunkletReport(n_samples, n_chunklets, len(rows), int(n_leftover), n_singletons)


def _is_listlike(value: Any) -> bool:
    """Return whether a value is a collection: a list, set, array or pandas column, but not a string or a number."""
    if isinstance(value, (Sequence, set, frozenset)):
        return not isinstance(value, (str, bytes))
    return hasattr(value, "__array__") and np.ndim(value) > 0


def _looks_like_labels(y: Any, n_samples: int) -> bool:
    """Return whether a table of numbers holds one-hot labels, or all ids in one row, and not row positions."""
    try:
        table = np.asarray(y)
    except ValueError:  # lists of different lengths
        return False
    if n_samples < 3 or table.ndim != 2 or table.dtype.kind not in "biuf":
        return False
    one_hot = len(table) == n_samples and table.shape[1] > 1 and table.min() == 0 and table.max() == 1
    one_row = table.shape == (1, n_samples) and len(np.unique(table)) < n_samples
    return one_hot or one_row


def _count_mixed(chunklets: np.ndarray, codes: np.ndarray) -> int:
    """Count the chunklets that hold rows of more than one known label."""
    both = (chunklets >= 0) & (codes >= 0)
    kinds = np.unique(np.column_stack([chunklets[both], codes[both]]), axis=0)
    return int((np.bincount(kinds[:, 0]) > 1).sum()) if len(kinds) else 0
