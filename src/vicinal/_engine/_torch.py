"""The torch engine: the reference reductions on torch tensors, on a CPU or a GPU."""

import numpy as np

from vicinal._engine._contract import Match
from vicinal._engine._reference import ReferenceReductions


class TorchReductions:
    """The reductions of `_contract.PairReductions` on a torch device; NumPy arrays in and out.

    Parameters
    ----------
    device : str or None
        A torch device; None is "cuda" where there is one, else "cpu".
    memory : int
        Bytes to use on the device beyond the data and the results.
    """

    name = "torch"

    def __init__(self, device=None, memory=128 * 2**20):
        try:
            import torch
        except ImportError as error:
            raise ImportError("engine='torch' needs PyTorch: pip install 'vicinal[torch]'") from error
        self._torch = torch
        self.device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self._reference = ReferenceReductions(memory=memory, threads=1)

    def _tensor(self, array):
        # A copy: torch warns about, and could write into, read-only NumPy memory.
        return self._torch.as_tensor(np.array(array, order="C"), device=self.device)

    def __getattr__(self, name):
        reduction = getattr(self._reference, name)
        if name.startswith("_") or not callable(reduction):
            raise AttributeError(name)

        def call(queries, points, *args, **kwargs):
            same = queries is points
            points = self._tensor(points)
            queries = points if same else self._tensor(queries)
            args = tuple(self._move(a) for a in args) if name != "class_shares" else args
            for key in ("query_values", "point_values"):
                if kwargs.get(key) is not None:
                    kwargs[key] = self._tensor(kwargs[key])
            return reduction(queries, points, *args, **kwargs)

        return call

    def _move(self, value):
        return value if isinstance(value, Match) else self._tensor(value)
