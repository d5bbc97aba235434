"""The plan of a comparison: the rows, the folds, the methods and the notes, all validated before any work is done."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from numbers import Integral
from types import SimpleNamespace
from typing import Any

import numpy as np
from sklearn.base import clone

from vicinal._categories import CodedRows
from vicinal._checks import check_choice, check_flag, check_integer, check_random_state
from vicinal._compare.folds import Rows, usable_dimensions
from vicinal._compare.methods import (
    Columns,
    Method,
    density_methods,
    metric_dimensions,
    metric_methods,
    own_density,
    own_metric,
)
from vicinal._compare.rows import ComparedTable, ComparedTargets, make_folds, note_twins, read_targets, sample_rows
from vicinal._detect.imputer import DensityImputer
from vicinal._engine import Engine, as_engine
from vicinal._rows import check_array, check_magnitude
from vicinal._tables import array_types, describe_types
from vicinal._words import shown

MISSING = ("refuse", "impute", "marginalise")
# Settings that are not listed, because they say nothing.
_UNSAID: dict[str, Any] = {"task": None, "types": {}, "log": [], "missing": "refuse", "fast": False, "engine": Engine()}
_FEWEST_ROWS = 10
# There are dozens of fits, so compiled kernels are worthwhile for fewer rows than with a single pass.
_LOAD_COMPILED = 200
_FAST_FOLDS, _FAST_ROWS, _FAST_FIT_ROWS = 5, 3_000, 500
_FAST_NOTE = (
    f"This is a fast comparison: one round of folds, at most {_FAST_ROWS:,} rows compared and {_FAST_FIT_ROWS} rows fitted. In a full "
    "comparison, intervals are narrower and methods learn from more rows."
)


def _checked(options: SimpleNamespace) -> SimpleNamespace:
    """Return the arguments of `compare`; with `fast`, the numbers are lower. None and a RandomState give a seed."""
    if options.missing is not None:
        check_choice(options.missing, "missing", MISSING)
    for name in ("n_neighbors", "n_splits", "max_rows", "fit_rows"):
        check_integer(getattr(options, name), name, least=2 if name == "n_splits" else 1)
    if not isinstance(options.random_state, Integral):
        options.random_state = int(check_random_state(options.random_state).randint(2**31 - 1))
    if check_flag(options.fast, "fast"):
        options.n_splits, options.n_repeats = min(options.n_splits, _FAST_FOLDS), 1
        options.max_rows = min(options.max_rows, _FAST_ROWS)
        options.fit_rows = min(options.fit_rows, _FAST_FIT_ROWS)
    return options


@dataclass
class Plan:
    """The plan of a comparison.

    X : the rows that are compared, with NaN for missing values
    kept : their positions in the table
    names, kinds : the names and the kinds of the columns
    targets : None without y
    splits : (training rows, held-out rows) of each fold
    metrics, densities : the chosen methods
    settings : the arguments that reproduce the comparison
    notes : sentences about the treatment of the rows
    """

    X: np.ndarray
    kept: np.ndarray
    names: list[str]
    kinds: list[Any]
    targets: ComparedTargets | None
    options: SimpleNamespace
    splits: list[tuple[np.ndarray, np.ndarray]]
    notes: list[str]
    metrics: list[Method] = field(default_factory=list)
    densities: list[Method] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.columns = Columns.of(self.kinds)
        self._imputed: dict[int, Rows] = {}  # because imputing takes longer than copying

    def rows_of(self, fold: int) -> Rows:
        """Return the rows of a fold, with missing values filled in except for densities that learn from rows with missing values."""
        if fold in self._imputed:
            return self._imputed[fold]
        rows = self._rows_of(fold)
        if np.isnan(self.X).any():
            self._imputed[fold] = rows
        return rows

    @property
    def n_train(self) -> int:
        """The number of training rows of a fold."""
        return len(self.splits[0][0])

    @property
    def n_fitted(self) -> int:
        """The number of rows that costly methods are fitted to."""
        return min(self.options.fit_rows, self.n_train)

    @property
    def classes(self) -> list[str]:
        """The names of the classes; empty if there are no classes."""
        return [] if self.targets is None or self.targets.classes is None else self.targets.classes

    @property
    def discreteness(self) -> str | None:
        """Why no density is judged, if the user includes columns whose values repeat; otherwise None."""
        tied = [(n, kind.tied) for n, kind in zip(self.names, self.kinds, strict=True) if kind.measured and kind.tied]
        if not tied:
            return None
        name, share = max(tied, key=lambda item: item[1])
        return (
            f"{100 * share:.0f} % of the rows repeat a value of {name!r}, whose values fill no even steps, so that a density can "
            "be made arbitrarily high"
        )

    def _rows_of(self, fold: int) -> Rows:
        train, test = self.splits[fold]
        codes = None if self.targets is None else self.targets.codes
        fit = np.arange(len(train))
        if len(train) > self.options.fit_rows:
            seed = self.options.random_state + fold
            fit = sample_rows(len(train), None if codes is None else codes[train], self.options.fit_rows, seed, [])
        X_train, X_test = self.X[train], self.X[test]
        known_train, known_test, judged = X_train, X_test, ~np.isnan(X_test).any(axis=1)
        if np.isnan(X_train).any() or not judged.all():
            imputer, filled, known = DensityImputer(), np.array(X_train), X_train[fit]
            levels: dict[int, list[str]] = {k: [] for k in self.columns.levels}
            filled[fit] = imputer.fit_transform(CodedRows(known, np.array(self.names), levels) if levels else known)
            rest = np.setdiff1d(np.arange(len(train)), fit)
            if len(rest):
                filled[rest] = imputer.transform(X_train[rest])
            X_train, X_test = filled, imputer.transform(X_test)
        if self.options.missing == "marginalise":
            judged = ~np.isnan(known_test[:, [*self.columns.measured, *self.columns.levels]]).all(axis=1)
        else:
            known_train, known_test = X_train, X_test
        y_train, y_test = (None, None) if self.targets is None else (self.targets.y[train], self.targets.y[test])
        return Rows(X_train, X_test, y_train, y_test, fit, known_train, known_test, judged)


def make_plan(table: ComparedTable, options: SimpleNamespace) -> Plan:
    """Check the arguments of `compare`, and decide what will be done."""
    X, y = table.X, table.y
    names = [str(name) for name in X.columns] if hasattr(X, "columns") else None
    options = _checked(options)
    finite = True if options.missing == "refuse" else "allow-nan"
    X = check_array(X, dtype=np.float64, input_name="X", ensure_all_finite=finite)
    if options.missing is None:
        options.missing = "marginalise" if np.isnan(X).any() else "refuse"
    if len(X) < _FEWEST_ROWS:
        raise ValueError(
            f"a comparison needs at least {_FEWEST_ROWS} rows, got {len(X)}. With fewer rows, methods cannot be distinguished."
        )
    check_magnitude(np.nan_to_num(X))
    names = [f"x{i}" for i in range(X.shape[1])] if names is None else names
    kinds, asked = table.kinds, dict(options.types or {})
    if kinds is None:
        kinds, found = array_types(X, names, options.types), array_types(X, names)
        asked = {n: kind.spec for n, kind, other in zip(names, kinds, found, strict=True) if kind.spec != other.spec}
    notes: list[str] = [*table.notes, *([_FAST_NOTE] if options.fast else [])]
    seed = options.random_state
    targets = None if y is None else read_targets(y, len(X), options.task, notes)
    kept = sample_rows(len(X), None if targets is None else targets.codes, options.max_rows, seed, notes)
    targets = None if targets is None else targets.take(kept)
    X = X[kept]
    note_twins(X[~np.isnan(X).any(axis=1)], notes)
    splits, options.n_splits, options.n_repeats = make_folds(
        X, None if targets is None else targets.codes, options.n_splits, options.n_repeats, seed, notes
    )
    plan = Plan(X, kept, names, kinds, targets, options, splits, notes)
    if targets is not None:
        options.n_neighbors = min(options.n_neighbors, plan.n_train)
    asked_engine = as_engine(options.engine)
    n_dimensions = _choose_methods(plan, _fit_engine(asked_engine, plan.n_train))
    _note_what_is_done(plan, n_dimensions)
    options.task, options.types, options.engine = None if targets is None else targets.task, asked, asked_engine
    options.log = list(options.log)
    options.metrics, options.densities = (
        _wanted(options.metrics, plan.metrics),
        _wanted(options.densities, plan.densities),
    )
    plan.settings = {
        name: value for name, value in vars(options).items() if name not in _UNSAID or value != _UNSAID[name]
    }
    return plan


def _fit_engine(engine: Engine, n_train: int) -> Engine | None:
    """Return the engine of the fits; None if the user has not set one, as in an estimator."""
    if engine.kind == "auto" and n_train > _LOAD_COMPILED:
        engine = replace(engine, kind="cpu")
    return None if engine == Engine() else engine


def _choose_methods(plan: Plan, engine: Engine | None) -> int:
    """Set the methods of a plan; return the number of dimensions of the densities."""
    options, columns, n_dimensions = plan.options, plan.columns, len(plan.columns.measured)
    if plan.targets is not None:
        known = metric_methods(columns, plan.n_fitted, options.random_state, engine, plan.targets.task)
        plan.metrics = _choose(options.metrics, known, "metrics", own_metric)
    learnable = columns.measured or columns.levels
    if learnable and (options.densities is None or len(options.densities)):
        if columns.measured and options.missing != "marginalise":  # rows with gaps have no principal components
            # The smallest number over the folds: log-likelihoods in different dimensions have no common mean.
            n_dimensions = min(
                usable_dimensions(rows.X_train[rows.fit][:, columns.measured])
                for rows in map(plan.rows_of, range(len(plan.splits)))
            )
        known = density_methods(columns, n_dimensions, options.random_state, engine)
        own = partial(own_density, columns=columns, n_dimensions=n_dimensions, seed=options.random_state)
        plan.densities = _choose(options.densities, known, "densities", own)
    if not plan.metrics and not plan.densities:
        why = (
            "no density was requested"
            if learnable
            else f"no column holds quantities or levels ({describe_types(zip(plan.names, plan.kinds, strict=True))})"
        )
        raise ValueError(f"there is nothing to compare, because metrics need y, and {why}.")
    return n_dimensions


def _choose(wanted: Any, known: dict[str, Method], name: str, make_own: Callable[[str, Any], Method]) -> list[Method]:
    """Return the methods to compare: all that need no request, some by name, or the plain ones besides the caller's own."""
    if wanted is None:
        return [method for method in known.values() if not method.on_request]
    if isinstance(wanted, Mapping):
        plain = [method for method in known.values() if not method.learned and not method.repeats]
        return plain + [make_own(str(key), estimator) for key, estimator in wanted.items()]
    if isinstance(wanted, str):
        wanted = [wanted]
    unknown = [key for key in wanted if key not in known]
    if unknown:
        raise ValueError(f"{name} must be among {', '.join(known)}, got {', '.join(map(repr, unknown))}.")
    # A learned method must not be better than plain ones because of its columns, so these also run on its columns.
    return [
        method
        for key, method in known.items()
        if key in wanted or (method.repeats in wanted and set(method.beside) & set(wanted))
    ]


