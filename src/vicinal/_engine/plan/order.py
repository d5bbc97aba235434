"""A spatial order of rows: neighbours in the order are neighbours in space, under any metric.

The order is that of the leaves of a balanced k-d tree, cut at whole tiles and, inside a tile, at whole query groups (`plan/tiles.py`).
The tree itself is not kept.  The position of a cut depends only on the number of rows of the node, so any thread can process a node
without changing the order.
"""

from itertools import pairwise
from typing import Any

import numpy as np
from numba import float64, int64, njit, void

from vicinal._engine import tuning
from vicinal._engine.tuning import PRUNED_TILE, QUERY_GROUP
from vicinal._engine.work.compiling import _OPTIONS, _kernel
from vicinal._engine.work.pool import in_order

_SAMPLED = 128  # rows of a node that choose its axis
_PIVOTS, _FEW_PIVOTS = 63, 9  # keys that a pivot is chosen from: of many keys, and of few
_FEW_KEYS = 16  # keys that are sorted at once


def spatial_order(images: np.ndarray, groups: np.ndarray, threads: int) -> np.ndarray:
    """Return the positions of the rows, each group in its own spatial order.

    Parameters
    ----------
    images : array of shape (n, k)
    groups : integer array of shape (g + 1,)
        Rows ``groups[c]..groups[c + 1]`` of the images are group c, and stay together.
    threads : int
    """
    n = len(images)
    index, keys = np.arange(n), np.empty(n)
    nodes = list(pairwise(groups.tolist()))
    large = [node for node in nodes if node[1] - node[0] > tuning.SERIAL_ORDER_ROWS]
    for start, stop in large:
        split_node(images, index, keys, start, stop, tuning.SERIAL_ORDER_ROWS)
    parts = [node for node in nodes if node[1] - node[0] <= tuning.SERIAL_ORDER_ROWS]
    for start, stop in large:
        parts += _parts_of(start, stop, tuning.SERIAL_ORDER_ROWS)
    for _ in in_order(lambda node: split_node(images, index, keys, *node, QUERY_GROUP), parts, threads):
        pass
    return index


def _parts_of(start: int, stop: int, most: int) -> list[tuple[int, int]]:
    """Return the nodes of at most a given number of rows, at which `split_node` stops."""
    nodes, done = [(start, stop)], []
    while nodes:
        first, last = nodes.pop()
        if last - first <= most:
            done.append((first, last))
        else:
            cut = first + max(((last - first) // PRUNED_TILE + 1) // 2, 1) * PRUNED_TILE
            nodes += [(first, cut), (cut, last)]
    return done


@njit(**_OPTIONS)
def _select(keys: np.ndarray, index: np.ndarray, low: int, high: int, cut: int, sample: np.ndarray) -> None:
    """Order the keys low..high, and the index with them, so that no key before the cut is larger than one after it.

    Floyd's and Rivest's selection: pivots are order statistics of a sample, a little towards the middle from where the
    cut is expected, so that the cut is likely in the smaller part.
    """
    while high - low > _FEW_KEYS:
        count = high - low
        n = _PIVOTS if count >= 64 * _PIVOTS else _FEW_PIVOTS
        for i in range(n):
            sample[i] = keys[low + i * (count // n)]
        _sort(sample, index, 0, n, False)
        share, spread = (cut - low) / count, 0.5 / np.sqrt(float64(n))
        share += spread if share < 0.5 else -spread
        pivot = sample[min(max(int64(share * n), 0), n - 1)]
        middle = _partition(keys, index, low, high, pivot, False)
        if middle == low:  # the pivot is the smallest key: those that are equal to it go first
            middle = _partition(keys, index, low, high, pivot, True)
            if cut <= middle or middle == low:  # all keys before the cut are equal (or not numbers)
                return
            low = middle
        elif cut == middle:
            return
        elif cut < middle:
            high = middle
        else:
            low = middle
    _sort(keys, index, low, high, True)


@njit(**_OPTIONS)
def _sort(keys: np.ndarray, index: np.ndarray, low: int, high: int, with_index: bool) -> None:
    """Sort few keys by insertion, and the index with them."""
    for i in range(low + 1, high):
        key, row, j = keys[i], index[i] if with_index else 0, i
        while j > low and keys[j - 1] > key:
            keys[j] = keys[j - 1]
            if with_index:
                index[j] = index[j - 1]
            j -= 1
        keys[j] = key
        if with_index:
            index[j] = row


@njit(**_OPTIONS)
def _partition(keys: np.ndarray, index: np.ndarray, low: int, high: int, pivot: float, equal: bool) -> int:
    """Put the keys below the pivot, or also those that are `equal` to it, before all others; return where these begin.

    There is no branch in the loop, because half of its guesses would be wrong.
    """
    place = low
    for i in range(low, high):
        key, row = keys[i], index[i]
        keys[i], index[i] = keys[place], index[place]
        keys[place], index[place] = key, row
        place += int64(key <= pivot if equal else key < pivot)
    return place


def _split_signature(real: Any) -> Any:
    return void(real[:, ::1], int64[::1], float64[::1], int64, int64, int64)


@_kernel(_split_signature)
def split_node(  # compiled, with an explicit signature
    images: np.ndarray, index: np.ndarray, keys: np.ndarray, start: int, stop: int, most: int
) -> None:
    """Order ``index[start:stop]``; nodes of at most `most` rows are not changed.

    A node is cut across its axis of the largest variance, at the whole tile (or query group) next to its middle.
    """
    stack = np.empty((256, 2), dtype=np.int64)
    sample = np.empty(_PIVOTS)
    stack[0, 0], stack[0, 1] = start, stop
    top = 1
    while top > 0:
        top -= 1
        first, last = stack[top, 0], stack[top, 1]
        count = last - first
        unit = PRUNED_TILE if count > PRUNED_TILE else QUERY_GROUP
        if count <= most or count <= unit:
            continue
        axis, widest, step = 0, -1.0, max(count // _SAMPLED, 1)
        for k in range(images.shape[1]):
            origin, total, squares, seen = float64(images[index[first], k]), 0.0, 0.0, 0
            for i in range(first, last, step):
                x = images[index[i], k] - origin
                total += x
                squares += x * x
                seen += 1
            variance = squares - total * total / seen
            if variance > widest:
                axis, widest = k, variance
        cut = first + max((count // unit + 1) // 2, 1) * unit
        for i in range(first, last):
            keys[i] = images[index[i], axis]
        _select(keys, index, first, last, cut, sample)
        stack[top, 0], stack[top, 1] = first, cut
        stack[top + 1, 0], stack[top + 1, 1] = cut, last
        top += 2
