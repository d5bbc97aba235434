"""The torch engine: the reference reductions on torch tensors, on a CPU or a GPU."""

from typing import Any

import numpy as np

from vicinal._engine._blocks import DEFAULT_MEMORY
from vicinal._engine._reference import ReferenceReductions


class TorchReductions:
    """The reductions of `_contract.PairReductions` on a torch device; NumPy arrays in and out.

    Parameters
    ----------
    device : str or None
        A torch device; None is "cuda" where there is one, else "cpu".
    memory : int, optional
        Bytes to use on the device beyond the data and the results; None is a quarter of what is free on a GPU, where
        small blocks would spend their time on launching kernels, and 128 MB elsewhere.
    """

    name = "torch"

    def __init__(self, device=None, memory=None):
        try:
            import torch
        except ImportError as error:
            raise ImportError("engine='torch' needs PyTorch: pip install 'vicinal[torch]'") from error
        self._torch = torch
        self.device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        if memory is None:
            on_gpu = torch.device(self.device).type == "cuda"
            memory = torch.cuda.mem_get_info(self.device)[0] // 4 if on_gpu else DEFAULT_MEMORY
        self._reference = ReferenceReductions(memory=memory, threads=1)

    def _tensor(self, array):
        # A copy: torch warns about, and could write into, read-only NumPy memory.
        return self._torch.as_tensor(np.array(array, order="C"), device=self.device)

    def _tensors(self, queries, points) -> tuple[Any, Any]:
        same = queries is points
        points = self._tensor(points)
        return points if same else self._tensor(queries), points

    def log_sums(self, queries, points, **options):
        return self._reference.log_sums(*self._tensors(queries, points), **options)

    def softmax_means(self, queries, points, values, **options):
        return self._reference.softmax_means(*self._tensors(queries, points), self._tensor(values), **options)

    def softmax_spread(self, queries, points, values, **options):
        return self._reference.softmax_spread(*self._tensors(queries, points), self._tensor(values), **options)

    def class_shares(self, queries, points, classes, n_classes, **options):
        return self._reference.class_shares(*self._tensors(queries, points), classes, n_classes, **options)

    def softmax_scatter(self, queries, points, *, query_values=None, point_values=None, **options):
        values = {"query_values": query_values, "point_values": point_values}
        values = {name: value if value is None else self._tensor(value) for name, value in values.items()}
        queries, points = self._tensors(queries, points)
        return self._reference.softmax_scatter(queries, points, **values, **options)

    def signed_pull(self, queries, points, match, **options):
        return self._reference.signed_pull(*self._tensors(queries, points), match, **options)

    def mutual_pull(self, points, match, **options):
        return self._reference.mutual_pull(self._tensor(points), match, **options)
