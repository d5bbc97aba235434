"""Mixtures of numbers and levels: a Gaussian with a shared covariance, times a factor for each column of levels."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import block_diag
from scipy.special import logsumexp

from vicinal._categories import COMPARED, NEW, TRAINING, Categories, Category
from vicinal._engine import Engine, Placement, Work, prepare
from vicinal._mixtures.background import Background
from vicinal._mixtures.base import LOG_2PI, Mixture, RandomState
from vicinal._mixtures.features import Feature, feature_positions, known_patterns
from vicinal._mixtures.shared_mixture import SharedMixture


class MixedMixture(Mixture):
    r"""The density :math:`p(x) = \sum_j w_j N(x; x_j, \Sigma) \prod_k \big((1 - l_k) [c_k = c_{jk}] + l_k \pi_k(c_k)\big)`.

    Parameters
    ----------
    centres : array of shape (n, D)
        Codes of rows: numbers as they are, levels as positions among those of their column; NaN for a level that is missing.
    covariance : array of shape (d, d)
        Of the numbers, in their order.
    smoothing : array of shape (q,)
        The share l of levels that are drawn, for each column of levels.
    categories : Categories
    log_weights, engine, feature_names
        As in `SharedMixture`.
    background : Background, optional
        Broad Gaussians of the numbers, with levels that are drawn from the shares.
    """

    def __init__(
        self,
        centres: np.ndarray,
        covariance: np.ndarray,
        smoothing: np.ndarray,
        categories: Categories,
        log_weights: np.ndarray | None = None,
        engine: Engine | str | None = None,
        feature_names: np.ndarray | None = None,
        background: Background | None = None,
    ) -> None:
        super().__init__(centres, log_weights, engine, feature_names)
        self.covariance, self.smoothing, self.categories = covariance, np.asarray(smoothing), categories
        self.background = background
        self._left_out_as = TRAINING
        self._derive()

    def _derive(self) -> None:
        """Make the mixture of the numbers alone; also called when a model file, which does not hold it, has been read."""
        numbers = np.ascontiguousarray(self.centres[:, self.categories.numbers])
        self.of_numbers = SharedMixture(
            numbers, self.covariance, self.log_weights, self.engine, background=self.background
        )

    def compared(self) -> MixedMixture:
        """Return the mixture whose rows, each left out, are scored with the shares and weights of new rows.

        A training row and a new one in the same situation then have the same score, so that ranks count ties as ties.
        """
        other = copy(self)
        other._left_out_as = COMPARED
        return other

    def with_kernel(self, covariance: np.ndarray, smoothing: np.ndarray) -> MixedMixture:
        """Return the mixture of the same components with another kernel."""
        other = copy(self)
        other.covariance, other.smoothing = covariance, smoothing
        other._derive()
        return other

    def with_centres(self, centres: np.ndarray) -> MixedMixture:
        """Return the mixture with other components, of the same weights."""
        other = copy(self)
        other.centres = centres
        other._derive()
        return other

    # -- the engine ------------------------------------------------------------------------------------------------

    @property
    def kernel_units(self) -> np.ndarray:
        """The map to coordinates in standard deviations of the kernels, for the coordinates of `images`."""
        units = self.of_numbers.kernel_units
        n_more = self._n_coordinates + 2
        return np.append(units, np.ones(n_more)) if units.ndim == 1 else block_diag(units, np.eye(n_more))

    @property
    def _n_coordinates(self) -> int:
        return sum(column.n_groups for column in self.categories.columns)

    def _kernel(self) -> np.ndarray:
        units, scales = self.of_numbers.kernel_units, self.categories.scales(self.smoothing)
        return np.append(units, scales) if units.ndim == 1 else block_diag(units, np.diag(scales))

    def _placed(self, work: Work, engine: Engine | str | None) -> Placement:
        problem = prepare(
            engine,
            np.hstack([self.of_numbers.centres, self.categories.indicators(self.centres)]),
            log_weights=self.log_weights + self.categories.point_weights(self.centres, self.smoothing),
            leave_one_out=True,
            n_queries=work.n_queries,
            n_dims=work.n_dims,
            passes=work.passes,
        )
        return problem.at(self._kernel())

    def _work(self, n_queries: int, passes: int) -> Work:
        return Work(n_queries, len(self.centres), self.of_numbers.n_features + self._n_coordinates, passes)

    def _as_placed(self, rows: Any) -> Any:
        return self._asked(rows, NEW)[0]

    def _asked(self, rows: np.ndarray, of: str) -> tuple[np.ndarray, np.ndarray]:
        """Return rows of known levels as queries, and what their log-sums lack."""
        images, lacking = self.categories.queries(rows, self.smoothing, of)
        images /= self.categories.scales(self.smoothing)
        return np.hstack([rows[:, self.categories.numbers], images]), lacking

    @property
    def _log_norm(self) -> float:
        log_det = np.linalg.slogdet(self.covariance)[1]
        return float(-0.5 * (self.of_numbers.n_features * LOG_2PI + log_det))

    def _checked(self, X: Any, *, gaps: bool = False) -> np.ndarray:
        rows = super()._checked(X) if X is None else self.categories.encode(X)
        if not gaps and np.isnan(rows).any():
            raise ValueError("X has missing values, which are not accepted here.")
        return rows

    # -- densities -------------------------------------------------------------------------------------------------

    def log_kernels(
        self,
        rows: np.ndarray | None = None,
        left_out: np.ndarray | None = None,
        *,
        passes: int = 1,
        engine: Engine | str | None = None,
    ) -> np.ndarray:
        """Return the log-density of each row of codes, as `Mixture.log_kernels` does; rows that leave one out are training rows."""
        whole = rows is None
        if rows is None:
            rows, left_out = self.centres, np.arange(len(self.centres))
        if np.isnan(rows).any():  # levels that the centres lack
            scores = np.zeros(len(rows))
            for chosen, known in known_patterns(rows):
                part: Any = self if len(known) == self.n_features else self.marginal(known)
                left_out_here = None if left_out is None else left_out[chosen]
                scores[chosen] = part.log_kernels(
                    np.ascontiguousarray(rows[np.ix_(chosen, known)]), left_out_here, passes=passes, engine=engine
                )
            return scores
        of = NEW if left_out is None else self._left_out_as
        queries, lacking = self._asked(rows, of)
        placed = self.placement(len(rows), passes, engine)
        sums = placed.log_sums() if whole and of == TRAINING else placed.log_sums(queries, left_out)
        return sums + lacking + self._log_norm

    @property
    def _log_others(self) -> np.ndarray:
        """The logarithm of the weight that remains for each row that is left out."""
        return np.zeros(len(self.centres)) if self._left_out_as == COMPARED else super()._log_others

    def broad_log_densities(self, rows: np.ndarray, left_out: np.ndarray | None = None) -> np.ndarray:
        """Return the log-density of each row of codes under the broad Gaussians and the shares of the levels, shape (m, K)."""
        assert self.background is not None
        weights = None if left_out is None else np.exp(self.log_weights[left_out])
        of_numbers = self.background.log_densities(rows[:, self.categories.numbers], self.covariance, weights)
        return of_numbers + self.broad_log_factors(rows, left_out).sum(axis=0)[:, None]

    def broad_log_factors(self, rows: np.ndarray, left_out: np.ndarray | None = None) -> np.ndarray:
        """Return the logarithm of the share of each level of rows of codes, shape (q, m): the factors of a column that is drawn."""
        of, one = NEW if left_out is None else self._left_out_as, np.zeros(1)
        factors = [
            self.categories.log_factors(k, rows[:, column.position], one, 1.0, of)[:, 0]
            for k, column in enumerate(self.categories.columns)
        ]
        return np.array(factors)

    def log_factors(self, rows: np.ndarray, left_out: np.ndarray | None = None) -> np.ndarray:
        """Return the logarithm of each column's factor for rows of codes and the components, shape (q, m, n)."""
        of = NEW if left_out is None else self._left_out_as
        factors = [
            self.categories.log_factors(k, rows[:, column.position], self.centres[:, column.position], l, of)
            for k, (column, l) in enumerate(zip(self.categories.columns, self.smoothing, strict=True))
        ]
        return np.array(factors)

    def level_probabilities(self, rows: np.ndarray, k: int, left_out: np.ndarray | None = None) -> np.ndarray:
        """Return the probability of each level of the k-th column of levels given the other known columns, shape (m, K + 1).

        The last cell is that of all levels that the training rows lack.

        Parameters
        ----------
        rows : array of shape (m, D)
            Codes; NaN where a value is missing. Those of the column itself do not matter.
        k : int
        left_out : integer array of shape (m,), optional
            The component that is left out for each row.
        """
        column = self.categories.columns[k]
        shown = self.indicators_of(column)
        rest = np.array(rows, dtype=np.float64)
        rest[:, column.position] = np.nan
        masses = np.empty((len(rows), column.n_groups))
        known_of = np.isnan(rest)
        for pattern in np.unique(known_of, axis=0):
            chosen, known = np.flatnonzero((known_of == pattern).all(axis=1)), np.flatnonzero(~pattern)
            left_out_here = None if left_out is None else left_out[chosen]
            masses[chosen] = self._group_masses(rest[np.ix_(chosen, known)], known, shown, left_out_here)
        return self.shares_given(k, masses, left_out)

    def level_shares(self, position: int, weights: np.ndarray, left_out: np.ndarray | None) -> np.ndarray:
        """Return the probability of each level of the column at a position from the weights (m, n) of the components, as `level_probabilities` does."""
        k = int(np.searchsorted(self.categories.positions, position))
        return self.shares_given(k, weights @ self.indicators_of(self.categories.columns[k]), left_out)

    def indicators_of(self, column: Category) -> np.ndarray:
        """Return which coordinate of a column each component has, shape (n, coordinates)."""
        return self.categories._replace(columns=(column,)).indicators(self.centres)

    def shares_given(self, k: int, masses: np.ndarray, left_out: np.ndarray | None) -> np.ndarray:
        """Return the probability of each level of the k-th column of levels from the weights of the components at each coordinate, shape (m, K + 1)."""
        column, l = self.categories.columns[k], float(self.smoothing[k])
        counts = np.tile(np.append(column.counts, 1.0), (len(masses), 1))
        if left_out is not None:  # without the row, of mean weight among those of its level
            own_codes = self.centres[left_out, column.position]
            chosen = np.flatnonzero(own_codes < len(column.levels))
            code = own_codes[chosen].astype(int)
            counts[chosen, code] = np.maximum(counts[chosen, code] * (1.0 - 1.0 / column.rows[code]), 1.0)
        pooled = counts[:, :-1] @ np.eye(column.n_groups)[column.group]
        having = masses.sum(axis=1, keepdims=True)
        probabilities = (l * having + (1.0 - having)) * counts / counts.sum(axis=1, keepdims=True)
        probabilities[:, :-1] += (1.0 - l) * (masses / pooled)[:, column.group] * counts[:, :-1]
        return probabilities / probabilities.sum(axis=1, keepdims=True)

    def _group_masses(
        self, rows: np.ndarray, known: np.ndarray, shown: np.ndarray, left_out: np.ndarray | None
    ) -> np.ndarray:
        """Return the weights of the components at each level, given known columns of rows."""
        weights = np.exp(self.log_weights)
        if len(known):
            part: Any = self.marginal(known)
            mixed = isinstance(part, MixedMixture)
            of = NEW if left_out is None else self._left_out_as
            queries, lacking = part._asked(rows, of) if mixed else (rows, 0.0)
            log_sums, masses = part.placement(len(rows)).softmax_means(shown, queries, left_out)
            if self.background is None:
                return masses
            kernels = log_sums + lacking + part._log_norm
            if left_out is not None:
                kernels = kernels - part._log_others[left_out]
            share = kernels + self.background.log_shares[0] - part._beside(kernels, rows, left_out)
            return masses * np.exp(share)[:, None]
        if left_out is None:
            masses = np.broadcast_to(weights @ shown, (len(rows), shown.shape[1]))
        else:
            masses = ((weights @ shown) - weights[left_out, None] * shown[left_out]) / (1.0 - weights[left_out, None])
        return masses if self.background is None else masses * np.exp(self.background.log_shares[0])

    # -- images, whose distances are kernels -----------------------------------------------------------------------

    def point_images(self) -> np.ndarray:
        """Return the components in coordinates in which `kernel_units` and distances from `query_images` give their kernels."""
        weights = self.categories.point_weights(self.centres, self.smoothing)
        scaled = self.categories.indicators(self.centres) * self.categories.scales(self.smoothing)
        apart = np.sqrt(2.0 * np.maximum(weights.max() - weights, 0.0))
        return np.column_stack([self.of_numbers.centres, scaled, apart, np.zeros(len(scaled))])

    def query_images(self, rows: np.ndarray, *, left_out: bool = False) -> np.ndarray:
        """Return rows of codes in these coordinates: minus half the squared distance is the log-kernel, up to a constant."""
        images, lacking = self.categories.queries(rows, self.smoothing, COMPARED if left_out else NEW)
        most = sum(
            max(0.0, self._most_lacking(column, float(l)))
            for column, l in zip(self.categories.columns, self.smoothing, strict=True)
        )
        apart = np.sqrt(2.0 * np.maximum(most - lacking, 0.0))
        return np.column_stack([rows[:, self.categories.numbers], images, np.zeros(len(rows)), apart])

    def _most_lacking(self, column: Any, l: float) -> float:
        codes = np.arange(len(column.levels) + 1.0)
        one = Categories((column._replace(position=0),), 1, None)
        return max(one.queries(codes[:, None], np.array([l]), of)[1].max() for of in (NEW, COMPARED))

    # -- other densities and rows ----------------------------------------------------------------------------------

    def sample(self, n_samples: int = 1, random_state: RandomState = None) -> Any:
        """Draw rows from the density, as a table like that of the training rows."""
        return self.categories.decode(self.sample_codes(n_samples, random_state))

    def sample_codes(self, n_samples: int, random_state: RandomState) -> np.ndarray:
        """Draw rows of codes."""
        return super().sample(n_samples, random_state)

    def _draw(self, chosen: np.ndarray, rng: np.random.RandomState) -> np.ndarray:
        rows = self.centres[chosen].copy()
        rows[:, self.categories.numbers] = self.of_numbers._draw(chosen, rng)
        for k, column in enumerate(self.categories.columns):
            rows[:, column.position] = self.draw_levels(k, rows[:, column.position], rng)
        return rows

    def draw_levels(self, k: int, codes: np.ndarray, rng: Any) -> np.ndarray:
        """Return levels of the k-th column of levels that are drawn from components with these levels."""
        column, l = self.categories.columns[k], self.smoothing[k]
        share = column.counts / column.counts.sum()
        drawn = rng.choice(len(share), size=len(codes), p=share).astype(np.float64)
        copied = (rng.uniform(size=len(codes)) >= l) & (codes < len(share))
        groups = column.group[np.where(copied, codes, 0).astype(int)]
        for group in np.unique(groups[copied]):  # a rare level stands for all that share its coordinate
            members = np.flatnonzero(column.group == group)
            chosen = np.flatnonzero(copied & (groups == group))
            p = share[members] / share[members].sum()
            drawn[chosen] = members[rng.choice(len(members), size=len(chosen), p=p)]
        return drawn

    def conditional(self, given: Mapping[Feature, Any]) -> Mixture:
        """Return the density of the other columns given the values of some, numbers or levels, exactly."""
        if isinstance(given, dict):
            columns = {column.position: column for column in self.categories.columns}
            places = feature_positions(list(given), self.n_features, self.feature_names) if given else np.array([])
            given = {
                feature: columns[int(k)].code(value) if int(k) in columns else value
                for (feature, value), k in zip(given.items(), places, strict=True)
            }
        return super().conditional(given)

    def _draw_broad(self, chosen: np.ndarray, rng: np.random.RandomState) -> np.ndarray:
        assert self.background is not None
        rows = np.empty((len(chosen), self.n_features))
        rows[:, self.categories.numbers] = self.background.drawn(chosen, self.covariance, rng)
        for column in self.categories.columns:
            share = column.counts / column.counts.sum()
            rows[:, column.position] = rng.choice(len(share), size=len(chosen), p=share)
        return rows

    def _marginal(self, kept: np.ndarray, names: np.ndarray | None) -> Mixture:
        numbers = self._numbers_of(kept)
        covariance = self.covariance[np.ix_(numbers, numbers)]
        background = None if self.background is None else self.background.of_columns(numbers)
        return self._of_columns(kept, names, self.centres, covariance, self.log_weights, background)

    def _conditional(
        self, fixed: np.ndarray, values: np.ndarray, rest: np.ndarray, names: np.ndarray | None
    ) -> Mixture:
        numbers, centres, part = self.categories.numbers, self.centres.copy(), self.of_numbers
        codes = np.full(self.n_features, np.nan)
        codes[fixed] = values
        given = np.isin(numbers, fixed)
        if given.any():
            free = np.flatnonzero(~given)
            part = part._conditional(np.flatnonzero(given), codes[numbers[given]], free, None)
            centres[:, numbers[free]] = part.centres
        log_weights, background = part.log_weights + self.log_factors(codes[None]).sum(axis=(0, 1)), part.background
        if background is not None:
            broad = np.full(len(background.widths), self.broad_log_factors(codes[None]).sum())
            background = background.reweighted(float(logsumexp(log_weights)), broad)
        return self._of_columns(rest, names, centres, part.covariance, log_weights, background)

    def _numbers_of(self, kept: np.ndarray) -> np.ndarray:
        """Return the places of some columns among the numbers, without those of levels."""
        return np.searchsorted(self.categories.numbers, kept[np.isin(kept, self.categories.numbers)])

    def _of_columns(
        self,
        kept: np.ndarray,
        names: np.ndarray | None,
        centres: np.ndarray,
        covariance: np.ndarray,
        log_weights: Any,
        background: Background | None,
    ) -> Mixture:
        """Return the mixture of some columns, in their order, from the covariance and the background of their numbers."""
        categories, centres = self.categories.of_columns(kept), np.ascontiguousarray(centres[:, kept])
        options = log_weights, self.engine, names, background
        if not categories.columns:
            return SharedMixture(centres, covariance, *options)
        l_of = {column.position: l for column, l in zip(self.categories.columns, self.smoothing, strict=True)}
        smoothing = np.array([l_of[int(kept[column.position])] for column in categories.columns])
        part = MixedMixture(centres, covariance, smoothing, categories, *options)
        part._left_out_as = self._left_out_as
        return part

    def some(self, positions: np.ndarray) -> MixedMixture:
        """Return the mixture of the components at some positions; the shares of the levels stay."""
        part = copy(self)
        part.centres, weights = self.centres[positions], self.log_weights[positions]
        part.log_weights = weights - logsumexp(weights)
        part._derive()
        return part

    def only(self, is_remaining: np.ndarray) -> Mixture:
        """Return the mixture of some components, which keep their positions: the others have weight 0."""
        rest: Any = super().only(is_remaining)
        if self.background is not None:
            rest.background = self.background.of_rows(self.of_numbers.centres, rest.log_weights)
        rest._derive()
        return rest

    def mean_shift(self, X: np.ndarray, placed: Placement | None = None) -> np.ndarray:
        """Raise an error: levels have no direction uphill."""
        raise TypeError(
            "modes and mean shift need numbers, but this density has columns of levels. Take the marginal of the numbers, or "
            "fit vicinal.LCA to the numbers alone."
        )

    def check_reach(self, rows: np.ndarray) -> None:
        """Raise an error for numbers whose distances from the components cannot be computed."""
        self.of_numbers.check_reach(rows[:, self.categories.numbers])

    def in_kernel_units(self, rows: ArrayLike) -> np.ndarray:
        """Return rows in the coordinates of `query_images`, in standard deviations of the kernels."""
        units, images = self.kernel_units, self.query_images(self._checked(rows))
        return images * units if units.ndim == 1 else images @ units.T
