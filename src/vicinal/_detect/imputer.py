"""Imputation of missing values from a density: the conditional means and draws of missing entries (`Filling`), and the estimator."""

import math
import warnings
from collections.abc import Iterator
from copy import copy
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin, clone
from sklearn.utils import Tags, get_tags
from sklearn.utils.validation import check_is_fitted

from vicinal._categories import NEW, TRAINING, Categories, Category
from vicinal._checks import check_flag, check_integer, check_random_state
from vicinal._density.mixed import MixedColumnsMixin, MixedTable
from vicinal._lca.lca import LCA
from vicinal._leave_one_out import Conditional, LevelsOfRows, check_columns_known, conditionals
from vicinal._mixtures import SharedMixture
from vicinal._notebook import NotebookMixin
from vicinal._rows import TrainingRows, check_rows, is_frame
from vicinal._rows.dask import answers_collections
from vicinal._tensors import as_given

# The default penalty, as a share of the covariance of the data. It keeps the kernel wide and correlated enough for few rows
# with gaps. This is a heuristic, chosen on samples of five of the six sets of benchmarks/imputation.py.
_SHARE = 0.4
# The spread of draws is measured on known entries that are hidden: a tenth of them, within these limits, in rounds until there
# are enough of them.
_HIDDEN, _CALIBRATED_ON, _FEWEST_CALIBRATED = 0.1, 500, 20
_ENOUGH_CALIBRATED, _MOST_ROUNDS = 100, 3
_CALIBRATION_DRAWS = 99
# With fewer rows per column, the kernel itself depends on single entries and is fitted again without the hidden ones.
_ROWS_PER_COLUMN = 20
_SILENT = {"verbose": 0, "callback": None}
_SCALES = (0.2, 5.0)


# How often the gaps of all rows are filled in again after some entries were hidden.
_PASSES = 2
# Components with a smaller share are ignored when the component of a draw is chosen.
_LEAST_SHARE = 1e-9


