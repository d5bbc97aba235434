"""What an estimator can do whose density is a mixture."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from vicinal._checks import check_rows
from vicinal._engine import Work
from vicinal._mixtures import Mixture


class MixtureDensityMixin:
    """The density methods of an estimator whose fit sets ``mixture_``."""

    mixture_: Mixture
    engine: Any
    _left_out_scores: np.ndarray  # only where the mixture cannot leave its rows out: of a fit to rows with gaps

    def _scoring_work(self, n_queries, n_points, n_features, passes):
        """The pair work of asking the fitted mixture about so many rows, so many times: what its placement states."""
        return Work(n_queries, n_points, n_features, passes)

    def _mixture(self):
        """The fitted mixture, on the engine that the parameter names now: a model may be scored where it was not fitted."""
        check_is_fitted(self)
        self.mixture_.engine = self.engine
        return self.mixture_

    def score_samples(self, X: ArrayLike | None = None) -> NDArray[Any]:
        """Return the log-density of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or None
            None scores each training row under the density of the *other* training rows (leave-one-out): what is known
            of it, where it has missing values.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        mixture = self._mixture()
        if X is None:
            left_out = getattr(self, "_left_out_scores", None)
            return mixture.left_out_score_samples() if left_out is None else left_out.copy()
        return mixture.score_samples(check_rows(self, X, reset=False))

    def score(self, X: ArrayLike | None = None, y: ArrayLike | None = None) -> float:
        """Return the mean log-density of the rows of X; of the training rows, leave-one-out, when X is None."""
        return float(self.score_samples(X).mean())

    def score_incomplete(self, X: ArrayLike) -> NDArray[Any]:
        """Return the log-density of rows with missing values: of what is known of each row, exactly.

        A row is scored under the marginal of its known features, so rows with different gaps have densities of
        different dimensions: compare rows with the same gaps, or use the differences between two densities.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN where a value is missing. A row of nothing but NaN scores 0.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        mixture = self._mixture()
        kinds = [np.float64, np.float32]
        X = validate_data(self, X, reset=False, dtype=kinds, ensure_all_finite="allow-nan")
        return mixture.score_incomplete(X)

    def sample(self, n_samples: int = 1, random_state: RandomState | int | None = None) -> NDArray[Any]:
        """Draw rows from the density.

        Parameters
        ----------
        n_samples : int, default=1
        random_state : int, RandomState instance or None, default=None

        Returns
        -------
        ndarray of shape (n_samples, n_features)
        """
        return self._mixture().sample(n_samples, random_state)

    def marginal(self, features: Sequence[int | str] | ArrayLike) -> Any:
        """Return the exact density of some features alone.

        Parameters
        ----------
        features : list of column positions, or of names if fitted on named columns

        Returns
        -------
        density with ``score_samples``, ``score``, ``score_incomplete``, ``sample``, ``marginal`` and ``conditional``
        """
        return self._mixture().marginal(features)

    def conditional(self, given: Mapping[Any, float]) -> Any:
        """Return the exact density of the remaining features given the values of some.

        Parameters
        ----------
        given : dict
            Values by column position, or by name if fitted on named columns.

        Returns
        -------
        density with ``score_samples``, ``score``, ``score_incomplete``, ``sample``, ``marginal`` and ``conditional``
        """
        return self._mixture().conditional(given)
