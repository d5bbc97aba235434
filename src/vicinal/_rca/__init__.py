"""Relevant Component Analysis and related methods that learn from chunklets."""
