"""A density as the parameter of another estimator, alone or behind other steps of a pipeline: its validation, rows as it takes them, and scores in the units of the table."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import has_fit_parameter

from vicinal._categories import CodedRows, column_of
from vicinal._checks import check_flag, check_integer
from vicinal._density.mixed import MixedColumnsMixin
from vicinal._density.mixture_density import MixtureDensityMixin
from vicinal._density.parzen import ParzenWindows
from vicinal._row_sources import ArrayRows
from vicinal._rows import ValidRows, is_frame
from vicinal._tables import (
    ColumnType,
    Dequantizer,
    EqualRows,
    PreparedTable,
    TableEncoder,
    as_frame,
    collected,
    is_mapped,
    parts_of,
)
from vicinal._tensors import on_device


def as_density(density: Any) -> Any:
    """Return the density to clone: ``ParzenWindows("loo")`` for None, otherwise the validated argument."""
    if density is None:
        return ParzenWindows("loo")
    if isinstance(density, type) or not (hasattr(density, "fit") and hasattr(density, "score_samples")):
        what = f"the class {density.__name__}" if isinstance(density, type) else type(density).__name__
        raise TypeError(
            f"density must be an estimator with fit and score_samples, got {what}. Pass an instance such as "
            "ParzenWindows('loo')."
        )
    return density


def check_takes_weights(density: Any, weight: np.ndarray | None) -> None:
    """Raise an error for weights that the density's fit would not accept."""
    if weight is not None and not has_fit_parameter(density, "sample_weight"):
        raise ValueError(
            f"sample_weight needs a density whose fit accepts it; {type(density).__name__} does not. Use "
            "ParzenWindows, KernelDensity or ManifoldParzen, or leave sample_weight out."
        )


def rows_as_passed(passed: Any, X: np.ndarray, chosen: np.ndarray | None = None, *, density: Any = None) -> Any:
    """Return rows as passed if they have column names, which a density's metric may use; otherwise as validated.

    A tensor on a GPU is also passed on unchanged to a `density` of vicinal, which then works on the device.
    """
    if on_device(passed) and hasattr(density, "engine"):
        return passed if chosen is None else passed[chosen]
    rows = passed if hasattr(passed, "columns") else X
    return rows if chosen is None else _safe_indexing(rows, chosen)


def breaks_constants(rows: np.ndarray, constants: np.ndarray) -> np.ndarray:
    """Return where rows (m, d) differ from the values of columns that are constant in the training rows (NaN: varying columns).

    A difference of one rounding is ignored, because the constant may have been scaled or converted to float32. A missing value is not a difference either.
    """
    return ~(np.isnan(constants) | np.isnan(rows) | np.isclose(rows, constants, rtol=1e-7, atol=0.0))


N_DRAWS = 8
_SCALERS = (StandardScaler, MinMaxScaler, RobustScaler, MaxAbsScaler)  # each column by itself, and they can be undone


