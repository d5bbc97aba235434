"""Cross-validated comparison of metrics and densities.

::

      compare(X, y)   compare.py
          plan.py         rows, folds and methods, validated before any work; rows.py has the targets, samples and folds
          methods.py      the compared metrics and densities, each defined once as an unfitted estimator
                          independent.py is one of them; learned.py: what a metric does to rows and columns
          running.py      runs every method in every fold (folds.py) and saves finished folds (kept.py)
          verdicts.py     intervals (intervals.py), differences and the verdict
          results.py      `Comparison` and `MethodResult`

      words.py            the result as sentences and as tables, for the terminal and for notebooks
"""
