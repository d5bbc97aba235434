"""The parts of a report that come from single fits: the planes, the learned metric, its objective, and outliers.

These fits are made once, on the training rows of one split; scores come only from the folds of the comparison.
"""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.decomposition import PCA
from sklearn.model_selection import train_test_split

from vicinal._categories import CodedRows
from vicinal._compare.folds import Fits, fitted, nearest
from vicinal._compare.learned import images_of, learned_step
from vicinal._compare.methods import Columns, Method
from vicinal._compare.rows import ComparedTargets
from vicinal._detect.explanation import explain
from vicinal._detect.numbers import ColumnLevels, ColumnNumbers
from vicinal._lca.penalty_search import shared_searches
from vicinal._notebook import column_shares
from vicinal._plain import rounded

if TYPE_CHECKING:
    import pandas as pd

    from vicinal._detect.outliers import DensityOutlierDetector


MOST_POINTS = 1_000
MOST_COLUMNS_SHOWN = 40
MOST_IN_HEATMAP = 24
_NEIGHBORS_SHOWN = 10
_HELD_OUT = 0.3


class Table(NamedTuple):
    """The rows of a report, with what they are called."""

    X: np.ndarray
    targets: ComparedTargets | None
    columns: list[str]
    names: np.ndarray
    kinds: Sequence[Any]  # ColumnType, or None where it is not known

    def written(self, columns: Sequence[int]) -> list[ColumnLevels | ColumnNumbers]:
        """Return how the values of some columns are written: dates, levels and the numbers of logarithms as in the table."""
        return [_written(self.kinds[j], self.X[:, j]) for j in columns]


def _written(kind: Any, values: np.ndarray) -> ColumnLevels | ColumnNumbers:
    return ColumnLevels(kind.levels) if kind is not None and kind.levels else ColumnNumbers(kind, values)


def _shown(column: ColumnLevels | ColumnNumbers, value: float) -> Any:
    """Return a value as JSON: a number to four digits, unless the table writes it in another form."""
    return rounded(value, 4) if column.is_plain else column.text(value)


