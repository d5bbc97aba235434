"""Torch networks in model files: a closed set of layers, as names and arrays.

The layers are those of torch that stand below, with torch's defaults, and those of the default network of `NeuralNCA`. A network of other
layers is code, which a model file never holds.
"""

from typing import Any

import numpy as np

# The layers of a network: the name of each, and its arrays by name.
Layers = list[tuple[str, dict[str, np.ndarray]]]

_ACTIVATIONS = ("Sigmoid", "Tanh", "ReLU", "SiLU", "Softsign", "LogSigmoid", "Identity")
_OWN = ("PiecewiseLinear", "ResidualBlock")
_DTYPES = (np.float32, np.float64, np.int64)


def layers_of(network: Any) -> Layers | None:
    """Return the layers as (name, arrays) pairs, or None if the network is not a chain of layers of the closed set."""
    from torch import nn

    chain = list(network) if type(network) is nn.Sequential else [network]
    layers: Layers = []
    for layer in chain:
        name = type(layer).__name__
        arrays = {key: part.detach().cpu().numpy() for key, part in layer.state_dict().items()}
        try:
            known = _empty_layer(name, arrays)
        except ValueError:
            return None
        if any(part._forward_hooks or part._forward_pre_hooks for part in layer.modules()):
            return None
        if [_settings(part) for part in layer.modules()] != [_settings(part) for part in known.modules()]:
            return None
        layers.append((name, arrays))
    return layers


def network_of(layers: Layers, *, chain: bool, training: bool, trainable: bool) -> Any:
    """Return the network of (name, arrays) pairs; raise a ValueError if they do not form one."""
    try:
        import torch
    except ImportError as error:
        raise ValueError("it holds a network, which needs PyTorch. Run: pip install 'vicinal[torch]'") from error
    made, width, encoding = [], None, None
    for name, arrays in layers:
        layer = _empty_layer(name, arrays)
        tensors = {key: torch.from_numpy(np.array(part)) for key, part in arrays.items()}
        try:
            layer.load_state_dict(tensors, assign=True)
        except RuntimeError as error:
            raise ValueError("it holds a network whose layers do not fit each other.") from error
        if name == "PiecewiseLinear":
            encoding = arrays["columns"]
        elif arrays:
            widths = _widths(name, arrays)
            if width not in (None, widths[0]) or (encoding is not None and not _fits(encoding, widths[0])):
                raise ValueError("it holds a network whose layers do not fit each other.")
            width, encoding = widths[1], None
        made.append(layer)
    if not made or (not chain and len(made) != 1):
        raise ValueError("it holds a network without layers.")
    network = torch.nn.Sequential(*made) if chain else made[0]
    return network.train(training).requires_grad_(trainable)


def _empty_layer(name: str, arrays: dict[str, Any]) -> Any:
    """Return a layer for arrays of these shapes; on the device "meta", so that it takes neither memory nor random numbers."""
    import torch

    may_be_empty = name == "PiecewiseLinear"  # constant columns have no bins
    sound = all(
        isinstance(part, np.ndarray) and part.dtype in _DTYPES and (may_be_empty or 0 not in part.shape)
        for part in arrays.values()
    )
    if name in _ACTIVATIONS and not arrays:
        return getattr(torch.nn, name)()
    if name in ("Linear", "BatchNorm1d", *_OWN):
        if not sound or len({part.dtype for part in arrays.values() if part.dtype.kind == "f"}) != 1:
            raise ValueError("it holds a network whose layers do not fit each other.")
        from vicinal._nca.table_network import PiecewiseLinear, ResidualBlock

        try:
            with torch.device("meta"):
                if name == "Linear":
                    out, into = arrays["weight"].shape
                    return torch.nn.Linear(into, out, bias="bias" in arrays)
                if name == "BatchNorm1d":
                    return torch.nn.BatchNorm1d(len(arrays["weight"]))
                if name == "ResidualBlock":
                    hidden, width = arrays["first.weight"].shape
                    return ResidualBlock(width, hidden, 0.0)
                return PiecewiseLinear(*(torch.empty(len(arrays["columns"])) for _ in range(3)))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError("it holds a network whose layers do not fit each other.") from error
    raise ValueError(f"it holds a network with the unknown layer {name!r}.")


def _settings(layer: Any) -> tuple[Any, ...]:
    """Return the type of a layer and the settings that are not among its arrays."""
    return type(layer), *(getattr(layer, key, None) for key in ("eps", "momentum", "affine", "track_running_stats"))


def _widths(name: str, arrays: dict[str, np.ndarray]) -> tuple[int, int]:
    """Return the numbers of inputs and outputs of a layer with weights."""
    if name == "Linear":
        return arrays["weight"].shape[1], arrays["weight"].shape[0]
    width = len(arrays["weight" if name == "BatchNorm1d" else "norm.weight"])
    return width, width


def _fits(columns: np.ndarray, n_inputs: int) -> bool:
    """Return whether the bins of these columns and the columns themselves may be so many inputs of the next layer."""
    n_columns = n_inputs - len(columns)
    return bool(columns.dtype == np.int64 and n_columns > 0 and ((columns >= 0) & (columns < n_columns)).all())
