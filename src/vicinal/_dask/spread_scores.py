"""Methods of estimators whose densities are spread over the workers, for blocks of rows.

::

      rows of a method     the method runs once for a block of rows, to find the rows that it passes to each density
      scores of blocks     each block of components gives its part of their log-densities (`delayed_scores` of the density)
      answers              the method runs again, with these log-densities

A task is the scores of a block of rows by a block of components.  Small blocks of rows are scored together, so that the number of
tasks is limited.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import pairwise
from typing import Any

import dask
import numpy as np
from dask.delayed import Delayed

LEAST_ROWS = 2**14  # the number of rows up to which blocks are joined
MOST_TASKS = 20_000  # with more tasks than this, larger blocks of rows are joined, too


class _Call:
    """A call of a method on a worker: the rows that it passes to each density, and, in the second run, their log-densities."""

    def __init__(self, known: list[np.ndarray] | None = None) -> None:
        self.rows: dict[int, np.ndarray] = {}
        self.known = known


_call: ContextVar[_Call] = ContextVar("vicinal_spread_call")


@contextmanager
def _within(call: _Call) -> Iterator[None]:
    token = _call.set(call)
    try:
        yield
    finally:
        _call.reset(token)


def scores_of_call(place: int, rows: Any) -> np.ndarray:
    """Return the log-densities of rows under a density, given by its number among those of the estimator.

    In the first run of a method, the rows are noted, and the result is zero for each of them.
    """
    call = _call.get()
    if call.known is None:
        call.rows[place] = np.asarray(rows)
        return np.zeros(len(rows))
    return call.known[place]


def spread_answers(
    model: Delayed,
    spread: Sequence[Any],
    asked: Any,
    blocks: Sequence[Delayed],
    lengths: Sequence[float],
    kind: tuple[int | None, np.dtype] | None,
) -> list[Delayed]:
    """Return the results of a method for blocks of rows.

    Parameters
    ----------
    model : Delayed
        The estimator, whose densities are outlines.
    spread : sequence of mixtures
        These densities.
    asked : callable
        Called with the estimator and the rows of a block.
    blocks : sequence of Delayed
    lengths : sequence of numbers
        The numbers of rows of the blocks; NaN if they are not known.
    kind : (int or None, dtype), optional
        The number of columns of a result, and its dtype; by default no result is converted.
    """
    n_components = sum(len(mixture.blocks) for mixture in spread)
    note = dask.delayed(_rows_of_method, pure=True, nout=len(spread) + 1, name="vicinal.rows")
    apply = dask.delayed(_answer_of_method, pure=True, name=f"vicinal.{asked.name}")
    answers = []
    for first, last in joined_blocks(lengths, n_components):
        some = list(blocks[first:last])
        *rows, counts = note(model, asked, some, [mixture.n_features for mixture in spread])
        scores = [mixture.delayed_scores(of_one) for mixture, of_one in zip(spread, rows, strict=True)]
        answers += [apply(model, asked, block, scores, counts, place, kind) for place, block in enumerate(some)]
    return answers


def joined_blocks(lengths: Sequence[float], n_components: int) -> list[tuple[int, int]]:
    """Return the first of the blocks of rows that are scored together, and the one after the last, for each group of them.

    Parameters
    ----------
    lengths : sequence of numbers
        The numbers of rows of the blocks; NaN if they are not known.
    n_components : int
        The number of blocks of components.
    """
    known = not np.isnan(lengths).any()
    sizes = np.asarray(lengths) if known else np.ones(len(lengths))
    least = max(LEAST_ROWS if known else 1, sizes.sum() * n_components / MOST_TASKS)
    edges, size = [0], 0.0
    for place, length in enumerate(sizes):
        size += length
        if size >= least:
            edges.append(place + 1)
            size = 0.0
    if edges[-1] < len(sizes):
        edges.append(len(sizes))
    return list(pairwise(edges))


def _rows_of_method(model: Any, asked: Any, blocks: list[Any], widths: list[int]) -> tuple[Any, ...]:
    """Return the rows that a method passes to each density, of all blocks together, and the number of rows of each block."""
    found: list[list[np.ndarray]] = [[] for _ in widths]
    for block in blocks:
        if len(block) == 0:
            continue
        call = _Call()
        with warnings.catch_warnings(), _within(call):
            warnings.simplefilter("ignore")  # the second run repeats them
            asked(model, block)
        for place, rows in call.rows.items():
            found[place].append(rows)
    tables = [np.concatenate(rows) if rows else np.empty((0, d)) for rows, d in zip(found, widths, strict=True)]
    return (*tables, [len(block) for block in blocks])


def _answer_of_method(
    model: Any,
    asked: Any,
    block: Any,
    scores: list[np.ndarray],
    counts: list[int],
    place: int,
    kind: tuple[int | None, np.dtype] | None,
) -> np.ndarray:
    """Return the result of a method for the block at a place, given the log-densities of the rows of all blocks."""
    if len(block) == 0 and kind is not None:
        width, dtype = kind
        return np.empty((0,) if width is None else (0, width), dtype=dtype)
    first = sum(counts[:place])
    with _within(_Call([some[first : first + counts[place]] for some in scores])):
        answer = np.asarray(asked(model, block))
    return answer if kind is None else answer.astype(kind[1], copy=False)
