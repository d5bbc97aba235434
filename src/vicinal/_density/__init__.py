"""Parzen windows, what an estimator with a mixture can do, and meta-estimators on any density."""
