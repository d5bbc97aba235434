"""A report about a fitted model and the rows of a table.

It contains no cross-validated results, because the model is fixed; the rows may be its training rows, and the page says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.preprocessing import StandardScaler

from vicinal._compare.folds import LONGEST_CURVE, images_of, learned_step, nearest
from vicinal._compare.methods import Method
from vicinal._compare.rows import ComparedTargets, read_targets
from vicinal._report import views
from vicinal._report.summarise import plane_summary
from vicinal._report.views import number
from vicinal._version import __version__


def summarise_model(
    model: Any,
    X: np.ndarray,
    y: ArrayLike | None,
    *,
    title: str,
    feature_names: list[str],
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
    outliers : dict or None
        The unusual rows, with all digits, as `vicinal._report.views.outliers` has them.
    code : str
        Python code that reads the rows and the model.
    """
    estimator, notes = learned_step(model), list(notes)
    targets = None if y is None else read_targets(y, len(X), "auto", notes)
    label = type(estimator).__name__
    if outliers is not None:
        unusual_rows = [
            {**row, **{name: number(row[name]) for name in ("log_density", "p_value")}} for row in outliers["rows"]
        ]
        outliers = {**outliers, "rows": unusual_rows, "typical": number(outliers["typical"])}
    summary: dict[str, Any] = {
        "title": title,
        "version": __version__,
        "verdict": _verdict(estimator, len(X)),
        "data": _data(X, targets, feature_names, notes),
        "headline": [],
        "metrics": [],
        "densities": [],
        "purity": None,
        "views": None,
        "metric": None,
        "path": views.path_of(model, label),
        "outliers": outliers,
        "next": None,
        "code": code,
    }
    metrics = {"z-scored": StandardScaler().fit(X)}
    try:
        images_of(model, X[:2])
        metrics[label] = model
    except (AttributeError, ValueError):
        return summary  # a density without a metric, or without directions
    matrix = views.linear_map(model, X)
    if matrix is not None and matrix.any():  # equal rows have no standard deviations
        summary["metric"] = views.learned_metric(matrix, views.shares_before("z-scored", X), feature_names, label)
    everyone = np.arange(len(X))
    unusual = [] if outliers is None else [row["position"] for row in outliers["rows"]]
    rows, _ = views.shown_rows(len(X), everyone, seed, unusual)
    planes = [
        plane_summary(views.plane(metric, X, rows, everyone), Method(name, name, name == label, False, ()))
        for name, metric in metrics.items()
    ]
    summary["views"] = views.views_summary(planes, 0, 1, rows, None, unusual, targets, X, feature_names, row_names)
    if targets is not None and targets.codes is not None:
        summary["purity"] = {
            "curves": [_curve(name, metric, X, targets.codes, name == label) for name, metric in metrics.items()]
        }
    return summary


def _verdict(estimator: Any, n_rows: int) -> dict[str, Any]:
    """Return what the model is, and whether its fit converged."""
    facts = []
    converged = getattr(estimator, "converged_", None)
    if converged is not None:
        passes = getattr(estimator, "n_iter_", None)
        after = "" if passes is None else f" after {passes} passes"
        end = "The fit converged" if converged else "The fit stopped before it converged"
        facts.append({"text": f"{end}{after}.", "state": "good" if converged else "bad"})
    components = getattr(estimator, "components_", None)
    if components is not None:
        facts.append({"text": f"It keeps {len(components)} of {components.shape[1]} directions.", "state": "even"})
    neighbors = getattr(estimator, "effective_neighbors_", None)
    if neighbors is not None and np.size(neighbors):
        text = f"A training row has {np.median(neighbors):.3g} effective neighbours (median)."
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


def _data(X: np.ndarray, targets: ComparedTargets | None, feature_names: list[str], notes: list[str]) -> dict[str, Any]:
    classes = [] if targets is None or targets.classes is None else targets.classes
    codes = None if targets is None else targets.codes
    counts = [] if codes is None else np.bincount(codes, minlength=len(classes)).tolist()
    values = None if targets is None else targets.values
    return {
        "rows": len(X),
        "columns": X.shape[1],
        "names": feature_names[: views.MOST_COLUMNS_SHOWN],
        "folds": None,
        "neighbors": None,
        "largest_class": max(counts) / len(X) if counts else None,
        "task": None if targets is None else targets.task,
        "target": None
        if values is None
        else {"low": number(values.min()), "high": number(values.max()), "mean": number(values.mean())},
        "classes": [{"name": name, "count": c} for name, c in zip(classes, counts, strict=True)],
        "notes": notes,
    }


def _curve(name: str, metric: Any, X: np.ndarray, codes: np.ndarray, learned: bool) -> dict[str, Any]:
    """Return the share of the first k neighbours among the other rows that have the same class, k = 1, 2, ..."""
    found = nearest(images_of(metric, X), None, min(LONGEST_CURVE, len(X) - 1))
    right = (codes[found] == codes[:, None]).mean(axis=0)
    curve = right.cumsum() / np.arange(1, len(right) + 1)
    return {"label": name, "learned": learned, "best": learned, "values": [number(value) for value in curve]}
