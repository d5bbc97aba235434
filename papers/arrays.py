"""Arrays on a torch device and back, for experiments whose plain code runs on either."""

from typing import Any

import numpy as np


def placed(array: Any, device: str | None) -> Any:
    """Return an array in float64: NumPy's, or torch's on a device."""
    values = np.ascontiguousarray(array, dtype=np.float64)
    if device is None:
        return values
    import torch

    return torch.as_tensor(values, device=device)


def back(array: Any) -> np.ndarray:
    """Return the same values as NumPy's array."""
    return array if isinstance(array, np.ndarray) else array.cpu().numpy()
