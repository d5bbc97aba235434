"""The content of a report, as a dict of plain values."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from vicinal._compare.intervals import Interval
from vicinal._compare.learned import learned_step, linear_map
from vicinal._compare.methods import Columns, Method, metric_methods
from vicinal._compare.results import Comparison, MethodResult
from vicinal._compare.rows import ComparedTargets, read_targets
from vicinal._compare.words import headline, left_out_sentences, signed, verdict_sentences
from vicinal._engine import Engine
from vicinal._plain import rounded
from vicinal._report import views
from vicinal._report.code import reproducing_code
from vicinal._version import __version__
from vicinal._words import percent

_STATES = {"helped": "good", "unclear": "even", "hurt": "bad", None: "even"}
# The scores that cards show: their kind, their name and their meaning.
_CARDS = {
    "accuracy": ("metric", "{k}-nearest-neighbour accuracy", "share of held-out rows that are classified correctly by a vote of their neighbours"),
    "r2": ("metric", "{k}-nearest-neighbour R²", "share of the target's variance that the mean of the neighbours explains, on held-out rows"),
    "recall@1": ("metric", "Recall@1", "share of held-out rows whose nearest neighbour has their class"),
    "recall@10": ("metric", "Recall@10", "share of the first ten neighbours that have the row's class"),
    "purity": ("metric", "Purity of {k} neighbours", "share of the first {k} neighbours that have the row's class"),
    "log_likelihood": ("density", "Log-likelihood", "mean log-density of held-out rows, in nats; higher is better"),
}  # fmt: skip


def new_summary(**content: Any) -> dict[str, Any]:
    """Return a summary of this content, without the parts that a report need not have."""
    parts = dict.fromkeys(("purity", "views", "metric", "path", "outliers", "next"))
    return {"version": __version__, "headline": [], "metrics": [], "densities": [], **parts, **content}


def summarise(
    X: np.ndarray,
    y: ArrayLike | None,
    comparison: Comparison,
    *,
    title: str,
    feature_names: list[str],
    row_names: ArrayLike | None,
    notes: Iterable[str],
    loading: str | None,
    engine: Engine | str | None,
) -> dict[str, Any]:
    """Return the summary; see `vicinal._report` for the steps from here to HTML."""
    kept = comparison.rows
    names = np.arange(len(X)) if row_names is None else np.asarray(row_names)
    if len(names) != len(X):
        raise ValueError(f"row_names must hold one name per row: expected {len(X)}, got {len(names)}.")
    if len(feature_names) != X.shape[1]:
        raise ValueError(
            f"feature_names must hold one name per column: expected {X.shape[1]}, got {len(feature_names)}."
        )
    if X.shape[1] != comparison.n_features or (len(kept) and kept[-1] >= len(X)):
        raise ValueError("comparison must be a comparison of the same X, but the number of rows or columns differs.")
    targets = None
    if y is not None and comparison.metrics:
        targets = read_targets(y, len(X), comparison.task or "auto").take(kept)
    table = views.Table(X[kept], targets, feature_names, names[kept], list(comparison.types.values()))
    summary = new_summary(
        title=title,
        verdict=_verdict(comparison),
        data={
            **data_summary(table, _notes(comparison, notes)),
            "folds": comparison.n_folds,
            "neighbors": comparison.n_neighbors,
            "task": comparison.task,
        },
        headline=_headline(comparison),
        metrics=[_line(result, comparison) for result in comparison.metrics],
        densities=[_line(result, comparison) for result in comparison.densities],
        purity=_purity(comparison),
        next=comparison.next_fit,
        code=reproducing_code(comparison, loading),
    )
    density = comparison.best["density"] or comparison.reference["density"]
    if density is not None:
        settings = comparison.settings["fit_rows"], comparison.settings["random_state"]
        summary["outliers"] = views.outliers(comparison.methods["density"][density], table, *settings)
    _add_views(summary, table, comparison, engine)
    return summary


def _verdict(comparison: Comparison) -> dict[str, Any]:
    sentences = verdict_sentences(comparison)
    states = [_STATES[comparison.helped[kind]] for kind in sentences]
    return {
        "text": headline(comparison.helped),
        "state": states[0] if len(set(states)) == 1 else "even",
        "details": [
            *({"text": text, "state": _STATES[comparison.helped[kind]]} for kind, text in sentences.items()),
            *({"text": text, "state": "even"} for text in left_out_sentences(comparison)),
        ],
    }


def data_summary(table: views.Table, notes: list[str]) -> dict[str, Any]:
    """Return the facts about the rows, and the notes on their preparation."""
    targets = table.targets
    classes = [] if targets is None or targets.classes is None else targets.classes
    codes = None if targets is None else targets.codes
    counts = [] if codes is None else np.bincount(codes, minlength=len(classes)).tolist()
    values = None if targets is None else targets.values
    numbers = None if values is None else {"low": values.min(), "high": values.max(), "mean": values.mean()}
    return {
        "rows": len(table.X),
        "columns": table.X.shape[1],
        "names": table.columns[: views.MOST_COLUMNS_SHOWN],
        "folds": None,
        "neighbors": None,
        "largest_class": max(counts) / len(table.X) if counts else None,
        "task": None if targets is None else targets.task,
        "target": None if numbers is None else {name: rounded(value) for name, value in numbers.items()},
        "classes": [{"name": name, "count": count} for name, count in zip(classes, counts, strict=True)],
        "notes": notes,
    }


def _notes(comparison: Comparison, notes: Iterable[str]) -> list[str]:
    """Return the notes on the preparation of the table, on the comparison and on its methods."""
    results = [*comparison.metrics, *comparison.densities]
    return [
        *notes,
        *comparison.notes,
        "Scaling, whitening and learning used only the training rows of each fold.",
        *(
            ["Densities were fitted to standardised columns; log-likelihoods are in the units of the data."]
            if comparison.densities
            else []
        ),
        *(f"{result.label} ({result.kind}): {result.note}." for result in results if result.note),
    ]


def before_metric(comparison: Comparison) -> MethodResult | None:
    """Return the metric in use before anything is learned: the better of Euclidean and z-scored."""
    plain = [result for result in comparison.metrics if result.name in ("euclidean", "z-scored") and result.judged]
    return max(plain, key=lambda result: result.main.mean, default=None)


def _headline(comparison: Comparison) -> list[dict[str, Any]]:
    """Return scores before, of the best plain and of the best learned method, with the difference of the last two."""
    cards = []
    for score, (kind, name, meaning) in _CARDS.items():
        if comparison.best[kind] is None or comparison.reference[kind] is None:
            continue
        reference = comparison.result(kind, comparison.reference[kind])
        best = comparison.result(kind, comparison.best[kind])
        if score not in best.differences:
            continue
        before = before_metric(comparison) if kind == "metric" else None
        bars = {"before": None if before is reference else before, "best plain": reference, "learned": best}
        scale, change = "r2" if score == "r2" else kind, best.differences[score]
        cards.append(
            {
                "kind": kind,
                "scale": scale,
                "name": name.format(k=comparison.n_neighbors),
                "meaning": meaning.format(k=comparison.n_neighbors),
                "bars": [
                    _interval(result.intervals[score], role=role, label=result.label)
                    for role, result in bars.items()
                    if result is not None
                ],
                "change": _interval(change, text=signed(scale, change), state=_state(change)),
            }
        )
    return cards


def _state(change: Interval) -> str:
    return "good" if change.low > 0 else "bad" if change.high < 0 else "even"


def _interval(interval: Interval, **words: Any) -> dict[str, Any]:
    return words | {name: rounded(value, 8) for name, value in interval._asdict().items()}


def _line(result: MethodResult, comparison: Comparison) -> dict[str, Any]:
    change: Interval | None = result.difference
    text: dict[str, Any] | None = None
    if change is not None:
        text = _interval(change, text=signed(result.scale, change, named=False))
    return {
        "name": result.name,
        "label": result.label,
        "learned": result.learned,
        "reference": not result.learned and result.name == comparison.reference[result.kind],
        "best": result.learned and result.name == comparison.best[result.kind],
        "score": None if result.main is None else _interval(result.main),
        "scale": result.scale,
        "others": {
            name.replace("_", " "): f"{interval.mean:.4g}" if name == "mean_error" else percent(interval.mean)
            for name, interval in result.intervals.items()
            if name in ("recall@1", "recall@10", "purity", "mean_error")
        },
        "difference": text,
        "state": _state(change) if change is not None and result.judged else None,
        "failure": result.failure,
        "not_judged": result.not_judged,
        "note": result.note,
        "seconds": rounded(result.seconds, 3),
    }


def _purity(comparison: Comparison) -> dict[str, Any] | None:
    curves = [result for result in comparison.metrics if result.curve is not None]
    if not curves:
        return None
    return {
        "curves": [
            {
                "label": result.label,
                "learned": result.learned,
                "best": result.name == comparison.best["metric"],
                "values": [rounded(value) for value in result.curve],
            }
            for result in curves
        ]
    }


def _add_views(
    summary: dict[str, Any], table: views.Table, comparison: Comparison, engine: Engine | str | None
) -> None:
    """Fit the metrics to one split, and add what the report shows of them."""
    targets, X = table.targets, table.X
    seed, fit_rows = comparison.settings["random_state"], comparison.settings["fit_rows"]
    columns, task = Columns.of(list(comparison.types.values())), comparison.task or "classes"
    known = metric_methods(columns, min(len(X), fit_rows), seed, engine, task)
    metrics = {**known, **comparison.methods["metric"]}
    before_name, after_name = _names_to_show(comparison, targets)
    codes, y = (None, None) if targets is None else (targets.codes, targets.y)
    if before_name is None or after_name is None or after_name not in metrics:
        return
    train, test = views.split_rows(len(X), codes, fit_rows, seed)
    shown = [metrics[name] for name in dict.fromkeys([before_name, after_name, *comparison.methods["metric"]])]
    fitted = views.fitted_metrics(shown, X, y, train)
    rows, held_out = views.shown_rows(len(X), test, seed, views.unusual_positions(summary))
    planes = []
    for method in shown:
        # A method that cannot be fitted, or keeps no direction, has no plane.
        with suppress(KeyError, ValueError):
            planes.append(plane_summary(views.plane(fitted[method.name], X, rows, train), method))
    places = {plane["name"]: place for place, plane in enumerate(planes)}
    if before_name not in places or after_name not in places:
        return
    label, after = metrics[after_name].label, fitted[after_name]
    shown_first = places[before_name], places[after_name]
    summary["views"] = views.views_summary(summary, table, planes, shown_first, rows, held_out)
    levels = columns.levels if getattr(learned_step(after), "_has_levels", False) else columns.codes
    matrix = linear_map(after, X[train], levels)
    if matrix is not None:
        numbers = [j for j in range(X.shape[1]) if j not in levels]  # which have coordinates of their own
        before, names = views.shares_before(before_name, X[train][:, numbers]), [table.columns[j] for j in numbers]
        learned = [table.columns[j] for j in levels] if getattr(learned_step(after), "_has_levels", False) else []
        summary["metric"] = views.learned_metric(matrix[:, numbers], before, names, label, learned)
    summary["path"] = views.path_of(after, label)
    if summary["path"] is None and comparison.best["density"] in ("lca", "lca-gauss"):
        other = metrics[comparison.best["density"]]
        fit = fitted.get(other.name) or views.fitted_metrics([other], X, y, train).get(other.name)
        summary["path"] = None if fit is None else views.path_of(fit, other.label)


def _names_to_show(comparison: Comparison, targets: ComparedTargets | None) -> tuple[str | None, str | None]:
    """Return the metric before, the best plain one, and the learned one to show; without a target, z-scored and LCA."""
    if targets is not None:
        plain = next((result for result in comparison.metrics if not result.learned and result.failure is None), None)
        return comparison.reference["metric"] or (plain and plain.name), comparison.best["metric"]
    best = comparison.best["density"]
    return "z-scored", best if best in ("lca", "lca-gauss") else "lca"


def plane_summary(found: tuple[np.ndarray, float, np.ndarray], method: Method) -> dict[str, Any]:
    """Return one plane: the points, and the neighbours of each."""
    points, explained, images = found
    return {
        "name": method.name,
        "label": method.label,
        "learned": method.learned,
        "points": [[rounded(value) for value in point] for point in points],
        "explained": rounded(explained, 3),
        "neighbors": views.neighbors_among(images).tolist(),
    }
