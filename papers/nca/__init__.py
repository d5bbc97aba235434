"""The experiments of the NCA paper."""
