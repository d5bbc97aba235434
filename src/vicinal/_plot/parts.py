"""Common parts of the pictures: axes, colours that colour-blind people can distinguish, and labels of any type."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.decomposition import PCA

from vicinal._supervision import code_labels, read_values

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.legend import Legend


# Okabe and Ito's colours without yellow, which is too light on white; seven colours and five markers make 35
# different signs, and neighbours in the list differ in both.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v")
LINES = ("-", "--", "-.", (0, (1, 1)), (0, (5, 1, 1, 1, 1, 1)))
GREY = "#8C8C8C"
# Sizes that can be read when a picture of the default size is shown at half of it.
_FIGURE_SIZE = (5.6, 4.2)
_FONT = {"font.size": 12.0, "axes.labelsize": 13.0, "xtick.labelsize": 11.0, "ytick.labelsize": 11.0}


def matplotlib_or_explain() -> ModuleType:
    """Import matplotlib.pyplot, or raise an error that says how to install it."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            "pictures need matplotlib, which is not installed. Run: pip install 'vicinal[plot]'"
        ) from error
    return plt


def axes_or_new(ax: Axes | None, figure_size: tuple[float, float] = _FIGURE_SIZE) -> Axes:
    """Return the axes to draw on: the given ones, or those of a new figure."""
    plt = matplotlib_or_explain()
    from matplotlib.axes import Axes

    if ax is None:
        with plt.rc_context(_FONT):
            return plt.subplots(figsize=figure_size, layout="constrained")[1]
    if not isinstance(ax, Axes):
        raise TypeError(
            f"ax must be a matplotlib Axes or None, got {type(ax).__name__}. Take one of the axes of a "
            "figure: fig, ax = plt.subplots()."
        )
    return ax


def label_axes(ax: Axes, x: str, y: str) -> None:
    """Label the axes; labels are plain text, never formulas, whatever characters they contain."""
    ax.set_xlabel(x, parse_math=False)
    ax.set_ylabel(y, parse_math=False)


def sign_of(code: int) -> dict[str, str]:
    """Return the colour and marker of a class; grey without a class."""
    if code < 0:
        return {"color": GREY, "marker": MARKERS[0]}
    return {"color": COLOURS[code % len(COLOURS)], "marker": MARKERS[code % len(MARKERS)]}


def add_legend(
    ax: Axes, handles: Sequence[Any], names: Iterable[object], *, title: str | None = None, outside: bool = False
) -> Legend:
    """Add a legend of plain text; matplotlib itself would drop "_a" and read "$x$" as a formula."""
    size = float(ax.xaxis.label.get_fontsize()) * 0.85
    place: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)} if outside else {"loc": "best"}
    legend = ax.legend(
        handles, [str(i) for i in range(len(handles))], title=title, fontsize=size, title_fontsize=size,
        framealpha=0.8, borderpad=0.3, handletextpad=0.4, **place,
    )  # fmt: skip
    for text, name in zip(legend.get_texts(), names, strict=True):
        text.set_text(short(name, 40))
        text.set_parse_math(False)
    handle: Any
    for handle in legend.legend_handles:
        handle.set_alpha(1.0)
        if hasattr(handle, "set_sizes"):  # dots of a large set are too small for a legend
            handle.set_sizes([40.0])
    return legend


def principal_plane(rows: NDArray[Any]) -> tuple[Any, tuple[str, str]]:
    """Return the PCA of two components, and what they are called."""
    pca = PCA(2, random_state=0).fit(rows)
    first, second = (
        f"principal component {i + 1} ({share:.0%})" for i, share in enumerate(pca.explained_variance_ratio_)
    )
    return pca, (first, second)


def short(name: object, longest: int = 24) -> str:
    """Return a name shortened to a few characters on one line."""
    text = " ".join(str(name).split()) or repr(name)
    return text if len(text) <= longest else text[: longest - 1] + "…"


def check_labels(y: ArrayLike, n: int) -> tuple[Any, Any, np.ndarray | None]:
    """Return labels as codes and names, or a continuous target.

    The result is ``(codes, names, None)`` with code -1 for missing labels, or ``(None, None, values)`` for numbers
    with fractions.
    """
    values, missing = read_values(y)
    if values.ndim == 2 and values.shape[1] == 1:
        values, missing = values[:, 0], missing[:, 0]
    if values.shape == (n,) and values.dtype.kind == "f" and np.any(np.isfinite(values) & (np.floor(values) != values)):
        return None, None, np.where(missing, np.nan, values.astype(np.float64))
    classes, codes = code_labels(y, n_rows=n, partial=True)
    names = [f"{name:g}" for name in classes] if classes.dtype.kind == "f" else classes.tolist()
    order = getattr(getattr(y, "cat", y), "categories", None)  # pandas' categories have their own order
    if order is None:
        return codes, names, None
    by_category = [names.index(name) for name in order if name in names]
    number = np.append(np.argsort(by_category), -1)  # the last entry is for code -1
    return number[codes], [names[k] for k in by_category], None
