"""Work in pieces.

- blocks.py: consecutive rows of a size that fits into memory.
- pool.py: threads, whose results come in the order of the pieces; the threads of BLAS.
- sharing.py: pieces of work, the tree of their sums, and where they are computed: in this process, or by Dask workers.
- compiling.py: how kernels are compiled and cached.
"""
