"""Local Component Analysis: LCA, LCA-Gauss, Local LCA.

::

      LCA, lca.py              a metric and a density, with one kernel covariance
          steps.py             a pass over the pairs and its M-step, as pure functions of arrays
          accelerated.py       quasi-Newton steps on the same fixed point
          solver_choice.py     which solver, by the number of rows
          levels.py            starts of exact fits to many rows, from fits to samples
          stochastic.py        minibatches          options.py   the record of their options
          from_source.py       minibatches of rows that do not fit into memory
          partial_fit.py       `partial_fit`; its state is in stream.py
          penalty.py           the penalty: its validation, and the families that reg="auto" tries
          penalty_search.py    the search of reg="auto", by held-out rows
          penalty_choice.py    the user's penalty, or the result of the search
          folds.py             the fits to folds that this search compares
          checks.py            data without a solution, detected before the engine runs
      LCAGauss, lca_gauss.py   a Gaussian in some directions, kernels in the others
          gauss_steps.py, gauss_stochastic.py    the same parts for two covariances
          gauss_penalty.py, gauss_penalty_choice.py   and for two penalties
      LocalLCA, local_lca.py   one kernel per row
          local_kernels.py     vicinities, scatters and the shared covariance
          local_choice.py      the base, the folds and the search; local_search.py searches by held-out rows, over local_grid.py and
                               local_folds.py
          local_metric.py      the metric at a point        local_checks.py   validation of parameters
      rows with missing values: missing.py fits them; DensityImputer (imputer.py, filling.py) fills them in

`steps.py` and `local_kernels.py` contain the mathematics and do not depend on any estimator; nor does `gauss_steps.py`, which also
maps rows in files and on a cluster.
"""
