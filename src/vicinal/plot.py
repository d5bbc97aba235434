"""Pictures of embeddings, densities, metrics and fits; each function takes and returns matplotlib Axes.

matplotlib is imported when a picture is made: ``pip install 'vicinal[plot]'``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray

from vicinal._checks import check_integer, check_random_state
from vicinal._plot.density import prepared_density, range_of, share_inside, warn_if_too_coarse
from vicinal._plot.metric_field import metric_field
from vicinal._plot.outlier import plot_outlier
from vicinal._plot.parts import (
    COLOURS,
    GREY,
    LINES,
    add_legend,
    axes_or_new,
    check_labels,
    label_axes,
    principal_plane,
    short,
    sign_of,
)
from vicinal._plot.path import plot_path
from vicinal._rows import check_array
from vicinal.quality import neighbor_purity

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["metric_field", "plot_density", "plot_embedding", "plot_metric", "plot_outlier", "plot_path", "plot_purity"]


def __dir__() -> list[str]:
    return sorted(__all__)


_SHARES = (0.0, 0.25, 0.5, 0.75, 0.9, 0.99)
_MOST_IN_LEGEND = 12


def plot_embedding(
    X: ArrayLike,
    y: ArrayLike | None = None,
    *,
    metric: Any = None,
    ax: Any = None,
    max_rows: int | None = 20_000,
    random_state: RandomState | int | None = 0,
) -> Axes:
    """Draw rows in two dimensions, transformed by a metric.

    Parameters
    ----------
    X : array-like of shape (n, d)
        The rows. One or two columns are drawn directly; with more columns, the two leading principal components are
        drawn.
    y : array-like of shape (n,), optional
        The colours: labels of any type (missing ones are grey), or numbers with fractions for a colour scale.
    metric : fitted estimator with ``transform``, optional
        A metric that is applied to X first.
    ax : matplotlib Axes, optional
        The axes to draw on; the default is a new figure.
    max_rows : int, default=20_000
        If there are more rows, a random sample is drawn, and the legend says so.
    random_state : int, RandomState instance or None, default=0
        Used for that sample.

    Returns
    -------
    matplotlib Axes
        Both axes have the same scale.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from vicinal import RCA
    >>> from vicinal.plot import plot_embedding
    >>> X, y = load_wine(return_X_y=True)
    >>> ax = plot_embedding(X, y, metric=RCA(n_components=2).fit(X, y))
    >>> ax.get_xlabel(), len(ax.get_legend().get_texts())
    ('component 1', 3)
    """
    rows = X if metric is None else _images(metric, X)
    points = check_array(rows, dtype=np.float64, input_name="X")
    n = len(points)
    points, names = _plane(points, rows, metric)
    codes, classes, values = (np.zeros(n, dtype=int), [""], None) if y is None else check_labels(y, n)
    kept = np.arange(n)
    if n > check_integer(max_rows, "max_rows"):
        kept = np.sort(check_random_state(random_state).choice(n, max_rows, replace=False))
    ax = axes_or_new(ax)
    style = {"s": float(np.clip(6000 / len(kept), 6, 36)), "alpha": 0.85 if len(kept) < 2000 else 0.5}
    style = {**style, "linewidths": 0, "rasterized": len(kept) > 5000}
    strips = points.shape[1] == 1
    if strips:
        heights = np.random.default_rng(0).uniform(-0.35, 0.35, n) + (0 if codes is None else codes)
        points = np.column_stack([points[:, 0], heights])
        ax.set_yticks([])
    else:
        ax.set_aspect("equal", adjustable="datalim")
    label_axes(ax, *names)
    title = f"{len(kept):,} of {n:,} rows" if len(kept) < n else None
    if values is not None:
        drawn = ax.scatter(*points[kept].T, c=values[kept], cmap="cividis", **style)
        bar = ax.figure.colorbar(drawn, ax=ax)
        bar.set_label(short(getattr(y, "name", None) or "y"), parse_math=False)
        present, handles = [], []
    else:
        present = [code for code in (-1, *range(len(classes))) if np.any(codes == code)]
        handles = _scatter_classes(ax, points[kept], codes[kept], present, style)
    shown = [short(classes[code]) if code >= 0 else "no label" for code in present]
    if strips and values is None:
        ax.set_yticks(present, labels=shown if y is not None else [""], parse_math=False)
    elif len(shown) > _MOST_IN_LEGEND:
        _name_groups(ax, points[kept], codes[kept], classes)
    elif shown and y is not None:
        add_legend(ax, handles, shown, title=title, outside=len(shown) > 6)
        title = None
    if title:
        add_legend(ax, [], [], title=title)
    return ax


def plot_density(
    density: Any,
    X: ArrayLike | None = None,
    *,
    features: Sequence[int | str] | ArrayLike | None = None,
    ax: Any = None,
    resolution: int = 120,
) -> Axes:
    """Draw a density of one or two features.

    Parameters
    ----------
    density : fitted density
        Any object with ``score_samples``: an estimator of vicinal, one of its marginals or conditionals, or a
        mixture of scikit-learn.
    X : array-like of shape (n, d), optional
        Rows to draw on top. They also set the range; the default range is that of the training rows.
    features : one or two positions or names, optional
        The features to draw, if the density has more. Their exact marginal is drawn (``density.marginal``).
    ax : matplotlib Axes, optional
        The axes to draw on; the default is a new figure.
    resolution : int, default=120
        The number of grid points along an axis (four times as many for one feature). A warning is issued if the
        kernels are narrower than the cells of the grid, so that the picture could miss them.

    Returns
    -------
    matplotlib Axes
        For one feature, the density as a curve. For two, the smallest regions that hold given shares of the
        probability, computed on the grid.

    Notes
    -----
    The function scores ``4 * resolution`` rows for one feature, and ``resolution ** 2`` for two.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import ParzenWindows
    >>> from vicinal.plot import plot_density
    >>> X = np.random.default_rng(0).normal(size=(100, 3))
    >>> plot_density(ParzenWindows().fit(X), features=(0, 2)).get_ylabel()
    'column 3'
    """
    resolution = check_integer(resolution, "resolution", least=2)
    score, names, rows, kernel = prepared_density(density, X, features)
    resolution *= 4 if len(names) == 1 else 1
    low, high = range_of(rows, kernel)
    warn_if_too_coarse(kernel, (high - low) / resolution)
    ax = axes_or_new(ax)
    if len(names) == 1:
        grid = np.linspace(low[0], high[0], resolution)
        heights = np.exp(score(grid[:, None]))
        ax.plot(grid, heights, color=COLOURS[0], linewidth=2)
        ax.fill_between(grid, heights, color=COLOURS[0], alpha=0.2, linewidth=0)
        if X is not None:
            ax.plot(rows[:, 0], np.zeros(len(rows)), "|", color=COLOURS[3], markersize=10, alpha=0.5)
        ax.set_ylim(bottom=0)
        label_axes(ax, names[0], "density")
        return ax
    across, up = (np.linspace(low[i], high[i], resolution) for i in range(2))
    grid = np.stack(np.meshgrid(across, up), axis=-1)
    log_density = score(grid.reshape(-1, 2)).reshape(resolution, resolution)
    inside = share_inside(log_density)
    drawn = ax.contourf(across, up, inside, levels=_SHARES, cmap="Blues_r")
    ax.contour(across, up, inside, levels=_SHARES[1:], colors=COLOURS[0], linewidths=0.6)
    if X is not None:
        size = float(np.clip(3000 / len(rows), 3, 20))
        ax.scatter(*rows.T, s=size, color=COLOURS[3], linewidths=0, alpha=0.7, rasterized=len(rows) > 5000)
    bar = ax.figure.colorbar(drawn, ax=ax, spacing="uniform")
    bar.set_ticks(_SHARES, labels=[f"{share:.0%}" for share in _SHARES])
    bar.set_label("share of the probability inside")
    label_axes(ax, *names)
    return ax


def plot_purity(
    X: ArrayLike,
    y: ArrayLike,
    metrics: Any = None,
    *,
    n_neighbors: int = 30,
    baseline: bool = True,
    ax: Any = None,
) -> Axes:
    """Draw the share of the k nearest neighbours that have the same class as the row, for several metrics.

    Parameters
    ----------
    X : array-like of shape (n, d)
        The rows, preferably rows that the metrics were not fitted to.
    y : array-like of shape (n,)
        Their classes, of any type.
    metrics : fitted metric, or dict of fitted metrics by name, optional
        Any objects with ``transform``.
    n_neighbors : int, default=30
        The largest k; it is lowered if there are fewer rows.
    baseline : bool, default=True
        Whether to draw the curves of the Euclidean distance between the rows of X and of random neighbours as well.
    ax : matplotlib Axes, optional
        The axes to draw on; the default is a new figure.

    Returns
    -------
    matplotlib Axes

    See Also
    --------
    vicinal.quality.neighbor_purity : The numbers.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from vicinal import RCA
    >>> from vicinal.plot import plot_purity
    >>> X, y = load_wine(return_X_y=True)
    >>> ax = plot_purity(X[1::2], y[1::2], RCA().fit(X[::2], y[::2]))
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['X as it is', 'RCA', 'chance']
    """
    metrics = {} if metrics is None else metrics
    metrics = metrics if isinstance(metrics, dict) else {type(metrics).__name__: metrics}
    if not metrics and not baseline:
        raise ValueError("there is nothing to draw. Pass metrics, or baseline=True.")
    rows = check_array(X, dtype=np.float64, input_name="X", ensure_min_samples=2)
    k = min(check_integer(n_neighbors, "n_neighbors"), len(rows) - 1)
    curves = {name: neighbor_purity(_images(metric, X), y, k) for name, metric in metrics.items()}
    own = neighbor_purity(rows, y, k) if baseline else None
    places = np.arange(1, k + 1)
    ax = axes_or_new(ax)
    handles: list[Any] = []
    names: list[str] = []
    if own is not None:
        handles += ax.plot(places, own, color=GREY, linewidth=2, linestyle="--")
        names.append("X as it is")
    for i, (name, curve) in enumerate(curves.items()):
        line = {"linestyle": LINES[i // len(COLOURS) % len(LINES)], "linewidth": 2}
        handles += ax.plot(places, curve, markevery=max(k // 6, 1), markersize=6, **line, **sign_of(i))
        names.append(name)
    if baseline:
        handles.append(ax.axhline(_purity_by_chance(y, len(rows)), color=GREY, linewidth=1.5, linestyle=":"))
        names.append("chance")
    label_axes(ax, "k nearest neighbours", "share of the same class")
    ax.set_xlim(1, max(k, 2))
    top = max(float(np.max(curve)) for curve in (*curves.values(), *([own] if own is not None else [])))
    ax.set_ylim(top=min(top + 0.05, 1.01))
    add_legend(ax, handles, names)
    return ax


def plot_metric(
    metric: Any, X: ArrayLike | None = None, *, feature_names: Sequence[str] | None = None, ax: Any = None
) -> Axes:
    r"""Draw a Mahalanobis matrix as a heat map, which shows how features and pairs of features contribute to distances.

    Parameters
    ----------
    metric : fitted metric, or array of shape (d, d)
        The matrix M of the squared distance ``(x - y)' M (x - y)``.
    X : array-like of shape (n, d), optional
        If rows are given, the entries are :math:`s_i M_{ij} s_j` with the standard deviations s of the columns, that is,
        the contributions of differences of one standard deviation. Otherwise, the entries are in the units of the columns,
        and can be compared only if the columns have the same units.
    feature_names : sequence of d strings, optional
        The names of the features. The default is the names that the metric was fitted on, or those of X, or numbers.
    ax : matplotlib Axes, optional
        The axes to draw on; the default is a new figure.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> from vicinal.plot import plot_metric
    >>> ax = plot_metric([[2.0, -1.0], [-1.0, 3.0]], feature_names=["length", "width"])
    >>> [text.get_text() for text in ax.get_yticklabels()]
    ['length', 'width']
    """
    if hasattr(metric, "get_mahalanobis_matrix"):
        matrix = metric.get_mahalanobis_matrix()
        names = getattr(metric, "feature_names_in_", None)
    else:
        matrix, names = _check_matrix(metric), None
    d = len(matrix)
    label = "entry of the Mahalanobis matrix"
    if X is not None:
        rows = check_array(X, dtype=np.float64, input_name="X")
        if rows.shape[1] != d:
            raise ValueError(f"X must have the {d} columns of the metric, got {rows.shape[1]}.")
        spread = rows.std(axis=0)
        matrix = matrix * np.outer(spread, spread)
        names = getattr(X, "columns", None) if names is None else names
        label = "entry, in standard deviations"
    names = names if feature_names is None else feature_names
    names = [str(i) for i in range(d)] if names is None else [short(name, 18) for name in names]
    if len(names) != d:
        raise ValueError(f"feature_names must hold a name for each of the {d} features, got {len(names)}.")
    side = float(np.clip(2.2 + 0.25 * d, 4.0, 6.5))
    ax = axes_or_new(ax, (side + 1.2, side))
    largest = float(np.abs(matrix).max()) or 1.0
    drawn = ax.imshow(matrix, cmap="PuOr", vmin=-largest, vmax=largest)
    every = np.arange(0, d, max(1, -(-d // 20)))
    chosen = [names[i] for i in every]
    turned = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if max(map(len, chosen)) > 3 else {}
    ax.set_xticks(every, labels=chosen, parse_math=False, **turned)
    ax.set_yticks(every, labels=chosen, parse_math=False)
    if d <= 8:
        for i, j in np.ndindex(d, d):
            strong = abs(matrix[i, j]) > 0.6 * largest
            ax.text(j, i, f"{matrix[i, j]:.2g}", ha="center", va="center", color="white" if strong else "black")
    bar = ax.figure.colorbar(drawn, ax=ax, shrink=0.85)
    bar.set_label(label)
    label_axes(ax, "feature", "feature")
    return ax


# -- validation of arguments ---------------------------------------------------------------------------------


def _images(metric: Any, X: ArrayLike) -> NDArray[Any]:
    if not hasattr(metric, "transform"):
        raise TypeError(
            f"metric must be fitted and have a transform method, got {type(metric).__name__}. Pass LCA, RCA, NCA "
            "or a transformer of scikit-learn."
        )
    return np.asarray(metric.transform(X))


def _plane(points: NDArray[Any], rows: Any, metric: Any) -> tuple[NDArray[Any], tuple[str, ...]]:
    """Return the rows in at most two dimensions, and the names of the axes."""
    d = points.shape[1]
    if d > 2 and np.ptp(points, axis=0).any():
        pca, names = principal_plane(points)
        return pca.transform(points), names
    kind = "component" if metric is not None else "column"
    columns = [short(name) for name in getattr(rows, "columns", [])] or [f"{kind} {i + 1}" for i in range(d)]
    return points[:, :2], (*columns, "")[:2]


def _scatter_classes(
    ax: Any, points: NDArray[Any], codes: NDArray[Any], present: list[Any], style: dict[str, Any]
) -> list[Any]:
    """Draw the classes; classes of many rows are drawn in layers, so that the last one does not hide the others."""
    layer = np.arange(len(points)) % (1 if len(points) < 2000 else 8)
    handles = []
    for number in range(layer.max() + 1):
        for code in present:
            drawn = ax.scatter(*points[(codes == code) & (layer == number)].T, **sign_of(code), **style)
            handles += [drawn] if number == 0 else []
    return handles


def _name_groups(ax: Any, points: NDArray[Any], codes: NDArray[Any], classes: Any) -> None:
    """Write the names of the classes beside their rows, if there are too many for a legend."""
    from matplotlib.patheffects import withStroke

    outline = [withStroke(linewidth=2.5, foreground="white")]
    for code, name in enumerate(classes):
        own = points[codes == code]
        if len(own):
            x, y = np.median(own, axis=0)
            style = {"ha": "center", "va": "center", "fontweight": "bold", "parse_math": False}
            ax.text(x, y, short(name, 12), color=COLOURS[code % len(COLOURS)], path_effects=outline, **style)


def _purity_by_chance(y: ArrayLike, n: int) -> float:
    """Return the share of a row's class among the other rows, on average."""
    counts = np.bincount(check_labels(y, n)[0])
    return float((counts * (counts - 1)).sum() / (n * (n - 1)))


def _check_matrix(matrix: Any) -> NDArray[Any]:
    if hasattr(matrix, "fit"):
        raise TypeError(
            f"metric must be a linear metric (LCA, RCA, NCA, ...) or a square matrix, got {type(matrix).__name__}."
        )
    matrix = check_array(matrix, dtype=np.float64, input_name="metric")
    if matrix.shape[0] != matrix.shape[1]:
        raise ValueError(
            f"metric as a matrix must be square, got shape {matrix.shape}. Pass components.T @ components."
        )
    return matrix
