"""The training rows that a fitted density keeps, as set by `Engine(keep=...)`."""

import numbers
from typing import Any

import numpy as np

from vicinal._dask import are_distant, is_distant
from vicinal._density.rows_left_out import RowsLeftOut
from vicinal._engine import as_engine
from vicinal._mixtures import SharedMixture


def check_keep(density: Any) -> None:
    """Raise an error before a fit if the rows of a density should be dropped, because it cannot work without them."""
    if as_engine(density.engine).keep == "metric" and not hasattr(density, "get_mahalanobis_matrix"):
        raise ValueError(
            f"keep='metric' is for metrics (LCA, LCAGauss), and {type(density).__name__} is a density: it needs its training "
            "rows. Leave keep='rows', or keep a number of them."
        )


def drop_rows(density: Any) -> None:
    """Drop the rows that a fitted density should not keep."""
    keep = as_engine(density.engine).keep
    if keep == "metric":
        density.mixture_ = RowsLeftOut(type(density).__name__)
        vars(density).pop("rows_", None)
    elif isinstance(keep, numbers.Integral) and keep < len(density.mixture_.log_weights):
        mixture = density.mixture_
        if type(mixture) is not SharedMixture and not is_distant(density):
            raise ValueError(
                f"keep={keep} is for densities with one kernel that all rows share (ParzenWindows, LCA, LCAGauss); "
                f"{type(density).__name__} has one kernel per row. Leave keep='rows', or fit a sample of the rows."
            )
        counted = mixture.log_weights > -np.inf
        among = len(counted) if counted.all() else np.flatnonzero(counted)
        some = np.sort(np.random.default_rng(0).choice(among, min(keep, int(counted.sum())), replace=False))
        if hasattr(density, "rows_"):
            density.rows_ = density.rows_.take(some) if are_distant(density.rows_) else density.rows_[some]
        density.mixture_ = mixture.some(some)
