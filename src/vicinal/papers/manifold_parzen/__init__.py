"""The experiments of the Manifold Parzen paper."""

EARLIER = "manifold_parzen_earlier.md"  # full runs of earlier code, on a page of their own until the present ones have been run in full
