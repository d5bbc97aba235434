"""Neighbourhood Components Analysis and estimators that predict from soft neighbours.

::

      NCA, nca.py                          a matrix from labels or soft targets
          objectives.py                    the objectives and their gradients, as functions of a matrix and a pair problem
          init.py, trial.py                initial matrices, and the choice between them on held-out rows
          climb.py                         L-BFGS and conjugate gradients, in units that make those of X irrelevant
          stochastic.py, from_source.py    minibatches, also of rows that do not fit into memory
          rows.py                          the rows that a fit works on
      PairNCA, pair_nca.py                 a matrix from close pairs (Eq. 8)
      AnchorNCA, anchor_nca.py             a matrix with one denominator per anchor, for search
          anchor_objective.py, anchor_pairs.py, anchor_rows.py
      NeuralNCA, neural_nca.py             a network instead of a matrix; needs torch
          neural_objectives.py, neural_batches.py, neural_training.py
      SoftNeighborsClassifier and SoftNeighborsRegressor, soft_neighbors.py: predictions under any metric
          given_metrics.py                 the metrics that users may pass

      options.py                           the records: Objective, StochasticGradient, Adam
"""
