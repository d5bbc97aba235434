"""Parzen windows, and what every fitted density answers.

::

      ParzenWindows, parzen.py
      mixed.py                 tables of numbers and levels
      mixture_density.py       score_samples, sample, marginal, conditional, held-out scores, ...
"""
