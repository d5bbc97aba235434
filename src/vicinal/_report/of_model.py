"""A report about a fitted model and the rows of a table.

It contains no cross-validated results, because the model is fixed; the rows may be its training rows, and the page says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.preprocessing import StandardScaler

from vicinal._compare.folds import LONGEST_CURVE
from vicinal._compare.learned import images_of, learned_step, linear_map
from vicinal._compare.methods import Method
from vicinal._compare.rows import read_targets
from vicinal._notebook import FitFacts
from vicinal._plain import rounded
from vicinal._report import views
from vicinal._report.summarise import data_summary, new_summary, plane_summary
from vicinal.quality import neighbor_purity


def summarise_model(
    model: Any,
    X: np.ndarray,
    y: ArrayLike | None,
    *,
    title: str,
    feature_names: list[str],
    feature_types: Sequence[Any] | None = None,
    row_names: np.ndarray,
    outliers: dict[str, Any] | None,
    notes: Iterable[str],
    code: str,
    seed: int = 0,
) -> dict[str, Any]:
    """Return the summary of a model and some rows, for `vicinal._report.render`.

    Parameters
    ----------
    model : fitted metric or density, or Pipeline that ends in one
        It takes the features.
    X : array of shape (n, n_features)
        The features.
    y : array of shape (n,) or None
        Classes or numbers, to colour the rows with.
    feature_types : list of ColumnType, optional
        The kinds of the features, by which dates and levels are written as such.
    outliers : dict or None
        The unusual rows; see `vicinal._report.views.unusual_rows`.
    code : str
        Python code that reads the rows and the model.
    """
    estimator, notes = learned_step(model), list(notes)
    targets = None if y is None else read_targets(y, len(X), "auto", notes)
    kinds = [None] * X.shape[1] if feature_types is None else feature_types
    table, label = views.Table(X, targets, feature_names, row_names, kinds), type(estimator).__name__
    summary = new_summary(
        title=title,
        verdict=_verdict(estimator, len(X)),
        data=data_summary(table, notes),
        path=views.path_of(model, label),
        outliers=outliers,
        code=code,
    )
    metrics = {"z-scored": StandardScaler().fit(X)}
    try:
        images_of(model, X[:2])
        metrics[label] = model
    except (AttributeError, ValueError):
        return summary  # a density without a metric, or without directions
    matrix = linear_map(model, X)
    if matrix is not None and matrix.any():  # equal rows have no standard deviations
        levels = estimator._categories.positions if getattr(estimator, "_has_levels", False) else []
        numbers = np.setdiff1d(np.arange(X.shape[1]), levels)
        before, names = views.shares_before("z-scored", X[:, numbers]), [feature_names[j] for j in numbers]
        named = [feature_names[j] for j in levels]
        summary["metric"] = views.learned_metric(matrix[:, numbers], before, names, label, named)
    everyone = np.arange(len(X))
    rows, _ = views.shown_rows(len(X), everyone, seed, views.unusual_positions(summary))
    planes = [
        plane_summary(views.plane(metric, X, rows, everyone), Method(name, name, name == label, False, None))
        for name, metric in metrics.items()
    ]
    summary["views"] = views.views_summary(summary, table, planes, (0, 1), rows, None)
    if targets is not None and targets.codes is not None:
        curves = [_curve(name, metric, X, targets.codes, name == label) for name, metric in metrics.items()]
        summary["purity"] = {"curves": curves}
    return summary


def _verdict(estimator: Any, n_rows: int) -> dict[str, Any]:
    """Return what the model is, and whether its fit converged."""
    facts, fit = [], FitFacts.of(estimator)
    if fit.converged is not None:
        after = "" if fit.passes is None else f" after {fit.passes} passes"
        end = "The fit converged" if fit.converged else "The fit stopped before it converged"
        facts.append({"text": f"{end}{after}.", "state": "good" if fit.converged else "bad"})
    if fit.directions is not None:
        facts.append({"text": "It keeps {} of {} directions.".format(*fit.directions), "state": "even"})
    if fit.neighbors is not None:
        text = f"The median of the effective number of neighbours of the training rows is {fit.neighbors[1]:.3g}."
        facts.append({"text": text, "state": "even"})
    facts.append(
        {
            "text": f"The {n_rows:,} rows may be the training rows of the model, so this page does not show whether the model helps. "
            "Use vicinal compare to measure that by cross-validation.",
            "state": "even",
        }
    )
    does = "transforms" if hasattr(estimator, "transform") else "scores"
    return {
        "text": f"What {type(estimator).__name__} learned, and the rows that it {does}.",
        "state": "even",
        "details": facts,
    }


def _curve(name: str, metric: Any, X: np.ndarray, codes: np.ndarray, learned: bool) -> dict[str, Any]:
    curve = neighbor_purity(images_of(metric, X), codes, min(LONGEST_CURVE, len(X) - 1))
    return {"label": name, "learned": learned, "best": learned, "values": [rounded(value) for value in curve]}
