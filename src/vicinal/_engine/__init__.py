"""The pair engine: computes sums over all pairs (query i, point j) of one resident problem under a metric.

::

      methods             _density  _lca  _nca  _local  _detect  quality      never handle pairs themselves
          |
      prepare(engine, X, ...)         problem.py    once per fit: choose a backend, cast, centre, order, place
          |                           choice.py     the choice, a pure function of shapes; which.py explains it to the user
      problem.at(kernel)              families.py   once per pass: only the metric, or a frame per point, is sent
          |
      placement.log_sums, scatter, pull, gradient, perplexities, nearest, ...      placement.py, the same for all backends
          |
      contract.py   what a backend implements, as equations            backends.py   the table of backends
          |
      reference/    NumPy and torch arrays          cpu/    Numba kernels and BLAS tiles, on our own threads
      cuda/         Triton kernels                  dask/   the compiled backend with its pieces on workers
      frames/       points with a low-rank frame each, on any backend
          |
      plan/         which tiles of points are near: a spatial order, tiles with boxes
      work/         blocks, threads, the sharing of pieces, and how kernels are compiled
      accuracy.py   all tolerances     tuning.py   all tuned constants     settings.py   the user's `Engine`

A folder or file imports only from those below it, or beside it on this picture if these do not import it (`tests/test_layers.py`).

Beside this: queries.py (the queries of one call), neighbors.py (exact nearest points, and pairs above a floor), row_search.py (the one
exact search: products propose, float64 decides; also for tables beyond memory), certificates.py (bounds on what skipped pairs would have added), resident.py (the placements
that a fitted density needs for scoring, in a cache outside the estimator), streamed.py (points in a file that is larger than the working
memory, placed block by block).

No backend ever holds an n x n array: queries are divided into blocks, points into tiles, and partial results are monoids (a
sum, a concatenation, or the log-sum-exp state: a maximum and a scaled sum).  Blocks do not depend on the number of
threads, and partial results are added in the order of the rows, so results do not depend on the number of threads either.
"""

from vicinal._engine import dask
from vicinal._engine.accuracy import TIED, products_are_accurate, robust_centre
from vicinal._engine.certificates import certificates_of_fit
from vicinal._engine.choice import Work, choose, on_cluster, resolved_engine, rows_on_cluster
from vicinal._engine.contract import Match, Pull, Scatter
from vicinal._engine.families import Frames, Kernel
from vicinal._engine.placement import Means, Placement
from vicinal._engine.problem import Problem, prepare
from vicinal._engine.resident import forget, resident
from vicinal._engine.row_search import Neighbors, RowSearch
from vicinal._engine.settings import Engine, as_engine, engine_at, fit_engine, works_there
from vicinal._engine.streamed import StreamedPlacement, is_streamed, large_source, resident_rows
from vicinal._engine.which import which_engine
from vicinal._engine.work.pool import available_threads, in_order, one_blas_thread, one_blas_thread_beside_pairs

__all__ = [
    "TIED",
    "Engine",
    "Frames",
    "Kernel",
    "Match",
    "Means",
    "Neighbors",
    "Placement",
    "Problem",
    "Pull",
    "RowSearch",
    "Scatter",
    "StreamedPlacement",
    "Work",
    "as_engine",
    "available_threads",
    "certificates_of_fit",
    "choose",
    "dask",
    "engine_at",
    "fit_engine",
    "forget",
    "in_order",
    "is_streamed",
    "large_source",
    "on_cluster",
    "one_blas_thread",
    "one_blas_thread_beside_pairs",
    "prepare",
    "products_are_accurate",
    "resident",
    "resident_rows",
    "resolved_engine",
    "robust_centre",
    "rows_on_cluster",
    "which_engine",
    "works_there",
]
