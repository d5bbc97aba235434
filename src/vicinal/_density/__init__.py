"""Parzen windows, the shared-covariance mixture, and meta-estimators on any density."""
