"""Conversion of pairs, groups, triplets and negatives of anchors into one form."""

import warnings
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components

from vicinal._callers import callers_line
from vicinal._supervision import check_length, check_pair_weight, check_position_table, code_groups

_MANY_GROUPS = 20  # from this number on, whole groups are held out
_ROWS_OF_PART = 10  # of fewer groups


class Batch(NamedTuple):
    """Positions of anchors and candidates, which candidate is each anchor's positive, what is masked, and weights."""

    anchors: np.ndarray
    candidates: np.ndarray
    positives: np.ndarray
    masked: np.ndarray
    weights: np.ndarray | None


class AnchorPairs:
    """Pairs (anchor, row) with weights, rows that an anchor should not find, and the other positives of each anchor.

    Parameters
    ----------
    pairs : int array of shape (p, 2)
        Anchors are positions in the table of queries, or in X itself if there is no such table.
    weights : array of shape (p,), optional
    negatives : int array of shape (q, 2)
        Rows that an anchor should not find.
    n_anchors, n_rows : int
    own_table : bool
        Whether anchors are in a separate table. Otherwise they are rows of X, which do not compete with themselves, and a
        pair counts in both directions.
    codes : int array of shape (n_rows,), optional
        Groups instead of pairs: rows of one group are positives of each other.
    """

    def __init__(
        self, pairs: np.ndarray, weights: np.ndarray | None, negatives: np.ndarray, n_anchors: int, n_rows: int, *, own_table: bool,
        codes: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        self.pairs, self.weights, self.own_table, self.codes = pairs, weights, own_table, codes
        self.shape = (n_anchors, n_rows)
        listed = (
            pairs
            if own_table
            else np.concatenate([pairs, pairs[:, ::-1], np.repeat(np.arange(n_rows), 2).reshape(-1, 2)])
        )
        self.known = _lists(listed, self.shape)
        self.negatives = _lists(negatives, self.shape)
        self._place = np.full(n_rows, -1)

    @cached_property
    def components(self) -> np.ndarray:
        """The connected component of each pair, from 0: pairs of a component share rows, directly or through other pairs."""
        left, right = self.pairs.T
        offset = self.shape[0] if self.own_table else 0
        size = self.shape[1] + offset
        graph = coo_array((np.ones(len(left), dtype=np.int8), (left, right + offset)), shape=(size, size))
        return np.unique(connected_components(graph, directed=False)[1][left], return_inverse=True)[1]

    def batches(
        self, chosen: np.ndarray, size: int, random: np.random.RandomState, mined: np.ndarray | None
    ) -> Iterator[Batch]:
        """Yield one pass over some pairs in random order; `mined` holds hard negatives of each pair, -1 for none."""
        order = random.permutation(chosen)
        for start in range(0, len(order), size):
            batch = order[start : start + size]
            if len(batch) < 2 and start:
                return
            anchors, positives = self.pairs[batch].T
            if not self.own_table and self.codes is None:  # a pair counts in both directions
                turned = random.rand(len(batch)) < 0.5
                anchors, positives = np.where(turned, positives, anchors), np.where(turned, anchors, positives)
            more = [self._some_negatives(anchors, random)]
            if mined is not None:
                more.append(mined[batch].ravel())
            yield self.batch(
                anchors, positives, np.concatenate(more), None if self.weights is None else self.weights[batch]
            )

    def batch(
        self, anchors: np.ndarray, positives: np.ndarray, more: np.ndarray, weights: np.ndarray | None = None
    ) -> Batch:
        """Return the batch of some anchors, with their positives and further rows as candidates."""
        candidates = np.unique(np.concatenate([positives, more[more >= 0]]))
        self._place[candidates] = np.arange(len(candidates))
        masked = np.zeros((len(anchors), len(candidates)), dtype=bool)
        if self.codes is not None:
            masked |= self.codes[anchors][:, None] == self.codes[candidates]
        rows = self.known[anchors]
        number, place = np.repeat(np.arange(len(anchors)), np.diff(rows.indptr)), self._place[rows.indices]
        masked[number[place >= 0], place[place >= 0]] = True
        places = self._place[positives]
        masked[np.arange(len(anchors)), places] = False
        self._place[candidates] = -1
        return Batch(anchors, candidates, places, masked, weights)

    def are_positives(self, anchors: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return which of some rows (m, c) are known to belong to each of m anchors, including the anchor itself."""
        if self.codes is not None:
            return self.codes[rows] == self.codes[anchors][:, None]
        n_rows = self.shape[1]
        keys = np.repeat(np.arange(self.shape[0]), np.diff(self.known.indptr)) * n_rows + self.known.indices
        wanted = anchors[:, None] * n_rows + rows
        return np.append(keys, -1)[np.searchsorted(keys, wanted)] == wanted

    def _some_negatives(self, anchors: np.ndarray, random: np.random.RandomState) -> np.ndarray:
        """Return one of the given negatives of each anchor that has any."""
        starts, counts = self.negatives.indptr[anchors], np.diff(self.negatives.indptr)[anchors]
        have = counts > 0
        return self.negatives.indices[starts[have] + (random.rand(have.sum()) * counts[have]).astype(np.int64)]


def read_anchor_pairs(
    n_rows: int, n_queries: int | None, y: Any, pairs: Any, triplets: Any, negatives: Any, pair_weight: Any,
    random: np.random.RandomState,
) -> AnchorPairs:  # fmt: skip
    """Read the supervision that was passed to ``AnchorNCA.fit``."""
    given = [name for name, value in (("y", y), ("pairs", pairs), ("triplets", triplets)) if value is not None]
    if not given:
        raise ValueError(
            "AnchorNCA requires y to be passed, but the target y is None, and neither pairs nor triplets are given. Pass one of them."
        )
    if len(given) > 1:
        raise ValueError(f"AnchorNCA takes one of y, pairs and triplets, got {' and '.join(given)}. Pass one of them.")
    n_anchors, own_table = (n_rows, False) if n_queries is None else (n_queries, True)
    unlike = check_position_table([] if negatives is None else negatives, (n_anchors, n_rows), "negatives")
    codes = None
    if y is not None:
        if own_table:
            raise ValueError(
                "y holds groups of the rows of X and has no groups of the queries. Pass pairs together with queries."
            )
        codes = code_groups(y)
        check_length(codes, n_rows, "y", "Pass one group per row (-1 for none).")
        listed = _mates(codes, random)
        # Rows in no group compete with all rows.
        codes = np.where(codes >= 0, codes, -2 - np.arange(n_rows))
    elif pairs is not None:
        listed = check_position_table(pairs, (n_anchors, n_rows), "pairs")
    else:
        three = check_position_table(triplets, (n_anchors, n_rows, n_rows), "triplets")
        listed, unlike = three[:, :2], np.concatenate([unlike, three[:, [0, 2]]])
    if y is not None and pair_weight is not None:
        raise ValueError("pair_weight holds weights of pairs or triplets, but y was passed. Pass pairs instead of y.")
    weights = check_pair_weight(pair_weight, len(listed))
    is_used = np.ones(len(listed), dtype=bool) if own_table else listed[:, 0] != listed[:, 1]
    if weights is not None:
        is_used &= weights > 0
    if not is_used.any():
        raise ValueError("AnchorNCA needs at least one pair of different rows, got none.")
    anchored = AnchorPairs(
        listed[is_used],
        None if weights is None else weights[is_used],
        unlike,
        n_anchors,
        n_rows,
        own_table=own_table,
        codes=codes,
    )
    contradicted = int(anchored.are_positives(unlike[:, 0], unlike[:, 1:]).sum())
    if contradicted:
        warnings.warn(
            f"{contradicted} of {len(unlike)} negatives are positives of the same anchor, or the anchor itself: they are "
            "ignored. Check how the pairs and the negatives were made.",
            UserWarning,
            stacklevel=callers_line(),
        )
    return anchored


def _mates(codes: np.ndarray, random: np.random.RandomState) -> np.ndarray:
    """Pair each row of a group with the next one in a random cyclic order of the group.

    Few groups are cut into parts of ten rows or so, so that some of the connected components of pairs can be held out.
    """
    order = random.permutation(len(codes))
    order = order[np.argsort(codes[order], kind="stable")]
    order = order[codes[order] >= 0]
    sizes = np.unique(codes[order], return_counts=True)[1]
    if len(sizes) < _MANY_GROUPS:
        sizes = np.concatenate([[0], *(_sizes_of_parts(size) for size in sizes.tolist())])[1:]
    starts = np.cumsum(sizes) - sizes
    after = np.arange(1, len(order) + 1)
    after[starts + sizes - 1] = starts
    return np.column_stack([order, order[after]])


def _sizes_of_parts(size: int) -> np.ndarray:
    """Return the sizes of the parts of a group, equal up to one row."""
    return np.diff(np.linspace(0, size, max(round(size / _ROWS_OF_PART), 1) + 1).astype(np.int64))


def _lists(pairs: np.ndarray, shape: tuple[int, int]) -> csr_array:
    """Return the second positions by the first ones, each once and in their order."""
    lists = csr_array((np.ones(len(pairs), dtype=bool), (pairs[:, 0], pairs[:, 1])), shape=shape)
    lists.sum_duplicates()
    return lists
