"""The execution of a comparison: every method in every fold, saved as soon as it is finished."""

from collections.abc import Callable, Iterator
from os import PathLike
from typing import Any

import numpy as np

from vicinal._compare.folds import Fits, Outcome, density_outcome, metric_outcome
from vicinal._compare.kept import KeptOutcomes
from vicinal._compare.methods import Method
from vicinal._compare.plan import Plan
from vicinal._compare.results import Comparison
from vicinal._compare.verdicts import method_results, verdict_of
from vicinal._compare.words import verdict_sentence
from vicinal._lca.folds import shared_searches
from vicinal._words import duration

Task = tuple[str, Method]  # "metric" or "density", and the name of the method


class Run:
    """One run of a plan.

    Parameters
    ----------
    plan : Plan
    keep : path or None
        The file in which finished outcomes are kept.
    """

    def __init__(self, plan: Plan, keep: str | PathLike[str] | None = None) -> None:
        self.plan = plan
        tasks = [("metric", method) for method in plan.metrics] + [("density", method) for method in plan.densities]
        self._quick: list[Task] = [(kind, method) for kind, method in tasks if not (method.costly and method.learned)]
        self._slow: list[Task] = [task for task in tasks if task not in self._quick]
        self._outcomes: dict[tuple[str, str], dict[int, Outcome]] = {(kind, m.name): {} for kind, m in tasks}
        self._kept = None if keep is None else KeptOutcomes(keep, plan)

    def go(
        self,
        progress: Callable[[int, int, str], Any] | None = None,
        first_results: Callable[[Comparison], Any] | None = None,
    ) -> Comparison:
        """Run the comparison, fast methods first; return the finished work if the user interrupts it."""
        try:
            self._do(progress, first_results)
        except KeyboardInterrupt:
            stopped = self._what_is_done()
            if stopped is None:
                raise
            return stopped
        return self._conclude(range(len(self.plan.splits)), [*self.plan.metrics, *self.plan.densities])

    def _do(
        self, progress: Callable[[int, int, str], Any] | None, first_results: Callable[[Comparison], Any] | None
    ) -> None:
        n_folds = len(self.plan.splits)
        done, total = 0, n_folds * (len(self._quick) + len(self._slow))
        for fold, tasks in self._in_order():
            fits = Fits()
            with shared_searches():
                for place, (kind, method) in enumerate(tasks):
                    if progress is not None:
                        left = self._time_left(fold, tasks, place)
                        progress(done, total, f"{kind} {method.label}, fold {fold + 1} of {n_folds}{left}")
                    self._outcomes[kind, method.name][fold] = self._outcome(kind, method, fold, fits)
                    done += 1
            is_first = tasks is self._quick and fold == n_folds - 1 and self._slow
            if is_first and first_results is not None:
                first_results(self._conclude(range(n_folds), [method for _, method in self._quick]))
        if progress is not None:
            progress(total, total, "done")

    def _in_order(self) -> Iterator[tuple[int, list[Task]]]:
        """Yield the fast methods in all folds, then the others fold by fold, so that their duration is known early."""
        for tasks in (self._quick, self._slow):
            if tasks:
                yield from ((fold, tasks) for fold in range(len(self.plan.splits)))

    def _outcome(self, kind: str, method: Method, fold: int, fits: Fits) -> Outcome:
        if self._kept is not None:
            known = self._kept.get(kind, method.name, fold)
            if known is not None:
                return known
        rows = self.plan.rows_of(fold)
        if kind == "metric":
            outcome = metric_outcome(method, rows, self.plan.options.n_neighbors, len(self.plan.classes) or None, fits)
        else:
            outcome = density_outcome(method, rows, fits)
        if self._kept is not None:
            self._kept.add(kind, method.name, fold, outcome)
        return outcome

    def _what_is_done(self) -> Comparison | None:
        """Return a comparison of the finished folds of all methods, or of the quick methods; None if there is neither."""
        n_folds = len(self.plan.splits)
        for tasks, least in ((self._quick + self._slow, 2), (self._quick, n_folds)):
            # Folds run in their order, so finished folds come first.
            n_done = min((len(self._outcomes[kind, method.name]) for kind, method in tasks), default=0)
            folds = range(n_done)
            if n_done >= least:
                left = [method.label for kind, method in self._slow if (kind, method) not in tasks]
                missing = f" without {', '.join(dict.fromkeys(left))}" if left else ""
                note = (
                    f"The comparison was interrupted: this is the result of {len(folds)} of {n_folds} folds{missing}."
                )
                return self._conclude(folds, [method for _, method in tasks], note)
        return None

    def _time_left(self, fold: int, tasks: list[Task], place: int) -> str:
        """Return the remaining time, if every remaining method has finished at least one fold."""
        rest = [*tasks[place:], *(len(self.plan.splits) - fold - 1) * tasks]
        if tasks is self._quick:
            rest += len(self.plan.splits) * self._slow
        seconds = 0.0
        for kind, method in rest:
            known = [outcome.seconds for outcome in self._outcomes[kind, method.name].values()]
            if not known:
                return ""
            seconds += sum(known) / len(known)
        return f"; about {duration(seconds)} left"

    def _conclude(self, folds: range, methods: list[Method], *notes: str) -> Comparison:
        """Return the comparison of some methods in some folds."""
        plan = self.plan
        train, test = plan.splits[0]
        chosen = {
            "metric": [method for method in plan.metrics if method in methods],
            "density": [method for method in plan.densities if method in methods],
        }
        results = {
            kind: method_results(
                kind,
                some,
                {(kind, m.name): [self._outcomes[kind, m.name][fold] for fold in folds] for m in some},
                len(test) / len(train),
                plan.discreteness if kind == "density" else None,
            )
            for kind, some in chosen.items()
        }
        verdicts = {kind: verdict_of(found) for kind, found in results.items()}
        summary = {
            "helped": {kind: found[0] for kind, found in verdicts.items()},
            "reference": {kind: found[1] for kind, found in verdicts.items()},
            "best": {kind: found[2] for kind, found in verdicts.items()},
        }
        targets, n_neighbors = plan.targets, plan.options.n_neighbors
        codes = None if targets is None else targets.codes
        return Comparison(
            metrics=results["metric"],
            densities=results["density"],
            verdict=verdict_sentence(results, n_neighbors=n_neighbors, left_out=plan.left_out, **summary),
            n_rows=len(plan.kept),
            n_features=len(plan.names),
            n_neighbors=n_neighbors,
            n_folds=len(folds),
            task=None if targets is None else targets.task,
            classes=plan.classes,
            largest_class=None if codes is None else float(np.bincount(codes).max() / len(codes)),
            notes=[*notes, *plan.notes],
            types=dict(zip(plan.names, plan.kinds, strict=True)),
            settings=plan.settings,
            rows=plan.kept,
            methods={kind: {method.name: method for method in some} for kind, some in chosen.items()},
            **summary,
        )
