"""Parzen windows, and what every fitted density answers.

::

      ParzenWindows, parzen.py
          loo_bandwidth.py     the bandwidth of maximum leave-one-out likelihood
      mixed.py                 tables of numbers and levels
      mixture_density.py       score_samples, sample, marginal, conditional, held-out scores, ...
      gaps.py                  fits to rows with missing values, also for LCA and LCA-Gauss
"""
