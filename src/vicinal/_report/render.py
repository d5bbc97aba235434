"""Rendering of the summary as one HTML document that needs no network and never executes any of the data.

Text is escaped here; the data of the script are JSON in a data block, with ``<``, ``>`` and ``&`` written as
escapes, and the script only sets text, never HTML.  A content security policy allows this one script by its
hash and forbids every request.
"""

import base64
import hashlib
import json
import re
from html import escape
from importlib.resources import files
from itertools import pairwise
from string import Template
from typing import Any

from vicinal._compare.words import shown
from vicinal._report.charts import heatmap, interval_mark, line_charts
from vicinal._words import printable

Section = tuple[str, str, str]  # its key, its heading and its body

_INTERVALS = """\
<p><strong>How to read the intervals.</strong> Scores of cross-validation folds are not independent, because their training rows
overlap; the intervals are Student intervals with the variance correction of Nadeau and Bengio (2003). Differences are taken fold
by fold. Those of the learned methods are widened (Bonferroni), so that all of them hold at once with 95 % confidence: choosing the
best of several methods after seeing the scores does not make it look better than it is.</p>"""


def render(summary: dict[str, Any]) -> str:
    """Return the HTML document."""
    folder = files("vicinal._report")
    script, style, template = (
        folder.joinpath(name).read_text(encoding="utf-8") for name in ("report.js", "style.css", "template.html")
    )
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    sections = [
        _headline(summary["headline"]),
        _methods(summary),
        _views(summary["views"]),
        _purity(summary["purity"], "held-out row" if summary["data"]["folds"] else "row"),
        _metric(summary["metric"], ", learned from the training rows of one split" if summary["data"]["folds"] else ""),
        _path(summary["path"], summary["metric"]),
        _outliers(summary["outliers"], summary["views"] is not None),
        _data(summary["data"]),
        _code(summary["code"]),
    ]
    document = Template(template).substitute(
        title=escape(summary["title"]),
        state=summary["verdict"]["state"],
        verdict=_verdict(summary["verdict"]),
        facts=_facts(summary["data"]),
        contents="".join(f'<li><a href="#{key}">{escape(name)}</a></li>' for key, name, body in sections if body),
        sections=_one_minus("".join(_section(*section) for section in sections if section[2])),
        version=escape(summary["version"]),
        style=style,
        script=script,
        digest=digest,
        data=_safe_json(summary["views"]),
        intervals=_INTERVALS if summary["metrics"] or summary["densities"] else "",
    )
    return printable(document)


