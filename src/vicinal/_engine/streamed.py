"""Points that stay in a file: how many rows fit into the working memory, and sums over those that do not."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from vicinal._engine.choice import Work
from vicinal._engine.problem import prepare
from vicinal._engine.settings import Engine, as_engine
from vicinal._engine.work.blocks import Blocks
from vicinal._row_sources import RowSource, as_source, in_file

# The copies of the rows in a pass: a centred, a mapped and an ordered copy, packed tiles, and the rows themselves.
_COPIES = 5


def resident_rows(engine: Engine | str | None, n_features: int, dtype: DTypeLike) -> int:
    """Return the number of rows whose problem fits into the working memory of an engine."""
    return max(as_engine(engine).memory_bytes // (_COPIES * n_features * np.dtype(dtype).itemsize), 2)


def large_source(X: Any, engine: Engine | str | None) -> RowSource | None:
    """Return X as a source of rows if its rows do not fit into the working memory, else None."""
    source = as_source(X)
    if source is None or source.shape[0] <= resident_rows(engine, source.shape[1], source.dtype):
        return None
    return source


def is_streamed(points: Any, engine: Engine | str | None) -> bool:
    """Return whether points stay in their file: a memory map that does not fit into the working memory."""
    return in_file(points) and len(points) > resident_rows(engine, points.shape[1], points.dtype)


class LogSums:
    """The logarithms of sums over points that are visited a block at a time: for each query a maximum, and a sum scaled by it.

    Parameters
    ----------
    n_queries : int
    """

    def __init__(self, n_queries: int) -> None:
        self._largest, self._scaled = np.full(n_queries, -np.inf), np.zeros(n_queries)

    def add(self, log_sums: np.ndarray, queries: slice = slice(None)) -> None:
        """Add the sums of some queries over other points, given by their logarithms."""
        before, largest = self._largest[queries], np.maximum(self._largest[queries], log_sums)
        shift = np.where(largest > -np.inf, largest, 0.0)
        self._scaled[queries] = self._scaled[queries] * np.exp(before - shift) + np.exp(log_sums - shift)
        self._largest[queries] = largest

    def total(self) -> np.ndarray:
        """Return the logarithms of the sums so far; -inf where there are no terms."""
        with np.errstate(divide="ignore"):
            return self._largest + np.log(self._scaled)


class _InFileError(AttributeError, ValueError):
    """A sum that a streamed placement does not have; an AttributeError, so that `hasattr` returns False."""


class StreamedPlacement:
    """Points of a memory map under one shared metric, a block of them at a time: their log-sums.

    Parameters
    ----------
    engine : None, str or Engine
    points : array of shape (n, D)
    metric : array of shape (k, D) or (D,), or None
    log_weights : array of shape (n,), optional
    work : Work
        The size of the work, from which the backend is chosen.
    """

    def __init__(
        self,
        engine: Engine | str | None,
        points: np.ndarray,
        metric: np.ndarray | None,
        log_weights: np.ndarray | None,
        work: Work,
    ) -> None:
        self._engine, self._points, self._metric = engine, points, metric
        self._log_weights, self._work = log_weights, work
        self._blocks = Blocks(len(points), resident_rows(engine, points.shape[1], points.dtype))

    def log_sums(self, queries: ArrayLike | None = None, left_out: ArrayLike | None = None) -> np.ndarray:
        """Return ``log sum_j exp(s_ij)``, as `Placement.log_sums` does; points that are queries are left out of their own sums."""
        rows = np.arange(len(self._points)) if queries is None else np.asarray(queries)
        own = rows if rows.ndim == 1 else None if left_out is None else np.asarray(left_out, dtype=np.int64)
        found = LogSums(len(rows))
        for part in self._blocks:
            # Each block is copied into memory, because reading a map repeatedly would wait for the disk.
            problem = prepare(
                self._engine,
                np.array(self._points[part]),
                log_weights=None if self._log_weights is None else self._log_weights[part],
                n_queries=len(rows),
                n_dims=self._work.n_dims,
                passes=self._work.passes,
            )
            placed = problem.at(self._metric)
            here = None if own is None else np.where((own >= part.start) & (own < part.stop), own - part.start, -1)
            for some in Blocks(len(rows), self._blocks.rows):
                asked = self._points[rows[some]] if rows.ndim == 1 else rows[some]
                found.add(placed.log_sums(asked, None if here is None else here[some]), some)
        return found.total()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise _InFileError(
            f"the {len(self._points):,} components of this density are in a file, from which only log-densities can be "
            f"computed, not {name}. Call gather() to copy them into memory, or give the engine more memory, as in "
            "Engine(memory='4 GB')."
        )
