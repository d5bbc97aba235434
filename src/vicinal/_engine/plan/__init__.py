"""Which tiles of points are near.

- order.py: a spatial order of the rows (compiled).
- tiles.py: points and queries in tiles with boxes.
- boxes.py: tiles, their boxes, and what far boxes can contribute (compiled).
- plan.py: which tiles of points each tile of queries visits, with a bound on what the others would add; lists.py (compiled).
"""
