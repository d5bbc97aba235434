"""The notebook display of a fitted estimator: what was learned, whether the fit converged, and a small picture.

All text is escaped, the colours are those of the page, and no resources are loaded.
"""

from collections import Counter
from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from vicinal._words import count, printable

_MOST_BARS = 10
_BOX = "font:14px/1.45 system-ui,sans-serif;border:1px solid #8886;border-radius:8px;padding:8px 12px;margin:4px 0;max-width:720px"


class NotebookMixin:
    """Mixin that shows facts about a fitted estimator above scikit-learn's diagram of its parameters.

    Put it before ``BaseEstimator`` in the list of bases.
    """

    def _repr_html_inner(self) -> str:
        return fitted_html(self) + super()._repr_html_inner()  # type: ignore[misc]

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        bundle = super()._repr_mimebundle_(**kwargs)  # type: ignore[misc]
        if "text/html" in bundle:
            bundle["text/html"] = fitted_html(self) + bundle["text/html"]
        return bundle


def fitted_html(estimator: Any) -> str:
    """Return the facts of a fitted estimator and small pictures, as HTML; empty text before it is fitted.

    Names of columns may come from an untrusted table or model file, so they are escaped as in a report.
    """
    try:
        check_is_fitted(estimator)
    except (NotFittedError, TypeError):
        return ""
    facts = "".join(f"<li>{escape(fact)}</li>" for fact in fitted_facts(estimator))
    pictures = _shares(estimator) + sparkline(getattr(estimator, "objectives_", ()), "objective per row, pass by pass")
    if not facts and not pictures:
        return ""
    name = escape(type(estimator).__name__)
    return printable(
        f'<div style="{_BOX}"><b>{name}</b><ul style="margin:2px 0 4px;padding-left:20px">{facts}</ul>{pictures}</div>'
    )


class FitFacts(NamedTuple):
    """What every fitted estimator may say about its fit; None where it says nothing.

    converged : whether the fit converged
    passes : the number of passes over the pairs
    objective : per row, of the returned parameters
    directions : the numbers of directions and of columns of a metric
    neighbors : the 5 %, 50 % and 95 % quantiles of the effective number of neighbours of the training rows
    """

    converged: bool | None
    passes: int | None
    objective: float | None
    directions: tuple[int, int] | None
    neighbors: tuple[float, float, float] | None

    @classmethod
    def of(cls, estimator: Any) -> Self:
        """Return the facts of a fitted estimator."""
        converged, passes = getattr(estimator, "converged_", None), getattr(estimator, "n_iter_", None)
        objectives = np.ravel(getattr(estimator, "objectives_", ()))
        components: Any = getattr(estimator, "components_", None)
        neighbors = np.asarray(getattr(estimator, "effective_neighbors_", ()))
        return cls(
            None if converged is None else bool(converged),
            None if passes is None else int(passes),
            float(objectives[-1]) if objectives.size else None,
            (len(components), components.shape[1]) if np.ndim(components) == 2 else None,
            tuple(np.quantile(neighbors, [0.05, 0.5, 0.95]).tolist()) if neighbors.size else None,
        )


def fitted_facts(estimator: Any) -> list[str]:
    """Return what was learned, in short sentences."""
    facts, fit = [], FitFacts.of(estimator)
    if fit.converged is not None:
        passes = "" if fit.passes is None else f" after {count(fit.passes, 'pass')}"
        facts.append(("converged" if fit.converged else "did NOT converge: it stopped") + passes)
    if getattr(estimator, "solver_", None) == "stochastic":
        facts.append("solver: stochastic, which is not exact")
    if fit.directions is not None:
        facts.append("{} directions of {} columns".format(*fit.directions))
    if fit.neighbors is not None:
        low, middle, high = fit.neighbors
        facts.append(f"effective neighbours: {middle:.3g} (90 % of the rows: {low:.3g} to {high:.3g})")
    for name, said in (
        ("n_neighbors_", "chosen number of neighbours"),
        ("noise_", "chosen noise (a variance)"),
        ("shrinkage_", "shrinkage"),
        ("offset_", "threshold of the scores"),
    ):
        value: Any = getattr(estimator, name, None)
        if np.ndim(value) == 0 and isinstance(value, (int, float, np.number)):
            facts.append(f"{said}: {value:.4g}")
    labels = np.asarray(getattr(estimator, "labels_", ()))
    if labels.size and labels.dtype.kind in "iu":
        outliers = hasattr(estimator, "offset_")
        facts.append(
            f"{int((labels == -1).sum()):,} of {labels.size:,} training rows are outliers"
            if outliers
            else f"{len(np.unique(labels[labels >= 0])):,} clusters of {labels.size:,} rows"
        )
    if hasattr(estimator, "classes_"):
        facts.append(f"{len(estimator.classes_):,} classes")
    facts += _facts_of_tables(estimator)
    if not facts and hasattr(estimator, "n_features_in_"):
        facts.append(f"fitted to {estimator.n_features_in_:,} columns")
    return facts


