"""The compiled backend: Numba kernels and BLAS tiles, on our own threads, under one shared metric.

- placed.py: the backend, and the verbs of a placement.
- pairs.py: rows in the layout of the kernels.
- sweeps.py: a sweep over strips of rows and tiles of points, fused or with matrix products; sweep_kernels.py (compiled).
- rows.py: sums of any queries over all points.
- once.py: sums of points against themselves, each pair once for both of its rows.

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