class Filling:
    """Missing entries of rows under a density, in the units of the rows that it was fitted to.

    Numbers are filled in with their conditional means or with draws, and levels with the likeliest one or with draws. Rows with columns
    of levels are codes.

    Parameters
    ----------
    density : estimator
        Fitted :class:`LCA`, :class:`LCAGauss` or :class:`ParzenWindows`.
    """

    def __init__(self, density: Any) -> None:
        self._density, self._mixture = density, density.mixture_
        self._seen = density.active_features_  # a density that was fitted to complete rows ignores constant columns
        self._categories = getattr(self._mixture, "categories", Categories((), len(self._seen), None))
        self._numbers = self._categories.numbers

    def hiding(self, rows: np.ndarray) -> "Filling":
        """Return the same kernel with centres that are computed again from training rows in which further entries are hidden.

        A fit fills in the gaps of all rows from each other, so a known entry affects the centres of other rows as well, and it
        would be predicted too well if only the entry itself were hidden.

        Parameters
        ----------
        rows : array of shape (n, d)
            All training rows, in their order.
        """
        filling, filled = copy(self), self.means(rows, np.arange(len(rows)))
        for _ in range(_PASSES):
            if self._categories.columns:
                centres = np.array(rows[:, self._seen])
                centres[:, self._numbers] = filled[:, self._seen[self._numbers]]
                filling._mixture = self._mixture.with_centres(centres)
            else:
                centres = self._density._centres_of(filled[:, self._seen])
                filling._mixture = SharedMixture(centres, self._mixture.covariance, self._mixture.log_weights)
            filled = filling.means(rows, np.arange(len(rows)))
        return filling

    @property
    def constant(self) -> np.ndarray:
        """Which columns have only one value, or are levels, which have no spread."""
        is_constant = np.ones(self._density.n_features_in_, dtype=bool)
        is_constant[self._seen[self._numbers]] = np.ptp(self._mixture.centres[:, self._numbers], axis=0) == 0
        return is_constant

    def means(self, rows: np.ndarray, left_out: np.ndarray | None) -> np.ndarray:
        """Return the rows with their missing entries replaced by conditional means, and by the likeliest levels.

        Parameters
        ----------
        rows : array of shape (m, d)
        left_out : array of shape (m,) or None
            The centre that is left out for each row.
        """
        filled, rows = self._with_constants(rows), rows[:, self._seen]
        for part in self._parts(rows, left_out):
            means, masses = self._means_of(part, rows, left_out)
            filled[np.ix_(part.positions, self._seen[self._numbers[part.missing]])] = means
            left_out_here = None if left_out is None else left_out[part.positions]
            for k, _ in self._missing_levels(part, rows):
                shares = self._mixture.shares_given(k, masses[k], left_out_here)[:, :-1]
                filled[part.positions, self._seen[self._categories.columns[k].position]] = shares.argmax(axis=1)
        return filled

    def _with_constants(self, rows: np.ndarray) -> np.ndarray:
        """Return a copy of rows whose missing entries in columns of one value are that value."""
        filled = np.array(rows)
        if len(self._seen) < rows.shape[1]:
            others = np.setdiff1d(np.arange(rows.shape[1]), self._seen)
            filled[:, others] = np.where(np.isnan(rows[:, others]), self._density.constant_values_, rows[:, others])
        return filled

    def draws(
        self, rows: np.ndarray, left_out: np.ndarray | None, n_draws: int, random: Any, scale: float
    ) -> np.ndarray:
        """Return the rows with their missing entries drawn, of shape (n_draws, m, d).

        Parameters
        ----------
        scale : float
            The factor by which the deviations of draws from the conditional mean are multiplied.
        """
        filled = np.repeat(self._with_constants(rows)[None], n_draws, axis=0)
        is_constant = self.constant[self._seen[self._numbers]]
        factors = np.where(is_constant, 0.0, scale)  # a constant column has no spread to draw from
        rows = rows[:, self._seen]
        for part in self._parts(rows, left_out):
            m, missing_levels = part.missing, self._missing_levels(part, rows)
            lower = np.linalg.cholesky(part.rest + 1e-12 * np.trace(part.rest) * np.eye(len(m)))
            means = dict(zip(part.positions.tolist(), self._means_of(part, rows, left_out)[0], strict=True))
            for i, chosen in self._components(part, rows, left_out, n_draws, random):
                noise = random.standard_normal((n_draws, len(m))) @ lower.T
                known = rows[i, self._numbers[part.known]] @ part.gain.T if len(part.known) else 0.0
                away = part.residuals[chosen] + known + noise - means[i]
                filled[:, i, self._seen[self._numbers[m]]] = means[i] + factors[m] * away
                for k, column in missing_levels:
                    levels = self._mixture.centres[chosen, column.position]
                    filled[:, i, self._seen[column.position]] = self._mixture.draw_levels(k, levels, random)
        return filled

    def _parts(self, rows: np.ndarray, left_out: np.ndarray | None) -> Iterator[Conditional]:
        """Return the conditional distribution of the missing entries, for each pattern with missing entries."""
        weights = None if np.ptp(self._mixture.log_weights) == 0 else self._mixture.log_weights
        centres, levels = self._mixture.centres.astype(np.float64), self._levels(rows, left_out)
        numbers, centres = rows[:, self._numbers], centres[:, self._numbers]
        covariance, engine = self._mixture.covariance, self._density.engine
        for part in conditionals(numbers, centres, covariance, weights, engine, levels):
            if len(part.missing) or self._missing_levels(part, rows):
                yield part

    def _levels(self, rows: np.ndarray, left_out: np.ndarray | None) -> LevelsOfRows | None:
        """Return the levels of rows and components; None if all columns are numbers."""
        if not self._categories.columns:
            return None
        shares = NEW if left_out is None else TRAINING
        return LevelsOfRows(self._categories, rows, self._mixture.centres, self._mixture.smoothing, shares)

    def _missing_levels(self, part: Conditional, rows: np.ndarray) -> list[tuple[int, Category]]:
        """Return the columns of levels that the rows of a pattern lack, with their places among those columns."""
        columns = enumerate(self._categories.columns)
        return [(k, column) for k, column in columns if np.isnan(rows[part.positions[0], column.position])]

    def _asked(self, part: Conditional, rows: np.ndarray, left_out: np.ndarray | None) -> np.ndarray:
        """Return the rows of a pattern as its placement takes them."""
        numbers = np.nan_to_num(rows[np.ix_(part.positions, self._numbers)])
        levels = self._levels(rows, left_out)
        return numbers if levels is None else levels.queries(numbers, part.positions)[0]

    def _means_of(
        self, part: Conditional, rows: np.ndarray, left_out: np.ndarray | None
    ) -> tuple[np.ndarray, dict[int, np.ndarray]]:
        """Return the conditional means of the missing numbers of the rows of a pattern, and the weights of components at each missing level."""
        positions, missing_levels = part.positions, self._missing_levels(part, rows)
        shown = [self._mixture.indicators_of(column) for _, column in missing_levels]
        values, left_out_here = np.hstack([part.residuals, *shown]), None if left_out is None else left_out[positions]
        if part.placed is None:
            weights = np.exp(self._mixture.log_weights)
            means = np.repeat((weights @ values / weights.sum())[None], len(positions), axis=0)
        else:
            means = part.placed.softmax_means(values, self._asked(part, rows, left_out), left_out_here).means
        ends = np.cumsum([part.residuals.shape[1], *(table.shape[1] for table in shown)])[:-1]
        of_numbers, *of_levels = np.split(means, ends, axis=1)
        of_numbers = of_numbers + rows[np.ix_(positions, self._numbers[part.known])] @ part.gain.T
        return of_numbers, {k: masses for (k, _), masses in zip(missing_levels, of_levels, strict=True)}

    def _components(
        self, part: Conditional, rows: np.ndarray, left_out: np.ndarray | None, n_draws: int, random: Any
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Return for each row of a pattern the components from which its values are drawn."""
        if part.placed is None:
            weights = np.exp(self._mixture.log_weights)
            for i in part.positions:
                yield i, random.choice(len(weights), size=n_draws, p=weights / weights.sum())
            return
        left_out_here = None if left_out is None else left_out[part.positions]
        for query, point, shares in part.placed.neighbors_above(
            _LEAST_SHARE, self._asked(part, rows, left_out), left_out_here
        ):
            for group in np.split(np.arange(len(query)), np.flatnonzero(np.diff(query)) + 1):
                p = shares[group] / shares[group].sum()
                yield part.positions[query[group[0]]], point[random.choice(group, size=n_draws, p=p)]


# -- the estimator -------------------------------------------------------------------------------------


class DensityImputer(NotebookMixin, OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    r"""Fill in missing values from a density of the rows, with their conditional mean or with draws.

    Given the known entries o of a row, the missing ones m have under :math:`\sum_j w_j N(x; c_j, \Sigma)` the mixture

    .. math::

        p(x_m | x_o) = \sum_j \lambda_j \, N(x_m; c_{j,m} + G (x_o - c_{j,o}), \Sigma_{m|o}), \qquad
        \lambda_j \propto w_j N(x_o; c_{j,o}, \Sigma_{oo}), \quad G = \Sigma_{mo} \Sigma_{oo}^{-1}

    Categories of a DataFrame have their exact conditional probabilities given the known values: the likeliest level is filled in, or a
    draw. This is a local regression that also estimates its error. The mean is the best single guess. Draws preserve the spread of the
    data, which matters for statistics that are computed from the filled table.

    Parameters
    ----------
    density : estimator, default=None
        :class:`LCA`, :class:`LCAGauss` or :class:`ParzenWindows`, which can be fitted to rows with missing values. It is
        fitted to standardised columns. None is an LCA whose penalty is 0.4 times
        the covariance of the data instead of a multiple of the identity: :math:`\Sigma \leftarrow S + 0.4 C`.
    sample : bool, default=False
        Whether to fill in a draw from the conditional density instead of its mean.
    random_state : int, RandomState instance or None, default=None
        Used for draws.

    Attributes
    ----------
    density_ : estimator
        The density, fitted to the rows in standardised columns.
    mean_, scale_ : ndarrays of shape (n_features,)
        The mean and standard deviation of the known values of each column.
    draw_scale_ : float
        The factor by which the deviations of draws from the conditional mean are multiplied; see Notes.
    n_features_in_, feature_names_in_ : int, ndarray of str
        The number of columns of the training rows, and their names if they have names.

    Notes
    -----
    ``fit_transform`` fills in a training row from the *other* rows. ``transform`` treats rows as new: for a training
    row, which is one of the centres itself, it would repeat the values found by the fit.

    The default is conservative: its kernel stays wide, which suits few rows and nearly linear relations. If many rows
    follow a curve, ``density=LCA(reg=1e-3)`` follows it more closely.

    A mixture is wider than the data by the kernel's own covariance, and so are its draws. To calibrate them, a tenth of the
    known entries (at most 500) is hidden, the gaps of all rows are filled in without them, and the hidden entries are drawn
    from the rest. The deviations of draws from the conditional mean are then multiplied by the factor ``draw_scale_`` with
    which 90 % of the hidden entries lie within the central 90 % of their draws. With fewer than 20 rows per column, the density
    is fitted again without the hidden entries.

    The cost of a pass grows with the number of patterns of missing values times the number of rows.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import LCA, DensityImputer
    >>> rng = np.random.default_rng(0)
    >>> t = rng.uniform(-2, 2, size=300)
    >>> X = np.column_stack([t, t**2]) + 0.05 * rng.normal(size=(300, 2))
    >>> X[::3, 1] = np.nan
    >>> imputer = DensityImputer(LCA(reg=1e-3)).fit(X)
    >>> imputer.transform([[1.5, np.nan]]).round(1)
    array([[1.5, 2.3]])
    >>> draws = imputer.draw([[1.5, np.nan]], n_draws=100, random_state=0)
    >>> draws.shape
    (100, 1, 2)
    """

    keeps_columns: ClassVar[bool] = True  # known values are not changed, so later steps use the same columns

    def __init__(self, density: Any = None, *, sample: bool = False, random_state: Any = None) -> None:
        self.density = density
        self.sample = sample
        self.random_state = random_state

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def fit(self, X: Any, y: Any = None) -> "DensityImputer":
        """Fit the density to the rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows. NaN marks a missing value, and None one of a category. The columns of a DataFrame that are categories, text or truth
            values are levels for :class:`LCA` and :class:`ParzenWindows`.
        y : ignored
            Not used; accepted because pipelines of scikit-learn pass it.

        Returns
        -------
        self
        """
        check_flag(self.sample, "sample")
        check_random_state(self.random_state)
        density = self._inner_estimator()
        if not isinstance(density, BaseEstimator) or not get_tags(density).input_tags.allow_nan:
            raise TypeError(
                f"density must be LCA, LCAGauss or ParzenWindows, which can be fitted to rows with missing values, got "
                f"{type(density).__name__}."
            )
        table = clone(density)._open_table(X, None) if isinstance(density, MixedColumnsMixin) else None
        known = (
            check_rows(self, X, reset=True, min_rows=2, gaps=True).astype(np.float64) if table is None else table.codes
        )
        numbers = np.arange(known.shape[1]) if table is None else table.categories.numbers
        if table is not None:
            self._take_columns_of(table.categories)
        names = getattr(self, "feature_names_in_", None)
        check_columns_known(known[:, numbers], None if names is None else names[numbers])
        self.mean_, self.scale_ = np.zeros(known.shape[1]), np.ones(known.shape[1])
        spread = np.nanstd(known[:, numbers], axis=0)
        self.mean_[numbers], self.scale_[numbers] = (
            np.nanmean(known[:, numbers], axis=0),
            np.where(spread > 0, spread, 1.0),
        )
        known = (known - self.mean_) / self.scale_
        categories = None if table is None else table.categories
        self.density_ = self._fitted(density, known, categories)
        self.draw_scale_ = self._calibrated_scale(known, categories)
        return self

    def _take_columns_of(self, categories: Categories) -> None:
        """Store the number and the names of the columns of a table with levels."""
        self.n_features_in_ = categories.n_features
        self.__dict__.pop("feature_names_in_", None)
        if categories.names is not None:
            self.feature_names_in_ = np.asarray(categories.names, dtype=object)

    def _fitted(self, density: Any, rows: np.ndarray, categories: Categories | None) -> Any:
        """Return a density, fitted to rows in standardised columns."""
        given: Any = rows
        density, table = clone(density), None
        if categories is not None:
            given = table = MixedTable(np.ascontiguousarray(rows[:, categories.numbers]), None, categories, rows)
        if self.density is not None:
            return density.fit(given)
        density._auto_share = _SHARE
        density.fit(TrainingRows(rows if table is None else table.numbers, None, None, incomplete=True, levels=table))
        del density._auto_share
        return density

    def _calibrated_scale(self, rows: np.ndarray, categories: Categories | None) -> float:
        """Return the factor of draws with which 90 % of the hidden entries lie within the central 90 % of their draws."""
        whole, ratios = Filling(self.density_), []
        for hidden_rows, hidden_columns in hidden_entries(~np.isnan(rows) & ~whole.constant):
            holed = rows.copy()
            holed[hidden_rows, hidden_columns] = np.nan
            again = self._fitted_again(holed, categories) if len(rows) < _ROWS_PER_COLUMN * rows.shape[1] else None
            filling, at = again or whole.hiding(holed), np.arange(len(hidden_rows))
            means = filling.means(holed[hidden_rows], hidden_rows)[at, hidden_columns]
            draws = filling.draws(holed[hidden_rows], hidden_rows, _CALIBRATION_DRAWS, np.random.RandomState(0), 1.0)
            low, high = np.quantile(draws[:, at, hidden_columns], (0.05, 0.95), axis=0)
            away = rows[hidden_rows, hidden_columns] - means
            ratios.append(np.abs(away) / np.maximum(np.where(away > 0, high - means, means - low), 1e-12))
        return scale_that_covers(np.concatenate(ratios)) if ratios else 1.0

    def _fitted_again(self, rows: np.ndarray, categories: Categories | None) -> Filling | None:
        """Return the density of training rows with further entries hidden; None if it cannot be fitted."""
        density = clone(self._inner_estimator())
        density.set_params(**{name: value for name, value in _SILENT.items() if name in density.get_params(deep=False)})
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return Filling(self._fitted(density, rows, categories))
        except (ValueError, np.linalg.LinAlgError):
            return None

    def _inner_estimator(self) -> Any:
        """Return the density that is fitted, for `which_engine`."""
        return LCA() if self.density is None else self.density

    def transform(self, X: Any) -> Any:
        """Return rows with their missing values filled in.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows to fill in. NaN marks a missing value.

        Returns
        -------
        ndarray of shape (n_samples, n_features), or a DataFrame like X if some columns are levels
            A lazy Dask array when X is a Dask collection, unless values are drawn (`sample`): draws are in memory.
        """
        if not self.sample:
            return self._filled_with_means(X)
        return self._as_passed(self._draws(self._rows(X), None, 1, self.random_state)[0], X)

    @answers_collections(lambda self: self.n_features_in_)
    def _filled_with_means(self, X: Any) -> Any:
        return self._as_passed(self._means(self._rows(X), None), X)

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Fit the density and return the rows, each filled in from the others.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The training rows. NaN marks a missing value.
        y : ignored
            Not used; accepted because pipelines of scikit-learn pass it.

        Returns
        -------
        ndarray of shape (n_samples, n_features), or a DataFrame like X if some columns are levels
        """
        rows = self.fit(X)._rows(X)
        left_out = np.arange(len(rows))
        filled = self._draws(rows, left_out, 1, self.random_state)[0] if self.sample else self._means(rows, left_out)
        return self._as_passed(filled, X)

    def draw(self, X: Any, n_draws: int = 1, random_state: Any = None, *, training: bool = False) -> Any:
        """Return several imputations, which are independent draws of the missing values.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows. NaN marks a missing value.
        n_draws : int, default=1
            The number of imputations.
        random_state : int, RandomState instance or None, default=None
            The seed of the random numbers.
        training : bool, default=False
            Whether X contains the rows of ``fit`` in the same order. Each row is then filled in from the others.

        Returns
        -------
        ndarray of shape (n_draws, n_samples, n_features), or a list of DataFrames like X if some columns are levels
        """
        check_integer(n_draws, "n_draws")
        rows = self._rows(X)
        n = len(self.density_.mixture_.centres)
        if check_flag(training, "training") and len(rows) != n:
            raise ValueError(f"training=True needs the {n} rows of fit, got {len(rows)}.")
        draws = self._draws(rows, np.arange(n) if training else None, n_draws, random_state)
        return draws if self._categories is None else [self._as_passed(filled, X) for filled in draws]

    @property
    def _categories(self) -> Categories | None:
        """The columns of levels; None if all columns are numbers."""
        return getattr(self.density_, "_categories", None)

    def _rows(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return check_rows(self, X, reset=False, gaps=True) if self._categories is None else self.density_._codes(X)

    def _as_passed(self, filled: np.ndarray, X: Any) -> Any:
        """Return filled rows like those that were passed: codes remain codes, and a DataFrame keeps its index and its known values."""
        categories = self._categories
        if categories is None:
            return as_given(filled, X)
        if not is_frame(X):
            coded = all(column.kind == "code" for column in categories.columns)
            return filled if coded else categories.decode(filled)
        found, table = X.copy(), categories.decode(filled)
        for k, missing in enumerate(X.isna().to_numpy().T):
            if missing.any():
                values = table.iloc[:, k].set_axis(X.index)
                found.isetitem(k, values if missing.all() else X.iloc[:, k].where(~missing, values))
        return found

    def _scaled(self, rows: np.ndarray) -> np.ndarray:
        return (rows.astype(np.float64) - self.mean_) / self.scale_

    def _in_units(self, filled: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Return rows from the units of the density in those of X; known entries are not changed."""
        return np.where(np.isnan(X), filled * self.scale_ + self.mean_, X).astype(X.dtype, copy=False)

    def _means(self, X: np.ndarray, left_out: np.ndarray | None) -> np.ndarray:
        return self._in_units(Filling(self.density_).means(self._scaled(X), left_out), X)

    def _draws(self, X: np.ndarray, left_out: np.ndarray | None, n_draws: int, random_state: Any) -> np.ndarray:
        scale = getattr(self, "draw_scale_", 1.0)  # older files do not have it
        random = check_random_state(random_state)
        return self._in_units(Filling(self.density_).draws(self._scaled(X), left_out, n_draws, random, scale), X)


def hidden_entries(known: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield rows and columns of known entries to hide, in rounds, each row at most once per round; nothing if there are too few.

    Parameters
    ----------
    known : bool array of shape (n, d)
    """
    random = np.random.RandomState(0)
    able = np.flatnonzero(known.sum(axis=1) > 1)
    count = min(len(able), _CALIBRATED_ON, max(_FEWEST_CALIBRATED, int(_HIDDEN * known.sum())))
    if count < _FEWEST_CALIBRATED:
        return
    for _ in range(min(-(-_ENOUGH_CALIBRATED // count), _MOST_ROUNDS)):
        rows = np.sort(random.permutation(able)[:count])
        yield rows, np.array([random.choice(np.flatnonzero(known[i])) for i in rows])


def scale_that_covers(ratios: np.ndarray) -> float:
    """Return the factor by which intervals have to grow so that 90 % of the values, and of one more, lie within.

    Parameters
    ----------
    ratios : array of shape (m,)
        The factor by which each interval must grow to contain its value.
    """
    m = len(ratios)
    return float(np.clip(np.sort(ratios)[min(math.ceil(0.9 * (m + 1)), m) - 1], *_SCALES))
