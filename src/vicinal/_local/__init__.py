"""Manifold Parzen Windows and Local LCA: one family of densities with a kernel per row.

::

      ManifoldParzen, manifold_parzen.py    no shared covariance but noise
      LocalLCA, local_lca.py                LCA's covariance, shared by all kernels
          density.py            what both have in common as estimators
          kernels.py            the vicinities, scatters and kernels of rows, and their densities
          search.py             the choice of a member of the family by held-out rows
          held_out_frames.py    leave-one-out that leaves a row out of its neighbours' frames as well
"""
