"""A picture of one row and the expected values of its columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from vicinal._checks import check_integer
from vicinal._plot.parts import COLOURS, GREY, axes_or_new, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_END = 3.0  # values further out, in half-intervals, are drawn at the edge


def plot_outlier(detector: Any, row: ArrayLike | int, *, most: int = 12, ax: Any = None) -> Axes:
    """Draw the values of one row and the values that are expected for each column given the others.

    Parameters
    ----------
    detector : fitted DensityOutlierDetector
        Its density must be one of vicinal's, alone or after scalers; see `DensityOutlierDetector.explain`.
    row : array-like of shape (n_features,) or (1, n_features), or int
        A new row, or the position of a training row, which is then left out.
    most : int, default=12
        The number of columns to draw, the most surprising first.
    ax : matplotlib Axes, optional
        The axes to draw on; the default is a new figure.

    Returns
    -------
    matplotlib Axes
        A bar is the 90 % interval of a column given the others, the line in it the median, and the dot the value. All bars
        have the same length, because columns differ in their units; the numbers beside them are in those units.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import DensityOutlierDetector
    >>> from vicinal.plot import plot_outlier
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> ax = plot_outlier(DensityOutlierDetector().fit(X), [0.0, 5.0, 0.0])
    >>> ax.get_yticklabels()[0].get_text()
    'x1'
    """
    found = _explained(detector, row)
    columns = found.ranking()[0][: check_integer(most, "most")]
    ax = axes_or_new(ax, (9.6, 1.6 + 0.4 * len(columns)))
    size = ax.xaxis.label.get_size() * 0.85
    for place, k in enumerate(columns):
        low, median, high, value = (table[0, k] for table in (found.lows, found.medians, found.highs, found.values))
        middle, at = _at(median, low, high), _at(value, low, high)
        drawn = float(np.clip(at, -_END, _END))
        outside = abs(at) > 1.0
        ax.barh(place, 2.0, left=-1.0, height=0.5, color=COLOURS[5], alpha=0.5)
        ax.plot([middle, middle], [place - 0.25, place + 0.25], color=COLOURS[0], linewidth=2)
        marker = "o" if drawn == at else ">" if at > 0 else "<"
        ax.plot(drawn, place, marker, color=COLOURS[3] if outside else GREY, markersize=9)
        text = f"{low:.3g} to {high:.3g}, got {value:.3g} ({found.shares[0, k]:.1%})"
        ax.text(_END + 0.25, place, text, va="center", fontsize=size, parse_math=False)
    ax.set_yticks(range(len(columns)), labels=[short(found.names[k]) for k in columns], parse_math=False)
    ax.set_xticks([-1, 0, 1], labels=["5 %", "", "95 %"])
    ax.set_xlim(-_END - 0.2, _END + 0.2)
    ax.invert_yaxis()
    ax.set_title(
        "bar: 90 % interval given the other columns, line: median, dot: the row\n"
        "beside: interval, value, and the share of training rows that are as surprising",
        fontsize=size,
        loc="left",
    )
    return ax


def _at(value: float, low: float, high: float) -> float:
    """Return the position of a value if the interval is scaled to [-1, 1]; beyond the edge if a constant has no interval."""
    if high <= low:
        return 0.0 if value == low else float(np.copysign(np.inf, value - low))
    return (value - 0.5 * (low + high)) / (0.5 * (high - low))


def _explained(detector: Any, row: Any) -> Any:
    if not hasattr(detector, "explain"):
        raise TypeError(f"detector must be a fitted DensityOutlierDetector, got {type(detector).__name__}.")
    if np.ndim(row) == 0:
        n = len(detector.training_scores_)
        position = check_integer(row, "row", least=0)
        if position >= n:
            raise ValueError(f"row={position} must be the position of one of {n} training rows, from 0 to {n - 1}.")
        return detector.explain(None, rows=[position])
    table = row if hasattr(row, "columns") else np.atleast_2d(np.asarray(row, dtype=np.float64))
    if len(table) != 1:
        raise ValueError(
            f"row must be one row, got {len(table)}. Pick one: X[:1], or its position in the training rows."
        )
    return detector.explain(table)