class Steps:
    """The steps of a pipeline before its density, and the density; a density alone has no steps.

    Parameters
    ----------
    model : density, or Pipeline that ends in one

    Attributes
    ----------
    before : list of transformers
    density : estimator
    noise : Dequantizer or None
    by_column : bool
        Whether every step treats each column by itself.
    levels : bool
        Whether the density was fitted to columns of levels; it then takes codes.
    scores_gaps : bool
        Whether the density also is one of vicinal, which scores rows with missing values by the known ones. Steps that fill values in
        are then skipped.
    """

    def __init__(self, model: Any) -> None:
        *self.before, self.density = flat_steps(model)
        self.encoder = self.before[0] if self.before and isinstance(self.before[0], TableEncoder) else None
        self.noise = next((step for step in self.before if isinstance(step, Dequantizer)), None)
        self.by_column = all(_keeps_columns(step) or isinstance(step, _SCALERS) for step in self.before)
        self.levels = getattr(self.density, "_has_levels", False)
        self.scores_gaps = self.by_column and isinstance(self.density, MixtureDensityMixin)

    @property
    def names(self) -> list[str]:
        """The names of the columns that the density sees, if the steps treat each column by itself."""
        if self.encoder is not None:
            return [str(name) for name in self.encoder.get_feature_names_out()]
        first = [*self.before, self.density][0]
        names = getattr(first, "feature_names_in_", None)
        return [f"x{k}" for k in range(first.n_features_in_)] if names is None else [str(name) for name in names]

    @property
    def kinds(self) -> list[ColumnType | None]:
        """The kinds of these columns, as far as they are known."""
        if self.encoder is not None:
            return list(self.encoder.feature_types_)
        if self.noise is None:
            return [None] * len(self.names)
        lattices = zip(self.noise.steps_.tolist(), self.noise.offsets_.tolist(), strict=True)
        return [ColumnType("lattice", step, offset) if step > 0 else None for step, offset in lattices]

    @property
    def level_texts(self) -> dict[int, list[str]]:
        """The levels of each column of levels, by the position of the column."""
        if not self.levels:
            return {}
        return {column.position: list(column.texts) for column in self.density._categories.columns}

    def passed_text(self, X: Any, i: int, k: int) -> str:
        """Return a value of a column of the density as it was passed."""
        if self.encoder is not None:
            return str(as_frame(X)[self.encoder.sources[k]].iloc[i])
        return str(column_of(X, k)[i] if not is_frame(X) else column_of(X, k).iloc[i])

    def known(self, X: Any, draw: int | None = None) -> np.ndarray:
        """Return rows as the density takes them, NaN where a value is missing; without noise, or with a draw of it."""
        for step in self.before:
            if self.scores_gaps and _fills_in(step):
                continue
            rows = named_for(step, X)
            if isinstance(step, Dequantizer):
                X = step._rows(rows, reset=False) if draw is None else step.draw(rows, draw)
            else:
                X = step.transform(rows)
        if self.levels:
            return self.density._codes(X)
        return np.asarray(X, dtype=None if isinstance(X, np.ndarray) and X.dtype.kind == "f" else np.float64)

    def versions(self, X: Any, n_draws: int = N_DRAWS) -> list[np.ndarray]:
        """Return rows as the density takes them, once for each draw of the noise on rounded columns; once if there is none."""
        return [self.known(X)] if self.noise is None else [self.known(X, draw) for draw in range(n_draws)]

    def log_densities(self, rows: np.ndarray) -> np.ndarray:
        """Return the log-densities of rows as the density takes them, in its own units."""
        passed = ValidRows(rows) if self.levels else named_for(self.density, rows)
        return np.asarray(self.density.score_samples(passed))

    def in_units(self, table: np.ndarray) -> np.ndarray:
        """Return rows of the density in the units of the table."""
        for step in reversed(self.before):
            table = step.inverse_transform(table) if isinstance(step, _SCALERS) else table
        return table

    def log_volume(self, known: np.ndarray | None = None) -> Any:
        """Return the logarithm of the volume, in the units of the table, of a unit volume of the density; NaN if not known.

        With `known` of shape (m, d), return it for each row in its known columns.
        """
        volume: Any = 0.0 if known is None else np.zeros(len(known))
        for step in (part for whole in self.before for part in _parts_of(whole)):
            if isinstance(step, StandardScaler):
                if step.scale_ is not None:
                    scale = np.log(step.scale_)
                    volume = volume + (scale.sum() if known is None or not self.by_column else known @ scale)
            elif not _keeps_volume(step):
                return volume + np.nan
        return volume


def flat_steps(model: Any) -> list[Any]:
    """Return the estimators of a pipeline, also of pipelines in it, without steps that do nothing."""
    if not isinstance(model, Pipeline):
        return [model]
    return [step for _, part in model.steps if part is not None and part != "passthrough" for step in flat_steps(part)]


def named_for(step: Any, rows: Any) -> Any:
    """Return rows with the names that a step was fitted with, or without names if it has none."""
    if isinstance(step, TableEncoder):
        return rows
    names = getattr(step, "feature_names_in_", None)
    if names is None:
        return rows.to_numpy() if hasattr(rows, "to_numpy") else rows
    if hasattr(rows, "columns"):
        return rows
    import pandas as pd

    return pd.DataFrame(rows, columns=names)


def _fills_in(step: Any) -> bool:
    """Return whether a step fills in missing values and does not change the others."""
    return getattr(step, "keeps_columns", False) or type(step).__module__.startswith("sklearn.impute.")


def _keeps_columns(step: Any) -> bool:
    return _fills_in(step) or isinstance(step, (TableEncoder, Dequantizer))


def _parts_of(step: Any) -> list[Any]:
    """Return the steps of a step for some columns that passes the others on; a step for all columns itself."""
    if not isinstance(step, ColumnTransformer):
        return [step]
    return [part for _, one, _ in step.transformers_ if not isinstance(one, str) for part in flat_steps(one)]


def _keeps_volume(step: Any) -> bool:
    """Return whether a step keeps the units: noise, or a projection onto orthonormal directions."""
    if isinstance(step, FunctionTransformer):  # as which a fitted ColumnTransformer holds columns that are passed on
        return step.func is None
    return _keeps_columns(step) or (isinstance(step, PCA) and not step.whiten)


