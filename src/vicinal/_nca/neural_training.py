"""The training of `NeuralNCA`: Adam over batches, without a copy or a synchronisation with the device per batch."""

import copy
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np

from vicinal._fit_loops import FitPath, Reason, Recorder

if TYPE_CHECKING:
    import torch


_GRAPH_FROM_BATCHES = 4  # the number of batches that run one by one before a graph of a step is captured


class _Epochs:
    """Steps of Adam over the batches of an epoch.

    There is no synchronisation with the device within an epoch: the values and weights of all batches are copied back at
    its end.  If one of them has no finite value or no gradient, the epoch is repeated with a check of each batch.

    Parameters
    ----------
    network : torch.nn.Module
        The network on the device, in float32.
    scale : torch.nn.Parameter
        The logarithm of the factor of the outputs.
    rows : tensor of shape (n, n_features)
    source : NeighborSource or PairSource
    options : Adam
    may_capture : bool
        Whether a step of the network can be captured in a graph.
    """

    def __init__(
        self, torch: Any, network: Any, scale: Any, rows: Any, source: Any, options: Any, may_capture: bool
    ) -> None:
        self._torch, self._network, self._scale, self._rows, self._source = torch, network, scale, rows, source
        on_gpu = rows.device.type == "cuda"
        groups = [{"params": list(network.parameters()), "weight_decay": options.weight_decay}, {"params": [scale]}]
        self._optimiser = torch.optim.Adam(groups, lr=options.learning_rate, capturable=on_gpu)
        # A captured step needs one launch instead of 100.
        self._may_capture = on_gpu and may_capture and source.same_shapes
        self._batch_size, self._done = options.batch_size, 0
        self._graph: Any = None

    def objective(self, batch: Any) -> tuple[Any, Any]:
        """Return the objective of a batch and its weight, as tensors."""
        z = self._scale.exp() * self._network(self._rows[self._source.rows(batch)])
        return self._source.objective_of(self._torch, z, batch)

    def train(self, batches: list) -> tuple[np.ndarray, np.ndarray]:
        """Run one epoch; return the values and weights of the batches that had a gradient."""
        before = self._state()
        found = [self._step(batch) for batch in batches]
        values, weights = self.collected(found)
        usable = np.isfinite(values) & (weights > 0)
        if not usable.all():
            self._restore(before)
            values, weights = self.collected([pair for batch in batches for pair in self._careful_step(batch)])
        return values, weights

    def evaluate(self, batches: list) -> tuple[np.ndarray, np.ndarray]:
        """Return the values and weights of batches, without a step."""
        self._network.eval()
        with self._torch.no_grad():
            return self.collected([self.objective(batch) for batch in batches])

    def collected(self, found: list[tuple[Any, Any]]) -> tuple[np.ndarray, np.ndarray]:
        """Return values and weights on the host, by one copy."""
        if not found:
            return np.empty(0), np.empty(0)
        both = self._torch.stack([self._torch.stack(pair).double() for pair in found]).cpu().numpy()
        return both[:, 0], both[:, 1]

    def _step(self, batch: Any) -> tuple[Any, Any]:
        rows = self._source.rows(batch)
        self._done += 1
        if not self._may_capture or len(rows) != self._batch_size or self._done <= _GRAPH_FROM_BATCHES:
            return self._eager_step(batch)
        if self._graph is None:
            self._capture(rows)
        self._index.copy_(rows)
        self._graph.replay()
        return self._value.clone(), self._weight.clone()

    def _eager_step(self, batch: Any) -> tuple[Any, Any]:
        return self._climbed(*self.objective(batch))

    def _climbed(self, value: Any, weight: Any) -> tuple[Any, Any]:
        self._optimiser.zero_grad()
        (-value).backward()
        self._optimiser.step()
        return value.detach(), weight.detach()

    def _careful_step(self, batch: Any) -> list[tuple[Any, Any]]:
        value, weight = self.objective(batch)
        if not (float(weight) > 0 and bool(self._torch.isfinite(value))):
            return []
        return [self._climbed(value, weight)]

    def _capture(self, rows: Any) -> None:
        """Capture one step; replays of the graph repeat it for the rows that `_index` then holds."""
        torch = self._torch
        self._index = rows.clone()
        self._optimiser.zero_grad()
        torch.cuda.synchronize(rows.device)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._value, self._weight = self._climbed(*self.objective(self._index))

    def _state(self) -> Any:
        """Return copies of the tensors that an epoch changes, on the device."""
        tensors = [*self._network.state_dict().values(), self._scale.data]
        moments = [entry for state in self._optimiser.state.values() for entry in state.values()]
        return [tensor.clone() for tensor in tensors], [copy.deepcopy(entry) for entry in moments]

    def _restore(self, state: Any) -> None:
        """Write into the same memory, which a graph refers to."""
        tensors, moments = state
        with self._torch.no_grad():
            for mine, kept in zip([*self._network.state_dict().values(), self._scale.data], tensors, strict=True):
                mine.copy_(kept)
            if not moments:  # before the first step there were none
                for parameter in self._optimiser.state:
                    for entry in self._optimiser.state[parameter].values():
                        entry.zero_()
                return
            now = [entry for state in self._optimiser.state.values() for entry in state.values()]
            for entry, kept in zip(now, moments, strict=True):
                entry.copy_(kept)


