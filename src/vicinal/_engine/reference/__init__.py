"""The backend of plain arrays, which is also the oracle of the others.

- arrays.py: NumPy arrays, and torch tensors where there are no kernels.
"""
