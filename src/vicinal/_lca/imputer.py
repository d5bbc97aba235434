"""Imputation of missing values from a density."""

from typing import Any, ClassVar

import numpy as np
from scipy.special import ndtri
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin, clone
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.validation import check_is_fitted

from vicinal._checks import check_flag, check_integer, check_rows
from vicinal._density.gaps import Conditional, check_columns_known, conditionals
from vicinal._lca.lca import LCA
from vicinal._lca.missing import fit_lca_to_gaps
from vicinal._lca.steps import Structure
from vicinal._notebook import NotebookMixin

# The default penalty, as a share of the covariance of the data. It keeps the kernel wide and correlated enough for few rows
# with gaps. This is a heuristic, chosen on samples of five of the six sets of benchmarks/imputation.py.
_SHARE = 0.4
# The spread of draws is calibrated on known entries of at most so many rows, and only if there are at least so many.
_CALIBRATED_ON, _FEWEST_CALIBRATED = 500, 20
_SCALES = (0.2, 5.0)


class DensityImputer(NotebookMixin, OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    r"""Fill in missing values from a density of the rows, with their conditional mean or with draws.

    Given the known entries o of a row, the missing ones m have under :math:`\sum_j w_j N(x; c_j, \Sigma)` the mixture

    .. math::

        p(x_m | x_o) = \sum_j \lambda_j \, N(x_m; c_{j,m} + G (x_o - c_{j,o}), \Sigma_{m|o}), \qquad
        \lambda_j \propto w_j N(x_o; c_{j,o}, \Sigma_{oo}), \quad G = \Sigma_{mo} \Sigma_{oo}^{-1}

    This is a local regression with a known error. The mean is the best single guess. Draws preserve the spread of the
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
    n_features_in_ : int
    feature_names_in_ : ndarray of str, only when fitted on named columns

    Notes
    -----
    ``fit_transform`` fills in a training row from the *other* rows. ``transform`` treats rows as new: for a training
    row, which is one of the centres itself, it would repeat the values found by the fit.

    The default is conservative: its kernel stays wide, which suits few rows and nearly linear relations. If many rows
    follow a curve, ``density=LCA(reg=1e-3)`` follows it more closely.

    A mixture is wider than the data by the kernel's own covariance, and so would be its draws. Therefore one known entry in
    each of up to 500 rows is hidden and predicted from the others. The deviations of draws from the conditional mean are
    multiplied by the factor ``draw_scale_``, for which 90 % of the hidden entries lie within the 90 % interval of a Gaussian.

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

    def __init__(self, density: Any = None, *, sample: bool = False, random_state: Any = None):
        self.density = density
        self.sample = sample
        self.random_state = random_state

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def fit(self, X: Any, y: Any = None) -> "DensityImputer":
        """Fit the density to the rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows. NaN marks a missing value.
        y : ignored

        Returns
        -------
        self
        """
        check_flag(self.sample, "sample")
        rows = check_rows(self, X, reset=True, min_rows=2, gaps=True)
        density = self._inner_estimator()
        if not get_tags(density).input_tags.allow_nan:
            raise TypeError(
                f"density must be LCA, LCAGauss or ParzenWindows, which can be fitted to rows with missing values, got "
                f"{type(density).__name__}."
            )
        check_columns_known(rows, getattr(self, "feature_names_in_", None))
        known = rows.astype(np.float64)
        self.mean_ = np.nanmean(known, axis=0)
        spread = np.nanstd(known, axis=0)
        self.scale_ = np.where(spread > 0, spread, 1.0)
        known = (known - self.mean_) / self.scale_
        self.density_ = clone(density)
        if self.density is None:
            check_rows(self.density_, known, reset=True, gaps=True)
            fit_lca_to_gaps(self.density_, known, None, None, Structure("full"), data_share=_SHARE)
        else:
            self.density_.fit(known)
        self.draw_scale_ = self._calibrated_scale(known)
        return self

    def _calibrated_scale(self, rows: np.ndarray) -> float:
        """By how much the spread of the density has to be multiplied to be that of known entries that are hidden."""
        known = ~np.isnan(rows) & (self._constant == 0)
        some = np.flatnonzero(known.sum(axis=1) > 1)
        some = some[np.linspace(0, len(some) - 1, min(_CALIBRATED_ON, len(some))).astype(int)] if len(some) else some
        if len(some) < _FEWEST_CALIBRATED:
            return 1.0
        asked = np.array([np.flatnonzero(known[i])[i % known[i].sum()] for i in some])
        holed = rows[some]
        holed[np.arange(len(some)), asked] = np.nan
        surprise = np.empty(len(some))
        for part in self._parts(holed):
            mine, own = part.positions, some[part.positions]
            columns = np.searchsorted(part.missing, asked[mine])
            spread = np.hstack([part.residuals, np.square(part.residuals)])
            found = part.placed.softmax_means(spread, np.nan_to_num(holed[mine]), own).means
            at, n_missing = np.arange(len(mine)), len(part.missing)
            mean = found[at, columns]
            variance = found[at, n_missing + columns] - mean**2 + part.rest[columns, columns]
            mean = mean + np.sum(holed[np.ix_(mine, part.known)] * part.gain[columns], axis=1)
            surprise[mine] = np.abs(rows[own, asked[mine]] - mean) / np.sqrt(np.maximum(variance, 1e-300))
        return float(np.clip(np.quantile(surprise, 0.9) / ndtri(0.95), *_SCALES))

    @property
    def _constant(self) -> np.ndarray:
        """Which columns hold one value only."""
        return np.ptp(self.density_.mixture_.centres, axis=0) == 0

    def _inner_estimator(self) -> Any:
        """Return the density that is fitted, for `which_engine`."""
        return LCA() if self.density is None else self.density

    def transform(self, X: Any) -> np.ndarray:
        """Return rows with their missing values filled in.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_features)
        """
        rows = self._rows(X)
        return self._draws(rows, None, 1, self.random_state)[0] if self.sample else self._means(rows, None)

    def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:
        """Fit the density and return the rows, each filled in from the others.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : ignored

        Returns
        -------
        ndarray of shape (n_samples, n_features)
        """
        rows = self.fit(X)._rows(X)
        left_out = np.arange(len(rows))
        return self._draws(rows, left_out, 1, self.random_state)[0] if self.sample else self._means(rows, left_out)

    def draw(self, X: Any, n_draws: int = 1, random_state: Any = None, *, training: bool = False) -> np.ndarray:
        """Return several imputations, which are independent draws of the missing values.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        n_draws : int, default=1
        random_state : int, RandomState instance or None, default=None
        training : bool, default=False
            Whether X contains the rows of ``fit`` in the same order. Each row is then filled in from the others.

        Returns
        -------
        ndarray of shape (n_draws, n_samples, n_features)
        """
        check_integer(n_draws, "n_draws")
        rows = self._rows(X)
        n = len(self.density_.mixture_.centres)
        if check_flag(training, "training") and len(rows) != n:
            raise ValueError(f"training=True needs the {n} rows of fit, got {len(rows)}.")
        return self._draws(rows, np.arange(n) if training else None, n_draws, random_state)

    def _rows(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return check_rows(self, X, reset=False, gaps=True)

    def _parts(self, rows: np.ndarray) -> Any:
        """Return what the density says of the missing entries of rows in its units, for each pattern with some."""
        mixture = self.density_.mixture_
        weights = None if np.ptp(mixture.log_weights) == 0 else mixture.log_weights
        centres = mixture.centres.astype(np.float64)
        found = conditionals(rows, centres, mixture.covariance, weights, self.density_.engine)
        return (part for part in found if len(part.missing))

    def _scaled(self, rows: np.ndarray) -> np.ndarray:
        return (rows.astype(np.float64) - self.mean_) / self.scale_

    def _in_units(self, values: np.ndarray, columns: np.ndarray) -> np.ndarray:
        return values * self.scale_[columns] + self.mean_[columns]

    def _means(self, X: np.ndarray, left_out: np.ndarray | None) -> np.ndarray:
        filled, rows = np.array(X), self._scaled(X)
        for part in self._parts(rows):
            cells = np.ix_(part.positions, part.missing)
            filled[cells] = self._in_units(self._means_of(part, rows, left_out), part.missing)
        return filled

    def _means_of(self, part: Conditional, rows: np.ndarray, left_out: np.ndarray | None) -> np.ndarray:
        """Return the conditional means of the missing entries of the rows of a pattern."""
        mine = part.positions
        if part.placed is None:
            weights = np.exp(self.density_.mixture_.log_weights)
            return np.broadcast_to(weights @ part.residuals / weights.sum(), (len(mine), len(part.missing)))
        own = None if left_out is None else left_out[mine]
        means = part.placed.softmax_means(part.residuals, np.nan_to_num(rows[mine]), own).means
        return means + rows[np.ix_(mine, part.known)] @ part.gain.T

    def _draws(self, X: np.ndarray, left_out: np.ndarray | None, n_draws: int, random_state: Any) -> np.ndarray:
        rng, rows = check_random_state(random_state), self._scaled(X)
        filled = np.repeat(np.array(X)[None], n_draws, axis=0)
        # A constant column has no spread to draw from. Models from older files have no scale.
        factors = np.where(self._constant, 0.0, getattr(self, "draw_scale_", 1.0))
        for part in self._parts(rows):
            m = part.missing
            lower = np.linalg.cholesky(part.rest + 1e-12 * np.trace(part.rest) * np.eye(len(m)))
            means = dict(zip(part.positions.tolist(), self._means_of(part, rows, left_out), strict=True))
            for i, chosen in self._components(part, rows, left_out, n_draws, rng):
                noise = rng.standard_normal((n_draws, len(m))) @ lower.T
                known = rows[i, part.known] @ part.gain.T if len(part.known) else 0.0
                away = part.residuals[chosen] + known + noise - means[i]
                filled[:, i, m] = self._in_units(means[i] + factors[m] * away, m)
        return filled

    def _components(self, part: Conditional, rows: np.ndarray, left_out: Any, n_draws: int, rng: Any) -> Any:
        """For each row of a pattern the components that its draws come from."""
        if part.placed is None:
            weights = np.exp(self.density_.mixture_.log_weights)
            for i in part.positions:
                yield i, rng.choice(len(weights), size=n_draws, p=weights / weights.sum())
            return
        own = None if left_out is None else left_out[part.positions]
        for query, point, shares in part.placed.neighbors_above(1e-9, np.nan_to_num(rows[part.positions]), own):
            for some in np.split(np.arange(len(query)), np.flatnonzero(np.diff(query)) + 1):
                p = shares[some] / shares[some].sum()
                yield part.positions[query[some[0]]], point[rng.choice(some, size=n_draws, p=p)]
