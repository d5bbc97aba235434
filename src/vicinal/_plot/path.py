"""A picture of the objective of a fit after each pass."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from vicinal._plot.parts import COLOURS, LINES, add_legend, axes_or_new, label_axes, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_path(estimators: Any, *, ax: Any = None) -> "Axes":
    """Draw the objective of a fit after each pass.

    Parameters
    ----------
    estimators : estimator, sequence of float, or dict
        A fitted estimator with ``objectives_``, or the objectives themselves; or a dict of several of these by name.
    ax : matplotlib Axes, optional
        The axes to draw on; the default is a new figure.

    Returns
    -------
    matplotlib Axes
        The last pass is marked by a dot if the fit converged, and by a cross if it stopped before.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import LCA
    >>> from vicinal.plot import plot_path
    >>> lca = LCA().fit(np.random.default_rng(0).normal(size=(100, 2)))
    >>> bool(np.all(plot_path(lca).lines[0].get_ydata() == lca.objectives_))
    True
    """
    named = estimators if isinstance(estimators, dict) else {_name_of(estimators): estimators}
    if not named:
        raise ValueError("estimators must hold at least one fitted estimator, got an empty dict.")
    paths = {name: _objectives_of(name, estimator) for name, estimator in named.items()}
    ax = axes_or_new(ax)
    handles: list[Any] = []
    names: list[str] = []
    for i, (name, path) in enumerate(paths.items()):
        colour = COLOURS[i % len(COLOURS)]
        line = LINES[i % len(LINES)]
        passes = np.arange(1, len(path) + 1)
        converged = getattr(named[name], "converged_", None)
        handles += ax.plot(
            passes, path, color=colour, linewidth=2, linestyle=line, marker="." if len(path) < 30 else ""
        )
        end = "X" if converged is False else "o"
        ax.plot(passes[-1], path[-1], marker=end, markersize=9, color=colour, linestyle="none")
        names.append(f"{short(name)} (not converged)" if converged is False else name)
    label_axes(ax, "pass over the data", "objective per row")
    ax.xaxis.get_major_locator().set_params(integer=True)
    add_legend(ax, handles, names)
    return ax


def _name_of(estimator: Any) -> str:
    return type(estimator).__name__ if hasattr(estimator, "fit") else "objective"


def _objectives_of(name: str, estimator: Any) -> NDArray[Any]:
    if hasattr(estimator, "fit"):
        check_is_fitted(estimator)
        estimator = getattr(estimator, "objectives_", None)
        if estimator is None:
            raise TypeError(f"{name} has no objectives_, because it is not fitted in passes.")
    path = np.asarray(estimator, dtype=np.float64)
    if path.ndim != 1 or len(path) == 0:
        raise ValueError(
            f"{name} has no curve to draw: expected one objective per pass, got shape {path.shape}. It was fitted "
            "without passes over the data."
        )
    return path
