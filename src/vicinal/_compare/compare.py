"""Would a learned metric or density help on these data?  A cross-validated comparison that says so either way."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike
from sklearn.base import clone

from vicinal._checks import check_array, check_choice, check_flag, check_integer, check_magnitude
from vicinal._compare.folds import Fits, Outcome, Rows, density_outcome, metric_outcome, usable_dimensions
from vicinal._compare.judging import judge, method_results
from vicinal._compare.methods import (
    Columns,
    density_methods,
    metric_dimensions,
    metric_methods,
    own_density,
    own_metric,
)
from vicinal._compare.results import Comparison
from vicinal._compare.rows import make_folds, note_twins, read_targets, sample_rows
from vicinal._compare.words import verdict_sentence
from vicinal._engine import Engine, as_engine
from vicinal._lca.folds import shared_searches
from vicinal._lca.imputer import DensityImputer
from vicinal._tables import array_types, describe_types

_FEWEST_ROWS = 10
# Dozens of fits follow: compiled kernels are worth loading well before they are for a single pass.
_LOAD_COMPILED = 200
_FAST_ROWS, _FAST_FIT_ROWS = 3_000, 500
_FAST_NOTE = (
    f"A fast comparison: one round of folds, at most {_FAST_ROWS:,} rows compared and {_FAST_FIT_ROWS} rows fitted. Leave "
    "fast out for narrower intervals and for what the methods learn from more rows."
)


def compare(
    X: ArrayLike,
    y: ArrayLike | None = None,
    *,
    task: str = "auto",
    types: Mapping[Any, Any] | None = None,
    missing: str = "refuse",
    metrics: Any = None,
    densities: Any = None,
    n_neighbors: int = 5,
    n_splits: int = 5,
    n_repeats: int | None = None,
    max_rows: int = 20_000,
    fit_rows: int = 4_000,
    fast: bool = False,
    random_state: RandomState | int | None = 0,
    engine: Engine | str | None = None,
    progress: Any = None,
) -> Comparison:
    """Compare metrics and densities by cross-validation.

    Everything that is fitted (scaling, whitening, the metric or density) sees the training folds only. Metrics are
    judged by the accuracy of k nearest neighbours, or by R² where the target is a number: held-out rows are the queries,
    the training rows are searched.
    Densities are judged by the mean log-likelihood of held-out rows. Learned methods are set against the best plain
    method on the same folds, with intervals that hold for all of them at once (`corrected_interval`).

    Parameters
    ----------
    X : array-like of shape (n, n_features)
    y : array-like of shape (n,), optional
        Classes, or numbers to predict. Without it only densities are compared.
    task : {"auto", "classes", "numbers"}, default="auto"
        What y holds. "auto" takes numbers with fractions as numbers, and whole ones too when they have more than 20
        values with fewer than 10 rows each on average; anything else as classes.
    types : dict, optional
        What kind columns are of, by name (or position), where you know better than
        :func:`vicinal.tables.column_types`; in its notation. Densities, LCA and LCA-Gauss are learned from amounts:
        continuous columns and lattices. Columns of two values, identifiers and columns that count the rows are kept out
        of them; ``types={"coin": "lattice"}`` lets one in.
    missing : {"refuse", "impute"}, default="refuse"
        With "impute", missing values (NaN) of training rows and of held-out rows are filled in by a
        :class:`DensityImputer` that is fitted to the training rows of the fold. Densities are judged by the held-out rows
        that are complete: of others a part would be the imputer's own work.
    metrics, densities : None, list of str or dict, optional
        Which ones: names (see Notes), or a dict of your own unfitted estimators by name, to be judged besides the plain
        methods. None compares all, an empty list none.
    n_neighbors : int, default=5
        Neighbours that vote.
    n_splits : int, default=5
        Folds; fewer if the classes are small.
    n_repeats : int, optional
        Repetitions with other folds; the default is 3 up to 1,000 rows, 2 up to 3,000, then 1.
    max_rows : int, default=20_000
        Larger sets are represented by a random sample of so many rows, classes in proportion.
    fit_rows : int, default=4_000
        Methods whose cost grows with the square of the rows are fitted to so many rows of the training fold; densities
        all see the same ones. Neighbours are searched among all rows of the training fold.
    fast : bool, default=False
        A first answer: at most 5 folds, no repetitions, at most 3,000 rows compared and 500 rows fitted. Fewer rows favour
        methods that have little to learn, and fewer folds make the intervals wider; the notes say what was done.
    random_state : int, default=0
    engine : None, str or Engine, default=None
    progress : callable, optional
        Called as ``progress(done, total, text)``.

    Returns
    -------
    Comparison

    Notes
    -----
    Metrics: euclidean, z-scored, pca-whitened, lda (plain); rca, lca, lca-gauss, nca (learned). Densities: gaussian,
    parzen-scott, parzen-loo (plain); lca, lca-gauss, manifold-parzen (learned). Log-likelihoods are in the units of the
    data, although the columns are standardised first. Rounded columns get noise of one step while a density is learned
    and scored (:class:`Dequantizer`, 8 draws per held-out row); neighbours are searched among rows without noise.

    A method is "not judged" where some of its fits did not converge or needed a penalty to have an answer, and no
    density is judged where a continuous column repeats its values: such scores can be made as high as one likes.

    Where the target is a number, partial least squares (pls) takes the place of lda, NCA's rows agree by how close their
    numbers are (``Objective(match="gaussian")``), RCA learns from ten groups of equal size (:class:`BinnedTargetMetric`), and metrics are judged by
    :math:`R^2 = 1 - \\mathrm{MSE} / \\operatorname{Var}(y_\\text{train})` of the mean of k neighbours.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> import vicinal
    >>> X, y = load_wine(return_X_y=True)
    >>> result = vicinal.compare(X, y, metrics=["euclidean", "z-scored", "rca"], densities=[], n_repeats=1)
    >>> print(result.verdict)
    RCA did not clearly help: it has a held-out 5-nearest-neighbour accuracy of 98.3 % where plain z-scored has 96.1 %, ...
    """
    names = [str(name) for name in X.columns] if hasattr(X, "columns") else None
    check_choice(missing, "missing", ("refuse", "impute"))
    X = check_array(X, dtype=np.float64, input_name="X", ensure_all_finite="allow-nan" if missing == "impute" else True)
    n_features = X.shape[1]
    if len(X) < _FEWEST_ROWS:
        raise ValueError(f"a comparison needs at least {_FEWEST_ROWS} rows, got {len(X)}: fewer tell nothing apart.")
    check_magnitude(np.nan_to_num(X))
    _check_integers(n_neighbors=n_neighbors, n_splits=n_splits, max_rows=max_rows, fit_rows=fit_rows)
    check_flag(fast, "fast")
    if fast:
        n_splits, n_repeats = min(n_splits, 5), 1
        max_rows, fit_rows = min(max_rows, _FAST_ROWS), min(fit_rows, _FAST_FIT_ROWS)
    names = [f"x{i}" for i in range(X.shape[1])] if names is None else names
    kinds = array_types(X, names, types)
    columns, asked = Columns.of(kinds), _asked_types(X, names, kinds)
    notes: list[str] = [_FAST_NOTE] if fast else []
    targets = None if y is None else read_targets(y, len(X), task, notes)
    kept = sample_rows(len(X), None if targets is None else targets.codes, max_rows, random_state, notes)
    targets = None if targets is None else targets.take(kept)
    codes = None if targets is None else targets.codes
    classes = [] if targets is None or targets.classes is None else targets.classes
    sampled = X[kept]
    incomplete = np.isnan(sampled).any(axis=1)
    note_twins(sampled[~incomplete], notes)
    X = sampled
    splits, n_splits, n_repeats = make_folds(X, codes, n_splits, n_repeats, random_state, notes)
    n_train = len(splits[0][0])
    asked_engine = engine = as_engine(engine)
    if engine.kind == "auto" and n_train > _LOAD_COMPILED:
        engine = replace(engine, kind="cpu")
    if engine == Engine():
        engine = None  # as in an estimator that nobody has set an engine for
    if targets is not None:
        n_neighbors = min(n_neighbors, n_train)

    def rows_of(fold):
        train, test = splits[fold]
        return _rows_of_fold(X, targets, train, test, fit_rows, random_state + fold)

    if incomplete.any():
        rows_of = cache(rows_of)  # imputing takes longer than copying
        notes.append(
            f"{incomplete.sum():,} of the {len(kept):,} rows have missing values, which were filled in by DensityImputer, fitted to "
            "the training rows of each fold; densities are judged by the complete held-out rows."
        )

    chosen_metrics, chosen_densities = [], []
    if targets is not None:
        known = metric_methods(columns, min(fit_rows, n_train), random_state, engine, targets.task)
        chosen_metrics = _choose(metrics, known, "metrics", own_metric)
    if columns.measured and (densities is None or len(densities)):
        # The smallest number over the folds: log-likelihoods in different dimensions have no common mean.
        n_dimensions = min(
            usable_dimensions(rows.X_train[rows.fit][:, columns.measured]) for rows in map(rows_of, range(len(splits)))
        )
        known = density_methods(columns, n_dimensions, random_state, engine)
        prepared = {"columns": columns, "n_dimensions": n_dimensions, "seed": random_state}
        chosen_densities = _choose(densities, known, "densities", partial(own_density, **prepared))
    if not chosen_metrics and not chosen_densities:
        why = "densities is empty" if columns.measured else f"no column holds amounts ({_left_out(names, kinds)})"
        raise ValueError(f"there is nothing to compare: metrics need y, and {why}.")
    total = len(splits) * (len(chosen_metrics) + len(chosen_densities))
    tell = _counter(progress, total)

    outcomes: dict[tuple[str, str], list[Outcome]] = {}
    for fold, methods in _in_order(chosen_metrics, chosen_densities, len(splits)):
        rows, fits = rows_of(fold), Fits()
        with shared_searches():
            for kind, method in methods:
                tell(f"{kind} {method.label}, fold {fold + 1} of {len(splits)}")
                if kind == "metric":
                    outcome = metric_outcome(method, rows, n_neighbors, len(classes) or None, fits)
                else:
                    outcome = density_outcome(method, rows, fits)
                outcomes.setdefault((kind, method.name), []).append(outcome)
    tell(None)

    share = len(splits[0][1]) / n_train
    tied = [(name, kind.tied) for name, kind in zip(names, kinds, strict=True) if kind.measured and kind.tied]
    results = {
        kind: method_results(kind, chosen, outcomes, share, _discreteness(tied) if kind == "density" else None)
        for kind, chosen in (("metric", chosen_metrics), ("density", chosen_densities))
    }
    _note_costs(n_train, fit_rows, chosen_metrics, chosen_densities, notes)
    n_measured, n_leading = len(columns.measured), metric_dimensions(n_features, min(fit_rows, n_train))
    if chosen_metrics and n_leading < n_features:
        notes.append(
            f"LCA, LCA-Gauss, NCA and PCA-whitening saw the {n_leading} leading principal components of the {n_features:,} "
            "standardised columns, computed on the training rows."
        )
    if chosen_densities and n_dimensions < n_measured:
        notes.append(
            f"Densities saw the {n_dimensions} leading principal components of the {n_measured:,} standardised columns (dependent "
            "columns, or too few rows for so many columns)."
        )
    if chosen_densities and any(columns.steps):
        notes.append(
            f"{sum(map(bool, columns.steps))} of the {n_measured:,} columns that densities saw are rounded, and got noise of one "
            "step; log-likelihoods are means over 8 draws of it."
        )
    judged = {kind: judge(found) for kind, found in results.items()}
    summary = {
        "helped": {kind: found[0] for kind, found in judged.items()},
        "reference": {kind: found[1] for kind, found in judged.items()},
        "best": {kind: found[2] for kind, found in judged.items()},
    }
    return Comparison(
        metrics=results["metric"],
        densities=results["density"],
        verdict=verdict_sentence(results, n_neighbors=n_neighbors, left_out=_left_out(names, kinds), **summary),
        n_rows=len(kept),
        n_features=n_features,
        n_neighbors=n_neighbors,
        n_folds=len(splits),
        task=None if targets is None else targets.task,
        classes=classes,
        largest_class=None if codes is None else float(np.bincount(codes).max() / len(codes)),
        notes=notes,
        types=dict(zip(names, kinds, strict=True)),
        settings={
            **({} if targets is None else {"task": targets.task}),
            **({"types": asked} if asked else {}),
            **({"missing": missing} if missing != "refuse" else {}),
            "metrics": _wanted(metrics, chosen_metrics),
            "densities": _wanted(densities, chosen_densities),
            "n_neighbors": n_neighbors,
            "n_splits": n_splits,
            "n_repeats": n_repeats,
            "max_rows": max_rows,
            "fit_rows": fit_rows,
            **({"fast": True} if fast else {}),
            "random_state": random_state,
            **({} if asked_engine == Engine() else {"engine": asked_engine}),
        },
        rows=kept,
        methods={
            "metric": {method.name: method for method in chosen_metrics},
            "density": {method.name: method for method in chosen_densities},
        },
        **summary,
    )


def _in_order(metrics, densities, n_folds):
    """What is done, as (fold, methods) with methods as (kind, method): first what takes seconds, in all folds.

    The plain methods are done soon. After the first fold of the others it is known how long the rest will take.
    """
    methods = [("metric", method) for method in metrics] + [("density", method) for method in densities]
    quick = [(kind, method) for kind, method in methods if not (method.costly and method.learned)]
    slow = [entry for entry in methods if entry not in quick]
    for part in (quick, slow):
        if part:
            yield from ((fold, part) for fold in range(n_folds))


def _check_integers(**values):
    for name, value in values.items():
        check_integer(value, name, least=2 if name == "n_splits" else 1)


def _asked_types(X, names, kinds):
    """The kinds that are not those which the columns look like, as `types` takes them."""
    found = array_types(X, names)
    return {name: kind.spec for name, kind, other in zip(names, kinds, found, strict=True) if kind != other}


def _left_out(names, kinds):
    """The columns that densities and LCA do not see, by kind; empty text for none."""
    return describe_types((name, kind) for name, kind in zip(names, kinds, strict=True) if not kind.measured)


def _discreteness(tied):
    """Why no density is judged where continuous columns repeat their values; None where they do not."""
    if not tied:
        return None
    name, share = max(tied, key=lambda item: item[1])
    return (
        f"{100 * share:.0f} % of the rows repeat a value of {name!r}, whose values have no common step: a density there can be "
        "made as high as one likes"
    )


def _choose(wanted, known, name, make_own):
    """The methods to compare: all, some by name, or the plain ones besides the caller's own."""
    if wanted is None:
        return list(known.values())
    if isinstance(wanted, Mapping):
        plain = [method for method in known.values() if not method.learned]
        return plain + [make_own(str(key), estimator) for key, estimator in wanted.items()]
    if isinstance(wanted, str):
        wanted = [wanted]
    unknown = [key for key in wanted if key not in known]
    if unknown:
        raise ValueError(f"{name} must be among {', '.join(known)}, got {', '.join(map(repr, unknown))}.")
    return [known[key] for key in known if key in set(wanted)]


