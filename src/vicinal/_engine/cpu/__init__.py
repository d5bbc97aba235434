"""The compiled backend: Numba kernels and BLAS tiles, on our own threads, under one shared metric.

- placed.py: the backend, and the verbs of a placement.
- pairs.py: rows in the layout of the kernels.

Each query with all points:

- rows.py: the sums of placed.py, row by row; row_kernels.py (compiled).
- products.py: the same by matrix products; product_kernels.py (compiled).

Each pair of points once, for both of its rows:

- once.py: log-sums, scatters, squares and pulls of all points.
- once_sweeps.py: its sweeps, fused or by matrix products; once_kernels.py (compiled).

Only pairs that can matter, with a certificate:

- pruned_placed.py: a placement that skips pairs if that saves time.
- pruned_sweeps.py: its sweeps; pruned_group.py and pruned_kernels.py (compiled).
- pruned_once.py: scatters of all rows, each pair once; pruned_once_kernels.py (compiled).
- pruned_lists.py: the pairs above a floor.
- received.py: what points receive, only for the tiles that a piece of work reaches.

Compiled parts:

- parts.py: the parts of the kernels.
- vectors.py: products as vector instructions.
- search_kernels.py: the kernels of `RowSearch`.
"""
