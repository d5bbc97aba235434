"""NCA with a network instead of a matrix (sec. 5 of the paper); needs torch."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from numbers import Integral
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from vicinal._callers import callers_line
from vicinal._checks import check_callback, check_flag, check_integer, check_positive, check_random_state
from vicinal._engine import prepare
from vicinal._fit_loops import Callback, FitPath, Recorder, climb_by_rounds, warn_if_not_converged
from vicinal._nca.objectives import neighbor_value, pair_objective
from vicinal._nca.options import KINDS, Adam, Objective
from vicinal._nca.rows import column_spread, sample_rows
from vicinal._nca.starts import SCALES_TRIED, best_scale
from vicinal._notebook import NotebookMixin
from vicinal._records import Record, RecordParametersMixin, as_record
from vicinal._rows import check_device_rows, check_rows, check_spread, check_weights
from vicinal._supervision import (
    Grouped,
    Listed,
    Targets,
    check_targets,
    listed_pairs,
    read_close_pairs,
    read_targets,
    sample_pairs,
)
from vicinal._tensors import device_of_fit, on_device

if TYPE_CHECKING:
    import torch


_HIDDEN_UNITS = 100  # the hidden units of the default network
_LARGEST_START = 1.0  # the standard deviation of the first outputs; with larger ones, training would start saturated


class NeuralNCA(NotebookMixin, RecordParametersMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    r"""Neighbourhood Components Analysis with a network :math:`z = A(x)` (Goldberger et al. 2004, sec. 5).

    The objective, over batches of rows, is the expected accuracy (Eq. 3), the likelihood (Eq. 6), either of them with soft
    targets, or the closeness of given pairs (Eq. 8), with distances between the outputs of the network. This class needs
    ``pip install "vicinal[torch]"``.

    Parameters
    ----------
    n_components : int, default=2
        The number of outputs of the default network. A module of your own may have any number.
    network : int, torch.nn.Module or callable, optional
        The network, from rows of X to outputs. A number is the size of the hidden layer of the paper's network, which
        has one layer of logistic units and linear outputs; the default is 100. A module is copied and never changed. A
        callable ``network(n_features, n_components)`` makes a module.
    objective : {"accuracy", "likelihood", "pairs"} or Objective, default="accuracy"
        Eq. 3, Eq. 6 or Eq. 8. :class:`vicinal.Objective` has soft targets (``match``), as in :class:`NCA`.
    standardize : bool, default=True
        Whether to standardise the columns of X first, with the means and standard deviations of the training rows.
    solver : "adam" or Adam, default="adam"
        :class:`vicinal.Adam` sets the batch size, the learning rate, the weight decay and early stopping.
    max_iter : int, default=200
        The maximum number of epochs.
    tol : float, default=1e-4
        The fit has converged when the objective per row (per unit of pair weight) has not gained this much for
        ``n_iter_no_change`` epochs.
    warm_start : bool, default=False
        Whether to continue from the network of the last fit.
    callback : callable, optional
        Called as ``callback(parameters, n_iter)`` after each epoch, with the weights of the network, flattened in the
        order of ``module_.parameters()`` and followed by ``scale_``, and the number of epochs. It may raise StopIteration:
        the fit then ends, warns that it has not converged, and keeps the best network so far. Model files do not contain it.
    device : str, optional
        A torch device. The default is that of X if X is a tensor on a GPU, otherwise "cuda" if available, otherwise "cpu".
    verbose : int, default=0
        Print a line per epoch to stderr.
    random_state : int, RandomState or None, default=None
        Used for the initial weights and the batches. On a CPU the same seed gives the same network; torch's global
        generator is neither used nor changed.

    Attributes
    ----------
    module_ : torch.nn.Module
        The fitted network, on the CPU: standardised rows to outputs, before the learned scale.
    scale_ : float
        A learned factor of the outputs.
    mean_, spread_ : ndarray of shape (n_features,)
        The numbers that are subtracted from the columns and by which they are divided.
    objectives_ : ndarray
        The objective after each epoch, on the rows set aside by early stopping, or else the mean over the epoch's
        batches. The last entry belongs to ``module_``: if the last epoch was not the best, the value of the best epoch is
        appended.
    best_epoch_ : int
        The epoch, counted from 1, with the highest objective, which was kept.
    n_iter_ : int
        The number of epochs.
    converged_ : bool
        A ConvergenceWarning is issued when it is False.
    n_features_in_, feature_names_in_ : int, ndarray of str
        The number of columns of the training rows, and their names if they have names.

    See Also
    --------
    NCA, PairNCA : The same objectives for a matrix, with exact sums.
    SoftNeighborsClassifier : Accepts a fitted NeuralNCA as its metric.

    Notes
    -----
    An epoch costs n / batch_size passes of batch_size^2 pairs and the computations of the network. In a batch, a row has
    batch_size - 1 possible neighbours, so the objective is that of a smaller training set: larger batches are
    closer to the paper's sums over all rows.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import NeuralNCA
    >>> rng = np.random.default_rng(0)
    >>> angle = rng.uniform(0, 2 * np.pi, 300)
    >>> y = np.arange(300) % 2
    >>> X = (1 + y)[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    >>> nca = NeuralNCA(1, max_iter=100, random_state=0, device="cpu").fit(X, y)  # doctest: +SKIP
    >>> bool(nca.objectives_[-1] > 0.98)  # rings become a line  # doctest: +SKIP
    True
    """

    # exp(-|z - z'|^2) is a Gaussian kernel of this standard deviation: the scale of the outputs is learned.
    _learned_bandwidth = float(np.sqrt(0.5))

    _record_types: ClassVar[dict[str, type[Record]]] = {"objective": Objective, "solver": Adam}

    def __init__(
        self,
        n_components: int = 2,
        *,
        network: Any = None,
        objective: Objective | str = "accuracy",
        standardize: bool = True,
        solver: Adam | str = "adam",
        max_iter: int = 200,
        tol: float = 1e-4,
        warm_start: bool = False,
        callback: Callback | None = None,
        device: str | None = None,
        verbose: int | bool = 0,
        random_state: RandomState | int | None = None,
    ) -> None:
        self.n_components = n_components
        self.network = network
        self.objective = objective
        self.standardize = standardize
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.callback = callback
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True  # y, or pairs instead of it
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _n_features_out(self) -> int:
        return self._n_outputs

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        *,
        pairs: ArrayLike | None = None,
        pair_weight: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Train the network.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The training rows.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Labels, or targets in the form that the `match` of the objective requires; groups for the objective "pairs".
        pairs : array-like of shape (n_pairs, 2), optional
            Positions of rows that should be close, for ``objective="pairs"``.
        pair_weight : array-like of shape (n_pairs,), optional
            Close pairs and their weights, only for the objective "pairs"; see :class:`PairNCA`.
        sample_weight : array-like of shape (n_samples,), optional
            Importance of the rows as terms and as neighbours.

        Returns
        -------
        self
        """
        torch = _torch()
        objective, options = self._check_parameters()
        X, source = self._read(X, y, pairs, pair_weight, sample_weight, objective)
        random = check_random_state(self.random_state)
        spread = column_spread(X)
        self.mean_ = X.mean(axis=0, dtype=np.float64) if self.standardize else np.zeros(X.shape[1])
        self.spread_ = np.where(spread > 0, spread, 1.0) if self.standardize else np.ones(X.shape[1])
        device = device_of_fit(self) or ("cuda" if torch.cuda.is_available() else "cpu")
        device = device if self.device is None else self.device
        try:
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError, TypeError, ValueError) as error:
            raise ValueError(
                f"device={self.device!r} cannot be used here: {error}. Use 'cpu', or None for a GPU if there is one."
            ) from error
        rows = self._standardized(X)
        with torch.random.fork_rng(devices=range(torch.cuda.device_count()) if device != "cpu" else []):
            torch.manual_seed(random.randint(2**31 - 1))
            network, log_scale = self._initial_network(torch, rows, source)
            path = train(torch, network, log_scale, rows, source, self, options, device, random)
        self.module_, self.scale_ = path.parameters
        self.objectives_, self.n_iter_, self.converged_ = path.objectives, path.n_iter, path.converged
        self.best_epoch_ = int(np.argmax(path.objectives)) + 1
        warn_if_not_converged("NeuralNCA", path)
        return self

    def transform(self, X: ArrayLike) -> Any:
        """Return the outputs of the network.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            The rows to map.

        Returns
        -------
        Z : array of shape (n, n_components), float32 when X is float32, else float64
            A tensor on the same device when X is a tensor on a GPU.
        """
        check_is_fitted(self, "module_")
        if on_device(X):
            tensor, torch = check_device_rows(self, X), _torch()
            mean, spread = (torch.as_tensor(values, device=tensor.device) for values in (self.mean_, self.spread_))
            network = copy.deepcopy(self.module_).to(tensor.device)
            return (self.scale_ * _outputs(torch, network, (tensor.double() - mean) / spread)).to(tensor.dtype)
        X = check_rows(self, X, reset=False)
        return self.scale_ * _outputs(_torch(), self.module_, self._standardized(X)).astype(X.dtype)

    def _standardized(self, X: np.ndarray) -> np.ndarray:
        return (X - self.mean_) / self.spread_

    def _read(
        self, X: Any, y: Any, pairs: Any, pair_weight: Any, sample_weight: Any, objective: Objective
    ) -> tuple[NDArray[Any], Any]:
        """Return the rows of positive weight and their supervision."""
        if objective.kind == "pairs":
            X = check_rows(self, X, reset=True, min_rows=2)
            check_spread(X)
            close = read_close_pairs(y, pairs, pair_weight, len(X), "NeuralNCA")
            return X, PairSource(close, check_weights(sample_weight, X), len(X))
        if pairs is not None or pair_weight is not None:
            raise ValueError(f"pairs and pair_weight are only for objective='pairs', got objective={objective.kind!r}.")
        X = check_rows(self, X, reset=True, min_rows=2)
        check_spread(X)
        y = read_targets(y, len(X), objective.match)
        weight = check_weights(sample_weight, X)
        if weight is not None:
            kept = weight > 0
            X, y, weight = X[kept], y[kept], weight[kept]
        targets = check_targets(y, objective.match, objective.match_scale, weight)
        alone = int(targets.alone().sum())
        if alone == len(X) or (alone and objective.kind == "likelihood"):
            raise ValueError(
                f"{alone} of {len(X)} rows agree with no other row, so objective={objective.kind!r} cannot use them. Merge "
                "or drop rare classes, or raise match_scale."
            )
        if targets.all_equal():
            warnings.warn(
                f"all {len(X)} targets are equal, so every network predicts them and nothing is learned.",
                UserWarning,
                stacklevel=callers_line(),
            )
        return X, NeighborSource(targets, weight, objective.kind)

    def _initial_network(
        self, torch: ModuleType, rows: np.ndarray, source: NeighborSource | PairSource
    ) -> tuple[torch.nn.Module, float]:
        """Return the initial network and a scale of its outputs at which a row has more than one but not all neighbours."""
        if self.warm_start and hasattr(self, "module_"):
            return copy.deepcopy(self.module_), float(np.log(self.scale_))
        if self.network is None or isinstance(self.network, Integral):
            hidden = self.network or _HIDDEN_UNITS
            network = torch.nn.Sequential(
                torch.nn.Linear(rows.shape[1], hidden),
                torch.nn.Sigmoid(),
                torch.nn.Linear(hidden, self.n_components),
            )
        elif isinstance(self.network, torch.nn.Module):
            network = copy.deepcopy(self.network)
        else:
            network = self.network(rows.shape[1], self.n_components)
        points, score_of = source.evaluator()
        network = network.to(dtype=torch.float64)
        try:
            Z = _outputs(torch, network, rows[points])
        except RuntimeError as error:
            raise ValueError(
                f"network cannot take rows of {rows.shape[1]} numbers, the columns of X: {error}. Change its first layer."
            ) from error
        if Z.ndim != 2:
            raise ValueError(
                f"network must return one row of outputs for each row of X, got outputs of shape {Z.shape}."
            )
        self._n_outputs = Z.shape[1]
        Z -= Z.mean(axis=0)
        if not np.isfinite(Z).all():
            raise ValueError(
                "network returns outputs that are not finite at the start. Check its weights and the scale of X."
            )
        scale = float(best_scale(score_of(Z), np.ones(Z.shape[1]), Z)[1][0])
        scale = min(scale, _LARGEST_START / max(float(Z.std()), 1e-30))
        last = network[-1] if isinstance(network, torch.nn.Sequential) else network
        if isinstance(last, torch.nn.Linear):
            # The scale is put into the weights, because Adam's steps are small compared with it.
            with torch.no_grad():
                for parameter in last.parameters():
                    parameter.mul_(scale)
            scale = 1.0
        return network, float(np.log(scale))

    def _check_parameters(self) -> tuple[Objective, Adam]:
        """Return the objective and the options of the solver; raise an error for invalid parameters."""
        for name in ("n_components", "max_iter"):
            check_integer(getattr(self, name), name)
        for name in ("standardize", "warm_start"):
            check_flag(getattr(self, name), name)
        check_callback(self.callback)
        check_positive(self.tol, "tol", strict=False)
        if isinstance(self.network, Integral):
            check_integer(self.network, "network")
        elif self.network is not None and not callable(self.network):
            raise TypeError(
                "network must be a number of hidden units, a torch.nn.Module, a callable or None, got "
                f"{type(self.network).__name__}."
            )
        objective = as_record(self.objective, Objective, "objective", KINDS)
        if objective.penalty:
            raise ValueError(
                f"a network has no matrix A to penalise, got penalty={objective.penalty:g}. Use "
                "solver=Adam(weight_decay=...) instead."
            )
        return objective, as_record(self.solver, Adam, "solver", ("adam",))


