"""The field of metrics of a density: an ellipse per row, as wide as the kernels are there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from vicinal._checks import check_integer, check_positive
from vicinal._mixtures import feature_positions
from vicinal._plot.parts import COLOURS, GREY, axes_or_new, label_axes, principal_plane, short
from vicinal._rows import check_array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_ROWS = 5000  # the rows among which those with an ellipse are chosen


def metric_field(
    density: Any,
    X: ArrayLike,
    *,
    features: Sequence[int | str] | ArrayLike | None = None,
    n_ellipses: int = 60,
    scale: float | str = "auto",
    ax: Any = None,
) -> Axes:
    """Draw the local metric of a fitted LocalLCA at some rows, as ellipses.

    Parameters
    ----------
    density : fitted LocalLCA
        Any fitted object with ``local_metric``.
    X : array-like of shape (n, d)
        The rows, which are drawn as dots. Ellipses are drawn at some of them, far from each other.
    features : two positions or names, optional
        The columns that span the picture. By default, these are the two columns of X; if there are more, the picture is
        spanned by the two leading principal components of X.
    n_ellipses : int, default=60
        The number of ellipses.
    scale : float or "auto", default="auto"
        The size of the ellipses, in standard deviations of the kernels. "auto" is 1, or less if ellipses of that size would
        overlap, as they do if a picture shows two of many columns.
    ax : matplotlib Axes, optional
        The axes to draw on; the default is a new figure.

    Returns
    -------
    matplotlib Axes
        An ellipse shows `scale` standard deviations of the kernels at its centre, projected onto the plane of the picture. If
        this is not one standard deviation, the title says so. Both axes have the same scale unless the spreads of the
        columns differ by more than a factor of three.

    Examples
    --------
    >>> from vicinal import LocalLCA
    >>> from vicinal.datasets import make_spiral
    >>> from vicinal.plot import metric_field
    >>> X = make_spiral(200, random_state=0)[0]
    >>> ax = metric_field(LocalLCA().fit(X), X, n_ellipses=25)
    >>> len(ax.collections[1].get_paths())
    25
    """
    if not hasattr(density, "local_metric"):
        raise TypeError(f"density must have a local_metric, got {type(density).__name__}. Pass a fitted LocalLCA.")
    check_is_fitted(density)
    rows = check_array(X, dtype=np.float64, input_name="X")
    if rows.shape[1] != density.n_features_in_:
        raise ValueError(f"X must have the {density.n_features_in_} columns of the density, got {rows.shape[1]}.")
    plane, names = _plane(density, rows, features)
    points = rows @ plane.T
    chosen = _spread_out(points, check_integer(n_ellipses, "n_ellipses"))
    asked = rows[chosen]
    if hasattr(density, "feature_names_in_"):
        asked = _named(asked, density.feature_names_in_)
    seen = plane[:, density.active_features_]
    covariances = np.einsum("ij,njk,lk->nil", seen, density.local_metric(asked), seen)
    size = _common_scale(points, chosen, covariances) if scale == "auto" else check_positive(scale, "scale")
    ax = axes_or_new(ax)
    _draw(ax, points, _ellipses(points[chosen], size**2 * covariances))
    label_axes(ax, *names)
    if size != 1.0:
        ax.set_title(f"ellipses of {size:.2g} standard deviations", fontsize="medium")
    return ax


def _common_scale(points: NDArray[Any], chosen: NDArray[Any], covariances: NDArray[Any]) -> float:
    """Return the size at which a typical ellipse reaches half of the way to the next one, to two digits; at most 1."""
    unit = np.maximum(np.ptp(points, axis=0), np.finfo(np.float64).tiny)
    places = points[chosen] / unit
    if len(places) < 2:
        return 1.0
    squares = np.square(places[:, None] - places).sum(axis=2)
    np.fill_diagonal(squares, np.inf)
    radius = np.median(np.linalg.det(covariances / np.outer(unit, unit)) ** 0.25)
    size = 0.5 * np.sqrt(np.median(squares.min(axis=1))) / max(radius, np.finfo(np.float64).tiny)
    return float(f"{size:.2g}") if 0 < size < 1 else 1.0


def _draw(ax: Any, points: NDArray[Any], ellipses: Any) -> None:
    """Draw rows as dots, and ellipses over them."""
    size = float(np.clip(3000 / len(points), 3, 20))
    ax.scatter(*points.T, s=size, color=GREY, linewidths=0, alpha=0.6, rasterized=len(points) > 5000)
    ax.add_collection(ellipses)
    low, high = np.ptp(points, axis=0).min(), np.ptp(points, axis=0).max()
    if low > 0 and high < 3.0 * low:
        ax.set_aspect("equal", adjustable="datalim")
    ax.autoscale_view()


def _plane(density: Any, rows: NDArray[Any], features: Any) -> tuple[NDArray[Any], tuple[str, str]]:
    """Return the matrix that maps rows to the picture, shape (2, d), and the names of its axes."""
    d, known = rows.shape[1], getattr(density, "feature_names_in_", None)
    if features is None and d > 2:
        pca, names = principal_plane(rows)
        return pca.components_, names
    kept = np.arange(d) if features is None else feature_positions(features, d, known)
    if len(kept) != 2:
        raise ValueError(f"features must name two columns, got {len(kept)}.")
    first, second = (f"column {i + 1}" if known is None else short(known[i]) for i in kept)
    return np.eye(d)[kept], (first, second)


def _spread_out(points: NDArray[Any], most: int) -> NDArray[Any]:
    """Return the positions of points far from each other: each point is the farthest from those before it."""
    some = np.arange(len(points))
    if len(some) > _MOST_ROWS:
        some = np.sort(np.random.default_rng(0).choice(some, _MOST_ROWS, replace=False))
    there = points[some] / np.maximum(np.ptp(points, axis=0), np.finfo(np.float64).tiny)
    chosen = [int(np.argmin(np.square(there - np.median(there, axis=0)).sum(axis=1)))]
    away = np.full(len(there), np.inf)
    while len(chosen) < min(most, len(some)):
        away = np.minimum(away, np.square(there - there[chosen[-1]]).sum(axis=1))
        chosen.append(int(np.argmax(away)))
    return some[chosen]


def _ellipses(centres: NDArray[Any], covariances: NDArray[Any]) -> Any:
    """Return ellipses of one standard deviation."""
    from matplotlib.collections import PolyCollection
    from matplotlib.colors import to_rgba

    turn = np.linspace(0.0, 2.0 * np.pi, 49)
    circle = np.stack([np.cos(turn), np.sin(turn)], axis=1)
    outlines = centres[:, None] + circle @ np.linalg.cholesky(covariances).transpose(0, 2, 1)
    return PolyCollection(
        list(outlines), facecolors=[to_rgba(COLOURS[0], 0.15)], edgecolors=COLOURS[0], linewidths=1.0, closed=True
    )


def _named(rows: NDArray[Any], names: NDArray[Any]) -> Any:
    """Return rows with the names of their columns, as the density was fitted on."""
    import pandas as pd

    return pd.DataFrame(rows, columns=names)
