"""Gaussian mixtures: one covariance that all components share, a frame per component, a full covariance per component."""
