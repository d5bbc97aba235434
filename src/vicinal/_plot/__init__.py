"""The implementation of `vicinal.plot`: one module per large picture, and parts.py for what all pictures share."""
