"""NCA with a network instead of a matrix (sec. 5 of the paper); needs torch."""

from __future__ import annotations

import copy
import warnings
from numbers import Integral
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted

from vicinal._callers import callers_line
from vicinal._checks import (
    check_callback,
    check_device_rows,
    check_flag,
    check_integer,
    check_positive,
    check_rows,
    check_spread,
    check_weights,
)
from vicinal._fit_loops import Callback, warn_if_not_converged
from vicinal._nca.init import best_scale, column_spread
from vicinal._nca.neural_batches import NeighborSource, PairSource
from vicinal._nca.neural_training import train
from vicinal._nca.options import KINDS, Adam, Objective
from vicinal._notebook import NotebookMixin
from vicinal._records import Record, RecordParametersMixin, as_record
from vicinal._supervision import check_targets, read_close_pairs, read_targets
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
        device = self.device or device_of_fit(self) or ("cuda" if torch.cuda.is_available() else "cpu")
        try:
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError) as error:
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
            there, torch = check_device_rows(self, X), _torch()
            mean, spread = (torch.as_tensor(values, device=there.device) for values in (self.mean_, self.spread_))
            network = copy.deepcopy(self.module_).to(there.device)
            return (self.scale_ * _outputs(torch, network, (there.double() - mean) / spread)).to(there.dtype)
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
