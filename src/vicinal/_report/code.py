"""The Python code that reproduces a report's figures, generated from the comparison and its estimators."""

from typing import Any

import numpy as np
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline

from vicinal._compare.estimator_code import CodeWriter, laid_out
from vicinal._compare.folds import steps_of
from vicinal._compare.results import Comparison


def reproducing_code(comparison: Comparison, loading: str | None, X: np.ndarray, y: np.ndarray | None) -> str:
    """Return a script that reproduces the verdict, and fits the best learned metric and density.

    Parameters
    ----------
    comparison : Comparison
    loading : str or None
        Code that makes X and y.
    X, y : arrays
        The data that were compared; y is None if no metrics were.
    """
    writer, has_labels = CodeWriter(), comparison.task is not None
    writer.import_module("vicinal")
    parts = [
        loading or ("# X: the table of features, y: the target" if has_labels else "# X: the table of features"),
        _comparing(comparison, writer, has_labels),
    ]
    if comparison.best["metric"] is not None:
        parts.append(_predicting(comparison, writer, X, y))
    if comparison.best["density"] is not None:
        parts.append(_density(comparison, writer, X))
    gaps = [_comment(f"to be filled in: {gap}") for gap in dict.fromkeys(writer.gaps)]
    return "\n\n".join(["\n".join([*writer.import_lines(), *gaps]), *parts]) + "\n"


def _comparing(comparison: Comparison, writer: CodeWriter, has_labels: bool) -> str:
    settings = dict(comparison.settings)
    if not has_labels:
        settings.pop("metrics")
    arguments = ["X", *(["y"] if has_labels else [])]
    arguments += [f"{name}={writer.expression(value, name)}" for name, value in settings.items()]
    return (
        f"# the figures of this report\n{laid_out('comparison = vicinal.compare(', arguments, ')')}\nprint(comparison)"
    )


def _predicting(comparison: Comparison, writer: CodeWriter, X: np.ndarray, y: np.ndarray | None) -> str:
    """Return the best learned metric before k nearest neighbours, which is what the comparison cross-validated."""
    name = comparison.best["metric"]
    numbers = comparison.task == "numbers"
    neighbors = (KNeighborsRegressor if numbers else KNeighborsClassifier)(comparison.n_neighbors)
    kind = "regressor" if numbers else "classifier"
    metric, remarks = _for_all_rows(comparison, "metric", name, X, y)
    estimator = make_pipeline(*steps_of(metric), neighbors)
    return "\n".join(
        [
            _comment(f"the best learned metric, {name}, in a {kind}"),
            *remarks,
            f"{kind} = {writer.expression(estimator, name)}",
            f"{kind}.fit(X, y)",
        ]
    )


def _density(comparison: Comparison, writer: CodeWriter, X: np.ndarray) -> str:
    name = comparison.best["density"]
    density, remarks = _for_all_rows(comparison, "density", name, X)
    return "\n".join(
        [
            _comment(f"the best learned density, {name}, for new rows; in the units of the data a log-density is"),
            _comment("vicinal.tables.score_rows(density, rows), averaged over the noise on rounded columns"),
            *remarks,
            f"density = {writer.expression(density, name)}",
            "density.fit(X)",
        ]
    )


def _for_all_rows(
    comparison: Comparison, kind: str, name: str, X: np.ndarray, y: np.ndarray | None = None
) -> tuple[Any, list[str]]:
    """Return the estimator that was compared, and comments on how its fits in the comparison differ from a fit to all rows."""
    result, settings = comparison.result(kind, name), comparison.settings
    method = comparison.methods[kind][name]
    estimator, remarks = comparison.estimator(kind, name), []
    if result.note:
        remarks.append(_comment(f"(in the comparison it {result.note})"))
    # The largest training fold.
    n_train = comparison.n_rows - comparison.n_rows // settings["n_splits"]
    if (kind == "density" or method.costly) and n_train > settings["fit_rows"]:
        remarks.append(
            _comment(f"(the comparison fitted it to {settings['fit_rows']:,} of the training rows of each fold)")
        )
    return estimator, remarks


def _comment(text: str) -> str:
    """Return a comment of one line, even if names in it contain line breaks."""
    return "# " + " ".join(text.split())
