"""Estimators for any density, each with the parameter `density`, which is that of any method.

::

      DensityClassifier, classifier.py
      ParzenMeanShift, mean_shift.py
      DensityImputer, imputer.py            missing values, filled in from a density
      DensityOutlierDetector, outliers.py
          scores.py          the scores of rows, their scales and ranks
          training_rows.py   training rows, each without itself; rows with missing values
          explanation.py     which columns are unusual given the others; numbers.py: as their table shows them
          scored_table.py    scores, flags and reasons as a table

      steps.py   the density as a parameter, alone or behind other steps of a pipeline
"""