def _safe_json(value: Any) -> str:
    """Return JSON that is safe in a script element, whatever text it contains."""
    text = json.dumps(_printable(value), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _printable(value: Any) -> Any:
    """Return the value with `printable` strings, because the script would show characters that JSON only escapes."""
    if isinstance(value, dict):
        return {key: _printable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_printable(item) for item in value]
    return printable(value) if isinstance(value, str) else value


def _verdict(verdict: dict[str, Any]) -> str:
    details = "".join(f'<li class="{detail["state"]}">{escape(detail["text"])}</li>' for detail in verdict["details"])
    return _one_minus(f'<p class="short">{escape(verdict["text"])}</p>' + (f"<ul>{details}</ul>" if details else ""))


def _one_minus(document: str) -> str:
    """Return the same minus sign before all numbers of a document, as wide as a plus sign; code is not changed."""

    def with_minus(match: re.Match[str]) -> str:
        return re.sub(r"(?<![\w.\-])-(?=[0-9])", "\u2212", match.group())

    parts = re.split(r"(<pre.*?</pre>)", document, flags=re.DOTALL)
    # The text between tags, and the attributes that are read aloud or shown as tooltips.
    shown = r">[^<>]+<|(?:aria-label|data-tip)=\"[^\"]*\""
    return "".join(part if part.startswith("<pre") else re.sub(shown, with_minus, part) for part in parts)


def _section(key: str, name: str, body: str) -> str:
    return f'<section id="{key}" aria-labelledby="{key}-h"><h2 id="{key}-h">{escape(name)}</h2>{body}</section>'


def _percent(value: float, digits: int = 1) -> str:
    return f"{100 * value:.{digits}f} %"


def _facts(data: dict[str, Any]) -> str:
    facts = [f"{data['rows']:,} rows", f"{data['columns']:,} columns"]
    if data["classes"]:
        facts.append(f"{len(data['classes'])} classes, the largest {_percent(data['largest_class'])}")
    if data["target"]:
        facts.append(
            f"target from {data['target']['low']:g} to {data['target']['high']:g}, mean {data['target']['mean']:g}"
        )
    if data["folds"]:
        facts.append(f"{data['folds']} folds")
    return "".join(f"<li>{escape(fact)}</li>" for fact in facts)


def _scale(scores: list[dict[str, Any]], kind: str) -> tuple[float, float]:
    """Return a common scale for the intervals of scores."""
    lows = [score["mean"] if score["low"] is None else score["low"] for score in scores]
    highs = [score["mean"] if score["high"] is None else score["high"] for score in scores]
    low, high = min(lows), max(highs)
    if kind == "metric":
        low = max(low, 0.0)
    if kind != "density":
        high = min(high, 1.0)
    pad = 0.05 * (high - low) or 0.01
    return low - pad, high + pad


def _range(kind: str, score: dict[str, Any]) -> str:
    if score["low"] is None:
        return "no interval from one fold"
    low, high = score["low"], score["high"]
    if kind == "metric":
        return f"{100 * max(low, 0):.1f} to {100 * min(high, 1):.1f} %"
    return f"{low:.3f} to {min(high, 1):.3f}" if kind == "r2" else f"{low:.2f} to {high:.2f}"


def _headline(cards: list[dict[str, Any]]) -> Section:
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
            f'<p class="change {change["state"]}">{escape(change["text"])}</p></article>'
        )
    note = (
        '<p class="hint">All figures are for held-out rows. Intervals are 95 % intervals over the folds; the last line of a card is '
        "learned minus best plain, on the same folds.</p>"
    )
    return "before-after", "Before and after", f'<div class="cards">{"".join(parts)}</div>{note}' if parts else ""


def _methods(summary: dict[str, Any]) -> Section:
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
            "Difference from the best plain method",
        ]
        body = "".join(_method_row(line, scale, low, high, columns) for line in lines)
        caption = "Metrics" if kind == "metric" else "Densities"
        parts.append(_table(f"All {key}", caption, columns, body))
    return "methods", "Every method", "".join(parts)


def _table(label: str, caption: str, columns: list[str], body: str, css: str = "") -> str:
    """Return a table that the script makes sortable, and whose rows become cards on a phone."""
    heads = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(label, quote=True)}"><table class="methods sortable">'
        f'<caption class="{css}">{caption}</caption><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _cell(content: str, column: str, css: str = "", value: float | None = None) -> str:
    """Return a cell with the name of its column, for phones, and the value by which it is sorted."""
    sort = "" if value is None else f' data-value="{value:.10g}"'
    return f'<td class="{css}" data-column="{escape(column, quote=True)}"{sort}>{content}</td>'


def _method_row(line: dict[str, Any], kind: str, low: float, high: float, columns: list[str]) -> str:
    tag = '<span class="tag">learned</span>' if line["learned"] else ""
    name = f'<th scope="row">{escape(line["label"])} {tag}</th>'
    _, head, interval, *others, against = columns
    if line["failure"]:
        return f'<tr class="failed">{name}<td colspan="{3 + len(others)}">not possible: {escape(line["failure"])}</td></tr>'
    css, score = "learned" if line["learned"] else "plain", line["score"]
    said = f"{line['label']}: {shown(kind, score['mean'])}, 95 % interval {_range(kind, score)}"
    mark = f"{interval_mark(score, low, high, css, said)}<small>{_range(kind, score)}</small>"
    width = None if score["low"] is None else score["high"] - score["low"]
    cells = [
        _cell(shown(kind, score["mean"]), head, "number", score["mean"]),
        _cell(mark, interval, value=width),
        *(_cell(escape(line["others"].get(other.lower(), "")), other, "number") for other in others),
    ]
    note = f"<small>{escape(line['note'])}</small>" if line["note"] else ""
    difference = None if line["difference"] is None else line["difference"]["mean"]
    if line["not_judged"]:
        cells.append(_cell(f"not judged: {escape(line['not_judged'])}", against, "change even"))
    elif line["reference"]:
        cells.append(_cell(f"the best plain one{note}", against, "change even", 0.0))
    elif line["difference"]:
        change = f"{escape(line['difference']['text'])}{note}"
        cells.append(_cell(change, against, f"change {line['state']}", difference))
    else:
        cells.append(_cell(note, against))
    return f'<tr class="{css}{" best" if line["best"] or line["reference"] else ""}">{name}{"".join(cells)}</tr>'