def _facts_of_tables(estimator: Any) -> list[str]:
    """Return what an encoder, a dequantizer or an imputer has found in the columns of a table."""
    facts = []
    kinds = getattr(estimator, "types_", None)
    if isinstance(kinds, dict):
        found = Counter(kind.kind for kind in kinds.values())
        facts.append(
            f"{count(len(kinds), 'column')}: " + ", ".join(f"{number} {kind}" for kind, number in found.items())
        )
    steps = np.asarray(getattr(estimator, "steps_", ()))
    if steps.size and steps.dtype.kind == "f":
        rounded = steps[steps > 0]
        size = f", by steps from {rounded.min():g} to {rounded.max():g}" if rounded.size else ""
        facts.append(f"{rounded.size} of {count(steps.size, 'column')} are rounded{size}")
    scale = getattr(estimator, "draw_scale_", None)
    if scale is not None:
        facts += [
            f"filled in by {type(estimator.density_).__name__}: {fact}" for fact in fitted_facts(estimator.density_)
        ]
        facts.append(f"deviations of draws from the conditional mean are multiplied by {scale:.3g}")
    return facts


def _spread(estimator: Any) -> np.ndarray | None:
    """Return the standard deviations of the training rows' columns; None if the estimator does not hold them."""
    total = getattr(estimator, "total_covariance_", None)
    if total is not None:
        return np.sqrt(np.diag(total))
    if hasattr(estimator, "gaussian_components_"):  # whose centres are not the rows
        return None
    try:
        centres = getattr(getattr(estimator, "mixture_", None), "centres", None)
    except NotFittedError:  # it was saved without its rows
        return None
    if not isinstance(centres, np.ndarray) or centres.shape[1:] != estimator.components_.shape[1:]:
        return None
    return centres.std(axis=0, dtype=np.float64)


def column_shares(matrix: np.ndarray) -> np.ndarray | None:
    """Return the share of each column in the squared distance, or None if all distances are 0 or overflow.

    Parameters
    ----------
    matrix : array of shape (k, d)
        The map A of the metric, in units of the columns that are compared, such as standard deviations. The share of column j is
        the contribution of one unit of it, :math:`(A'A)_{jj} / \\operatorname{tr} A'A`.
    """
    with np.errstate(over="ignore"):
        squares = np.square(matrix).sum(axis=0)
    return squares / squares.sum() if np.isfinite(squares).all() and squares.sum() > 0 else None


def _shares(estimator: Any) -> str:
    """Return bars with the share of each column's standard deviation (or unit) in the squared distance, the largest first."""
    components = getattr(estimator, "components_", None)
    if components is None or np.ndim(components) != 2 or not np.size(components):
        return ""
    spread = _spread(estimator)
    shares = column_shares(np.asarray(components, dtype=np.float64) * (1.0 if spread is None else spread))
    if shares is None:
        return ""
    names = getattr(estimator, "feature_names_in_", [f"x{i}" for i in range(len(shares))])
    rows = []
    for i in np.argsort(-shares, kind="stable")[:_MOST_BARS]:
        bar = f'<div style="height:8px;border-radius:4px;background:#0b8a7b;width:{100 * shares[i] / shares.max():.1f}%"></div>'
        rows.append(
            f'<tr><td style="text-align:left;padding:1px 8px 1px 0">{escape(str(names[i]))}</td><td style="width:180px">{bar}</td>'
            f'<td style="padding:1px 0 1px 8px;white-space:nowrap">{100 * shares[i]:.1f} %</td></tr>'
        )
    more = f" ({len(shares) - _MOST_BARS} more)" if len(shares) > _MOST_BARS else ""
    what = "unit" if spread is None else "standard deviation"
    caption = f'<caption style="text-align:left;opacity:.75">share of one {what} of each column in the squared distance{more}</caption>'
    return f'<table style="border-collapse:collapse;font-size:13px">{caption}{"".join(rows)}</table>'


def sparkline(values: Any, label: str, width: int = 260, height: int = 48) -> str:
    """Return a small curve with its first and last value; empty text for fewer than two finite values."""
    values = np.asarray(values, dtype=np.float64).ravel()
    values = values[np.isfinite(values)]
    if len(values) < 2:
        return ""
    low, span = values.min(), np.ptp(values) or 1.0
    x = np.linspace(3, width - 3, len(values))
    y = height - 4 - (height - 8) * (values - low) / span
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
    said = escape(f"{label}: from {values[0]:.5g} to {values[-1]:.5g}", quote=True)
    return (
        f'<div style="font-size:13px;opacity:.85">{said}</div><svg width="{width}" height="{height}" role="img" aria-label="{said}">'
        f'<polyline points="{points}" fill="none" stroke="#0b8a7b" stroke-width="2"/></svg>'
    )


def table_html(names: Sequence[str], lines: Sequence[Sequence[str]], most: int = 20) -> str:
    """Return a table of escaped cells as HTML, with its first lines."""
    head = "".join(f'<th style="text-align:left;padding:2px 8px">{name}</th>' for name in names)
    body = "".join(
        "<tr>" + "".join(f'<td style="text-align:left;padding:2px 8px">{cell}</td>' for cell in line) + "</tr>"
        for line in lines[:most]
    )
    more = f"<div>and {len(lines) - most:,} more</div>" if len(lines) > most else ""
    return printable(f'<div style="{_BOX}"><table><tr>{head}</tr>{body}</table>{more}</div>')
