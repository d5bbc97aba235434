"""Common parts of the pictures of the papers: sizes, colours, curves with error bars."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# Okabe and Ito's colours without yellow, which is too light on white.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v")
LINES = ("-", "--", "-.", (0, (1, 1)), (0, (5, 1, 1, 1, 1, 1)))
# Text that can be read when the page shows the picture at half its size.
_STYLE: Any = {
    "font.size": 14.0,
    "axes.titlesize": 15.0,
    "axes.labelsize": 15.0,
    "legend.fontsize": 12.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def style() -> AbstractContextManager[None]:
    """Return the context in which pictures are drawn: titles and legends take their size when they are made."""
    from matplotlib import pyplot as plt

    return plt.rc_context(_STYLE)


def panels(
    rows: int = 1, columns: int = 1, size: tuple[float, float] = (5.2, 4.2), **options: Any
) -> "tuple[Figure, np.ndarray]":
    """Return a figure and its axes as an array of shape (rows, columns)."""
    from matplotlib import pyplot as plt

    with style():
        return plt.subplots(
            rows, columns, figsize=(size[0] * columns, size[1] * rows), squeeze=False, layout="constrained", **options
        )


def curve(
    ax: "Axes", number: int, x: ArrayLike, y: ArrayLike, error: ArrayLike | None = None, label: str | None = None
) -> None:
    """Draw a curve with error bars; colours, lines and markers all differ between curves."""
    style: dict[str, Any] = {"color": COLOURS[number % len(COLOURS)], "linestyle": LINES[number % len(LINES)]}
    ax.errorbar(x, y, yerr=error, label=label, marker=MARKERS[number % len(MARKERS)], markersize=6, capsize=3, **style)


def bars(
    ax: "Axes", groups: Sequence[str], series: Sequence[str], values: Sequence[Any], errors: Sequence[Any] | None = None
) -> None:
    """Draw groups of bars: ``values[s][g]`` for the series and groups."""
    width = 0.8 / len(series)
    for number, name in enumerate(series):
        place = np.arange(len(groups)) + (number - (len(series) - 1) / 2) * width
        error = None if errors is None else errors[number]
        ax.bar(place, values[number], width, yerr=error, label=name, color=COLOURS[number % len(COLOURS)], capsize=2)
    ax.set_xticks(np.arange(len(groups)), groups)


def dots(
    ax: "Axes", points: ArrayLike, classes: ArrayLike | None = None, size: float = 8, legend: bool = False
) -> None:
    """Draw points of the plane in the colours and markers of their classes."""
    points = np.asarray(points)
    classes = np.zeros(len(points), dtype=int) if classes is None else np.asarray(classes)
    for number, name in enumerate(np.unique(classes)):
        own = points[classes == name]
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        ax.scatter(own[:, 0], own[:, 1], s=size, color=colour, marker=marker, linewidths=0, label=str(name))
    if legend:
        ax.legend(markerscale=2)


def mean_and_error(values: ArrayLike) -> tuple[float, float]:
    """Return the mean and its standard error."""
    values = np.asarray(values, dtype=float)
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
    return float(values.mean()), float(error)


def plus_minus(values: ArrayLike, digits: int = 2) -> str:
    """Return "mean ± standard error" as text."""
    mean, error = mean_and_error(values)
    return f"{mean:.{digits}f} ± {error:.{digits}f}"
