"""The experiments of the LCA paper."""
