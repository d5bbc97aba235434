"""The makers and loaders behind `vicinal.datasets`."""