def _wanted(wanted, chosen):
    """The argument that chooses these methods again: names, or the caller's own estimators by name."""
    if isinstance(wanted, Mapping) and chosen:
        return {str(name): clone(estimator) for name, estimator in wanted.items()}
    return [method.name for method in chosen]


def _counter(progress, total):
    done = -1

    def tell(text):
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, total, "done" if text is None else text)

    return tell


def _rows_of_fold(X, targets, train, test, fit_rows, seed):
    fit, codes = np.arange(len(train)), None if targets is None else targets.codes
    if len(train) > fit_rows:
        fit = sample_rows(len(train), None if codes is None else codes[train], fit_rows, seed, [])
    X_train, X_test, complete = X[train], X[test], ~np.isnan(X[test]).any(axis=1)
    if np.isnan(X_train).any() or not complete.all():
        imputer = DensityImputer()
        filled = np.array(X_train)
        filled[fit] = imputer.fit_transform(X_train[fit])
        rest = np.setdiff1d(np.arange(len(train)), fit)
        if len(rest):
            filled[rest] = imputer.transform(X_train[rest])
        X_train, X_test = filled, imputer.transform(X_test)
    if targets is None:
        return Rows(X_train, X_test, None, None, fit, complete)
    return Rows(X_train, X_test, targets.y[train], targets.y[test], fit, complete)


def _note_costs(n_train, fit_rows, metrics, densities, notes):
    """Say what was done to keep the cost in bounds."""
    if n_train > fit_rows:
        names = ", ".join(method.label for method in metrics if method.costly)
        if names:
            notes.append(
                f"{names} were fitted to {fit_rows:,} of the {n_train:,} training rows of each fold; neighbours were searched among all."
            )
        if densities:
            notes.append(f"All densities were fitted to {fit_rows:,} of the {n_train:,} training rows of each fold.")
