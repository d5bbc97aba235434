"""NCA with a network instead of a matrix (sec. 5 of the paper); needs torch.

A fit takes steps of AdamW. A step draws a batch of rows (or pairs) and candidates for neighbours from all training rows, embeds them,
and climbs the objective of the batch among batch and candidates (`Neighbors.value`, `ClosePairs.value`). After each epoch the objective is
evaluated on the rows that were set aside, and the best network is kept.
"""

from __future__ import annotations

import copy
import warnings
from dataclasses import replace
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
from vicinal._engine import Engine, as_engine, fit_engine
from vicinal._fit_loops import Callback, FitPath, Recorder, climb_by_rounds, warn_if_not_converged
from vicinal._nca.options import NEURAL_KINDS, Adam, Objective
from vicinal._nca.rows import column_spread, sample_rows
from vicinal._notebook import NotebookMixin
from vicinal._records import Record, RecordParametersMixin, as_record
from vicinal._rows import check_device_rows, check_rows, check_spread, check_weights
from vicinal._supervision import Grouped, Listed, check_targets, read_close_pairs, read_numbers, read_targets
from vicinal._tensors import on_device

if TYPE_CHECKING:
    import torch

# The options of solver="adam" and the dropout of the default network, chosen on tables that are not in the benchmark (benchmarks/neural.py).
# Means of numbers lose more by the noise of dropout than classes do, and gain by larger steps.
DEFAULTS = Adam(
    batch_size=128,
    learning_rate=0.002,
    weight_decay=1e-4,
    early_stopping=True,
    validation_fraction=0.15,
    n_iter_no_change=16,
)
REGRESSION_DEFAULTS = replace(DEFAULTS, learning_rate=0.005)
_DROPOUT, _DROPOUT_OF_REGRESSION = 0.3, 0.1
_BATCHES, _SMALLEST_BATCH = (
    10,
    16,
)  # the least number of steps of an epoch of few rows, and the rows that they must have
_START = (
    0.25  # the mean squared distance of the first outputs, per output: so close that no row is in the way of others
)
_START_ROWS = 2048  # rows that this distance is measured on
_JUDGED_ROWS, _JUDGED_CANDIDATES = (
    2048,
    16_384,
)  # rows (or pairs) that an evaluation takes at most, and their candidates
_FACTORS = tuple(2.0 ** (k / 2) for k in range(-6, 2))  # of the outputs, tried at each evaluation
# Half the squared distance that is put between classes, in nats: other classes have exp(-100) of the weight.
_APART = 100.0