def _views(views: dict[str, Any] | None) -> Section:
    if views is None:
        return "plane", "The rows, before and after", ""
    figures = "".join(_figure(views, side) for side in ("before", "after"))
    drawn = f"{len(views['rows']):,} of {views['n']:,} rows are drawn. " if len(views["rows"]) < views["n"] else ""
    held_out = ""
    if views["held_out"] is not None:
        held_out = (
            "Filled points were held out; hollow points are rows from which the metric was learned. The left side initially shows the best "
            "plain metric. "
        )
    return (
        "plane",
        "The rows, before and after",
        f'<p class="hint">{drawn}{held_out}Each side can show any method. Point at a row to see its values; click it (or use the arrow '
        "keys) to see its neighbours on both sides.</p>"
        f'<div id="legend" class="legend" role="group" aria-label="Classes"></div><div class="planes">{figures}</div>'
        '<div class="picked"><p><label>Find row <input id="pick" type="text" autocomplete="off" spellcheck="false"></label> '
        '<button type="button" id="clear">Clear</button></p>'
        '<div id="details" aria-live="polite"><p class="muted">No row is selected.</p></div></div>',
    )


def _figure(views: dict[str, Any], side: str) -> str:
    """Return one plane, with a list of the methods that it can show."""
    at = views["planes"][views[side]]
    options = "".join(
        f'<option value="{place}"{" selected" if place == views[side] else ""}>{escape(plane["label"])}'
        f"{' (learned)' if plane['learned'] else ''}</option>"
        for place, plane in enumerate(views["planes"])
    )
    return (
        f'<figure><figcaption><label>{side.capitalize()}: <select id="method-{side}">{options}</select></label> '
        f'<span id="explained-{side}">{_percent(at["explained"], 0)} of the variance in this plane</span></figcaption>'
        f'<svg class="plane" id="plane-{side}" tabindex="0" role="group" aria-label="{escape(at["label"], quote=True)}: '
        f'{len(views["rows"])} rows; arrow keys move from row to row, Escape clears"></svg></figure>'
    )


def _purity(purity: dict[str, Any] | None, row: str) -> Section:
    if purity is None:
        return "purity", "Neighbour purity", ""
    curves = [
        (curve["label"], curve["values"], "best" if curve["best"] else "learned" if curve["learned"] else "plain")
        for curve in purity["curves"]
    ]
    chart = line_charts(
        curves,
        x_label="number of neighbours k",
        y_label="share of neighbours of the same class",
        label=f"Share of the first k neighbours that have the same class, for each metric: {_curves_as_text(purity['curves'])}",
        as_percent=True,
    )
    return (
        "purity",
        "Neighbour purity",
        f'<p class="hint">The share of a {row}\'s first k neighbours that have its class, for each k. Higher and flatter is better.</p>'
        f'<div class="scroll" tabindex="0" role="region" aria-label="Purity chart">{chart}</div>',
    )


def _curves_as_text(curves: list[dict[str, Any]]) -> str:
    """Return the ends of the curves in words, as the text alternative of the chart."""
    return "; ".join(
        f"{curve['label']} {_percent(curve['values'][0])} at k = 1, {_percent(curve['values'][-1])} at k = {len(curve['values'])}"
        for curve in curves
    )


