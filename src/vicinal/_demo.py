"""The picture of `vicinal demo`."""

from collections.abc import Sequence
from typing import IO, Any

import numpy as np


def draw_densities(X: np.ndarray, densities: Sequence[Any], titles: Sequence[str], file: IO[bytes]) -> None:
    """Write a PNG with the rows and the contours of each density side by side."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    low, high = X.min(axis=0) - 0.4, X.max(axis=0) + 0.4
    xs, ys = (np.linspace(low[i], high[i], 240) for i in (0, 1))
    grid = np.column_stack([axis.ravel() for axis in np.meshgrid(xs, ys)])
    figure = Figure(figsize=(4.3 * len(densities), 4.6), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    surfaces = [density.score_samples(grid).reshape(len(ys), len(xs)) for density in densities]
    top = max(float(surface.max()) for surface in surfaces)
    for place, (surface, title) in enumerate(zip(surfaces, titles, strict=True)):
        axes = figure.add_subplot(1, len(densities), place + 1)
        levels = np.linspace(top - 5.0, top, 11)
        axes.contourf(xs, ys, np.clip(surface, top - 5.0, top), levels=levels, cmap="GnBu")
        axes.scatter(X[:, 0], X[:, 1], s=5, color="#d0552b", linewidths=0, alpha=0.85)
        axes.set_aspect("equal")
        axes.set_title(title, fontsize=11)
        axes.set_xticks([])
        axes.set_yticks([])
    figure.savefig(file, format="png", bbox_inches="tight")
