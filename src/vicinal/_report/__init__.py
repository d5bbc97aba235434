"""The "did it help?" report: summarise to a dict of plain values, then render one HTML file.

::

    report(X, y)  ->  compare  ->  summarise.py: dict  ->  render.py: HTML
                                     views.py  code.py       charts.py, template.html, style.css, report.js
"""

import html
import json
import os
from collections.abc import Sequence
from os import PathLike
from typing import Any

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike

from vicinal._compare.compare import compare
from vicinal._compare.results import Comparison
from vicinal._engine import Engine
from vicinal._lca.imputer import DensityImputer
from vicinal._report.summarise import summarise

__all__ = ["Report", "model_report", "report"]


class Report:
    """A report; in a notebook it shows itself.

    Attributes
    ----------
    summary : dict
        All that the report says, as plain values.
    """

    def __init__(self, summary: dict[str, Any]) -> None:
        self.summary = summary

    def __repr__(self):
        return f"<vicinal report: {self.summary['verdict']['text']}>"

    def html(self) -> str:
        """Return the report as one HTML document that needs no network."""
        from vicinal._report.render import render

        return render(self.summary)

    def json(self) -> str:
        """Return what the report says as JSON text."""
        return json.dumps(self.summary, indent=1, ensure_ascii=False, allow_nan=False)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the report to a file, replaced whole or not at all: JSON by the ending .json, else HTML."""
        from vicinal._model_files.replacing import replacing

        text = self.json() if os.fspath(path).lower().endswith(".json") else self.html()
        with replacing(path) as file:
            file.write(text.encode("utf-8"))

    def _repr_html_(self):
        document = html.escape(self.html(), quote=True)
        return (
            f'<iframe srcdoc="{document}" sandbox="allow-scripts" title="vicinal report" '
            'style="width:100%;height:820px;border:1px solid #8884;border-radius:8px"></iframe>'
        )


def report(
    X: ArrayLike,
    y: ArrayLike | None = None,
    *,
    comparison: Comparison | None = None,
    title: str = "vicinal report",
    feature_names: Sequence[str] | None = None,
    row_names: Sequence[Any] | None = None,
    notes: Sequence[str] = (),
    loading: Any = None,
    n_neighbors: int = 5,
    fast: bool = False,
    random_state: RandomState | int | None = 0,
    engine: Engine | str | None = None,
    progress: Any = None,
) -> Report:
    """Say whether a learned metric or density helps on these data, in one HTML document.

    Runs :func:`vicinal.compare` (or takes its result) and shows: the verdict in words; held-out scores before and
    after with intervals; the rows in two dimensions before and after, with each row's neighbours; neighbour purity;
    the learned metric; the convergence path; outliers with p-values; what was done to the data; and the Python code
    that does it again.

    Parameters
    ----------
    X : array-like of shape (n, n_features)
        A DataFrame gives the columns their names.
    y : array-like of shape (n,), optional
        Classes. Without them only densities are compared.
    comparison : Comparison, optional
        What ``vicinal.compare(X, y, ...)`` returned; the default is to run it.
    title : str
    feature_names : list of str, optional
        Names of the columns, where X has none.
    row_names : array-like of shape (n,), optional
        What to call the rows; by default they are numbered from 0.
    notes : list of str
        What was done to the data before, in sentences.
    loading : str, optional
        Python code that makes X and y, to stand at the top of the code in the report.
    n_neighbors : int, default=5
        Neighbours that vote, where `comparison` is not given.
    fast : bool, default=False
        As in `compare`, where `comparison` is not given.
    random_state : int, default=0
    engine : None, str or Engine
    progress : callable, optional
        As in `compare`.

    Returns
    -------
    Report
        With ``html()``, ``json()``, ``save(path)``; a notebook shows it.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> import vicinal
    >>> X, y = load_wine(return_X_y=True, as_frame=True)
    >>> result = vicinal.compare(X, y, metrics=["z-scored", "rca"], densities=[], n_repeats=1)
    >>> report = vicinal.report(X, y, comparison=result, title="wine")
    >>> print(report.summary["verdict"]["text"])
    A learned metric does not clearly help here.
    >>> report.html()[:15]
    '<!doctype html>'
    """
    if feature_names is None:
        columns = getattr(X, "columns", None)
        count = np.shape(X)[1] if np.ndim(X) == 2 else 0
        feature_names = [f"x{i}" for i in range(count)] if columns is None else [str(name) for name in columns]
    if comparison is None:
        comparison = compare(
            X, y, n_neighbors=n_neighbors, fast=fast, random_state=random_state, engine=engine, progress=progress
        )
    X = np.asarray(X, dtype=np.float64)
    if np.isnan(X).any():
        X = DensityImputer().fit_transform(X)  # for what is drawn; the figures are those of the comparison
    summary = summarise(
        X,
        y,
        comparison,
        title=str(title),
        feature_names=list(map(str, feature_names)),
        row_names=row_names,
        notes=[str(note) for note in notes],
        loading=loading,
        engine=engine,
    )
    return Report(summary)


def model_report(model: Any, X: np.ndarray, y: Any = None, **words: Any) -> Report:
    """Return what a fitted model learned, and some rows as it sees them; see `vicinal._report.of_model.summarise_model`."""
    from vicinal._report.of_model import summarise_model

    return Report(summarise_model(model, X, y, **words))
