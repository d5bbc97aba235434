"""The model files of `vicinal.io`: their format and permitted contents, writing, reading, and exports."""
