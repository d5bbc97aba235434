"""From the summary to one HTML document: no network, nothing of the data is ever executed.

Text is escaped here; what the script needs travels as JSON in a data block, with ``<``, ``>`` and ``&`` written as
escapes, and the script only ever sets text, never HTML.  A content security policy allows this one script by its
hash and forbids every request.
"""

import base64
import hashlib
import json
import re
from html import escape
from importlib.resources import files
from string import Template

from vicinal._compare.words import shown
from vicinal._report.charts import heatmap, interval_mark, line_chart
from vicinal._words import printable


def render(summary):
    """The HTML document."""
    folder = files("vicinal._report")
    script, style, template = (
        folder.joinpath(name).read_text(encoding="utf-8") for name in ("report.js", "style.css", "template.html")
    )
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    sections = [
        _headline(summary["headline"]),
        _methods(summary),
        _views(summary["views"]),
        _purity(summary["purity"]),
        _metric(summary["metric"]),
        _path(summary["path"], summary["metric"]),
        _outliers(summary["outliers"]),
        _data(summary["data"]),
        _code(summary["code"]),
    ]
    document = Template(template).substitute(
        title=escape(summary["title"]),
        state=summary["verdict"]["state"],
        verdict=_verdict(summary["verdict"]),
        facts=_facts(summary["data"]),
        contents="".join(f'<li><a href="#{key}">{escape(name)}</a></li>' for key, name, body in sections if body),
        sections="".join(_section(*section) for section in sections if section[2]),
        version=escape(summary["version"]),
        style=style,
        script=script,
        digest=digest,
        data=_safe_json(summary["views"]),
    )
    return printable(document)


