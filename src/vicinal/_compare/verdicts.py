"""Intervals, differences and the verdict, from the outcomes of folds."""

from typing import TYPE_CHECKING

import numpy as np

from vicinal._compare.intervals import corrected_interval
from vicinal._compare.methods import Method
from vicinal._compare.results import MORE_FOLDS, MethodResult, main_of

if TYPE_CHECKING:
    from vicinal._compare.folds import Outcome


def method_results(
    kind: str,
    chosen: list[Method],
    outcomes: "dict[tuple[str, str], list[Outcome]]",
    share: float,
    discreteness: str | None = None,
) -> list[MethodResult]:
    """Compute the intervals of each method, and of its differences from the best plain one."""
    kept = {method.name: _gather(outcomes[kind, method.name]) for method in chosen}
    reasons = {method.name: discreteness or kept[method.name][3] for method in chosen}
    scored = [method for method in chosen if kept[method.name][1] is None]
    # A method that is not judged is neither the reference nor one of the compared methods.
    judged = [method for method in scored if reasons[method.name] is None]
    plain = [method for method in judged if not method.learned]
    n_learned = max(1, sum(method.learned for method in judged))
    reference = max(plain, key=lambda method: main_of(kind, kept[method.name][0]).mean(), default=None)
    results = []
    for method in chosen:
        scores, failure, curve, note, seconds = kept[method.name]
        intervals = {name: corrected_interval(values, share) for name, values in scores.items()}
        differences, promising = {}, False
        if reference is not None and method is not reference:
            at_once = n_learned if method.learned else max(1, len(plain) - 1)
            differences = {
                name: corrected_interval(values - kept[reference.name][0][name], share, n_comparisons=at_once)
                for name, values in scores.items()
                if name in kept[reference.name][0]
            }
            if method.learned and scores and len(outcomes[kind, method.name]) < MORE_FOLDS:
                gains = main_of(kind, scores) - main_of(kind, kept[reference.name][0])
                more = corrected_interval(gains, share, n_comparisons=at_once, n_folds=MORE_FOLDS)
                promising = main_of(kind, differences).low <= 0 < more.low
        results.append(
            MethodResult(
                name=method.name,
                label=method.label,
                kind=kind,
                learned=method.learned,
                scores=scores,
                intervals=intervals,
                curve=curve,
                differences=differences,
                failure=failure,
                note=note,
                seconds=seconds,
                not_judged=None if failure else reasons[method.name],
                promising=promising,
            )
        )
    return results


def _gather(
    outcomes: "list[Outcome]",
) -> tuple[dict[str, np.ndarray], str | None, np.ndarray | None, str | None, float]:
    """Return scores by name over the folds, or the first reason why there are none."""
    failures = [outcome.failure for outcome in outcomes if outcome.failure is not None]
    seconds = sum(outcome.seconds for outcome in outcomes)
    if failures:
        where = "" if len(failures) == len(outcomes) else f" (in {len(failures)} of {len(outcomes)} folds)"
        return {}, f"{failures[0]}{where}", None, None, seconds
    notes: list[str] = []
    unfinished = sum(not outcome.converged for outcome in outcomes)
    if unfinished:
        notes.append(f"stopped before convergence in {unfinished} of {len(outcomes)} fits")
    found = [outcome.scores for outcome in outcomes if outcome.scores is not None]  # in all folds: no fit has failed
    names = [name for name in found[0] if all(name in scores for scores in found)]
    scores = {name: np.array([one[name] for one in found]) for name in names}
    curves, curve = [outcome.curve for outcome in outcomes if outcome.curve is not None], None
    if curves:
        length = min(map(len, curves))
        curve = np.mean([one[:length] for one in curves], axis=0)
    return scores, None, curve, "; ".join(notes) or None, seconds


def verdict_of(results: list[MethodResult], base: float = -np.inf) -> tuple[str | None, str | None, str | None]:
    """Return ("helped" | "unclear" | "hurt" | None, best plain, best learned).

    base : the score of a constant prediction; a method that does not reach it has not helped
    """
    plain = [result for result in results if result.judged and not result.learned]
    learned = [result for result in results if result.judged and result.learned]
    best_plain = max(plain, key=lambda result: result.main.mean, default=None)
    clear = [result for result in learned if result.difference is not None and result.difference.low > 0]
    best = max(clear or learned, key=lambda result: result.main.mean, default=None)
    names = (None if best_plain is None else best_plain.name, None if best is None else best.name)
    if best is None or best_plain is None:
        return None, *names
    if clear and best.main.mean > base:
        return "helped", *names
    return ("hurt" if best.difference.high < 0 else "unclear"), *names
