"""Neighbourhood Components Analysis and estimators that predict from soft neighbours."""
