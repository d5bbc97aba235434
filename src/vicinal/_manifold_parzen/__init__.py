"""Manifold Parzen Windows: local frames and the choice of their parameters.

::

      ManifoldParzen, manifold_parzen.py
          search.py            the search for neighbours, directions and noise, with work shared between candidates
          held_out_frames.py   leave-one-out that also leaves a row out of the frames of its neighbours

The neighbours, the choice of the noise and the record `Selection` are in `vicinal._density`, because Local LCA uses them, too.
"""
