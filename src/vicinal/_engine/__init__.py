"""The pair engine: computes sums over all pairs (query i, point j) of one resident problem under a metric.

::

      methods             _density  _lca  _nca  _manifold_parzen  quality      never handle pairs themselves
          |
      prepare(engine, X, ...)         _problem.py   once per fit: choose a backend, cast, centre, order, place
          |                           _choice.py    the choice: a pure function of shapes (`which_engine`)
      problem.at(kernel)              _families.py  once per pass: only the metric is sent
          |
      placement.log_sums, softmax_means, mean_shifts, scatter, squares, pull, gradient, class_shares, perplexities,
          |     nearest, nearest_with_ties, neighbors_above     _placement.py, _nearest.py: shared by all backends
          |
      _contract.py        what a backend implements: at, log_sums, softmax_sums, candidates, as equations
      _backends.py        the table of backends
          |
      +---------------------+------------------------------+-------------------+
      | _arrays.py          | _cpu.py                      | _torch.py         |
      | NumPy arrays        | Numba and BLAS tiles, with   | CUDA: _cuda.py;   |
      |                     | a thread pool                | else _arrays.py   |
      +---------------------+------------------------------+-------------------+
                                |
                            _compiled_rows.py  the sums of `_cpu.py`  _pool.py      threads, in order
                            _row_kernels.py, _half_kernels.py, _product_kernels.py: compiled, of the parts in _kernels.py
                            _vectors.py  products as vector instructions
                            _half.py, _half_sweeps.py  each pair once  _pairs.py     rows in the layout of the kernels
                            _blocks.py   how work is divided          _accuracy.py  when products are accurate
                            _products.py blocks by matrix products           _kth.py       the k-th nearest distance
                            _tuning.py   every tuned constant                   _settings.py  the user's `Engine`
                                |
      a search that streams through a table, without a problem: _row_search.py, _search_kernels.py (compiled)
      if pairs can be skipped: _pruned_placed.py gets sums over those that matter from _pruned.py, with a certificate
                            _order.py         a spatial order of the rows         _plan.py  tiles with boxes, groups of queries
                            _pruned_boxes.py  tiles, their boxes, and which are within reach (compiled)
                            _pruned_sweep.py  the tiles that a group of queries visits, and its exponentials (compiled)
                            _pruned_kernels.py  the sums over them (compiled)   _pruned_lists.py  pairs above a floor
                            _received.py      what points receive, only for the tiles that a piece of work reaches
                            _pruned_half.py, _pruned_half_kernels.py  scatters of all rows, each pair once
                            _kernel_sums.py, _kernel_tiles.py  log-sums over the tiles that matter, of points with a kernel each
                            _certificates.py  bounds on the contributions of skipped pairs
      on a GPU:             _cuda.py     a shared metric; its overview describes _half_cuda.py, _pruned_cuda.py, _rows_cuda.py,
                                         _few_rows.py, _neighbors_cuda.py, _tiles.py, and the kernels in _triton_half.py,
                                         _triton_pruned.py and _triton_rows.py                  _frames_cuda.py  frames
      on Dask workers:      _dask.py     the compiled backend with its pieces on workers   _dask_worker.py  what a worker does
                            _dask_packing.py  how a piece travels               _sharing.py  pieces, and the tree of their sums

The placements that a fitted density needs for scoring are kept in a cache outside the estimator (`resident`, in `_resident.py`).

Points in a file that is larger than the working memory are placed block by block for log-sums (`_streamed.py`, which also merges
log-sums over blocks of points that different workers hold).

A kernel is one metric that all points share, or a low-rank frame plus noise per point (`_frames.py`; its sums are in
`_frame_kernels.py`, compiled, `_frame_arrays.py`, `_frame_scores.py` and `_frame_tiles.py`, and on a GPU in `_triton_frames.py`).  Sums over a few listed neighbours of each row are in `_listed.py`.

No backend ever holds an n x n array: queries are divided into blocks, points into tiles, and partial results are monoids (a
sum, a concatenation, or the log-sum-exp state: a maximum and a scaled sum).  Blocks do not depend on the number of
threads, and partial results are added in the order of the rows, so results do not depend on the number of threads either.
"""

from vicinal._engine._accuracy import TIED, products_are_accurate, robust_centre
from vicinal._engine._certificates import certificates_of_fit
from vicinal._engine._choice import Work, choose, resolved_engine, which_engine
from vicinal._engine._contract import Match, Pull, Scatter
from vicinal._engine._families import Frames, Kernel
from vicinal._engine._nearest import Neighbors
from vicinal._engine._placement import Means, Placement
from vicinal._engine._pool import available_threads, in_order, one_blas_thread, one_blas_thread_beside_pairs
from vicinal._engine._problem import Problem, prepare
from vicinal._engine._resident import forget, resident
from vicinal._engine._row_search import RowSearch
from vicinal._engine._settings import Engine, as_engine, engine_at, fit_engine, works_there
from vicinal._engine._streamed import StreamedPlacement, is_streamed, large_source, resident_rows

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
    "engine_at",
    "fit_engine",
    "forget",
    "in_order",
    "is_streamed",
    "large_source",
    "one_blas_thread",
    "one_blas_thread_beside_pairs",
    "prepare",
    "products_are_accurate",
    "resident",
    "resident_rows",
    "resolved_engine",
    "robust_centre",
    "which_engine",
    "works_there",
]
