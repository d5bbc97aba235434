"""The experiments of the Manifold Parzen paper."""
