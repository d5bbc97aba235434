"""The base of all Gaussian mixtures, whatever the covariances of their components."""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Mapping
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array

from vicinal._checks import check_random_state
from vicinal._engine import Engine, Kernel, Placement, Work, engine_at, prepare, resident, robust_centre
from vicinal._mixtures.background import Background
from vicinal._mixtures.features import (
    Feature,
    Features,
    check_queries,
    feature_positions,
    known_patterns,
    split_features,
)
from vicinal._rows import check_magnitude, has_gaps
from vicinal._tensors import as_given, as_host, on_device

RandomState = int | np.random.RandomState | None
LOG_2PI = float(np.log(2.0 * np.pi))


class Mixture(ABC):
    r"""A Gaussian mixture :math:`p(x) = \sum_j w_j N(x; c_j, C_j)` of n components in D dimensions.

    A few broad Gaussians may have a share of it beside the components; see `background.py`. Its methods follow from the kernel under which the engine places the centres.

    Parameters
    ----------
    centres : array of shape (n, D)
    log_weights : array of shape (n,) or None
        Need not be normalised; None is equal weights. A component of weight 0 has log-weight -inf.
    engine : None, str or Engine
    feature_names : array of shape (D,) or None
    """

    def __init__(
        self,
        centres: np.ndarray,
        log_weights: np.ndarray | None,
        engine: Engine | str | None,
        feature_names: np.ndarray | None,
    ) -> None:
        self.centres = centres
        self.log_weights = normalised_log_weights(log_weights, len(centres))
        self.engine = engine
        self.feature_names = feature_names

    background: Background | None = None

    # -- abstract methods ------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def kernel_units(self) -> np.ndarray:
        """The map to coordinates in standard deviations of the kernels: (D, D), or (D,) for a diagonal."""

    @abstractmethod
    def _kernel(self) -> Kernel:
        """Return the kernel of the components, as `Problem.at` takes it."""

    @abstractmethod
    def _work(self, n_queries: int, passes: int) -> Work:
        """Return the work of scoring a number of rows a number of times."""

    @abstractmethod
    def _draw(self, chosen: np.ndarray, rng: np.random.RandomState) -> np.ndarray:
        """Return a row from each of the chosen components."""

    def _draw_broad(self, chosen: np.ndarray, rng: np.random.RandomState) -> np.ndarray:
        """Return a row from each of the chosen broad Gaussians."""
        raise NotImplementedError

    @abstractmethod
    def _marginal(self, kept: np.ndarray, names: np.ndarray | None) -> Mixture:
        """Return the mixture of the features at some positions."""

    @abstractmethod
    def _conditional(
        self, fixed: np.ndarray, values: np.ndarray, rest: np.ndarray, names: np.ndarray | None
    ) -> Mixture:
        """Return the mixture of the features at the positions `rest`, given the values of those at `fixed`."""

    @abstractmethod
    def mean_shift(self, X: np.ndarray, placed: Placement | None = None) -> np.ndarray:
        """Return the step of each row of X to the maximum of EM's lower bound of the log-density, shape (m, D).

        .. math:: \\Big(\\sum_j p_{ij} C_j^{-1}\\Big)^{-1} \\sum_j p_{ij} C_j^{-1} (c_j - x_i)

        with the shares p of `responsibilities`. The density never falls along a step.

        Parameters
        ----------
        X : float64 array of shape (m, D)
        placed : Placement, optional
            From `placement`, for many steps; the default suits a single step.
        """

    # -- the engine ------------------------------------------------------------------------------------------------

    def placement(self, n_queries: int, passes: int = 1, engine: Engine | str | None = None) -> Placement:
        """Return the components as placed by the engine for scoring a number of rows a number of times.

        A centre may be left out.  `engine` is that of the mixture unless another is given.
        """
        work, engine = self._work(n_queries, passes), self.engine if engine is None else engine
        return resident(self, engine, work, lambda: self._placed(work, engine))

    def _placed(self, work: Work, engine: Engine | str | None) -> Placement:
        problem = prepare(
            engine,
            self._as_placed(self.centres),
            log_weights=self._log_weights_of_points(),
            leave_one_out=True,
            n_queries=work.n_queries,
            n_dims=work.n_dims,
            passes=work.passes,
        )
        return problem.at(self._kernel())

    def _as_placed(self, rows: Any) -> Any:
        """Return rows in the coordinates in which the engine holds the centres; by default those of the data."""
        return rows

    def _log_weights_of_points(self) -> np.ndarray | None:
        """Return the log-weights that the engine adds to the scores of a component; None if it adds none."""
        return self.log_weights

    @property
    def _log_norm(self) -> float:
        """The constant that turns the engine's log-sums into log-densities."""
        return -0.5 * self.n_features * LOG_2PI

    def _checked(self, X: Any, *, gaps: bool = False) -> np.ndarray:
        """Return rows that a user has passed, validated."""
        return check_queries(X, self.n_features, self.feature_names, gaps=gaps)

    # -- densities -------------------------------------------------------------------------------------------------

    @property
    def n_features(self) -> int:
        """The number of dimensions."""
        return int(self.centres.shape[1])

    def score_samples(self, X: Any) -> Any:
        """Return the log-density of each row of X, shape (m,); as a tensor on the GPU if X is a validated tensor there.

        NaN marks a missing value: such a row is scored by its known values, under the marginal of their features, and a row
        without any known value scores 0. There is one marginal per pattern of missing values.
        """
        if on_device(X):
            placement = self.placement(len(X), engine=engine_at(self.engine, X))
            scores = placement.log_sums(self._as_placed(X)) + self._log_norm
            if self.background is not None:  # a few columns of numbers, which the processor adds
                scores = as_given(self._beside(as_host(scores), as_host(X)), X)
            return check_log_density(scores)
        return self.scores_of(self._checked(X, gaps=True))

    def scores_of(self, rows: np.ndarray) -> np.ndarray:
        """Return the log-density of validated rows, of their known values if some are missing."""
        if not has_gaps(rows):
            return check_log_density(self.log_densities(rows))
        scores = np.zeros(len(rows))
        for positions, known in known_patterns(rows):
            mixture = self if len(known) == self.n_features else self.marginal(known)
            scores[positions] = check_log_density(
                mixture.log_densities(np.ascontiguousarray(rows[np.ix_(positions, known)]))
            )
        return scores

    def log_densities(self, rows: np.ndarray) -> np.ndarray:
        """Return the log-density of rows that `check_queries` has accepted, shape (m,); -inf if they are too far from every component."""
        return self._beside(self.log_kernels(rows), rows)

    def _beside(self, kernels: np.ndarray, rows: np.ndarray, left_out: np.ndarray | None = None) -> np.ndarray:
        """Return the log-densities of rows from those under the components, which leave out one training row each if any do."""
        if self.background is None:
            return kernels
        return self.background.beside(kernels, self.broad_log_densities(rows, left_out))

    def broad_log_densities(self, rows: np.ndarray, left_out: np.ndarray | None = None) -> np.ndarray:
        """Return the log-density of each row under the broad Gaussians, without a training row for each if `left_out` names them."""
        raise NotImplementedError

    def log_kernels(
        self,
        rows: np.ndarray | None = None,
        left_out: np.ndarray | None = None,
        *,
        passes: int = 1,
        engine: Engine | str | None = None,
    ) -> np.ndarray:
        """Return the log-density of each row under the components alone, shape (m,); -inf for rows that are too far from all of them.

        Parameters
        ----------
        rows : array of shape (m, D), optional
            Rows that `check_queries` has accepted. None means the centres, each without its own component.
        left_out : integer array of shape (m,), optional
            A component that is left out for each row. The weights of the others are not normalised again.
        passes : int
            The expected number of such calls, from which the engine chooses a backend.
        engine : None, str or Engine
            The default is that of the mixture.
        """
        if rows is None:
            return self.placement(len(self.centres), passes, engine).log_sums() + self._log_norm
        return self.placement(len(rows), passes, engine).log_sums(self._as_placed(rows), left_out) + self._log_norm

    def left_out_score_samples(self, passes: int = 1) -> np.ndarray:
        """Return the log-density of each centre under the mixture of the *other* components, shape (n,).

        `passes` is the expected number of such calls, from which the engine chooses a backend.
        """
        kernels = self.log_kernels(passes=passes) - self._log_others
        return check_log_density(self._beside(kernels, self.centres, np.arange(len(self.centres))))

    @property
    def _log_others(self) -> np.ndarray:
        """The logarithm of the weight that remains when each component is left out."""
        return log_weight_of_others(self.log_weights)

    def left_out_scores_of(self, rows: np.ndarray, left_out: np.ndarray | None = None) -> np.ndarray:
        """Return the log-density of rows, each without one component, shape (m,).

        Parameters
        ----------
        rows : array of shape (m, D)
            For example the rows that the components were made from, if the centres have moved away from them.
        left_out : integer array of shape (m,), optional
            The component that is left out for each row; by default the one at the same position.
        """
        left_out = np.arange(len(rows)) if left_out is None else left_out
        kernels = self.log_kernels(rows, left_out) - self._log_others[left_out]
        return check_log_density(self._beside(kernels, rows, left_out))

    def score(self, X: ArrayLike) -> float:
        """Return the mean log-density of the rows of X."""
        return float(self.score_samples(X).mean())

    def responsibilities(self, X: ArrayLike, least: float = 1e-12) -> csr_array:
        """Return each component's share of what the components give to each row of X, as a sparse array of shape (m, n).

        .. math:: p_{ij} = w_j N(x_i; c_j, C_j) / p(x_i)

        Parameters
        ----------
        X : array-like of shape (m, D)
        least : float
            Smaller shares are left out, and the others are normalised. If kernels are narrow, few are kept; if all
            overlap, the array holds m n numbers.
        """
        rows = self._as_placed(self._checked(X))
        placed = self.placement(len(rows))
        check_log_density(placed.log_sums(rows))
        blocks = zip(*placed.neighbors_above(least, rows), strict=True)
        query, component, shares = (np.concatenate(parts) for parts in blocks)
        return csr_array((shares, (query, component)), shape=(len(rows), len(self.centres)))

    # -- other densities and rows ----------------------------------------------------------------------------------

    def sample(self, n_samples: int = 1, random_state: RandomState = None) -> np.ndarray:
        """Draw rows from the density, shape (n_samples, D)."""
        rng, chosen = draw_components(self.log_weights, n_samples, random_state)
        with np.errstate(over="ignore"):
            rows = self._draw(chosen, rng)
            if self.background is not None:
                shares = np.exp(self.background.log_shares)
                part = rng.choice(len(shares), size=n_samples, p=shares / shares.sum())
                rows[part > 0] = self._draw_broad(part[part > 0] - 1, rng)
            rows = rows.astype(self.centres.dtype, copy=False)
        if not np.isfinite(rows).all():
            raise ValueError(
                f"rows drawn from this density exceed {rows.dtype}: its kernels are too wide for the precision of its "
                "training rows. Fit it to float64 rows, or rescale the data."
            )
        return rows

    def marginal(self, features: Features) -> Mixture:
        """Return the density of some features alone, exactly, as another mixture of this kind.

        Parameters
        ----------
        features : list of column positions, or of names if the density was fitted on named columns
        """
        kept = feature_positions(features, self.n_features, self.feature_names)
        return self._marginal(kept, self._names_at(kept))

    def conditional(self, given: Mapping[Feature, float]) -> Mixture:
        """Return the density of the other features given the values of some, exactly, as another mixture of this kind.

        Every component has the conditional mean and covariance of the other features given those values, and is weighted
        by its density at the values.

        Parameters
        ----------
        given : dict
            Values by column position, or by name if the density was fitted on named columns.
        """
        fixed, values, rest = split_features(given, self.n_features, self.feature_names, self.centres.dtype)
        return self._conditional(fixed, values, rest, self._names_at(rest))

    def only(self, is_remaining: np.ndarray) -> Mixture:
        """Return the mixture of some components, which keep their positions: the others have weight 0."""
        rest = copy(self)
        rest.log_weights = normalised_log_weights(np.where(is_remaining, self.log_weights, -np.inf), len(self.centres))
        return rest

    def check_reach(self, rows: np.ndarray) -> None:
        """Raise an error for rows whose distances from the components cannot be computed; NaN marks a missing value."""
        known = np.where(np.isnan(rows), self.centres[0], rows)
        check_magnitude(known)
        units = self.kernel_units
        check_magnitude(known * units if units.ndim == 1 else known @ units.T, "X, in units of the kernel,")

    def _names_at(self, positions: np.ndarray) -> np.ndarray | None:
        return None if self.feature_names is None else np.asarray(self.feature_names)[positions]

    # -- modes -----------------------------------------------------------------------------------------------------

    def in_kernel_units(self, rows: ArrayLike) -> np.ndarray:
        """Return rows in coordinates in which distances are in standard deviations of the kernels, in float64."""
        # Relative to a centre of the components, so that the map loses no digits far from the origin.
        shifted = np.asarray(rows, dtype=np.float64) - robust_centre(self.centres)
        units = self.kernel_units
        return shifted * units if units.ndim == 1 else shifted @ units.T