def train(
    torch: Any,
    network: Any,
    log_scale: float,
    rows: np.ndarray,
    source: Any,
    estimator: Any,
    options: Any,
    device: str,
    random: Any,
) -> FitPath:
    """Run Adam over batches; return a `FitPath` whose parameters are the best network, on the CPU, and its scale."""
    network = network.to(device=device, dtype=torch.float32).train()
    scale = torch.nn.Parameter(torch.tensor(log_scale, dtype=torch.float32, device=device))
    some, aside = source.split(options.validation_fraction if options.early_stopping else 0.0, random)
    source.place(torch, device)
    X = torch.as_tensor(rows, dtype=torch.float32, device=device)
    default = estimator.network is None or isinstance(estimator.network, Integral)
    epochs = _Epochs(torch, network, scale, X, source, options, default)
    held_out: list = []
    if len(aside):
        judged = source.batches(aside, max(options.batch_size, 2048), np.random.RandomState(0))
        held_out = source.placed(torch, list(judged), device)

    def as_vector(parameters: "tuple[dict[str, torch.Tensor], float]") -> np.ndarray:
        state, factor = parameters
        return np.concatenate(
            [*(state[name].cpu().numpy().ravel() for name, _ in network.named_parameters()), [factor]]
        )

    record = Recorder.of(estimator, as_vector)
    idle = 0
    with record:
        for _ in range(estimator.max_iter):
            network.train()
            batches = source.placed(torch, list(source.batches(some, options.batch_size, random)), device)
            values, weights = epochs.train(batches)
            if len(values) == 0:
                raise ValueError(
                    "no batch had a finite objective with a nonzero gradient. Lower learning_rate, raise batch_size, or check "
                    "the network."
                )
            if held_out:
                values, weights = epochs.evaluate(held_out)
            objective = float(np.average(values, weights=weights))
            idle = 0 if objective > record.objective + estimator.tol else idle + 1
            epoch = copy.deepcopy(network.state_dict()), float(scale.detach().exp())
            record.add(epoch, objective)
            record.iterated(epoch)
            if idle >= options.n_iter_no_change:
                raise record.end(Reason.CONVERGED, f"{idle} epochs gained no more than tol={estimator.tol:g}")
        raise record.end(Reason.LIMIT, f"max_iter={estimator.max_iter} epochs were used")
    weights_kept, scale_kept = record.kept
    network.load_state_dict(weights_kept)
    network = network.to(
        device="cpu", dtype=torch.float64
    ).eval()  # so that the output of a row does not depend on its batch
    for parameter in network.parameters():
        parameter.grad = None
    return record.path()._replace(parameters=(network, scale_kept))