def _metric(metric: dict[str, Any] | None, how: str) -> Section:
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
    grey = "; the grey bar is its share before" if any(e["before"] is not None for e in metric["relevance"]) else ""
    left_out = (
        f" The {metric['left_out']} least important columns are left out of the matrix." if metric["left_out"] else ""
    )
    return (
        "metric",
        "What was learned",
        f'<p class="hint">{escape(metric["label"])}{how}. The share of a column is the contribution of one '
        f"standard deviation of it to the squared distance{grey}.</p>"
        f'<div class="two"><div><h3>Relevance of the columns</h3><div class="scroll" tabindex="0" role="region" aria-label="Relevance">'
        f'<table class="relevance"><caption class="hidden">Share of each column</caption>{"".join(rows)}</table></div></div>'
        f'<div><h3>The learned metric</h3><div class="scroll" tabindex="0" role="region" aria-label="Learned metric">'
        f"{heatmap(metric['columns'], metric['matrix'], 'The learned matrix M, in standard deviations of the columns')}</div>"
        '<p class="hint">Each square is an entry of M: <span class="key plus"></span> columns that add up in a distance, '
        f'<span class="key minus"></span> columns that cancel each other.{left_out}</p></div></div>',
    )


_DIP = (
    " Where the curve dips, a step did not improve the objective, and the solver continued from a better point. The model has the "
    "highest value, with which the curve ends."
)


def _path(path: dict[str, Any] | None, metric: dict[str, Any] | None) -> Section:
    if path is None:
        if metric is None:
            return "path", "Convergence", ""
        return (
            "path",
            "Convergence",
            f"<p>{escape(metric['label'])} has a closed form, so there is no curve to show.</p>",
        )
    chart = line_charts(
        [("", path["values"], "best")], x_label="pass over the pairs", y_label="objective per row", label=f"Objective of {path['label']} after each pass: from {path['values'][0]:.4g} to {path['values'][-1]:.4g}", height=240,
    )  # fmt: skip
    end = "converged" if path["converged"] else "stopped before it converged"
    dip = _DIP if any(after < before for before, after in pairwise(path["values"])) else ""
    return (
        "path",
        "Convergence",
        f'<p class="hint">{escape(path["label"])} {end} after {len(path["values"])} passes.{dip}</p>'
        f'<div class="scroll" tabindex="0" role="region" aria-label="Convergence chart">{chart}</div>',
    )


def _outliers(outliers: dict[str, Any] | None, with_plane: bool) -> Section:
    if outliers is None:
        return "outliers", "Unusual rows", ""
    columns = ["Row", "Log-density", "p-value", "Why"]
    rows = []
    for place, row in enumerate(outliers["rows"]):
        why = "; ".join(row["why"])
        flag = '<span class="flag">outlier</span>' if row["outlier"] else ""
        rows.append(
            f'<tr id="unusual-{place}"><th scope="row"><span class="row-name">{escape(row["row"])}</span> {flag}</th>'
            + _cell(f"{row['log_density']:.2f}", columns[1], "number", row["log_density"])
            + _cell(f"{row['p_value']:.4f}", columns[2], "number", row["p_value"])
            + _cell(escape(why), columns[3])
            + "</tr>"
        )
    return (
        "outliers",
        "Unusual rows",
        f'<p class="hint">Each row is scored under the {escape(outliers["density"])} density of the others; a typical row has '
        f"{outliers['typical']:.2f}. Of {outliers['n']:,} rows, {outliers['flagged']:,} are flagged as outliers (p &lt;= 0.01). "
        " The score is the more unusual of the log-density and the distance to a neighbour outside small "
        "groups, so that small groups of outliers are found as well. The p-value is the share of rows that are at least as unusual. It is a rank, so "
        "the most unusual of n rows always has 1/n. The last column names the columns that are most surprising given the row's other columns, with "
        f"the 90 % interval in which they were expected.{' The name of a row links to its point in the plane.' if with_plane else ''}</p>"
        + _table("Unusual rows", "The least likely rows", columns, "".join(rows), "hidden"),
    )


def _data(data: dict[str, Any]) -> Section:
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
        "How the data were prepared",
        f"<ul>{items}</ul><p><strong>Columns:</strong> {names}{more}</p>{classes}",
    )


def _code(code: str) -> Section:
    return (
        "code",
        "Reproduce this in Python",
        f'<div class="code"><button type="button" id="copy">Copy</button><pre tabindex="0" aria-label="Python code"><code id="source">{escape(code)}</code></pre></div>',
    )
