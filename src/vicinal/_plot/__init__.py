"""The implementation of `vicinal.plot`.

::

      metric_field.py    the local metrics of a density, as ellipses
      outlier.py         one row and the values that were expected
      path.py            the objective of a fit after each pass
      density.py         the range, the features and the contours of `plot_density`, which is in `plot.py`
      parts.py           axes, colours and labels that all pictures share
"""
