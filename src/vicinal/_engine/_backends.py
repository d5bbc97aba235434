"""The table of backends; a new backend needs one file, one line here, and another line for mypy."""

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vicinal._engine._arrays import ArrayBackend
    from vicinal._engine._contract import Backend, Points
    from vicinal._engine._cpu import CpuBackend
    from vicinal._engine._dask import DaskBackend
    from vicinal._engine._settings import Engine
    from vicinal._engine._torch import TorchBackend

    # mypy checks every backend against the contract here.
    _CHECKED: list[Callable[[Points, Engine], Backend]] = [ArrayBackend, CpuBackend, DaskBackend, TorchBackend]

BACKENDS = {
    "reference": "vicinal._engine._arrays:ArrayBackend",
    "cpu": "vicinal._engine._cpu:CpuBackend",
    "dask": "vicinal._engine._dask:DaskBackend",
    "torch": "vicinal._engine._torch:TorchBackend",
}


def backend_class(name: str) -> "Callable[[Points, Engine], Backend]":
    """Return the class of a backend, imported at its first use."""
    module, _, attribute = BACKENDS[name].partition(":")
    found: Callable[[Points, Engine], Backend] = getattr(importlib.import_module(module), attribute)
    return found
