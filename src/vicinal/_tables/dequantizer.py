"""Uniform noise that undoes rounding, so that a density of rounded values is meaningful."""

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from vicinal._checks import as_numbers, check_flag, check_integer, check_random_state
from vicinal._notebook import NotebookMixin
from vicinal._rows import validate_data
from vicinal._tables.column_type import number_type
from vicinal._tensors import as_given

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class Dequantizer(NotebookMixin, OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    r"""Add uniform noise of one step to rounded columns: whole numbers, cents, tenths of a degree.

    A density of values that repeat can be made arbitrarily high by narrower and narrower kernels around them.
    With centred noise :math:`u`, uniform over one step, the density p of :math:`x + u` is bounded by the probability of
    the rounded row:

    .. math:: E_u \log p(x + u) + \sum_j \log s_j \;\le\; \log \int_{\text{cell of } x} p = \log P(x)

    with steps :math:`s_j` of the rounded columns (Theis, van den Oord and Bethge, 2016).
    :func:`vicinal.tables.score_rows` averages over draws of the noise; its value is that bound in expectation over the
    noise.

    Parameters
    ----------
    steps : "auto" or array-like of shape (n_features,), default="auto"
        The step of each column, 0 for columns without noise. "auto" uses the steps of the columns that
        :func:`vicinal.tables.column_types` detects as lattices, but not of continuous columns or columns of two values.
    log : array-like of int, default=()
        The positions of columns that hold logarithms. Their steps are those of the values before the logarithm, where the
        noise is added.
    training_only : bool, default=False
        Whether ``transform`` returns rows without noise, so that a pipeline adds noise only in the fit. This is meant for
        estimators that are densities *and* metrics: LCA is learned from rows with noise, and transforms rows without noise.
    random_state : int, RandomState instance or None, default=0
        Determines the noise.

    Attributes
    ----------
    steps_ : ndarray of shape (n_features,)
        The step of each column; 0 if it is not rounded.
    offsets_ : ndarray of shape (n_features,)
        The rounded values of a column are ``offsets_ + k * steps_`` with whole numbers k, except for a few.
    seed_ : int
        The seed of the noise.
    n_features_in_, feature_names_in_ : int, ndarray of str
        The number of columns of the training rows, and their names if they have names.

    Notes
    -----
    The noise of a row is a function of the seed, of the row's values and of the number of the draw. The result of
    ``transform`` for a row therefore does not depend on the other rows or on their order. ``fit_transform``, for training rows,
    gives equal rows different noise, because otherwise a repeated row would still repeat. NaN stays NaN. Rows of float32 are
    returned as float64 if a column is rounded, because noise added to a large value needs the digits.

    Use it before a density. A metric, and any other search for neighbours, should use rows without noise; see
    `training_only`.

    References
    ----------
    L. Theis, A. van den Oord and M. Bethge, "A note on the evaluation of generative models", ICLR 2016
    (arXiv:1511.01844).

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import Dequantizer
    >>> X = np.random.default_rng(0).poisson(3.0, size=(100, 1)).astype(float)
    >>> dequantizer = Dequantizer()
    >>> Z = dequantizer.fit_transform(X)
    >>> dequantizer.steps_
    array([1.])
    >>> len(np.unique(X)), len(np.unique(Z)), bool(np.all(np.rint(Z) == X))
    (10, 100, True)
    """

    def __init__(
        self, steps: Any = "auto", *, log: Any = (), training_only: bool = False, random_state: Any = 0
    ) -> None:
        self.steps = steps
        self.log = log
        self.training_only = training_only
        self.random_state = random_state

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def fit(self, X: Any, y: Any = None) -> "Dequantizer":
        """Find the steps of the columns.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The training rows.
        y : ignored
            Not used; accepted because pipelines of scikit-learn pass it.

        Returns
        -------
        self
        """
        check_flag(self.training_only, "training_only")
        X = self._rows(X, reset=True)
        self.steps_, self.offsets_ = self._lattices(X)
        self._unrounded_rows, self._unrounded_columns = np.empty((2, 0), dtype=np.int64)
        self._unrounded_values = np.empty(0)
        self._check_log(X.shape[1])
        self.seed_ = int(check_random_state(self.random_state).randint(2**31 - 1))
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Return the rows with noise (draw number 0). With ``training_only``, return them unchanged.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
        """
        if self.training_only:
            check_is_fitted(self)
            return as_given(self._rows(X, reset=False), X)
        return as_given(self.draw(X, 0), X)

    def draw(self, X: Any, number: int) -> np.ndarray:
        """Return the rows with the noise of another draw.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows.
        number : int
            The number of the draw: 0, 1, 2, ...

        Returns
        -------
        ndarray of shape (n_samples, n_features)
        """
        check_is_fitted(self)
        X = self._rows(X, reset=False)
        return self._noisy(X, check_integer(number, "number", least=0), np.zeros(len(X), dtype=np.uint64))

    def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:
        """Find the steps and return the training rows with noise, which differs between equal rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The training rows.
        y : ignored
            Not used; accepted because pipelines of scikit-learn pass it.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
        """
        return self.fit(X).transform_training_rows(X)

    def transform_training_rows(self, X: Any, seen: "EqualRows | None" = None) -> np.ndarray:
        """Return training rows with noise that differs between equal rows, as ``fit_transform`` does.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The training rows, or a block of them.
        seen : EqualRows, optional
            Counts the rows of earlier blocks, if X is a block of the training rows. X is added to it.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
        """
        check_is_fitted(self)
        rows, seen = self._rows(X, reset=False), EqualRows() if seen is None else seen
        self._note_unrounded(rows, seen.n_rows)
        return as_given(self._noisy(rows, 0, seen.positions(rows)), X)

    def training_cells(self, values: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Return training rows with the values that are not rounded like the others of their column, which noise hides.

        Parameters
        ----------
        values : array of shape (m, n_features)
            Some training rows in the units of the table, without noise.
        positions : integer array of shape (m,)
            Their positions among the training rows.

        Returns
        -------
        ndarray of shape (m, n_features)
        """
        values, order = values.copy(), np.argsort(positions)
        chosen = np.isin(self._unrounded_rows, positions)
        places = order[np.searchsorted(positions, self._unrounded_rows[chosen], sorter=order)]
        values[places, self._unrounded_columns[chosen]] = self._unrounded_values[chosen]
        return values

    def _note_unrounded(self, rows: np.ndarray, first: int) -> None:
        """Keep the values off the lattice of their column, for training rows from a position on."""
        if not first:
            self._unrounded_rows, self._unrounded_columns = np.empty((2, 0), dtype=np.int64)
            self._unrounded_values = np.empty(0)
        rounded = (self.steps_ > 0) & ~np.isin(np.arange(rows.shape[1]), self.log)
        steps = np.where(rounded, self.steps_, 1.0)
        nearest = self.offsets_ + steps * np.rint((rows - self.offsets_) / steps)
        off = np.abs(rows - nearest) > 1e-6 * np.abs(nearest)
        found, columns = np.nonzero(off & rounded & ~np.isnan(rows))
        self._unrounded_rows = np.append(self._unrounded_rows, first + found)
        self._unrounded_columns = np.append(self._unrounded_columns, columns)
        self._unrounded_values = np.append(self._unrounded_values, rows[found, columns].astype(np.float64))

    def _rows(self, X: Any, *, reset: bool) -> np.ndarray:
        kinds = [np.float64, np.float32]
        return validate_data(self, X, reset=reset, dtype=kinds, ensure_all_finite="allow-nan")

    def _lattices(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the step and the offset of each column."""
        if isinstance(self.steps, str):
            if self.steps != "auto":
                raise ValueError(f"steps must be 'auto' or one number per column, got {self.steps!r}.")
            kinds = [number_type(column) for column in X.T]
            return np.array([kind.step or 0.0 for kind in kinds]), np.array([kind.offset or 0.0 for kind in kinds])
        steps = as_numbers(self.steps, "steps")
        if steps.shape != (X.shape[1],):
            raise ValueError(
                f"steps must hold one number for each of the {X.shape[1]} columns, got shape {steps.shape}."
            )
        if not np.isfinite(steps).all() or steps.min() < 0:
            raise ValueError("steps must be finite and at least 0 (0 for a column that is not rounded).")
        first = [next(iter(column[np.isfinite(column)]), 0.0) for column in X.T]
        return steps.copy(), np.where(steps > 0, np.mod(first, np.where(steps > 0, steps, 1.0)), 0.0)

    def _check_log(self, n_features: int) -> None:
        try:
            known = set(self.log) <= set(range(n_features))
        except TypeError:
            known = False
        if not known:
            raise ValueError(f"log must hold positions of columns from 0 to {n_features - 1}, got {self.log!r}.")

    def _noisy(self, X: np.ndarray, number: int, twin: np.ndarray) -> np.ndarray:
        # In float32, noise of a fine step would be lost in the rounding of a large value. The dtype must not depend on the
        # rows of a call, because the noise of a row would then depend on the other rows.
        noisy = np.array(X, dtype=np.float64 if self.steps_.any() else X.dtype)
        rows = _mixed(_mixed(_hash_of_rows(X, self.seed_) ^ np.uint64(number)) ^ twin)
        for j in np.flatnonzero(self.steps_):
            bits = _mixed(rows ^ _mixed(np.array(j + 1, dtype=np.uint64)))
            # The midpoints of 2^52 equal parts of (-1/2, 1/2): the ends do not occur, so that rounding removes the noise.
            uniform = ((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52 - 0.5
            noise = self.steps_[j] * uniform
            noisy[:, j] = np.log(np.exp(noisy[:, j]) + noise) if j in self.log else noisy[:, j] + noise
        return noisy


def _mixed(values: Any) -> Any:
    """Return the finaliser of SplitMix64: every bit of the result depends on every bit of the value."""
    with np.errstate(over="ignore"):
        values = np.atleast_1d(np.asarray(values, dtype=np.uint64)) + _GOLDEN
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return values ^ (values >> np.uint64(31))


def _hash_of_rows(X: np.ndarray, seed: int) -> np.ndarray:
    """Return 64 bits per row that depend only on its values; equal rows have equal bits."""
    values = np.where(np.isnan(X), np.nan, X).astype(np.float64) + 0.0  # one NaN, and no negative zero
    found = np.repeat(_mixed(np.uint64(seed)), len(X))
    for bits in np.ascontiguousarray(values.T).view(np.uint64):
        found = _mixed(found ^ bits)
    return found


class EqualRows:
    """Counts equal rows over the blocks of a table."""

    def __init__(self) -> None:
        self._keys, self._counts = np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.uint64)
        self.n_rows = 0

    def positions(self, X: np.ndarray) -> np.ndarray:
        """Return for each row of a block how many equal rows come before it, including those of earlier blocks."""
        keys, row_of, counts = np.unique(_hash_of_rows(X, 0), return_inverse=True, return_counts=True)
        row_of = row_of.reshape(-1)
        order = np.argsort(row_of, kind="stable")
        position = np.empty(len(X), dtype=np.uint64)
        position[order] = np.arange(len(X)) - np.repeat(np.cumsum(counts) - counts, counts)
        position += self._counted(keys)[row_of]
        self.n_rows += len(X)
        everything = np.concatenate([self._keys, keys])
        self._keys, which = np.unique(everything, return_inverse=True)
        total = np.zeros(len(self._keys), dtype=np.uint64)
        np.add.at(total, which.reshape(-1), np.concatenate([self._counts, counts.astype(np.uint64)]))
        self._counts = total
        return position

    def _counted(self, keys: np.ndarray) -> np.ndarray:
        """Return how often rows of some keys were seen before."""
        if not len(self._keys):
            return np.zeros(len(keys), dtype=np.uint64)
        place = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[place] == keys, self._counts[place], np.uint64(0))
