"""The experiments of the LCA paper."""

EARLIER = (
    "lca_earlier.md"  # full runs of earlier code, on a page of their own until the present ones have been run in full
)