def score_rows(model: Any, X: Any, *, n_draws: int = N_DRAWS, probability: bool = False) -> np.ndarray:
    """Return the log-density of each row in the units of the data, averaged over the noise on rounded columns.

    The unit of a column that :class:`TableEncoder` replaces by its logarithm is that of the logarithm.

    Parameters
    ----------
    model : fitted density, or Pipeline that ends in one
        The density. If a :class:`Dequantizer` is among its steps, each row is scored under `n_draws` draws of the noise.
        Otherwise the result is that of ``score_samples`` in the units of the data.
    X : table or array of shape (n_samples, n_features)
        A row with missing values is scored by its known values: the log-density, and the probability, of those columns alone.
    n_draws : int, default=8
        The number of draws of the noise.
    probability : bool, default=False
        Whether to add the sum of the logarithms of the steps. The value is then a lower bound on the log-probability of the
        discrete row (on the log-density of its continuous columns times the probability of the others, if some
        columns are not rounded), *in expectation over the noise*; the mean of a few draws may lie above it.

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
    steps = Steps(model)
    if np.isnan(steps.log_volume()):
        raise ValueError(
            "a step of the model transforms the columns so that the units of the data are lost; expected StandardScaler, PCA "
            "without whitening, TableEncoder, Dequantizer or DensityImputer before the density. Use model.score_samples for log-densities in "
            "the units of that step."
        )
    versions = steps.versions(X, n_draws)
    known = ~np.isnan(versions[0])
    scores = np.mean([steps.log_densities(rows) for rows in versions], axis=0) - steps.log_volume(known)
    if probability and steps.noise is not None:
        if len(steps.noise.log):
            raise ValueError(
                "probability=True is not available for a model of logarithms, which are not rounded in even steps."
            )
        cells = log_steps(steps.noise)
        if len(cells) != known.shape[1]:
            raise ValueError(
                f"probability=True is not available for a density of {known.shape[1]} dimensions of a table of {len(cells)} columns. Keep "
                "all dimensions, or use the log-density."
            )
        scores += known @ cells
    return scores


def log_steps(noise: Dequantizer) -> np.ndarray:
    """Return the logarithm of the step of each column; 0 for columns that are not rounded."""
    return np.log(np.where(noise.steps_ > 0, noise.steps_, 1.0))


def takes_levels(estimator: Any) -> bool:
    """Return whether a density, alone or at the end of a pipeline, learns from columns of levels."""
    return isinstance(flat_steps(estimator)[-1], MixedColumnsMixin)


def fit_prepared(
    estimator: Any,
    prepared: PreparedTable,
    *,
    noise: bool = True,
    scale: bool = True,
    more: Sequence[tuple[str, Any]] = (),
    supervision: Mapping[str, Any] | None = None,
) -> Pipeline:
    """Fit an estimator to a prepared table; return the pipeline from the raw columns to the estimator.

    Parameters
    ----------
    estimator : metric or density, or Pipeline that ends in one
        It is fitted itself, not a clone of it.
    prepared : PreparedTable
        Columns of levels are for an estimator that takes them.
    noise : bool
        Whether the training rows get noise of one step in rounded columns.
    scale : bool
        Whether the columns are standardised.
    more : list of (str, transformer)
        Further steps before the estimator.
    supervision : dict, optional
        Further arguments of the estimator's ``fit``.
    """
    import pandas as pd

    steps: list[tuple[str, Any]] = [("columns", prepared.encoder.set_output(transform="pandas"))]
    dequantizer = prepared.encoder.dequantizer() if noise else None
    if dequantizer is not None:
        steps.append(("noise", dequantizer))
    scaler = StandardScaler() if scale else None
    if scaler is not None:
        steps.append(("scale", scaler))
    texts, names = prepared.encoder.level_texts, prepared.X.columns.to_numpy()
    rows: Any = prepared.X
    if len(steps) > 1:
        rows = _noisy_and_scaled(prepared.X, dequantizer, scaler, list(texts))
    elif is_mapped(rows) or texts:
        rows = rows.to_numpy() if texts else ArrayRows(rows.to_numpy())
    for name, step in more:
        steps.append((name, step))
        # Without a scaler, new rows reach the step with the names of the columns.
        named = rows if scale or isinstance(rows, pd.DataFrame) else pd.DataFrame(rows, columns=names)
        rows = np.asarray(step.fit_transform(CodedRows(np.asarray(rows), names, texts) if texts else named))
    estimator.fit(CodedRows(rows, names, texts) if texts else rows, **(supervision or {}))
    return Pipeline([*steps, (type(estimator).__name__.lower(), estimator)])


def _noisy_and_scaled(
    X: Any, noise: Dequantizer | None, scaler: StandardScaler | None, levels: list[int]
) -> np.ndarray:
    """Return training rows with noise in rounded columns and standardised, and fit the scaler; part by part.

    Columns of levels stay as they are.
    """
    import pandas as pd

    seen = EqualRows()

    def noisy() -> Iterator[np.ndarray]:
        for part in parts_of(len(X)):
            block = X.iloc[part]
            values = np.array(block) if noise is None else np.asarray(noise.transform_training_rows(block, seen))
            if scaler is not None:
                scaler.partial_fit(pd.DataFrame(values, columns=X.columns, copy=False))
            yield values

    rows = collected(noisy(), X.shape[1], mapped=is_mapped(X))
    if scaler is not None:
        scaler.mean_[levels], scaler.var_[levels], scaler.scale_[levels] = 0.0, 1.0, 1.0
        for part in parts_of(len(rows)):
            rows[part] -= scaler.mean_
            rows[part] /= scaler.scale_
    return rows
