"""The table of backends; a new backend needs one file, one line here, and another line for mypy."""

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vicinal._engine.contract import Backend, Placed, Points
    from vicinal._engine.cpu.placed import CpuBackend
    from vicinal._engine.cuda.backend import TorchBackend
    from vicinal._engine.dask.backend import DaskBackend
    from vicinal._engine.families import Frames
    from vicinal._engine.reference.arrays import ArrayBackend
    from vicinal._engine.settings import Engine

    # mypy checks every backend against the contract here.
    _CHECKED: list[Callable[[Points, Engine], Backend]] = [ArrayBackend, CpuBackend, DaskBackend, TorchBackend]

# The placement of points with a frame each, on backends that have no other.
FRAMES = "vicinal._engine.frames.placed:PlacedFrames"
BACKENDS = {
    "reference": "vicinal._engine.reference.arrays:ArrayBackend",
    "cpu": "vicinal._engine.cpu.placed:CpuBackend",
    "dask": "vicinal._engine.dask.backend:DaskBackend",
    "torch": "vicinal._engine.cuda.backend:TorchBackend",
}


def backend_class(name: str) -> "Callable[[Points, Engine], Backend]":
    """Return the class of a backend, imported at its first use."""
    found: Callable[[Points, Engine], Backend] = _imported(BACKENDS[name])
    return found


def placed_frames(backend: "Backend", kernel: "Frames") -> "Placed":
    """Return the rows of a backend under a frame per point."""
    placed: Placed = _imported(FRAMES)(backend, kernel)
    return placed


def _imported(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)
