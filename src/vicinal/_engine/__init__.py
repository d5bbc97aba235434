"""The pair engine: a short list of named reductions over all pairs (query i, point j).

::

      estimators          _parzen  _lca  _nca  ...            know methods, never pairs
          |
      pair_reductions(engine, ...)                            picks a backend, says why (which_engine)
          |
      _contract.py        the waist: log_sums, softmax_means, softmax_spread, class_shares, softmax_scatter,
          |               signed_pull, mutual_pull             as equations; every backend answers these
          |
      +---------------------+-----------------------+-------------------+
      | _reference.py       | _cpu.py               | _torch.py         |
      | array-namespace     | Numba + BLAS tiles,   | the reference on  |
      | arithmetic          | our own threads       | torch tensors     |
      +---------------------+-----------------------+-------------------+
                                |
                            _kernels.py    serial compiled kernels      _pool.py      threads, in order
                            _symmetric.py  each pair once               _pairs.py     rows as kernels want them
                            _blocks.py     how work is cut              _accuracy.py  when GEMM distances are safe

A reduction sees *scaled* coordinates: the score of a pair is always ``s_ij = -|q_i - z_j|^2 / 2 + log_weights_j``.
A method therefore multiplies its rows by its metric first (for NCA, which has no 1/2, by sqrt(2) times it).
No backend ever holds an n x n array: rows are cut into blocks, points into tiles, and partial results are monoids
(a sum, a concatenation, or the log-sum-exp state: a maximum and a scaled sum).  Blocks do not depend on the number of
threads and partial results are added in the order of the rows, so an answer does not depend on the threads either.
"""

from vicinal._engine._choice import Engine, pair_reductions, which_engine
from vicinal._engine._contract import Match

__all__ = ["Engine", "Match", "pair_reductions", "which_engine"]