def split_rows(n: int, codes: np.ndarray | None, fit_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return positions of training rows (at most `fit_rows`) and of held-out rows."""
    stratify = (
        codes if codes is not None and np.bincount(codes).min() >= 2 and n * _HELD_OUT >= codes.max() + 1 else None
    )
    train, test = train_test_split(np.arange(n), test_size=_HELD_OUT, random_state=seed, stratify=stratify)
    return np.sort(train[:fit_rows]), np.sort(test)


def shown_rows(n: int, test: np.ndarray, seed: int, wanted: Sequence[int] = ()) -> tuple[np.ndarray, np.ndarray]:
    """Return at most MOST_POINTS rows to draw, held-out and training rows in proportion, including the wanted ones."""
    rows = np.arange(n)
    if n > MOST_POINTS:
        others = np.setdiff1d(rows, wanted)
        drawn = np.random.default_rng(seed).choice(others, MOST_POINTS - len(wanted), replace=False)
        rows = np.sort(np.concatenate([drawn, np.asarray(wanted, dtype=drawn.dtype)]))
    return rows, np.isin(rows, test)


def fitted_metrics(methods: Iterable[Method], X: np.ndarray, y: np.ndarray | None, train: np.ndarray) -> dict[str, Any]:
    """Return the methods fitted to the training rows, by name; methods that cannot be fitted are left out."""
    found, fits = {}, Fits()
    with shared_searches():
        for method in methods:
            try:
                found[method.name] = fits.of(method, X[train], None if y is None else y[train])[0]
            except (ValueError, np.linalg.LinAlgError):
                continue
    return found


def plane(metric: Any, X: np.ndarray, rows: np.ndarray, train: np.ndarray) -> tuple[np.ndarray, float, np.ndarray]:
    """Return the points of the rows in the plane of most variance of the training rows' images, with one scale for both axes."""
    images = images_of(metric, X[np.concatenate([rows, train])])
    shown, learned_from = images[: len(rows)], images[len(rows) :]
    if shown.shape[1] == 1:
        # There is only one direction; the second axis only spreads the points.
        extent = float(np.ptp(shown)) or 1.0
        second = np.random.default_rng(0).uniform(-0.05, 0.05, len(shown)) * extent
        return np.column_stack([shown[:, 0] - learned_from.mean(), second]), 1.0, shown
    projection = PCA(2, svd_solver="full").fit(learned_from)
    explained = float(projection.explained_variance_ratio_.sum()) if np.ptp(learned_from, axis=0).any() else 1.0
    return projection.transform(shown), explained, shown


def unusual_positions(summary: dict[str, Any]) -> list[int]:
    """Return the positions of the unusual rows, in the order of their table."""
    return [] if summary["outliers"] is None else [row["position"] for row in summary["outliers"]["rows"]]


def views_summary(
    summary: dict[str, Any],
    table: Table,
    planes: list[dict[str, Any]],
    shown_first: tuple[int, int],
    rows: np.ndarray,
    held_out: np.ndarray | None,
) -> dict[str, Any]:
    """Return the data that the script of the page draws.

    Parameters
    ----------
    summary : dict
        The summary so far, with the unusual rows.
    table : Table
    planes : list of dict
        The planes that can be shown; two of them are shown first.
    rows : positions of the rows that are drawn
    held_out : whether each of them was held out, or None if that is not known
    """
    targets = table.targets
    codes = None if targets is None else targets.codes
    numbers = None if targets is None or codes is not None else targets.values
    written = table.written(range(min(table.X.shape[1], MOST_COLUMNS_SHOWN)))
    unusual = {str(int(np.flatnonzero(rows == row)[0])): place for place, row in enumerate(unusual_positions(summary))}
    return {
        "planes": planes,
        "before": shown_first[0],
        "after": shown_first[1],
        "rows": [str(name) for name in table.names[rows]],
        "held_out": None if held_out is None else [int(flag) for flag in held_out],
        "unusual": unusual,
        "codes": None if codes is None else [int(code) for code in codes[rows]],
        "classes": None if targets is None else targets.classes,
        "targets": None if numbers is None else [rounded(value) for value in numbers[rows]],
        "columns": [column.name(name) for column, name in zip(written, table.columns, strict=False)],
        "values": [
            [_shown(column, value) for column, value in zip(written, row, strict=False)] for row in table.X[rows]
        ],
        "n": len(table.X),
    }


def neighbors_among(images: np.ndarray) -> np.ndarray:
    """Return the nearest of the other rows for each row, nearest first."""
    return nearest(images, None, min(_NEIGHBORS_SHOWN, len(images) - 1))


def learned_metric(
    matrix: np.ndarray, before: np.ndarray | None, names: list[str], label: str, levels: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the share of each column in the distance, and the matrix of the metric.

    With A the map in standard deviations and M = A'A, the share of column j is M_jj / tr M, the contribution of one
    standard deviation of it to the squared distance.  The heatmap is M divided by its largest entry.  Columns of levels have
    coordinates of their own, and are only named.
    """
    lengths = np.square(matrix).sum(axis=0)  # the diagonal of M, where its largest entry is
    shares = column_shares(matrix)
    assert shares is not None
    order = np.argsort(-shares, kind="stable")
    top = order[:MOST_IN_HEATMAP]
    return {
        "label": label,
        "relevance": [
            {"name": names[j], "before": None if before is None else rounded(before[j]), "after": rounded(shares[j])}
            for j in order[:MOST_COLUMNS_SHOWN]
        ],
        "columns": [names[j] for j in top],
        "matrix": [[rounded(value) for value in row] for row in matrix[:, top].T @ matrix[:, top] / lengths.max()],
        "left_out": int(len(order) - len(top)),
        "levels": list(levels),
    }


def shares_before(name: str, X: np.ndarray) -> np.ndarray | None:
    """Return the same shares under a plain metric: by variance (Euclidean) or equal (z-scored)."""
    variance = X.var(axis=0)
    if name == "euclidean":
        return variance / variance.sum()
    return np.full(X.shape[1], 1.0 / X.shape[1]) if name == "z-scored" else None


def path_of(metric: Any, label: str) -> dict[str, Any] | None:
    """Return the objective after each pass, if the fit has passes."""
    objectives = getattr(learned_step(metric), "objectives_", None)
    if objectives is None or len(objectives) < 2:
        return None
    return {
        "label": label,
        "values": [rounded(value, 8) for value in objectives],
        "converged": bool(getattr(learned_step(metric), "converged_", True)),
    }


def outliers(method: Method, table: Table, fit_rows: int, seed: int, most: int = 10) -> dict[str, Any] | None:
    """Return the least likely rows, each scored under the density of the others in the columns of which it is one."""
    X = table.X
    rows = np.arange(len(X))
    if len(X) > fit_rows:
        rows = np.sort(np.random.default_rng(seed).choice(len(X), fit_rows, replace=False))
    try:
        density, _ = fitted(method.estimator, X[rows])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            detector = _detector(density, method.estimator, X[rows])
    except (ValueError, np.linalg.LinAlgError):
        return None
    scores = detector.scored_table(explain=False)
    strangest = np.argsort(detector.training_scores_, kind="stable")[:most]
    why = _reasons(detector, table._replace(X=X[rows]), strangest)
    return unusual_rows(method.label, scores, strangest, why, rows, table.names)


def unusual_rows(
    density: str,
    table: "pd.DataFrame",
    strangest: np.ndarray,
    why: Sequence[Sequence[str]],
    positions: np.ndarray,
    row_names: np.ndarray,
) -> dict[str, Any]:
    """Return what the report shows of the unusual rows of a scored table.

    Parameters
    ----------
    density : str
        The name of the density.
    table : DataFrame
        From `DensityOutlierDetector.scored_table`.
    strangest : positions in it of the rows to show
    why : the reasons of each of these
    positions : positions of the rows of the table among those of the report
    row_names : names of the rows of the report
    """
    shown = table.iloc[strangest]
    return {
        "density": density,
        "rows": [
            {
                "row": str(row_names[positions[i]]),
                "position": int(positions[i]),
                "log_density": rounded(row.log_density),
                "p_value": rounded(row.p_value),
                "outlier": bool(row.outlier),
                "why": list(reasons),
            }
            for i, row, reasons in zip(strangest, shown.itertuples(), why, strict=True)
        ],
        "flagged": int(table["outlier"].sum()),
        "n": len(table),
        "typical": rounded(np.median(table["log_density"])),
    }


def _detector(density: Any, unfitted: Any, X: np.ndarray) -> "DensityOutlierDetector":
    """Return a detector of the fitted density, or one by folds if the density cannot leave out single rows."""
    from vicinal import DensityOutlierDetector

    try:
        return DensityOutlierDetector.from_density(density)
    except TypeError:
        return DensityOutlierDetector(unfitted).fit(X)


def _reasons(detector: "DensityOutlierDetector", table: Table, strangest: np.ndarray) -> list[list[str]]:
    """Return sentences about what makes each of some rows of the detector unusual.

    If the density cannot explain rows, an LCA of its columns is used, whose kernel includes correlations. Its penalty is a fixed share
    of the variances, because a search would take longer than everything else here.
    """
    from vicinal import LCA, DensityOutlierDetector

    as_unusual = np.ones(1, dtype=bool)  # all of them are
    columns, used = Columns.of(table.kinds), list(range(table.X.shape[1]))
    try:
        explained = explain(detector, None, as_unusual, strangest)
    except TypeError:
        used = [*columns.measured, *columns.levels]
        variances = table.X[:, columns.measured].var(axis=0)
        texts = {len(columns.measured) + k: table.kinds[j].levels for k, j in enumerate(columns.levels)}
        rows: Any = table.X[:, used]
        if texts:
            rows = CodedRows(rows, np.array([table.columns[j] for j in used], dtype=object), texts)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                stand_in = LCA(reg=0.1 * np.diag(variances) if len(variances) else 0.0, tol=1e-5).fit(rows)
                explained = explain(DensityOutlierDetector.from_density(stand_in), None, as_unusual, strangest)
        except (ValueError, np.linalg.LinAlgError):
            return [[] for _ in strangest]
    written = [
        of_density if isinstance(of_density, ColumnLevels) else of_table
        for of_density, of_table in zip(explained.numbers, table.written(used), strict=True)
    ]
    explained = replace(explained, names=[table.columns[j] for j in used], numbers=written)
    return [explained.reasons(i) for i in range(len(strangest))]
