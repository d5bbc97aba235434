"""The data and the picture of `vicinal demo`."""

import numpy as np


def slanted_bars(n_rows=300, seed=0):
    """Rows along four thin, parallel, slanted bars: far apart along a bar, close across it.

    A kernel of one width must be narrow for the gaps and is then lonely along the bars; a covariance taken from
    the whole data set (Scott's rule) is as wide as the stack of bars. What fits is a thin, slanted kernel.
    """
    rng = np.random.default_rng(seed)
    bar = rng.integers(4, size=n_rows)
    along, across = rng.uniform(-3.0, 3.0, size=n_rows), 0.03 * rng.normal(size=n_rows)
    angle = np.deg2rad(35.0)
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    return np.column_stack([along, across + 0.6 * bar]) @ turn


def machine_states(n_rows=600, seed=0):
    """Readings of eight sensors on a machine with four states, under a drift that the sensors share.

    What tells the states apart moves the readings little; the drift moves them much. Each state occurs in two
    places on opposite sides, so the means of the states coincide and a linear discriminant has nothing to see.

    Returns
    -------
    X : array of shape (n_rows, 8)
    y : array of str of shape (n_rows,)
    """
    rng = np.random.default_rng(seed)
    place = rng.integers(8, size=n_rows)
    angle = np.pi / 4 * place
    state = np.column_stack([np.cos(angle), np.sin(angle)]) + 0.13 * rng.normal(size=(n_rows, 2))
    drift = rng.normal(size=(n_rows, 3)) * [4.0, 3.0, 2.0]
    directions = np.linalg.qr(rng.normal(size=(8, 8)))[0]
    rest = 0.25 * rng.normal(size=(n_rows, 3))
    X = np.column_stack([state, drift, rest]) @ directions + 20.0
    return X, np.array(["idle", "running", "hot", "failing"])[place % 4]


def draw_densities(X, densities, titles, file):
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
    figure.savefig(file, format="png")
