"""The torch backend: the arithmetic of `_arrays.py` on torch tensors, on a CPU or a GPU."""

from typing import ClassVar

import numpy as np

from vicinal._engine._arrays import ArrayBackend
from vicinal._engine._contract import Array, Points
from vicinal._engine._settings import Engine


class TorchBackend(ArrayBackend):
    """Rows as tensors on a torch device, where they are copied once.

    The device is "cuda" where there is one, else "cpu", unless the engine names another.  The working memory is a
    quarter of what is free on a GPU, unless the engine names another: small blocks would spend their time on launching
    kernels.
    """

    name: ClassVar[str] = "torch"

    def __init__(self, points: Points, engine: Engine):
        try:
            import torch
        except ImportError as error:
            raise ImportError("engine='torch' needs PyTorch: pip install 'vicinal[torch]'") from error
        self._torch = torch
        self.device = engine.device or ("cuda" if torch.cuda.is_available() else "cpu")
        super().__init__(points, engine)
        self.threads = 1
        if engine.memory is None and torch.device(self.device).type == "cuda":
            self.memory = torch.cuda.mem_get_info(self.device)[0] // 4

    def to_device(self, array: np.ndarray) -> Array:
        """A tensor on the device.  A copy: torch warns about, and could write into, read-only NumPy memory."""
        return self._torch.as_tensor(np.array(array, order="C"), device=self.device)