def _outputs(torch: ModuleType, network: torch.nn.Module, rows: np.ndarray, batch: int = 4096) -> np.ndarray:
    """Return the network's outputs for rows, on their device, a few rows at a time."""
    network.eval()
    with torch.no_grad():
        parts = [network(torch.as_tensor(rows[k : k + batch])) for k in range(0, len(rows), batch)]
    return torch.cat(parts) if isinstance(rows, torch.Tensor) else torch.cat(parts).numpy()


def _torch() -> ModuleType:
    try:
        import torch
    except ImportError as error:
        raise ImportError("NeuralNCA needs PyTorch: pip install 'vicinal[torch]'") from error
    return torch


# -- training ------------------------------------------------------------------------------------------

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
        terms = [self._step(batch) for batch in batches]
        values, weights = self.collected(terms)
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

    def as_vector(parameters: tuple[dict[str, torch.Tensor], float]) -> np.ndarray:
        state, factor = parameters
        return np.concatenate(
            [*(state[name].cpu().numpy().ravel() for name, _ in network.named_parameters()), [factor]]
        )

    def play(epoch: Any, unit: float) -> tuple[Any, float]:
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
        epoch = copy.deepcopy(network.state_dict()), float(scale.detach().exp())
        return epoch, float(np.average(values, weights=weights))

    limits: dict[str, Any] = {
        "max_iter": estimator.max_iter,
        "tol": estimator.tol,
        "patience": options.n_iter_no_change,
    }
    path = climb_by_rounds(play, None, Recorder.of(estimator, as_vector), name="epochs", **limits)
    weights_kept, scale_kept = path.parameters
    network.load_state_dict(weights_kept)
    network = network.to(
        device="cpu", dtype=torch.float64
    ).eval()  # so that the output of a row does not depend on its batch
    for parameter in network.parameters():
        parameter.grad = None
    return path._replace(parameters=(network, scale_kept))


