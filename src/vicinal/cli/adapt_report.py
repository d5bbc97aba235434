"""The report of `vicinal adapt`: one HTML file without scripts that needs no network."""

from html import escape
from typing import Any

from vicinal._words import printable

_STYLE = """\
body{font:16px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#1b1f24;background:#fff}
table{border-collapse:collapse;margin:1rem 0}th,td{padding:.3rem .8rem;text-align:right;border-bottom:1px solid #d8dee4}
th:first-child,td:first-child{text-align:left}.verdict{font-size:1.2rem;padding:1rem;background:#eef4fb;border-radius:.4rem}
.pair{display:grid;grid-template-columns:1fr 1fr;gap:1rem}ol{margin:.2rem 0}.hit{font-weight:600;color:#116329}
@media(prefers-color-scheme:dark){body{background:#15181c;color:#e6e9ec}.verdict{background:#1f2a36}.hit{color:#6fdd8b}
th,td{border-color:#3a4048}}"""


def adapt_page(summary: dict[str, Any], changed: list[dict[str, Any]], source: str) -> str:
    """Return the whole page; every text of the data is escaped, with control characters and direction marks made visible."""
    title = f"vicinal adapt: {escape(source)}"
    return printable(
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f'<meta name="viewport" content="width=device-width"><title>{title}</title><style>{_STYLE}</style></head><body>'
        f'<h1>{title}</h1><p class="verdict">{escape(summary["verdict"])}</p>{_facts(summary)}'
        f"<h2>Before and after</h2>{_measures(summary)}<h2>Methods</h2>{_methods(summary)}{_examples(changed)}</body></html>\n"
    )


def _facts(summary: dict[str, Any]) -> str:
    pairs = summary["pairs"]
    kept = ""
    if summary["raw_kept"] is not None:
        kept = f" rca keeps {100 * summary['raw_kept']:.0f} % of the raw metric, chosen by cross-validation."
    return (
        f"<p>{summary['rows']:,} rows of {summary['columns']:,} columns, compared by their direction. {pairs['fit']:,} {summary['unit']}s "
        f"were used for learning, {pairs['choose']:,} for choosing the method, and {pairs['test']:,} for measuring it; no row is in two of the "
        f"parts.{kept}</p>"
    )


def _measures(summary: dict[str, Any]) -> str:
    rows = []
    for name, before in summary["before"]["measures"].items():
        after, gain = summary["after"]["measures"][name], summary["gain"]["measures"][name]
        low, high = gain["interval"]
        rows.append(
            f"<tr><td>{escape(name)}</td><td>{before['mean']:.4f}</td><td>{after['mean']:.4f}</td>"
            f"<td>{gain['mean']:+.4f}</td><td>{low:+.4f} to {high:+.4f}</td></tr>"
        )
    head = "<tr><th>measure</th><th>before</th><th>after</th><th>change</th><th>95 % interval</th></tr>"
    said = f"<p>Raw rows before, {escape(summary['measured'])} after, on unseen {summary['unit']}s:</p>"
    return f"{said}<table>{head}{''.join(rows)}</table>"


def _methods(summary: dict[str, Any]) -> str:
    head = "<tr><th>method</th><th>nDCG@10</th><th>recall@10</th><th>seconds</th></tr>"
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td>{found['nDCG@10']:.4f}</td><td>{found['recall@10']:.4f}</td><td>{found['seconds']:.2f}</td></tr>"
        for name, found in summary["methods"].items()
    )
    return f"<p>On the {summary['unit']}s for choosing the method:</p><table>{head}{rows}</table>"


def _examples(changed: list[dict[str, Any]]) -> str:
    if not changed:
        return ""
    parts = ["<h2>Queries whose neighbours changed</h2><p>Rows that belong to the query are bold.</p>"]
    for one in changed:
        lists = "".join(f"<div>{when}<ol>{_listed(one[when])}</ol></div>" for when in ("before", "after"))
        parts.append(f'<h3>{escape(one["query"])}</h3><div class="pair">{lists}</div>')
    return "".join(parts)


def _listed(found: list[dict[str, Any]]) -> str:
    return "".join(f"<li{' class=hit' if row['relevant'] else ''}>{escape(row['text'])}</li>" for row in found)
