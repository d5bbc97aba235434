"""The implementation of `vicinal.datasets`."""