# -- the supervision, in batches -----------------------------------------------------------------------
#
# Both sources have the same interface: which parts to train on and which to set aside (`split`), the batches of an epoch, the rows in a
# batch, the objective of its embedded rows, and the evaluation of the scale of a first embedding (`evaluator` returns some rows, and a
# function that turns their outputs into a score of scales). The targets of all rows are copied to the device once (`place`), and the
# batches of an epoch are copied together (`placed`).


class NeighborSource:
    """Labels or soft targets: a batch is some rows, and its objective is the mean of their terms."""

    same_shapes = True  # whether batches of the same number of rows take the same work

    def __init__(self, targets: Targets, weight: np.ndarray | None, objective: str) -> None:
        self.targets, self.objective = targets, objective
        self.weight = np.ones(len(targets.values)) if weight is None else weight

    def split(self, share: float, random: np.random.RandomState) -> tuple[np.ndarray, np.ndarray]:
        """Return rows to train on and rows set aside."""
        order = random.permutation(len(self.weight))
        count = max(round(share * len(order)), 2) if share else 0
        aside = np.sort(order[:count])
        if count and self.targets.take(aside).alone().all():
            raise ValueError(
                f"early_stopping cannot be used: none of the {count} rows that are set aside agrees with another of them. "
                "Raise validation_fraction, or set early_stopping=False."
            )
        return np.sort(order[count:]), aside

    def batches(self, some: np.ndarray, size: int, random: np.random.RandomState) -> Iterator[np.ndarray]:
        order = random.permutation(some)
        for start in range(0, len(order), size):
            if len(order) - start >= 2:
                yield order[start : start + size]

    def rows(self, batch: torch.Tensor) -> torch.Tensor:
        return batch

    def place(self, torch: ModuleType, device: str) -> None:
        self._there = tuple(
            torch.as_tensor(np.asarray(values, dtype=np.float32), device=device)
            for values in (self.weight, self.targets.values)
        )

    def placed(self, torch: ModuleType, batches: list[np.ndarray], device: str) -> list[torch.Tensor]:
        return _on_device(torch, batches, device)

    def objective_of(
        self, torch: ModuleType, z: torch.Tensor, batch: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the objective of a batch and its weight, as tensors."""
        weight, values = (known[batch] for known in self._there)
        terms, has_mate = neighbor_terms(z, agreement(self.targets.kind, values), self.objective, weight.log())
        counted = weight * has_mate if self.objective == "likelihood" else weight
        total = counted.sum()
        return (counted * terms).sum() / total.clamp_min(1e-30), total

    def evaluator(self) -> tuple[np.ndarray, Callable[[np.ndarray], Callable[[np.ndarray], float]]]:
        points, queries = sample_rows(len(self.weight))
        targets = self.targets.take(points)
        queries = queries[~targets.alone()[queries]]
        weight = self.weight[points]

        def score_of(Z: np.ndarray) -> Callable[[np.ndarray], float]:
            if len(queries) == 0:
                return lambda A: 0.0
            problem = prepare(
                None,
                Z,
                log_weights=np.log(weight),
                leave_one_out=True,
                match=targets.match(),
                n_queries=len(queries),
                passes=SCALES_TRIED,
            )
            return lambda A: neighbor_value(A, problem, objective="likelihood", weight=weight, rows=queries)

        return points, score_of


class PairSource:
    """Close pairs: a batch is some pairs, the rows in them, and other rows to fill it up."""

    same_shapes = False

    def __init__(self, close: Grouped | Listed, weight: np.ndarray | None, n: int) -> None:
        self.close, self.n = close, n
        self.weight = np.ones(n) if weight is None else np.maximum(weight, 1e-30)

    def split(self, share: float, random: np.random.RandomState) -> tuple[np.ndarray, np.ndarray]:
        pairs, weight = self.close.some(random)
        keep = weight > 0
        self._pairs, self._pair_weight = pairs[keep], weight[keep]
        order = random.permutation(len(self._pairs))
        count = max(round(share * len(order)), 1) if share else 0
        return order[count:], order[:count]

    def batches(
        self, some: np.ndarray, size: int, random: np.random.RandomState
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        order = random.permutation(some)
        half = max(size // 2, 1)
        for start in range(0, len(order), half):
            chosen = order[start : start + half]
            rows = np.unique(self._pairs[chosen])
            fill = size - len(rows)
            if fill > 0 and self.n > len(rows):
                rows = np.union1d(rows, random.choice(self.n, min(fill, self.n), replace=False))
            yield rows, chosen

    def rows(self, batch: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return batch[0]

    def place(self, torch: ModuleType, device: str) -> None:
        self._there = tuple(
            torch.as_tensor(values, dtype=torch.float32, device=device)
            for values in (self._pair_weight, np.log(self.weight))
        )

    def placed(
        self, torch: ModuleType, batches: list[tuple[np.ndarray, np.ndarray]], device: str
    ) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Return rows, pairs, and where the pairs' rows are among the rows."""
        places = [np.searchsorted(rows, self._pairs[chosen]) for rows, chosen in batches]
        rows, chosen = zip(*batches, strict=True)
        return list(zip(*(_on_device(torch, part, device) for part in (rows, chosen, places)), strict=True))

    def objective_of(
        self, torch: ModuleType, z: torch.Tensor, batch: tuple[torch.Tensor, torch.Tensor, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        rows, chosen, places = batch
        share = self._there[0][chosen]
        return pair_term(z, places, share, self._there[1][rows]), share.sum()

    def evaluator(self) -> tuple[np.ndarray, Callable[[np.ndarray], Callable[[np.ndarray], float]]]:
        rows, pairs = sample_pairs(self.close, self.n)
        pull = listed_pairs(pairs, np.ones(len(pairs)), len(rows))

        def score_of(Z: np.ndarray) -> Callable[[np.ndarray], float]:
            problem = prepare(None, Z, leave_one_out=True, passes=SCALES_TRIED)
            return lambda A: pair_objective(A, problem, pull).value

        return rows, score_of


def _on_device(torch: ModuleType, arrays: Sequence[np.ndarray], device: str) -> list[torch.Tensor]:
    """Return integer arrays on a device, by a single copy."""
    if not arrays:
        return []
    together = torch.as_tensor(np.concatenate(arrays), device=device)
    return list(torch.split(together, [len(array) for array in arrays]))


# -- the objectives of a batch, as differentiable torch expressions ------------------------------------
#
# The symbols are those of `_nca/objectives`; there is no matrix A, because the rows are already transformed.


def square_distances(z: torch.Tensor) -> torch.Tensor:
    """Return ``|z_i - z_j|^2`` for all pairs of rows, from products of centred rows."""
    z = z - z.mean(0, keepdim=True).detach()
    squares = (z**2).sum(1)
    return (squares[:, None] + squares[None, :] - 2.0 * z @ z.T).clamp_min(0.0)


def agreement(kind: str, values: torch.Tensor) -> torch.Tensor:
    """Return ``m_ij`` of the rows of a batch: integer codes, scaled targets or rows of probabilities."""
    if kind == "class":
        return (values[:, None] == values[None, :]).to(dtype=values.dtype)
    if kind == "dot":
        return values @ values.T
    return (-0.5 * ((values[:, None, :] - values[None, :, :]) ** 2).sum(-1)).exp()


def neighbor_terms(
    z: torch.Tensor, match: torch.Tensor, objective: str, log_weights: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ``a_i`` (Eq. 2) or ``log a_i`` (Eq. 6) of each row of the batch among the others.

    Return the terms, and whether each row agrees with any other row of the batch. The other rows have no gradient, and
    their logarithm, -inf, is replaced by 0.
    """
    scores = log_weights[None, :] - square_distances(z)
    scores = scores.masked_fill(_diagonal(scores), -float("inf"))
    log_p = scores.log_softmax(1)
    match = match.masked_fill(_diagonal(match), 0.0)
    has_mate = (match > 0).any(1)
    if objective == "accuracy":
        return (log_p.exp() * match).sum(1), has_mate
    # In the log domain. Rows without a class mate are kept out of the graph, because their gradient would be NaN.
    log_match = match.clamp_min(1e-300 if match.dtype.itemsize == 8 else 1e-37).log()
    log_match = log_match.masked_fill(match <= 0, -float("inf"))
    safe = log_match.masked_fill(~has_mate[:, None], 0.0)
    log_p = log_p.masked_fill(_diagonal(log_p), -float("inf"))
    log_a = (log_p + safe).logsumexp(1)
    return log_a.masked_fill(~has_mate, 0.0), has_mate


def pair_term(
    z: torch.Tensor, pairs: torch.Tensor, pair_weight: torch.Tensor, log_weights: torch.Tensor
) -> torch.Tensor:
    """Return the negative of Eq. 8 for the pairs of a batch, per unit of pair weight; c != d over the rows of the batch."""
    squares = square_distances(z)
    attraction = (pair_weight * squares[pairs[:, 0], pairs[:, 1]]).sum() / pair_weight.sum()
    scores = log_weights[:, None] + log_weights[None, :] - squares
    scores = scores.masked_fill(_diagonal(scores), -float("inf"))
    return -attraction - scores.flatten().logsumexp(0)


def _diagonal(matrix: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.eye(len(matrix), dtype=torch.bool, device=matrix.device)
