"""The leave-one-out problem: each row is scored by all other rows.

A problem answers ``em_statistics(A)``: the log-likelihood per row (Eq. 1 of the LCA paper) under the kernel whose covariance is
``(A'A)^-1``, and the scatter of the neighbours (Eqs. 3 and 4).  The M-step, the penalty and the loop do not depend on its kind.

::

      problem.py   complete rows in memory, and a minibatch of them
      in_files.py  rows that do not fit into memory, from which minibatches are drawn
      gaps.py      rows with missing values
      mixed.py     rows of numbers and levels
      moments.py   means and covariances of rows
"""

from vicinal._leave_one_out.gaps import (
    GAP_LIMITS,
    Conditional,
    Expectation,
    IncompleteRows,
    LevelsOfRows,
    check_columns_known,
    conditionals,
    expect,
    gaussian_start,
    narrowed,
)
from vicinal._leave_one_out.in_files import problem_in_file
from vicinal._leave_one_out.mixed import MixedRows
from vicinal._leave_one_out.moments import (
    Moments,
    counted_rows,
    mean_and_covariance,
    mean_of_rows,
    scatter_of_rows,
    weight_of_others,
)
from vicinal._leave_one_out.problem import (
    EMStatistics,
    LeaveOneOut,
    Minibatch,
    leave_one_out,
    log_norm,
    merged_twins,
    perplexities,
    some_rows,
)

__all__ = [
    "GAP_LIMITS",
    "Conditional",
    "EMStatistics",
    "Expectation",
    "IncompleteRows",
    "LeaveOneOut",
    "LevelsOfRows",
    "Minibatch",
    "MixedRows",
    "Moments",
    "check_columns_known",
    "conditionals",
    "counted_rows",
    "expect",
    "gaussian_start",
    "leave_one_out",
    "log_norm",
    "mean_and_covariance",
    "mean_of_rows",
    "merged_twins",
    "narrowed",
    "perplexities",
    "problem_in_file",
    "scatter_of_rows",
    "some_rows",
    "weight_of_others",
]
