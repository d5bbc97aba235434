"""Rows that the user holds on a GPU, as torch tensors; torch itself is never imported here.

A fit to such rows does its pairwise computations on the device (`device_of_fit`), with the tensor itself if the rows are passed
on unchanged (`tensor_of`).  Fitted attributes are NumPy arrays, so a fit makes one copy on the host.
"""

import sys
import weakref
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

_devices: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
_tensors: dict[int, tuple[weakref.ref, Any]] = {}


def on_device(X: Any) -> bool:
    """Return whether X is a torch tensor on a device other than the CPU."""
    return _is_tensor(X) and _elsewhere(X.device)


def _is_tensor(X: Any) -> bool:
    return type(X).__module__.partition(".")[0] == "torch" and hasattr(X, "device")


def _elsewhere(device: Any) -> bool:
    return device.type != "cpu"


def as_host(values: Any) -> Any:
    """Return a tensor that NumPy cannot read (on a device, in another precision, with a gradient) as an array; others unchanged."""
    if not _is_tensor(values):
        return values
    short = values.is_floating_point() and values.dtype.itemsize < 4  # NumPy has no bfloat16
    if not (short or on_device(values) or values.requires_grad):
        return values
    values = values.detach().cpu()
    return (values.float() if short else values).numpy()


def as_given(values: np.ndarray, X: Any) -> Any:
    """Return results for the rows of X: a tensor on the device of X if X is on one, else the array unchanged."""
    return sys.modules["torch"].as_tensor(values, device=X.device) if on_device(X) else values


def remember(estimator: Any, rows: np.ndarray, X: Any) -> None:
    """Record that `rows` is the validated copy of X."""
    _devices.pop(estimator, None)
    if on_device(X):
        _devices[estimator] = str(X.device)
        _pair(rows, X.detach())


def device_of_fit(estimator: Any) -> str | None:
    """Return the device of the tensor that an estimator was fitted on last, or None."""
    return _devices.get(estimator)


def tensor_of(rows: np.ndarray) -> Any:
    """Return the tensor that an array was copied from, or None."""
    found = _tensors.get(id(rows))
    return found[1] if found is not None and found[0]() is rows else None


def take_rows(rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Return ``rows[positions]``, and the same rows of the tensor that the rows were copied from."""
    taken, tensor = rows[positions], tensor_of(rows)
    if tensor is not None:
        _pair(taken, tensor[positions])
    return taken


def _pair(rows: np.ndarray, tensor: Any) -> None:
    """Keep a tensor for as long as the array that is equal to it exists."""
    key = id(rows)
    _tensors[key] = weakref.ref(rows, lambda _: _tensors.pop(key, None)), tensor
