"""Supervision: labels, groups, pairs and targets, read in the same way everywhere.

::

      what the user passes                 what a method gets                          file

      one label per row                    `Labels`: classes and codes                 labels.py
      one label per row, for some rows     codes, -1 for a row in no group             labels.py
      pairs of row positions               an array of shape (p, 2)                    labels.py
      groups, pairs, lists, teachers       chunklets: `ChunkletRows`, one id per row   chunklets.py
      close pairs with weights, or groups  `Listed`, `Grouped`, and how they pull      close_pairs.py
      classes, numbers, probabilities      `Targets`, the engine's `Match`             targets.py
      the true classes                     chunklets drawn as the RCA paper draws them chunklet_simulators.py

Two rules about labels hold for the whole library:

- `code_labels` defines which labels are the same: those that compare equal in Python.  The codes follow the sorted order of
  the labels, whether these are a list, an array or a pandas column.
- `is_missing` defines which labels are missing: None, NaN, NaT, ``pandas.NA`` or masked ones.  Methods that
  learn from groups (RCA, MMC, PairNCA, the constrained clusterers) treat a missing label, -1 and "-1" as "in no group"; all
  others raise an error that counts missing labels, and treat -1 as a label like any other.

Numbers with fractions, infinite numbers and complex numbers are not labels.  A mixture of kinds (strings among numbers) is an
error only in estimators with a sorted ``classes_``, and in NCA, which follows scikit-learn.
"""

from vicinal._supervision.chunklet_simulators import (
    expected_chunklet_size,
    simulate_chunklets,
    simulate_pairs,
    simulate_teachers,
)
from vicinal._supervision.chunklets import (
    ChunkletReport,
    ChunkletRows,
    chunklets_from_groups,
    chunklets_from_labels,
    chunklets_from_pairs,
    merge_shared,
    read_chunklets,
    read_partition,
)
from vicinal._supervision.close_pairs import (
    Grouped,
    Listed,
    check_pair_weight,
    listed_pairs,
    pairs_in_groups,
    read_close_pairs,
    sample_pairs,
)
from vicinal._supervision.labels import (
    Labels,
    check_length,
    check_pairs,
    check_position_table,
    code_classes,
    code_groups,
    code_labels,
    is_missing,
    read_values,
    refuse_missing,
)
from vicinal._supervision.targets import Targets, check_targets, power_of_two, read_numbers, read_targets

__all__ = [
    "ChunkletReport",
    "ChunkletRows",
    "Grouped",
    "Labels",
    "Listed",
    "Targets",
    "check_length",
    "check_pair_weight",
    "check_pairs",
    "check_position_table",
    "check_targets",
    "chunklets_from_groups",
    "chunklets_from_labels",
    "chunklets_from_pairs",
    "code_classes",
    "code_groups",
    "code_labels",
    "expected_chunklet_size",
    "is_missing",
    "listed_pairs",
    "merge_shared",
    "pairs_in_groups",
    "power_of_two",
    "read_chunklets",
    "read_close_pairs",
    "read_numbers",
    "read_partition",
    "read_targets",
    "read_values",
    "refuse_missing",
    "sample_pairs",
    "simulate_chunklets",
    "simulate_pairs",
    "simulate_teachers",
]
