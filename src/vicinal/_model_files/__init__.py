"""The model file behind `vicinal.io`: its format, what may be in it, writing, reading, exports."""
