"""A mixture with one covariance whose components are on several workers of a Dask cluster, each of which holds some of them.

::

      p(x) = sum_k m_k p_k(x)       m_k: the weight of the components of block k;  p_k: their mixture, on a worker

A worker computes ``log(m_k p_k(x))`` for a block of rows, and these logarithms are merged in the order of the blocks, `_FAN` at a time.
"""

from collections.abc import Callable
from copy import copy
from functools import partial
from itertools import pairwise
from typing import Any

import dask
import numpy as np
from dask.delayed import Delayed
from distributed import Client, Future, get_worker
from scipy.special import logsumexp

from vicinal._dask.cluster import (
    LostError,
    active_client,
    answer_of,
    computed,
    hold,
    new_key,
    only_responding,
    wait_for_a_worker,
)
from vicinal._dask.distant_rows import DistantRows, sliced
from vicinal._dask.references import client_of, lost_components, needed_here
from vicinal._dask.rows import taken
from vicinal._dask.spread_scores import scores_of_call
from vicinal._engine import Engine, as_engine, merged_log_sums
from vicinal._mixtures.components import check_log_density, log_weight_of_others, normalised_log_weights
from vicinal._mixtures.features import check_queries
from vicinal._mixtures.shared_mixture import SharedMixture

_FAN = 16  # the number of blocks of components whose sums one task merges
_REMEDY = "Fit the density again"
_ROOM = 0.5  # the share of a worker's memory up to which it keeps the placements of its blocks


