"""The compiled backend with its pieces on Dask workers.  Imports nothing: Dask is an extra.

- backend.py: the backend, and how sweeps are shared.
- packing.py: how a piece travels.
- worker.py: what a worker does.
- cluster.py: the active client, its data and its tasks.
"""
