"""What users pass as rows, opened and validated once.

::

      validation.py  tables of numbers: their form, their values, their names, and their weights
      training.py    the rows of a fit: in memory, or in a file from which samples are drawn
      dask.py        Dask collections: in `fit`, and lazily in the methods for new rows
"""

from vicinal._rows import dask
from vicinal._rows.training import TrainingRows, check_two_rows, open_rows
from vicinal._rows.validation import (
    ValidRows,
    check_array,
    check_columns_spread,
    check_device_rows,
    check_magnitude,
    check_names,
    check_not_tiny,
    check_rows,
    check_source,
    check_spread,
    check_weights,
    constant_columns,
    count_twins,
    forget_gaps,
    has_gaps,
    is_frame,
    log_weights,
    own_rows,
    truth_values,
    validate_data,
    without_numbers,
)

__all__ = [
    "TrainingRows",
    "ValidRows",
    "check_array",
    "check_columns_spread",
    "check_device_rows",
    "check_magnitude",
    "check_names",
    "check_not_tiny",
    "check_rows",
    "check_source",
    "check_spread",
    "check_two_rows",
    "check_weights",
    "constant_columns",
    "count_twins",
    "dask",
    "forget_gaps",
    "has_gaps",
    "is_frame",
    "log_weights",
    "open_rows",
    "own_rows",
    "truth_values",
    "validate_data",
    "without_numbers",
]
