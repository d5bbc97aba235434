"""The torch backend: Triton kernels on a GPU, and torch's operations elsewhere.

- backend.py: the backend.
- placed.py: a shared metric; its overview describes the others.
- rows.py: queries one by one; triton_rows.py (kernels).
- once.py: all rows against themselves, each pair once; triton_once.py (kernels).
- pruned.py: the same over tiles that matter; triton_pruned.py (kernels).
- few_rows.py: a few rows again, in float64.
- neighbors.py: candidates for the nearest points.
- tiles.py: points in tiles.
- frames.py: a frame per point; triton_frames.py (kernels).
"""
