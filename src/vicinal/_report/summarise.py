"""The content of a report, as a dict of plain values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from vicinal._compare.intervals import Interval
from vicinal._compare.learned import linear_map
from vicinal._compare.methods import Columns, Method, metric_methods
from vicinal._compare.results import Comparison, MethodResult
from vicinal._compare.rows import ComparedTargets, read_targets
from vicinal._compare.words import headline, left_out_sentence, signed, verdict_sentences
from vicinal._engine import Engine
from vicinal._plain import rounded
from vicinal._report import views
from vicinal._report.code import reproducing_code
from vicinal._tables import describe_types
from vicinal._version import __version__
from vicinal._words import percent

_STATES = {"helped": "good", "unclear": "even", "hurt": "bad", None: "even"}


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
    X, names = X[kept], names[kept]
    seed, fit_rows = comparison.settings["random_state"], comparison.settings["fit_rows"]
    columns = Columns.of(list(comparison.types.values()))
    known = metric_methods(columns, min(len(X), fit_rows), seed, engine, comparison.task or "classes")
    metrics = {**known, **comparison.methods["metric"]}
    summary = {
        "title": title,
        "version": __version__,
        "verdict": _verdict(comparison),
        "data": data_summary(
            (comparison.n_rows, comparison.n_features),
            targets,
            feature_names,
            _notes(comparison, notes),
            folds=comparison.n_folds,
            neighbors=comparison.n_neighbors,
            task=comparison.task,
        ),
        "headline": _headline(comparison),
        "metrics": [_line(result, comparison) for result in comparison.metrics],
        "densities": [_line(result, comparison) for result in comparison.densities],
        "purity": _purity(comparison),
        "views": None,
        "metric": None,
        "path": None,
        "outliers": None,
        "next": comparison.next_step if comparison.has_next_step else None,
        "code": reproducing_code(comparison, loading),
    }
    density = comparison.best["density"] or comparison.reference["density"]
    if density is not None:
        summary["outliers"] = views.outliers(
            comparison.methods["density"][density], X, feature_names, names, fit_rows, seed, columns.measured
        )
    _add_views(summary, X, targets, names, feature_names, comparison, metrics, fit_rows, seed)
    return summary


def _verdict(comparison: Comparison) -> dict[str, Any]:
    results = {"metric": comparison.metrics, "density": comparison.densities}
    sentences = verdict_sentences(
        results,
        helped=comparison.helped,
        reference=comparison.reference,
        best=comparison.best,
        n_neighbors=comparison.n_neighbors,
        largest_class=comparison.largest_class,
    )
    states = [_STATES[comparison.helped[kind]] for kind in sentences]
    return {
        "text": headline(comparison.helped),
        "state": states[0] if len(set(states)) == 1 else "even",
        "details": [
            *({"text": text, "state": _STATES[comparison.helped[kind]]} for kind, text in sentences.items()),
            *({"text": left_out_sentence(text), "state": "even"} for text in _left_out(comparison)),
        ],
    }


def _left_out(comparison: Comparison) -> list[str]:
    """Return the columns that densities and LCA do not use, as one string in a list; an empty list if they use all."""
    left_out = [(name, kind) for name, kind in comparison.types.items() if not kind.measured]
    return [describe_types(left_out)] if left_out else []


def data_summary(
    shape: tuple[int, ...],
    targets: ComparedTargets | None,
    feature_names: list[str],
    notes: list[str],
    *,
    folds: int | None = None,
    neighbors: int | None = None,
    task: str | None = None,
) -> dict[str, Any]:
    """Return the facts about the rows, and the notes on their preparation."""
    classes = [] if targets is None or targets.classes is None else targets.classes
    codes = None if targets is None else targets.codes
    counts = [] if codes is None else np.bincount(codes, minlength=len(classes)).tolist()
    values = None if targets is None else targets.values
    return {
        "rows": shape[0],
        "columns": shape[1],
        "names": feature_names[: views.MOST_COLUMNS_SHOWN],
        "folds": folds,
        "neighbors": neighbors,
        "largest_class": max(counts) / shape[0] if counts else None,
        "task": task or (None if targets is None else targets.task),
        "target": None
        if values is None
        else {"low": rounded(values.min()), "high": rounded(values.max()), "mean": rounded(values.mean())},
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
    k = comparison.n_neighbors
    wanted = [
        (
            "metric",
            "accuracy",
            f"{k}-nearest-neighbour accuracy",
            "share of held-out rows that are classified correctly by a vote of their neighbours",
        ),
        (
            "metric",
            "r2",
            f"{k}-nearest-neighbour R²",
            "share of the target's variance that the mean of the neighbours explains, on held-out rows",
        ),
        ("metric", "recall@1", "Recall@1", "share of held-out rows whose nearest neighbour has their class"),
        ("metric", "recall@10", "Recall@10", "share of the first ten neighbours that have the row's class"),
        (
            "metric",
            "purity",
            f"Purity of {k} neighbours",
            f"share of the first {k} neighbours that have the row's class",
        ),
        ("density", "log_likelihood", "Log-likelihood", "mean log-density of held-out rows, in nats; higher is better"),
    ]
    for kind, score, name, meaning in wanted:
        if comparison.best[kind] is None or comparison.reference[kind] is None:
            continue
        reference = comparison.result(kind, comparison.reference[kind])
        best = comparison.result(kind, comparison.best[kind])
        if score not in best.differences:
            continue
        before = before_metric(comparison) if kind == "metric" else None
        bars = [] if before is None or before is reference else [_bar("before", before, score)]
        bars += [_bar("best plain", reference, score), _bar("learned", best, score)]
        cards.append(
            {
                "kind": kind,
                "scale": "r2" if score == "r2" else kind,
                "name": name,
                "meaning": meaning,
                "bars": bars,
                "change": _change("r2" if score == "r2" else kind, best.differences[score]),
            }
        )
    return cards


def _bar(role: str, result: MethodResult, score: str) -> dict[str, Any]:
    return {"role": role, "label": result.label, **_interval(result.intervals[score])}


def _change(scale: str, found: Interval) -> dict[str, Any]:
    state = "good" if found.low > 0 else "bad" if found.high < 0 else "even"
    return {**_interval(found), "text": signed(scale, found), "state": state}


def _interval(interval: Interval) -> dict[str, float | None]:
    return {name: rounded(value, 8) for name, value in interval._asdict().items()}


def _line(result: MethodResult, comparison: Comparison) -> dict[str, Any]:
    difference = result.difference
    state = None
    if difference is not None and result.judged:
        state = "good" if difference.low > 0 else "bad" if difference.high < 0 else "even"
    others = {
        name: f"{interval.mean:.4g}" if name == "mean_error" else percent(interval.mean)
        for name, interval in result.intervals.items()
        if name in ("recall@1", "recall@10", "purity", "mean_error")
    }
    return {
        "name": result.name,
        "label": result.label,
        "learned": result.learned,
        "reference": not result.learned and result.name == comparison.reference[result.kind],
        "best": result.learned and result.name == comparison.best[result.kind],
        "score": None if result.main is None else _interval(result.main),
        "scale": result.scale,
        "others": {name.replace("_", " "): value for name, value in others.items()},
        "difference": None
        if difference is None
        else {**_interval(difference), "text": signed(result.scale, difference, named=False)},
        "state": state,
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
    summary: dict[str, Any],
    X: np.ndarray,
    targets: ComparedTargets | None,
    names: np.ndarray,
    feature_names: list[str],
    comparison: Comparison,
    metrics: dict[str, Method],
    fit_rows: int,
    seed: int,
) -> None:
    """Fit the metrics to one split, and return what the report shows of them."""
    before_name, after_name = _names_to_show(comparison, targets)
    codes, y = (None, None) if targets is None else (targets.codes, targets.y)
    if before_name is None or after_name not in metrics:
        return
    train, test = views.split_rows(len(X), codes, fit_rows, seed)
    shown = [metrics[name] for name in dict.fromkeys([before_name, after_name, *comparison.methods["metric"]])]
    fitted = views.fitted_metrics(shown, X, y, train)
    unusual = [] if summary["outliers"] is None else [row["position"] for row in summary["outliers"]["rows"]]
    rows, held_out = views.shown_rows(len(X), test, seed, unusual)
    planes = []
    for method in shown:
        try:
            planes.append(plane_summary(views.plane(fitted[method.name], X, rows, train), method))
        except (KeyError, ValueError):
            continue  # it cannot be fitted, or keeps no direction
    places = {plane["name"]: place for place, plane in enumerate(planes)}
    if before_name not in places or after_name not in places:
        return
    label = metrics[after_name].label
    summary["views"] = views.views_summary(
        planes, places[before_name], places[after_name], rows, held_out, unusual, targets, X, feature_names, names
    )
    after = fitted[after_name]
    matrix = linear_map(after, X[train])
    if matrix is not None:
        summary["metric"] = views.learned_metric(
            matrix, views.shares_before(before_name, X[train]), feature_names, label
        )
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
