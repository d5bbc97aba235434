"""Points with a kernel each: a low-rank frame plus noise.

- placed.py: a placement under frames, on any backend.
- scores.py: blocks of scores.
- arithmetic.py: the sums in array arithmetic (NumPy, torch); kernels.py: the same, compiled.
- tiles.py: points in tiles that stay in the cache, and the pairs above a floor.
- sums.py: log-sums over all tiles, or over those that matter.
- boxes.py: tiles with boxes and bounds on their kernels, which may be skipped.
"""