def _safe_json(value):
    """JSON that can stand in a script element whatever texts it holds."""
    text = json.dumps(_printable(value), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _printable(value):
    """The value with `printable` texts: the script would show what JSON only escapes."""
    if isinstance(value, dict):
        return {key: _printable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_printable(item) for item in value]
    return printable(value) if isinstance(value, str) else value


def _verdict(verdict):
    details = "".join(f'<li class="{detail["state"]}">{_minus(detail["text"])}</li>' for detail in verdict["details"])
    return f'<p class="short">{escape(verdict["text"])}</p>' + (f"<ul>{details}</ul>" if details else "")


def _minus(text):
    """Escaped text with minus signs that are as wide as plus signs."""
    return re.sub(r"-(?=[0-9])", "\u2212", escape(text))


def _section(key, name, body):
    return f'<section id="{key}" aria-labelledby="{key}-h"><h2 id="{key}-h">{escape(name)}</h2>{body}</section>'


def _percent(value, digits=1):
    return f"{100 * value:.{digits}f} %"


def _facts(data):
    facts = [f"{data['rows']:,} rows", f"{data['columns']:,} columns"]
    if data["classes"]:
        facts.append(f"{len(data['classes'])} classes, the largest {_percent(data['largest_class'])}")
    if data["target"]:
        facts.append(
            f"target from {data['target']['low']:g} to {data['target']['high']:g}, mean {data['target']['mean']:g}"
        )
    facts.append(f"{data['folds']} folds")
    return "".join(f"<li>{escape(fact)}</li>" for fact in facts)


def _scale(scores, kind):
    """A common scale for the intervals of scores."""
    lows = [score["mean"] if score["low"] is None else score["low"] for score in scores]
    highs = [score["mean"] if score["high"] is None else score["high"] for score in scores]
    low, high = min(lows), max(highs)
    if kind == "metric":
        low = max(low, 0.0)
    if kind != "density":
        high = min(high, 1.0)
    pad = 0.05 * (high - low) or 0.01
    return low - pad, high + pad


def _range(kind, score):
    if score["low"] is None:
        return "no interval from one fold"
    low, high = score["low"], score["high"]
    if kind == "metric":
        return f"{100 * max(low, 0):.1f} to {100 * min(high, 1):.1f} %"
    return f"{low:.3f} to {min(high, 1):.3f}" if kind == "r2" else f"{low:.2f} to {high:.2f}"


def _headline(cards):
    parts = []
    for card in cards:
        low, high = _scale(card["bars"], card["scale"])
        rows = []
        for bar in card["bars"]:
            css = {"before": "plain", "best plain": "plain", "learned": "learned"}[bar["role"]]
            said = f"{bar['label']}: {shown(card['scale'], bar['mean'])}, 95 % interval {_range(card['scale'], bar)}"
            rows.append(
                f'<tr class="{css}"><th scope="row">{escape(bar["label"])}<small>{bar["role"]}</small></th>'
                f"<td>{interval_mark(bar, low, high, css, said)}</td>"
                f'<td class="number">{shown(card["scale"], bar["mean"])}<small>{_range(card["scale"], bar)}</small></td></tr>'
            )
        change = card["change"]
        parts.append(
            f'<article class="card"><h3>{escape(card["name"])}</h3><p class="meaning">{escape(card["meaning"])}</p>'
            f"<table><caption class='hidden'>{escape(card['name'])}, before and after</caption>{''.join(rows)}</table>"
            f'<p class="change {change["state"]}">{_minus(change["text"])}</p></article>'
        )
    note = (
        '<p class="hint">All figures are for held-out rows. Intervals are 95 % intervals over the folds; the last line of a card is '
        "learned minus best plain, on the same folds.</p>"
    )
    return "before-after", "Before and after", f'<div class="cards">{"".join(parts)}</div>{note}' if parts else ""


def _methods(summary):
    parts = []
    for kind, key in (("metric", "metrics"), ("density", "densities")):
        lines = summary[key]
        scored = [line["score"] for line in lines if line["score"]]
        if not scored:
            continue
        scale = "r2" if kind == "metric" and summary["data"]["task"] == "numbers" else kind
        neighbors = summary["data"]["neighbors"]
        head = {"metric": f"{neighbors}-NN accuracy", "r2": f"{neighbors}-NN R²", "density": "Log-likelihood"}[scale]
        low, high = _scale(scored, scale)
        others = next((list(line["others"]) for line in lines if line["others"]), [])
        columns = [
            "Metric" if kind == "metric" else "Density",
            head,
            "95 % interval",
            *map(str.capitalize, others),
            "Against the best plain one",
        ]
        body = "".join(_method_row(line, scale, low, high, others) for line in lines)
        heads = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
        parts.append(
            f'<div class="scroll" tabindex="0" role="region" aria-label="All {key}"><table class="methods"><caption>{"Metrics" if kind == "metric" else "Densities"}'
            f"</caption><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
        )
    return "methods", "Every method", "".join(parts)


def _method_row(line, kind, low, high, others):
    tag = '<span class="tag">learned</span>' if line["learned"] else ""
    name = f'<th scope="row">{escape(line["label"])} {tag}</th>'
    if line["failure"]:
        return f'<tr class="failed">{name}<td colspan="{3 + len(others)}">not possible: {escape(line["failure"])}</td></tr>'
    css = "learned" if line["learned"] else "plain"
    said = f"{line['label']}: {shown(kind, line['score']['mean'])}, 95 % interval {_range(kind, line['score'])}"
    cells = [
        f'<td class="number">{shown(kind, line["score"]["mean"])}</td>',
        f"<td>{interval_mark(line['score'], low, high, css, said)}<small>{_range(kind, line['score'])}</small></td>",
        *(f'<td class="number">{escape(line["others"].get(other, ""))}</td>' for other in others),
    ]
    note = f"<small>{escape(line['note'])}</small>" if line["note"] else ""
    if line["not_judged"]:
        cells.append(f'<td class="change even">not judged: {escape(line["not_judged"])}</td>')
    elif line["reference"]:
        cells.append(f'<td class="change even">the best plain one{note}</td>')
    elif line["difference"]:
        cells.append(f'<td class="change {line["state"]}">{_minus(line["difference"]["text"])}{note}</td>')
    else:
        cells.append(f"<td>{note}</td>")
    return f'<tr class="{css}{" best" if line["best"] or line["reference"] else ""}">{name}{"".join(cells)}</tr>'


def _views(views):
    if views is None:
        return "plane", "The rows, before and after", ""
    figures = "".join(
        f"<figure><figcaption><strong>{escape(side.capitalize())}: {escape(views[side]['label'])}</strong> "
        f"<span>{_percent(views[side]['explained'], 0)} of the variance in this plane</span></figcaption>"
        f'<svg class="plane" id="plane-{side}" tabindex="0" role="group" '
        f'aria-label="{escape(views[side]["label"], quote=True)}: {len(views["rows"])} rows; arrow keys move from row to row, Escape clears"></svg></figure>'
        for side in ("before", "after")
    )
    drawn = f"{len(views['rows']):,} of {views['n']:,} rows are drawn. " if len(views["rows"]) < views["n"] else ""
    return (
        "plane",
        "The rows, before and after",
        f'<p class="hint">{drawn}Filled points were held out; hollow points are rows the metric was learned from. Point at a row to see '
        "its values; click it (or use the arrow keys) to see its neighbours before and after.</p>"
        f'<div id="legend" class="legend" role="group" aria-label="Classes"></div><div class="planes">{figures}</div>'
        '<div class="picked"><p><label>Find row <input id="pick" type="text" autocomplete="off" spellcheck="false"></label> '
        '<button type="button" id="clear">Clear</button></p>'
        '<div id="details" aria-live="polite"><p class="muted">No row is selected.</p></div></div><div id="tip" role="tooltip" hidden></div>',
    )


def _purity(purity):
    if purity is None:
        return "purity", "Neighbour purity", ""
    curves = [
        (curve["label"], curve["values"], "best" if curve["best"] else "learned" if curve["learned"] else "plain")
        for curve in purity["curves"]
    ]
    chart = line_chart(
        curves,
        x_label="number of neighbours k",
        y_label="share of the right class",
        label=f"Share of right neighbours among the first k, for each metric: {_said_curves(purity['curves'])}",
        as_percent=True,
    )
    return (
        "purity",
        "Neighbour purity",
        '<p class="hint">The share of a held-out row\'s first k neighbours that are of its class, by k. Higher and flatter is better.</p>'
        f'<div class="scroll" tabindex="0" role="region" aria-label="Purity chart">{chart}</div>',
    )


def _said_curves(curves):
    """The ends of the curves in words, for those who do not see the chart."""
    return "; ".join(
        f"{curve['label']} {_percent(curve['values'][0])} at k = 1, {_percent(curve['values'][-1])} at k = {len(curve['values'])}"
        for curve in curves
    )


def _metric(metric):
    if metric is None:
        return "metric", "What was learned", ""
    largest = max(max(entry["after"], entry["before"] or 0.0) for entry in metric["relevance"]) or 1.0
    rows = []
    for entry in metric["relevance"]:
        before = (
            ""
            if entry["before"] is None
            else f'<span class="bar plain" style="width:{100 * entry["before"] / largest:.1f}%"></span>'
        )
        rows.append(
            f'<tr><th scope="row">{escape(entry["name"])}</th><td class="bars"><span class="bar learned" '
            f'style="width:{100 * entry["after"] / largest:.1f}%"></span>{before}</td><td class="number">{_percent(entry["after"])}</td></tr>'
        )
    left_out = (
        f" The {metric['left_out']} least important columns are left out of the square." if metric["left_out"] else ""
    )
    return (
        "metric",
        "What was learned",
        f'<p class="hint">{escape(metric["label"])}, learned from the training rows of one split. The share of a column is the squared '
        "distance that one standard deviation of it makes; the grey bar is its share before.</p>"
        f'<div class="two"><div><h3>Relevance of the columns</h3><div class="scroll" tabindex="0" role="region" aria-label="Relevance">'
        f'<table class="relevance"><caption class="hidden">Share of each column</caption>{"".join(rows)}</table></div></div>'
        f'<div><h3>The learned metric</h3><div class="scroll" tabindex="0" role="region" aria-label="Learned metric">'
        f"{heatmap(metric['columns'], metric['matrix'], 'The learned matrix M, in standard deviations of the columns')}</div>"
        '<p class="hint">Each square is an entry of M: <span class="key plus"></span> columns that add up in a distance, '
        f'<span class="key minus"></span> columns that cancel each other.{left_out}</p></div></div>',
    )


def _path(path, metric):
    if path is None:
        if metric is None:
            return "path", "Convergence", ""
        return (
            "path",
            "Convergence",
            f"<p>{escape(metric['label'])} is found in one step: there is no path to show.</p>",
        )
    chart = line_chart(
        [("", path["values"], "best")], x_label="pass over the pairs", y_label="objective per row", label=f"Objective of {path['label']} after each pass: from {path['values'][0]:.4g} to {path['values'][-1]:.4g}", height=240,
    )  # fmt: skip
    end = "converged" if path["converged"] else "stopped before it converged"
    return (
        "path",
        "Convergence",
        f'<p class="hint">{escape(path["label"])} {end} after {len(path["values"])} passes.</p>'
        f'<div class="scroll" tabindex="0" role="region" aria-label="Convergence chart">{chart}</div>',
    )


def _outliers(outliers):
    if outliers is None:
        return "outliers", "Unusual rows", ""
    rows = []
    for row in outliers["rows"]:
        why = "; ".join(_reason(entry) for entry in row["why"])
        flag = '<span class="flag">outlier</span>' if row["outlier"] else ""
        rows.append(
            f'<tr><th scope="row">{escape(row["row"])} {flag}</th><td class="number">{row["log_density"]:.2f}</td>'
            f'<td class="number">{row["p_value"]:.4f}</td><td>{escape(why)}</td></tr>'
        )
    heads = "".join(f'<th scope="col">{head}</th>' for head in ("Row", "Log-density", "p-value", "Why"))
    return (
        "outliers",
        "Unusual rows",
        f'<p class="hint">Each row is scored under the {escape(outliers["density"])} density of the others; a typical row has '
        f"{outliers['typical']:.2f}. Of {outliers['n']:,} rows {outliers['flagged']:,} lie below the lower line of a box plot of the "
        "scores, and are called outliers. The score is the log-density, also under neighbours that are trusted: rows of a small "
        "group do not vouch for each other. The p-value is the share of rows that are no less strange: a rank, so the strangest "
        "of n rows always has 1/n. Why: the columns that are most surprising given the row's other columns, with the 90 % interval "
        "in which they were expected.</p>"
        f'<div class="scroll" tabindex="0" role="region" aria-label="Unusual rows"><table class="methods"><caption class="hidden">The least likely rows</caption>'
        f"<thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>",
    )


def _reason(entry):
    return f"{entry['name']}: expected {entry['low']:.4g} to {entry['high']:.4g}, got {entry['value']:.4g}"


def _data(data):
    items = "".join(f"<li>{escape(note)}</li>" for note in data["notes"])
    more = f" and {data['columns'] - len(data['names'])} more" if data["columns"] > len(data["names"]) else ""
    names = ", ".join(escape(name) for name in data["names"])
    classes = ""
    if data["classes"]:
        listed = data["classes"][:40]
        classes = "<p><strong>Classes:</strong> " + ", ".join(
            f"{escape(entry['name'])} ({entry['count']:,})" for entry in listed
        )
        classes += f" and {len(data['classes']) - 40} more</p>" if len(data["classes"]) > 40 else "</p>"
    return (
        "data",
        "What was done to the data",
        f"<ul>{items}</ul><p><strong>Columns:</strong> {names}{more}</p>{classes}",
    )


def _code(code):
    return (
        "code",
        "Do it again in Python",
        f'<div class="code"><button type="button" id="copy">Copy</button><pre tabindex="0" aria-label="Python code"><code id="source">{escape(code)}</code></pre></div>',
    )