class SpreadMixture:
    """A mixture in blocks, each a `SharedMixture` on a worker; `gather` moves it into this process.

    Parameters
    ----------
    blocks : list of distributed.Future
        The mixtures of the blocks of components.
    lengths : list of int
        Their numbers of components.
    weights : array of shape (n,), or None for equal weights
        The log-weights of all components, of sum one.
    outline : MixtureOutline
        What is known of the mixture without its components.
    """

    is_distant = True

    def __init__(
        self, blocks: list[Future], lengths: list[int], weights: np.ndarray | None, outline: "MixtureOutline"
    ) -> None:
        self.blocks, self.lengths, self._weights, self._outline = blocks, lengths, weights, outline
        self.starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        self.engine = outline.engine
        self._masses = (
            np.log(np.asarray(lengths) / self.starts[-1])
            if weights is None
            else np.array([logsumexp(weights[first:last]) for first, last in pairwise(self.starts)])
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        hold(self.blocks)

    @classmethod
    def of(
        cls,
        rows: DistantRows,
        covariance: np.ndarray,
        log_weights: np.ndarray | None,
        engine: Engine | str | None,
        feature_names: np.ndarray | None,
    ) -> "SpreadMixture":
        """Make the mixture of rows on the workers; the other parameters are those of `SharedMixture`."""
        weights = None if log_weights is None else np.asarray(normalised_log_weights(log_weights, len(rows)))
        one = SharedMixture(np.zeros((1, rows.shape[1]), rows.dtype), covariance, None, engine, feature_names)
        client = active_client()
        wait_for_a_worker(client)
        blocks = [
            client.submit(
                _mixture_of_block,
                one,
                block,
                some,
                key=new_key("vicinal-density"),
                workers=only_responding(client),
                pure=False,
            )
            for block, some in zip(rows.futures, sliced(weights, rows.starts), strict=True)
        ]
        return cls(blocks, rows.lengths, weights, MixtureOutline(one))

    # -- what is known here ----------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, int]:
        """The number of components and of dimensions."""
        return int(self.starts[-1]), self.n_features

    @property
    def n_features(self) -> int:
        """The number of dimensions."""
        return self._outline.n_features

    @property
    def kernel_units(self) -> np.ndarray:
        """The map to coordinates in which the covariance is the identity."""
        return self._outline.kernel_units

    @property
    def log_weights(self) -> np.ndarray:
        """The log-weights of the components, of sum one."""
        return normalised_log_weights(None, self.shape[0]) if self._weights is None else self._weights

    def outline(self, place: int) -> "MixtureOutline":
        """Return what is known of the mixture without its components, for methods that run on workers.

        `place` is the number of the mixture among those of an estimator.
        """
        found = copy(self._outline)
        found.place, found.engine = place, self.engine
        return found

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise needed_here(self.shape[0], name)

    def client(self) -> Client:
        """Return the active client, through which the components can be used; otherwise raise an error with a remedy."""
        return client_of(self.blocks, self.shape[0])

    # -- what workers compute --------------------------------------------------------------------------------------

    def delayed_scores(self, rows: Delayed) -> Delayed:
        """Return the log-densities of delayed rows (an array of shape (m, D)), which may be -inf."""
        return self._merged([partial(_scores, own=False)] * len(self.blocks), rows)

    def _merged(self, functions: list[Callable[..., np.ndarray]], *arguments: Any) -> Delayed:
        """Return the merged results of a function for each block that has weight."""
        engine = as_engine(self.engine)
        found = [
            dask.delayed(function)(block, mass, engine, *arguments)
            for function, block, mass in zip(functions, self.blocks, self._masses.tolist(), strict=True)
            if mass > -np.inf
        ]
        merge = dask.delayed(merged_log_sums)
        while len(found) > 1:
            found = [merge(found[first : first + _FAN]) for first in range(0, len(found), _FAN)]
        return found[0]

    def left_out_score_samples(self, passes: int = 1) -> np.ndarray:
        """Return the log-density of each centre under the mixture of the *other* components, shape (n,)."""
        return self._left_out(list(map(dask.delayed, self.blocks)))

    def left_out_scores_of(self, rows: DistantRows) -> np.ndarray:
        """Return the log-density of rows, each without the component at the same position, shape (n,)."""
        return self._left_out(rows.parts)

    def _left_out(self, rows: list[Delayed]) -> np.ndarray:
        """Return the scores of the rows in some blocks, of which each is left out of the block at the same place."""
        self.client()
        others = log_weight_of_others(self.log_weights)
        owns = np.eye(len(rows), dtype=bool).tolist()
        tasks = [
            self._merged([partial(_scores, own=one) for one in own], some) for own, some in zip(owns, rows, strict=True)
        ]
        scores = computed(tasks, _REMEDY)
        return check_log_density(np.concatenate(scores) - others)

    def each(self, function: Callable[..., np.ndarray], *aligned: np.ndarray | None) -> np.ndarray:
        """Return the concatenated results of a function for the blocks, each computed by the worker that holds it.

        Parameters
        ----------
        function : callable
            Called with the mixture of a block and its part of each of the aligned arrays.
        aligned : arrays of shape (n, ...) or None
        """
        self.client()
        others = [sliced(array, self.starts) for array in aligned]
        tasks = [dask.delayed(function)(block, *more) for block, *more in zip(self.blocks, *others, strict=True)]
        return np.concatenate(computed(tasks, _REMEDY))

    def centres_at(self, positions: np.ndarray) -> np.ndarray:
        """Return the centres at some positions, in this process; those of the last call are kept."""
        if not self._outline.has_centres_at(positions):
            self.client()
            blocks = list(map(dask.delayed, self.blocks))
            self._outline.keep_centres(positions, taken(blocks, self.starts, positions, *self._outline.kind))
        return self._outline.centres_at(positions)

    def some(self, positions: np.ndarray) -> SharedMixture:
        """Return the mixture of the components at some positions, in this process."""
        weights = None if self._weights is None else self._weights[positions]
        return self._outline.mixture(self.centres_at(positions), weights)

    def gather(self) -> SharedMixture:
        """Return the mixture of all components, in this process, which holds one block at a time besides them."""
        client = self.client()
        centres = np.empty(self.shape, dtype=self._outline.kind[1])
        try:
            for block, (first, last) in zip(self.blocks, pairwise(self.starts), strict=True):
                centres[first:last] = answer_of(
                    client, client.submit(_centres, block, workers=only_responding(client)), lambda: ""
                )
        except LostError as error:
            raise lost_components(client, self.blocks, self.shape[0], error) from None
        return self._outline.mixture(centres, self._weights)


class MixtureOutline:
    """A `SharedMixture` without its components, which are on several workers; it answers for rows that these have scored.

    Parameters
    ----------
    mixture : SharedMixture
        A mixture with the same covariance.
    """

    place = 0  # the number of the mixture among those of an estimator

    def __init__(self, mixture: SharedMixture) -> None:
        self._one, self._positions, self._centres = mixture, np.empty(0, np.int64), mixture.centres[:0]
        self.engine = mixture.engine

    @property
    def n_features(self) -> int:
        """The number of dimensions."""
        return self._one.n_features

    @property
    def kind(self) -> tuple[int, np.dtype]:
        """The number of columns of the centres, and their dtype."""
        return self.n_features, self._one.centres.dtype

    @property
    def kernel_units(self) -> np.ndarray:
        """The map to coordinates in which the covariance is the identity."""
        return self._one.kernel_units

    def mixture(self, centres: np.ndarray, log_weights: np.ndarray | None) -> SharedMixture:
        """Return the mixture with given components."""
        return SharedMixture(centres, self._one.covariance, log_weights, self.engine, self._one.feature_names)

    def has_centres_at(self, positions: np.ndarray) -> bool:
        """Return whether the centres at these positions are known."""
        return len(positions) > 0 and np.array_equal(self._positions, positions)

    def keep_centres(self, positions: np.ndarray, centres: np.ndarray) -> None:
        """Keep the centres at some positions."""
        self._positions, self._centres = np.array(positions), centres

    def centres_at(self, positions: np.ndarray) -> np.ndarray:
        """Return centres that are known."""
        if not self.has_centres_at(positions):
            raise RuntimeError("these components are on other workers. Call gather() on the estimator first.")
        return self._centres

    def score_samples(self, X: Any) -> np.ndarray:
        """Return the log-densities that workers have computed for the rows of this call."""
        return check_log_density(scores_of_call(self.place, X))


def _mixture_of_block(one: SharedMixture, rows: np.ndarray, log_weights: np.ndarray | None) -> SharedMixture:
    """Return the mixture of a block; if all of its components have weight zero, the weights are not used."""
    weights = None if log_weights is None or log_weights.max() == -np.inf else log_weights
    return SharedMixture(rows, one.covariance, weights, one.engine, one.feature_names)


def _scores(
    mixture: SharedMixture, mass: float, engine: Engine, rows: "np.ndarray | SharedMixture", *, own: bool
) -> np.ndarray:
    """Return the logarithm of a block's part of the density of each row; with `own`, each without one component.

    Parameters
    ----------
    mixture : SharedMixture
    mass : float
        The logarithm of the weight of the block.
    engine : Engine
    rows : array of shape (m, D), or the mixture of a block, for its centres
    own : bool
        Whether row i is left out of component i.
    """
    queries = rows.centres if isinstance(rows, SharedMixture) else rows
    if len(queries) == 0:
        return np.empty(0)
    if own and isinstance(rows, SharedMixture):
        found = mass + mixture.log_densities(engine=engine)
    else:
        queries = check_queries(queries, mixture.n_features, mixture.feature_names)
        found = mass + mixture.log_densities(queries, np.arange(len(queries)) if own else None, engine=engine)
    if not _has_room():
        mixture.forget_placement()
    return found


def _centres(mixture: SharedMixture) -> np.ndarray:
    return mixture.centres


def _has_room() -> bool:
    """Return whether this worker has enough memory to keep the placed form of its blocks for the next task."""
    try:
        worker = get_worker()
    except ValueError:
        return True
    limit = worker.memory_manager.memory_limit
    return not limit or worker.monitor.get_process_memory() < _ROOM * limit
