"""The notebook display of a comparison: the verdict, a table for metrics and one for densities, and the notes."""

from typing import TYPE_CHECKING, Any

from vicinal._compare.words import difference_text, score_name, shown
from vicinal._pages import fragment

if TYPE_CHECKING:
    from vicinal._compare.results import Comparison, MethodResult


def comparison_html(comparison: "Comparison") -> str:
    """Return the HTML of a comparison, without scripts."""
    remarks = [
        f"{result.label}: {result.note}." for result in [*comparison.metrics, *comparison.densities] if result.note
    ]
    folds = f"{comparison.n_rows:,} rows, {comparison.n_features:,} columns, {comparison.n_folds} folds."
    groups = [
        _group(kind, results, comparison)
        for kind, results in (("Metric", comparison.metrics), ("Density", comparison.densities))
        if results
    ]
    notes = list(dict.fromkeys([folds, *comparison.notes, *remarks]))
    return fragment("comparison.html", comparison=comparison, groups=groups, notes=notes)


def _group(kind: str, results: "list[MethodResult]", comparison: "Comparison") -> dict[str, Any]:
    """Return the headings and the lines of a table."""
    scale = next((result.scale for result in results if result.main), results[0].kind)
    means = [result.main.mean for result in results if result.main]
    low, span = (min(means), max(means) - min(means)) if means else (0.0, 0.0)
    lines = []
    for result in results:
        line: dict[str, Any] = {"name": f"{result.label}{' *' if result.learned else ''}", "failure": None}
        if result.main is None:
            line["failure"] = result.failure or ""
        else:
            line |= {
                "value": shown(result.scale, result.main.mean),
                "width": round(10 + 110 * ((result.main.mean - low) / span if span else 1.0)),
                "colour": "#0b8a7b" if result.learned else "#8a939b",
                "difference": difference_text(result, comparison),
            }
        lines.append(line)
    heads = [kind, score_name(scale, comparison.n_neighbors), "", "Difference from the best plain method"]
    return {"heads": heads, "lines": lines}