class NeuralNCA(NotebookMixin, RecordParametersMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    r"""Neighbourhood Components Analysis with a network :math:`z = A(x)` (Goldberger et al. 2004, sec. 5).

    The objectives are those of :class:`NCA` and :class:`PairNCA`, and the squared error of the soft neighbours' mean, with distances
    between the outputs of a network. The defaults are meant for tables. Predictions come from :class:`SoftNeighborsClassifier` and
    :class:`SoftNeighborsRegressor` with this metric. This class needs ``pip install "vicinal[torch]"``.

    Parameters
    ----------
    n_components : int, default=32
        The number of outputs of the default network; 2 for pictures. A module of your own may have any number.
    network : int, torch.nn.Module or callable, optional
        The network, from rows of X to outputs. The default encodes each column as piecewise linear, with bins between quantiles, and
        continues with a residual block, batch normalisation and dropout (0.3; 0.1 for regression). A number is the size of the hidden layer of the
        paper's network, which has one layer of logistic units and linear outputs. A module is copied and never changed. A
        callable ``network(n_features, n_components)`` makes a module.
    objective : {"likelihood", "accuracy", "pairs", "regression"} or Objective, default="likelihood"
        Eq. 6, Eq. 3 or Eq. 8, or the negative squared error of the mean of y under the softmax of each row over the others, in
        units of the variance of y. :class:`vicinal.Objective` has soft targets (``match``), as in :class:`NCA`.
    standardize : bool, default=True
        Whether to standardise the columns of X first, with the means and standard deviations of the training rows.
    solver : "adam" or Adam, default="adam"
        The options of AdamW, and the number of candidates. "adam" is ``Adam(batch_size=128, learning_rate=0.002, weight_decay=1e-4, early_stopping=True,
        validation_fraction=0.15, n_iter_no_change=16)``, with a learning rate of 0.005 for "regression".
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
    engine : None, str or Engine, default=None
        The network is trained on a GPU if X is a tensor on one, or if the engine is "torch"
        (``Engine("torch", device="cuda:1")``); otherwise on the CPU.
    verbose : int, default=0
        Print a line per epoch to stderr.
    random_state : int, RandomState or None, default=None
        Used for the initial weights, the rows set aside, batches and candidates. On a CPU the same seed gives the same
        network; torch's global generator is neither used nor changed.

    Attributes
    ----------
    module_ : torch.nn.Module
        The fitted network, on the CPU: standardised rows to outputs, before the learned scale.
    scale_ : float
        A learned factor of the outputs; with rows set aside, the one at which their objective is highest.
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
    SoftNeighborsClassifier, SoftNeighborsRegressor : Predictions by the neighbours under this metric.
    vicinal.torch : The sums and losses, for a training loop of your own.

    Notes
    -----
    Sums over neighbours are those of :mod:`vicinal.torch`: exact over the batch and its candidates, which are drawn anew in each step
    and embedded with the current network. Rows set aside to stop early are possible neighbours at prediction like all others.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import NeuralNCA
    >>> rng = np.random.default_rng(0)
    >>> angle = rng.uniform(0, 2 * np.pi, 300)
    >>> y = np.arange(300) % 2
    >>> X = (1 + y)[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    >>> nca = NeuralNCA(1, random_state=0).fit(X, y)  # doctest: +SKIP
    >>> bool(nca.objectives_[-1] > -0.1)  # rings become a line  # doctest: +SKIP
    True
    """

    # exp(-|z - z'|^2) is a Gaussian kernel of this standard deviation: the scale of the outputs is learned.
    _learned_bandwidth = float(np.sqrt(0.5))

    _record_types: ClassVar[dict[str, type[Record]]] = {"objective": Objective, "solver": Adam, "engine": Engine}

    def __init__(
        self,
        n_components: int = 32,
        *,
        network: Any = None,
        objective: Objective | str = "likelihood",
        standardize: bool = True,
        solver: Adam | str = "adam",
        max_iter: int = 200,
        tol: float = 1e-4,
        warm_start: bool = False,
        callback: Callback | None = None,
        engine: Engine | str | None = None,
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
        self.engine = engine
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
            Labels, or targets in the form that the `match` of the objective requires; groups for the objective "pairs", numbers
            for "regression".
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
        X, supervision = self._read(X, y, pairs, pair_weight, sample_weight, objective)
        device = self._device(torch)
        random = check_random_state(self.random_state)
        spread = column_spread(X)
        self.mean_ = X.mean(axis=0, dtype=np.float64) if self.standardize else np.zeros(X.shape[1])
        self.spread_ = np.where(spread > 0, spread, 1.0) if self.standardize else np.ones(X.shape[1])
        rows = self._standardized(X)
        supervision.place(torch, device)
        with torch.random.fork_rng(devices=range(torch.cuda.device_count()) if device != "cpu" else []):
            torch.manual_seed(random.randint(2**31 - 1))
            network, log_scale = self._initial_network(torch, rows, objective.kind == "regression")
            training = Training(
                network.to(device),
                torch.nn.Parameter(torch.tensor(log_scale, dtype=torch.float32, device=device)),
                torch.as_tensor(rows, dtype=torch.float32, device=device),
                supervision,
                options,
                random,
            )
            path = self._climb(training, options)
        training.network.load_state_dict(path.parameters[0])
        # In float64 and without batches, so that the output of a row does not depend on the others.
        self.module_ = training.network.to(device="cpu", dtype=torch.float64).eval()
        for parameter in self.module_.parameters():
            parameter.grad = None
        self.scale_ = path.parameters[1]
        self.objectives_, self.n_iter_, self.converged_ = path.objectives, path.n_iter, path.converged
        self.best_epoch_ = int(np.argmax(path.objectives)) + 1
        warn_if_not_converged("NeuralNCA", path)
        return self

    def _climb(self, training: Training, options: Adam) -> FitPath:
        """Run epochs until the objective gains no more; return the path, whose parameters are a state and a scale."""

        def play(best: Any, unit: float) -> tuple[Any, float]:
            mean = training.epoch()
            factor, held_out = training.held_out()
            state = copy.deepcopy(training.network.state_dict())
            scale = factor * float(training.log_scale.detach().exp())
            return (state, scale), mean if held_out is None else held_out

        def as_vector(parameters: tuple[dict[str, torch.Tensor], float]) -> np.ndarray:
            weights = [parameters[0][name].cpu().numpy().ravel() for name, _ in training.network.named_parameters()]
            return np.concatenate([*weights, [parameters[1]]])

        limits: dict[str, Any] = {"max_iter": self.max_iter, "tol": self.tol, "patience": options.n_iter_no_change}
        return climb_by_rounds(play, None, Recorder.of(self, as_vector), name="epochs", **limits)

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
        torch = _torch()
        if on_device(X):
            tensor = check_device_rows(self, X)
            mean, spread = (torch.as_tensor(values, device=tensor.device) for values in (self.mean_, self.spread_))
            network = copy.deepcopy(self.module_).to(tensor.device)
            return (self.scale_ * outputs(network, (tensor.double() - mean) / spread)).to(tensor.dtype)
        X = check_rows(self, X, reset=False)
        return (self.scale_ * outputs(self.module_, torch.as_tensor(self._standardized(X))).numpy()).astype(X.dtype)

    def _standardized(self, X: np.ndarray) -> np.ndarray:
        return (X - self.mean_) / self.spread_

    def _device(self, torch: ModuleType) -> str:
        """Return the device of training."""
        engine = as_engine(fit_engine(self))
        device = (engine.device or "cuda") if engine.kind == "torch" else "cpu"
        try:
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError) as error:
            raise ValueError(
                f"engine={self.engine!r} cannot be used here: {error}. Use None, which trains on the CPU."
            ) from error
        return device

    def _read(
        self, X: Any, y: Any, pairs: Any, pair_weight: Any, sample_weight: Any, objective: Objective
    ) -> tuple[NDArray[Any], Any]:
        """Return the rows of positive weight and their supervision."""
        X = check_rows(self, X, reset=True, min_rows=2)
        check_spread(X)
        weight = check_weights(sample_weight, X)
        if objective.kind == "pairs":
            return X, ClosePairs(read_close_pairs(y, pairs, pair_weight, len(X), "NeuralNCA"), weight, len(X))
        if pairs is not None or pair_weight is not None:
            raise ValueError(f"pairs and pair_weight are only for objective='pairs', got objective={objective.kind!r}.")
        if objective.kind == "regression":
            y = read_numbers(y, len(X), "Use objective='likelihood' for class labels.")
            X, y, weight = _of_positive_weight(X, y, weight)
            columns = y.reshape(len(y), -1)
            centred = columns - columns.mean(axis=0)
            unit = np.abs(centred).max(axis=0) + (centred == 0).all(axis=0)  # squares of large targets would overflow
            centred = centred / unit
            return X, Neighbors("regression", "", centred / (centred.std(axis=0) + (centred == 0).all(axis=0)), weight)
        y = read_targets(y, len(X), objective.match)
        X, y, weight = _of_positive_weight(X, y, weight)
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
        values = class_codes(targets.values) if targets.kind == "class" else targets.values
        return X, Neighbors(objective.kind, targets.kind, values, weight)

    def _initial_network(self, torch: ModuleType, rows: np.ndarray, regression: bool) -> tuple[torch.nn.Module, float]:
        """Return the initial network, in float32, and the logarithm of the scale of its outputs."""
        if self.warm_start and hasattr(self, "module_"):
            return copy.deepcopy(self.module_).float(), float(np.log(self.scale_))
        network = self._made(torch, rows, regression).float()
        sample = rows[sample_rows(len(rows), n_points=_START_ROWS)[0]]
        try:
            z = outputs(network, torch.as_tensor(sample, dtype=torch.float32))
        except RuntimeError as error:
            raise ValueError(
                f"network cannot take rows of {rows.shape[1]} numbers, the columns of X: {error}. Change its first layer."
            ) from error
        if z.ndim != 2 or len(z) != len(sample):
            raise ValueError(
                f"network must return one row of outputs for each row of X, got outputs of shape {tuple(z.shape)}."
            )
        self._n_outputs = z.shape[1]
        if not torch.isfinite(z).all():
            raise ValueError(
                "network returns outputs that are not finite at the start. Check its weights and the scale of X."
            )
        mean_square = 2.0 * float((z - z.mean(0)).square().sum(1).mean())
        scale = (_START * z.shape[1] / mean_square) ** 0.5 if mean_square > 1e-30 else 1.0
        last = network[-1] if isinstance(network, torch.nn.Sequential) else network
        if not isinstance(last, torch.nn.Linear):
            return network, float(np.log(scale))
        # The scale is put into the weights, because Adam's steps are small compared with it.
        with torch.no_grad():
            for parameter in last.parameters():
                parameter.mul_(scale)
        return network, 0.0

    def _made(self, torch: ModuleType, rows: np.ndarray, regression: bool) -> torch.nn.Module:
        """Return a new network, or a copy of the user's."""
        if self.network is None:
            from vicinal._nca.table_network import table_network

            return table_network(rows, self.n_components, _DROPOUT_OF_REGRESSION if regression else _DROPOUT)
        if isinstance(self.network, Integral):
            return torch.nn.Sequential(
                torch.nn.Linear(rows.shape[1], int(self.network)),
                torch.nn.Sigmoid(),
                torch.nn.Linear(int(self.network), self.n_components),
            )
        if isinstance(self.network, torch.nn.Module):
            return copy.deepcopy(self.network)
        return self.network(rows.shape[1], self.n_components)

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
        objective = as_record(self.objective, Objective, "objective", NEURAL_KINDS)
        if objective.penalty:
            raise ValueError(
                f"a network has no matrix A to penalise, got penalty={objective.penalty:g}. Use "
                "solver=Adam(weight_decay=...) instead."
            )
        options = as_record(self.solver, Adam, "solver", ("adam",))
        if isinstance(self.solver, str):
            options = REGRESSION_DEFAULTS if objective.kind == "regression" else DEFAULTS
        return objective, options


def outputs(network: torch.nn.Module, rows: torch.Tensor, batch: int = 4096) -> torch.Tensor:
    """Return the network's outputs for rows, a few rows at a time, without gradients."""
    torch = _torch()
    network.eval()
    with torch.no_grad():
        return torch.cat([network(rows[first : first + batch]) for first in range(0, len(rows), batch)])


def with_candidates(places: np.ndarray, pool: np.ndarray, n_candidates: int, random: RandomState) -> np.ndarray:
    """Return places of rows, followed by those of up to so many other rows of a pool."""
    drawn = pool if n_candidates >= len(pool) else pool[random.randint(len(pool), size=n_candidates)]
    return np.concatenate([places, np.setdiff1d(drawn, places)])


def _of_positive_weight(
    X: np.ndarray, y: np.ndarray, weight: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    if weight is None:
        return X, y, None
    kept = weight > 0
    return X[kept], y[kept], weight[kept]


def _torch() -> ModuleType:
    try:
        import torch
    except ImportError as error:
        raise ImportError("NeuralNCA needs PyTorch: pip install 'vicinal[torch]'") from error
    return torch


class Training:
    """The steps of AdamW.

    Parameters
    ----------
    network : torch.nn.Module
        The network on the device, in float32.
    log_scale : torch.nn.Parameter
        The logarithm of the factor of the outputs.
    rows : tensor of shape (n, n_features)
    supervision : Neighbors or ClosePairs
    options : Adam
    random : RandomState
    """

    def __init__(
        self,
        network: torch.nn.Module,
        log_scale: torch.nn.Parameter,
        rows: torch.Tensor,
        supervision: Neighbors | ClosePairs,
        options: Adam,
        random: RandomState,
    ) -> None:
        torch = _torch()
        self.network, self.log_scale, self._rows, self._supervision = network, log_scale, rows, supervision
        self._batch_size, self._random = options.batch_size, random
        self._n_candidates = len(rows) if options.n_candidates is None else options.n_candidates
        share = options.validation_fraction if options.early_stopping else 0.0
        self._terms, self._aside, self._pool = supervision.split(share, random)
        self._judged = with_candidates(supervision.rows_of(self._aside), self._pool, _JUDGED_CANDIDATES, random)
        # Biases, the weights of batch normalisation and the scale do not decay.
        parameters = [p for p in network.parameters() if p.requires_grad]
        groups = [
            {"params": [p for p in parameters if p.ndim > 1], "weight_decay": options.weight_decay},
            {"params": [*(p for p in parameters if p.ndim <= 1), log_scale], "weight_decay": 0.0},
        ]
        self._optimiser = torch.optim.AdamW(groups, lr=options.learning_rate)

    def epoch(self) -> float:
        """Take a step for each batch of the terms; return the mean objective."""
        order, total, mass = self._random.permutation(self._terms), 0.0, 0.0
        n_batches = max(round(len(order) / self._batch_size), min(_BATCHES, len(order) // _SMALLEST_BATCH), 1)
        for batch in np.array_split(order, n_batches):
            value, weight = self._step(batch)
            total, mass = total + value * weight, mass + weight
        if not mass > 0:
            raise ValueError(
                "no batch had a row with a possible neighbour that agrees with it. Raise batch_size or n_candidates."
            )
        return total / mass

    def _step(self, batch: np.ndarray) -> tuple[float, float]:
        places = with_candidates(self._supervision.rows_of(batch), self._pool, self._n_candidates, self._random)
        self.network.train()
        z = self.log_scale.exp() * self.network(self._rows[places])
        value, weight = self._supervision.value(z, batch, places)
        if weight > 0:
            self._optimiser.zero_grad()
            (-value).backward()
            self._optimiser.step()
        return float(value.detach()), weight

    def held_out(self) -> tuple[float, float | None]:
        """Return the factor of the outputs at which the objective of the terms set aside is highest, and the objective there.

        Training rows are closer to each other than new rows are to them, so the scale that suits the training rows is too large.
        """
        if not len(self._aside):
            return 1.0, None
        z = self.log_scale.detach().exp() * outputs(self.network, self._rows[self._judged])

        def value(factor: float) -> float:
            value, weight = self._supervision.value(factor * z, self._aside, self._judged)
            if not weight > 0:
                raise ValueError(
                    f"early_stopping cannot be used: none of the {len(self._aside)} rows that are set aside agrees with a "
                    "candidate. Raise validation_fraction, or set early_stopping=False."
                )
            return float(value)

        values = {factor: value(factor) for factor in _FACTORS}
        best = max(values, key=values.__getitem__)
        return best, values[best]


# -- the supervision -----------------------------------------------------------------------------------------------
#
# Both kinds have the same interface. Terms are what the objective is a mean of: rows, or pairs. `split` returns terms to train on, terms to
# set aside, and the places of the rows that may be candidates; `rows_of` the places of the rows in some terms; and `value` the objective of
# some terms and its weight, given the outputs for the rows at some places, which begin with `rows_of(terms)`.


class Neighbors:
    """Labels, soft targets or numbers: each row is compared with its neighbours.

    Parameters
    ----------
    objective : "likelihood", "accuracy" or "regression"
    match : "class", "gaussian", "dot", or "" for regression
    values : array of shape (n, t)
        The targets; those of classes as `class_codes`.
    weight : array of shape (n,), optional
    """

    def __init__(self, objective: str, match: str, values: np.ndarray, weight: np.ndarray | None) -> None:
        self._objective, self._match, self._values, self._weight = objective, match, values, weight

    def place(self, torch: ModuleType, device: str) -> None:
        """Copy the targets to the device of training."""
        weight = np.ones(len(self._values)) if self._weight is None else self._weight
        self._on_device = [torch.as_tensor(values, device=device) for values in (self._values, weight)]

    def split(self, share: float, random: RandomState) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return rows to train on, rows to set aside, and the former as candidates."""
        order = random.permutation(len(self._values))
        count = max(round(share * len(order)), 2) if share else 0
        terms = np.sort(order[count:])
        if len(terms) < 2:
            raise ValueError(
                f"early_stopping needs more than {len(order)} rows. Pass solver=Adam(early_stopping=False)."
            )
        return terms, np.sort(order[:count][:_JUDGED_ROWS]), terms

    def rows_of(self, terms: np.ndarray) -> np.ndarray:
        """Return the places of some rows."""
        return terms

    def value(self, z: torch.Tensor, terms: np.ndarray, places: np.ndarray) -> tuple[torch.Tensor, float]:
        """Return the mean of the terms of the first rows among all, and the sum of their weights."""
        torch = _torch()
        from vicinal.torch import soft_means

        count = len(terms)
        values, weight = (known[torch.as_tensor(places, device=z.device)].to(z.dtype) for known in self._on_device)
        images, positions = z * 2.0**0.5, torch.arange(count, device=z.device)
        log_weights = None if self._weight is None else weight.log()
        if self._objective == "regression":
            means = soft_means(images[:count], images, values, log_weights, positions)
            terms_of_rows, counted = -(means - values[:count]).square().mean(1), weight[:count]
        else:
            log_a = log_agreement(self._match, images, values, log_weights, positions)
            # Rows whose candidates all disagree have no finite likelihood.
            counted = weight[:count] * (log_a.detach() > 0.5 - _APART)
            terms_of_rows = log_a
            if self._objective == "accuracy":
                terms_of_rows, counted = log_a.exp(), weight[:count]
        total = counted.sum()
        return (counted * terms_of_rows).sum() / total.clamp_min(1e-30), float(total)


class ClosePairs:
    """Close pairs: they attract each other, and all rows repel each other (Eq. 8)."""

    def __init__(self, close: Grouped | Listed, weight: np.ndarray | None, n: int) -> None:
        pairs, shares = close.some(np.random.RandomState(0))
        self._pairs, self._shares = pairs[shares > 0], shares[shares > 0]
        self._weight, self._n = np.ones(n) if weight is None else np.maximum(weight, 1e-30), n

    def place(self, torch: ModuleType, device: str) -> None:
        """Copy the weights to the device of training."""
        self._on_device = [torch.as_tensor(values, device=device) for values in (self._shares, np.log(self._weight))]

    def split(self, share: float, random: RandomState) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return pairs to train on, pairs to set aside, and all rows as candidates."""
        order = random.permutation(len(self._pairs))
        count = max(round(share * len(order)), 1) if share else 0
        if count == len(order):
            raise ValueError(
                f"early_stopping needs more than {len(order)} pairs. Pass solver=Adam(early_stopping=False)."
            )
        return order[count:], order[:count][:_JUDGED_ROWS], np.arange(self._n)

    def rows_of(self, terms: np.ndarray) -> np.ndarray:
        """Return the places of the rows in some pairs."""
        return np.unique(self._pairs[terms])

    def value(self, z: torch.Tensor, terms: np.ndarray, places: np.ndarray) -> tuple[torch.Tensor, float]:
        """Return the negative of Eq. 8 per unit of pair weight, in which c != d over all these rows, and the weight of the pairs."""
        torch = _torch()
        from vicinal.torch import log_sums

        order = np.argsort(places)
        one, other = order[np.searchsorted(places, self._pairs[terms].T, sorter=order)]
        share = self._on_device[0][torch.as_tensor(terms, device=z.device)].to(z.dtype)
        log_weights = self._on_device[1][torch.as_tensor(places, device=z.device)].to(z.dtype)
        attraction = (share * (z[one] - z[other]).square().sum(1)).sum() / share.sum()
        repulsion = (log_weights + log_sums(z * 2.0**0.5, None, log_weights, "position")).logsumexp(0)
        return -attraction - repulsion, float(share.sum())


def class_codes(codes: np.ndarray) -> np.ndarray:
    """Return coordinates of classes: those of different classes are at least sqrt(2 _APART) apart, those of one class equal."""
    n_bits = max(int(codes.max()).bit_length(), 1)
    bits = (codes[:, None] >> np.arange(n_bits)) & 1
    return (2.0 * _APART) ** 0.5 * (bits - 0.5)


def log_agreement(
    match: str,
    images: torch.Tensor,
    values: torch.Tensor,
    log_weights: torch.Tensor | None,
    positions: torch.Tensor,
) -> torch.Tensor:
    """Return the logarithm of ``a_i = sum_j p_ij m_ij`` (Eq. 2) of the rows at some positions among all other rows.

    An agreement ``m_ij = exp(-|v_i - v_j|^2 / 2)`` is a Gaussian kernel in further coordinates, and equal classes are equal coordinates.
    """
    from vicinal.torch import log_sums, soft_means

    queries = images[positions]
    if match == "dot":
        means = soft_means(queries, images, values, log_weights, positions)
        return (means * values[positions]).sum(1).clamp_min(1e-30).log()
    together = _torch().cat([images, values], dim=1)
    agreeing = log_sums(together[positions], together, log_weights, positions)
    return agreeing - log_sums(queries, images, log_weights, positions)
