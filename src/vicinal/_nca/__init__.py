"""Neighbourhood Components Analysis and what stands on soft neighbours."""
