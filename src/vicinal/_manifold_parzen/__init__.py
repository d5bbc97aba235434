"""Manifold Parzen Windows: local frames, their mixture, tuning."""