def _wanted(wanted: Any, chosen: list[Method]) -> list[str] | dict[str, Any]:
    """Return the argument that chooses these methods again: names, or the caller's own estimators by name."""
    if isinstance(wanted, Mapping) and chosen:
        return {str(name): clone(estimator) for name, estimator in wanted.items()}
    return [method.name for method in chosen]


def _note_what_is_done(plan: Plan, n_dimensions: int) -> None:
    """Add notes about missing values, rounded columns and limits of the cost."""
    notes, n_train, n_fitted = plan.notes, plan.n_train, plan.n_fitted
    n_features, n_measured = len(plan.columns.of_metrics), len(plan.columns.measured)
    incomplete = int(np.isnan(plan.X).any(axis=1).sum())
    if incomplete:
        judged = {
            "impute": "densities are evaluated on the complete held-out rows",
            "marginalise": "densities are learned from and evaluated on the known values of the rows",
        }[plan.options.missing]
        imputed = plan.metrics or plan.options.missing == "impute"
        filled = (
            ". Elsewhere they were filled in by DensityImputer, fitted to the training rows of each fold"
            if imputed
            else ""
        )
        notes.append(f"{incomplete:,} of the {len(plan.X):,} rows have missing values; {judged}{filled}.")
    slow = [method.label for method in plan.metrics if method.costly]
    costly = f"{', '.join(slow)} {'was' if len(slow) == 1 else 'were'}"
    if n_fitted < n_train and slow:
        notes.append(
            f"{costly} fitted to {n_fitted:,} of the {n_train:,} training rows of each fold; neighbours were searched among "
            "all."
        )
    if n_fitted < n_train and plan.densities:
        notes.append(f"All densities were fitted to {n_fitted:,} of the {n_train:,} training rows of each fold.")
    n_leading = metric_dimensions(n_features, n_fitted)
    if plan.metrics and n_leading < n_features:
        notes.append(
            f"LCA, LCA-Gauss, NCA and PCA-whitening used the {n_leading} leading principal components of the {n_features:,} "
            "standardised columns, computed on the training rows."
        )
    levels = [plan.names[j] for j in plan.columns.levels]
    if plan.densities and levels:
        notes.append(
            f"All densities are of the same columns: the quantities, and the categories {shown(levels)}. LCA and Parzen windows learn how these "
            "belong together; the others take the categories as independent."
        )
    if plan.densities and n_dimensions < n_measured:
        notes.append(
            f"Densities used the {n_dimensions} leading principal components of the {n_measured:,} standardised columns (dependent "
            "columns, or too few rows for so many columns)."
        )
    if plan.densities and any(plan.columns.steps):
        notes.append(
            f"{sum(map(bool, plan.columns.steps))} of the {n_measured:,} columns that densities used are rounded and got noise of "
            "one step; log-likelihoods are means over 8 draws of the noise."
        )
