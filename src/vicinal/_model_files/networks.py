"""Torch networks in model files: a closed set of plain layers, as names and arrays.

A network of other layers is code, which a model file never holds.
"""

from typing import Any

import numpy as np

# The layers of a network: the name of each, and its arrays by name.
Layers = list[tuple[str, dict[str, np.ndarray]]]

_ACTIVATIONS = ("Sigmoid", "Tanh", "ReLU", "SiLU", "Softsign", "LogSigmoid", "Identity")


def layers_of(network: Any) -> Layers | None:
    """Return the layers as (name, arrays) pairs, or None if the network is not a chain of layers of the closed set."""
    from torch import nn

    chain = list(network) if type(network) is nn.Sequential else [network]
    layers = []
    for layer in chain:
        kind = type(layer)
        if layer._forward_hooks or layer._forward_pre_hooks or kind.__module__.partition(".")[0] != "torch":
            return None
        if kind is nn.Linear:
            arrays = {name: part.detach().cpu().numpy() for name, part in layer.named_parameters()}
            layers.append(("Linear", arrays))
        elif kind.__name__ in _ACTIVATIONS and kind is getattr(nn, kind.__name__):
            layers.append((kind.__name__, {}))
        else:
            return None
    return layers


def network_of(layers: Layers, *, chain: bool, training: bool, trainable: bool) -> Any:
    """Return the network of (name, arrays) pairs; raise a ValueError if they do not form one."""
    try:
        import torch
    except ImportError as error:
        raise ValueError("it holds a network, which needs PyTorch. Run: pip install 'vicinal[torch]'") from error
    made, width = [], None
    for name, arrays in layers:
        if name == "Linear":
            weight, bias = _checked(arrays, width)
            # On the device "meta", weights that are replaced at once take neither memory nor random numbers.
            layer = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
            layer.weight = torch.nn.Parameter(torch.from_numpy(weight.copy()))
            if bias is not None:
                layer.bias = torch.nn.Parameter(torch.from_numpy(bias.copy()))
            width = len(weight)
        elif name in _ACTIVATIONS and not arrays:
            layer = getattr(torch.nn, name)()
        else:
            raise ValueError(f"it holds a network with the unknown layer {name!r}.")
        made.append(layer)
    if not made or (not chain and len(made) != 1):
        raise ValueError("it holds a network without layers.")
    network = torch.nn.Sequential(*made) if chain else made[0]
    return network.train(training).requires_grad_(trainable)


def _checked(arrays: dict[str, Any], width: int | None) -> tuple[np.ndarray, np.ndarray | None]:
    weight: Any = arrays.get("weight")
    bias = arrays.get("bias")
    sound = (
        set(arrays) <= {"weight", "bias"}
        and isinstance(weight, np.ndarray)
        and weight.ndim == 2
        and weight.dtype in (np.float32, np.float64)
        and min(weight.shape) > 0
        and width in (None, weight.shape[1])
        and (bias is None or (bias.shape == weight.shape[:1] and bias.dtype == weight.dtype))
    )
    if not sound:
        raise ValueError("it holds a network whose layers do not fit each other.")
    return weight, bias
