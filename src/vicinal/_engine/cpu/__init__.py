"""The compiled backend: Numba kernels and BLAS tiles, on our own threads, under one shared metric.

- placed.py: the backend, and the verbs of a placement.
- pairs.py: rows in the layout of the kernels.
- sweeps.py: a sweep over strips of rows and tiles of points, fused or with matrix products; sweep_kernels.py (compiled).
- rows.py: sums of any queries over all points.
- once.py: sums of points against themselves, each pair once for both of its rows.

Only pairs that can matter, with a certificate:

- gate.py: whether skipping pairs saves time, and the tiles for it.
- listed.py: sums over the pairs that a plan lists; listed_kernels.py (compiled).
- floors.py: the pairs above a floor.

Compiled parts:

- parts.py: the parts of the kernels.
- vectors.py: products as vector instructions.
- search_kernels.py: the kernels of `RowSearch`.
"""
