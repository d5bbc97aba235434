"""The parts behind `vicinal.plot`."""
