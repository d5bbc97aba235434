"""Local Component Analysis: LCA, LCA-Gauss, Local LCA.

::

      LCA, lca.py              a metric and a density, with one kernel covariance
          steps.py             a pass over the pairs and its M-step, as pure functions of arrays
      LCAGauss, lca_gauss.py   a Gaussian in some directions, kernels in the others
          gauss_steps.py       the same for two covariances

      for both
          penalty.py           the penalty: its validation, and the families that reg="auto" tries
          penalty_search.py    the search of reg="auto", by held-out rows
          stochastic.py        samples of the rows: minibatches, streams, and starts of exact fits to many rows
          from_source.py       rows that do not fit into memory, as a leave-one-out problem
          checks.py            data without a solution, detected before the engine runs
      LocalLCA, local_lca.py   one kernel per row
          local_kernels.py     vicinities, scatters and the shared covariance
          local_search.py      the choice of the kernels, by held-out rows
      DensityImputer, imputer.py: missing values, filled in from a density

`steps.py`, `gauss_steps.py` and `local_kernels.py` contain the mathematics and do not depend on any estimator.
"""
