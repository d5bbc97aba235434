"""Local Component Analysis: LCA and LCA-Gauss.

::

      LCA, lca.py              a metric and a density, with one kernel covariance
          steps.py             a pass over the pairs and its M-step, as pure functions of arrays
          mixed_metric.py      images of rows of numbers and levels
      LCAGauss, lca_gauss.py   a Gaussian in some directions, kernels in the others
          gauss_steps.py       the same for two covariances

      for both
          penalty.py           the penalty: its validation, and the families that reg="auto" tries
          penalty_search.py    the search of reg="auto", by held-out rows
          stochastic.py        samples of the rows: minibatches, streams, and starts of exact fits to many rows
          base.py              the base of both estimators: kinds of rows, the choice of the solver, what a fit stores
          checks.py            data without a solution, detected before the engine runs

`steps.py` and `gauss_steps.py` contain the mathematics and do not depend on any estimator.
"""
