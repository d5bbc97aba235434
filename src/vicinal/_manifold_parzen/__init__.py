"""Manifold Parzen Windows: local frames and the choice of their parameters."""