# -- the weights of components -----------------------------------------------------------------------------------------


def normalised_log_weights(log_weights: np.ndarray | None, n: int) -> np.ndarray:
    """Return the log-weights of n components, of sum one; None means equal weights, which are held as one number."""
    if log_weights is None:
        return np.broadcast_to(-np.log(float(n)), n)
    top = log_weights.max()
    if not np.isfinite(top):
        raise ValueError(
            "the given values lie so far from all components, in units of the kernel, that the square of the distance "
            "overflows. Rescale the data or increase the bandwidth or noise."
        )
    shifted = log_weights - top
    return shifted - np.log(np.exp(shifted).sum())


def log_weight_of_others(log_weights: np.ndarray) -> np.ndarray:
    """Return log(1 - w_i) for log-weights of sum one, exactly even if one component has nearly all the weight."""
    if np.count_nonzero(log_weights > -np.inf) < 2:
        raise ValueError(
            "leave-one-out needs at least two rows of positive weight, because no component is left without the row."
        )
    # The heaviest is replaced below. Until then it must not be rounded to a weight of one, as exp(-1e-16) is by some versions of NumPy.
    others = np.log1p(-np.exp(np.minimum(log_weights, -1e-15)))
    heaviest = int(np.argmax(log_weights))
    rest = np.delete(log_weights, heaviest)
    others[heaviest] = rest.max() + np.log(np.exp(rest - rest.max()).sum())
    return others


def draw_components(
    log_weights: np.ndarray, n_samples: int, random_state: RandomState
) -> tuple[np.random.RandomState, np.ndarray]:
    """Return a random generator, and the components from which `n_samples` rows are drawn."""
    if not isinstance(n_samples, numbers.Integral) or isinstance(n_samples, bool) or n_samples < 1:
        raise ValueError(f"n_samples must be a positive integer, got {n_samples!r}.")
    rng = check_random_state(random_state)
    weights = np.exp(log_weights)
    return rng, rng.choice(len(weights), size=n_samples, p=weights / weights.sum())


def check_log_density(log_density: np.ndarray) -> np.ndarray:
    """Return the log-densities, or raise an error if some are not finite because rows are too far from every component."""
    finite = np.isfinite(log_density) if isinstance(log_density, np.ndarray) else log_density.isfinite()
    if not finite.all():
        raise ValueError(
            f"{int((~finite).sum())} rows lie so far from every component, in units of the bandwidth, "
            "that the square of their distance overflows. Rescale the data or increase the bandwidth."
        )
    return log_density
