"""The notebook display of a comparison: the verdict, a table for metrics and one for densities, and the notes."""

from html import escape
from typing import TYPE_CHECKING

from vicinal._compare.words import difference_text, score_name, shown

if TYPE_CHECKING:
    from vicinal._compare.results import Comparison, MethodResult


_CELL = 'style="text-align:left;padding:2px 12px 2px 0;vertical-align:top"'


def comparison_html(comparison: "Comparison") -> str:
    """Return the HTML of a comparison, without scripts."""
    parts = [
        f'<p style="max-width:80ch"><b>{escape(comparison.verdict)}</b></p>',
        f"<p>Next: <code>{escape(comparison.next_step)}</code></p>",
    ]
    for kind, results in (("Metric", comparison.metrics), ("Density", comparison.densities)):
        if results:
            parts.append(_table(kind, results, comparison))
    notes = [
        *comparison.notes,
        *(f"{result.label}: {result.note}." for result in [*comparison.metrics, *comparison.densities] if result.note),
    ]
    folds = f"{comparison.n_rows:,} rows, {comparison.n_features:,} columns, {comparison.n_folds} folds."
    items = "".join(f"<li>{escape(note)}</li>" for note in [folds, *dict.fromkeys(notes)])
    return f"<div>{''.join(parts)}<ul style='opacity:.8;max-width:90ch'>{items}</ul></div>"


def _table(kind: str, results: "list[MethodResult]", comparison: "Comparison") -> str:
    scale = next((result.scale for result in results if result.main), results[0].kind)
    head = [kind, score_name(scale, comparison.n_neighbors), "", "Difference from the best plain method"]
    means = [result.main.mean for result in results if result.main]
    low, span = (min(means), max(means) - min(means)) if means else (0.0, 0.0)
    rows = []
    for result in results:
        name = f"{escape(result.label)}{' *' if result.learned else ''}"
        if result.main is None:
            rows.append(f"<tr><td {_CELL}>{name}</td><td {_CELL} colspan='3'>{escape(result.failure or '')}</td></tr>")
            continue
        width = 10 + 110 * ((result.main.mean - low) / span if span else 1.0)
        colour = "#0b8a7b" if result.learned else "#8a939b"
        bar = f'<div style="height:8px;border-radius:4px;width:{width:.0f}px;background:{colour}"></div>'
        against = escape(difference_text(result, comparison))
        value = escape(shown(result.scale, result.main.mean))
        rows.append(
            f"<tr><td {_CELL}>{name}</td><td {_CELL}>{value}</td><td {_CELL}>{bar}</td><td {_CELL}>{against}</td></tr>"
        )
    heads = "".join(f"<th {_CELL}>{escape(text)}</th>" for text in head)
    return f"<table style='border-collapse:collapse'><tr>{heads}</tr>{''.join(rows)}</table>"
