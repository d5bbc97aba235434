"""The execution of a comparison: every method in every fold, saved as soon as it is finished."""

from collections.abc import Callable, Generator
from contextlib import closing
from os import PathLike
from typing import Any

import numpy as np

from vicinal._compare.folds import Fits, Outcome, density_outcome, metric_outcome
from vicinal._compare.kept import KeptOutcomes
from vicinal._compare.methods import Method
from vicinal._compare.plan import Plan
from vicinal._compare.results import Comparison
from vicinal._compare.verdicts import method_results, verdict_of
from vicinal._engine import as_engine, rows_on_cluster
from vicinal._lca.penalty_search import shared_searches
from vicinal._words import duration

Task = tuple[str, Method]  # "metric" or "density", and the method


def outcome_of(plan: Plan, kind: str, method: Method, fold: int, fits: Fits) -> Outcome:
    """Return the outcome of a method in a fold."""
    rows = plan.rows_of(fold)
    if kind == "metric":
        return metric_outcome(method, rows, plan.options.n_neighbors, len(plan.classes) or None, fits)
    return density_outcome(method, rows, fits)


class _FoldWork:
    """The outcomes of some methods in a fold, on a worker, which keeps the plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def __call__(self, unit: tuple[int, list[tuple[str, str]]]) -> dict[tuple[str, str], Outcome]:
        fold, names = unit
        methods = {
            (kind, method.name): method
            for kind, some in (("metric", self._plan.metrics), ("density", self._plan.densities))
            for method in some
        }
        fits = Fits()
        with shared_searches():
            return {(kind, name): outcome_of(self._plan, kind, methods[kind, name], fold, fits) for kind, name in names}


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
        self._n_threads = 1  # of all workers, if there are workers

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
        total = n_folds * (len(self._quick) + len(self._slow))
        on_workers = rows_on_cluster() or as_engine(self.plan.options.engine).kind == "dask"
        run_stage = self._stage_on_workers if on_workers else self._stage
        for tasks in (self._quick, self._slow):
            with closing(run_stage(tasks)) as steps:
                for place, (fold, kind, method) in enumerate(steps):
                    if progress is not None:
                        done = place + (n_folds * len(self._quick) if tasks is self._slow else 0)
                        left = self._time_left(tasks)
                        progress(done, total, f"{kind} {method.label}, fold {fold + 1} of {n_folds}{left}")
            if tasks is self._quick and tasks and self._slow and first_results is not None:
                first_results(self._conclude(range(n_folds), [method for _, method in self._quick]))
        if progress is not None:
            progress(total, total, "done")

    def _stage(self, tasks: list[Task]) -> Generator[tuple[int, str, Method], None, None]:
        """Compute the outcomes of some methods fold by fold; yield each fold and method before it is computed."""
        for fold in range(len(self.plan.splits)):
            fits = Fits()
            with shared_searches():
                for kind, method in tasks:
                    yield fold, kind, method
                    known = self._known(kind, method, fold)
                    self._finish(kind, method, fold, known or outcome_of(self.plan, kind, method, fold, fits), known)

    def _stage_on_workers(self, tasks: list[Task]) -> Generator[tuple[int, str, Method], None, None]:
        """Compute the same outcomes on the workers of the active Dask client; yield each fold and method after it is computed."""
        from vicinal._engine.dask.cluster import n_threads, results_in_order

        self._n_threads = n_threads()
        # Methods that share fits or searches are computed by the same task.
        shared = [task for task in tasks if task[1].shared]
        groups = [tasks] if tasks is self._quick else [shared, *([task] for task in tasks if task not in shared)]
        units = [(fold, group) for fold in range(len(self.plan.splits)) for group in groups if group]
        left = [
            (fold, [(kind, m.name) for kind, m in group if self._known(kind, m, fold) is None]) for fold, group in units
        ]
        work, unknown = _FoldWork(self.plan), [unit for unit in left if unit[1]]
        with closing(results_in_order(work, unknown, "vicinal.fold")) as found:
            for (fold, group), (_, names) in zip(units, left, strict=True):
                outcomes = next(found) if names else {}
                for kind, method in group:
                    known = self._known(kind, method, fold)
                    self._finish(kind, method, fold, known or outcomes[kind, method.name], known)
                    yield fold, kind, method

    def _known(self, kind: str, method: Method, fold: int) -> Outcome | None:
        """Return the outcome of an interrupted run, or None."""
        return None if self._kept is None else self._kept.get(kind, method.name, fold)

    def _finish(self, kind: str, method: Method, fold: int, outcome: Outcome, known: Outcome | None) -> None:
        self._outcomes[kind, method.name][fold] = outcome
        if self._kept is not None and known is None:
            self._kept.add(kind, method.name, fold, outcome)

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

    def _time_left(self, tasks: list[Task]) -> str:
        """Return the remaining time, if every remaining method has finished at least one fold."""
        n_folds, seconds = len(self.plan.splits), 0.0
        for kind, method in tasks if tasks is self._slow else [*tasks, *self._slow]:
            known = [outcome.seconds for outcome in self._outcomes[kind, method.name].values()]
            if not known:
                return ""
            seconds += (n_folds - len(known)) * sum(known) / len(known)
        return f"; about {duration(seconds / self._n_threads)} left"

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
        targets = plan.targets
        codes = None if targets is None else targets.codes
        largest_class = None if codes is None else float(np.bincount(codes).max() / len(codes))
        base = {"metric": 0.0 if largest_class is None else largest_class, "density": -np.inf}
        verdicts = [verdict_of(results[kind], base[kind]) for kind in results]
        helped, reference, best = (dict(zip(results, part, strict=True)) for part in zip(*verdicts, strict=True))
        return Comparison(
            helped=helped,
            reference=reference,
            best=best,
            metrics=results["metric"],
            densities=results["density"],
            n_rows=len(plan.kept),
            n_features=len(plan.names),
            n_neighbors=plan.options.n_neighbors,
            n_folds=len(folds),
            task=None if targets is None else targets.task,
            classes=plan.classes,
            largest_class=largest_class,
            notes=[*notes, *plan.notes],
            types=dict(zip(plan.names, plan.kinds, strict=True)),
            settings=plan.settings,
            rows=plan.kept,
            methods={kind: {method.name: method for method in some} for kind, some in chosen.items()},
        )
