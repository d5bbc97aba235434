"""What Manifold Parzen Windows and Local LCA have in common as estimators."""

from abc import ABC
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.utils.validation import check_is_fitted

from vicinal._checks import check_integer
from vicinal._density.mixture_density import MixtureDensityMixin
from vicinal._engine import Engine, Work
from vicinal._mixtures import frame_work
from vicinal._records import Record, RecordParametersMixin
from vicinal._search import Selection


class LocalDensity(RecordParametersMixin, MixtureDensityMixin, DensityMixin, BaseEstimator, ABC):
    """The base of densities with a kernel per row: the checks of their parameters, and their vicinities."""

    _kernel_per_row = True
    _record_types: ClassVar[dict[str, type[Record]]] = {"selection": Selection, "engine": Engine}

    n_components: int | str
    n_neighbors: int | str
    selection: Selection | None
    n_components_: int
    n_neighbors_: int
    _neighbors: NDArray[Any] | None

    def _check_sizes_and_selection(self) -> None:
        """Raise an error for values of n_components, n_neighbors and selection that are invalid for any data."""
        for name, least in (("n_components", 0), ("n_neighbors", 1)):
            value = getattr(self, name)
            if not isinstance(value, str):
                check_integer(value, name, least=least)
            elif value != "auto":
                raise ValueError(f"{name} must be an integer or 'auto', got {value!r}.")
        if self.selection is not None and not isinstance(self.selection, Selection):
            raise TypeError(
                f"selection must be a vicinal.Selection or None, got {type(self.selection).__name__}. "
                "For example, pass Selection(cv=10)."
            )

    def _scoring_work(self, n_queries: int, n_points: int, n_features: int, passes: int) -> Work:
        d = getattr(self, "n_components_", self.n_components)
        d = min(n_features, 8) if isinstance(d, str) else d
        if d == 0:
            return super()._scoring_work(n_queries, n_points, n_features, passes)
        return frame_work(n_queries, (d, n_points, n_features), passes=passes)

    @property
    def neighbors_(self) -> NDArray[Any]:
        """The vicinity of each row, nearest first, shape (n_samples, n_neighbors)."""
        check_is_fitted(self)
        neighbors = getattr(self, "_neighbors", None)
        if neighbors is None:
            raise AttributeError(
                "neighbors_ exists only if kernels have directions and their vicinities are the nearest rows."
            )
        return np.asarray(neighbors[:, : self.n_neighbors_])
