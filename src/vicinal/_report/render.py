"""The page of a report: which sections it has, and the figures in the form in which they are shown."""

from itertools import pairwise
from typing import Any

from vicinal._compare.words import range_text, shown
from vicinal._pages import charts_module, page, with_minus
from vicinal._words import percent

_SECTIONS = {
    "before-after": "Before and after",
    "methods": "Every method",
    "plane": "The rows, before and after",
    "purity": "Neighbour purity",
    "metric": "What was learned",
    "path": "Convergence",
    "outliers": "Unusual rows",
    "data": "How the data were prepared",
    "code": "Reproduce this in Python",
}


def render(summary: dict[str, Any]) -> str:
    """Return the HTML document."""
    charts, path, metric, purity = charts_module(), summary["path"], summary["metric"], summary["purity"]
    tables = _method_tables(summary)
    is_shown = {
        "before-after": summary["headline"],
        "methods": tables,
        "plane": summary["views"],
        "purity": purity,
        "metric": metric,
        "path": path or metric,
        "outliers": summary["outliers"],
        "data": True,
        "code": True,
    }
    return page(
        "report.html",
        {key: name for key, name in _SECTIONS.items() if is_shown[key]},
        with_script=True,
        data=summary["views"],
        facts=_facts(summary["data"]),
        method_tables=tables,
        data_facts=summary["data"],
        source=summary["code"],
        purity_chart=None if purity is None else _purity_chart(purity["curves"], charts),
        path_chart=None if path is None else _path_chart(path, charts),
        path_dips=path is not None and any(after < before for before, after in pairwise(path["values"])),
        largest_share=None
        if metric is None
        else max(max(e["after"], e["before"] or 0.0) for e in metric["relevance"]) or 1.0,
        interval_mark=charts.interval_mark,
        heatmap=charts.heatmap,
        common_scale=_common_scale,
        range_text=_range_text,
        score_text=lambda scale, score, label: (
            f"{label}: " + with_minus(f"{shown(scale, score['mean'])}, 95 % interval {_range_text(scale, score)}")
        ),
        shown=shown,
        **{name: value for name, value in summary.items() if name not in ("data", "code", "version")},
    )


def _facts(data: dict[str, Any]) -> list[str]:
    facts = [f"{data['rows']:,} rows", f"{data['columns']:,} columns"]
    if data["classes"]:
        facts.append(f"{len(data['classes'])} classes, the largest {percent(data['largest_class'])}")
    if data["target"]:
        target = data["target"]
        facts.append(f"target from {target['low']:g} to {target['high']:g}, mean {target['mean']:g}")
    return [*facts, f"{data['folds']} folds"] if data["folds"] else facts


def _common_scale(scores: list[dict[str, Any]], kind: str) -> tuple[float, float]:
    """Return a common scale for the intervals of scores."""
    low = min(score["mean"] if score["low"] is None else score["low"] for score in scores)
    high = max(score["mean"] if score["high"] is None else score["high"] for score in scores)
    if kind == "metric":
        low = max(low, 0.0)
    if kind != "density":
        high = min(high, 1.0)
    pad = 0.05 * (high - low) or 0.01
    return low - pad, high + pad


def _range_text(kind: str, score: dict[str, Any]) -> str:
    if score["low"] is None:
        return "no interval from one fold"
    return range_text(kind, score["low"], score["high"]) + (" %" if kind == "metric" else "")


def _method_tables(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the tables of metrics and of densities that have scores: columns, lines, and the scale of their intervals."""
    tables = []
    for kind, key in (("metric", "metrics"), ("density", "densities")):
        lines = summary[key]
        scores = [line["score"] for line in lines if line["score"]]
        if not scores:
            continue
        scale = "r2" if kind == "metric" and summary["data"]["task"] == "numbers" else kind
        neighbors = summary["data"]["neighbors"]
        main = {"metric": f"{neighbors}-NN accuracy", "r2": f"{neighbors}-NN R²", "density": "Log-likelihood"}[scale]
        others = next((list(line["others"]) for line in lines if line["others"]), list[str]())
        columns = [
            kind.capitalize(),
            main,
            "95 % interval",
            *map(str.capitalize, others),
            "Difference from the best plain method",
        ]
        tables.append(
            {"key": key, "lines": lines, "columns": columns, "scale": scale, "range": _common_scale(scores, scale)}
        )
    return tables


def _purity_chart(curves: list[dict[str, Any]], charts: Any) -> str:
    ends = "; ".join(
        f"{curve['label']} {percent(curve['values'][0])} at k = 1, {percent(curve['values'][-1])} at k = {len(curve['values'])}"
        for curve in curves
    )
    return charts.line_charts(
        [
            (curve["label"], curve["values"], "best" if curve["best"] else "learned" if curve["learned"] else "plain")
            for curve in curves
        ],
        x_label="number of neighbours k",
        y_label="share of neighbours of the same class",
        label=f"Share of the first k neighbours that have the same class, for each metric: {ends}",
        as_percent=True,
    )


def _path_chart(path: dict[str, Any], charts: Any) -> str:
    values = path["values"]
    return charts.line_charts(
        [("", values, "best")],
        x_label="pass over the pairs",
        y_label="objective per row",
        label=f"Objective of {path['label']} after each pass: from {values[0]:.4g} to {values[-1]:.4g}",
        height=240,
    )
