"""The torch backend: fused kernels on a CUDA device (`cuda/placed.py`), else the arithmetic of `reference/arrays.py` on tensors."""

import importlib.util
import os
import warnings
from typing import Any, ClassVar

import numpy as np

from vicinal._callers import callers_line
from vicinal._engine.contract import Array, Placed, Points
from vicinal._engine.families import Frames
from vicinal._engine.reference.arrays import ArrayBackend
from vicinal._engine.settings import Engine


class TorchBackend(ArrayBackend):
    """Rows as tensors on a torch device, to which they are copied once.

    The device is "cuda" if there is one, else "cpu", unless the engine names another.  The working memory is a
    quarter of the free memory of a GPU, unless the engine names another, because small blocks would spend their time on
    launching kernels.
    """

    name: ClassVar[str] = "torch"

    def __init__(self, points: Points, engine: Engine) -> None:
        try:
            import torch
        except ImportError as error:
            raise ImportError("engine='torch' needs PyTorch: pip install 'vicinal[torch]'") from error
        self._torch = torch
        self.device = engine.device or ("cuda" if torch.cuda.is_available() else "cpu")
        _check_device(torch, self.device)
        super().__init__(points, engine)
        self._has_kernels = self._find_kernels()
        self.threads = 1
        self.kept: dict[str, Array] = {}  # objects that placements make once per problem
        self.fuses = True  # until Triton fails to compile a kernel
        self.error = engine.error_in(points.rows.dtype)
        if engine.memory is None and torch.device(self.device).type == "cuda":
            self.memory = torch.cuda.mem_get_info(self.device)[0] // 4

    def to_device(self, array: np.ndarray) -> Array:
        """Return a tensor on the device.  It is a copy, because torch warns about read-only NumPy memory and could write into it."""
        if isinstance(array, self._torch.Tensor):
            return array.to(self.device).contiguous()
        return self._torch.as_tensor(np.array(array, order="C"), device=self.device)

    def at(self, kernel: Any) -> Placed:
        """Place the rows under a kernel."""
        if not self._has_kernels:
            return super().at(kernel)
        if isinstance(kernel, Frames):
            from vicinal._engine.cuda.frames import CudaFrames

            return CudaFrames(self, kernel)
        from vicinal._engine.cuda.placed import CudaPlaced

        return CudaPlaced(self, kernel)

    def _find_kernels(self) -> bool:
        """Return whether there are Triton kernels for the device: CUDA's with TensorFloat-32, or Triton's interpreter."""
        is_installed = importlib.util.find_spec("triton") is not None
        if self._torch.device(self.device).type != "cuda":
            return is_installed and os.environ.get("TRITON_INTERPRET") == "1"
        if self._torch.version.hip is not None or self._torch.cuda.get_device_capability(self.device) < (8, 0):
            return False
        if not is_installed:
            warnings.warn(
                "Triton is not installed, so that torch's operations are used on the GPU, which is about ten times slower. "
                "Install it: pip install triton",
                RuntimeWarning,
                stacklevel=callers_line(),
            )
        return is_installed


def _check_device(torch: Any, name: str) -> None:
    """Raise an error for a name that is not a torch device, and for a CUDA device that this machine does not have."""
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"device must name a torch device such as 'cuda', 'cuda:1' or 'cpu', got {name!r}.") from None
    if device.type != "cuda":
        return
    count = torch.cuda.device_count()
    if count == 0:
        raise ValueError(
            f"device={name!r} needs a CUDA device, and torch {torch.__version__} finds none on this machine. Omit device "
            "to use the processor."
        )
    if device.index is not None and device.index >= count:
        raise ValueError(
            f"device={name!r}: torch finds {count} CUDA devices, cuda:0 to cuda:{count - 1}. Name one of them."
        )
