"""Relevant Component Analysis, chunklets, and its companions and rivals."""
