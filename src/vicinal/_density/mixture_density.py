"""The methods of estimators whose density is a mixture, and training rows with the density that was computed without them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from typing import Any, NamedTuple, NoReturn, Self

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from vicinal._callers import callers_line
from vicinal._checks import shown_columns
from vicinal._engine import Work, works_there
from vicinal._mixtures import (
    Background,
    Conditionals,
    MixedMixture,
    Mixture,
    Replacements,
    check_log_density,
    column_conditionals,
    feature_positions,
    known_patterns,
    scores_with_replacements,
)
from vicinal._notebook import NotebookMixin
from vicinal._row_sources import as_source, by_blocks, in_file
from vicinal._rows import check_device_rows, check_rows, constant_columns
from vicinal._rows.dask import answers_collections, float_numbers
from vicinal._search import held_out_splits
from vicinal._tensors import on_device

# The approximate number of passes of ParzenWindows' bandwidth, and of detectors over their training rows, from which the engine chooses
# a backend.
LOO_PASSES = 10
_MANY = 20_000  # components
_MOST_LEFT_OUT = 2000  # rows that determine the shares of the broad Gaussians


class HeldOutRows(NamedTuple):
    """Some training rows and the density without them, in the sense of the density's own leave-one-out.

    positions : (m,), places of the rows among those that were asked for
    mixture : the density
    left_out : (m,), the component of each row, which is left out for it; None if the mixture contains none of the rows
    made_from : (n,), the position of the training row of each component; None if there is one for each row, in their order
    replaced : returns the components that have another covariance without the row; None if there are none
    """

    positions: np.ndarray
    mixture: Any
    left_out: np.ndarray | None = None
    made_from: np.ndarray | None = None
    replaced: Callable[[], Replacements | None] | None = None

    def remaining(self, is_remaining: np.ndarray | None) -> HeldOutRows:
        """Return the same without the components of some training rows; `is_remaining` has an entry for each training row."""
        if is_remaining is None or is_remaining.all():
            return self
        components = is_remaining if self.made_from is None else is_remaining[self.made_from]
        return self._replace(mixture=self.mixture.only(components))

    def log_densities(self, training_rows: Any) -> np.ndarray:
        """Return the log-densities of the m rows, which are among the training rows (n, d)."""
        m = len(self.positions)
        if (
            training_rows is self.mixture.centres
            and self.left_out is not None
            and self.replaced is None
            and m == len(training_rows)
        ):
            return self.mixture.left_out_score_samples(LOO_PASSES)  # the rows among themselves take half a sweep
        rows = training_rows if m == len(training_rows) else training_rows[self.positions]
        return self.scores(rows, np.arange(m), np.arange(self.mixture.n_features))

    def conditionals(
        self, rows: np.ndarray, places: np.ndarray, columns: np.ndarray, shares: tuple[float, ...] = ()
    ) -> Conditionals:
        """Condition each of some columns of rows on the others of these columns.

        Parameters
        ----------
        rows : array of shape (len(places), d)
            All columns of the mixture; only those in `columns` are used.
        places : integer array
            The places of the rows among the m.
        columns : integer array
        shares : tuple of float
            Of the quantiles.
        """
        mixture, left_out, replaced = self._marginal(places, columns)
        return column_conditionals(mixture, rows[:, columns], left_out, shares, replaced)

    def surprises(self, rows: np.ndarray, places: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Return ``-log p(x_k | the others of these columns)``, shape (len(places), len(columns)).

        Of many components only those near a row matter, which the densities of columns (without k, and all) skip to; conditionals
        visit all of them.

        Parameters
        ----------
        rows, places, columns
            As in `conditionals`.
        """
        if len(self.mixture.centres) < _MANY or self.replaced is not None or len(columns) < 2:
            return self.conditionals(rows, places, columns).surprises
        whole = self.scores(rows, places, columns)
        others = [self.scores(rows, places, np.delete(columns, k)) for k in range(len(columns))]
        return np.stack(others, axis=1) - whole[:, None]

    def scores(self, rows: np.ndarray, places: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Return log-densities of rows by some columns, shape (len(places),).

        Parameters
        ----------
        rows, places, columns
            As in `conditionals`.
        """
        mixture, left_out, replaced = self._marginal(places, columns)
        known = rows if len(columns) == rows.shape[1] else np.ascontiguousarray(rows[:, columns])
        if left_out is None:
            return check_log_density(mixture.log_densities(known))
        if replaced is None:
            return mixture.left_out_scores_of(known, left_out)
        return scores_with_replacements(mixture, known, left_out, replaced)

    def _marginal(self, places: np.ndarray, columns: np.ndarray) -> tuple[Any, np.ndarray | None, Replacements | None]:
        """Return the density of some columns, and what is left out of it and replaced for some rows."""
        mixture = self.mixture
        replaced = None if self.replaced is None else self.replaced()
        replaced = None if replaced is None else replaced.of_rows(places)
        if len(columns) < mixture.n_features:
            mixture = mixture.marginal(columns)
            if replaced is not None:
                replaced = replaced._replace(mixture=replaced.mixture.marginal(columns))
        return mixture, None if self.left_out is None else self.left_out[places], replaced


class MixtureDensityMixin(NotebookMixin):
    """The density methods of an estimator whose fit sets ``mixture_``.

    The mixture is that of the columns at ``active_features_``. The other columns are constant in the training rows, with the
    values ``constant_values_``: they have no density and contain no information about the others.
    """

    mixture_: Mixture
    engine: Any
    n_features_in_: int
    # Whether the caller accounts for constant columns, so that they need no warning, and get the kernel's width if it has
    # one along all columns; see `DensityClassifier`.
    _constants_stay = False
    # A row with the values of constant columns and NaN in the others; None if all columns vary.
    _constants: np.ndarray | None

    @property
    def active_features_(self) -> np.ndarray:
        """The positions of the columns that vary."""
        check_is_fitted(self, "_constants")
        return np.arange(self.n_features_in_) if self._constants is None else np.flatnonzero(np.isnan(self._constants))

    @property
    def constant_values_(self) -> np.ndarray:
        """The values of the other columns."""
        check_is_fitted(self, "_constants")
        return np.array([]) if self._constants is None else self._constants[~np.isnan(self._constants)]

    def _keep_background(self, sample: np.ndarray | None = None) -> None:
        """Give the density broad Gaussians, with the shares of largest likelihood for its rows, each left out.

        Parameters
        ----------
        sample : array of shape (m, d), optional
            Rows of the mixture that have the moments of all, if they stay in a file.
        """
        mixture: Any = self.mixture_
        numbers = mixture.of_numbers.centres if isinstance(mixture, MixedMixture) else mixture.centres
        counted = np.flatnonzero(mixture.log_weights > -np.inf)
        if len(counted) < 2 or not numbers.shape[1]:
            return
        moments = numbers if sample is None else sample
        log_weights = mixture.log_weights if sample is None else np.zeros(len(sample))
        background = Background.of_moments(moments, log_weights)
        if len(counted) > _MOST_LEFT_OUT:
            counted = np.sort(np.random.default_rng(0).choice(counted, _MOST_LEFT_OUT, replace=False))
        mixture.background = background
        rows, weight = getattr(self, "_incomplete_rows", None), np.exp(mixture.log_weights)
        if rows is None:
            everyone = len(counted) == len(numbers)
            kernels = mixture.log_kernels() if everyone else mixture.log_kernels(mixture.centres[counted], counted)
            kernels = kernels - mixture._log_others[counted]
            broad = mixture.broad_log_densities(mixture.centres[counted], counted)
        else:  # the known values of rows with gaps
            counted = np.flatnonzero(mixture.log_weights > -np.inf)
            kernels, broad = self._left_out_scores[counted], np.zeros((len(counted), len(background.widths)))
            for places, known in known_patterns(rows[counted]):
                part = mixture if len(known) == mixture.n_features else mixture.marginal(known)
                chosen = counted[places]
                broad[places] = part.broad_log_densities(rows[np.ix_(chosen, known)], chosen)
        mixture.background = background.chosen(kernels, broad, weight[counted])
        if rows is not None:
            self._left_out_scores[counted] = mixture.background.beside(kernels, broad)
        if isinstance(mixture, MixedMixture):
            mixture._derive()

    @property
    def _isotropic(self) -> bool:
        """Whether the kernel has a width along constant columns."""
        return False

    def _keep_active(
        self,
        X: NDArray[Any],
        weight: NDArray[Any] | None = None,
        *,
        width: str,
        kept: NDArray[Any] | None = None,
        n_rows: int | None = None,
    ) -> NDArray[Any]:
        """Return the columns of the training rows that vary, with a warning that names the others.

        Parameters
        ----------
        X : array of shape (n, d)
        weight : array of shape (n,), optional
            Rows of weight zero do not make a column vary.
        width : str
            The parameter that can give the kernel a width, for the message if all rows are equal.
        kept : boolean array of shape (d,), optional
            Columns that stay although they are constant, because a parameter gives the kernel a width along them.
        n_rows : int, optional
            The number of rows, if X holds only their smallest and their largest values.
        """
        counted = X if weight is None else X[weight > 0]
        constant = constant_columns(counted)
        if kept is not None:
            constant &= ~kept
        if constant.all():
            raise ValueError(
                f"all {len(counted) if n_rows is None else n_rows} rows are equal in their columns of numbers, so there is no scale to learn. Check "
                f"the data, leave these columns out if others are levels, or pass {width} as a number greater than 0."
            )
        self._constants = None
        if not constant.any() or (self._constants_stay and self._isotropic):
            return X
        self._constants = np.where(constant, counted[0], np.nan)
        if self._constants_stay:
            return np.ascontiguousarray(X[:, ~constant])
        names = getattr(self, "feature_names_in_", None)
        are, them = ("is", "it") if constant.sum() == 1 else ("are", "them")
        warnings.warn(
            f"{constant.sum()} of {len(constant)} columns {are} constant ({shown_columns(constant, names)}): the density and the "
            f"metric ignore {them}. Drop {them} to silence this warning.",
            UserWarning,
            stacklevel=callers_line(),
        )
        return np.ascontiguousarray(X[:, ~constant])

    def _active(self, X: Any) -> Any:
        """Return the columns that the mixture uses."""
        return X if self._constants is None else X[:, self.active_features_]

    def _with_constants(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return rows of the columns that the mixture uses as rows of all columns."""
        if self._constants is None:
            return rows
        whole = np.tile(self._constants.astype(rows.dtype), (len(rows), 1))
        whole[:, self.active_features_] = rows
        return whole

    @property
    def _active_names(self) -> NDArray[Any] | None:
        names = getattr(self, "feature_names_in_", None)
        return None if names is None else names[self.active_features_]

    def _in_all_columns(self, matrix: NDArray[Any]) -> NDArray[Any]:
        """Return a matrix whose columns are the active features, with columns of zeros for the others."""
        whole = np.zeros((len(matrix), self.n_features_in_))
        whole[:, self.active_features_] = matrix
        return whole

    def _training_rows(self) -> NDArray[Any]:
        """Return the training rows, of the columns that vary."""
        rows = getattr(self, "rows_", None)  # if the components may have moved away from the rows
        return self._mixture().centres if rows is None else rows

    def _centres_of(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return the centres of the components that training rows become, of the columns that vary."""
        return rows

    def held_out_score_samples(self) -> NDArray[Any]:
        """Return the log-density of each training row under a density that the row did not shape.

        What is computed without the row depends on the density: see Notes.  The parameters that were chosen by a search are kept.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        if hasattr(self, "_left_out_scores"):  # of the known values of rows with gaps
            return self._left_out_scores.copy()
        rows = self._training_rows()
        scores = np.empty(len(rows))
        for part in self._held_out_rows(np.arange(len(rows))):
            scores[part.positions] = part.log_densities(rows)
        return scores

    def _held_out_rows(self, rows: NDArray[Any]) -> Iterable[HeldOutRows]:
        """Return training rows with the density without them; the positions count in `rows`, the positions of the training rows.

        By default, the component of the row is left out.
        """
        return [HeldOutRows(np.arange(len(rows)), self._mixture(), rows)]

    _left_out_scores: np.ndarray  # only for fits to rows with gaps, whose mixture cannot leave a row out
    _incomplete_rows: np.ndarray  # the rows of such a fit, NaN where a value is missing

    def _scoring_work(self, n_queries: int, n_points: int, n_features: int, passes: int) -> Work:
        """Return the work of scoring a number of rows a number of times under the fitted mixture, as its placement states it."""
        return Work(n_queries, n_points, n_features, passes)

    def gather(self) -> Self:
        """Copy the training rows of a density that was fitted to a memory map or a file into memory.

        Rows that are already in memory are not copied.

        Returns
        -------
        self
        """
        check_is_fitted(self)
        if in_file(self.mixture_.centres):
            self.mixture_ = copy(self.mixture_)  # another object, for which the engine keeps no placement in the file
            self.mixture_.centres = np.array(self.mixture_.centres)
        rows = getattr(self, "rows_", None)  # of LCA-Gauss, whose centres have moved away from its rows
        if in_file(rows):
            self.rows_ = np.array(rows)
        return self

    def _mixture(self) -> Any:
        """Return the fitted mixture with the current `engine`, which may differ from that of the fit on another machine."""
        check_is_fitted(self)
        self.mixture_.engine = self.engine
        return self.mixture_

    @answers_collections(dtype=float_numbers)
    def score_samples(self, X: ArrayLike | None = None) -> NDArray[Any]:
        """Return the log-density of each row; of its known values if it has missing ones (NaN).

        A row with missing values is scored under the exact marginal of its known features; a row without any known value
        scores 0. Rows with different missing values have densities of different dimensions: compare only rows with the same
        missing values, or differences between two densities.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), a source of rows, or None
            The rows to score. A source is read block by block; see :func:`vicinal.io.open_rows`. None scores each training
            row under the density of the *other* training rows (leave-one-out).

        Returns
        -------
        ndarray of shape (n_samples,)
            A tensor on the same device when X is a tensor on a GPU, unless `engine` names another backend. A lazy Dask array
            when X is a Dask collection.
        """
        mixture = self._mixture()
        if X is None:
            left_out = getattr(self, "_left_out_scores", None)
            return mixture.left_out_score_samples() if left_out is None else left_out.copy()
        if on_device(X) and works_there(self.engine):
            return mixture.score_samples(self._active(check_device_rows(self, X)))
        source = as_source(X)
        return self._score_rows(X) if source is None else by_blocks(self._score_rows, source)

    def _score_rows(self, X: Any) -> NDArray[Any]:
        return self.mixture_.score_samples(self._active(check_rows(self, X, reset=False, gaps=True)))

    def score(self, X: ArrayLike | None = None, y: ArrayLike | None = None) -> float:
        """Return the mean log-density of the rows of X, or the leave-one-out mean of the training rows if X is None."""
        return float(self.score_samples(X).mean())

    def sample(self, n_samples: int = 1, random_state: RandomState | int | None = None) -> NDArray[Any]:
        """Draw rows from the density.

        Parameters
        ----------
        n_samples : int, default=1
            The number of rows.
        random_state : int, RandomState instance or None, default=None
            The seed of the random numbers.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
        """
        return self._with_constants(self._mixture().sample(n_samples, random_state))

    def marginal(self, features: Sequence[int | str] | ArrayLike) -> Any:
        """Return the exact density of some features alone.

        Parameters
        ----------
        features : list of column positions, or of names if fitted on named columns
            The features to keep.

        Returns
        -------
        density with ``score_samples``, ``score``, ``sample``, ``marginal`` and ``conditional``
        """
        mixture = self._mixture()
        if self._constants is None:
            return mixture.marginal(features)
        positions = feature_positions(
            list(np.atleast_1d(np.asarray(features, dtype=object))),
            self.n_features_in_,
            getattr(self, "feature_names_in_", None),
        )
        constant = np.setdiff1d(positions, self.active_features_)
        if len(constant):
            raise ValueError(
                f"features {', '.join(map(str, constant))} are constant in the training rows and have no density. Leave "
                "them out."
            )
        return mixture.marginal(np.searchsorted(self.active_features_, positions))

    def conditional(self, given: Mapping[Any, float]) -> Any:
        """Return the exact density of the remaining features given the values of some.

        Parameters
        ----------
        given : dict
            Values by column position, or by name if fitted on named columns.

        Returns
        -------
        density with ``score_samples``, ``score``, ``sample``, ``marginal`` and ``conditional``
        """
        mixture = self._mixture()
        if self._constants is None or not isinstance(given, dict) or not given:
            return mixture.conditional(given)
        names = getattr(self, "feature_names_in_", None)
        positions = feature_positions(list(given), self.n_features_in_, names)
        values = dict(zip(positions, given.values(), strict=True))
        # The value of a constant column contains no information about the others.
        known = {
            int(np.searchsorted(self.active_features_, k)): v for k, v in values.items() if k in self.active_features_
        }
        return mixture.conditional(known) if known else mixture


def rows_out_of_folds(
    density: Any, rows: np.ndarray, weight: np.ndarray | None, mixture_of: Callable[[np.ndarray], Any]
) -> list[HeldOutRows]:
    """Return training rows with mixtures of the other folds; rows in no fold leave out their own component alone.

    There are five folds, which do not depend on a random state and never separate equal rows.

    Parameters
    ----------
    density : fitted density
    rows : integer array
        The positions of the training rows.
    weight : array of shape (n,), optional
    mixture_of : callable
        Returns the mixture that training rows at some positions make.
    """
    parts, in_folds = [], np.zeros(len(rows), dtype=bool)
    for train, test in held_out_splits(density._training_rows(), weight):
        places = np.flatnonzero(np.isin(rows, test))
        in_folds[places] = True
        if len(places):
            parts.append(HeldOutRows(places, mixture_of(train), made_from=train))
    if not in_folds.all():
        places = np.flatnonzero(~in_folds)
        parts.append(HeldOutRows(places, density._mixture(), rows[places]))
    return parts


class RowsLeftOut:
    """A placeholder for a density whose rows were not saved: every use raises an error that states the reason."""

    def __init__(self, owner: str) -> None:
        self.owner = owner

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotFittedError(
            f"this {self.__dict__.get('owner', 'estimator')} was saved without its training rows "
            "(training_rows=False). It can transform rows and compute distances, but it has no density. Fit it "
            "again, or save it with training_rows=True."
        )
