"""Parzen windows, the methods of estimators whose density is a mixture, and meta-estimators for any density."""
