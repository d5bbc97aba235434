"""Neighbourhood Components Analysis and estimators that predict from soft neighbours.

::

      NCA, nca.py                  a matrix from labels or soft targets
      PairNCA, pair_nca.py         a matrix from close pairs (Eq. 8)
          base.py                  the checks, the start and the results that both share
          objectives.py            the objectives and their gradients, as functions of a matrix and a pair problem
          pair_matrix.py           the same for a few hundred rows, with all pairs in one matrix
          starts.py                initial matrices, and the choice between them by their likelihood
          solvers.py               L-BFGS, conjugate gradients and minibatches, in units that make those of X irrelevant
          rows.py                  the rows that a fit works on, also of rows that do not fit into memory
      AnchorNCA, anchor_nca.py     a matrix with one denominator per anchor, for search
          anchor_pairs.py          its pairs and batches
          anchor_objective.py      its objective, and the score of held-out pairs
          anchor_climb.py          its ascent, and the choice between the learned map and the raw rows
      NeuralNCA, neural_nca.py     a network instead of a matrix; needs torch
          table_network.py         the network that it trains on tables by default
      SoftNeighborsClassifier and SoftNeighborsRegressor, soft_neighbors.py: predictions under any metric

      options.py                   the records: Objective, StochasticGradient, Adam
"""
