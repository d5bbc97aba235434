"""What users pass to `fit`, opened and validated once.

::

      training.py  the rows of a fit: in memory, or in a file from which samples are drawn
"""

from vicinal._rows.training import DrawnRows, TrainingRows, check_two_rows, open_rows

__all__ = ["DrawnRows", "TrainingRows", "check_two_rows", "open_rows"]
