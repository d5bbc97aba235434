"""The compiled backend with its pieces on Dask workers.

- backend.py: the backend, and how sweeps are shared.
- packing.py: how a piece travels.
- worker.py: what a worker does.
"""
