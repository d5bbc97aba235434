"""`which_engine`: the backend that would do the pairwise computations, with the reason."""

import numbers
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from vicinal._engine import tuning
from vicinal._engine.choice import Work, choose
from vicinal._engine.problem import prepare
from vicinal._engine.settings import Engine, as_engine
from vicinal._tensors import on_device


def which_engine(X: ArrayLike, estimator: Any = None) -> str:
    """Return which backend would do the pairwise computations for the rows of X, with the reason.

    From a few thousand rows on, the compiled backend skips pairs that are too far apart to matter (see ``error`` of
    :class:`vicinal.Engine`). The text then also states the share of the pairs that a pass is expected to visit. This share is
    counted on a sample of rows, under the kernel of a fitted estimator or its given bandwidth, or else under a kernel as
    wide as the standard deviation of each column, narrowed to the number of rows. Kernels that differ from row to row, those
    of ``ManifoldParzen`` and ``LocalLCA``, are known only after the fit, so the share is not stated before it.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        The rows.
    estimator : estimator, None, str or Engine
        An estimator (fitted or not), whose ``fit`` on X is considered; for one that fits another estimator, such as a
        pipeline or ``DensityClassifier``, the inner estimator is considered. Or an engine, as passed to an estimator, for
        one pass of all rows against all rows.

    Returns
    -------
    str

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import LCA, which_engine
    >>> print(which_engine(np.zeros((200, 5))))
    reference: 200 x 200 pairs in 5 dimensions are too few to load compiled kernels
    >>> print(which_engine(np.zeros((5000, 5)), LCA()))
    cpu: 5000 x 5000 pairs in 5 dimensions, 20 times, are enough to justify compiled kernels
    """
    shape = np.shape(X)
    if len(shape) != 2:
        raise ValueError(f"X must have two dimensions (rows, columns), got shape {shape}.")
    if isinstance(estimator, type):
        raise TypeError(
            f"estimator must be an estimator, an engine or None, got the class {estimator.__name__}. Pass an instance, "
            f"{estimator.__name__}()."
        )
    if hasattr(estimator, "get_params") and not isinstance(estimator, Engine):
        return _text_for_estimator(X, shape, estimator)
    return _text_for_work(X, estimator, Work(shape[0], shape[0], shape[1]))


def _text_for_estimator(X: ArrayLike, shape: tuple[int, int], estimator: Any) -> str:
    if hasattr(estimator, "_pair_work"):
        work, metric, share = estimator._pair_work(*shape), _metric_of(estimator, shape[1]), None
        if getattr(estimator, "_kernel_per_row", False):
            share = _share_of_fitted(estimator, shape[0])
        return _text_for_work(X, estimator.engine, work, metric, share)
    name = type(estimator).__name__
    inner = [step for _, step in estimator.steps] if hasattr(estimator, "steps") else _inner_estimators(estimator)
    said = {type(one).__name__: _text_for_estimator(X, shape, one) for one in inner if hasattr(one, "get_params")}
    said = {of: text for of, text in said.items() if not text.startswith(("none:", "unknown:"))}
    if said:
        return "; ".join(f"{text}, in {of} of {name}" for of, text in said.items())
    if not type(estimator).__module__.startswith("vicinal."):
        return f"unknown: {name} is not an estimator of vicinal, and contains none that makes computations over pairs of rows"
    return f"none: {name} makes no computations over all pairs of rows"


def _inner_estimators(estimator: Any) -> list[Any]:
    """Return the estimators that another one fits: those that it declares, or else those among its parameters."""
    if hasattr(estimator, "_inner_estimator"):
        return [estimator._inner_estimator()]
    return [value for value in estimator.get_params(deep=False).values() if not isinstance(value, type)]


def _text_for_work(
    X: Any, given: Engine | str | None, work: Work, metric: np.ndarray | None = None, share: float | None = None
) -> str:
    engine = as_engine(given)
    if on_device(X) and engine.kind == "auto":
        return f"torch: the rows are a tensor on {X.device}"
    backend, reason = choose(engine, work)
    if backend != "cpu" or work.n_points < tuning.PRUNED_FROM_POINTS:
        share = 1.0
    elif share is None:
        share = _expected_share(engine, np.asarray(X), metric)
    visits = "" if share == 1.0 else f"; a pass is expected to visit {100 * share:.2g}% of the pairs"
    return f"{backend}: {reason}{visits}"


def _share_of_fitted(estimator: Any, n_rows: int) -> float:
    """Return the share of the pairs that a pass visits under the kernels of a fitted estimator; 1 if there are none yet."""
    mixture = getattr(estimator, "mixture_", None)
    return 1.0 if mixture is None else float(mixture.placement(n_rows).expected_share)


def _metric_of(estimator: Any, n_features: int) -> np.ndarray | None:
    """Return the metric of a fitted estimator's kernel, or of its given bandwidth; None if there is neither."""
    metric = getattr(estimator, "components_", None)
    covariance = getattr(estimator, "covariance_", None)
    width = getattr(estimator, "bandwidth", None)
    if metric is None and covariance is not None and np.ndim(covariance) == 2:
        metric = np.linalg.inv(np.linalg.cholesky(covariance))
    elif metric is None and isinstance(width, (numbers.Real, np.ndarray)):
        widths = np.asarray(width, dtype=np.float64)
        if widths.ndim == 2:
            metric = np.linalg.inv(np.linalg.cholesky(widths))
        elif np.all(widths > 0):
            metric = np.broadcast_to(1.0 / widths, (n_features,))
    return metric if metric is not None and np.shape(metric)[-1] == n_features else None


def _expected_share(engine: Engine, X: np.ndarray, metric: np.ndarray | None) -> float:
    """Return the share of the pairs that a pass visits; 1 if it is unknown or nothing is skipped."""
    if X.dtype.kind not in "fiu" or not np.isfinite(X).all():
        return 1.0
    X = X.astype(np.float64, copy=False)
    if metric is None:
        spread = X.std(axis=0)
        if not spread.all():
            return 1.0
        metric = len(X) ** (1.0 / (X.shape[1] + 4)) / spread
    return prepare(replace(engine, kind="cpu", device=None), X, leave_one_out=True).at(metric).expected_share
