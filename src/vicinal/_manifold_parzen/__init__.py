"""Manifold Parzen Windows: local frames, tuning."""
