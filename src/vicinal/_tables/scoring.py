"""The scoring function for rows of rounded values, which the command and Python users share."""

from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from vicinal._checks import check_flag, check_integer
from vicinal._lca.imputer import DensityImputer
from vicinal._tables.dequantizer import Dequantizer
from vicinal._tables.encoder import TableEncoder

N_DRAWS = 8


def score_rows(model: Any, X: Any, *, n_draws: int = N_DRAWS, probability: bool = False) -> np.ndarray:
    """Return the log-density of each row in the units of the data, averaged over the noise on rounded columns.

    The unit of a column that :class:`TableEncoder` replaces by its logarithm is that of the logarithm.

    Parameters
    ----------
    model : fitted density, or Pipeline that ends in one
        The density. If it has rounded columns, that is, if a :class:`TableEncoder` or a :class:`Dequantizer` is among its
        steps, each row is scored under `n_draws` draws of the noise. Otherwise the result is that of ``score_samples``
        in the units of the data.
    X : table or array of shape (n_samples, n_features)
        A row with missing values is filled in if the model has a :class:`DensityImputer`. Otherwise it is scored by
        its known values: the log-density, and the probability, of those columns alone.
    n_draws : int, default=8
        The number of draws of the noise.
    probability : bool, default=False
        Whether to add the sum of the logarithms of the steps. The value is then a lower bound on the log-probability of the
        discrete row (on the log-density of its continuous columns times the probability of the others, if some
        columns are not rounded), *in expectation over the noise*; the mean of a few draws may lie above it. A value
        that was filled in has no probability, so rows with missing values raise an error if the model fills them in.

    Returns
    -------
    ndarray of shape (n_samples,)

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.pipeline import make_pipeline
    >>> from vicinal import Dequantizer, ParzenWindows
    >>> from vicinal.tables import score_rows
    >>> coins = np.random.default_rng(0).binomial(4, 0.5, size=(400, 1)).astype(float)
    >>> model = make_pipeline(Dequantizer(), ParzenWindows()).fit(coins)
    >>> twos = np.exp(score_rows(model, [[2.0]], probability=True))  # the probability of 2 is 0.375
    >>> bool(0.3 < twos[0] < 0.4)
    True
    """
    check_integer(n_draws, "n_draws")
    check_flag(probability, "probability")
    if np.isnan(log_volume(model)):
        raise ValueError(
            "a step of the model transforms the columns so that the units of the data are lost; expected StandardScaler, PCA "
            "without whitening, TableEncoder, Dequantizer or DensityImputer before the density. Use model.score_samples for log-densities in "
            "the units of that step."
        )
    known = known_values(model, X)
    if probability and fills_in(model) and not known.all():
        raise ValueError(
            f"{int((~known).any(axis=1).sum())} of {len(known)} rows have missing values, which the model fills in, and a value "
            "that was filled in has no probability. Pass probability=False, complete rows, or a model without an imputer."
        )
    scores = draw_scores(model, X, n_draws).mean(axis=0) - known_log_volumes(model, X)
    dequantizer = dequantizer_of(model)
    if probability and dequantizer is not None:
        if len(dequantizer.log):
            raise ValueError(
                "probability=True is not available for a model of logarithms, which are not rounded in even steps."
            )
        scores += known @ log_steps(dequantizer)
    return scores


def dequantizer_of(model: Any) -> Dequantizer | None:
    """Return the noise that belongs to a model: a step of its pipeline, or that of its encoder; None if there is none."""
    for step in _steps(model)[:-1]:
        if isinstance(step, Dequantizer):
            return step
        if isinstance(step, TableEncoder):
            return step.dequantizer()
    return None


def log_steps(dequantizer: Dequantizer) -> np.ndarray:
    """Return the logarithm of the step of each column; 0 for columns that are not rounded."""
    return np.log(np.where(dequantizer.steps_ > 0, dequantizer.steps_, 1.0))


def draw_scores(model: Any, X: Any, n_draws: int = N_DRAWS) -> np.ndarray:
    """Return the scores of rows in the units of the model, one row of the result per draw of the noise.

    Parameters
    ----------
    model : fitted density, or Pipeline that ends in one
    X : table or array of shape (n_samples, n_features)
        Rows whose missing values reach the density are scored by their known values.
    n_draws : int
    """
    steps, rows = _steps(model), X
    for position, step in enumerate(steps[:-1]):
        rest = steps[position + 1 :]
        if isinstance(step, Dequantizer):
            return np.stack([_scores(rest, step.draw(rows, number)) for number in range(n_draws)])
        rows = step.transform(rows)
        noise = step.dequantizer() if isinstance(step, TableEncoder) else None
        if noise is not None:
            draws = (noise.draw(np.asarray(rows), number) for number in range(n_draws))
            if hasattr(rows, "columns"):
                # The next step may select the columns by name.
                draws = (type(rows)(draw, columns=rows.columns, index=rows.index) for draw in draws)
            return np.stack([_scores(rest, draw) for draw in draws])
    return _scores(steps[-1:], rows)[None]


def _scores(steps: list[Any], rows: Any) -> np.ndarray:
    for step in steps[:-1]:
        rows = step.transform(rows)
    return np.asarray(steps[-1].score_samples(rows))


def _gaps_in(rows: Any) -> np.ndarray:
    """Return which numbers are missing."""
    return rows.isna().to_numpy() if hasattr(rows, "isna") else np.isnan(np.asarray(rows, dtype=np.float64))


def fills_in(model: Any) -> bool:
    """Return whether a model fills in missing values before the density scores them."""
    return any(isinstance(step, DensityImputer) for step in _steps(model)[:-1])


def known_values(model: Any, X: Any) -> np.ndarray:
    """Return which features of rows are known, in the columns that the noise step takes, or else the model."""
    for step in _steps(model)[:-1]:
        if isinstance(step, (TableEncoder, ColumnTransformer)):
            X = step.transform(X)
        else:
            break
    return ~_gaps_in(X)


def log_volume(model: Any) -> float:
    """Return the logarithm of the volume, in the units of the data, of a unit volume of the density; NaN if not known."""
    volume = 0.0
    for step in _steps(model)[:-1]:
        if isinstance(step, StandardScaler):
            volume += 0.0 if step.scale_ is None else float(np.log(step.scale_).sum())
        elif not _keeps_volume(step):
            return float("nan")
    return volume


def known_log_volumes(model: Any, X: Any) -> np.ndarray:
    """Return the same for each row, in the columns that the density scores: the known ones if nothing fills in the others."""
    known = known_values(model, X)
    if known.all() or fills_in(model):
        return np.full(len(known), log_volume(model))
    volumes = np.zeros(len(known))
    for step in _steps(model)[:-1]:
        if isinstance(step, StandardScaler) and step.scale_ is not None:
            volumes += known @ np.log(step.scale_)
    return volumes


def _keeps_volume(step: Any) -> bool:
    """Return whether a step keeps the units: noise, a choice of columns, or a projection onto orthonormal directions."""
    if isinstance(step, ColumnTransformer):
        return all(isinstance(part, str) for _, part, _ in step.transformers)
    return isinstance(step, (TableEncoder, Dequantizer, DensityImputer)) or (isinstance(step, PCA) and not step.whiten)


def _steps(model: Any) -> list[Any]:
    if not isinstance(model, Pipeline):
        return [model]
    return [step for _, step in model.steps if not (step is None or isinstance(step, str))]
