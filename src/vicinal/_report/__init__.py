"""The report on whether a learned metric or density helped: a dict of plain values, rendered as one HTML file.

::

    report(X, y)  ->  compare  ->  summarise.py: dict  ->  render.py: HTML
                                     views.py  code.py       templates, charts and style: vicinal/_pages

    a fitted model and some rows  ->  of_model.py: dict  ->  render.py: HTML
"""

from __future__ import annotations

import html
import json
import os
from collections.abc import Sequence
from os import PathLike
from typing import Any

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike

from vicinal._categories import CodedRows
from vicinal._compare.compare import compare
from vicinal._compare.results import Comparison
from vicinal._compare.rows import open_table
from vicinal._detect.imputer import DensityImputer
from vicinal._engine import Engine
from vicinal._report.summarise import summarise
from vicinal._report.views import unusual_rows

__all__ = ["Report", "model_report", "report", "unusual_rows"]


class Report:
    """A report, which notebooks display directly.

    Attributes
    ----------
    summary : dict
        The whole content of the report, as plain values.
    """

    def __init__(self, summary: dict[str, Any]) -> None:
        self.summary = summary

    def __repr__(self) -> str:
        return f"<vicinal report: {self.summary['verdict']['text']}>"

    def html(self) -> str:
        """Return the report as one HTML document that needs no network."""
        from vicinal._report.render import render

        return render(self.summary)

    def json(self) -> str:
        """Return the content of the report as JSON text."""
        return json.dumps(self.summary, indent=1, ensure_ascii=False, allow_nan=False)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the report to a file, as JSON if its extension is .json, otherwise as HTML.

        The file is replaced completely or not at all.
        """
        from vicinal._model_files.replacing import replacing

        text = self.json() if os.fspath(path).lower().endswith(".json") else self.html()
        with replacing(path) as file:
            file.write(text.encode("utf-8"))

    def _repr_html_(self) -> str:
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
    row_names: ArrayLike | None = None,
    notes: Sequence[str] = (),
    loading: Any = None,
    n_neighbors: int = 5,
    fast: bool = False,
    random_state: RandomState | int | None = 0,
    engine: Engine | str | None = None,
    progress: Any = None,
) -> Report:
    """Report in one HTML document whether a learned metric or density helps on these data.

    The function runs :func:`vicinal.compare` (or uses its result). The report shows the verdict in words; held-out scores
    before and after with intervals; the rows in two dimensions before and after, with each row's neighbours; neighbour
    purity; the learned metric; the objective after each pass; outliers with p-values; the preparation of the data; and the
    Python code that reproduces it.

    Parameters
    ----------
    X : array-like of shape (n, n_features)
        The rows. The columns of a DataFrame have names.
    y : array-like of shape (n,), optional
        Classes or numbers. Without them, only densities are compared.
    comparison : Comparison, optional
        The result of ``vicinal.compare(X, y, ...)``; the default is to run it.
    title : str
        The title of the page.
    feature_names : list of str, optional
        The names of the columns, if X has none.
    row_names : array-like of shape (n,), optional
        The names of the rows; by default they are numbered from 0.
    notes : list of str
        Sentences about the preparation of the data.
    loading : str, optional
        Python code that creates X and y, for the top of the code in the report.
    n_neighbors : int, default=5
        The number of neighbours that predict a row, if `comparison` is not given.
    fast : bool, default=False
        As in `compare`, if `comparison` is not given.
    random_state : int, RandomState or None, default=0
        The seed of the comparison and of the split whose rows are drawn.
    engine : None, str or Engine
        The backend of the pairwise computations; see :class:`vicinal.Engine`.
    progress : callable, optional
        As in `compare`.

    Returns
    -------
    Report
        An object with ``html()``, ``json()`` and ``save(path)``, which notebooks display directly.

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
    if comparison is None:
        comparison = compare(
            X,
            y,
            n_neighbors=n_neighbors,
            fast=fast,
            random_state=random_state,
            engine=engine,
            progress=progress,
        )
    settings = comparison.settings
    table = open_table(X, y, settings.get("types"), settings.get("log", ()), settings.get("missing"))
    X, y = table.X, table.y
    if feature_names is None:
        columns = getattr(X, "columns", None)
        count = np.shape(X)[1] if np.ndim(X) == 2 else 0
        feature_names = [f"x{i}" for i in range(count)] if columns is None else [str(name) for name in columns]
    X = np.asarray(X, dtype=np.float64)
    if np.isnan(X).any():  # filled in only for the pictures; the figures are those of the comparison
        levels = {k: kind.levels for k, kind in enumerate(comparison.types.values()) if kind.has_levels}
        rows: Any = CodedRows(X, np.array(feature_names, dtype=object), levels) if levels else X
        X = np.asarray(DensityImputer().fit_transform(rows), dtype=np.float64)
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
    """Return a report about a fitted model and some rows; see `vicinal._report.of_model.summarise_model`."""
    from vicinal._report.of_model import summarise_model

    return Report(summarise_model(model, X, y, **words))
