"""Manifold Parzen Windows and Local LCA: one family of densities with a kernel per row.

::

      ManifoldParzen, manifold_parzen.py   search.py, held_out_frames.py
      LocalLCA, local_lca.py               local_search.py
      kernels.py                           vicinities, scatters and the shared covariance
      grid.py                              checks of sizes, and the noises to try
"""
