"""Which tiles of points are near.

- order.py: a spatial order of the rows (compiled).
- tiles.py: points in tiles with boxes, and queries in groups.
- boxes.py: tiles, their boxes, and which are within reach (compiled).
"""
